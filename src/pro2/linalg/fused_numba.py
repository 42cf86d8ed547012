"""The two-class Newton of `pro2.linalg.newton` as one compiled loop per problem, for many small problems on the host.

Nothing leaves the first-level cache between iterations. Needs numba (`pip install 'pro2[fast]'`); the plain path gives
the same solutions without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# sums may be reordered and contracted, but NaN and infinity keep their meaning
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(nogil=True, cache=True, fastmath=_FAST)
def solve_range(
    Z: Any, y: Any, c: Any, offset: Any, l2: Any, tol: float, max_iter: int, theta: Any, b: Any, kkt: Any, n_iter: Any
) -> None:
    """Solve every problem of Z (T, M, p); y, c, offset (T, M) and l2 (T,). Fills theta (T, p), b, kkt, n_iter (T,).

    All arithmetic is float64, whatever the inputs: a problem is converted when it enters the cache.
    """
    M, p = Z.shape[1], Z.shape[2]
    rows, columns, H = np.empty((6, M)), np.empty((4, p)), np.empty((p, p))
    here = np.empty((M, p))
    for i in range(Z.shape[0]):
        here[:], rows[0], rows[1], rows[2] = Z[i], y[i], c[i], offset[i]
        b[i], kkt[i], n_iter[i] = _solve(here, rows, float(l2[i]), tol, max_iter, columns, H)
        theta[i] = columns[0]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _solve(Z: Any, rows: Any, l2: float, tol: float, max_iter: int, columns: Any, H: Any) -> tuple[float, float, int]:
    """Solution into columns[0]; returns intercept, residual and iterations."""
    y, c, f, df, prob = rows[0], rows[1], rows[2], rows[3], rows[4]
    theta, x, t, bound = columns[0], columns[1], columns[2], columns[3]
    M, p = Z.shape
    df[:] = 0.0
    columns[:] = 0.0
    for r in range(M):
        for j in range(p):
            bound[j] += c[r] * abs(Z[r, j])
    value = _objective(y, c, l2, theta, x, f, df, 0.0, prob)
    b, kkt, worst, stuck, n = 0.0, np.inf, np.inf, False, 0
    for n in range(1, max_iter + 1):
        total, weight = _derivatives(Z, y, c, prob, theta, l2, H, x, t, rows[5])
        kkt = abs(total)
        for j in range(p):
            kkt = max(kkt, abs(x[j]) / (bound[j] if bound[j] > 0 else 1.0))
        if not kkt > tol or stuck or not _cholesky(H):
            break
        db = _direction(H, x, t, total, weight)
        for r in range(M):
            s = db
            for j in range(p):
                s += Z[r, j] * x[j]
            df[r] = s
        length, new = _search(y, c, l2, theta, x, f, df, value, prob)
        if length == 0:
            break
        for j in range(p):
            theta[j] += length * x[j]
        b += length * db
        for r in range(M):
            f[r] += length * df[r]
        stuck = new >= value - _rounding(value) and kkt >= 0.5 * worst
        worst, value = min(worst, kkt), new
    return b, kkt, n


@njit(nogil=True, cache=True, fastmath=_FAST)
def _objective(y: Any, c: Any, l2: Any, theta: Any, x: Any, f: Any, df: Any, length: Any, prob: Any) -> Any:
    """Log-loss plus penalty at theta + length x, and the probabilities there, from one exponential a row."""
    value = 0.0
    for r in range(f.shape[0]):
        score = f[r] + length * df[r]
        e = np.exp(-abs(score))
        high = 1 / (1 + e)
        prob[r] = high if score >= 0 else e * high
        value += c[r] * (max(score, 0.0) + np.log1p(e) - y[r] * score)
    square = 0.0
    for j in range(theta.shape[0]):
        w = theta[j] + length * x[j]
        square += w * w
    return value + l2 * square / 2


@njit(nogil=True, cache=True, fastmath=_FAST)
def _derivatives(
    Z: Any, y: Any, c: Any, prob: Any, theta: Any, l2: float, H: Any, x: Any, t: Any, h: Any
) -> tuple[float, float]:
    """Gradient into x, border Z'h into t, Hessian into H; returns sum g and sum h."""
    M, p = Z.shape
    total, weight = 0.0, 0.0
    H[:] = 0.0
    for j in range(p):
        x[j], t[j], H[j, j] = l2 * theta[j], 0.0, l2
    for r in range(M):
        g = c[r] * (prob[r] - y[r])
        h[r] = c[r] * prob[r] * (1 - prob[r])
        total += g
        weight += h[r]
        for j in range(p):
            x[j] += g * Z[r, j]
            t[j] += h[r] * Z[r, j]
    _add_products(Z, h, H)
    return total, weight


@njit(nogil=True, cache=True, fastmath=_FAST)
def _add_products(Z: Any, h: Any, H: Any) -> None:
    """H += Z'hZ, four rows at a time: one load and store of H for four products, whole rows for long vectors."""
    M, p = Z.shape
    even = M - M % 4
    for r in range(0, even, 4):
        for j in range(p):
            a0, a1 = h[r] * Z[r, j], h[r + 1] * Z[r + 1, j]
            a2, a3 = h[r + 2] * Z[r + 2, j], h[r + 3] * Z[r + 3, j]
            for k in range(p):
                H[j, k] += a0 * Z[r, k] + a1 * Z[r + 1, k] + a2 * Z[r + 2, k] + a3 * Z[r + 3, k]
    for r in range(even, M):
        for j in range(p):
            a0 = h[r] * Z[r, j]
            for k in range(p):
                H[j, k] += a0 * Z[r, k]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _cholesky(H: Any) -> bool:
    """Lower factor in place, with inverted diagonal; False where rounding left no definite matrix."""
    p = H.shape[0]
    for j in range(p):
        for k in range(j):
            s = H[j, k]
            for m in range(k):
                s -= H[j, m] * H[k, m]
            H[j, k] = s * H[k, k]
        d = H[j, j]
        for m in range(j):
            d -= H[j, m] * H[j, m]
        if not d > 0:
            return False
        H[j, j] = 1 / np.sqrt(d)
    return True


@njit(nogil=True, cache=True, fastmath=_FAST)
def _direction(H: Any, x: Any, t: Any, total: Any, weight: Any) -> Any:
    """Newton direction into x from gradient x and border t, eliminating the slopes; returns that of the intercept."""
    p = H.shape[0]
    dot, self_dot = 0.0, 0.0
    for j in range(p):  # forward: with u = L^-1 x and v = L^-1 t all products of inverses are plain dots
        for m in range(j):
            x[j] -= H[j, m] * x[m]
            t[j] -= H[j, m] * t[m]
        x[j] *= H[j, j]
        t[j] *= H[j, j]
        dot += x[j] * t[j]
        self_dot += t[j] * t[j]
    schur = weight - self_dot
    db = (dot - total) / schur if schur > 0 else 0.0
    for j in range(p):
        x[j] = -x[j] - t[j] * db
    for j in range(p - 1, -1, -1):
        x[j] *= H[j, j]
        for m in range(j):
            x[m] -= H[j, m] * x[j]
    return db


@njit(nogil=True, cache=True, fastmath=_FAST)
def _search(
    y: Any, c: Any, l2: Any, theta: Any, x: Any, f: Any, df: Any, value: Any, prob: Any
) -> tuple[Any, Any]:  # fmt: skip
    """Halve the step until the objective does not rise; 0 if it never stops rising."""
    length = 1.0
    ceiling = value + _rounding(value)
    for _ in range(40):
        new = _objective(y, c, l2, theta, x, f, df, length, prob)
        if new <= ceiling:
            return length, new
        length /= 2
    return 0.0, value


@njit(nogil=True, cache=True, fastmath=_FAST)
def _rounding(value: float) -> float:
    return 16 * 2.220446049250313e-16 * (abs(value) + 1e-3)
