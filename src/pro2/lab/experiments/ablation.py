"""The default adaptation with one ingredient taken out, to see what each is worth."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pro2.estimators import PriorFamily, ProjectAndProbe
from pro2.estimators.projection import DEFAULT_RIDGE

_ALL = PriorFamily()
WITHOUT: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "ranked features": {"covariances": ("flat", "whitened")},
        "whitening": {"covariances": ("flat", "ranked")},
        "source centres": {"sizes": (0.0,)},
        "zero centre": {"sizes": tuple(size for size in _ALL.sizes if size)},
        "small centres": {"sizes": tuple(size for size in _ALL.sizes if not 0 < size < 1)},
        "several ridges": {"ridges": (_ALL.ridges[len(_ALL.ridges) // 2],)},
        "large reach": {"reaches": (min(_ALL.reaches),)},
        "small reach": {"reaches": (max(_ALL.reaches),)},
        "second scale": {"scales": _ALL.scales[:1]},
        "damping": {"tolerance": float("inf")},
        "averaging": {"sharpness": float("inf")},
        "trust": {"trust": 0.0},
        "intercept prior": {"intercept": 100.0},
        "class shares": {"source_shares": 0.0},
    }
)


class Ablated(ProjectAndProbe):
    """`ProjectAndProbe` whose family of priors lacks one ingredient.

    Parameters
    ----------
    without : str
        One of `WITHOUT`.
    solver, ridge, scale, random_state
        As in `ProjectAndProbe`.
    """

    def __init__(
        self, without: str = "averaging", solver: str = "krylov", ridge: float = DEFAULT_RIDGE,
        scale: str | None = "auto", random_state: Any = None,
    ):  # fmt: skip
        super().__init__(solver=solver, ridge=ridge, scale=scale, random_state=random_state)
        self.without = without

    @property
    def _family(self) -> PriorFamily:
        if self.without not in WITHOUT:
            raise ValueError(f"without must be one of {list(WITHOUT)}, got {self.without!r}.")
        return PriorFamily(**WITHOUT[self.without])
