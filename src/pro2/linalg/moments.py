"""One-pass, mergeable statistics of a labelled source: all that the closed-form Project step needs.

Sums over rows are kept per class and centred, so blocks, shards and sites combine without cancellation
(the pairwise update of Chan, Golub & LeVeque, 1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from pro2.linalg.arrays import Array, encode, to_numpy

BLOCK_BYTES = 128 << 20  # rows are centred in blocks: one copy of this size, whatever the length of the source
CACHE_BYTES = 256 << 10  # of which pieces of a block pass through the second-level cache
SAMPLE = 1024  # rows that give the shift of a block
TINY = 1e-30  # a weight below is none in float32


@dataclass(frozen=True, eq=False)
class Moments:
    """Class weights, class means and pooled within-class scatter of a labelled set of rows; all float64."""

    classes: tuple[Any, ...]  # K labels in sorted order
    weight: Array  # (K,) sums of sample weights, row counts when unweighted
    mean: Array  # (K, D)
    scatter: Array  # (D, D) sum over rows of (x - class mean)(x - class mean)'; of fewer rows a factor F (n, D), F'F

    @classmethod
    def from_arrays(
        cls, X: Array, y: Array, sample_weight: Array | None = None, classes: Sequence[Any] | None = None
    ) -> Self:
        """Moments of rows X (N, D) with labels y (N,); `classes` fixes which classes exist and their order."""
        xp = array_namespace(X)
        _check_rows(X, y)
        weight = None if sample_weight is None else xp.asarray(sample_weight, dtype=xp.float64, device=device(X))
        labels, codes = encode(y, classes)
        return cls.from_codes(X, xp.asarray(codes, device=device(X)), weight, labels)

    @classmethod
    def from_codes(cls, X: Array, codes: Array, weight: Array | None, classes: tuple[Any, ...]) -> Self:
        """Moments of checked rows, whose labels are codes of `classes`."""
        xp = array_namespace(X)
        rows = max(1024, BLOCK_BYTES // (4 * X.shape[1]))
        total = None
        for start in range(0, X.shape[0], rows):
            part = slice(start, min(start + rows, X.shape[0]))
            block = cls(classes, *_block_moments(xp, X, codes, weight, len(classes), part))
            total = block if total is None else total + block
        assert total is not None
        with np.errstate(over="ignore"):
            if not bool(xp.all(xp.isfinite(total.between_factor() ** 2))):
                raise ValueError(_why_not_finite(xp, X, 0))
        return total

    @property
    def width(self) -> int:
        """Number of features D."""
        return int(self.mean.shape[1])

    @property
    def total_weight(self) -> float:
        return float(array_namespace(self.weight).sum(self.weight))

    def class_shares(self) -> np.ndarray:
        """How common classes are, (K,): one without rows is taken to be as common as the others are on average."""
        weight = to_numpy(self.weight)
        weight = np.where(weight > 0, weight, weight[weight > 0].mean())
        return np.asarray(weight / weight.sum())

    def total_mean(self) -> Array:
        """Mean over all rows, (D,)."""
        return (self.weight / self.total_weight) @ self.mean

    def between_factor(self) -> Array:
        """C (D, K) with C C' = between-class covariance: columns sqrt(share of class) (class mean - mean)."""
        xp = array_namespace(self.mean)
        share = xp.sqrt(self.weight / self.total_weight)
        return xp.matrix_transpose((self.mean - self.total_mean()) * share[:, None])

    @property
    def factor(self) -> Array | None:
        """F (n, D) with scatter F'F, of a source with fewer rows than features: no D x D matrix is formed for it."""
        return self.scatter if self.scatter.shape[0] < self.width else None

    def within_covariance(self) -> Array:
        """Pooled within-class covariance, (D, D), divided by the total weight."""
        return self._dense() / self.total_weight

    def _dense(self) -> Array:
        F = self.factor
        return self.scatter if F is None else array_namespace(F).matrix_transpose(F) @ F

    def covariance(self) -> Array:
        """Total covariance, (D, D): within plus between classes."""
        C = self.between_factor()
        cov = self.within_covariance()
        cov += C @ array_namespace(C).matrix_transpose(C)
        return cov

    def feature_variance(self) -> Array:
        """Variance of each feature over all rows, (D,)."""
        xp, C, F = array_namespace(self.mean), self.between_factor(), self.factor
        if F is None:
            within = xp.linalg.diagonal(self.scatter)
        else:  # the squares of a wide factor would be another copy of the rows
            within = np.einsum("nd,nd->d", F, F) if is_numpy_array(F) else xp.sum(F * F, axis=0)
        return within / self.total_weight + xp.sum(C * C, axis=1)

    def scaled(self, scale: Array) -> Self:
        """Moments of the rows divided by `scale` (a scalar or (D,)), without touching a row."""
        scale = scale + 0.0 * self.mean[0, :]
        scatter = self.scatter / scale[None, :]
        if self.factor is None:
            scatter = scatter / scale[:, None]  # one after the other: their product may underflow
        return type(self)(self.classes, self.weight, self.mean / scale, scatter)

    def asarray_like(self, like: Array) -> Self:
        """The same moments in the library and on the device of an array."""
        mine, xp = self.mean, array_namespace(like)
        if array_namespace(mine) is xp and device(mine) == device(like):
            return self
        arrays = (xp.asarray(to_numpy(v), device=device(like)) for v in (self.weight, mine, self.scatter))
        return type(self)(self.classes, *arrays)

    def with_means_filled(self) -> Self:
        """The same moments with classes that have no rows at the mean of all rows: nothing is known of them."""
        xp = array_namespace(self.mean)
        mean = xp.where((self.weight > 0)[:, None], self.mean, self.total_mean())
        return type(self)(self.classes, self.weight, mean, self.scatter)

    def merge(self, other: Moments) -> Self:
        """Moments of both sets of rows together; classes may differ."""
        if not isinstance(other, Moments):
            raise TypeError(f"other must be moments, got {type(other).__name__}.")
        if other.width != self.width:
            raise ValueError(f"other has {other.width} features, this has {self.width}: not one embedding.")
        if self.classes != other.classes:
            try:
                classes = tuple(sorted({*self.classes, *other.classes}))
            except TypeError:
                kinds = sorted({type(label).__name__ for label in (*self.classes, *other.classes)})
                raise TypeError(f"y has labels of types {kinds}: convert them to one, for instance to text.") from None
            return self.over(classes).merge(other.over(classes))
        other = other.asarray_like(self.mean)
        xp = array_namespace(self.mean)
        weight = self.weight + other.weight
        safe = xp.where(weight > 0, weight, xp.ones_like(weight))
        step = other.mean - self.mean
        mean = self.mean + step * (other.weight / safe)[:, None]
        # an empty class contributes nothing: its factor is 0 whatever its (undefined) mean
        lift = step * xp.sqrt(self.weight * (other.weight / safe))[:, None]
        n = self.scatter.shape[0] + other.scatter.shape[0] + lift.shape[0]
        if self.factor is not None and other.factor is not None and n < self.width:
            scatter = xp.concat([self.scatter, other.scatter, lift])
        else:
            scatter = self._dense() + other._dense()
            scatter += xp.matrix_transpose(lift) @ lift
        return type(self)(self.classes, weight, mean, scatter)

    __add__ = merge

    def over(self, classes: tuple[Any, ...]) -> Self:
        """The same moments over a larger list of classes; new ones are empty."""
        xp = array_namespace(self.mean)
        zero_w, zero_m = 0.0 * self.weight[:1], 0.0 * self.mean[:1, :]
        at = {c: i for i, c in enumerate(self.classes)}
        weight = [self.weight[at[c] : at[c] + 1] if c in at else zero_w for c in classes]
        mean = [self.mean[at[c] : at[c] + 1, :] if c in at else zero_m for c in classes]
        return type(self)(classes, xp.concat(weight), xp.concat(mean), self.scatter)


def _check_rows(X: Array, y: Array) -> None:
    if X.ndim != 2:
        raise ValueError(f"X must be 2-D (rows, features), got shape {tuple(X.shape)}.")
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"X is empty: shape {tuple(X.shape)}. Moments need at least one row and one feature.")
    shape = tuple(y.shape) if hasattr(y, "shape") else (len(y),)
    if shape != (X.shape[0],):
        raise ValueError(f"y has shape {shape} but X has {X.shape[0]} rows: one label is needed per row.")


def _block_moments(
    xp: Any, X: Array, codes: Array, weight: Array | None, n_classes: int, part: slice
) -> tuple[Array, Array, Array]:
    """Class weights, class means and scatter of some rows; products in the precision of X where that is enough."""
    rows, weight = X[part, :], None if weight is None else weight[part]
    # rows that cannot fill the space leave directions in which nothing moves: rounding must not fill them
    few = X.shape[0] < X.shape[1]
    wide = rows.shape[0] <= rows.shape[1] or (weight is not None and bool(xp.any((weight > 0) & (weight < TINY))))
    # the sums show every row that is not finite, at a price that does not grow with the rows
    single = not wide and (X.dtype == xp.float32 or "float16" in str(X.dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        for dtype in (xp.float32, xp.float64) if single else (xp.float64,):
            sums = _sums(xp, rows, dtype, codes[part], weight, n_classes, few)
            if all(bool(xp.all(xp.isfinite(each))) for each in sums):
                return sums
    raise ValueError(_why_not_finite(xp, rows, part.start))


def _why_not_finite(xp: Any, rows: Array, start: int) -> str:
    bad = start + to_numpy(xp.any(~xp.isfinite(rows), axis=1)).nonzero()[0]
    if len(bad):
        return f"X has NaN or infinite values, first in row {bad[0]}: drop or repair such rows."
    largest = float(xp.max(xp.abs(rows)))
    return f"X has values up to {largest:.3g}: their weighted squares overflow. Divide X by a constant first."


def _sums(
    xp: Any, X: Array, dtype: Any, codes: Array, weight: Array | None, n_classes: int, few: bool
) -> tuple[Array, Array, Array]:
    """Products in a precision, sums in float64; of `few` rows these themselves instead of their products.

    Rows are shifted by a reference of their class, and what the reference missed is taken out afterwards: with T the
    class sums of the shifted rows, scatter = C'C - sum_k T_k T_k' / n_k. The reference is the mean of a sample, so the
    correction is a small share of the scatter and cancels nothing, and the rows are read twice, not three times.
    """
    member = xp.astype(codes[:, None] == xp.arange(n_classes, device=device(X))[None, :], dtype)
    member = member if weight is None else member * xp.astype(weight, dtype)[:, None]
    total = xp.sum(xp.astype(member, xp.float64), axis=0)
    safe = xp.where(total > 0, total, xp.ones_like(total))
    reference = _reference(xp, X, member)
    C = _shifted(xp, X, reference, codes)
    sums = xp.astype(xp.matrix_transpose(member) @ C, xp.float64)
    mean = xp.where(total[:, None] > 0, xp.astype(reference, xp.float64) + sums / safe[:, None], 0.0 * sums)
    if few:
        C = _shifted(xp, C, sums / safe[:, None], codes, out=C)
    C = C if weight is None else C * xp.sqrt(xp.sum(member, axis=1))[:, None]
    if few:
        return total, mean, C
    scatter = xp.astype(xp.matrix_transpose(C) @ C, xp.float64)
    lift = sums / xp.sqrt(safe)[:, None]
    rounding = float(xp.finfo(dtype).eps) * (8.0 + math.sqrt(X.shape[0])) * xp.linalg.diagonal(scatter)
    scatter -= xp.matrix_transpose(lift) @ lift
    moves = xp.linalg.diagonal(scatter) > rounding
    if not bool(xp.all(moves)):  # rounding is all that is left of features that are constant within the classes
        kept = xp.astype(moves, xp.float64)
        scatter = scatter * kept[:, None] * kept[None, :]
    return total, mean, scatter


def _reference(xp: Any, X: Array, member: Array) -> Array:
    """(K, D) in the precision of `member`: class means of about SAMPLE rows spread over those with a weight."""
    (weighted,) = xp.nonzero(xp.sum(member, axis=1) > 0)
    if not weighted.shape[0]:
        return xp.zeros((member.shape[1], X.shape[1]), dtype=member.dtype, device=device(X))
    spread = weighted[:: max(1, weighted.shape[0] // SAMPLE)]
    some, rows = xp.take(member, spread, axis=0), xp.astype(xp.take(X, spread, axis=0), member.dtype)
    count = xp.sum(some, axis=0)
    overall = xp.sum(some, axis=1)[None, :] @ rows / xp.sum(count)
    mean = xp.matrix_transpose(some) @ rows / xp.where(count > 0, count, xp.ones_like(count))[:, None]
    return xp.where((count > 0)[:, None], mean, overall)


def _shifted(xp: Any, X: Array, reference: Array, codes: Array, out: Array | None = None) -> Array:
    """X - reference[codes]; on the host a piece at a time, so that the gathered references stay in the cache."""
    if not is_numpy_array(X):
        return xp.astype(X, reference.dtype, copy=False) - xp.take(reference, codes, axis=0)
    C = np.empty(X.shape, reference.dtype) if out is None else out
    rows = max(1, CACHE_BYTES // (X.itemsize * X.shape[1]))
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        np.subtract(X[part], reference[codes[part]], out=C[part])
    return C
