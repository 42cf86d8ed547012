"""Choosing without validation labels: closed-form approximate leave-one-out for batched probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace, device

from pro2.linalg.logistic import LogisticFit, fit_path
from pro2.linalg.moments import Array
from pro2.linalg.newton import sigmoid


def loo_path(
    Z: Array, y: Array, n_features: Sequence[int], l2: Sequence[float], *, n_classes: int = 2,
    sample_weight: Array | None = None, prior_mean: Array | None = None,
) -> tuple[LogisticFit, Array]:  # fmt: skip
    """`fit_path` and the score that each row would get from a probe fitted without it.

    Scores are (..., n_d, n_l2, M) for two classes and (..., n_d, n_l2, M, K) for more. They are one Newton step from
    the full solution (exact for a quadratic loss): with V the covariance of the scores, g and h the slope and
    curvature of the row's loss, f_loo = f + V_ii g_i / (1 - h_i V_ii). For more than two classes the curvature
    between classes is left out. A row of weight w counts as w rows, one of which is left out.
    """
    xp = array_namespace(Z)
    fit = fit_path(Z, y, n_features, l2, n_classes=n_classes, sample_weight=sample_weight, prior_mean=prior_mean)
    Z = Z if Z.dtype in (xp.float32, xp.float64) else xp.astype(Z, xp.float64)
    c = (
        xp.ones(y.shape, dtype=Z.dtype, device=device(Z))
        if sample_weight is None
        else xp.astype(sample_weight, Z.dtype)
    )
    unit = 1.0 / xp.sum(c, axis=-1)[..., None, None]
    c = c[..., None, :] * unit
    grid = xp.asarray(list(l2), dtype=Z.dtype, device=device(Z))
    scores, K, last = {}, None, 0
    for i, d in sorted(enumerate(n_features), key=lambda e: e[1]):
        new = Z[..., last:d]
        gram = new @ xp.matrix_transpose(new)
        K, last = gram if K is None else K + gram, d
        at = (Ellipsis, i, slice(None), slice(None)) if n_classes == 2 else (Ellipsis, i, *(slice(None),) * 3)
        f = _scores(xp, Z, fit.coef[at], fit.intercept[..., i, :] if n_classes == 2 else fit.intercept[..., i, :, :])
        scores[i] = _leave_out(xp, K[..., None, :, :], f, y[..., None, :], c, unit, grid, n_classes)
    return fit, xp.stack([scores[i] for i in range(len(n_features))], axis=Z.ndim - 2)


def loo_loss(scores: Array, y: Array, n_classes: int = 2, sample_weight: Array | None = None) -> Array:
    """Mean log-loss of leave-one-out scores, over rows: (..., n_d, n_l2)."""
    xp = array_namespace(scores)
    y = y[..., None, None, :]
    if n_classes == 2:
        sign = xp.astype(2 * y - 1, scores.dtype)
        margin = sign * scores
        loss = xp.maximum(-margin, xp.zeros_like(margin)) + xp.log1p(xp.exp(-xp.abs(margin)))
    else:
        top = xp.max(scores, axis=-1, keepdims=True)
        lse = xp.log(xp.sum(xp.exp(scores - top), axis=-1)) + top[..., 0]
        onehot = xp.astype(y[..., None] == xp.arange(n_classes, device=device(scores)), scores.dtype)
        loss = lse - xp.sum(onehot * scores, axis=-1)
    if sample_weight is None:
        return xp.mean(loss, axis=-1)
    w = xp.astype(sample_weight, loss.dtype)[..., None, None, :]
    return xp.sum(w * loss, axis=-1) / xp.sum(w, axis=-1)


def _scores(xp: Any, Z: Array, coef: Array, intercept: Array) -> Array:
    """(..., n_l2, M) or (..., n_l2, M, K)."""
    if coef.ndim == Z.ndim:
        return coef @ xp.matrix_transpose(Z) + intercept[..., None]
    return Z[..., None, :, :] @ xp.matrix_transpose(coef) + intercept[..., None, :]


def _leave_out(xp: Any, K: Array, f: Array, y: Array, c: Array, unit: Array, l2: Array, n_classes: int) -> Array:
    """Slope g and curvature h of one unit of weight in each row, and what taking it out does to the row's score."""
    if n_classes == 2:
        p = sigmoid(xp, f)
        curvature = p * (1.0 - p)
        return _shift(xp, K, f, unit * (p - xp.astype(y, f.dtype)), unit * curvature, c * curvature, l2)
    e = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
    P = e / xp.sum(e, axis=-1, keepdims=True)
    onehot = xp.astype(y[..., None] == xp.arange(n_classes, device=device(f)), f.dtype)
    curvature = P * (1.0 - P)
    columns = [
        _shift(xp, K, f[..., k], unit * (P - onehot)[..., k], unit * curvature[..., k], c * curvature[..., k], l2)
        for k in range(n_classes)
    ]
    return xp.stack(columns, axis=-1)


def _shift(xp: Any, K: Array, f: Array, g: Array, h: Array, H: Array, l2: Array) -> Array:
    """f + V_ii g / (1 - h V_ii) with V = T + u u' / (H'u), T = K (l2 I + H K)^-1 and u = 1 - T H (free intercept)."""
    S, lam = xp.sqrt(H), l2[..., None, None]
    eye = xp.eye(K.shape[-1], dtype=K.dtype, device=device(K))
    B = S[..., :, None] * K * S[..., None, :] + lam * eye
    T = (K - K * S[..., None, :] @ xp.linalg.solve(B, S[..., :, None] * K)) / lam
    u = 1.0 - (T @ H[..., None])[..., 0]
    mass = xp.sum(H * u, axis=-1, keepdims=True)
    V = xp.linalg.diagonal(T) + u * u / xp.where(mass > 0, mass, xp.ones_like(mass))
    # a row that alone fixes its own fit has h V -> 1: keep the step finite
    return f + V * g / xp.maximum(1.0 - h * V, xp.full_like(f, 1e-6))
