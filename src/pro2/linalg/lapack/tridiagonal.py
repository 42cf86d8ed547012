"""The Lanczos basis of many directions, by Householder reduction: for float64 NumPy arrays on the host.

Reflect the start vector onto the first axis; reducing what then is P M P to tridiagonal form keeps that axis, so the
transformation, reflected back, holds the Lanczos vectors: the same basis to rounding, orthonormal without a single
Gram-Schmidt pass, and most of its operations are matrix products (Golub & Van Loan 2013, sections 8.3 and 10.1).
"""

from __future__ import annotations

import numpy as np

from pro2.linalg.lapack.fortran import call, workspace

SHARE = 1 / 3  # of all directions: beyond, reducing the whole matrix costs less than one vector after the other


def lanczos(M: np.ndarray, b: np.ndarray, n: int, exhausted: float) -> np.ndarray:
    """Like `pro2.linalg.bases.lanczos`: M b, M^2 b, ... orthonormalised, alternating signs, fewer if exhausted."""
    v = M @ b
    length = float(np.linalg.norm(v))
    if length == 0:
        return np.empty((0, len(v)))
    v /= length
    start = -1.0 if v[0] >= 0 else 1.0  # P v = start e1, on the side that cancels nothing
    u = v.copy()
    u[0] -= start
    u /= np.linalg.norm(u)
    reflectors, diagonal, beside, tau = _reduce(_reflected(M, u))
    rows = _first_rows(reflectors, tau, n)
    rows -= 2.0 * np.outer(rows @ u, u)
    # the next vector is minus what M q has outside the span so far: q_{i+1}'M q_i < 0
    rows *= np.cumprod(np.concatenate([[start], np.where(beside[: n - 1] > 0, -1.0, 1.0)]))[:, None]
    return rows[: _n_new(diagonal, beside, n, exhausted)]


def _reflected(M: np.ndarray, u: np.ndarray) -> np.ndarray:
    """P M P with P = I - 2 u u'; M is left as it is."""
    w = M @ u
    w -= (u @ w) * u
    A = M - np.outer(2.0 * u, w)
    A -= np.outer(2.0 * w, u)
    return A


def _reduce(A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Reflectors below the diagonal, diagonal and off-diagonal of the tridiagonal form, their factors; A is used up."""
    D = len(A)  # a row-major symmetric matrix is the same matrix, column-major, as LAPACK wants it
    diagonal, beside, tau = np.empty(D), np.empty(max(1, D - 1)), np.empty(max(1, D - 1))
    args = ("L", D, A, D, diagonal, beside, tau)
    work = workspace("dsytrd", *args)
    call("dsytrd", *args, work, len(work))
    return A.T, diagonal, beside[: D - 1], tau[: D - 1]


def _first_rows(reflectors: np.ndarray, tau: np.ndarray, n: int) -> np.ndarray:
    """First n columns of the transformation, as rows; its first is the first axis."""
    D, m = len(reflectors), n - 1
    rows = np.zeros((n, D))
    rows[0, 0] = 1.0
    if m > 0:
        columns = np.ascontiguousarray(reflectors.T[:m, 1:])  # row-major rows are column-major columns
        args = (D - 1, m, m, columns, D - 1, np.ascontiguousarray(tau[:m]))
        work = workspace("dorgqr", *args)
        call("dorgqr", *args, work, len(work))
        rows[1:, 1:] = columns
    return rows


def _n_new(diagonal: np.ndarray, beside: np.ndarray, n: int, exhausted: float) -> int:
    """Vectors before the first whose new part is no more than `exhausted` of M q."""
    before = np.concatenate([[0.0], beside])[: n - 1]
    left = np.abs(beside[: n - 1])
    used_up = left <= exhausted * np.sqrt(before**2 + diagonal[: n - 1] ** 2 + left**2)
    return int(np.argmax(used_up)) + 1 if np.any(used_up) else n
