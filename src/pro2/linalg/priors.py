"""What a source says about the head of a shifted target, as a small family of Gaussian priors.

A prior is a centre (nothing, or the source's linear discriminant at one of four ridges), a covariance of the deviation
from it (Euclidean, whitened by the within-class covariance, or Euclidean plus the span of the source heads) and a
belief: the source is a hint (a small centre, far-reaching deviations) or it still holds (a large centre that predicts
with confidence, small deviations). Small ridges give the sharpest source head, large ones spread over all features
that predict the source: together the heads span a rational Krylov space of the source, the graded counterpart of the
first d ranked features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from pro2.linalg.moments import Array, Moments

RIDGES = (0.1, 1.0, 10.0, 100.0)  # of the source heads, relative to the mean within-class variance
METRIC_RIDGE = 10.0  # of the whitening: directions with less variance than this keep their scale
HINT, HOLDS = ((1.0, 2.0), (1.0, 16.0)), ((4.0, 0.1), (4.0, 0.5))  # (size of the centre, reach) of the two beliefs
SHARES = 0.5  # power of the source's class shares that is assumed when the labels were drawn class by class
INTERCEPT = 0.03  # share of the intercept in the prior variance of a logit
TRUST = 16.0  # how many target labels the source's own accuracy is worth when centres are compared
SHARPNESS = 2.0  # power of the weights: 1 would average as the likelihoods say, infinity pick the best
KERNELS = ("euclidean", "metric", "euclidean+heads")


class Candidate(NamedTuple):
    """One prior: `ridge` of the source head at its centre (None: zero), covariance, reach and size of the centre.

    A label moves its own logit by at most the prior variance v, and that of a typical other row by v / sqrt(d) when
    the covariance has d effective dimensions: `reach` = v / sqrt(d) means the same in 20 dimensions and in 2000.
    """

    ridge: float | None
    kernel: str
    reach: float
    size: float = 1.0


CANDIDATES = tuple(
    Candidate(ridge, kernel, reach, size)
    for kernel in KERNELS
    for size, reach in (*HINT, *HOLDS)
    for ridge in ((None, *RIDGES) if size == 1.0 else RIDGES)
)


@dataclass(frozen=True, eq=False)
class SourcePrior:
    """The family for one source, from its moments alone; no source row is needed afterwards.

    Attributes
    ----------
    centre : array (D,)
        Mean of the class means: scores are affine in z - centre.
    heads, offsets : arrays (R, K', D), (R, K')
        Source discriminants, one per ridge, scaled so that the root mean square margin of a source row is `unit`^2;
        K' = 1 (a difference of logits) for two classes, K centred logits for more.
    metric : array (D, D)
        Inverse of the shrunk within-class covariance.
    norms : tuple of float
        Mean squared length of a source row under the Euclidean, metric and head features.
    dims : tuple of float
        Effective dimensions of the source rows in the Euclidean and the metric geometry: (sum of eigenvalues)^2 / sum
        of their squares.
    unit : float
        1 + log(K - 1), which is 1 for two classes: the margin over K - 1 equal others that gives the true class
        probability e / (1 + e). The centre has size unit^2 because the best of the others counts, not their mean;
        prior variances have a factor `unit`.
    accuracy : tuple of float
        Of each source head on the source, by the Gaussian formula.
    natural : tuple of float
        Size of each source head as the source estimates it, in the unit of `heads`: more would be overconfident.
    shares : tuple of float
        Of the classes among the source rows.
    intercept : float
        Share of the intercept in the prior variance of a logit.
    """

    n_classes: int
    centre: Array
    heads: Array
    offsets: Array
    metric: Array
    norms: tuple[float, float, float]
    dims: tuple[float, float]
    unit: float
    accuracy: tuple[float, ...]
    natural: tuple[float, ...]
    shares: tuple[float, ...]
    intercept: float = INTERCEPT

    @classmethod
    def from_moments(cls, moments: Moments) -> SourcePrior:
        xp = array_namespace(moments.mean)
        n_classes, D = len(moments.classes), moments.n_features
        if n_classes < 2:
            raise ValueError(f"moments have {n_classes} class: priors need a source with at least two classes.")
        centre = xp.mean(moments.mean, axis=0)
        within = moments.within_covariance()
        level = float(xp.sum(xp.linalg.diagonal(within))) / D
        level = level if level > 0 else 1.0
        eye = xp.eye(D, dtype=within.dtype, device=device(within))
        unit = 1.0 + math.log(n_classes - 1.0)
        pairs = [_head(moments, centre, within + (r * level) * eye, unit**2) for r in RIDGES]
        heads, offsets = (xp.stack([p[i] for p in pairs]) for i in (0, 1))
        natural = tuple(p[2] for p in pairs)
        metric = xp.linalg.inv(within + (METRIC_RIDGE * level) * eye)
        norms = (
            _spread(moments, centre, eye),
            _spread(moments, centre, metric),
            _head_spread(moments, centre, heads, offsets),
        )
        second = within + _between(moments, centre)
        dims = _effective(second), _effective(metric @ second)
        accuracy = tuple(
            _gaussian_accuracy(moments, centre, heads[i, ...], offsets[i, ...]) for i in range(len(RIDGES))
        )
        shares = tuple(float(w) for w in moments.weight / moments.total_weight)
        return cls(n_classes, centre, heads, offsets, metric, norms, dims, unit, accuracy, natural, shares)

    def log_accuracy(self, candidate: Candidate) -> float:
        """Log of the accuracy of the centre on the source; one half for the centre zero and for worse ones.

        One half whatever the number of classes: zero is no worse at telling two classes apart when there are ten.
        """
        return math.log(0.5 if candidate.ridge is None else max(0.5, self.accuracy[RIDGES.index(candidate.ridge)]))

    def variance(self, candidate: Candidate) -> float:
        """Prior variance of a difference of logits at a typical source row."""
        d = self.dims[1] if candidate.kernel == "metric" else self.dims[0]
        return self.unit * candidate.reach * math.sqrt(d)

    def scores(self, Z: Array) -> Array:
        """Logits of the source heads, (M, R, K')."""
        xp = array_namespace(self.heads)
        return xp.tensordot(Z - self.centre, self.heads, axes=([1], [2])) + self.offsets

    def grams(self, Z: Array, W: Array | None = None) -> dict[str, Array]:
        """Prior covariance of scores between rows of Z and of W (or of Z), one matrix per kernel, at variance 1."""
        xp = array_namespace(self.heads)
        A = Z - self.centre
        B = A if W is None else W - self.centre
        euclidean = A @ xp.matrix_transpose(B) / self.norms[0]
        metric = (A @ self.metric) @ xp.matrix_transpose(B) / self.norms[1]
        S = xp.reshape(self.scores(Z), (Z.shape[0], -1))
        T = S if W is None else xp.reshape(self.scores(W), (W.shape[0], -1))
        heads = S @ xp.matrix_transpose(T) / self.norms[2]
        both = 0.5 * (euclidean + heads)
        return {k: g + self.intercept for k, g in zip(KERNELS, (euclidean, metric, both))}

    def features(self, Z: Array, kernel: str) -> Array:
        """F with F F' the covariance of `grams`, (M, D + 1) or (M, D + R K' + 1)."""
        xp = array_namespace(self.heads)
        A = (Z - self.centre) / math.sqrt(self.norms[1 if kernel == "metric" else 0])
        constant = xp.full_like(A[:, :1], math.sqrt(self.intercept))
        if kernel == "metric":
            return xp.concat([A @ xp.linalg.cholesky(self.metric), constant], axis=1)
        if kernel == "euclidean":
            return xp.concat([A, constant], axis=1)
        S = xp.reshape(self.scores(Z), (Z.shape[0], -1)) / math.sqrt(self.norms[2])
        return xp.concat([math.sqrt(0.5) * A, math.sqrt(0.5) * S, constant], axis=1)

    def centre_scores(self, S: Array, candidate: Candidate) -> Array:
        """Prior mean of the scores, (M, K') from S = scores(Z)."""
        r = 0 if candidate.ridge is None else RIDGES.index(candidate.ridge)
        return self.centre_size(candidate) * S[:, r, :]

    def centre_size(self, candidate: Candidate) -> float:
        """What the source head at the centre is multiplied by: its size, but no more than the source supports."""
        ridge = candidate.ridge
        return 0.0 if ridge is None else min(candidate.size, self.natural[RIDGES.index(ridge)])

    def assumed_shares(self, labeled: np.ndarray) -> np.ndarray:
        """Class shares of the target, from those of the labelled rows, both (K,).

        Equal shares are no accident: the labels were drawn class by class and say nothing about the target's. These are
        then assumed halfway (on the scale of logits) between equal ones and the source's.
        """
        if np.ptp(labeled) > 1e-9:
            return labeled
        shares = np.maximum(np.asarray(self.shares), 1e-12) ** SHARES
        return np.asarray(shares / shares.sum())

    def head_from_dual(self, Z: Array, kernel: str, alpha: Array) -> tuple[Array, Array]:
        """Coefficients (K', D) and intercept (K') at `centre` of the deviation k(., Z) alpha, alpha (M, K')."""
        xp = array_namespace(self.heads)
        a = xp.matrix_transpose(alpha)
        pull, constant = a @ (Z - self.centre), self.intercept * xp.sum(alpha, axis=0)
        if kernel == "euclidean":
            return pull / self.norms[0], constant
        if kernel == "metric":
            return (pull @ self.metric) / self.norms[1], constant
        S = xp.reshape(self.scores(Z), (Z.shape[0], -1))
        H = xp.reshape(self.heads, (-1, self.heads.shape[-1]))
        weights = (a @ S) / self.norms[2]
        coef = 0.5 * (pull / self.norms[0] + weights @ H)
        return coef, constant + 0.5 * weights @ xp.reshape(self.offsets, (-1,))


def _head(moments: Moments, centre: Array, A: Array, target: float) -> tuple[Array, Array, float]:
    """Discriminant with covariance A, scaled to size `target`: coef (K', D), intercept (K') at centre, natural size."""
    xp = array_namespace(A)
    M = moments.mean - centre
    coef = xp.matrix_transpose(xp.linalg.solve(A, xp.matrix_transpose(M)))
    share = moments.weight / moments.total_weight
    intercept = xp.log(xp.maximum(share, xp.full_like(share, 1e-12))) - 0.5 * xp.sum(coef * M, axis=1)
    if len(moments.classes) == 2:
        coef, intercept = coef[1:, :] - coef[:1, :], intercept[1:] - intercept[:1]
    else:
        coef, intercept = coef - xp.mean(coef, axis=0), intercept - xp.mean(intercept)
    size = _margin(moments, M, coef, intercept)
    scale = target / size if size > 0 else 0.0
    return coef * scale, intercept * scale, _calibration(moments, M, coef) * size / target


def _calibration(moments: Moments, M: Array, coef: Array) -> float:
    """What a head must be multiplied by to be calibrated on a Gaussian source: 1 for the unpenalised discriminant.

    Along the difference v of two classes' weights the best logit has scale v'(mean - mean) / v'Sv. Both are summed over
    pairs of classes, with the overlap exp(-d^2 / 8) of the pair as weight: pairs that are never confused do not matter.
    """
    xp = array_namespace(M)
    V = xp.concat([-0.5 * coef, 0.5 * coef]) if len(moments.classes) == 2 else coef
    noise = _between_pairs(xp, V @ moments.within_covariance() @ xp.matrix_transpose(V))
    signal = _between_pairs(xp, M @ xp.matrix_transpose(V))
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


def _margin(moments: Moments, M: Array, coef: Array, intercept: Array) -> float:
    """Root mean square over source rows of the logit of the true class minus the mean of the others."""
    xp = array_namespace(M)
    n = len(moments.classes)
    if n == 2:
        V, b = xp.concat([-coef, coef]), xp.concat([-intercept, intercept])
    else:  # centred logits: the mean of the others is -l / (n - 1)
        V, b = coef * (n / (n - 1.0)), intercept * (n / (n - 1.0))
    noise = xp.sum((V @ moments.within_covariance()) * V, axis=1)
    mean = xp.sum(V * M, axis=1) + b
    share = moments.weight / moments.total_weight
    return math.sqrt(max(float(xp.sum(share * (noise + mean * mean))), 0.0))


def _between(moments: Moments, centre: Array) -> Array:
    xp = array_namespace(centre)
    M = (moments.mean - centre) * xp.sqrt(moments.weight / moments.total_weight)[:, None]
    return xp.matrix_transpose(M) @ M


def _effective(A: Array) -> float:
    """(tr A)^2 / tr(A A), at least 1."""
    xp = array_namespace(A)
    square = float(xp.sum(A * xp.matrix_transpose(A)))
    return max(1.0, float(xp.sum(xp.linalg.diagonal(A))) ** 2 / square) if square > 0 else 1.0


def _gaussian_accuracy(moments: Moments, centre: Array, coef: Array, intercept: Array) -> float:
    """Accuracy of a head on the source if its classes were Gaussian: one minus the sum of all pairwise errors."""
    xp = array_namespace(coef)
    n = len(moments.classes)
    V, b = (xp.concat([0.0 * coef, coef]), xp.concat([0.0 * intercept, intercept])) if n == 2 else (coef, intercept)
    share = moments.weight / moments.total_weight
    within, wrong = moments.within_covariance(), 0.0
    G, at = V @ within @ xp.matrix_transpose(V), (moments.mean - centre) @ xp.matrix_transpose(V) + b
    for c in range(n):
        for k in range(n):
            if k != c:
                spread = math.sqrt(max(float(G[c, c] + G[k, k] - 2.0 * G[c, k]), 1e-300))
                wrong += float(share[c]) * 0.5 * math.erfc(float(at[c, c] - at[c, k]) / spread / math.sqrt(2.0))
    return min(1.0, max(1.0 / n, 1.0 - wrong))


def _spread(moments: Moments, centre: Array, metric: Array) -> float:
    """Mean of (z - centre)' metric (z - centre) over source rows."""
    xp = array_namespace(metric)
    M = moments.mean - centre
    share = moments.weight / moments.total_weight
    total = float(xp.sum(moments.within_covariance() * metric) + xp.sum(share * xp.sum((M @ metric) * M, axis=1)))
    return total if total > 0 else 1.0


def _head_spread(moments: Moments, centre: Array, heads: Array, offsets: Array) -> float:
    """Mean over source rows of the squared logits of all heads together."""
    xp = array_namespace(heads)
    H, b = xp.reshape(heads, (-1, heads.shape[-1])), xp.reshape(offsets, (-1,))
    noise = float(xp.sum((H @ moments.within_covariance()) * H))
    mean = (moments.mean - centre) @ xp.matrix_transpose(H) + b
    share = moments.weight / moments.total_weight
    total = noise + float(xp.sum(share * xp.sum(mean * mean, axis=1)))
    return total if total > 0 else 1.0
