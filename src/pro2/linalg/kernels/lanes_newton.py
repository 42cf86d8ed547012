"""The two-class Newton of `pro2.linalg.mode` compiled for many small problems on the host, one problem a lane.

A group of problems stays in the first-level cache from its first iteration to its last; a lane whose problem is solved
takes the next one. All arithmetic is float64, whatever the inputs. Needs numba (`pip install 'pro2[fast]'`); the plain
path gives the same solutions without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pro2.linalg.kernels.lanes import WIDTH, absolute, choose, largest, load, logistic, smallest, spread, store

TILE = 4  # rows and features are padded to multiples: absent rows have weight 0, absent features are 0
SHORTEST = 2.0**-40
EMPTY = -1

# numbers a lane keeps: solution and direction of the intercept, penalty, step, what was seen at the current point
B, DB, L2, MOVE, LENGTH, VALUE, KKT, WORST, LOSS, SLOPE, WEIGHT, GAP, PIVOT, NEXT_DB, ACCEPTED = range(15)
# vectors over rows, and over features
Y, C, OFFSET, SCORE, G, CURVE = range(6)
THETA, STEP, X, BORDER, UNIT = range(5)


@njit(nogil=True, cache=True)
def solve_range(
    Z: Any, y: Any, c: Any, offset: Any, l2: Any, tol: float, max_iter: int, theta: Any, b: Any, kkt: Any, n_iter: Any
) -> None:
    """Solve every problem of Z (T, M, p); y, c, offset (T, M) and l2 (T,). Fills theta (T, p), b, kkt, n_iter (T,).

    Starts at what theta and b hold.
    """
    here, rows, columns, H, panel, state = workspace(Z.shape[1], Z.shape[2])
    problem, after, busy = np.full(WIDTH, EMPTY), 0, 0
    for k in range(WIDTH):
        after = _take(k, after, problem, Z, y, c, offset, l2, theta, b, n_iter, here, rows, columns, state)
        busy += problem[k] != EMPTY
    while busy > 0:
        move(here, rows, columns, state)
        derivatives(here, rows, columns, state, H, panel)
        factorise(H, state)
        direction(H, columns, state)
        for k in range(WIDTH):
            i = problem[k]
            if i == EMPTY or _goes_on(k, state, tol, max_iter, n_iter, i):
                continue
            for j in range(theta.shape[1]):
                theta[i, j] = columns[THETA, j, k]
            b[i], kkt[i] = state[B, k], state[KKT, k]
            after = _take(k, after, problem, Z, y, c, offset, l2, theta, b, n_iter, here, rows, columns, state)
            busy -= problem[k] == EMPTY
        _turn(columns, state)


@njit(nogil=True, cache=True)
def workspace(n_rows: int, n_features: int) -> Any:
    """Rows of features, vectors over rows, vectors over features, the Hessian, its panel, and the numbers of lanes."""
    M, p = -(-n_rows // TILE) * TILE, -(-n_features // TILE) * TILE
    here, rows, columns = np.zeros((M, p, WIDTH)), np.zeros((6, M, WIDTH)), np.zeros((5, p, WIDTH))
    return here, rows, columns, np.zeros((p + TILE, p, WIDTH)), np.zeros((M, TILE, WIDTH)), np.zeros((15, WIDTH))


@njit(nogil=True, cache=True)
def fill(k: int, i: int, Z: Any, y: Any, c: Any, offset: Any, here: Any, rows: Any) -> None:
    """Rows of problem i into lane k."""
    for r in range(Z.shape[1]):
        rows[Y, r, k], rows[C, r, k], rows[OFFSET, r, k] = y[i, r], c[i, r], offset[i, r]
        for j in range(Z.shape[2]):
            here[r, j, k] = Z[i, r, j]


@njit(nogil=True, cache=True)
def _take(
    k: int, i: int, problem: Any, Z: Any, y: Any, c: Any, offset: Any, l2: Any, theta: Any, b: Any, n_iter: Any,
    here: Any, rows: Any, columns: Any, state: Any,
) -> int:  # fmt: skip
    """Put problem i, if there is one, into lane k with a first step of length 0; returns the next problem."""
    state[:, k], state[ACCEPTED, k], columns[X, :, k] = 0.0, 1.0, 0.0
    problem[k] = i if i < len(Z) else EMPTY
    if problem[k] == EMPTY:
        return i
    fill(k, i, Z, y, c, offset, here, rows)
    n_iter[i], state[L2, k], state[B, k] = 0, l2[i], b[i]
    state[VALUE, k], state[KKT, k], state[WORST, k] = np.inf, np.inf, np.inf
    for j in range(Z.shape[2]):
        columns[THETA, j, k] = theta[i, j]
        bound = 0.0
        for r in range(Z.shape[1]):
            bound += rows[C, r, k] * abs(here[r, j, k])
        columns[UNIT, j, k] = 1 / bound if bound > 0 else 1.0
    return i + 1


@njit(nogil=True, cache=True)
def _goes_on(k: int, state: Any, tol: float, max_iter: int, n_iter: Any, i: int) -> bool:
    """Judge the point that lane k has moved to: go back half way, stay and step again, or end there."""
    new, value = state[LOSS, k], state[VALUE, k]
    if not new <= value + _rounding(value):
        state[ACCEPTED, k] = -1.0
        state[LENGTH, k] /= 2
        state[MOVE, k] = -state[LENGTH, k]
        return bool(state[LENGTH, k] > SHORTEST)
    gap, worst = max(state[GAP, k], abs(state[SLOPE, k])), state[WORST, k]
    stuck = new >= value - _rounding(value) and gap >= 0.5 * worst
    n_iter[i] += 1
    state[ACCEPTED, k], state[LENGTH, k], state[MOVE, k] = 1.0, 1.0, 1.0
    state[VALUE, k], state[KKT, k], state[WORST, k] = new, gap, min(worst, gap)
    return bool(gap > tol and not stuck and state[PIVOT, k] > 0 and n_iter[i] < max_iter)


@njit(nogil=True, cache=True)
def move(here: Any, rows: Any, columns: Any, state: Any) -> None:
    """Move, then objective, slopes g and curvatures h of all rows at the new point."""
    M, p = here.shape[:2]
    length, square = load(state, MOVE), spread(0.0)
    for j in range(p):
        w = load(columns, THETA * p + j) + length * load(columns, STEP * p + j)
        store(columns, THETA * p + j, w)
        square = square + w * w
    b = load(state, B) + length * load(state, DB)
    value, slope, weight = spread(0.5) * load(state, L2) * square, spread(0.0), spread(0.0)
    for r in range(0, M, TILE):
        f0, f1, f2, f3 = b, b, b, b
        at = r * p
        for j in range(p):
            w = load(columns, THETA * p + j)
            f0 = f0 + load(here, at + j) * w
            f1 = f1 + load(here, at + p + j) * w
            f2 = f2 + load(here, at + 2 * p + j) * w
            f3 = f3 + load(here, at + 3 * p + j) * w
        store_rows(rows, SCORE * M + r, 1, f0, f1, f2, f3)
    for r in range(M):
        f = load(rows, SCORE * M + r) + load(rows, OFFSET * M + r)
        store(rows, SCORE * M + r, f)
        prob, soft = logistic(f)
        mass, label = load(rows, C * M + r), load(rows, Y * M + r)
        g, h = mass * (prob - label), mass * prob * (spread(1.0) - prob)
        store(rows, G * M + r, g)
        store(rows, CURVE * M + r, h)
        value, slope, weight = value + mass * (soft - label * f), slope + g, weight + h
    store(state, B, b)
    store(state, LOSS, value)
    store(state, SLOPE, slope)
    store(state, WEIGHT, weight)


@njit(nogil=True, cache=True)
def derivatives(here: Any, rows: Any, columns: Any, state: Any, H: Any, panel: Any) -> None:
    """Gradient into X, border Z'h into BORDER, lower triangle of Z'hZ + l2 I into H, TILE columns at a time."""
    M, p = here.shape[:2]
    for j in range(0, p, TILE):
        x0, x1, x2, x3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        t0, t1, t2, t3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for r in range(M):
            at, g, h = r * p + j, load(rows, G * M + r), load(rows, CURVE * M + r)
            z0, z1, z2, z3 = load(here, at), load(here, at + 1), load(here, at + 2), load(here, at + 3)
            x0, x1, x2, x3 = x0 + g * z0, x1 + g * z1, x2 + g * z2, x3 + g * z3
            w0, w1, w2, w3 = h * z0, h * z1, h * z2, h * z3
            t0, t1, t2, t3 = t0 + w0, t1 + w1, t2 + w2, t3 + w3
            store_rows(panel, TILE * r, 1, w0, w1, w2, w3)
        store_rows(columns, X * p + j, 1, x0, x1, x2, x3)
        store_rows(columns, BORDER * p + j, 1, t0, t1, t2, t3)
        for k in range(0, j + TILE, 2):
            _tile(here, panel, H, j, k)
    gap, l2 = spread(0.0), load(state, L2)
    for j in range(p):
        x = load(columns, X * p + j) + l2 * load(columns, THETA * p + j)
        gap = largest(absolute(x) * load(columns, UNIT * p + j), gap)
        store(columns, X * p + j, x)
        store(H, j * (p + 1), load(H, j * (p + 1)) + l2)
    store(state, GAP, gap)


@njit(nogil=True, cache=True)
def _tile(here: Any, panel: Any, H: Any, j: int, k: int) -> None:
    """H[j : j + 4, k : k + 2] = (columns j.. of hZ in `panel`)' (columns k, k + 1 of Z): eight sums in registers."""
    M, p = here.shape[:2]
    a0, a1, a2, a3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
    b0, b1, b2, b3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
    for r in range(M):
        u, v = load(here, r * p + k), load(here, r * p + k + 1)
        w0, w1, w2, w3 = load(panel, 4 * r), load(panel, 4 * r + 1), load(panel, 4 * r + 2), load(panel, 4 * r + 3)
        a0, a1, a2, a3 = a0 + w0 * u, a1 + w1 * u, a2 + w2 * u, a3 + w3 * u
        b0, b1, b2, b3 = b0 + w0 * v, b1 + w1 * v, b2 + w2 * v, b3 + w3 * v
    store_rows(H, j * p + k, p, a0, a1, a2, a3)
    store_rows(H, j * p + k + 1, p, b0, b1, b2, b3)


@njit(nogil=True, cache=True)
def store_rows(a: Any, first: int, apart: int, v0: Any, v1: Any, v2: Any, v3: Any) -> None:
    """Four lane groups of `a`, so many apart."""
    store(a, first, v0)
    store(a, first + apart, v1)
    store(a, first + 2 * apart, v2)
    store(a, first + 3 * apart, v3)


@njit(nogil=True, cache=True)
def factorise(H: Any, state: Any) -> None:
    """H = L D L': L D below the diagonal, L' above it, 1 / D on it; PIVOT is the smallest of D."""
    p, pivot = H.shape[1], spread(np.inf)
    for j in range(p):
        for i in range(j, p, TILE):  # the last tile may reach into rows that are there for it
            a = i * p
            u0, u1, u2, u3 = load(H, a + j), load(H, a + p + j), load(H, a + 2 * p + j), load(H, a + 3 * p + j)
            for m in range(j):
                w = load(H, m * p + j)
                u0, u1 = u0 - load(H, a + m) * w, u1 - load(H, a + p + m) * w
                u2, u3 = u2 - load(H, a + 2 * p + m) * w, u3 - load(H, a + 3 * p + m) * w
            store_rows(H, a + j, p, u0, u1, u2, u3)
        d = load(H, j * p + j)
        pivot, inverse = smallest(d, pivot), spread(1.0) / d
        store(H, j * p + j, inverse)
        for i in range(j + 1, p):
            store(H, j * p + i, load(H, i * p + j) * inverse)
    store(state, PIVOT, pivot)


@njit(nogil=True, cache=True)
def direction(H: Any, columns: Any, state: Any) -> None:
    """Newton direction into X and NEXT_DB from the gradient X and the border, eliminating the slopes."""
    p = H.shape[1]
    x, t = X * p, BORDER * p
    dot, self_dot = spread(0.0), spread(0.0)
    for m in range(p):
        u, v, inverse = load(columns, x + m), load(columns, t + m), load(H, m * p + m)
        dot, self_dot = dot + u * v * inverse, self_dot + v * v * inverse
        for j in range(m + 1, p):
            w = load(H, m * p + j)
            store(columns, x + j, load(columns, x + j) - w * u)
            store(columns, t + j, load(columns, t + j) - w * v)
    schur = load(state, WEIGHT) - self_dot
    # every row saturated: the intercept stays
    db = choose(spread(0.0) - schur, spread(0.0), (dot - load(state, SLOPE)) / schur)
    for j in range(p):
        store(columns, x + j, spread(0.0) - load(columns, x + j) - load(columns, t + j) * db)
    for j in range(p - 1, -1, -1):
        u = load(columns, x + j) * load(H, j * p + j)
        store(columns, x + j, u)
        for m in range(j):
            store(columns, x + m, load(columns, x + m) - load(H, j * p + m) * u)
    store(state, NEXT_DB, db)


@njit(nogil=True, cache=True)
def _turn(columns: Any, state: Any) -> None:
    """Lanes whose point was accepted take the new direction; the others keep theirs."""
    p, accepted = columns.shape[1], load(state, ACCEPTED)
    store(state, DB, choose(accepted, load(state, NEXT_DB), load(state, DB)))
    for j in range(p):
        store(columns, STEP * p + j, choose(accepted, load(columns, X * p + j), load(columns, STEP * p + j)))


@njit(nogil=True, cache=True)
def _rounding(value: float) -> float:
    return 16 * 2.220446049250313e-16 * (abs(value) + 1e-3)
