"""Ranked orthonormal bases: the Project step.

Direction i minimises the source loss of a one-dimensional classifier with intercept, orthogonal to all before it.
`krylov_basis` does it in closed form for the squared loss, `logistic_basis` by exact convex solves; the paper's own
procedure is in `pro2.linalg.adamw`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg import lapack
from pro2.linalg.lapack import tridiagonal
from pro2.linalg.moments import Array, Moments, host
from pro2.linalg.probes import fit_logistic

EXHAUSTED = 1e-7  # a direction of which no more than this share is new would carry rounding in its first digits
CLEAN = 0.7  # a Gram-Schmidt pass that leaves this much of the length needs no other
MOST_SIGNALS = 128  # columns of the between-class factor that are followed: beyond, only those that separate most


class Basis(NamedTuple):
    """Orthonormal rows in rank order.

    components (d, D); scores (d,) = share of a direction's source variance that lies between the classes (for two
    classes the squared correlation with the label); n_informative = directions found by the criterion, the rest
    completes the space.
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

    Parameters
    ----------
    moments : Moments
        Source statistics, at least two classes with rows.
    n_components : int
        Number of directions, 1 to D.
    ridge : float
        Regularisation of the source covariance, relative to its mean eigenvalue, so that the basis does not change
        when all embeddings are multiplied by a number. With 0 the pseudo-inverse is taken.
    """
    check_request(moments, n_components, ridge)
    size = _size(moments)
    moments = moments if size == 1.0 else moments.scaled(size)  # most are scaled to one already
    cov = moments.covariance()
    rows = _ranked(cov, _signal(moments), n_components, ridge)
    variance = _variance_along(rows, cov)
    informative = _n_moving(variance, cov)
    if informative < n_components:
        rows = complete(rows[:informative, :], cov, n_components)
        variance = _variance_along(rows, cov)
    return Basis(rows, direction_scores(rows, moments, variance), informative)


def direction_scores(components: Array, moments: Moments, variance: Array | None = None) -> Array:
    """Between-class share of the source variance along each row, in [0, 1]; `variance` if that is at hand."""
    xp = array_namespace(components)
    between = xp.sum(lapack.product(components, moments.between_factor()) ** 2, axis=1)
    total = _variance_along(components, moments.covariance()) if variance is None else variance
    return xp.where(total > 0, xp.clip(between / xp.where(total > 0, total, total + 1.0), 0.0, 1.0), 0.0 * total)


def logistic_basis(
    X: Array, y: Array, n_components: int, ridge: float, *, n_classes: int = 2, sample_weight: Array | None = None
) -> Basis:
    """The same sequence for the log-loss: each direction an exact convex solve in the complement.

    X (N, D) is centred by the caller; y holds codes 0..n_classes-1. `ridge` is relative to the mean variance of X and
    must be positive (separable classes have no minimiser without it). With more than two classes the softmax weights
    of the complement are reduced to the combination whose logits vary most on the source.
    """
    xp = array_namespace(X)
    if not ridge > 0:
        raise ValueError(f"ridge must be positive for the logistic solver, got {ridge}: log-loss may have no minimum.")
    moments = Moments.from_arrays(X, y, sample_weight)
    cov = moments.covariance()
    l2 = float(ridge * xp.sum(xp.linalg.diagonal(cov))) / X.shape[1]
    rest, rows = xp.astype(X, xp.float64), xp.zeros((0, X.shape[1]), dtype=xp.float64, device=device(X))
    present = xp.ones_like(rest[:, :1]) if sample_weight is None else xp.astype(sample_weight > 0, rest.dtype)[:, None]
    floor = EXHAUSTED * float(xp.max(xp.abs(rest)))
    for _ in range(n_components):
        if float(xp.max(xp.abs(present * rest))) <= floor:
            break
        fit = fit_logistic(rest, y, l2, n_classes=n_classes, sample_weight=sample_weight)
        v = fit.coef if n_classes == 2 else _leading_combination(fit.coef, cov)
        v, length = orthogonalise(rows, v)
        if length <= EXHAUSTED:
            break
        rows = xp.concat([rows, v[None, :]])
        rest = rest - (rest @ v)[:, None] * v[None, :]
    informative = int(rows.shape[0])
    if informative < n_components:
        rows = complete(rows, cov, n_components)
    return Basis(rows, direction_scores(rows, moments), informative)


def _size(moments: Moments) -> float:
    """Of rows about their mean: a power of two, which changes no digit. Squares of other sizes may not be numbers."""
    xp, C = array_namespace(moments.mean), moments.between_factor()
    within = xp.linalg.diagonal(moments.scatter) / moments.total_weight
    spread = math.sqrt(float(xp.mean(within + xp.sum(C * C, axis=1))))
    return 2.0 ** round(math.log2(spread)) if spread > 0 else 1.0


def check_request(moments: Moments, n_components: int, ridge: float) -> None:
    D = moments.width
    if not 1 <= n_components <= D:
        raise ValueError(f"n_components={n_components} is outside 1..{D}: the embedding has {D} features.")
    if not 0 <= ridge < float("inf"):
        raise ValueError(f"ridge must be a finite number >= 0, got {ridge}.")
    xp = array_namespace(moments.weight)
    if int(xp.sum(xp.astype(moments.weight > 0, xp.int64))) < 2:
        raise ValueError("y has rows of positive weight of one class only: a projection needs at least two classes.")


def _ranked(cov: Array, C: Array, n: int, ridge: float) -> Array:
    """The best n directions for class differences C (D, r), fewer if exhausted."""
    if not lapack.is_singular(host(cov), float(_silent_variance(cov))):
        return _best_directions(inverse(cov, ridge), C, n)
    # where the source stands still there is no signal, but each product would make more of what rounding leaves there
    xp = array_namespace(cov)
    values, vectors = xp.linalg.eigh(cov)
    largest = cov.shape[0] * float(xp.finfo(cov.dtype).eps * values[-1])
    n_still = int(xp.sum(xp.astype(values <= max(largest, float(_silent_variance(cov))), xp.int64)))
    turn, level = vectors[:, n_still:], ridge * xp.sum(values) / cov.shape[0]
    M = (1.0 / (values[n_still:] + level))[:, None] * xp.eye(turn.shape[1], dtype=cov.dtype, device=device(cov))
    return _best_directions(M, xp.matrix_transpose(turn) @ C, min(n, turn.shape[1])) @ xp.matrix_transpose(turn)


def _best_directions(M: Array, C: Array, n: int) -> Array:
    C = _leading_signals(M, C)
    return _two_class_rows(M, C[:, 0], n) if C.shape[1] == 1 else _greedy_discriminants(M, C, n)


def _signal(moments: Moments) -> Array:
    """C (D, r) whose columns span the class differences: one column for two classes, K otherwise."""
    C = moments.between_factor()
    if len(moments.classes) > 2:
        return C
    xp = array_namespace(C)
    # both columns of a two-class C are multiples of (mean 1 - mean 0)
    step = xp.matrix_transpose(moments.mean[1:2, :] - moments.mean[0:1, :])
    return step * xp.sqrt(xp.sum(C * C) / xp.sum(step * step)) if float(xp.sum(step * step)) > 0 else step


def _leading_signals(M: Array, C: Array) -> Array:
    """C, or the combinations of its columns with most between-class variance relative to the total one."""
    if C.shape[1] <= MOST_SIGNALS:
        return C
    xp = array_namespace(C)
    S = xp.matrix_transpose(C) @ M @ C
    return C @ xp.linalg.eigh(0.5 * (S + xp.matrix_transpose(S)))[1][:, -MOST_SIGNALS:]


def inverse(cov: Array, ridge: float) -> Array:
    """(cov + ridge * mean variance * I)^-1, or the pseudo-inverse when ridge is 0."""
    xp = array_namespace(cov)
    D = cov.shape[0]
    if ridge == 0:
        values, vectors = xp.linalg.eigh(cov)
        keep = values > D * xp.finfo(cov.dtype).eps * xp.max(xp.abs(values))
        weight = xp.where(keep, 1.0 / xp.where(keep, values, xp.ones_like(values)), xp.zeros_like(values))
        return (vectors * weight) @ xp.matrix_transpose(vectors)
    level = ridge * xp.sum(xp.linalg.diagonal(cov)) / D
    level = xp.where(level > 0, level, xp.ones_like(level))  # constant embeddings: any level gives the empty basis
    fast = lapack.spd_inverse(cov, float(level)) if lapack.serves(cov) else None
    if fast is not None:
        return fast
    M = xp.linalg.inv(cov + level * xp.eye(D, dtype=cov.dtype, device=device(cov)))
    return 0.5 * (M + xp.matrix_transpose(M))


def _two_class_rows(M: Array, b: Array, n: int) -> Array:
    if lapack.serves(M) and n > tridiagonal.SHARE * M.shape[0]:
        return tridiagonal.lanczos(M, b, n, EXHAUSTED)
    return lanczos(lapack.multiplier(M), b, n)


def lanczos(multiply: Callable[[Array], Array], b: Array, n: int) -> Array:
    """Orthonormalised M b, M^2 b, ... of a symmetric M, given as a function; fewer than n rows if exhausted.

    Best single discriminants for two classes: the best direction after q is minus the part of M q orthogonal to all
    before, so every row has q'b > 0.
    """
    v = multiply(b)
    xp = array_namespace(v)
    Q = xp.zeros((n, v.shape[0]), dtype=v.dtype, device=device(v))
    for i in range(n):
        q, left = orthogonalise(Q[:i, :], v)
        if left <= EXHAUSTED:
            return Q[:i, :]
        Q[i, :] = q
        v = -multiply(q)
    return Q


def _greedy_discriminants(M: Array, C: Array, n: int) -> Array:
    """Rows q_1..q_n, q_i maximising (v'C)^2 / v'M^-1 v over v orthogonal to the earlier ones; fewer if exhausted.

    In the complement of Q the inverse is M_Q = M - G G', a Cholesky factorisation of M built column by column:
    g_i = M_Q q_i / sqrt(q_i' M_Q q_i). The best v is a combination of W = M_Q C, and W follows q by
    W <- W_perp - m_perp (q'W) / (q' M_Q q), with `perp` the part orthogonal to q: no cancellation, whatever the depth.
    """
    xp = array_namespace(M)
    D = M.shape[0]
    Q = xp.zeros((n, D), dtype=M.dtype, device=device(M))
    G = xp.zeros((n, D), dtype=M.dtype, device=device(M))
    W = M @ C
    size, floor = float(xp.sqrt(xp.sum(W * W))), 0.0
    largest = float(xp.max(xp.sum(xp.abs(M), axis=1)))
    for i in range(n):
        if size <= floor:
            return Q[:i, :]
        q, length = orthogonalise(Q[:i, :], _best_combination(W, C))
        if length <= EXHAUSTED:
            return Q[:i, :]
        Q[i, :] = q
        m = M @ q
        m = m - (G[:i, :] @ q) @ G[:i, :]
        energy = xp.sum(q * m)
        G[i, :] = m / xp.sqrt(xp.abs(energy))
        along = q @ W
        W = W - q[:, None] * along[None, :] - (m - q * energy)[:, None] * (along / energy)[None, :]
        # W shrinks with depth while rounding along Q stays: without this pass it would be all that is left
        W = W - xp.matrix_transpose(Q[: i + 1, :]) @ (Q[: i + 1, :] @ W)
        # what rounding in M leaves in W: a smaller W is noise
        noise = D * xp.finfo(M.dtype).eps * largest * float(xp.sqrt(xp.sum(along * along)) / energy)
        floor, size = max(EXHAUSTED * size, noise), float(xp.sqrt(xp.sum(W * W)))
    return Q


def _best_combination(W: Array, C: Array) -> Array:
    """W u with u the leading eigenvector of C'W, signed so that the class it separates most comes out positive."""
    xp = array_namespace(W)
    S = xp.matrix_transpose(C) @ W
    u = xp.linalg.eigh(0.5 * (S + xp.matrix_transpose(S)))[1][:, -1]
    v = W @ u
    sides = xp.matrix_transpose(C) @ v
    return v * xp.sign(xp.take(sides, xp.reshape(xp.argmax(xp.abs(sides)), (1,))))[0]


def _leading_combination(coef: Array, cov: Array) -> Array:
    """Direction of the softmax weights (K, D) whose logit varies most under `cov`."""
    xp = array_namespace(coef)
    coef = coef - xp.mean(coef, axis=0, keepdims=True)
    S = coef @ cov @ xp.matrix_transpose(coef)
    u = xp.linalg.eigh(0.5 * (S + xp.matrix_transpose(S)))[1][:, -1]
    u = u * xp.sign(xp.take(u, xp.reshape(xp.argmax(xp.abs(u)), (1,))))[0]
    return u @ coef


def orthogonalise(Q: Array, v: Array) -> tuple[Array, float]:
    """v made orthogonal to the rows of Q to machine precision and of unit length; and which share of v was left.

    The last two rows come first: in a Krylov sequence nearly all of M q lies along them (Lanczos 1950). Then all
    rows, until a pass leaves most of the length (Daniel et al. 1976). A share near 0: v was in the span already.
    """
    xp = array_namespace(v)
    start = float(xp.sqrt(xp.sum(v * v)))
    if start == 0:
        return v, 0.0
    v, left = v / start, 1.0
    for rows in (Q[max(0, Q.shape[0] - 2) :, :], Q, Q, Q):
        v = v - (rows @ v) @ rows
        before, left = left, float(xp.sqrt(xp.sum(v * v)))
        if rows is Q and left > CLEAN * before:
            break
    return (v / left if left > 0 else v), left


def _silent_variance(cov: Array) -> Array:
    """Variance at or below which a direction moves by rounding only."""
    xp = array_namespace(cov)
    return 10 * cov.shape[0] * xp.finfo(cov.dtype).eps * xp.max(xp.linalg.diagonal(cov))


def _variance_along(rows: Array, cov: Array) -> Array:
    return array_namespace(cov).sum(lapack.product(rows, cov) * rows, axis=1)


def _n_moving(variance: Array, cov: Array) -> int:
    """How many leading rows the source moves along; a direction in which it stands still cannot predict a label."""
    xp = array_namespace(cov)
    still = variance <= _silent_variance(cov)
    return int(xp.argmax(xp.astype(still, xp.int64))) if bool(xp.any(still)) else int(variance.shape[0])


def complete(Q: Array, cov: Array, n: int) -> Array:
    """Q extended to n rows: principal directions of the source in its complement, then directions it never moves in.

    Each direction multiplies rounding by the inverse covariance, which is largest where the source stands still: what
    has crept into Q from there is taken out first. The result depends on Q and cov alone, not on rounding.
    """
    xp = array_namespace(cov)
    D = cov.shape[0]
    values, vectors = xp.linalg.eigh(cov)
    n_still = int(xp.sum(xp.astype(values <= _silent_variance(cov), xp.int64)))
    r = min(Q.shape[0], D - n_still)
    Q = Q[:r, :]
    R, still = vectors[:, n_still:], vectors[:, :n_still]
    if r:
        full = xp.linalg.qr(xp.matrix_transpose(Q @ R), mode="complete")  # the rows of Q in coordinates of the range
        sign = xp.sign(xp.linalg.diagonal(full.R)[:r])
        Q, N = xp.matrix_transpose(R @ (full.Q[:, :r] * sign[None, :])), full.Q[:, r:]
        R = R @ (N @ xp.linalg.eigh(xp.matrix_transpose(N) @ (values[n_still:, None] * N))[1])
    if D - n_still < n:
        # any fixed matrix with distinct eigenvalues picks a basis that depends on the space alone
        rank = xp.astype(xp.arange(D, device=device(cov)), cov.dtype)[:, None]
        still = still @ xp.linalg.eigh(xp.matrix_transpose(still) @ (rank * still))[1]
    rows = xp.matrix_transpose(xp.concat([xp.flip(R, axis=1), still], axis=1))[: n - r, :]
    peak = xp.take_along_axis(rows, xp.argmax(xp.abs(rows), axis=1)[:, None], axis=1)
    return xp.concat([Q, rows * xp.sign(peak)])
