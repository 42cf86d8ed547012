"""Choosing without validation labels: closed-form approximate leave-one-out for batched probes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace, device

from pro2.linalg import lapack, paths
from pro2.linalg.logistic import CHEAPER, LogisticFit, Prefixes, Problem, fit_prefixes
from pro2.linalg.moments import Array
from pro2.linalg.newton import sigmoid, solve_definite


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
    problem = Problem.check(Z, y, n_classes, sample_weight, None, 100)
    prefixes = Prefixes(problem.Z, n_features)
    fit, a = fit_prefixes(problem, prefixes, l2, prior_mean)
    xp, Z = problem.xp, problem.Z
    grid = xp.asarray(list(l2), dtype=Z.dtype, device=device(Z))
    unit = 1.0 / problem.total[..., None, None, None]  # of one row's loss in the mean
    c, y = problem.weight[..., None, None, :], y[..., None, None, :]
    f = _scores(prefixes, fit, a if prior_mean is None else None, n_classes)
    slope, curvature = _derivatives(xp, f, y, n_classes)
    if n_classes == 2:
        V = leverages(prefixes, c * curvature, grid)
    else:  # one more path a class
        H = c[..., None, :] * xp.moveaxis(curvature, -1, -2)
        across = xp.reshape(H, (*H.shape[:-3], -1, H.shape[-1]))
        V = xp.reshape(leverages(prefixes, across, xp.repeat(grid, n_classes)), H.shape)
        V, unit = xp.moveaxis(V, -2, -1), unit[..., None]
    # a row that alone fixes its own fit has h V -> 1: keep the step finite
    return fit, f + V * unit * slope / xp.maximum(1.0 - unit * curvature * V, xp.full_like(f, 1e-6))


def _scores(prefixes: Prefixes, fit: LogisticFit, a: Array | None, n_classes: int) -> Array:
    """Scores of all rows, (..., n_d, n_l2, M), behind them the classes, if any; K a where the rows were solved for."""
    xp, Z = prefixes.xp, prefixes.Z
    if n_classes > 2:
        return Z[..., None, None, :, :] @ xp.matrix_transpose(fit.coef) + fit.intercept[..., None, :]
    linear = fit.coef @ prefixes.ZT[..., None, :, :] if a is None else a @ prefixes.stacked()
    return linear + fit.intercept[..., None]


def _derivatives(xp: Any, f: Array, y: Array, n_classes: int) -> tuple[Array, Array]:
    """Slope and curvature of each row's loss in its scores."""
    if n_classes == 2:
        p = sigmoid(xp, f)
        return p - xp.astype(y, f.dtype), p * (1.0 - p)
    e = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
    P = e / xp.sum(e, axis=-1, keepdims=True)
    onehot = xp.astype(y[..., None] == xp.arange(n_classes, device=device(f)), f.dtype)
    return P - onehot, P * (1.0 - P)


def leverages(prefixes: Prefixes, H: Array, l2: Array) -> Array:
    """Variance V_ii of each row's score under curvatures H (..., n_d, J, M) and penalties l2 (J,), intercept free.

    V = T + u u' / (H'u) with T = K (l2 I + H K)^-1 = Z (l2 I + Z'HZ)^-1 Z' and u = 1 - T H, in the smaller space.
    """
    xp, Z = prefixes.xp, prefixes.Z
    if prefixes.small and paths.serves(Z, Z.shape[-2], math.prod(H.shape[:-1])):
        compiled = paths.leverages(prefixes.stacked()[..., None, :, :], H, l2)
        if compiled is not None:
            return xp.astype(compiled, Z.dtype)
    parts = {}
    for i in prefixes.order():
        d, h = prefixes.n_features[i], H[..., i, :, :]
        if d <= CHEAPER * Z.shape[-2]:
            diagonal, TH = _in_features(xp, Z[..., None, :, :d], h, l2)
        else:
            diagonal, TH = _in_rows(xp, prefixes.gram(i)[..., None, :, :], h, l2)
        u = 1.0 - TH
        mass = xp.sum(h * u, axis=-1, keepdims=True)
        parts[i] = diagonal + u * u / xp.where(mass > 0, mass, xp.ones_like(mass))
    return xp.stack([parts[i] for i in range(len(parts))], axis=-3)


def _in_features(xp: Any, Z: Array, h: Array, l2: Array) -> tuple[Array, Array]:
    """Diagonal of T and T h from one factorisation of d columns."""
    ZT = xp.matrix_transpose(Z)
    eye = xp.eye(Z.shape[-1], dtype=Z.dtype, device=device(Z))
    A = (ZT * h[..., None, :]) @ Z + l2[..., None, None] * eye
    X = solve_definite(xp, A, xp.broadcast_to(ZT, (*A.shape[:-2], *ZT.shape[-2:])))
    return xp.sum(ZT * X, axis=-2), (Z @ (X @ h[..., None]))[..., 0]


def _in_rows(xp: Any, K: Array, h: Array, l2: Array) -> tuple[Array, Array]:
    """Diagonal of T and T h from one factorisation of M columns, through l2 I + S K S, S = sqrt(h)."""
    S, lam = xp.sqrt(h), l2[..., None]
    if K.shape[-1] >= lapack.SMALLEST_CHOLESKY and lapack.serves(K):
        fast = lapack.row_leverages(K, S, l2)
        if fast is not None:
            return fast
    eye = xp.eye(K.shape[-1], dtype=K.dtype, device=device(K))
    B = S[..., :, None] * K * S[..., None, :] + lam[..., None] * eye
    SK = S[..., :, None] * K
    X = xp.linalg.solve(B, SK)
    TH = (K @ h[..., None] - xp.matrix_transpose(SK) @ (X @ h[..., None]))[..., 0]
    return (xp.linalg.diagonal(K) - xp.sum(SK * X, axis=-2)) / lam, TH / lam


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
