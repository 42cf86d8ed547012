"""Linear classifiers in closed form from moments."""

from __future__ import annotations

from array_api_compat import array_namespace

from pro2.linalg import lapack
from pro2.linalg.moments import Array, Moments


def discriminant_head(moments: Moments, ridge: float) -> tuple[Array, Array]:
    """Linear discriminant with shrunk within-class covariance, as logits of a softmax.

    logit_k(x) = m_k' A^-1 x - m_k' A^-1 m_k / 2 + log(share of class k), A = within covariance + ridge * (mean
    variance) * I. Returns coef (D,) and intercept () for two classes, (K, D) and (K,) for more.
    """
    xp = array_namespace(moments.mean)
    A = moments.within_covariance()
    level = float(xp.sum(xp.linalg.diagonal(moments.covariance()))) / moments.width
    level = max(ridge, 1e-10) * (level if level > 0 else 1.0)
    coef = lapack.solve_shifted(A, level, xp.matrix_transpose(moments.mean - moments.total_mean()))
    coef = xp.matrix_transpose(coef)
    middle = 0.5 * xp.sum(coef * (moments.mean + moments.total_mean()), axis=1)
    share = moments.weight / moments.total_weight
    intercept = xp.log(xp.maximum(share, xp.full_like(share, 1e-12))) - middle
    if len(moments.classes) > 2:
        return coef, intercept
    return coef[1, :] - coef[0, :], intercept[1] - intercept[0]
