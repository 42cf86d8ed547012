"""Theorem 1 measured: excess risk of the norm-bounded probe, beside what the bound says about it."""

from __future__ import annotations

import math

import numpy as np

from pro2.lab.experiments.evaluate import draw_all
from pro2.lab.experiments.features import Features
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch
from pro2.lab.theory.bounds import mean_log_loss, norm_bounded_probe, risk_bound
from pro2.lab.theory.nullspace import nullspace_norm


def measure_bound(problem: Problem, batch: Batch, features: list[Features]) -> dict[str, np.ndarray]:
    """Each (S, G): `excess_risk`, `bound_bias`, `bound_variance`, and `zero_risk`, the excess of the head that is zero.

    All rows of the target stand for its distribution; the head of the theorem has length at most one in the scaled
    space. A bound above `zero_risk` says less than not to look at the data at all.
    """
    if problem.n_classes != 2:
        raise ValueError(f"the bound of {problem.name} needs two classes, found {problem.n_classes}")
    sizes = [s.n_features or problem.width for s in batch.settings]
    out = {name: np.zeros((len(batch.seeds), len(sizes))) for name in
           ("excess_risk", "bound_bias", "bound_variance", "zero_risk")}  # fmt: skip
    draws, y = draw_all(problem, batch), problem.pool(batch.target)[1]
    for i, at in enumerate(draws.at):
        own = features[i % len(features)]
        X, best, least = _population(problem, batch.target, own)
        missed = nullspace_norm(own.components, best) * np.linalg.norm(best)  # type: ignore[arg-type]
        for j, d in enumerate(sizes):
            Z = X @ own.components[:d].T  # type: ignore[index]
            w = norm_bounded_probe(Z[at], y[at])
            radius, projected = (float(np.linalg.norm(rows, axis=1).max()) for rows in (X, Z))
            bound = risk_bound(float(missed[d - 1]), radius, projected, len(at))
            row = (float(mean_log_loss(Z, y, w)) - least, bound.bias, bound.variance, math.log(2.0) - least)
            for name, value in zip(out, row):
                out[name][i, j] = value
    return out


def _population(problem: Problem, target: str, features: Features) -> tuple[np.ndarray, np.ndarray, float]:
    """Scaled rows of a target, the best head of length at most one on all of them, and its risk."""

    def make() -> tuple[np.ndarray, np.ndarray, float]:
        X, y = problem.pool(target)
        Z = (X.astype(np.float64) - features.mean) / features.scale
        best = norm_bounded_probe(Z, y)
        return Z, best, float(mean_log_loss(Z, y, best))

    return problem.once(("population", target, features.scale.tobytes()), make)
