"""Two-class probes of many targets over a grid of penalties, each with its leave-one-out loss, in feature space.

What `selection.loo_path` gives for all features at once, at the cost that suits more rows than features: a penalty is
one Hessian of p columns. On the host a compiled kernel walks the grid from the strongest penalty to the weakest, each
solution the start of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg import fused
from pro2.linalg.logistic import fit_logistic, soft_labels
from pro2.linalg.moments import Array
from pro2.linalg.newton import sigmoid
from pro2.linalg.selection import loo_loss, loo_path

TOL = {True: 1e-10, False: 1e-4}  # by whether the features are float64: as in `fit_logistic`


class PenaltyPath(NamedTuple):
    """coef (T, L, p), intercept (T, L) and mean leave-one-out log-loss (T, L) of T targets and L penalties."""

    coef: Array
    intercept: Array
    loss: Array


def penalty_path(
    Z: Array, y: Array, l2: Sequence[float], *, sample_weight: Array | None = None, prior_mean: Array | None = None
) -> PenaltyPath:
    """All penalties on all targets.

    Parameters
    ----------
    Z : array (T, M, p)
    y : integer array (T, M)
        Codes 0 and 1.
    l2 : sequence of L positive numbers
    sample_weight : array (T, M), optional
        A row of weight w counts as w rows, one of which is left out; weight 0 is absent.
    prior_mean : array (p,), optional
        Centre of the penalty, for all targets.
    """
    xp = array_namespace(Z)
    if Z.ndim != 3 or tuple(y.shape) != tuple(Z.shape[:2]):
        raise ValueError(f"Z must be (T, M, p) and y (T, M), got {tuple(Z.shape)} and {tuple(y.shape)}.")
    if not len(l2) or not all(0 < v < float("inf") for v in l2):
        raise ValueError(f"l2 must be a list of positive finite numbers, got {list(l2)}.")
    Z = Z if Z.dtype in (xp.float32, xp.float64) else xp.astype(Z, xp.float64)
    w = xp.ones(Z.shape[:2], dtype=Z.dtype, device=device(Z)) if sample_weight is None else sample_weight
    w = xp.astype(w, Z.dtype, copy=False)
    if Z.shape[-1] > Z.shape[-2]:
        return _in_row_space(Z, y, l2, w, prior_mean)
    prior_mean = None if prior_mean is None else xp.asarray(prior_mean, dtype=Z.dtype, device=device(Z))
    offset = xp.zeros_like(w) if prior_mean is None else xp.matmul(Z, prior_mean)
    unit = 1.0 / xp.sum(w, axis=-1)
    tol = TOL[Z.dtype == xp.float64]
    fast = fused.penalty_path(Z, xp.astype(y, Z.dtype), soft_labels(y, w), w, unit, offset, l2, tol)
    if fast is None:
        return _plain(Z, y, l2, w, unit, prior_mean)
    theta, b, loss, open_ = fast
    coef = theta if prior_mean is None else theta + prior_mean
    if bool(xp.any(open_)):  # what the kernel did not bring below the tolerance
        (i,) = xp.nonzero(open_)
        again = _plain(Z[i, ...], y[i, ...], l2, w[i, ...], unit[i], prior_mean)
        coef[i, ...], b[i, ...], loss[i, ...] = again
    return PenaltyPath(coef, b, loss)


def _plain(Z: Array, y: Array, l2: Sequence[float], w: Array, unit: Array, prior_mean: Array | None) -> PenaltyPath:
    xp = array_namespace(Z)
    fits = [fit_logistic(Z, y, v, sample_weight=w, prior_mean=prior_mean) for v in l2]
    loss = [_loo_loss(xp, Z, y, w, unit, fit.coef, fit.intercept, v) for fit, v in zip(fits, l2)]
    return PenaltyPath(
        xp.stack([fit.coef for fit in fits], axis=1), xp.stack([fit.intercept for fit in fits], axis=1),
        xp.stack(loss, axis=1),
    )  # fmt: skip


def _loo_loss(xp: Any, Z: Array, y: Array, w: Array, unit: Array, coef: Array, intercept: Array, l2: float) -> Array:
    """Loss of f + V g / (1 - h V), V the diagonal of Z A^-1 Z' + u u' / H'u: A = Z'HZ + l2 I, u = 1 - Z A^-1 Z'H."""
    f = xp.matmul(Z, coef[..., None])[..., 0] + intercept[..., None]
    p = sigmoid(xp, f)
    curve = unit[..., None] * p * (1.0 - p)
    weighted = Z * (w * curve)[..., None]
    eye = xp.eye(Z.shape[-1], dtype=Z.dtype, device=device(Z))
    A = xp.matmul(xp.matrix_transpose(weighted), Z) + l2 * eye
    border = xp.sum(weighted, axis=-2)
    right = xp.concat([xp.matrix_transpose(Z), border[..., None]], axis=-1)
    solved = xp.linalg.solve(A, right)
    u = 1.0 - xp.matmul(Z, solved[..., -1:])[..., 0]
    schur = xp.sum(w * curve * u, axis=-1, keepdims=True)
    V = xp.sum(xp.matrix_transpose(Z) * solved[..., :-1], axis=-2)
    V = V + u * u / xp.where(schur > 0, schur, xp.ones_like(schur))
    g = unit[..., None] * (p - xp.astype(y, f.dtype))
    out = f + V * g / xp.maximum(1.0 - curve * V, xp.full_like(f, 1e-6))
    return loo_loss(out[..., None, None, :], y, 2, w)[..., 0, 0]


def _in_row_space(Z: Array, y: Array, l2: Sequence[float], w: Array, prior_mean: Array | None) -> PenaltyPath:
    fit, loo = loo_path(Z, y, [Z.shape[-1]], l2, sample_weight=w, prior_mean=prior_mean)
    return PenaltyPath(fit.coef[:, 0, ...], fit.intercept[:, 0, :], loo_loss(loo, y, 2, w)[:, 0, :])
