"""BLAS and LAPACK in place of some functions of this room, for NumPy arrays on the host.

Same signature, same result to rounding; the caller picks them by namespace and dtype. What they save: half the bytes of
a symmetric matrix per product, and a third of the operations of a general inverse.

`matmul` and `gram` are products in SciPy's BLAS. NumPy's wheels carry a BLAS of their own with threads of its own,
which spin for some 20 ms after every product: a LAPACK call right after it waits for a core and takes twice as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from pro2.linalg.lapack.fortran import call, workspace

PANEL = 128  # columns mirrored at a time: two panels fit in the second-level cache
NEAR = 1e6  # times a level: features that depend on others to this degree have a pivot that shows it


def serves(M: Any) -> bool:
    """Whether M is a matrix these functions take: float64, NumPy, row-major."""
    return bool(is_numpy_array(M) and M.dtype == np.float64 and M.flags.c_contiguous)


def matmul(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A @ B for two matrices of one dtype, float32 or float64; no copy of row- and of column-major ones."""
    (m, k), n = A.shape, B.shape[1]
    C = np.empty((m, n), A.dtype)
    # as BLAS sees it, C' = B'A': a row-major matrix is its transpose, column-major
    (b, trans_b), (a, trans_a) = (
        (M, "T") if M.flags.f_contiguous else (np.ascontiguousarray(M).T, "N") for M in (B, A)
    )  # fmt: skip
    one, zero, ld = A.dtype.type(1), A.dtype.type(0), [max(1, M.shape[0]) for M in (b, a)]
    call(_of(A, "gemm"), trans_b, trans_a, n, m, k, one, b, ld[0], a, ld[1], zero, C, max(1, n))
    return C


def product(A: Any, B: Any) -> Any:
    """A @ B for matrices of any namespace, by `matmul` on the host."""
    return matmul(A, B) if is_numpy_array(A) and A.dtype == B.dtype and A.dtype.char in "fd" else A @ B


def gram(X: np.ndarray) -> np.ndarray:
    """X'X for float32 or float64; symmetric to the bit, at half the operations of a product."""
    X = np.ascontiguousarray(X)
    n, D = X.shape
    C = np.empty((D, D), X.dtype)
    call(_of(X, "syrk"), "L", "N", D, n, X.dtype.type(1), X, D, X.dtype.type(0), C, D)
    return _mirrored(C)


def _of(A: np.ndarray, name: str) -> str:
    return ("s" if A.dtype == np.float32 else "d") + name


def _mirrored(M: np.ndarray) -> np.ndarray:
    """A row-major M with its upper triangle copied to the lower, in place."""
    for start in range(0, M.shape[0], PANEL):
        stop = min(start + PANEL, M.shape[0])
        square = M[start:stop, start:stop]
        square[...] = np.triu(square) + np.triu(square, 1).T
        M[stop:, start:stop] = M[start:stop, stop:].T
    return M


def orthonormal_rows(A: np.ndarray) -> np.ndarray:
    """The rows of A by Gram and Schmidt: those of QR with a positive diagonal, three times as fast; overwrites A.

    By Cholesky of the Gram matrix, which squares the condition of A: for matrices as good as a Gaussian one that is not
    square.
    """
    (n, width), G = A.shape, np.empty((A.shape[0],) * 2)
    call("dsyrk", "U", "T", n, width, 1.0, A, width, 0.0, G, n)
    info = call("dpotrf", "U", n, G, n)
    if info != 0:
        raise np.linalg.LinAlgError(f"the first {info} rows depend on each other: they have no orthonormal basis")
    call("dtrsm", "R", "U", "N", "N", width, n, 1.0, G, n, A, width)
    return A


def spd_inverse(A: np.ndarray, level: float) -> np.ndarray | None:
    """(A + level I)^-1 of a symmetric A by Cholesky, symmetric to the bit; None where that is not definite."""
    M, D = A.copy(), len(A)  # a row-major symmetric matrix is the same matrix, column-major, as LAPACK wants it
    np.einsum("ii->i", M)[...] += level
    if call("dpotrf", "L", D, M, D) != 0 or call("dpotri", "L", D, M, D) != 0:
        return None
    return _mirrored(M)


def is_singular(A: np.ndarray, level: float) -> bool:
    """Whether A, symmetric and not negative, hardly exceeds `level` somewhere: a pivot of A + level I shows it."""
    M, D = np.array(A, dtype=np.float64), len(A)
    np.einsum("ii->i", M)[...] += level
    return bool(call("dpotrf", "L", D, M, D) == 0 and np.diagonal(M).min() ** 2 <= NEAR * level)


def solve_shifted(A: Any, level: float, rhs: Any) -> Any:
    """(A + level I)^-1 rhs for symmetric A that is not negative, level > 0, of any namespace; Cholesky on the host."""
    if serves(A):
        M, D, x = A.copy(), len(A), np.array(rhs, order="F")  # LAPACK writes into both
        np.einsum("ii->i", M)[...] += level
        if call("dposv", "L", D, x.shape[1], M, D, x, D) == 0:
            return np.ascontiguousarray(x)
    xp = array_namespace(A)
    return xp.linalg.solve(A + level * xp.eye(A.shape[0], dtype=A.dtype, device=device(A)), rhs)


def leading_eigenpairs(A: Any, n: int) -> tuple[Any, Any]:
    """The n largest eigenvalues of a symmetric A that is not negative, largest first, and orthonormal rows (n, D)."""
    if serves(A):
        M, D = A.copy(), len(A)
        found, values, rows, support = np.zeros(1, np.int32), np.empty(D), np.empty((n, D)), np.empty(2 * D, np.int32)
        args = ("V", "I", "L", D, M, D, 0.0, 0.0, D - n + 1, D, 0.0, found, values, rows, D, support)
        whole = (np.empty(10 * D, np.int32), 10 * D)
        work = workspace("dsyevr", *args, after=whole)
        if call("dsyevr", *args, work, len(work), *whole) == 0 and found[0] == n:
            return np.maximum(values[:n], 0.0)[::-1].copy(), rows[::-1].copy()
    xp = array_namespace(A)
    values, vectors = xp.linalg.eigh(A)
    rows = xp.flip(xp.matrix_transpose(vectors)[-n:, :], axis=0)
    return xp.flip(xp.maximum(values, 0.0 * values)[-n:]), rows


def multiplier(M: Any) -> Callable[[Any], Any]:
    """v -> M v for a symmetric M of any namespace; on the host half of it is read."""
    if not serves(M):
        return partial(array_namespace(M).matmul, M)
    from scipy.linalg.blas import dsymv

    return partial(dsymv, 1.0, M.T)
