"""Ranked orthonormal bases: the Project step.

Direction i minimises the source loss of a one-dimensional classifier with intercept, orthogonal to all before it.
`krylov_basis` does it in closed form for the squared loss, `logistic_basis` by exact convex solves; the paper's own
procedure is in `pro2.linalg.adamw`. The algebra is NumPy and SciPy; results are arrays like the moments or rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, qr
from scipy.linalg.blas import dsymv

from pro2.linalg.arrays import Array, asarray_like, orthogonalise, to_numpy
from pro2.linalg.logistic import fit_logistic
from pro2.linalg.moments import Moments

EXHAUSTED = 1e-7  # a direction of which no more than this share is new would carry rounding in its first digits
MOST_SIGNALS = 128  # columns of the between-class factor that are followed: beyond, only those that separate most
NEAR_SINGULAR = 1e6  # squared pivots below this many times what rounding leaves show features that depend on others
_EPS = float(np.finfo(np.float64).eps)


class Basis(NamedTuple):
    """Orthonormal rows (d, D) in rank order, and the share (d,) of their source variance that lies between the classes.

    `n_informative` directions were found by the criterion, the rest completes the space.
    """

    components: Array
    scores: Array
    n_informative: int


def krylov_basis(moments: Moments, n_components: int, ridge: float = 0.0) -> Basis:
    """Best single discriminants of the squared loss, each in the complement of those before it.

    Maximises v'Bv / v'Av over v orthogonal to the rows so far, with B the between-class covariance and
    A = total covariance + ridge * (mean variance) * I. For two classes the span of the first i rows is
    span{A^-1 b, ..., A^-i b} with b the difference of class means: direction 1 is LDA. Of more than 128 classes, B
    keeps the 128 directions that separate them most.

    `ridge` is relative to the mean eigenvalue of the source covariance, so that the basis does not change when all
    embeddings are multiplied by a number. With 0 the pseudo-inverse is taken.
    """
    if not 1 <= n_components <= moments.width:
        raise ValueError(f"n_components={n_components} is outside 1..{moments.width}, the number of features.")
    if not 0 <= ridge < np.inf:
        raise ValueError(f"ridge must be a finite number >= 0, got {ridge}.")
    if (to_numpy(moments.weight) > 0).sum() < 2:
        raise ValueError("y has rows of positive weight of one class only: a projection needs at least two classes.")
    cov, C = to_numpy(moments.covariance()), to_numpy(moments.between_factor())
    spread = np.sqrt(np.trace(cov) / len(cov))
    # a power of two changes no digit; the squares of very large and very small numbers are no numbers
    unit = 2.0 ** np.round(np.log2(spread)) if spread > 0 else 1.0
    cov, C = cov / unit / unit, C / unit
    if len(moments.classes) == 2:  # both columns of C are multiples of the difference of the class means
        step = np.diff(to_numpy(moments.mean), axis=0).T / unit
        step = step / (np.abs(step).max() or 1.0)  # squares of what is tiny would vanish
        C = step * np.sqrt((C * C).sum() / (step * step).sum()) if step.any() else step
    rows = _ranked(cov, C, n_components, ridge)
    # a direction along which the source does not vary cannot predict a label
    constant = ((rows @ cov) * rows).sum(axis=1) <= _rounding_variance(cov)
    informative = int(np.argmax(constant)) if constant.any() else len(rows)
    rows = _complete(rows[:informative], cov, n_components)
    return Basis(asarray_like(rows, moments.mean), direction_scores(rows, moments), informative)


def logistic_basis(
    X: Array, y: Array, n_components: int, ridge: float, *, n_classes: int = 2, sample_weight: Array | None = None
) -> Basis:
    """The same sequence for the log-loss: each direction an exact convex solve in the complement.

    X (N, D) is centred by the caller; y holds codes 0..n_classes-1. `ridge` is relative to the mean variance of X and
    must be positive (separable classes have no minimiser without it). With more than two classes the softmax weights
    of the complement are reduced to the combination whose logits vary most on the source.
    """
    if not ridge > 0:
        raise ValueError(f"ridge must be positive for the logistic solver, got {ridge}: log-loss may have no minimum.")
    rest, y = to_numpy(X).astype(np.float64), to_numpy(y)
    weight = np.ones(len(rest)) if sample_weight is None else to_numpy(sample_weight)
    moments = Moments.from_arrays(rest, y, weight)
    cov, rows = moments.covariance(), np.zeros((0, rest.shape[1]))
    l2 = ridge * np.trace(cov) / len(cov)
    floor = EXHAUSTED * np.abs(rest).max()
    while len(rows) < n_components and np.abs(rest[weight > 0]).max() > floor:
        fit = fit_logistic(rest, y, l2, n_classes=n_classes, sample_weight=weight)
        W = np.atleast_2d(fit.coef)
        W = W - W.mean(axis=0) if n_classes > 2 else W
        u = np.linalg.eigh(W @ cov @ W.T)[1][:, -1]
        v, share = orthogonalise(rows, u * np.sign(u[np.abs(u).argmax()]) @ W)
        if share <= EXHAUSTED:
            break
        rows = np.vstack([rows, v])
        rest = rest - np.outer(rest @ v, v)
    whole = _complete(rows, cov, n_components)
    return Basis(asarray_like(whole, X), asarray_like(direction_scores(whole, moments), X), len(rows))


def direction_scores(rows: np.ndarray, moments: Moments) -> Array:
    """Between-class share of the source variance along each row, in [0, 1]."""
    cov, C = to_numpy(moments.covariance()), to_numpy(moments.between_factor())
    between, total = ((rows @ C) ** 2).sum(axis=1), ((rows @ cov) * rows).sum(axis=1)
    scores = np.where(total > 0, np.clip(between / np.where(total > 0, total, 1.0), 0.0, 1.0), 0.0)
    return asarray_like(scores, moments.mean)


def _ranked(cov: np.ndarray, C: np.ndarray, n: int, ridge: float) -> np.ndarray:
    """The best n directions for class differences C (D, r), fewer if exhausted."""
    D, level, shift = len(cov), _rounding_variance(cov), ridge * np.trace(cov) / len(cov)
    factor, failed = lapack.dpotrf(cov + level * np.eye(D))
    if not failed and np.diagonal(factor).min() ** 2 > NEAR_SINGULAR * level:
        upper, _ = lapack.dpotri(lapack.dpotrf(cov + shift * np.eye(D))[0])
        return _best_directions(np.ascontiguousarray(np.triu(upper) + np.triu(upper, 1).T), C, n)
    # drop directions along which the source does not vary: the inverse would amplify the rounding errors along them
    values, vectors = np.linalg.eigh(cov)
    varies = values > max(D * _EPS * values[-1], level)
    if not varies.any():
        return np.zeros((0, D))
    turn = vectors[:, varies]
    return _best_directions(np.diag(1.0 / (values[varies] + shift)), turn.T @ C, min(n, turn.shape[1])) @ turn.T


def _best_directions(M: np.ndarray, C: np.ndarray, n: int) -> np.ndarray:
    """The same for the inverse covariance M."""
    if C.shape[1] == 1:
        return _lanczos(M, C[:, 0], n)
    if C.shape[1] > MOST_SIGNALS:  # the combinations with most between-class variance relative to the total one
        C = C @ np.linalg.eigh(C.T @ M @ C)[1][:, -MOST_SIGNALS:]
    return _greedy_discriminants(M, C, n)


def _lanczos(M: np.ndarray, b: np.ndarray, n: int) -> np.ndarray:
    """Orthonormalised M b, M^2 b, ... of a symmetric M; fewer than n rows if exhausted.

    Best single discriminants for two classes: the best direction after q is minus the part of M q orthogonal to all
    before, so every row has q'b > 0.
    """
    v, Q = dsymv(1.0, M.T, b), np.zeros((n, len(b)))
    for i in range(n):
        q, share = orthogonalise(Q[:i], v)
        if share <= EXHAUSTED:
            return Q[:i]
        Q[i] = q
        v = -dsymv(1.0, M.T, q)
    return Q


def _greedy_discriminants(M: np.ndarray, C: np.ndarray, n: int) -> np.ndarray:
    """Rows q_1..q_n, q_i maximising (v'C)^2 / v'M^-1 v over v orthogonal to the earlier ones; fewer if exhausted.

    In the complement of Q the inverse is M_Q = M - G G', a Cholesky factorisation of M built column by column:
    g_i = M_Q q_i / sqrt(q_i' M_Q q_i). The best v is a combination of W = M_Q C, and W follows q by
    W <- W_perp - m_perp (q'W) / (q' M_Q q), with `perp` the part orthogonal to q: no cancellation, whatever the depth.
    """
    D = len(M)
    Q, G, W = np.zeros((n, D)), np.zeros((n, D)), M @ C
    size, floor, largest = np.linalg.norm(W), 0.0, np.abs(M).sum(axis=1).max()
    for i in range(n):
        if size <= floor:
            return Q[:i]
        v = W @ np.linalg.eigh(C.T @ W)[1][:, -1]
        sides = C.T @ v  # the class that this direction separates most comes out positive
        q, share = orthogonalise(Q[:i], v * np.sign(sides[np.abs(sides).argmax()]))
        if share <= EXHAUSTED:
            return Q[:i]
        Q[i] = q
        m = M @ q - (G[:i] @ q) @ G[:i]
        energy, along = q @ m, q @ W
        G[i] = m / np.sqrt(abs(energy))
        W = W - np.outer(q, along) - np.outer(m - q * energy, along / energy)
        # W shrinks with depth while rounding along Q stays: without this pass it would be all that is left
        W = W - Q[: i + 1].T @ (Q[: i + 1] @ W)
        # what rounding in M leaves in W: a smaller W is noise
        noise = D * _EPS * largest * np.linalg.norm(along) / energy
        floor, size = max(EXHAUSTED * size, noise), np.linalg.norm(W)
    return Q


def _complete(Q: np.ndarray, cov: np.ndarray, n: int) -> np.ndarray:
    """Q extended to n rows: principal directions of the source in its complement, then directions it does not vary in.

    What rounding has left in Q of directions in which the source does not vary is taken out first. The result depends
    on Q and cov alone, not on rounding.
    """
    if len(Q) == n:
        return Q
    values, vectors = np.linalg.eigh(cov)
    varies = values > _rounding_variance(cov)
    R, still, r = vectors[:, varies], vectors[:, ~varies], min(len(Q), int(varies.sum()))
    if r:
        full, upper = qr((Q[:r] @ R).T)  # the rows of Q in coordinates of the range
        Q, N = (R @ (full[:, :r] * np.sign(np.diagonal(upper)))).T, full[:, r:]
        R = R @ (N @ np.linalg.eigh(N.T @ (values[varies, None] * N))[1])
    if still.shape[1] and varies.sum() < n:
        # any fixed matrix with distinct eigenvalues picks a basis that depends on the space alone
        still = still @ np.linalg.eigh(still.T @ (np.arange(len(cov))[:, None] * still))[1]
    rows = np.hstack([R[:, ::-1], still]).T[: n - r]
    peak = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    return np.vstack([Q[:r], rows * np.sign(peak)])


def _rounding_variance(cov: np.ndarray) -> float:
    """Variance at or below which a direction moves by rounding only."""
    return float(10 * len(cov) * _EPS * np.diagonal(cov).max())
