"""Covariances that the prior of a head may have: flat but for a few orthonormal directions.

* flat: the same variance in every direction;
* ranked: a share of it falls along the ranked features, which predict the source label; less where the source saw no
  use;
* whitened: (C + ridge I)^-1 for the source covariance C: less along its principal directions, in which rows differ most
  whatever their class.

Each is scaled so that the score of a typical source row has variance one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg import lapack
from pro2.linalg.moments import Array

COVARIANCES = ("flat", "ranked", "whitened")


@dataclass(frozen=True, eq=False)
class Covariance:
    """Of the coefficients of a head, beyond I + sum_k (along_k - beyond) q_k q_k'.

    Attributes
    ----------
    directions : array (d, D)
        Orthonormal rows q_k.
    along : array (d,)
        Variance along each.
    beyond : float
        Variance in every direction orthogonal to them.
    dims : float
        Effective dimensions of source rows as this covariance sees them: (sum of eigenvalues)^2 / sum of their squares.
    """

    directions: Array
    along: Array
    beyond: float
    dims: float

    def spread(self, Z: Array) -> Array:
        """Rows, or coefficients, times the symmetric root."""
        xp = array_namespace(Z)
        a = math.sqrt(self.beyond)
        if not self.directions.shape[0]:
            return a * Z
        Q = self.directions
        return a * Z + ((Z @ xp.matrix_transpose(Q)) * (xp.sqrt(self.along) - a)) @ Q


class Principal(NamedTuple):
    """Largest eigenvalues of a covariance, (p,), their directions (p, D), and the mean of all other eigenvalues."""

    values: Array
    directions: Array
    rest: float

    @classmethod
    def of(cls, covariance: Array, n: int) -> Principal:
        """The n largest, or all."""
        xp = array_namespace(covariance)
        D = covariance.shape[0]
        p = min(n, D)
        values, directions = lapack.leading_eigenpairs(covariance, p)
        left = float(xp.sum(xp.linalg.diagonal(covariance)) - xp.sum(values))
        return cls(values, directions, max(0.0, left) / (D - p) if p < D else 0.0)


class Seen(NamedTuple):
    """Directions q_k as source rows with second moments `total` S see them, where S has trace one.

    inner (d, d) = q_k'S q_l, lengths (d,) = |S q_k|^2, squares = trace of S S.
    """

    inner: Array
    lengths: Array
    squares: float
    total: float

    @classmethod
    def along(cls, directions: Array, moved: Array, squares: float, total: float) -> Seen:
        """From moved (d, D) = directions @ S."""
        xp = array_namespace(moved)
        inner = lapack.product(moved, xp.matrix_transpose(directions))
        return cls(inner, xp.sum(moved * moved, axis=1), squares, total)


def ranked_covariance(components: Array, seen: Seen, share: float, decay: float) -> Covariance:
    """`share` of the variance falls as k^-decay along the k-th component, the rest is flat."""
    xp = array_namespace(components)
    k = xp.arange(1, components.shape[0] + 1, device=device(components))
    falling = xp.astype(k, components.dtype) ** -decay
    own = xp.maximum(xp.linalg.diagonal(seen.inner), 0.0 * falling)
    beyond = 1.0 - share
    return _scaled(components, beyond + share * falling / (float(xp.sum(falling * own)) or 1.0), beyond, seen)


def whitened_covariance(principal: Principal, seen: Seen, ridge: float) -> Covariance:
    """(C + ridge * mean eigenvalue * I)^-1 for the covariance C that has these principal directions."""
    values, directions, rest = principal
    p, D = directions.shape
    level = (float(array_namespace(values).sum(values)) + (D - p) * rest) / D or 1.0
    return _scaled(directions, 1.0 / (values / level + ridge), 1.0 / (rest / level + ridge), seen)


def _scaled(directions: Array, along: Array, beyond: float, seen: Seen) -> Covariance:
    """Divided by its trace with the second moments; dims = trace(covariance S)^2 / trace(covariance S covariance S)."""
    xp = array_namespace(along)
    excess = along - beyond
    size = beyond + float(xp.sum(excess * xp.linalg.diagonal(seen.inner)))
    size = size if size > 0 else 1.0
    square = beyond**2 * seen.squares + 2.0 * beyond * float(xp.sum(excess * seen.lengths))
    square += float(xp.sum(excess[:, None] * excess * seen.inner**2))
    unit = size * seen.total
    return Covariance(directions, along / unit, beyond / unit, effective_dims(square / size**2))


def effective_dims(squares: float) -> float:
    """1 / sum of the squared eigenvalues, which sum to one; at least 1."""
    return max(1.0, 1.0 / squares) if squares > 0 else 1.0
