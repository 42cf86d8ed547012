"""What every table that compares the default shows beside it, given the same labels: nothing here looks at another."""

from __future__ import annotations

from typing import Any

from pro2 import ProjectAndProbe
from pro2.lab.baselines import create_baseline

TITLES = {
    "source": "source head",
    "probe": "linear probe by leave-one-out",
    "paper": "the paper's Pro2, d and l2 by leave-one-out",
    "interpolation": "head interpolation by leave-one-out",
}


def create_rivals(scale: str = "standard") -> dict[str, Any]:
    """The source head, a probe on all features, the paper's method and the closest baseline, not yet fitted."""
    baselines = {"source": "source-only", "probe": "linear-probe", "interpolation": "interpolation"}
    made: dict[str, Any] = {key: create_baseline(name, scale=scale) for key, name in baselines.items()}
    made["paper"] = ProjectAndProbe(n_features="loo", l2="loo", scale=scale)
    return {key: made[key] for key in TITLES}
