"""What a source says about the classifier of a shifted target: a small family of Gaussian priors.

The scores of the target are  f(z) = m h(z) + g(z)  on scaled embeddings z = (x / scale - centre):

* h is a linear head of the source, V z + b with V = B^-1 (class means) or the same with a tenth of the ridge, scaled to
  a typical margin of `unit`^2, and m one of a few sizes of the prior mean; m = 0 learns from scratch;
* g is a Gaussian process whose covariance is a quadratic form z' Lambda z, one of
      ranked     (1 - share) I + share * sum_k (1 / k) q_k q_k'     its variance falls along the ranked directions
      whitened   B^-1
      flat       I
  divided by the mean of z' Lambda z over source rows, so that the score of a typical source row has variance one; then
  multiplied by one of a few prior scales.

Here B = C + ridge * (mean variance) * I, C the second moments of source rows about the mean of the class means, classes
weighted equally. The ranked directions are the Krylov sequence B^-1 M, B^-2 M, ... of the class means M, made
orthonormal; direction 1 is the linear discriminant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from pro2.linalg.arrays import orthogonalise, stacked, to_numpy
from pro2.linalg.covariance import Covariance, DenseCovariance, LowRankCovariance
from pro2.linalg.moments import Moments

COVARIANCES = ("ranked", "whitened", "flat")
NOISE = 4.0  # variance of a label about its score: 1 / (p (1 - p)) at p = 1/2
SHARPER = 0.1  # ridge of the second head, in units of that of the first
KRYLOV_STEPS = 4  # from which on the sequence holds a head with that ridge
LEAST_KEPT = 0.01  # of 1 - h: weights that sum to less than K count no rows
BREAKDOWN = 1e-8  # rounding grows by what each step of the Krylov sequence takes off; beyond, it decides the direction


def _within(default: Any, least: float, most: float) -> Any:
    """A constant with its range: beyond, squares and inverses overflow, or no direction counts."""
    return field(default=default, metadata={"range": (least, most)})


@dataclass(frozen=True)
class PriorFamily:
    """The constants of averaged Pro2. `ProjectAndProbe(priors=PriorFamily(...))` changes them.

    Attributes
    ----------
    covariances : tuple of str
        Covariances of the prior: "ranked", "whitened", "flat".
    mean_sizes : tuple of float
        Sizes of the prior mean, in units of a source head with a root mean square margin of unit^2; 0 is no mean.
    prior_scales : tuple of float
        How far labels may move the scores: the prior variance is scale * unit * sqrt(effective dimensions), which means
        the same in 20 dimensions and in 2,000.
    ridge : float
        What is added to the diagonal of B, relative to the mean variance of a feature.
    ranked_share : float
        Share of the variance of "ranked" that falls along the ranked directions; the rest is flat.
    n_ranked : int
        Number of ranked directions.
    intercept : float
        Share of the intercept in the prior variance of a score: classes are rarely far from where the source had them.
    margin : float
        The squared loss is towards scores of margin * unit * (one-hot - 1 / K).
    sharpness : float
        Power of the leave-one-out likelihood in the weights; infinity picks the best member alone.
    source_bonus : float
        Log-likelihood that members with a source head start with.
    source_shares : float in [0, 1]
        Power of the source's class shares that is assumed where labels were drawn class by class.
    tolerance : float
        Features whose variance on the target is more than 1 + tolerance / sqrt(rows) times the source's are shrunk to
        that: what the source learned about them no longer holds.
    smoothing : tuple of float
        With unlabelled rows: weights of the neighbours in the smoothed versions of the rows; 0 is the rows themselves.
    n_neighbors : int
        Neighbours of each row in the graph that smooths rows.
    """

    covariances: tuple[str, ...] = COVARIANCES
    mean_sizes: tuple[float, ...] = _within((0.0, 0.15, 0.5, 1.5, 5.0), 0.0, 1e100)
    prior_scales: tuple[float, ...] = _within((0.1, 2.0, 32.0), 1e-10, 1e10)
    ridge: float = _within(1.0, 1e-8, 1e8)
    ranked_share: float = _within(0.2, 0.0, 1.0)
    n_ranked: int = _within(64, 1, math.inf)
    intercept: float = _within(0.03, 0.0, 1e10)
    margin: float = _within(4.0, 1e-3, 1e3)
    sharpness: float = _within(0.8, 0.0, math.inf)
    source_bonus: float = _within(4.0, 0.0, 1e10)
    source_shares: float = _within(0.5, 0.0, 1.0)
    tolerance: float = _within(2.0, 0.0, math.inf)
    smoothing: tuple[float, ...] = _within((0.0, 0.8), 0.0, 0.99)
    n_neighbors: int = _within(10, 1, math.inf)

    def __post_init__(self) -> None:
        for each in fields(self):
            name, default, values = each.name, each.default, getattr(self, each.name)
            several = isinstance(default, tuple)
            if several and (isinstance(values, str) or not isinstance(values, Sequence) or not values):
                raise ValueError(f"{name} must be a tuple of at least one, got {values!r}.")
            if name == "covariances":
                if not set(values) <= set(COVARIANCES):
                    raise ValueError(f"{name} must name some of {COVARIANCES}, got {values!r}.")
                object.__setattr__(self, name, tuple(values))
                continue
            least, most = each.metadata["range"]
            kind: Any = Integral if isinstance(default, int) else Real
            for value in values if several else (values,):
                if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
                    raise ValueError(f"{name} must be in {least:g}..{most:g}, got {value!r}.")
            plain: Any = int if kind is Integral else float  # reports and files hold no NumPy number
            object.__setattr__(self, name, tuple(map(plain, values)) if several else plain(values))


@dataclass(frozen=True, eq=False)
class SourcePrior:
    """The family for one source and one way to scale it; no source row is needed.

    `traces` are those of Lambda C and of its square for each covariance: the mean variance of a score, and how many
    dimensions it has. The first of the source heads is B^-1 (class means).
    """

    family: PriorFamily
    scale: np.ndarray  # (D,), what embeddings are divided by
    centre: np.ndarray  # (D,), the mean of the scaled class means
    second_moments: Covariance  # of scaled rows about the centre, classes weighted equally, and the inverse of B
    directions: np.ndarray  # (d, D), the ranked directions q_k, orthonormal
    along: np.ndarray  # (d,), the variance that "ranked" adds along each
    traces: dict[str, tuple[float, float]]
    coef: np.ndarray  # (H, K, D), source heads on rows z, at size one: centred scores
    intercept: np.ndarray  # (H, K)
    calibrated_size: float = 1.0  # at which the first head is calibrated on a Gaussian source

    @classmethod
    def from_moments(cls, moments: Moments, scale: np.ndarray, family: PriorFamily) -> SourcePrior:
        """From moments of raw rows and their scale (D,)."""
        K = len(moments.classes)
        if K < 2:
            raise ValueError(f"moments have {K} class: priors need a source with at least two classes.")
        scale = to_numpy(scale) + np.zeros(moments.width)
        mean = to_numpy(moments.mean) / scale
        M = (mean - mean.mean(axis=0)) / math.sqrt(K)
        if moments.factor is not None:
            F = to_numpy(moments.factor)
            rows = np.empty((len(F) + K, F.shape[1]))
            np.divide(F, scale * math.sqrt(moments.total_weight), out=rows[:-K])
            rows[-K:] = M
            second_moments: Covariance = LowRankCovariance(rows, family.ridge)
            return cls.of(scale, mean, second_moments, family, to_numpy(moments.weight))
        C = to_numpy(moments.within_covariance())  # changed in place: it is a copy, and may be large
        C /= scale[:, None]
        C /= scale
        C += M.T @ M
        return cls.of(scale, mean, DenseCovariance(C, family.ridge), family, to_numpy(moments.weight))

    @classmethod
    def of(
        cls, scale: np.ndarray, mean: np.ndarray, second_moments: Covariance, family: PriorFamily, weight: np.ndarray
    ) -> SourcePrior:  # fmt: skip
        """From scaled class means (K, D), second moments about their mean, and the total weight of each class (K,)."""
        centre = mean.mean(axis=0)
        M = mean - centre
        V = second_moments.solve(M)
        Q = _ranked_directions(M, V, second_moments, min(family.n_ranked, len(centre)))
        inverse_traces = second_moments.inverse_traces()
        # mean of r' B^-1 r over source rows that lie r away from the mean of their class
        distance2 = max(inverse_traces[0] - float(np.vdot(M, V)) / len(M), 0.0)
        coef, intercept, calibrated_size = _source_head(V, M, second_moments, distance2, weight)
        heads, moved = [(coef, intercept)], second_moments.product(Q)
        if len(Q) >= KRYLOV_STEPS * (len(M) - 1):
            # the sequence spans heads with other ridges, too
            inner = moved @ Q.T + SHARPER * second_moments.shift * np.eye(len(Q))
            heads.append(_source_head(np.linalg.solve(inner, Q @ M.T).T @ Q, M, second_moments, 0.0, weight)[:2])
        coef, intercept = (np.stack(parts) for parts in zip(*heads))
        along, ranked = ranked_variance(Q, moved, second_moments, family.ranked_share)
        flat = second_moments.trace, second_moments.squares
        traces = {"ranked": ranked, "whitened": inverse_traces, "flat": flat}
        traces = {name: found if found[0] > 0 else (1.0, 1.0) for name, found in traces.items()}
        return cls(family, scale, centre, second_moments, Q, along, traces, coef, intercept, calibrated_size)

    @property
    def n_classes(self) -> int:
        return int(self.intercept.shape[1])

    @property
    def means(self) -> np.ndarray:
        """Prior means as multiples of the heads, (n, H): none, and each head at each size."""
        sizes = self.family.mean_sizes
        own = [size * row for size in sizes if size for row in np.eye(len(self.coef))]
        return np.array([0.0 * np.eye(len(self.coef))[0]] * (0.0 in sizes) + own)

    @property
    def unit(self) -> float:
        """Prior means have the typical margin unit^2, not unit, because the best of the other classes counts."""
        return margin_unit(self.n_classes)

    @property
    def dims(self) -> float:
        """Effective dimensions of source rows."""
        return effective_dims(self.second_moments.trace, self.second_moments.squares)

    def with_classes(self, places: Sequence[int], n_classes: int) -> SourcePrior:
        """The same prior among more classes: those of the source are at `places`, new ones have no prior mean."""
        if len(places) != self.n_classes or n_classes < self.n_classes:
            raise ValueError(f"places must name {self.n_classes} of at least as many classes, got {len(places)}.")
        H, D = len(self.coef), self.coef.shape[2]
        coef, intercept = np.zeros((H, n_classes, D)), np.zeros((H, n_classes))
        grown = (margin_unit(n_classes) / self.unit) ** 2
        coef[:, list(places)], intercept[:, list(places)] = grown * self.coef, grown * self.intercept
        size = self.calibrated_size / grown
        return replace(self, coef=coef, intercept=intercept, calibrated_size=size)

    def shrunk(self, X: np.ndarray, c: np.ndarray) -> SourcePrior:
        """The same prior with less of the features that vary more on target rows X (..., M, D) than on the source.

        No label is looked at. A feature that hardly moved on the source has a variance there of at least a hundredth of
        the mean: it may be alive on the target.
        """
        variance = np.maximum(self.second_moments.diagonal, 0.01 * self.second_moments.diagonal.mean())
        n_rows = (c.sum(axis=-1) ** 2 / (c**2).sum(axis=-1))[..., None]
        allowed = np.sqrt((1.0 + self.family.tolerance / np.sqrt(n_rows)) * np.where(variance > 0, variance, 1.0))
        # in units of the largest value: squares of what is far off would overflow
        Z = self.rows(X)
        largest = np.maximum(Z.max(axis=-2), -Z.min(axis=-2))
        Z /= np.where(largest > 0, largest, 1.0)[..., None, :]
        share = c / c.sum(axis=-1, keepdims=True)
        found = largest * np.sqrt(np.einsum("...m,...md,...md->...d", share, Z, Z))
        gain = 1.0 / np.maximum(found / allowed, 1.0)
        gain = gain if X.ndim == 2 else gain[..., None, :]
        return replace(self, scale=self.scale / gain, centre=self.centre * gain)

    def rows(self, X: np.ndarray) -> np.ndarray:
        """Rows in the space of the prior, float64."""
        Z = np.divide(X, self.scale, dtype=np.float64)
        Z -= self.centre
        return Z

    def to_input(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A head of that space, (..., K, D) and (..., K), as the same head on raw embeddings."""
        return coef / self.scale, intercept - (coef * self.centre).sum(axis=-1)

    def source_head(self, class_shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first head at its calibrated size for classes that are so common, on raw embeddings, (K, D) and (K,)."""
        size = self.calibrated_size
        coef, intercept = self.to_input(size * self.coef[0], size * self.intercept[0])
        return coef, intercept + np.log(class_shares)

    def scores(self, Z: np.ndarray) -> np.ndarray:
        """Scores of the source heads at size one, (..., H, K)."""
        F = stacked(Z) @ stacked(self.coef).T + self.intercept.reshape(-1)
        return np.asarray(F.reshape(*Z.shape[:-1], *self.intercept.shape))

    def penalties(self, covariance: str) -> np.ndarray:
        """NOISE / v for each prior scale, (R,).

        A label moves its own score by at most the prior variance v, and that of a typical other row by v / sqrt(d) when
        rows have d effective dimensions.
        """
        d = effective_dims(*self.traces[covariance])
        return NOISE / (np.array(self.family.prior_scales) * self.unit * math.sqrt(d))

    def features(self, Z: np.ndarray, covariance: str, one: np.ndarray | float = 1.0) -> np.ndarray:
        """A (..., M, D + 1): A A' is the prior covariance of the scores of rows at v = 1; last comes the intercept.

        Rows may be multiples of rows z, of which `one` (..., M) has the factors.
        """
        A = np.empty((*Z.shape[:-1], Z.shape[-1] + 1))
        self.root(Z, covariance, out=A[..., :-1])
        A[..., -1] = math.sqrt(self.family.intercept) * one
        return A

    def head(self, theta: np.ndarray, covariance: str) -> tuple[np.ndarray, np.ndarray]:
        """Scores linear in these features, theta (..., K, D + 1), as coefficients and intercepts on rows z."""
        return self.root(theta[..., :-1], covariance, adjoint=True), math.sqrt(self.family.intercept) * theta[..., -1]

    def flat_and_ranked(self, gain: dict[str, float]) -> tuple[float, np.ndarray]:
        """The sum of "flat" and "ranked" with factors: the variance in all directions, and more along ranked ones."""
        ranked = gain.get("ranked", 0.0) / self.traces["ranked"][0]
        flat = gain.get("flat", 0.0) / self.traces["flat"][0]
        return flat + (1.0 - self.family.ranked_share) * ranked, ranked * self.along

    def root(
        self, Z: np.ndarray, covariance: str, *, adjoint: bool = False, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Rows whose inner products are the prior covariance, without the intercept; or the adjoint of that map."""
        size = 1.0 / math.sqrt(self.traces[covariance][0])
        if covariance == "flat":
            return np.multiply(Z, size, out=out)
        if covariance == "whitened":
            A = self.second_moments.root_adjoint(Z) if adjoint else self.second_moments.root(Z)
            return np.multiply(A, size, out=A if out is None else out)
        flat = math.sqrt(1.0 - self.family.ranked_share)
        along = np.sqrt(1.0 - self.family.ranked_share + self.along) - flat
        A = np.multiply(Z, size * flat, out=out)
        A += (((stacked(Z) @ self.directions.T) * (size * along)) @ self.directions).reshape(Z.shape)
        return A


def margin_unit(n_classes: int) -> float:
    """The margin over all others, equal ones, that gives the true class probability e / (1 + e)."""
    return 1.0 + math.log(n_classes - 1.0)


def effective_dims(trace: float, squares: float) -> float:
    """(sum of eigenvalues)^2 / sum of their squares; at least 1."""
    return max(1.0, trace**2 / squares) if squares > 0 else 1.0


def ranked_variance(
    Q: np.ndarray, moved: np.ndarray, second_moments: Covariance, share: float
) -> tuple[np.ndarray, tuple[float, float]]:
    """What "ranked" adds along directions Q, (d,), for that share of the source scores' variance; and its traces.

    `moved` (d, D) are the directions times C.
    """
    inner, falling, rest = moved @ Q.T, 1.0 / np.arange(1, len(Q) + 1), 1.0 - share
    variance = np.diagonal(inner)
    seen = float(falling @ variance)
    along = falling * (share * second_moments.trace / seen if seen > 0 else 0.0)
    squares = rest**2 * second_moments.squares + 2.0 * rest * float(along @ np.einsum("kd,kd->k", moved, moved))
    return along, (
        rest * second_moments.trace + float(along @ variance), squares + float(along @ (inner * inner.T) @ along)
    )  # fmt: skip


def _source_head(
    V: np.ndarray, M: np.ndarray, second_moments: Covariance, distance2: float, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """The head of equally common classes at size one, with the size at which it is calibrated.

    Size one is a root mean square margin of unit^2 on source rows. The margin is the score of the true class minus the
    mean of the others: its mean in each class, and its variance within classes, which is that of all rows less that
    between classes.
    """
    K = len(M)
    b = -0.5 * np.einsum("kd,kd->k", V, M)
    V, b = V - V.mean(axis=0), b - b.mean()
    at = M @ V.T + b  # mean scores (columns) of the rows of each class; those of a row sum to zero
    between = V @ M.T
    noise = second_moments.product(V) @ V.T - between @ between.T / K
    margin2 = (K / (K - 1.0)) ** 2 * (np.maximum(np.diagonal(noise), 0.0) + np.diagonal(at) ** 2)
    size = math.sqrt(float(margin2.mean()))
    if not size > 0:
        return 0.0 * V, 0.0 * b, 1.0
    scale = margin_unit(K) ** 2 / size
    # A source row r away from the mean of its class has the leverage h = r' B^-1 r / (N - K). Without that row, r moves
    # its scores by 1 / (1 - h) times as much, and the mean of its class and B no longer lean towards it.
    keeps = max(1.0 - distance2 / max(float(weight.sum()) - K, 1.0), LEAST_KEPT)
    pull = distance2 / (keeps * np.maximum(weight - 1.0, 1.0))
    lost = pull[:, None] * (np.eye(K) - between / K)
    return scale * V, scale * b, _calibrated(noise / keeps**2, at, lost) / scale


def _calibrated(noise: np.ndarray, at: np.ndarray, lost: np.ndarray) -> float:
    """What scores must be multiplied by to be calibrated on a Gaussian source.

    `noise` (K, K) is their covariance within classes, `at` (K, K) their mean in each class (rows), `lost` (K, K) what a
    row that was not fitted to lacks of it. Along the difference v of two classes' weights the best logit has scale
    v'(mean - mean) / v'Sv. Both are summed over pairs of classes, with the overlap exp(-d^2 / 8) of the pair as weight:
    pairs that are never confused do not matter.
    """
    noise, signal, lost = _between_pairs(noise), _between_pairs(at), np.maximum(_between_pairs(lost), 0.0)
    pairs = noise > 1e-12 * max(float(noise.max()), 0.0)
    if not pairs.any():
        return 1.0
    noise, signal, lost = noise[pairs], signal[pairs], lost[pairs]
    signal = signal / (1.0 + lost / np.maximum(signal, 1e-300))  # about signal - lost, but a head never turns round
    far = signal**2 / (8.0 * noise)
    overlap = np.exp(far.min() - far)
    return float(overlap @ signal) / float(overlap @ noise)


def _between_pairs(A: np.ndarray) -> np.ndarray:
    """A[c, c] + A[k, k] - A[c, k] - A[k, c] for all pairs of classes."""
    own = np.diagonal(A)
    return np.asarray(own[:, None] + own[None, :] - A - A.T)


def _ranked_directions(M: np.ndarray, V: np.ndarray, second_moments: Covariance, n: int) -> np.ndarray:
    """Best discriminants, then the best ones orthogonal to them, and so on: block Krylov with Gram-Schmidt, (d, D).

    It starts from V = B^-1 M along the principal directions of the class means, those that separate most first.
    """
    values, U = np.linalg.eigh(M @ M.T)
    keep = values > 1e-12 * max(values[-1], 0.0)
    V = (U[:, keep].T @ V)[::-1][: min(len(M) - 1, n)]
    Q, sound, found = np.zeros((n, V.shape[1])), np.ones(len(V)), 0
    while len(V) and found < n:
        first, kept = found, []
        for v, digits in zip(V, sound):
            q, share = orthogonalise(Q[:found], v)
            if found < n and share * digits > BREAKDOWN:
                Q[found] = q
                kept.append(share * digits)
                found += 1
        V, sound = second_moments.solve(Q[first:found]) if found < n else Q[:0], np.array(kept)
    return Q[:found]
