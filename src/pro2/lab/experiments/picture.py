"""What the three-dimensional illustration shows: points, decision boundaries of source, and a probe's mixture."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pro2.lab.experiments.features import Features
from pro2.lab.experiments.problems import Problem
from pro2.linalg.probes import fit_logistic

_POINTS = 150
_L2 = 0.01


def describe(problem: Problem, target: str, features: Features) -> str:
    """As JSON: the first rows of source and target, boundaries as (normal, offset), and the mixture."""
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
