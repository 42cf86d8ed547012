"""What leaving a row out changes: approximate leave-one-out scores from the solution alone.

Without row i the scores of the others are, near their mode, Gaussian; with the curvature of a typical row for all of
them the variance of score i is in closed form in orthogonal coordinates, for every penalty and every number of classes:

    V_i = sum_k phi_ik^2 / (prior_k + h energy_k),   h = typical curvature
    left-out variance U_i = V_i / (1 - c_i h V_i),   left-out scores f_i + U_i c_i (p_i - y_i)

A row leaves with all of its weight: weights are importances, and a row of weight 2 is one row that counts twice.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from pro2.linalg import losses
from pro2.linalg.mode import Mode
from pro2.linalg.moments import Array
from pro2.linalg.rows import Rows

FIXES_ITSELF = 1e-6  # a row that alone fixes its own fit has c h V -> 1: keep the step finite
ENDLESS = 1e30  # a variance of scores beyond which more makes no difference


def leave_one_out(rows: Rows, mode: Mode, Y: Array, precision: Array, *, own_curvature: bool = False) -> Array:
    """Scores (..., M, J, K') that each row would get from a model fitted without it.

    `own_curvature`, only for one logit: every row with its own curvature instead of a typical one, at the price of one
    factorisation for each problem.
    """
    xp = array_namespace(mode.scores)
    c = rows.weight[..., None]
    if own_curvature:
        h = c * losses.mean_curvature(mode.P)
        V = xp.matrix_transpose(own_variance(rows, xp.matrix_transpose(h), precision))
    else:
        h = typical_curvature(mode.P, rows.weight)[..., None, :]
        prior = (1.0 - rows.free)[:, None] * precision[..., None, :]
        spread = prior + h * rows.energy[..., None]
        V = (rows.phi * rows.phi) @ _inverse(xp, spread)
        h = c * h
    return left_out_scores(mode.scores, mode.P, Y[..., None, :], V, c, h)


def left_out_scores(F: Array, P: Array, Y: Array, V: Array, c: Array, h: Array) -> Array:
    """f + U c (p - y), U = V / (1 - h V): variance V with all rows, and curvature h of the row, weight included."""
    xp = array_namespace(F)
    V = xp.minimum(V, xp.full_like(V, ENDLESS))
    U = V / xp.maximum(1.0 - h * V, xp.full_like(V, FIXES_ITSELF))
    return F + (U * c)[..., None] * (P - Y)


def own_variance(rows: Rows, h: Array, precision: Array) -> Array:
    """Variance of each row's score, (..., J, M), under curvatures h (..., J, M) of all rows and precisions (..., J)."""
    xp = array_namespace(h)
    phi, phi_T = rows.phi[..., None, :, :], xp.matrix_transpose(rows.phi)[..., None, :, :]
    prior = (1.0 - rows.free) * precision[..., None]
    eye = xp.eye(rows.phi.shape[-1], dtype=h.dtype, device=device(h))
    A = (phi_T * h[..., None, :]) @ phi + prior[..., None] * eye
    # coordinates of unit curvature: energies may differ by more than a float can tell apart
    size = xp.sqrt(_inverse(xp, xp.linalg.diagonal(A)))
    A = size[..., :, None] * A * size[..., None, :] + FIXES_ITSELF**2 * eye
    solved = size[..., None] * xp.linalg.solve(A, size[..., None] * phi_T)
    return xp.sum(phi * xp.matrix_transpose(solved), axis=-1)


def _inverse(xp: Any, values: Array) -> Array:
    """1 / values, 0 where they are not positive."""
    safe = values > 0
    return xp.where(safe, 1.0 / xp.where(safe, values, xp.ones_like(values)), xp.zeros_like(values))


def typical_curvature(P: Array, weight: Array) -> Array:
    """Geometric mean over rows of their curvature, (..., J): sure rows hardly bend the loss, and they count, too."""
    xp = array_namespace(P)
    h = xp.log(xp.maximum(losses.mean_curvature(P), xp.full_like(P[..., 0], float(xp.finfo(P.dtype).smallest_normal))))
    return xp.exp(xp.sum(weight[..., None] * h, axis=-2) / xp.sum(weight, axis=-1)[..., None])


def log_likelihood(F: Array, Y: Array) -> Array:
    """Log-probability of the label of each row, (..., M, J), from scores (..., M, J, K')."""
    return -losses.evaluate(F, Y[..., None, :])[0]
