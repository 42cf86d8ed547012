"""Leave-one-out losses of many small two-class probes on the host, compiled like `pro2.linalg.kernels.lanes_newton`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pro2.linalg.kernels.lanes import WIDTH, choose, largest, load, logistic, spread, store
from pro2.linalg.kernels.lanes_newton import (
    BORDER,
    CURVE,
    L2,
    SCORE,
    THETA,
    TILE,
    WEIGHT,
    B,
    C,
    G,
    Y,
    derivatives,
    direction,
    factorise,
    fill,
    move,
    store_rows,
    workspace,
)

FIXES_ITSELF = 1e-6  # a row that alone fixes its own fit has h V -> 1: keep the step finite


@njit(nogil=True, cache=True)
def loo_range(
    Z: Any, y: Any, soft: Any, c: Any, offset: Any, l2: Any, theta: Any, b: Any, loss: Any
) -> None:  # fmt: skip
    """Fill loss (T,): sum_i c_i log-loss of row i under a probe without it, one Newton step from theta (T, p) and b.

    Z (T, M, p); y (labels 0 or 1), what was fitted to, c and offset (T, M); l2 (T,). A row leaves with all of its
    weight.
    """
    here, rows, columns, H, panel, state = workspace(Z.shape[1], Z.shape[2])
    solved, totals = np.zeros((H.shape[1], TILE, WIDTH)), np.zeros((1, WIDTH))
    for first in range(0, len(Z), WIDTH):
        for k in range(WIDTH):
            i = min(first + k, len(Z) - 1)
            fill(k, i, Z, soft, c, offset, here, rows)
            state[L2, k], state[B, k] = l2[i], b[i]
            for j in range(Z.shape[2]):
                columns[THETA, j, k] = theta[i, j]
        move(here, rows, columns, state)
        derivatives(here, rows, columns, state, H, panel)
        factorise(H, state)
        direction(H, columns, state)
        for k in range(WIDTH):  # it was fitted to `soft`, and is judged by y
            for m in range(Z.shape[1]):
                rows[Y, m, k] = y[min(first + k, len(Z) - 1), m]
        _leave_out(here, rows, columns, state, H, solved, totals)
        for k in range(min(WIDTH, len(Z) - first)):
            loss[first + k] = totals[0, k]


@njit(nogil=True, cache=True)
def _leave_out(here: Any, rows: Any, columns: Any, state: Any, H: Any, solved: Any, totals: Any) -> None:
    """Sum of weighted losses into `totals`."""
    M, p = here.shape[:2]
    schur, one = load(state, WEIGHT), spread(1.0)
    for j in range(p):
        t = load(columns, BORDER * p + j)
        schur = schur - t * t * load(H, j * p + j)
    inverse = one / choose(spread(0.0) - schur, one, schur)
    total = spread(0.0)
    for r in range(0, M, TILE):
        v0, v1, v2, v3, u0, u1, u2, u3 = _quadratic_forms(here, columns, H, solved, r)
        total = total + _loss(rows, M, r, v0 + u0 * u0 * inverse)
        total = total + _loss(rows, M, r + 1, v1 + u1 * u1 * inverse)
        total = total + _loss(rows, M, r + 2, v2 + u2 * u2 * inverse)
        total = total + _loss(rows, M, r + 3, v3 + u3 * u3 * inverse)
    store(totals, 0, total)


@njit(nogil=True, cache=True)
def _quadratic_forms(here: Any, columns: Any, H: Any, solved: Any, r: int) -> Any:
    """v = z'A^-1 z and u = 1 - z'A^-1 t of four rows z: A = L D L' in H, t the border, L^-1 t in `columns`."""
    p, one = H.shape[1], spread(1.0)
    v0, v1, v2, v3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
    u0, u1, u2, u3 = one, one, one, one
    for j in range(p):
        at = r * p + j
        a0, a1, a2, a3 = load(here, at), load(here, at + p), load(here, at + 2 * p), load(here, at + 3 * p)
        for m in range(j):
            w, s = load(H, j * p + m), TILE * m
            a0, a1 = a0 - w * load(solved, s), a1 - w * load(solved, s + 1)
            a2, a3 = a2 - w * load(solved, s + 2), a3 - w * load(solved, s + 3)
        d, t = load(H, j * p + j), load(columns, BORDER * p + j)
        b0, b1, b2, b3 = a0 * d, a1 * d, a2 * d, a3 * d
        store_rows(solved, TILE * j, 1, b0, b1, b2, b3)
        v0, v1, v2, v3 = v0 + a0 * b0, v1 + a1 * b1, v2 + a2 * b2, v3 + a3 * b3
        u0, u1, u2, u3 = u0 - b0 * t, u1 - b1 * t, u2 - b2 * t, u3 - b3 * t
    return v0, v1, v2, v3, u0, u1, u2, u3


@njit(nogil=True, cache=True)
def _loss(rows: Any, M: int, r: int, v: Any) -> Any:
    """c log-loss of f + V g / (1 - h V), with slope g and curvature h of the row, weight included."""
    c, y = load(rows, C * M + r), load(rows, Y * M + r)
    g, h = load(rows, G * M + r), load(rows, CURVE * M + r)
    f = load(rows, SCORE * M + r) + v * g / largest(spread(1.0) - h * v, spread(FIXES_ITSELF))
    return c * (logistic(f)[1] - y * f)
