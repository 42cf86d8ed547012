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
        self._half = _inverse_triangle(np.linalg.cholesky(B))

    def product(self, V: np.ndarray) -> np.ndarray:
        """Rows V (k, D) times C."""
        return np.asarray(V @ self._C)

    def solve(self, V: np.ndarray) -> np.ndarray:
        """Rows B^-1 v, (k, D)."""
        return self.root_adjoint(self.root(V))

    def root(self, Z: np.ndarray) -> np.ndarray:
        """Rows L^-1 z (..., D) for B = L L': their inner products are z' B^-1 z."""
        rows, A, n = stacked(Z), np.empty(Z.shape), len(self._half)
        for first in range(0, n, BLOCK):
            end = min(first + BLOCK, n)
            np.matmul(rows[:, :end], self._half[first:end, :end].T, out=stacked(A)[:, first:end])
        return A

    def root_adjoint(self, A: np.ndarray) -> np.ndarray:
        """Rows L'^-1 a (..., D): for a linear score a on rows `root(Z)`, the same score on rows Z."""
        rows, V, n = stacked(A), np.empty(A.shape), len(self._half)
        for first in range(0, n, BLOCK):
            end = min(first + BLOCK, n)
            np.matmul(rows[:, first:], self._half[first:, first:end], out=stacked(V)[:, first:end])
        return V

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square, from those of B^-1 and B^-2, since B^-1 C = I - shift B^-1."""
        inverse = self._half.T @ self._half
        first, second = float(np.trace(inverse)), float(np.vdot(inverse, inverse))
        return _of_product(len(inverse), self.shift * first, self.shift**2 * second)


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
        self.diagonal = np.einsum("nd,nd->d", R, R) + (0.0 if V is None else V**2 @ e)
        self.trace = float(np.trace(G) + np.sum(e))
        self.squares = float(np.vdot(G, G) + np.sum(e * e) + 2.0 * np.sum(S**2 @ np.broadcast_to(e, n)))
        self.shift = _shift(ridge, self.trace, math.sqrt(self.squares), n)
        w = 1.0 / (e + self.shift)
        self._scale = np.sqrt(w)
        inner, two, three = ((S * w**k) @ S.T if np.ndim(w) else w**k * G for k in (1, 2, 3))
        inner[np.diag_indices_from(inner)] += 1.0
        self._triangle = np.linalg.cholesky(inner)
        self._half = _inverse_triangle(self._triangle)
        Q = self._half.T @ self._half
        P = Q @ two if np.ndim(w) else w * (np.eye(len(Q)) - Q)
        first = float(np.sum(np.broadcast_to(w, n)) - np.trace(P))
        second = float(np.sum(np.broadcast_to(w**2, n)) - 2.0 * np.vdot(Q, three) + np.vdot(P, P.T))
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

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square."""
        return self._traces

    def _less(self, A: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Rows a (I - T' left right T)."""
        return np.asarray(A - ((((A * self._scale) @ self._S.T) @ left) @ right) @ self._S * self._scale)

    @cached_property
    def _half_plus_one(self) -> np.ndarray:
        return _inverse_triangle(self._triangle + np.eye(len(self._triangle)))

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


def _inverse_triangle(L: np.ndarray) -> np.ndarray:
    """L^-1 of a lower triangle, by halves: products are several times as fast as LAPACK's inverse of a triangle.

    Only NumPy is used, since SciPy brings another BLAS, whose threads would wait for those of NumPy's.
    """
    n = len(L)
    if n <= 64:
        return np.asarray(np.tril(np.linalg.inv(L)))
    m = n // 2
    inverse = np.zeros((n, n))
    inverse[:m, :m], inverse[m:, m:] = _inverse_triangle(L[:m, :m]), _inverse_triangle(L[m:, m:])
    inverse[m:, :m] = -inverse[m:, m:] @ (L[m:, :m] @ inverse[:m, :m])
    return inverse
