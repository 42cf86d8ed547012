"""Linear discriminants in closed form from moments, and what they are worth on a Gaussian source with one covariance.

That follows from two matrices: noise (K, K), the covariance of the logits within classes, and at (K, K), their mean in
each class (rows).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

from array_api_compat import array_namespace, device
from scipy.special import erfc

from pro2.linalg import lapack
from pro2.linalg.moments import Array, Moments, host


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


class Discriminant(NamedTuple):
    """A head (K', D), (K') for equally common classes, and what it is worth on its source.

    `natural` is the size that the source supports, in units of the size it has; `accuracy` is that on the source.
    """

    coef: Array
    intercept: Array
    natural: float
    accuracy: float

    @classmethod
    def sized(cls, coef: Array, intercept: Array, noise: Array, at: Array, size: float) -> Self:
        """Scaled so that the root mean square margin of a source row is `size`."""
        found = margin(noise, at)
        scale = size / found if found > 0 else 0.0
        return cls(coef * scale, intercept * scale, calibration(noise, at) * found / size, accuracy(noise, at))

    @classmethod
    def of(cls, moments: Moments, centre: Array, within: Array, ridge: float, size: float) -> Self:
        """From class means about a centre and the covariance within + ridge I."""
        xp = array_namespace(within)
        M = moments.mean - centre
        V = xp.matrix_transpose(lapack.solve_shifted(within, ridge, xp.matrix_transpose(M)))
        b = -0.5 * xp.sum(V * M, axis=1)
        V, b = V - xp.mean(V, axis=0), b - xp.mean(b)
        noise, at = lapack.product(V, within) @ xp.matrix_transpose(V), M @ xp.matrix_transpose(V) + b
        if V.shape[0] == 2:
            V, b = V[1:, :] - V[:1, :], b[1:] - b[:1]
        return cls.sized(V, b, noise, at, size)


def margin(noise: Array, at: Array) -> float:
    """Root mean square over source rows of the logit of the true class minus the mean of the others."""
    xp = array_namespace(at)
    n = at.shape[0]
    own = xp.linalg.diagonal(at)
    rest = (xp.sum(at, axis=1) - own) / (n - 1.0)
    D = (n * xp.eye(n, dtype=at.dtype, device=device(at)) - 1.0) / (n - 1.0)  # own minus the mean of the others
    variance = xp.sum((D @ noise) * D, axis=1)
    return math.sqrt(max(float(xp.mean(variance + (own - rest) ** 2)), 0.0))


def calibration(noise: Array, at: Array) -> float:
    """What a head must be multiplied by to be calibrated on a Gaussian source: 1 for the unpenalised discriminant.

    Along the difference v of two classes' weights the best logit has scale v'(mean - mean) / v'Sv. Both are summed over
    pairs of classes, with the overlap exp(-d^2 / 8) of the pair as weight: pairs that are never confused do not matter.
    """
    xp = array_namespace(at)
    noise, signal = _between_pairs(xp, noise), _between_pairs(xp, at)
    pairs = noise > 0
    far = xp.where(pairs, signal**2 / (8.0 * xp.where(pairs, noise, xp.ones_like(noise))), xp.zeros_like(noise))
    near = xp.min(xp.where(pairs, far, xp.full_like(far, float("inf"))))
    overlap = xp.where(pairs, xp.exp(xp.where(pairs, near - far, 0.0 * far)), xp.zeros_like(noise))
    total = float(xp.sum(overlap * noise))
    return float(xp.sum(overlap * signal)) / total if total > 0 else 1.0


def _between_pairs(xp: Any, A: Array) -> Array:
    """A[c, c] + A[k, k] - A[c, k] - A[k, c] for all pairs of classes."""
    own = xp.linalg.diagonal(A)
    return own[:, None] + own[None, :] - A - xp.matrix_transpose(A)


def accuracy(noise: Array, at: Array) -> float:
    """Accuracy on a Gaussian source: one minus the mean over classes of the sum of pairwise errors."""
    noise, at = host(noise), host(at)
    n = len(at)
    own = noise.diagonal()
    spread = (own[:, None] + own[None, :] - 2.0 * noise).clip(1e-300) ** 0.5
    wrong = 0.5 * erfc((at.diagonal()[:, None] - at) / spread / math.sqrt(2.0))
    return float(min(1.0, max(1.0 / n, 1.0 - (wrong.sum() - wrong.diagonal().sum()) / n)))
