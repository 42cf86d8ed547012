"""`SourceMoments`: the moments of a source with all that a user does with them: streams, clusters, files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array

from pro2 import cluster
from pro2.estimators.base import as_labels, check_weight, without_gradient
from pro2.estimators.files import FileMixin, from_bytes, load, to_bytes
from pro2.linalg.arrays import Array
from pro2.linalg.moments import Moments

Batches = Iterable[tuple[Array, Array]]


class SourceMoments(FileMixin, Moments):
    """Class weights, class means and pooled within-class scatter of a labelled source: all that a projection needs.

    Moments of shards, sites and streams add up: ``a + b`` are the moments of all rows together. They are saved to a
    file with `save` and read with `load`, and hold no row of the data.

    Attributes
    ----------
    classes : tuple of str or int
        Labels in sorted order, length K.
    weight : array (K,)
        Sum of sample weights of each class (row counts when unweighted).
    mean : array (K, D)
        Class means.
    scatter : array (D, D), or (n, D) with n < D
        Sum over rows of (x - class mean)(x - class mean)'. Of fewer rows than features a factor F of it, F'F. Always
        float64, as are the others.

    Examples
    --------
    >>> X, y = np.arange(12.0).reshape(6, 2), np.array([0, 0, 1, 1, 0, 1])
    >>> a, b = (SourceMoments.from_arrays(X[i], y[i]) for i in (slice(0, 3), slice(3, 6)))
    >>> whole = SourceMoments.from_arrays(X, y)
    >>> bool(np.allclose((a + b).covariance(), whole.covariance()))
    True
    """

    @classmethod
    def from_arrays(cls, X: Any, y: Any, sample_weight: Any = None, classes: Sequence[Any] | None = None) -> Self:
        """Moments of rows X (N, D) with labels y (N,).

        Parameters
        ----------
        X : array (N, D)
            Finite numbers; arrays of any Array-API library stay where they are.
        y : array (N,)
            Labels of one type, none missing.
        sample_weight : array (N,), optional
            Finite, not negative, not all zero.
        classes : sequence of labels, optional
            Which classes exist, in this order; by default those of `y`, sorted.
        """
        X = without_gradient(_numbers(X, "X"))
        weight = check_weight(sample_weight, X) if X.ndim == 2 else None  # other arrays are refused below
        return super().from_arrays(X, as_labels(y), weight, classes)

    @classmethod
    def from_batches(cls, batches: Batches, classes: Sequence[Any] | None = None) -> Self:
        """Sum of the moments of (X, y) batches: a source larger than memory, one batch at a time."""
        return cls._sum((cls.from_arrays(X, y, classes=classes) for X, y in batches), "batches is empty")

    @classmethod
    def from_ray(
        cls, dataset: Any, features: str = "embedding", label: str = "y", classes: Sequence[Any] | None = None,
        fan_in: int = 8,
    ) -> Self:  # fmt: skip
        """Moments of a Ray dataset with a vector column `features` and a column `label`, wherever its blocks lie.

        Each block is reduced where it is; what travels is (K + D) x D numbers per block, merged `fan_in` at a time.
        A block whose worker or node dies is reduced again elsewhere.
        """

        def of_block(batch: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
            X = batch[features]
            X = np.stack(list(X)) if X.dtype == object else X
            return {"moments": [to_bytes(cls.from_arrays(X, batch[label], classes=classes))] if len(X) else []}

        def merged(batch: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
            parts = [from_bytes(bytes(each)) for each in batch["moments"]]
            return {"moments": [to_bytes(cls._sum(parts, "no moments"))] if parts else []}

        ray = cluster.join()
        with cluster.quiet(ray), cluster.failures(ray, "take the moments again"):
            level = dataset.map_batches(of_block, batch_format="numpy", batch_size=None).materialize()
            while (n := level.count()) > fan_in:
                level = level.repartition(-(-n // fan_in)).map_batches(merged, batch_format="numpy", batch_size=None)
                level = level.materialize()
            parts = [from_bytes(bytes(row["moments"])) for row in level.iter_rows()]
        return cls._sum(parts, "dataset has no rows")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote, as NumPy arrays; ValueError for anything else. Nothing in a file is run."""
        found = load(path)
        if not isinstance(found, cls):
            raise ValueError(f"{path} holds a {type(found).__name__}, not source moments; open it with pro2.load")
        return found

    @classmethod
    def _sum(cls, parts: Iterable[Self], empty: str) -> Self:
        parts = iter(parts)
        if (first := next(parts, None)) is None:
            raise ValueError(f"{empty}: there is no row to take moments of.")
        return sum(parts, first)


def _numbers(values: Any, name: str) -> Array:
    """An array of real numbers; lists and frames are converted, arrays stay what and where they are."""
    if is_array_api_obj(values) and not is_numpy_array(values):
        return values
    try:
        array = np.asarray(values)
        array = array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError):
        raise TypeError(f"{name} must hold numbers, in rows of one length.") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got an array of type {array.dtype}.")
    return array
