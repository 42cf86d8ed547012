"""The basis methods of the package under the names that plans use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from pro2.estimators.moments import SourceMoments
from pro2.estimators.projection import DEFAULT_RIDGE, Projection, input_scale
from pro2.lab.experiments.heads import Features
from pro2.lab.experiments.methods import BasisMethod
from pro2.lab.experiments.problems import Problem

# Bases that are trained jointly cost N x D x d a step and change with d, so their size is fixed here.
_JOINT_SIZE = 64


def _projection(X: np.ndarray, y: np.ndarray, n: int, **options: Any) -> Features:
    fitted = Projection(n, **options).fit(X, y)
    rows = fitted.components_ * fitted.norms_[:, None]
    return Features(fitted.mean_, fitted.scale_, rows, unit=fitted.scale == "unit")


def _krylov(
    X: np.ndarray, y: np.ndarray, n: int, seed: int | None, ridge: float = DEFAULT_RIDGE, scale: str | None = "standard"
) -> Features:
    return _projection(X, y, n, ridge=ridge, scale=scale)


def _logistic(
    X: np.ndarray, y: np.ndarray, n: int, seed: int | None, ridge: float = DEFAULT_RIDGE, scale: str | None = "standard"
) -> Features:
    return _projection(X, y, n, solver="logistic", ridge=ridge, scale=scale)


def _adamw(
    X: np.ndarray,
    y: np.ndarray,
    n: int,
    seed: int | None,
    n_components: int = _JOINT_SIZE,
    scale: str | None = "standard",
    keep_norms: bool = True,
    random_state: int = 0,
) -> Features:
    d = min(n_components, X.shape[1])
    return _projection(X, y, d, solver="adamw", scale=scale, keep_norms=keep_norms, random_state=random_state)


def _identity(problem: Problem, y: None, n: int, seed: int | None, scale: str | None = "standard") -> Features:
    return Features(*_source_scaling(problem, scale), None, unit=scale == "unit")


def _random(problem: Problem, y: None, n: int, seed: int | None, scale: str | None = "standard") -> Features:
    return Features(*_source_scaling(problem, scale), _random_rows(n, problem.width, seed), unit=scale == "unit")


def _source_scaling(problem: Problem, scale: str | None) -> tuple[np.ndarray, np.ndarray]:
    made: tuple[np.ndarray, np.ndarray] = problem.once(
        ("scaling", scale), lambda: _scaling(problem.X[problem.source], scale)
    )
    return made


@lru_cache(maxsize=16)
def _random_rows(n: int, width: int, seed: int | None) -> np.ndarray:
    """They depend on no data, so data sets share them."""
    from pro2.lab.baselines.bases import random_rows

    rows = random_rows(n, width, seed)
    rows.flags.writeable = False
    return rows


def _from_moments(name: str) -> Callable[..., Features]:
    def fit(X: np.ndarray, y: np.ndarray, n: int, seed: int | None, scale: str | None = "standard") -> Features:
        from pro2.lab.baselines import bases as baseline_bases

        X = _unit(X, scale)
        mean, sd = _scaling(X, scale)
        moments = SourceMoments.from_arrays(X, y).scaled(sd)
        basis = getattr(baseline_bases, name)(moments, n)
        return Features(mean, sd, basis.components, unit=scale == "unit")

    return fit


def _trained(
    X: np.ndarray, y: np.ndarray, n: int, alignment: float, scale: str | None, n_steps: int, random_state: int
) -> Features:
    from pro2.lab.baselines.bases import alignment_basis

    X = _unit(X, scale)
    mean, sd = _scaling(X, scale)
    Z = ((X - mean) / sd).astype(np.float32)
    classes = int(y.max()) + 1
    basis = alignment_basis(Z, y, n, alignment=alignment, n_classes=classes, seed=random_state, n_steps=n_steps)
    return Features(mean, sd, np.asarray(basis.components), unit=scale == "unit")


def _unconstrained(
    X: np.ndarray,
    y: np.ndarray,
    n: int,
    seed: int | None,
    n_components: int = _JOINT_SIZE,
    scale: str | None = "standard",
    n_steps: int = 100,
    random_state: int = 0,
) -> Features:
    return _trained(X, y, min(n_components, X.shape[1]), 0.0, scale, n_steps, random_state)


def _teney(
    X: np.ndarray,
    y: np.ndarray,
    n: int,
    seed: int | None,
    n_components: int = _JOINT_SIZE,
    alignment: float = 1.0,
    scale: str | None = "standard",
    n_steps: int = 100,
    random_state: int = 0,
) -> Features:
    return _trained(X, y, min(n_components, X.shape[1]), alignment, scale, n_steps, random_state)


def _unit(X: np.ndarray, scale: str | None) -> np.ndarray:
    from pro2.estimators.linear import unit_rows

    return unit_rows(X) if scale == "unit" else X


def _scaling(X: np.ndarray, scale: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Source mean and what each feature is divided by, as `Projection` has it."""
    X = _unit(X, scale)
    mean, square = X.mean(axis=0, dtype=np.float64), np.zeros(X.shape[1])
    for i in range(0, len(X), 64):  # rows whose float64 copy stays in the cache
        rows = X[i : i + 64] - mean
        square += np.einsum("ij,ij->j", rows, rows)
    return mean, input_scale(square / len(X), scale)


BASES: Mapping[str, BasisMethod] = MappingProxyType(
    {
        "pro2": BasisMethod(_krylov),
        "pro2-logistic": BasisMethod(_logistic),
        "pro2-adamw": BasisMethod(_adamw, joint=_JOINT_SIZE),
        "pro2-nc": BasisMethod(_unconstrained, joint=_JOINT_SIZE),
        "teney": BasisMethod(_teney, joint=_JOINT_SIZE),
        "random": BasisMethod(_random, seeded=True, trained=False),
        "pca": BasisMethod(_from_moments("pca_basis")),
        "lda": BasisMethod(_from_moments("lda_basis")),
        "pls": BasisMethod(_from_moments("pls_basis")),
        "linear-probe": BasisMethod(_identity, ranked=False, trained=False),
    }
)
