"""Data that a plan makes instead of reading: shifted Gaussians, whose best heads are known exactly."""

from __future__ import annotations

import difflib
import hashlib
from typing import Any

import numpy as np

from pro2.lab.datasets.shog import make_shog
from pro2.lab.experiments.plan import DataSpec
from pro2.lab.experiments.problems import Problem, make_problem

_SHOG = {"n_features": 20, "condition": 100.0, "separation": 4.0, "n_source": 4000, "n_target": 4000, "random_state": 0}


def generate(spec: DataSpec) -> Problem:
    """The made data of an entry with a `generator`."""
    if spec.generator != "shog":
        raise ValueError(f"data {spec.name}: generator {spec.generator!r} is not known; expected 'shog'")
    params: dict[str, Any] = {**_SHOG, **dict(spec.params)}
    for key in params:
        if key not in _SHOG:
            near = difflib.get_close_matches(key, list(_SHOG), n=1)
            raise ValueError(
                f"data {spec.name}: unknown parameter {key!r} of 'shog'; did you mean {near or list(_SHOG)}?"
            )
    return _shog_problem(spec.name, **params)


def _shog_problem(name: str, n_source: int, n_target: int, random_state: int, **shape: Any) -> Problem:
    shog = make_shog(random_state=random_state, **shape)
    domains = ("source", *shog.targets)
    sizes = [n_source, *[n_target] * len(shog.targets)]
    drawn = [shog.sample(d, n, random_state=[random_state, i]) for i, (d, n) in enumerate(zip(domains, sizes))]  # type: ignore[arg-type]
    X = np.concatenate([x for x, _ in drawn]).astype(np.float32)
    y = np.concatenate([labels for _, labels in drawn]).astype(np.int64)
    stops = np.cumsum(sizes)
    rows = {d: np.arange(stop - n, stop) for d, n, stop in zip(domains, sizes, stops)}
    source = rows.pop("source")
    heads = {d: shog.head(d)[0] for d in shog.targets}
    return make_problem(name, X, y, (0, 1), source, rows, hashlib.sha256(X.tobytes()).hexdigest(), heads)
