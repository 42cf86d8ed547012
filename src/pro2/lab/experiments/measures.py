"""What a cell measures: accuracy and log-loss on rows that were not drawn, nullspace norm, Theorem 1, the picture.

Pure functions of arrays: nothing here reads or writes a file, and the same cell gives the same columns anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pro2.estimators.linear import unit_rows
from pro2.lab.experiments.plan import Cell, Setting
from pro2.lab.experiments.problems import Problem
from pro2.lab.theory import mean_log_loss, norm_bounded_probe, nullspace_norm, risk_bound
from pro2.linalg.logistic import fit_logistic
from pro2.tables.draws import draw

if TYPE_CHECKING:
    from pro2.lab.experiments.methods import Features

Measures = dict[str, np.ndarray]  # one value for each setting (G,)

_CHUNK = 1 << 20  # logits at a time: with what is made from them they stay in the cache
_POINTS = 150  # of source and of target, in a picture
_L2 = 0.01  # of the probes in a picture


class Drawn(NamedTuple):
    """Rows of the table that are labelled (M,), and masks over the target's rows for test and validation."""

    few: np.ndarray
    test: np.ndarray
    val: np.ndarray


def draw_cell(problem: Problem, cell: Cell) -> Drawn:
    """The same rows for every method: a draw depends on target, shots and seed only."""
    rows = problem.targets[cell.target]
    d = draw(problem.y, rows, cell.shots, cell.seed, n_val=cell.n_val, keep=cell.min_test)
    return Drawn(d.few, np.isin(rows, d.rest), np.isin(rows, d.val))


def measure_heads(
    problem: Problem, target: str, drawn: Drawn, coef: np.ndarray, intercept: np.ndarray, unit: bool = False
) -> Measures:
    """Measures of heads on embeddings: coef (G, K, D), intercept (G, K); K = 1 for two classes.

    With `unit`, heads are for rows divided by their length.
    """
    X = problem.pool(target)[0]
    if unit:
        X = problem.once(("unit rows", target), lambda: unit_rows(X))
    G, K, D = coef.shape
    W, b = coef.reshape(-1, D).astype(X.dtype), intercept.reshape(-1, 1).astype(X.dtype)
    step = max(64, _CHUNK // len(W))
    chunks = (slice(i, i + step) for i in range(0, len(X), step))
    return measure_logits(problem, target, drawn, ((W @ X[rows].T + b).reshape(G, K, -1) for rows in chunks))


def measure_logits(problem: Problem, target: str, drawn: Drawn, chunks: Iterable[np.ndarray]) -> Measures:
    """Measures from logits (G, K, n) of all rows of a target, in chunks of rows; NaN where no row can be measured."""
    y = problem.pool(target)[1]
    parts, start = [], 0
    for logits in chunks:
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        own_class = y[start : start + logits.shape[2]]
        start += len(own_class)
        # the first of equal logits wins, so that a logit of exactly 0 predicts class 0, as scikit-learn does
        hits = logits.argmax(axis=1) == own_class
        logits = logits - logits.max(axis=1, keepdims=True)
        own = np.take_along_axis(logits, own_class[None, None, :], axis=1)[:, 0]
        parts.append((hits, np.log(np.exp(logits).sum(axis=1)) - own))
    hits, losses = (np.concatenate(part, axis=1) for part in zip(*parts))
    worst = np.full(len(hits), np.nan)
    if problem.groups is not None:
        groups = problem.groups[problem.targets[target]]
        worst = np.min([_mean(hits, drawn.test & (groups == g)) for g in np.unique(groups[drawn.test])], axis=0)
    return {
        "accuracy": _mean(hits, drawn.test),
        "val_accuracy": _mean(hits, drawn.val),
        "worst_group": worst,
        "log_loss": _mean(losses, drawn.test),
        "n_test": np.full(len(hits), drawn.test.sum()),
    }


def _mean(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return values[:, mask].mean(axis=1, dtype=np.float64) if mask.any() else np.full(len(values), np.nan)


def measure_nullspace(problem: Problem, cell: Cell, features: Features, settings: Sequence[Setting]) -> Measures:
    """How much of the best head on the target lies outside the span of the first d features."""
    head = problem.best_direction(cell.target)
    norms = nullspace_norm(features.components, head * features.scale)
    return {"nullspace_norm": norms[[(s.n_features or 0) - 1 for s in settings]]}


def measure_bound(problem: Problem, cell: Cell, features: Features, settings: Sequence[Setting]) -> Measures:
    """Theorem 1 measured: excess risk of the norm-bounded probe, and what the bound says about it.

    All rows of the target stand for its distribution; the head of the theorem has length at most one in the scaled
    space. A bound above `zero_risk`, the excess risk of the head that is zero, is vacuous.
    """
    if problem.n_classes != 2:
        raise ValueError(f"the bound of {problem.name} needs two classes, found {problem.n_classes}")
    X, y = problem.pool(cell.target)

    def population() -> tuple[np.ndarray, np.ndarray, float]:
        """Scaled rows of the target, the best head of length at most one on all of them, and its risk."""
        rows = (X.astype(np.float64) - features.mean) / features.scale
        head = norm_bounded_probe(rows, y)
        return rows, head, float(mean_log_loss(rows, y, head))

    rows, best, least = problem.once(("population", cell.target, features.scale.tobytes()), population)
    few = np.isin(problem.targets[cell.target], draw_cell(problem, cell).few)
    missed = nullspace_norm(features.components, best) * np.linalg.norm(best)
    found = []
    for d in (s.n_features or problem.width for s in settings):
        Z = rows @ features.components[:d].T
        radius, projected = (float(np.linalg.norm(part, axis=1).max()) for part in (rows, Z))
        bound = risk_bound(float(missed[d - 1]), radius, projected, int(few.sum()))
        excess = float(mean_log_loss(Z, y, norm_bounded_probe(Z[few], y[few]))) - least
        found.append((excess, *bound, math.log(2.0) - least))
    return dict(zip(("excess_risk", "bound_bias", "bound_variance", "zero_risk"), np.array(found).T))


def measure_picture(problem: Problem, cell: Cell, features: Features, settings: Sequence[Setting]) -> Measures:
    """The three-dimensional illustration as JSON: points, decision boundaries of the source, and a probe's mixture."""
    if problem.width != 3 or problem.n_classes != 2:
        raise ValueError(
            f"the picture needs 3 features and 2 classes, {problem.name} has {problem.width}, {problem.n_classes}"
        )

    def plane(coef: np.ndarray, intercept: Any) -> dict[str, Any]:
        """A head on the features as a plane in the space of the embeddings."""
        normal, offset = features.original(np.asarray(coef), np.asarray(intercept))
        return {"normal": normal.tolist(), "offset": float(offset)}

    X, y = problem.X[problem.source], problem.y[problem.source]
    Z, boundaries = features.transform(X, 3), []
    for i in range(3):
        fit = fit_logistic(Z[:, i : i + 1], y, _L2)
        boundaries.append(plane(np.eye(3)[i] * fit.coef[0], fit.intercept))
    X_target, y_target = problem.pool(cell.target)
    probe = fit_logistic(features.transform(X_target, 3), y_target, _L2)
    content = {
        "source": {"X": X[:_POINTS].tolist(), "y": y[:_POINTS].tolist()},
        "target": {"X": X_target[:_POINTS].tolist(), "y": y_target[:_POINTS].tolist()},
        "boundaries": boundaries,
        "mixture": {**plane(probe.coef, probe.intercept), "weights": np.asarray(probe.coef).tolist()},
    }
    return {"detail": np.array([json.dumps(content)] * len(settings))}


BASIS_MEASURES: Mapping[str, Callable[[Problem, Cell, Features, Sequence[Setting]], Measures]] = MappingProxyType(
    {"bound": measure_bound, "nullspace": measure_nullspace, "picture": measure_picture}
)
