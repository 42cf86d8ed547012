"""Logistic and softmax loss, stated once: value, slope and curvature in the scores.

Scores F have the classes on their last axis: K logits, or one, that of the second class, where there are two classes.
Targets Y are one-hot (or 0 and 1) and may be soft. All functions take any leading axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

Array = Any


def affine(X: Array, coef: Array, intercept: Array) -> Array:
    """Scores (M, K') of rows X (M, D) under a head (K', D), (K'), in the type of X where they fit."""
    xp = array_namespace(X)
    with np.errstate(over="ignore", invalid="ignore"):
        F = X @ xp.matrix_transpose(xp.astype(coef, X.dtype)) + xp.astype(intercept, X.dtype)
    if X.dtype == xp.float64 or bool(xp.all(xp.isfinite(F))):
        return F
    return affine(xp.astype(X, xp.float64), coef, intercept)


def evaluate(F: Array, Y: Array) -> tuple[Array, Array]:
    """Loss of each row (...), and probabilities P of the shape of F; one exponential for both.

    loss = log(sum_k exp F_k) - sum_k Y_k F_k; its slope in F is P - Y.
    """
    xp = array_namespace(F)
    if F.shape[-1] == 1:
        e = xp.exp(-xp.abs(F))
        high = 1.0 / (1.0 + e)
        P = xp.where(F >= 0, high, e * high)
        # max(F, 0) - Y F, written so that a sure and right score cancels nothing
        linear = xp.where(F >= 0, (1.0 - Y) * F, -Y * F)
        return (linear + xp.log1p(e))[..., 0], P
    F = F - xp.max(F, axis=-1, keepdims=True)
    e = xp.exp(F)
    total = _over_classes(e)
    return (xp.log(total) - _over_classes(Y * F))[..., 0], e / total


def curvature_times(P: Array, D: Array) -> Array:
    """Second derivative of the loss in the scores, times directions D: (diag(p) - p p') d."""
    if P.shape[-1] == 1:
        return P * (1.0 - P) * D
    PD = P * D
    return PD - P * _over_classes(PD)


def mean_curvature(P: Array) -> Array:
    """Curvature of each row (...), averaged over the directions in which scores can differ."""
    if P.shape[-1] == 1:
        return (P * (1.0 - P))[..., 0]
    return (1.0 - _over_classes(P * P)[..., 0]) / (P.shape[-1] - 1.0)


def _over_classes(A: Array) -> Array:
    """Sum over the last axis, which is kept. As a product: NumPy's sums of few numbers take ten times as long."""
    xp = array_namespace(A)
    return A @ xp.ones((A.shape[-1], 1), dtype=A.dtype, device=device(A))


def probabilities(F: Array) -> Array:
    """Probability of every class (..., K) from scores; two columns where there is one logit."""
    xp = array_namespace(F)
    F = xp.concat([xp.zeros_like(F), F], axis=-1) if F.shape[-1] == 1 else F
    with np.errstate(over="ignore"):  # so far apart that the exponential is 0
        e = xp.exp(F - xp.max(F, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def one_hot(y: Array, n_classes: int, like: Array) -> Array:
    """Targets (..., K) of integer codes y (...), or (..., 1) for two classes, in the type of `like`."""
    xp = array_namespace(like)
    if n_classes == 2:
        return xp.astype(y == 1, like.dtype)[..., None]
    return xp.astype(y[..., None] == xp.arange(n_classes, device=device(y)), like.dtype)


def n_scores(n_classes: int) -> int:
    """Length of the last axis of the scores."""
    return 1 if n_classes == 2 else n_classes
