"""Softmax regression of sources larger than memory: limited-memory BFGS from Boehning's bound, one pass a step.

The Hessian of K classes has (K D)^2 entries and its products cost a pass each; a gradient costs one pass and
(K, D) numbers. Boehning's (1992) bound H <= (1/2) X'X / n, one D x D matrix for all classes, comes with the first pass
and is the metric that the pairs of the last steps (Nocedal 1980) are built on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pro2.linalg.moments import encode, host
from pro2.linalg.streaming import Batches, Pass, StreamedFit

MEMORY = 20  # pairs: 2 K D numbers each
FLAT = 1e-7  # relative rounding of an objective summed from float32 scores


class _Sums(NamedTuple):
    """Of one pass at theta (K, D + 1): rows, objective, gradient, largest relative gradient entry, Gram matrix."""

    theta: np.ndarray
    rows: int
    value: float
    gradient: np.ndarray
    kkt: float
    gram: np.ndarray | None


def fit_softmax_stream(
    batches: Callable[[], Batches],
    classes: Sequence[Any],
    l2: float,
    *,
    tol: float,
    max_passes: int,
    report: Callable[[Pass], None] | None,
) -> StreamedFit:
    """See `pro2.linalg.streaming.fit_logistic_stream`, which checks the arguments."""
    here = _walk(batches, classes, None, l2)
    passes = [Pass(1, here.rows, here.value, here.kkt, 0.0)]
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    inverse, t = _bound_inverse(here, l2), 1.0
    direction = -here.gradient @ inverse
    while True:
        if report is not None:
            report(passes[-1])
        if here.kkt <= tol or len(passes) == max_passes or t < 1e-10:
            return StreamedFit(here.theta[:, :-1], here.theta[:, -1], passes, here.kkt <= tol)
        there = _walk(batches, classes, here.theta + t * direction, l2)
        passes.append(Pass(len(passes) + 1, there.rows, there.value, there.kkt, t))
        rise = (there.value - here.value) / abs(here.value)
        # near the optimum the objective is flat to rounding: there the gradient decides
        if not (rise <= 1e-14 or (rise <= FLAT and there.kkt < here.kkt)):
            t *= 0.5
            continue
        pairs = [*pairs[-MEMORY + 1 :], (there.theta - here.theta, there.gradient - here.gradient)]
        here, t = there, 1.0
        direction = _two_loops(here.gradient, pairs, inverse)


def _walk(batches: Callable[[], Batches], classes: Sequence[Any], theta: np.ndarray | None, l2: float) -> _Sums:
    """Objective and gradient at theta, on the first pass (theta None: zero) the Gram matrix too; sums in float64."""
    rows, value, first = 0, 0.0, theta is None
    gradient = bound = gram = np.zeros(1)
    for X, y in batches():
        codes = encode(y, classes)[1]
        X = host(X)
        Z = np.ones((len(X), X.shape[1] + 1), dtype=np.float64 if X.dtype == np.float64 else np.float32)
        Z[:, :-1] = X
        theta = np.zeros((len(classes), Z.shape[1])) if theta is None else theta
        f = (Z @ theta.T.astype(Z.dtype)).astype(np.float64)
        f -= f.max(axis=1, keepdims=True)
        P = np.exp(f)
        total = P.sum(axis=1, keepdims=True)
        value += float(np.sum(np.log(total[:, 0]) - f[np.arange(len(f)), codes]))
        P /= total
        P[np.arange(len(f)), codes] -= 1.0
        gradient = gradient + (P.T.astype(Z.dtype) @ Z).astype(np.float64)
        bound = bound + np.sum(np.abs(Z), axis=0, dtype=np.float64)
        gram = gram + (Z.T @ Z).astype(np.float64) if first else gram
        rows += len(Z)
    if theta is None:
        raise ValueError("batches() gave no rows: there is nothing to fit.")
    slopes = np.concatenate([theta[:, :-1], 0.0 * theta[:, -1:]], axis=1)  # the intercept has no penalty
    gradient = gradient / rows + l2 * slopes
    kkt = float(np.max(np.abs(gradient) / np.where(bound > 0, bound / rows, 1.0)))
    value = value / rows + 0.5 * l2 * float(np.sum(slopes * slopes))
    return _Sums(theta, rows, value, gradient, kkt, gram / rows if first else None)


def _bound_inverse(sums: _Sums, l2: float) -> np.ndarray:
    """Inverse of (1/2) X'X / n + l2, a metric in which a unit step from anywhere does not rise."""
    assert sums.gram is not None
    bound = 0.5 * sums.gram
    diagonal = np.einsum("ii->i", bound)
    diagonal[:-1] += l2
    diagonal += 1e-12 * np.max(diagonal)
    return np.linalg.inv(bound)


def _two_loops(gradient: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]], inverse: np.ndarray) -> np.ndarray:
    """Minus the inverse-Hessian estimate of the pairs times the gradient (Nocedal & Wright 2006, algorithm 7.4)."""
    q, weights, useful = -gradient, [], [(s, y) for s, y in pairs if np.sum(s * y) > 0]
    for s, y in reversed(useful):
        weights.append(np.sum(s * q) / np.sum(s * y))
        q = q - weights[-1] * y
    q = q @ inverse
    if useful:
        s, y = useful[-1]
        q *= np.sum(s * y) / np.sum((y @ inverse) * y)
    for (s, y), weight in zip(useful, reversed(weights)):
        q = q + (weight - np.sum(y * q) / np.sum(s * y)) * s
    return q
