"""Averaged Pro2 with one ingredient taken out, to see what each is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pro2.estimators import PriorFamily, ProjectAndProbe

# Which constants of `PriorFamily` an ingredient is, and what is left of them.
INGREDIENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "ranked covariance": ("covariances", lambda names: tuple(name for name in names if name != "ranked")),
    "whitened covariance": ("covariances", lambda names: tuple(name for name in names if name != "whitened")),
    "flat covariance": ("covariances", lambda names: tuple(name for name in names if name != "flat")),
    "source prior means": ("mean_sizes", lambda sizes: (0.0,)),
    "zero prior mean": ("mean_sizes", lambda sizes: tuple(size for size in sizes if size)),
    "small prior means": ("mean_sizes", lambda sizes: tuple(size for size in sizes if not 0 < size < 1)),
    "large prior scales": ("prior_scales", lambda scales: (min(scales),)),
    "small prior scales": ("prior_scales", lambda scales: (max(scales),)),
    "feature shrinkage": ("tolerance", lambda _: math.inf),
    "averaging": ("sharpness", lambda _: math.inf),
    "source bonus": ("source_bonus", lambda _: 0.0),
    "intercept prior": ("intercept", lambda _: 100.0),
    "class shares": ("source_shares", lambda _: 0.0),
}


def _family_changes() -> dict[str, dict[str, Any]]:
    """Only of constants that the family has, and of those that would change."""
    family, changes = PriorFamily(), {}
    for name, (field, left) in INGREDIENTS.items():
        value = getattr(family, field, None)
        if value is not None and left(value) not in (value, ()):
            changes[name] = {field: left(value)}
    return changes


WITHOUT: Mapping[str, dict[str, Any]] = MappingProxyType(_family_changes())


class Ablated(ProjectAndProbe):
    """`ProjectAndProbe` whose family of priors lacks one ingredient, one of `WITHOUT`."""

    def __init__(self, without: str = next(iter(WITHOUT))):
        if without not in WITHOUT:
            raise ValueError(f"without must be one of {list(WITHOUT)}, got {without!r}.")
        super().__init__(priors=PriorFamily(**WITHOUT[without]))
        self.without = without
