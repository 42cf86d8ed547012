"""One batch becomes columns: what its measure says of each of its runs.

Pure functions of arrays: nothing here reads or writes a file, and the same batch gives the same rows anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from pro2.lab.experiments.evaluate import draw_all
from pro2.lab.experiments.methods import FeatureMethod, Measures, PreparedKey, find_method
from pro2.lab.experiments.probes import Features
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch, Setting
from pro2.lab.theory.bounds import mean_log_loss, norm_bounded_probe, risk_bound
from pro2.lab.theory.nullspace import nullspace_norm
from pro2.linalg.probes import fit_logistic

_POINTS = 150  # of source and of target, in a picture
_L2 = 0.01  # of the probes in a picture


def run_batch(problem: Problem, batch: Batch, prepared: Mapping[PreparedKey, Any]) -> dict[str, list[Any]]:
    """What a batch measures, as columns: ``key`` and one value per run for each measure."""
    method = find_method(batch.method)
    if batch.measure == "accuracy":
        return _columns(batch, method.measure(problem, batch, draw_all(problem, batch), prepared))
    measure = {"bound": measure_bound, "nullspace": measure_nullspace, "picture": measure_picture}[batch.measure]
    assert isinstance(method, FeatureMethod)  # the others have no batches of these
    return _columns(batch, method.measure_features(batch, prepared, partial(measure, problem, batch)))


def _columns(batch: Batch, values: Measures) -> dict[str, list[Any]]:
    """Flat columns in the order seeds x settings; NaN becomes null."""
    out: dict[str, list[Any]] = {"key": batch.flat_keys}
    for name, array in values.items():
        out[name] = [None if isinstance(v, float) and v != v else v for v in array.reshape(-1).tolist()]
    return out


def measure_nullspace(problem: Problem, batch: Batch, features: list[Features], settings: list[Setting]) -> Measures:
    """How much of the best head on the target lies outside the span of the first d features."""
    head, at = problem.best_direction(batch.target), [(s.n_features or 0) - 1 for s in settings]
    norms = [nullspace_norm(f.components, head * f.scale)[at] for f in features]  # type: ignore[arg-type]
    return {"nullspace_norm": np.stack(norms)}


def measure_picture(problem: Problem, batch: Batch, features: list[Features], settings: list[Setting]) -> Measures:
    return {"detail": np.array([[describe(problem, batch.target, f)] * len(settings) for f in features])}


def measure_bound(problem: Problem, batch: Batch, features: list[Features], settings: list[Setting]) -> Measures:
    """Theorem 1 measured: excess risk of the norm-bounded probe, beside what the bound says about it, each (S, G).

    All rows of the target stand for its distribution; the head of the theorem has length at most one in the scaled
    space. A bound above `zero_risk`, the excess of the head that is zero, says less than not to look at the data.
    """
    if problem.n_classes != 2:
        raise ValueError(f"the bound of {problem.name} needs two classes, found {problem.n_classes}")
    sizes = [s.n_features or problem.width for s in settings]
    names = ("excess_risk", "bound_bias", "bound_variance", "zero_risk")
    found = np.zeros((len(names), len(batch.seeds), len(sizes)))
    draws, y = draw_all(problem, batch), problem.pool(batch.target)[1]
    for i, at in enumerate(draws.at):
        own = features[i if len(features) > 1 else 0]
        X, best, least = _population(problem, batch.target, own)
        missed = nullspace_norm(own.components, best) * np.linalg.norm(best)  # type: ignore[arg-type]
        for j, d in enumerate(sizes):
            Z = X @ own.components[:d].T  # type: ignore[index]
            w = norm_bounded_probe(Z[at], y[at])
            radius, projected = (float(np.linalg.norm(rows, axis=1).max()) for rows in (X, Z))
            bound = risk_bound(float(missed[d - 1]), radius, projected, len(at))
            excess = float(mean_log_loss(Z, y, w)) - least
            found[:, i, j] = excess, bound.bias, bound.variance, math.log(2.0) - least
    return dict(zip(names, found))


def _population(problem: Problem, target: str, features: Features) -> tuple[np.ndarray, np.ndarray, float]:
    """Scaled rows of a target, the best head of length at most one on all of them, and its risk."""

    def make() -> tuple[np.ndarray, np.ndarray, float]:
        X, y = problem.pool(target)
        Z = (X.astype(np.float64) - features.mean) / features.scale
        best = norm_bounded_probe(Z, y)
        return Z, best, float(mean_log_loss(Z, y, best))

    return problem.once(("population", target, features.scale.tobytes()), make)


def describe(problem: Problem, target: str, features: Features) -> str:
    """What the three-dimensional illustration shows, as JSON: points, boundaries of source, and a probe's mixture."""
    if problem.width != 3 or problem.n_classes != 2:
        raise ValueError(
            f"the picture needs 3 features and 2 classes, {problem.name} has {problem.width}, {problem.n_classes}"
        )
    X, y = problem.X[problem.source], problem.y[problem.source]
    Z = features.transform(X, 3)
    boundaries = []
    for i in range(3):
        fit = fit_logistic(Z[:, i : i + 1], y, _L2)
        boundaries.append(_plane(features, np.eye(3)[i] * fit.coef[0], fit.intercept))
    X_target, y_target = problem.pool(target)
    probe = fit_logistic(features.transform(X_target, 3), y_target, _L2)
    mixture = _plane(features, probe.coef, probe.intercept)
    content = {
        "source": {"X": X[:_POINTS].tolist(), "y": y[:_POINTS].tolist()},
        "target": {"X": X_target[:_POINTS].tolist(), "y": y_target[:_POINTS].tolist()},
        "boundaries": boundaries,
        "mixture": {**mixture, "weights": np.asarray(probe.coef).tolist()},
    }
    return json.dumps(content)


def _plane(features: Features, coef: np.ndarray, intercept: Any) -> dict[str, Any]:
    """A head on the features as a plane in the space of the embeddings."""
    normal, offset = features.original(np.asarray(coef), np.asarray(intercept))
    return {"normal": normal.tolist(), "offset": float(offset)}
