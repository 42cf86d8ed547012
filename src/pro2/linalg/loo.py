"""What leaving a row out changes: approximate leave-one-out scores from the solution alone.

Without row i the scores of the others are, near their mode, Gaussian; with the curvature of a typical row for all of them
the variance of score i is in closed form in orthogonal coordinates, for every penalty and every number of classes:

    V_i = sum_k phi_ik^2 / (prior_k + h energy_k),   h = typical curvature
    left-out variance U_i = V_i / (1 - c_i h V_i),   left-out scores f_i + U_i c_i (p_i - y_i)

A row leaves with all of its weight: weights are importances, and a row of weight 2 is one row that counts twice.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from pro2.linalg import losses
from pro2.linalg.mode import Mode, Rows
from pro2.linalg.moments import Array

FIXES_ITSELF = 1e-6  # a row that alone fixes its own fit has c h V -> 1: keep the step finite


def leave_one_out(rows: Rows, mode: Mode, Y: Array, precision: Array) -> Array:
    """Scores (..., M, J, K') that each row would get from a model fitted without it."""
    xp = array_namespace(mode.scores)
    c = rows.weight[..., None]
    h = typical_curvature(mode.P, rows.weight)[..., None, :]
    prior = (1.0 - rows.free)[:, None] * precision[..., None, :]
    spread = prior + h * rows.energy[..., None]
    V = (rows.phi * rows.phi) @ xp.where(spread > 0, 1.0 / xp.where(spread > 0, spread, xp.ones_like(spread)), 0.0 * spread)
    U = V / xp.maximum(1.0 - c * h * V, xp.full_like(V, FIXES_ITSELF))
    return mode.scores + (U * c)[..., None] * (mode.P - Y[..., None, :])


def typical_curvature(P: Array, weight: Array) -> Array:
    """Geometric mean over rows of their curvature, (..., J): sure rows hardly bend the loss, and they count, too."""
    xp = array_namespace(P)
    h = xp.log(xp.maximum(losses.mean_curvature(P), xp.full_like(P[..., 0], float(xp.finfo(P.dtype).tiny))))
    return xp.exp(xp.sum(weight[..., None] * h, axis=-2) / xp.sum(weight, axis=-1)[..., None])


def log_likelihood(F: Array, Y: Array) -> Array:
    """Log-probability of the label of each row, (..., M, J), from scores (..., M, J, K')."""
    return -losses.evaluate(F, Y[..., None, :])[0]
