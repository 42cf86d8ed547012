"""Newton steps of `pro2.linalg.kernels.path_newton`: by one factorisation, or by preconditioned conjugate gradients.

A step adds to da and returns db so that, with a right-hand side r and sum 1'da = missing,

    l2 da + h (K da + db) = r;   da = r / l2 + S v:  (l2 I + S K S) v = -S K r / l2 - S 1 db,   S = sqrt(h)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_FAST = {"reassoc", "contract", "arcp", "nsz"}
# vectors over rows: what is given, the solution and its scores, slopes and curvatures, the step, what it has left; the
# largest entry of K stands first in LARGEST, and MEAN is K c before K was centred
Y, C, OFFSET, A, KA, SCRATCH, X, G, H, DA, KDA, R, LARGEST, MEAN, T = range(15)
MOST = 120  # conjugate gradients a solution: more mean that float32 cannot follow


@njit(nogil=True, cache=True, fastmath=_FAST)
def dot(a: Any, b: Any) -> float:
    """Where a call of BLAS takes as long as what it computes."""
    out = 0.0
    for i in range(len(a)):
        out += a[i] * b[i]
    return out


@njit(nogil=True, cache=True, fastmath=_FAST)
def total(a: Any) -> float:
    out = 0.0
    for i in range(len(a)):
        out += a[i]
    return out


@njit(nogil=True, cache=True, fastmath=_FAST)
def multiply(K: Any, v: Any, out: Any) -> None:
    """out = K v."""
    for i in range(len(out)):
        out[i] = dot(K[i], v)


@njit(nogil=True, cache=True, fastmath=_FAST)
def direct_step(K: Any, rows: Any, B: Any, l2: float, missing: float) -> float:
    """By Cholesky of l2 I + S K S; NaN where rounding left no definite matrix."""
    h, root, r, x, t = rows[H], rows[SCRATCH], rows[R], rows[X], rows[T]
    M = len(h)
    for i in range(M):
        root[i] = np.sqrt(h[i])
    if not factorise(K, root, l2, B):
        return np.nan
    multiply(K, r, x)
    for i in range(M):
        x[i] *= -root[i] / l2
        t[i] = root[i]
    solve_factor(B, x)
    solve_factor(B, t)
    for i in range(M):  # v = x - t db
        x[i], t[i] = r[i] / l2 + root[i] * x[i], root[i] * t[i]
    return _close(rows[DA], x, t, missing)


@njit(nogil=True, cache=True, fastmath=_FAST)
def low_step(F: Any, rows: Any, l2: float, missing: float) -> float:
    """Where K = F'F has k rows: through the factor of A = l2 I + F h F', as in feature space."""
    h, r = rows[H], rows[R]
    k, M = F.shape
    A, x, t = np.dot(F * h, F.T), np.dot(F, r), np.dot(F, h)
    for j in range(k):
        A[j, j] += l2
    if not _factor(A):
        return np.nan
    solve_factor(A, x)
    solve_factor(A, t)
    x, t = np.dot(x, F), np.dot(t, F)
    for i in range(M):  # S x = -h F'A^-1 F r / l2,  S B^-1 S 1 = h (1 - F'A^-1 F h) / l2
        x[i], t[i] = (r[i] - h[i] * x[i]) / l2, h[i] * (1 - t[i]) / l2
    return _close(rows[DA], x, t, missing)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _close(da: Any, x: Any, t: Any, missing: float) -> float:
    """da += x - t db with the db that gives it the missing sum."""
    mass, total = 0.0, 0.0
    for i in range(len(x)):
        total += x[i]
        mass += t[i]
    db = (total - missing) / mass if mass > 0 else 0.0
    for i in range(len(x)):
        da[i] += x[i] - t[i] * db
    return db


@njit(nogil=True, cache=True, fastmath=_FAST)
def _factor_row(A: Any, j: int) -> Any:
    """Row j of the lower factor in place, from the rows above it; returns its pivot."""
    for k in range(j):
        x = A[j, k]
        for m in range(k):
            x -= A[j, m] * A[k, m]
        A[j, k] = x * A[k, k]
    d = A[j, j]
    for m in range(j):
        d -= A[j, m] * A[j, m]
    return d


@njit(nogil=True, cache=True, fastmath=_FAST)
def _factor(A: Any) -> bool:
    """Lower factor in place, with inverted diagonal; False where rounding left no definite matrix."""
    for j in range(A.shape[0]):
        d = _factor_row(A, j)
        if not d > 0:
            return False
        A[j, j] = 1 / np.sqrt(d)
    return True


@njit(nogil=True, cache=True, fastmath=_FAST)
def factorise(K: Any, root: Any, l2: float, B: Any) -> bool:
    """Lower factor of l2 I + S K S in B, with inverted diagonal; False where rounding left no definite matrix."""
    for j in range(len(root)):
        for m in range(j + 1):
            B[j, m] = root[j] * K[j, m] * root[m]
        B[j, j] += l2
    return _factor(B)


@njit(nogil=True, cache=True, fastmath=_FAST)
def solve_factor(L: Any, x: Any) -> None:
    """x becomes (L L')^-1 x; the diagonal of L is inverted."""
    M = len(x)
    for j in range(M):
        v = x[j]
        for m in range(j):
            v -= L[j, m] * x[m]
        x[j] = v * L[j, j]
    for j in range(M - 1, -1, -1):
        v = x[j] * L[j, j]
        x[j] = v
        for m in range(j):
            x[m] -= L[j, m] * v


@njit(nogil=True, cache=True, fastmath=_FAST)
def low_rank(K: Any, most: int, early: int) -> tuple[Any, Any, bool]:
    """Pivoted Cholesky: K ~ F'F + diag(rest) with F (k, M), exact on the diagonal; whether that is all of K.

    It is all of K with at most `most` rows; where it is not, the first `early` rows are given.
    """
    M = K.shape[0]
    F, rest = np.empty((min(most, M), M)), np.empty(M)
    for i in range(M):
        rest[i] = K[i, i]
    floor = 1e-15 * M * np.max(rest) if M else 0.0
    k, then = 0, rest.copy()
    while k < F.shape[0]:
        pivot = np.argmax(rest)
        if not rest[pivot] > floor:
            break
        if k == early:
            then[:] = rest
        row = F[k]
        row[:] = K[pivot]
        for m in range(k):
            weight = F[m, pivot]
            for i in range(M):
                row[i] -= weight * F[m, i]
        scale = 1 / np.sqrt(rest[pivot])
        for i in range(M):
            row[i] *= scale
            rest[i] = max(rest[i] - row[i] * row[i], 0.0)
        rest[pivot] = 0.0
        k += 1
    if np.max(rest) <= floor:
        return F[:k].copy(), 0.0 * rest, True
    return F[: min(k, early)].copy(), then if k > early else rest, False


@njit(nogil=True, cache=True, fastmath=_FAST)
def conjugate_step(
    K: Any, F: Any, rest: Any, rows: Any, half: Any, l2: float, missing: float, goal: float
) -> float:  # fmt: skip
    """By conjugate gradients in float32, until no row is off by more than `goal` times its weight.

    The preconditioner is l2 I + S (F'F + diag(rest)) S, inverted through a k x k factor (Woodbury). Every direction is
    projected so that the sum stays (Gould, Hribar & Nocedal 2001, with their update of the residual).
    """
    h, da, rhs = rows[H], rows[DA], rows[R]
    M = len(h)
    scaled = np.empty(M, np.float32)  # 1 / c
    root, weak, r, x, z, d, t, Bd = half[0], half[1], half[2], half[3], half[4], half[5], half[6], half[7]
    lam, needed = np.float32(l2), missing
    for i in range(M):
        root[i] = np.sqrt(h[i])
        weak[i] = 1 / (l2 + h[i] * rest[i])
        z[i] = -rhs[i] / l2
        needed -= rhs[i] / l2
        scaled[i] = 1 / rows[C, i] if rows[C, i] > 0 else 1.0
    r[:] = np.dot(K, z) * root
    inner = _inner_factor(F, root, weak)
    _precondition(F, root, weak, inner, root, t)
    mass = np.dot(root, t)
    if not mass > 0:
        return np.nan
    # the start meets the constraint: S v sums to what is missing
    scale = np.float32(needed / mass)
    for i in range(M):
        x[i] = scale * t[i]
    d[:] = np.dot(K, x * root)
    for i in range(M):
        r[i] -= lam * x[i] + root[i] * d[i]
    d[:] = 0
    before, db = np.float32(1), np.float32(0)
    for n in range(MOST):
        _precondition(F, root, weak, inner, r, z)
        along = np.dot(root, z) / mass
        for i in range(M):
            z[i] -= along * t[i]
            r[i] -= along * root[i]  # so that rounding of a large multiplier does not tilt the plane
        db += along
        now, left = np.dot(r, z), np.float32(0)
        for i in range(M):
            left = max(left, root[i] * abs(r[i]) * scaled[i])
        if not left > goal or not now > 0:
            break
        beta = now / before if n else np.float32(0)
        for i in range(M):
            d[i] = z[i] + beta * d[i]
        Bd[:] = np.dot(K, d * root)
        for i in range(M):
            Bd[i] = lam * d[i] + root[i] * Bd[i]
        curvature = np.dot(d, Bd)
        if not curvature > 0:
            break
        alpha = now / curvature
        for i in range(M):
            x[i] += alpha * d[i]
            r[i] -= alpha * Bd[i]
        before = now
    for i in range(M):
        da[i] += rhs[i] / l2 + np.float64(root[i]) * x[i]
    return float(db)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _inner_factor(F: Any, root: Any, weak: Any) -> Any:
    """Lower factor of I + F S weak S F', float32, with inverted diagonal."""
    scaled = F * (root * np.sqrt(weak))
    C = np.dot(scaled, scaled.T)
    for j in range(F.shape[0]):
        C[j, j] += np.float32(1)
        C[j, j] = 1 / np.sqrt(max(_factor_row(C, j), np.float32(1e-6)))
    return C


@njit(nogil=True, cache=True, fastmath=_FAST)
def _precondition(F: Any, root: Any, weak: Any, inner: Any, r: Any, z: Any) -> None:
    """z = P^-1 r, P = D + S F'F S, D = 1 / weak: D^-1 r - D^-1 S F' (I + F S D^-1 S F')^-1 F S D^-1 r."""
    M = len(r)
    for i in range(M):
        z[i] = root[i] * weak[i] * r[i]
    u = np.dot(F, z)
    solve_factor(inner, u)
    z[:] = np.dot(u, F)
    for i in range(M):
        z[i] = weak[i] * (r[i] - root[i] * z[i])
