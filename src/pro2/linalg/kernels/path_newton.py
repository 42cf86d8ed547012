"""Two-class probes for all penalties of one Gram matrix, in row space, as one compiled loop on the host.

The same problem as `pro2.linalg.mode` solves, penalties in falling order. Solutions are nearly linear in
log(1 + s / l2), s the size of the curvature: each starts on the line through the last two. Newton systems
l2 I + S K S, S = sqrt(h), are factorised while K is small and solved by conjugate gradients in float32 beyond: the
residual is float64, so that rounding of a step only costs another one. Needs numba (`pip install 'pro2[fast]'`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pro2.linalg.kernels.lanes import WIDTH, load, probability, store
from pro2.linalg.kernels.path_steps import (
    DA,
    KA,
    KDA,
    LARGEST,
    MEAN,
    OFFSET,
    SCRATCH,
    A,
    C,
    G,
    H,
    R,
    Y,
    conjugate_step,
    direct_step,
    dot,
    factorise,
    low_rank,
    low_step,
    multiply,
    total,
)

# sums may be reordered and contracted, but NaN and infinity keep their meaning
_FAST = {"reassoc", "contract", "arcp", "nsz"}
DENSE = 48  # rows up to which a system is factorised
LOW = 48  # rank of K up to which steps are taken as in feature space; at 64 conjugate gradients are faster
RANK = 16  # of the part of K that the preconditioner of larger systems knows exactly
FARTHEST = 4.0  # times the way between the last two solutions: the most that a start lies beyond them
REFINE = 4  # solutions in float32 that together make a step


@njit(nogil=True, cache=True, fastmath=_FAST)
def solve_paths(
    K: Any, y: Any, c: Any, offset: Any, l2: Any, order: Any, tol: float, max_iter: int, a: Any, b: Any, kkt: Any,
    n_iter: Any,
) -> None:  # fmt: skip
    """Solve K (T, M, M), y, c and offset (T, M), l2 and the order to take it in (T, J), strongest first.

    Fills a (T, J, M), b, kkt and n_iter (T, J).
    """
    M = K.shape[1]
    rows, past, half = np.zeros((15, M)), np.zeros((2, M)), np.empty((8, M), np.float32)
    lanes = np.zeros((3, -(-M // WIDTH) * WIDTH))
    square = np.empty((M, M) if M <= DENSE else (1, 1))
    gram, single = np.empty((M, M)), np.empty((1, 1) if M <= DENSE else (M, M), np.float32)
    for t in range(K.shape[0]):
        rows[Y], rows[C], rows[OFFSET] = y[t], c[t], offset[t]
        _centre(K[t], rows, gram)
        F, rest, low = low_rank(gram, min(LOW, M // 3), RANK)
        if not low and M > DENSE:
            single[:] = gram
        F32, rest32 = F.astype(np.float32), rest.astype(np.float32)
        rows[A], rows[KA], b_now, b_past, x_now, x_past = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        curvature = 0.25 * np.dot(c[t], np.diag(gram))
        for j in order[t]:
            penalty = float(l2[t, j])
            x = np.log1p(curvature / penalty)
            by = min(FARTHEST, (x - x_now) / (x_now - x_past)) if x_now > x_past else 0.0
            _go_on(rows, past, by)
            b_now, b_past, x_now, x_past = b_now + by * (b_now - b_past), b_now, x, x_now
            b_now, kkt[t, j], n_iter[t, j] = _solve(
                gram, F, low, single, F32, rest32, rows, half, square, lanes, penalty, b_now, tol, max_iter
            )
            a[t, j] = rows[A]
            b[t, j] = b_now - dot(rows[MEAN], rows[A])  # scores on rows that are not centred have another level


@njit(nogil=True, cache=True, fastmath=_FAST)
def _go_on(rows: Any, past: Any, by: float) -> None:
    """From the last a and K a, which `past` then holds, by that much of the way from the ones before them."""
    for k in range(2):
        for i in range(rows.shape[1]):
            last = rows[A + k, i]
            rows[A + k, i] += by * (last - past[k, i])
            past[k, i] = last


@njit(nogil=True, cache=True, fastmath=_FAST)
def _centre(K: Any, rows: Any, gram: Any) -> None:
    """Gram matrix of the rows about their weighted mean: a sums to zero, so that only the intercept notices."""
    c, mean, M = rows[C], rows[MEAN], K.shape[0]
    multiply(K, c, mean)
    level = dot(mean, c)
    largest = 0.0
    for i in range(M):
        for k in range(M):
            gram[i, k] = K[i, k] - mean[i] - mean[k] + level
        gram[i, i] = max(gram[i, i], 0.0)
        largest = max(largest, gram[i, i])
    rows[LARGEST, 0] = largest


@njit(nogil=True, cache=True, fastmath=_FAST)
def _solve(
    K: Any, F: Any, low: bool, single: Any, F32: Any, rest: Any, rows: Any, half: Any, square: Any, lanes: Any,
    l2: float, b: float, tol: float, max_iter: int,
) -> tuple[float, float, int]:  # fmt: skip
    """Newton from the a and K a (to rounding) that rows hold; returns intercept, residual and iterations."""
    c, a, s, moved, h, da, ds, r = rows[C], rows[A], rows[KA], rows[SCRATCH], rows[H], rows[DA], rows[KDA], rows[R]
    value, noise = _objective(rows, lanes, l2, 0.0, b, 0.0)
    residual, worst, stuck, sure, n = np.inf, np.inf, False, False, 0
    for n in range(1, max_iter + 1):
        residual = _derivatives(rows, lanes, l2)
        if not residual > tol and not sure:  # a start that needs no step: its scores anew
            _product(K, F, low, a, s)
            value, noise = _objective(rows, lanes, l2, 0.0, b, 0.0)
            residual, sure = _derivatives(rows, lanes, l2), True
        if not residual > tol or stuck:
            break
        da[:], db, left, missing = 0.0, 0.0, residual, -total(a)
        goal = residual * max(0.1 * tol / residual, min(0.1, 0.2 * residual))
        for _ in range(REFINE):
            if low:
                db += low_step(F, rows, l2, missing)
            elif len(a) <= DENSE:
                db += direct_step(K, rows, square, l2, missing)
            else:
                db += conjugate_step(single, F32, rest, rows, half, l2, missing - total(da), goal)
            over = total(da) - missing
            for i in range(len(a)):
                da[i] -= c[i] * over
                moved[i] = a[i] + da[i]
            _product(K, F, low, moved, ds)
            for i in range(len(a)):  # not K da: a full step takes the rounding of s away, too
                ds[i] -= s[i]
            if low or len(a) <= DENSE:
                break
            before, left = left, 0.0
            for i in range(len(a)):  # what float32 has left of the system
                r[i] = -(l2 * a[i] + rows[G, i]) - l2 * da[i] - h[i] * (ds[i] + db)
                left = max(left, abs(r[i]) / (c[i] if c[i] > 0 else 1.0))
            if not left > max(3 * goal, 0.01 * tol) or not left < before:
                break
        length, new, rounding = _search(rows, lanes, l2, b, db, value, noise)
        if not length > 0:
            break
        for i in range(len(a)):
            a[i] += length * da[i]
            s[i] += length * ds[i]
        b += length * db
        noise, sure = rounding, length == 1
        stuck = new >= value - noise and residual >= 0.5 * worst
        worst, value = min(worst, residual), new
    return b, residual, n


@njit(nogil=True, cache=True, fastmath=_FAST)
def _product(K: Any, F: Any, low: bool, v: Any, out: Any) -> None:
    """out = K v, through the rows of F where there are few."""
    if low:
        out[:] = np.dot(np.dot(F, v), F)
    else:
        multiply(K, v, out)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _derivatives(rows: Any, lanes: Any, l2: float) -> float:
    """Slope and curvature of each row's loss and -(l2 a + slope) into rows; returns the largest |l2 a + slope| / c.

    No entry of the gradient is larger, relative to the most it can be; that of the intercept counts, too.
    """
    y, c, a, g, h, r, p = rows[Y], rows[C], rows[A], rows[G], rows[H], rows[R], lanes[1]
    residual, slope = 0.0, 0.0
    for i in range(len(y)):
        g[i] = c[i] * (p[i] - y[i])
        h[i] = c[i] * p[i] * (1 - p[i])
        slope += g[i]
        r[i] = -(l2 * a[i] + g[i])
        residual = max(residual, abs(r[i]) / (c[i] if c[i] > 0 else 1.0))
    return max(residual, abs(slope))


@njit(nogil=True, cache=True, fastmath=_FAST)
def _objective(rows: Any, lanes: Any, l2: float, length: float, b: float, db: float) -> tuple[float, float]:
    """Log-loss plus penalty a step of that length away, its rounding, and (in lanes[1]) the probabilities there."""
    y, c, offset, a, s, da, ds, f = rows[Y], rows[C], rows[OFFSET], rows[A], rows[KA], rows[DA], rows[KDA], lanes[0]
    value, square, terms, level = 0.0, 0.0, 0.0, b + length * db
    for i in range(len(y)):
        moved = s[i] + length * ds[i]
        f[i] = offset[i] + moved + level
        square += (a[i] + length * da[i]) * moved
        terms += abs(a[i])
    n = lanes.shape[1] // WIDTH
    for i in range(n):
        p, rest = probability(load(lanes, i))
        store(lanes, n + i, p)
        store(lanes, 2 * n + i, rest)
    for i in range(len(y)):
        # not max(f, 0) - y f: on the right side of a hard label there is nothing to cancel
        value += c[i] * (lanes[2, i] + ((1 - y[i]) * f[i] if f[i] >= 0 else -y[i] * f[i]))
    value += 0.5 * l2 * square
    # K a is exact to rounding of its longest terms
    return value, 16 * 2.220446049250313e-16 * (abs(value) + l2 * terms * terms * rows[LARGEST, 0] + 1e-3)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _search(
    rows: Any, lanes: Any, l2: float, b: float, db: float, value: float, noise: float
) -> tuple[float, float, float]:  # fmt: skip
    """Halve the step until the objective does not rise beyond rounding; length 0 if it never stops rising."""
    length = 1.0
    for _ in range(40):
        new, rounding = _objective(rows, lanes, l2, length, b, db)
        if new <= value + max(noise, rounding):
            return length, new, rounding
        length /= 2
    return 0.0, value, noise


@njit(nogil=True, cache=True, fastmath=_FAST)
def leverages(K: Any, h: Any, l2: Any, V: Any) -> None:
    """Diagonal of the covariance of the scores, intercept included: K (T, M, M), h and V (T, J, M), l2 (T, J).

    T = K (l2 I + h K)^-1, u = 1 - T h, V_ii = T_ii + u_i^2 / h'u. With L L' = l2 I + S K S and Y = L^-1 S K:
    l2 T_ii = K_ii - sum_m Y_mi^2 and l2 T h = K h - Y' L^-1 S K h.
    """
    M = K.shape[1]
    B, Y, root, u, w = np.empty((M, M)), np.empty((M, M)), np.empty(M), np.empty(M), np.empty(M)
    for t in range(K.shape[0]):
        for j in range(l2.shape[1]):
            lam, weight, out = l2[t, j], h[t, j], V[t, j]
            for i in range(M):
                root[i] = np.sqrt(weight[i])
            good = factorise(K[t], root, lam, B)
            for i in range(M):
                out[i], u[i] = K[t, i, i], 0.0
            for i in range(M):
                row = Y[i]
                for k in range(M):
                    row[k] = root[i] * K[t, i, k]
                for m in range(i):
                    x = B[i, m]
                    for k in range(M):
                        row[k] -= x * Y[m, k]
                along = 0.0
                for k in range(M):
                    row[k] *= B[i, i]
                    out[k] -= row[k] * row[k]
                    along += row[k] * weight[k]
                w[i] = along
                for k in range(M):
                    u[k] += weight[i] * K[t, i, k] - w[i] * row[k]
            mass = 0.0
            for i in range(M):
                u[i] = 1 - u[i] / lam
                mass += weight[i] * u[i]
            for i in range(M):
                V[t, j, i] = out[i] / lam + (u[i] * u[i] / mass if mass > 0 else 0.0) if good else np.nan
