"""Rows in the coordinates in which `pro2.linalg.mode` solves: orthogonal under their weights, from the smaller side."""

from __future__ import annotations

from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg.moments import Array

GRADED = 1e-5  # ratio of the sizes of features from which on their squares share too few digits
FORGET = 64.0  # times rounding: what a direction must have of the largest energy to count as one


class Rows(NamedTuple):
    """Rows A (..., M, p) in orthogonal coordinates: phi' diag(c) phi = diag(energy).

    Attributes
    ----------
    phi : array (..., M, r)
    energy : array (..., r)
    free : array (r,)
        1 for the coordinate of the intercept, which has no prior, 0 for the others.
    weight : array (..., M)
    turn : array (..., p, r) or (..., M, r)
        Coefficients of A are turn B, or A' turn B where there are more features than rows.
    A : array (..., M, p)
        Centred if there is an intercept.
    mean : array (..., 1, p) or None
        Weighted mean of the rows; None without an intercept.
    """

    phi: Array
    energy: Array
    free: Array
    weight: Array
    turn: Array
    A: Array
    mean: Array | None

    def coefficients(self, B: Array) -> tuple[Array, Array | None]:
        """Coefficients (..., p, n) on A and intercepts (..., n), if free, of coordinates B (..., r, n)."""
        xp = array_namespace(B)
        if self.mean is None:
            return self._on_features(B), None
        coef = self._on_features(B[..., :-1, :])
        return coef, B[..., -1, :] - xp.squeeze(self.mean @ coef, axis=-2)

    def _on_features(self, B: Array) -> Array:
        inner = self.turn @ B
        if self.turn.shape[-2] == self.A.shape[-1]:
            return inner
        return array_namespace(B).matrix_transpose(self.A) @ inner


def orthogonal(A: Array, c: Array, *, intercept: bool = False, as_is: bool = False) -> Rows:
    """Coordinates of rows A (..., M, p) with weights c (..., M).

    `as_is` keeps the features, about their mean, for coordinates: enough where steps are factorised.
    """
    xp = array_namespace(A)
    mean, noise = None, 0.0 * xp.sum(c, axis=-1, keepdims=True)
    if intercept:
        mean = (c[..., None, :] @ A) / xp.sum(c, axis=-1)[..., None, None]
        A = A - mean
        # what rounding leaves of equal rows about their mean is no direction
        noise = xp.sum(c, axis=-1, keepdims=True) * xp.sum((FORGET * _eps(xp, A) * mean) ** 2, axis=-1)
    M, p = A.shape[-2:]
    if as_is:
        turn, phi = xp.eye(p, dtype=A.dtype, device=device(A)), A
    elif _graded(A, c):
        turn = _singular(A * xp.sqrt(c)[..., None], noise)
        phi = A @ turn
    elif p <= M:
        turn = _leading(xp.matrix_transpose(A * c[..., None]) @ A, noise, inverse=False)
        phi = A @ turn
    else:
        S, gram = xp.sqrt(c)[..., None], A @ xp.matrix_transpose(A)
        turn = S * _leading(S * gram * xp.matrix_transpose(S), noise, inverse=True)
        phi = gram @ turn
    energy, r = xp.sum(c[..., None] * phi * phi, axis=-2), phi.shape[-1]
    free = xp.zeros(r, dtype=phi.dtype, device=device(phi))
    if intercept:
        one = xp.ones_like(phi[..., :1])
        phi = xp.concat([phi, one], axis=-1)
        energy = xp.concat([energy, xp.sum(c, axis=-1, keepdims=True) + 0.0 * energy[..., :1]], axis=-1)
        free = xp.concat([free, xp.ones(1, dtype=phi.dtype, device=device(phi))])
    return Rows(phi, energy, free, c, turn, A, mean)


def _graded(A: Array, c: Array) -> bool:
    """Whether features differ so much in size that products of the largest drown the smallest in rounding."""
    xp = array_namespace(A)
    size = xp.sum(c[..., None] * A * A, axis=-2)
    largest = xp.max(size, axis=-1, keepdims=True)
    smallest = xp.min(xp.where(size > 0, size, largest), axis=-1, keepdims=True)
    return bool(xp.any(smallest < GRADED**2 * largest))


def _singular(A: Array, noise: Array) -> Array:
    """Right singular vectors (..., p, r) of A with energy above that of noise: no product is formed."""
    xp = array_namespace(A)
    _, values, rows = xp.linalg.svd(A, full_matrices=False)
    floor = FORGET * _eps(xp, A) * xp.max(values, axis=-1, keepdims=True)
    there = xp.astype(values > xp.maximum(floor, xp.sqrt(noise)), A.dtype)
    return xp.matrix_transpose(rows * there[..., None])


def _leading(G: Array, noise: Array, *, inverse: bool) -> Array:
    """Eigenvectors of G with energy above that of noise (..., 1).

    They are scaled by its inverse root, so that A' of them has unit length, if asked for.
    """
    xp = array_namespace(G)
    values, vectors = xp.linalg.eigh(G)
    floor = FORGET * G.shape[-1] * _eps(xp, G) * xp.max(values, axis=-1, keepdims=True)
    there = values > xp.maximum(floor, noise)
    scale = 1.0 / xp.sqrt(xp.where(there, values, xp.ones_like(values))) if inverse else xp.ones_like(values)
    vectors = vectors * xp.where(there, scale, xp.zeros_like(scale))[..., None, :]
    # directions without energy are zero columns; where all problems lack them they need not be carried along
    kept = int(xp.max(xp.sum(xp.astype(there, xp.int64), axis=-1)))
    return vectors[..., vectors.shape[-1] - max(kept, 1) :]


def _eps(xp: Any, like: Array) -> float:
    return float(xp.finfo(like.dtype).eps)
