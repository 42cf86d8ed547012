"""Second moments C of source rows and the inverse of B = C + r I: dense, or in row space where rows are fewer.

The prior needs few things of C: traces, products with some rows, solutions of B x = z and the quadratic form z' B^-1 z.
With n rows R (n, D), C = R'R and n < D, all of them follow from the n x n matrix R R' (Woodbury), so that a source of
1,000 rows and 8,192 features never forms a D x D matrix.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

MIN_RIDGE = 1e-12  # relative to the largest eigenvalue: below, rounding decides whether B is positive definite


class DenseCovariance:
    """C as a matrix (D, D), and B = C + ridge * (mean of the diagonal) * I by its Cholesky factor."""

    def __init__(self, C: np.ndarray, ridge: float):
        self.diagonal = np.diagonal(C).copy()
        self.trace = float(self.diagonal.sum())
        self.squares = float(np.vdot(C, C))  # trace of C C
        self._C = C
        B = C.copy()
        self.shift = _shift(ridge, self.trace, math.sqrt(self.squares), len(C))
        B[np.diag_indices_from(B)] += self.shift
        self._half = _inverse_triangle(np.linalg.cholesky(B))

    def product(self, V: np.ndarray) -> np.ndarray:
        """Rows V (k, D) times C."""
        return np.asarray(V @ self._C)

    def solve(self, V: np.ndarray) -> np.ndarray:
        """Rows B^-1 v, (k, D)."""
        return self.root_adjoint(self.root(V))

    def root(self, Z: np.ndarray) -> np.ndarray:
        """Rows L^-1 z for B = L L': their inner products are z' B^-1 z."""
        return np.asarray(Z @ self._half.T)

    def root_adjoint(self, A: np.ndarray) -> np.ndarray:
        """Rows L'^-1 a: for a linear score a on rows `root(Z)`, the same score on rows Z."""
        return np.asarray(A @ self._half)

    def gram(self, Z: np.ndarray) -> np.ndarray:
        """z' B^-1 z for all pairs of rows, (..., M, M)."""
        A = self.root(Z)
        return np.asarray(A @ np.swapaxes(A, -1, -2))

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square, from those of B^-1 and B^-2."""
        return _traces(self._half, self.shift)


class RowCovariance:
    """C = R'R for few rows R (n, D), and B = C + ridge * (mean of the diagonal) * I by the factor of R R' + shift I."""

    def __init__(self, R: np.ndarray, ridge: float):
        self.diagonal = np.einsum("nd,nd->d", R, R)
        self.trace = float(self.diagonal.sum())
        G = R @ R.T
        self.squares = float(np.vdot(G, G))
        self._R, self._ridge = R, ridge
        self.shift = _shift(ridge, self.trace, math.sqrt(self.squares), R.shape[1])
        G[np.diag_indices_from(G)] += self.shift
        self._half = _inverse_triangle(np.linalg.cholesky(G))

    def product(self, V: np.ndarray) -> np.ndarray:
        """Rows V (k, D) times C."""
        return np.asarray((V @ self._R.T) @ self._R)

    def solve(self, V: np.ndarray) -> np.ndarray:
        """Rows B^-1 v, (k, D)."""
        inner = ((V @ self._R.T) @ self._half.T) @ self._half
        return np.asarray((V - inner @ self._R) / self.shift)

    def gram(self, Z: np.ndarray) -> np.ndarray:
        """z' B^-1 z for all pairs of rows, (..., M, M)."""
        H = (Z @ self._R.T) @ self._half.T
        return np.asarray((Z @ np.swapaxes(Z, -1, -2) - H @ np.swapaxes(H, -1, -2)) / self.shift)

    def root(self, Z: np.ndarray) -> np.ndarray:
        """As of `DenseCovariance`, which is made for it: only more labels than features need it."""
        return self._dense.root(Z)

    def root_adjoint(self, A: np.ndarray) -> np.ndarray:
        """As of `DenseCovariance`."""
        return self._dense.root_adjoint(A)

    @cached_property
    def _dense(self) -> DenseCovariance:
        return DenseCovariance(self._R.T @ self._R, self._ridge)

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square."""
        return _traces(self._half, self.shift)


class SharedCovariance:
    """C = T + g d d' for a T whose eigenvectors many labels share, and B = C + ridge * (mean of the diagonal) * I.

    The second moments of all labels of the same rows differ by rank one (Sherman & Morrison 1950), so that a label
    costs no factorisation of its own.
    """

    def __init__(self, values: np.ndarray, vectors: np.ndarray, d: np.ndarray, g: float, ridge: float):
        self._e, self._V, self._d, self._g, self._ridge = values, vectors, d, g, ridge
        self._f = vectors.T @ d
        f2 = float(self._f @ self._f)
        self.diagonal = (vectors**2) @ values + g * d * d
        self.trace = float(values.sum()) + g * f2
        self.squares = float(values @ values + 2.0 * g * (self._f**2 @ values) + (g * f2) ** 2)
        self.shift = _shift(ridge, self.trace, math.sqrt(self.squares), len(d))
        self._w = 1.0 / (values + self.shift)
        self._u = self._w * self._f
        self._k = g / (1.0 + g * float(self._f @ self._u))

    def product(self, V: np.ndarray) -> np.ndarray:
        """Rows V (k, D) times C."""
        return np.asarray(((V @ self._V) * self._e) @ self._V.T + self._g * (V @ self._d)[..., None] * self._d)

    def solve(self, V: np.ndarray) -> np.ndarray:
        """Rows B^-1 v, (k, D)."""
        A = V @ self._V
        return np.asarray((A * self._w - self._k * (A @ self._u)[..., None] * self._u) @ self._V.T)

    def gram(self, Z: np.ndarray) -> np.ndarray:
        """z' B^-1 z for all pairs of rows, (..., M, M)."""
        A = Z @ self._V
        along = A @ self._u
        return np.asarray((A * self._w) @ np.swapaxes(A, -1, -2) - self._k * along[..., :, None] * along[..., None, :])

    def root(self, Z: np.ndarray) -> np.ndarray:
        """As of `DenseCovariance`, which is made for it: only more labels than features need it."""
        return self._dense.root(Z)

    def root_adjoint(self, A: np.ndarray) -> np.ndarray:
        """As of `DenseCovariance`."""
        return self._dense.root_adjoint(A)

    @cached_property
    def _dense(self) -> DenseCovariance:
        C = (self._V * self._e) @ self._V.T + self._g * np.outer(self._d, self._d)
        return DenseCovariance(C, self._ridge)

    def inverse_traces(self) -> tuple[float, float]:
        """Traces of B^-1 C and of its square."""
        u2, n, r = float(self._u @ self._u), len(self._e), self.shift
        first = r * (float(self._w.sum()) - self._k * u2)
        second = float(self._w @ self._w) - 2.0 * self._k * float(self._u**2 @ self._w) + (self._k * u2) ** 2
        return max(n - first, 0.0), max(n - 2.0 * first + r * r * second, 0.0)


Covariance = DenseCovariance | RowCovariance | SharedCovariance


def _shift(ridge: float, trace: float, size: float, width: int) -> float:
    """Multiple of the identity that is added; one where the source never moves."""
    return max(ridge * trace / width, MIN_RIDGE * size) or 1.0


def _traces(half: np.ndarray, shift: float) -> tuple[float, float]:
    """Sums of e / (e + shift) and of its square over the eigenvalues e, where half' half has 1 / (e + shift).

    e / (e + shift) = 1 - shift / (e + shift), so the traces of the inverse and of its square are enough; eigenvalues
    that are zero, as those beyond the row space are, add nothing.
    """
    n = len(half)
    inverse = half.T @ half
    first = shift * float(np.trace(inverse))
    second = shift**2 * float(np.vdot(inverse, inverse))
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
