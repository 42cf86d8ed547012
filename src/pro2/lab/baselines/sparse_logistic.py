"""L1-regularised logistic and softmax regression, batched: few features with a weight, all others exactly zero."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from pro2.linalg.probes import LogisticFit, soft_targets
from pro2.linalg.moments import Array


def fit_sparse_logistic(
    Z: Array,
    y: Array,
    l1: float,
    *,
    n_classes: int = 2,
    sample_weight: Array | None = None,
    tol: float = 1e-6,
    max_iter: int = 5000,
) -> LogisticFit:
    """Minimise sum_i c_i logloss(z_i'w + b, y_i) + l1 ||w||_1 with weights c that sum to one and a free intercept.

    Accelerated proximal gradient with restarts (Beck & Teboulle, 2009; O'Donoghue & Candes, 2015). A class without
    rows gets half a pseudo-count, as in `fit_logistic`.

    Parameters
    ----------
    Z : array (..., M, p)
        Features; leading axes are problems.
    y : integer array (..., M)
        Class codes 0..n_classes-1.
    l1 : float
        Penalty, positive. Above the largest gradient entry at w = 0 all weights are zero.
    tol : float
        On the largest violation of optimality, in units of l1 (of 1 where l1 is larger).

    Returns
    -------
    LogisticFit
        coef (..., p) and intercept (...) for two classes, with a class axis before p for more.
    """
    xp = array_namespace(Z)
    if not 0 < l1 < float("inf"):
        raise ValueError(f"l1 must be a positive finite number, got {l1}.")
    Z = Z if Z.dtype in (xp.float32, xp.float64) else xp.astype(Z, xp.float64)
    c = (
        xp.ones(y.shape, dtype=Z.dtype, device=device(Z))
        if sample_weight is None
        else xp.astype(sample_weight, Z.dtype)
    )
    Y = soft_targets(xp, y, c, n_classes)
    Y = Y[..., None] if n_classes == 2 else Y
    c = c / xp.sum(c, axis=-1, keepdims=True)
    # a column of ones carries the intercept, which is not penalised
    F = xp.concat([Z, xp.ones((*Z.shape[:-1], 1), dtype=Z.dtype, device=device(Z))], axis=-1)
    W, kkt, n_iter = _accelerate(xp, F, Y, c, l1, tol, max_iter)
    coef, intercept = W[..., :-1], W[..., -1]
    if n_classes == 2:
        coef, intercept = coef[..., 0, :], intercept[..., 0]
    return LogisticFit(coef, intercept, kkt, n_iter, kkt <= tol)


def _accelerate(
    xp: Any, F: Array, Y: Array, c: Array, l1: float, tol: float, max_iter: int
) -> tuple[Array, Array, int]:
    """Weights (..., K, p + 1), violation (...), steps; K = 1 for two classes."""
    half = xp.sqrt(c)[..., None] * F
    # the curvature of log-loss is at most 1/4 (two classes) or 1/2 (more) of the Gram matrix
    top = xp.linalg.eigvalsh(half @ xp.matrix_transpose(half))[..., -1]
    step = 1.0 / ((0.25 if Y.shape[-1] == 1 else 0.5) * top)[..., None, None]
    W = xp.zeros((*F.shape[:-2], Y.shape[-1], F.shape[-1]), dtype=F.dtype, device=device(F))
    V, t, n = W, 1.0, 0
    kkt = xp.zeros(F.shape[:-2], dtype=F.dtype, device=device(F))
    for n in range(1, max_iter + 1):
        new = _shrink(xp, V - step * _gradient(xp, F, Y, c, V), step * l1)
        kkt = xp.max(xp.abs(new - V) / step, axis=(-1, -2)) / min(l1, 1.0)
        if bool(xp.all(kkt <= tol)):
            return new, kkt, n
        uphill = float(xp.sum((V - new) * (new - W))) > 0
        following = 1.0 if uphill else 0.5 * (1.0 + (1.0 + 4.0 * t * t) ** 0.5)
        V = new if uphill else new + ((t - 1.0) / following) * (new - W)
        W, t = new, following
    return W, kkt, n


def _gradient(xp: Any, F: Array, Y: Array, c: Array, W: Array) -> Array:
    f = F @ xp.matrix_transpose(W)
    if Y.shape[-1] == 1:
        P = 0.5 * (1.0 + xp.tanh(0.5 * f))
    else:
        e = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
        P = e / xp.sum(e, axis=-1, keepdims=True)
    return xp.matrix_transpose(c[..., None] * (P - Y)) @ F


def _shrink(xp: Any, W: Array, level: Array) -> Array:
    """Soft threshold of all but the intercept."""
    w = W[..., :-1]
    small = xp.sign(w) * xp.maximum(xp.abs(w) - level, xp.zeros_like(w))
    return xp.concat([small, W[..., -1:]], axis=-1)
