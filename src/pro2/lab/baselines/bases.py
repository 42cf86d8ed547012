"""Baselines that differ from Project and Probe in the features only: another basis, the same probe.

Random, PCA, LDA and PLS have orthonormal directions in rank order. Pro2-NC and Teney et al. train theirs jointly, give
them unit length and no right angles: redundancy is what sets them apart. PCA, LDA and PLS are computed from the moments
of the source, which is one pass over its rows for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device

from pro2.estimators.moments import SourceMoments
from pro2.estimators.probe import feature_grid
from pro2.lab.baselines.base import Fit, ProbeBaseline, Source, generator
from pro2.linalg.adamw import STEPS, AdamW
from pro2.linalg.arrays import Array, to_numpy

TRAINED_SIZE = 64  # features of the jointly trained baselines: each costs as much as a classifier on all source rows
PIECE = 4096  # rows whose logits are computed together: a thousand directions on all rows would not fit in memory


@dataclass(eq=False, repr=False, kw_only=True)
class BasisProbe(ProbeBaseline):
    """fit: `directions` from the source, in its scaled space, as `components_`; adapt: the probe on the first of them.

    `n_components`, `n_features` and `l2` as in `ProjectAndProbe`.
    """

    grid = ("n_features", "l2")

    n_components: int | None = None
    n_features: int | str = "auto"
    random_state: Any = None

    def directions(self, source: Source, size: int) -> np.ndarray:
        """The first `size` directions (size, D) in the scaled space."""
        raise NotImplementedError

    def _default_size(self, source: Source) -> int:
        return source.width

    def _learn(self, source: Source) -> None:
        size = self._default_size(source) if self.n_components is None else self.n_components
        if not isinstance(size, int | np.integer) or not 1 <= size <= source.width:
            raise ValueError(f"n_components={size!r} must be an integer in 1..{source.width} (the embedding's width).")
        self.components_ = self.directions(source, int(size))

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        Z = Z @ self.components_.T
        coef, intercept, *chosen = self._probe(Z, codes, feature_grid(self.n_features, Z.shape[1]))
        return coef @ self.components_, intercept, *chosen


class RandomProjectionProbe(BasisProbe):
    """Probe on random orthonormal features: the paper's "Random Projection" (Bingham & Mannila, KDD 2001).

    `random_state` draws the basis; a longer basis of the same seed begins with the shorter one.
    """

    def directions(self, source: Source, size: int) -> np.ndarray:
        return orthonormal_rows(generator(self.random_state).standard_normal((size, source.width)))


class PCAProbe(BasisProbe):
    """Probe on the principal components of the source, largest variance first (Pearson, 1901)."""

    def directions(self, source: Source, size: int) -> np.ndarray:
        return principal_rows(source.moments)[:size]


class LDAProbe(BasisProbe):
    """Probe on Fisher's discriminants of the source: K - 1 features for K classes, unless `n_components` asks for more.

    Fisher, 1936; Rao, 1948. For two classes and equal `ridge` this is Project and Probe with one feature (the paper's
    corollary).
    """

    def _default_size(self, source: Source) -> int:
        return min(source.n_classes - 1, source.width)

    def directions(self, source: Source, size: int) -> np.ndarray:
        return continued(lda_rows(source.moments, self.ridge), source.moments, size)


class PLSProbe(BasisProbe):
    """Probe on partial-least-squares features of the source (Wold, 1966)."""

    def directions(self, source: Source, size: int) -> np.ndarray:
        return continued(pls_rows(source.moments, size), source.moments, size)


class UnconstrainedProbe(BasisProbe):
    """Pro2-NC: features trained on the source label with no orthogonality constraint, so they repeat each other.

    The paper's ablation. `n_components` is 64 by default (or the width, if smaller); `random_state` draws where
    training starts. Directions do not depend on each other, so the first of many are those of fewer.
    """

    alignment: ClassVar[float] = 0.0

    def _default_size(self, source: Source) -> int:
        return min(TRAINED_SIZE, source.width)

    def directions(self, source: Source, size: int) -> np.ndarray:
        rows, rng = source.on_device(source.rows()), generator(self.random_state)
        return to_numpy(alignment_rows(rows, source.codes, size, self.alignment, n_classes=source.n_classes, seed=rng))


@dataclass(eq=False, repr=False, kw_only=True)
class GradientAlignmentProbe(UnconstrainedProbe):
    """Features trained on the source label with a penalty on the alignment of their input gradients.

    Teney, Abbasnejad, Lucey & van den Hengel, "Evading the Simplicity Bias: Training a Diverse Set of Models Discovers
    Solutions with Superior OOD Generalization", CVPR 2022. `alignment` is the weight of the penalty, 0 or more; see
    `alignment_rows`.
    """

    nested = False

    alignment: float = 1.0  # type: ignore[misc]


def orthonormal_rows(rows: np.ndarray) -> np.ndarray:
    """Gram-Schmidt from the first row on: leading rows keep their span and their sign."""
    Q, R = np.linalg.qr(rows.T)
    return np.ascontiguousarray((Q * np.where(np.diagonal(R) < 0, -1.0, 1.0)).T)


def continued(rows: np.ndarray, moments: SourceMoments, n_rows: int) -> np.ndarray:
    """Rows made orthonormal and, where more are asked for, followed by the principal directions of what is left."""
    rows = np.concatenate([rows, principal_rows(moments)]) if n_rows > len(rows) else rows
    return orthonormal_rows(rows[: moments.width])[:n_rows]


def principal_rows(moments: SourceMoments) -> np.ndarray:
    """All principal directions (D, D), largest variance first; labels are not used."""
    return np.ascontiguousarray(np.linalg.eigh(moments.covariance())[1][:, ::-1].T)


def lda_rows(moments: SourceMoments, ridge: float = 0.0) -> np.ndarray:
    """Fisher's discriminants, at most K - 1: the largest rho with B v = rho (W + ridge * mean variance * I) v.

    B and W are the covariances between and within classes. B = C C' has rank K - 1, so K x K matrices are enough.
    """
    C, W = np.asarray(moments.between_factor()), np.asarray(moments.within_covariance())
    level = ridge * np.trace(W) / len(W)
    WC = np.linalg.pinv(W + level * np.eye(len(W)), hermitian=True) @ C
    rho, mix = np.linalg.eigh(C.T @ WC)
    found = [k for k in np.argsort(-rho)[: C.shape[1] - 1] if rho[k] > 1e-12 * rho.max()]
    return (WC @ mix[:, found]).T


def pls_rows(moments: SourceMoments, n_rows: int) -> np.ndarray:
    """Partial least squares on one-hot labels: weights of largest covariance with the deflated labels.

    The kernel form needs X'X and X'Y only (Dayal & MacGregor, 1997); for two classes the rows span the Krylov space
    b, Ab, A^2 b, ... with A = Cov(X) and b = Cov(X, y), where Project and Probe has inverse powers of A. Fewer rows
    come back where no covariance is left.
    """
    A, D = np.asarray(moments.covariance()), moments.width
    share = (moments.weight / moments.total_weight)[:, None]
    S = (share * (moments.mean - moments.total_mean())).T  # Cov(X, one-hot y), (D, K)
    weights, rotations, loadings = np.zeros((3, n_rows, D))
    start = np.linalg.norm(S)
    for a in range(n_rows):
        w = S @ np.linalg.eigh(S.T @ S)[1][:, -1]
        length = np.linalg.norm(w)
        for _ in range(2):  # once leaves rounding errors along earlier weights
            w = w - (weights[:a] @ w) @ weights[:a]
        if np.linalg.norm(S) <= 1e-12 * start or np.linalg.norm(w) <= 1e-10 * length:
            return weights[:a]
        w = w / np.linalg.norm(w)
        r = w - (loadings[:a] @ w) @ rotations[:a]
        p = A @ r / (r @ A @ r)
        S = S - np.outer(p, r @ S)
        weights[a], rotations[a], loadings[a] = w, r, p
    return weights


def alignment_rows(
    X: Array, y: np.ndarray, n_components: int, alignment: float, *, n_classes: int = 2,
    seed: int | np.random.Generator | None = None, n_steps: int = STEPS,
) -> Array:  # fmt: skip
    """Train one linear classifier per direction: log-loss plus `alignment` times how well their input gradients agree.

    The diversity term of Teney et al. (CVPR 2022) is the dot product of the input gradients of two classifiers' top
    scores, averaged over source points. For a linear classifier with logit z = w'x + b that gradient is sign(z) w, so
    the term of a pair is w_i'w_j times (share of points where both predict the same - share where they differ). Taking
    the gradient of the probability instead, p (1 - p) w, would let training escape the penalty by saturating.

    X (N, D) is centred by the caller, y holds codes; with more than two classes direction i learns class i mod K
    against the rest. Joint full-batch AdamW as in the Project step; the penalty of a direction is averaged over all
    others. Returns rows of unit length (n_components, D).
    """
    if not 0 <= alignment < math.inf:
        raise ValueError(f"alignment must be a finite number >= 0, got {alignment}.")
    xp = array_namespace(X)
    X = X if X.dtype in (xp.float32, xp.float64) else xp.astype(X, xp.float64)

    def like_X(values: Any) -> Array:
        return xp.asarray(np.ascontiguousarray(values), dtype=X.dtype, device=device(X))

    learned = np.ones(n_components) if n_classes == 2 else np.arange(n_components) % n_classes
    targets, c = like_X(np.asarray(y)[:, None] == learned), like_X(np.full(len(y), 1.0 / len(y)))
    bound = 1.0 / math.sqrt(X.shape[1])  # PyTorch's start for a linear layer
    start = np.random.default_rng(seed).uniform(-bound, bound, (n_components, X.shape[1] + 1))
    W, b, optimiser = like_X(start[:, :-1]), like_X(start[:, -1]), AdamW()
    for _ in range(n_steps):
        W, b = optimiser.step([W, b], [*alignment_gradient(X, targets, c, W, b, alignment)])
    return xp.astype(W / xp.sqrt(xp.sum(W * W, axis=1, keepdims=True)), xp.float64)


def alignment_gradient(X: Array, T: Array, c: Array, W: Array, b: Array, alignment: float) -> tuple[Array, Array]:
    """Gradient in (W, b) of sum_i logloss_i + alignment * sum_i mean_{j != i} sum_n c_n s_ni s_nj w_i'w_j.

    s = sign(z) is constant almost everywhere, so only w_i'w_j has a slope.
    """
    xp, d = array_namespace(X), W.shape[0]
    in_W, in_b, agreement = 0.0 * W, 0.0 * b, 0.0 * (W @ W.T)
    for at in (slice(i, i + PIECE) for i in range(0, X.shape[0], PIECE)):
        z = X[at, :] @ W.T + b
        error = (1.0 / (1.0 + xp.exp(-xp.clip(z, -40.0, 40.0))) - T[at, :]) * c[at, None]
        in_W += error.T @ X[at, :]
        in_b += xp.sum(error, axis=0)
        if alignment > 0:
            side = xp.where(z > 0, xp.ones_like(z), -xp.ones_like(z))
            agreement += side.T @ (c[at, None] * side)
    pairs = 1.0 - xp.eye(d, dtype=X.dtype, device=device(X))
    return in_W + (2.0 * alignment / max(1, d - 1)) * (agreement * pairs) @ W, in_b
