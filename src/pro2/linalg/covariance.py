"""Second moments C of source rows and the inverse of B = C + r I: dense, or without any D x D matrix of the source.

The prior needs few things of C: traces, products with some rows, solutions of B x = z and a root of B^-1.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from pro2.linalg.arrays import stacked

BLOCK = 128  # columns of a product with a triangle that are made together: what is zero is left out
MIN_RIDGE = 1e-12  # relative to the size of C: below, rounding decides whether B is positive definite


class DenseCovariance:
    """C as a matrix (D, D), and B = C + ridge * (mean of the diagonal) * I by its Cholesky factor."""

    def __init__(self, C: np.ndarray, ridge: float):
        self.diagonal = np.diagonal(C).copy()
        self.trace = float(self.diagonal.sum())
        self.squares = float(np.vdot(C, C))  # trace of C C
        self.shift = _shift(ridge, self.trace, math.sqrt(self.squares), len(C))
        self._C = C
        B = C.copy()
        B[np.diag_indices_from(B)] += self.shift
        self._half = _inverse_root(B)

    def product(self, V: np.ndarray) -> np.ndarray:
        """Rows V (k, D) times C."""
        return np.asarray(V @ self._C)

    def solve(self, V: np.ndarray) -> np.ndarray:
        """Rows B^-1 v, (k, D)."""
        return self.root_adjoint(self.root(V))

    def root(self, Z: np.ndarray) -> np.ndarray:
        """Rows L^-1 z (..., D) for B = L L': their inner products are z' B^-1 z."""
        return _times_adjoint(stacked(Z), self._half).reshape(Z.shape)

    def root_adjoint(self, A: np.ndarray) -> np.ndarray:
        """Rows L'^-1 a (..., D): for a linear score a on rows `root(Z)`, the same score on rows Z."""
        return times_triangle(stacked(A), self._half).reshape(A.shape)

    def inverse(self) -> np.ndarray:
        """B^-1 up to its diagonal or some places beyond, and zeros (D, D), in single precision."""
        half, found = self._half.astype(np.float32), np.zeros(self._half.shape, dtype=np.float32)
        for first in range(0, len(half), BLOCK):
            end = min(first + BLOCK, len(half))
            np.matmul(half[first:, first:end].T, half[first:, :end], out=found[first:end, :end])
        return found

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square, from those of B^-1 and B^-2, since B^-1 C = I - shift B^-1."""
        first, second = _inverse_traces(self._half)
        return _of_product(len(self._half), self.shift * first, self.shift**2 * second)


class LowRankCovariance:
    """C = V diag(e) V' + R'R for few rows R (n, D), and B by Woodbury's identity; e = 0 and V = I unless given.

    With the rows of a source as R, 1,000 rows of 8,192 features form no D x D matrix. With eigenvalues e and
    eigenvectors V that many labels share, and one row R, a label costs no factorisation of its own.

    In coordinates z V W with W = diag(e + shift)^-1/2, B is I + T'T with T = R V W. With I + TT' = L L' its inverse is
    I - T' (L L')^-1 T = N N' with N = I - T' L'^-1 (L + I)^-1 T.
    """

    def __init__(self, R: np.ndarray, ridge: float, e: float | np.ndarray = 0.0, V: np.ndarray | None = None):
        self._V, self._e = V, e
        S = self._S = R if V is None else R @ V
        G, n = S @ S.T, R.shape[1]
        squared = np.einsum("nd,nd->d", S, S)
        self.diagonal = squared if V is None else np.einsum("nd,nd->d", R, R) + V**2 @ e
        self.trace = float(squared.sum() + np.sum(e))
        self.squares = float(np.vdot(G, G) + np.sum(e * e) + 2.0 * np.sum(squared * e))
        self.shift = _shift(ridge, self.trace, math.sqrt(self.squares), n)
        w = 1.0 / (e + self.shift)
        self._scale = np.sqrt(w)
        if np.ndim(w):
            G, two, three = ((S * w**k) @ S.T for k in (1, 2, 3))
        else:
            G *= w
        G[np.diag_indices_from(G)] += 1.0
        self._half = _inverse_root(G)
        if np.ndim(w):
            Q = self._half.T @ self._half
            P = Q @ two
            first = float(np.sum(w) - np.trace(P))
            second = float(np.sum(w**2) - 2.0 * np.vdot(Q, three) + np.vdot(P, P.T))
        else:  # B^-1 is w times the identity off the rows, and w (I + T T')^-1 along them
            first, second = (power * (n - len(S) + norm) for power, norm in zip((w, w**2), _inverse_traces(self._half)))
        self._traces = _of_product(n, self.shift * first, self.shift**2 * second)

    def product(self, V: np.ndarray) -> np.ndarray:
        """Rows V (k, D) times C."""
        A = self._rotated(V)
        return self._back(A * self._e + (A @ self._S.T) @ self._S)

    def solve(self, V: np.ndarray) -> np.ndarray:
        """Rows B^-1 v, (k, D)."""
        A = self._rotated(V) * self._scale
        return self._back(self._less(A, self._half.T, self._half) * self._scale)

    def root(self, Z: np.ndarray) -> np.ndarray:
        """Rows z V W N (..., D): their inner products are z' B^-1 z."""
        rows = self._less(self._rotated(stacked(Z)) * self._scale, self._half.T, self._half_plus_one)
        return np.asarray(rows.reshape(Z.shape))

    def root_adjoint(self, A: np.ndarray) -> np.ndarray:
        """For a linear score a on rows `root(Z)`, the same score on rows Z, (..., D)."""
        rows = self._less(stacked(A), self._half_plus_one.T, self._half)
        return self._back(rows * self._scale).reshape(A.shape)

    def inverse(self) -> np.ndarray:
        """B^-1 (D, D), in single precision; where e = 0 and V = I."""
        U = ((self._half @ self._S) * self._scale**2).astype(np.float32)
        found = -U.T @ U
        found[np.diag_indices_from(found)] += self._scale**2
        return found

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square."""
        return self._traces

    def _less(self, A: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Rows a (I - T' left right T)."""
        return np.asarray(A - ((((A * self._scale) @ self._S.T) @ left) @ right) @ self._S * self._scale)

    @cached_property
    def _half_plus_one(self) -> np.ndarray:
        return _inverse_triangle(_inverse_triangle(self._half) + np.eye(len(self._half)))

    def _rotated(self, Z: np.ndarray) -> np.ndarray:
        return Z if self._V is None else Z @ self._V

    def _back(self, A: np.ndarray) -> np.ndarray:
        return np.asarray(A if self._V is None else A @ self._V.T)


Covariance = DenseCovariance | LowRankCovariance


def _shift(ridge: float, trace: float, size: float, width: int) -> float:
    """Multiple of the identity that is added; one where the source never moves."""
    return max(ridge * trace / width, MIN_RIDGE * size) or 1.0


def _of_product(n: int, first: float, second: float) -> tuple[float, float]:
    """Traces of I - A and of its square, from those of A (n, n) and of A A."""
    return max(n - first, 0.0), max(n - 2.0 * first + second, 0.0)


def _inverse_traces(half: np.ndarray) -> tuple[float, float]:
    """Traces of B^-1 = half' half and of its square, some rows of B^-1 at a time up to its diagonal."""
    squares = 0.0
    for first in range(0, len(half), BLOCK):
        end = min(first + BLOCK, len(half))
        rows = half[first:, first:end].T @ half[first:, :end]
        squares += 2.0 * float(np.vdot(rows, rows)) - float(np.vdot(rows[:, first:], rows[:, first:]))
    return float(np.vdot(half, half)), squares


def _times_adjoint(A: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Rows A (n, D) times the transpose of a lower triangle, without its zeros."""
    found, n = np.empty(A.shape), len(half)
    for first in range(0, n, BLOCK):
        end = min(first + BLOCK, n)
        np.matmul(A[:, :end], half[first:end, :end].T, out=found[:, first:end])
    return found


def times_triangle(A: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Rows A (n, D) times a lower triangle of the same type, without its zeros."""
    found, n = np.empty_like(A), len(half)
    for first in range(0, n, BLOCK):
        end = min(first + BLOCK, n)
        np.matmul(A[:, first:], half[first:, first:end], out=found[:, first:end])
    return found


def _inverse_root(B: np.ndarray) -> np.ndarray:
    """L^-1 for B = L L', in the place of B: some rows after the other, each from those before.

    Only NumPy is used, since SciPy brings another BLAS, whose threads would wait for those of NumPy's.
    """
    for first in range(0, len(B), BLOCK):
        end = min(first + BLOCK, len(B))
        half = B[:first, :first]
        below = _times_adjoint(B[first:end, :first], half)  # rows of L
        corner = np.tril(np.linalg.inv(np.linalg.cholesky(B[first:end, first:end] - below @ below.T)))
        B[first:end, :first] = -corner @ times_triangle(below, half)
        B[first:end, first:end], B[:first, first:end] = corner, 0.0
    return B


def _inverse_triangle(L: np.ndarray) -> np.ndarray:
    """L^-1 of a lower triangle, in the same way; products are several times as fast as LAPACK's inverse of one."""
    inverse = np.zeros(L.shape)
    for first in range(0, len(L), BLOCK):
        end = min(first + BLOCK, len(L))
        corner = np.tril(np.linalg.inv(L[first:end, first:end]))
        inverse[first:end, :first] = -corner @ times_triangle(L[first:end, :first], inverse[:first, :first])
        inverse[first:end, first:end] = corner
    return inverse
