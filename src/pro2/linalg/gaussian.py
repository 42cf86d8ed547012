"""What the logits of a head are worth on a source whose classes are Gaussian with one covariance.

noise (K, K) is the covariance of the logits within classes, at (K, K) their mean in each class (rows).
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import array_namespace, device
from scipy.special import erfc

from pro2.linalg.moments import Array, host


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
