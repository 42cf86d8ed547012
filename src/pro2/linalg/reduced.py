"""A covariance in coordinates in which shifted systems and eigenvalues cost no more than a product.

T = Q H Q' with H tridiagonal (Golub & Van Loan 2013, section 8.3): one cubic step serves every ridge, every class, the
ranked directions and the principal ones. On other devices than the host Q are eigenvectors and H is diagonal.

Rows are vectors: x in the space of T, z = Q'x in the coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from pro2.linalg import lapack
from pro2.linalg.moments import Array


class Reduced(NamedTuple):
    """H, and how to get there and back.

    Attributes
    ----------
    diagonal : array (D,)
    beside : array (D - 1,) or None
        Off the diagonal; None where it is zero.
    turn : callable
        turn(rows, back) of rows (n, D): from the space of T, or back to it.
    """

    diagonal: Array
    beside: Any
    turn: Callable[[Array, bool], Array]

    @classmethod
    def of(cls, T: Array) -> Reduced:
        """Of a symmetric T (D, D) that is not negative."""
        return cls(*lapack.reduced(T)) if lapack.serves(T) else cls.exact(T)

    @classmethod
    def exact(cls, T: Array) -> Reduced:
        """In eigenvectors, eigenvalues rising."""
        xp = array_namespace(T)
        values, vectors = xp.linalg.eigh(T)
        return cls(values, None, lambda rows, back: rows @ (xp.matrix_transpose(vectors) if back else vectors))

    def to(self, rows: Array) -> Array:
        return self.turn(rows, False)

    def back(self, rows: Array) -> Array:
        return self.turn(rows, True)

    def times(self, rows: Array) -> Array:
        """rows H."""
        if self.beside is None:
            return rows * self.diagonal
        made = rows * self.diagonal
        made[:, :-1] += rows[:, 1:] * self.beside
        made[:, 1:] += rows[:, :-1] * self.beside
        return made

    def solver(self, level: float) -> Callable[[Array], Array]:
        """rows -> rows (H + level I)^-1, level > 0."""
        if self.beside is None:
            return lambda rows: rows / (self.diagonal + level)
        return lapack.tridiagonal_solver(self.diagonal + level, self.beside)

    def leading(self, n: int) -> tuple[Array, Array]:
        """The n largest eigenvalues, largest first, and their vectors (n, D), orthonormal rows of the coordinates."""
        xp = array_namespace(self.diagonal)
        values, rows = lapack.leading_tridiagonal(self.diagonal, self.beside, n) if self.beside is not None else (
            self.diagonal[-n:], xp.eye(self.diagonal.shape[0])[-n:, :]
        )  # fmt: skip
        return xp.flip(xp.maximum(values, 0.0 * values)), xp.flip(rows, axis=0)
