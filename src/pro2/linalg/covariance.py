"""Second moments C of source rows and the inverse of B = C + r I: dense, or without any D x D matrix of the source.

The prior needs few things of C: traces, products with some rows, solutions of B x = z and the quadratic form z' B^-1 z.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

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

    def gram(self, Z: np.ndarray) -> np.ndarray:
        """z' B^-1 z for all pairs of rows, (..., M, M)."""
        A = self.root(Z)
        return np.asarray(A @ np.swapaxes(A, -1, -2))

    def root(self, Z: np.ndarray) -> np.ndarray:
        """Rows L^-1 z for B = L L': their inner products are z' B^-1 z."""
        return np.asarray(Z @ self._half.T)

    def root_adjoint(self, A: np.ndarray) -> np.ndarray:
        """Rows L'^-1 a: for a linear score a on rows `root(Z)`, the same score on rows Z."""
        return np.asarray(A @ self._half)

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square, from those of B^-1 and B^-2, since B^-1 C = I - shift B^-1."""
        inverse = self._half.T @ self._half
        first, second = float(np.trace(inverse)), float(np.vdot(inverse, inverse))
        return _of_product(len(inverse), self.shift * first, self.shift**2 * second)


class LowRankCovariance:
    """C = V diag(e) V' + R'R for few rows R (n, D), and B by Woodbury's identity; e = 0 and V = I unless given.

    With the rows of a source as R, 1,000 rows of 8,192 features form no D x D matrix. With eigenvalues e and
    eigenvectors V that many labels share, and one row R, a label costs no factorisation of its own.
    """

    def __init__(self, R: np.ndarray, ridge: float, e: float | np.ndarray = 0.0, V: np.ndarray | None = None):
        self._V, self._e, self._ridge = V, e, ridge
        S = self._S = R if V is None else R @ V
        G, n = S @ S.T, R.shape[1]
        self.diagonal = np.einsum("nd,nd->d", R, R) + (0.0 if V is None else V**2 @ e)
        self.trace = float(np.trace(G) + np.sum(e))
        self.squares = float(np.vdot(G, G) + np.sum(e * e) + 2.0 * np.sum(S**2 @ np.broadcast_to(e, n)))
        self.shift = _shift(ridge, self.trace, math.sqrt(self.squares), n)
        # B^-1 = V (W - W S' Q S W) V' with W = diag(w) and Q the inverse of I + S W S'
        self._w = w = 1.0 / (e + self.shift)
        inner, two, three = ((S * w**k) @ S.T if np.ndim(w) else w**k * G for k in (1, 2, 3))
        inner[np.diag_indices_from(inner)] += 1.0
        self._half = _inverse_triangle(np.linalg.cholesky(inner))
        Q = self._half.T @ self._half
        P = Q @ two if np.ndim(w) else w * (np.eye(len(Q)) - Q)
        first = float(np.sum(np.broadcast_to(w, n)) - np.trace(P))
        second = float(np.sum(np.broadcast_to(w**2, n)) - 2.0 * np.vdot(Q, three) + np.vdot(P, P.T))
        self._traces = _of_product(n, self.shift * first, self.shift**2 * second)

    def _rotated(self, Z: np.ndarray) -> np.ndarray:
        return Z if self._V is None else Z @ self._V

    def _back(self, A: np.ndarray) -> np.ndarray:
        return np.asarray(A if self._V is None else A @ self._V.T)

    def product(self, V: np.ndarray) -> np.ndarray:
        """Rows V (k, D) times C."""
        A = self._rotated(V)
        return self._back(A * self._e + (A @ self._S.T) @ self._S)

    def solve(self, V: np.ndarray) -> np.ndarray:
        """Rows B^-1 v, (k, D)."""
        A = self._rotated(V) * self._w
        return self._back(A - (((A @ self._S.T) @ self._half.T) @ self._half) @ self._S * self._w)

    def gram(self, Z: np.ndarray) -> np.ndarray:
        """z' B^-1 z for all pairs of rows, (..., M, M)."""
        A = self._rotated(Z)
        H = ((A * self._w) @ self._S.T) @ self._half.T
        return np.asarray((A * self._w) @ np.swapaxes(A, -1, -2) - H @ np.swapaxes(H, -1, -2))

    def root(self, Z: np.ndarray) -> np.ndarray:
        """As of `DenseCovariance`, which is made for it: only more labels than features need it."""
        return self._dense.root(Z)

    def root_adjoint(self, A: np.ndarray) -> np.ndarray:
        """As of `DenseCovariance`."""
        return self._dense.root_adjoint(A)

    @cached_property
    def _dense(self) -> DenseCovariance:
        return DenseCovariance(self.product(np.eye(self._S.shape[1])), self._ridge)

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square."""
        return self._traces


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
