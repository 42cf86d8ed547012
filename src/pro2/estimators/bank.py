"""Thousands to millions of small targets of one model: sites, users, cameras."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from pro2.estimators.adaptation import AveragedFit, blas, blas_threads
from pro2.estimators.base import check_labels, check_weight, check_X, naming
from pro2.estimators.files import FileMixin
from pro2.estimators.linear import unit_rows
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.linalg.arrays import Array, asarray_like, to_numpy
from pro2.linalg.labelled import Labelled
from pro2.linalg.logistic import probabilities

BATCH_NUMBERS = 1 << 20  # of the rows of one batch of targets: 8 MB


class ProbeBank(FileMixin, ClassifierMixin, BaseEstimator):
    """`ProjectAndProbe.adapt` for many targets at once: each head is the one that `adapt` gives for its rows.

    Parameters
    ----------
    model : ProjectAndProbe
        Fitted on the source, with l2 and n_features "auto".

    Attributes
    ----------
    targets_ : array (T,)
        Target ids, sorted.
    classes_ : array (K,)
        Those of the model.
    coef_, intercept_ : arrays (T, 1, D), (T, 1) for two classes, (T, K, D), (T, K) for more
        One affine map on raw embeddings per target.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.tile([0, 1], (50, 4))
    >>> X = rng.normal(size=(50, 8, 3)) + 2 * y[..., None]
    >>> model = ProjectAndProbe().fit(X[:10].reshape(-1, 3), y[:10].reshape(-1))
    >>> bank = ProbeBank(model).fit(X, y)
    >>> bank.predict(X[7], target=7).shape
    (8,)
    """

    coef_: Array
    intercept_: Array

    def __init__(self, model: Any = None):
        self.model = model

    def fit(self, X: Any, y: Any, target: Any = None, sample_weight: Any = None) -> ProbeBank:
        """Fit all heads.

        Parameters
        ----------
        X : array (T, M, D), list of T arrays (M_t, D), or flat rows (n, D)
        y : labels in the same layout
        target : array (n,) or (T,), optional
            Target id of each flat row, or of each target in the other layouts. Without it flat rows are one target; the
            other layouts number targets 0..T-1.
        sample_weight : array (n,), optional
            One weight per row, targets one after the other.
        """
        model = self.model
        if not isinstance(model, ProjectAndProbe):
            raise TypeError(f"model must be a fitted ProjectAndProbe, got {type(model).__name__}.")
        check_is_fitted(model, "source_kind_")
        if not model._is_averaged():
            raise ValueError("model must have l2='auto' and n_features='auto': for the paper's probe use `Probe`.")
        rows, labels, ids = _flatten(X, y, target)
        check_X(model, rows, reset=False)  # the width and, of a frame, the names of the model
        rows = check_X(self, rows, reset=True)
        codes = to_numpy(model._encode_target(labels, rows, "y"))
        ids = np.zeros(len(codes), dtype=int) if ids is None else check_labels(ids, len(codes), "target")
        with naming("target"):
            self.targets_, which = np.unique(ids, return_inverse=True)
        self.classes_, self.unit_rows_ = model.classes_, model.unit_rows_
        weight = check_weight(sample_weight, rows)
        K, T = len(self.classes_), len(self.targets_)
        coef, intercept = np.empty((T, K, rows.shape[1])), np.empty((T, K))
        shares = model.source_moments_.class_shares()

        all_rows = to_numpy(unit_rows(rows) if self.unit_rows_ else rows)

        def fit(some: np.ndarray) -> None:
            for at, labelled in _stacks(
                all_rows[some], codes[some], which[some], None if weight is None else weight[some]
            ):
                coef[at], intercept[at] = AveragedFit.of(model.priors_, shares, model.label_sampling, labelled).head

        with ThreadPoolExecutor(blas_threads()) as pool, blas().limit(limits=1):
            for _ in pool.map(fit, _batches(which, rows.shape[1])):  # raises what a thread raised
                pass
        if K == 2:
            coef, intercept = coef[:, 1:] - coef[:, :1], intercept[:, 1:] - intercept[:, :1]
        self.coef_, self.intercept_ = asarray_like(coef, rows), asarray_like(intercept, rows)
        return self

    def predict(self, X: Any, target: Any = None) -> np.ndarray:
        """Labels of rows X (n, D), each with the head of its `target` (one id for all rows, or one per row)."""
        f = to_numpy(self.decision_function(X, target))
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(1)]

    def predict_proba(self, X: Any, target: Any = None) -> Array:
        """Probability of each class, (n, K)."""
        f = self.decision_function(X, target)
        return probabilities(f[:, None] if f.ndim == 1 else f)

    def decision_function(self, X: Any, target: Any = None) -> Array:
        """Logits: (n,) for two classes, (n, K) for more."""
        check_is_fitted(self, "coef_")
        Z = check_X(self, X, reset=False)
        Z = unit_rows(Z) if self.unit_rows_ else Z
        xp = array_namespace(Z)
        at = asarray_like(self._find(target, Z.shape[0]), Z)
        coef, intercept = (xp.astype(asarray_like(a, Z), Z.dtype) for a in (self.coef_, self.intercept_))
        f = xp.sum(Z[:, None, :] * xp.take(coef, at, axis=0), axis=-1) + xp.take(intercept, at, axis=0)
        return f[:, 0] if f.shape[1] == 1 else f

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, target: Any = None) -> float:
        """Share of right answers on rows X (n, D) with labels y (n,)."""
        return float(accuracy_score(y, self.predict(X, target), sample_weight=sample_weight))

    def __sklearn_clone__(self) -> ProbeBank:
        """A fitted model is data, not a setting: it stays."""
        return type(self)(self.model)

    def _find(self, target: Any, n_rows: int) -> np.ndarray:
        if target is None:
            if len(self.targets_) > 1:
                raise ValueError(f"target is needed: this bank holds {len(self.targets_)} targets.")
            return np.zeros(n_rows, dtype=int)
        wanted = to_numpy(target)
        if wanted.ndim and wanted.shape != (n_rows,):
            raise ValueError(f"target has shape {wanted.shape}: one id for all rows, or one for each of {n_rows}.")
        with naming("target"):
            at = np.clip(np.searchsorted(self.targets_, wanted), 0, len(self.targets_) - 1)
        unknown = np.unique(np.atleast_1d(wanted)[np.atleast_1d(self.targets_[at] != wanted)])
        if unknown.size:
            raise ValueError(
                f"target {unknown[:5].tolist()} is not in the bank: fit it, or use the model's source head."
            )
        return np.zeros(n_rows, dtype=int) + at


def _batches(which: np.ndarray, width: int) -> list[np.ndarray]:
    """Numbers of the rows of a few targets each, so many that what follows from them stays in the caches."""
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which))
    batch = (ends - 1) * width // BATCH_NUMBERS
    return np.split(order, ends[np.flatnonzero(np.diff(batch))])


def _stacks(X: np.ndarray, y: np.ndarray, which: np.ndarray, weight: Any) -> Iterator[tuple[np.ndarray, Labelled]]:
    """(targets, their labelled rows with a leading axis) of targets that have equally many different rows."""
    # the target is part of what must be equal: a row of two targets is two rows
    names, which = np.unique(which, return_inverse=True)
    flat = Labelled.of(X, y * len(names) + which, weight)
    of_row = which[flat.number]
    order = np.argsort(of_row, kind="stable")
    size = np.bincount(of_row, minlength=len(names))
    start = np.cumsum(size) - size
    for m in np.unique(size[size > 0]):
        single = m > X.shape[1] + 1  # more rows than features: one after the other, in the features
        for at in np.flatnonzero(size == m)[:, None] if single else [np.flatnonzero(size == m)]:
            rows = order[start[at][:, None] + np.arange(m)]
            rows = rows[0] if single else rows
            number = flat.number[rows]
            yield names[at], Labelled(flat.X[rows], y[number], flat.c[rows], number, flat.first)


def _flatten(X: Any, y: Any, target: Any) -> tuple[Any, Any, np.ndarray | None]:
    """Rows, labels and target ids, whatever the layout; None where flat rows without ids are one target."""
    stacked = getattr(X, "ndim", 0) == 3
    if not stacked and not (isinstance(X, list | tuple) and len(X) and getattr(X[0], "ndim", 0) == 2):
        return X, y, None if target is None else to_numpy(target)
    labels = [to_numpy(each) for each in y]
    if len(X) != len(labels) or any(len(a) != b.size or not len(a) for a, b in zip(X, labels)):
        raise ValueError("X and y must hold equally many targets, with one label for each row and no target empty.")
    with naming("X"):
        parts = [each if is_array_api_obj(each) else np.asarray(each) for each in X]
        rows = array_namespace(*parts).concat(parts)
    ids = np.arange(len(parts)) if target is None else check_labels(target, len(parts), "target")
    return rows, np.concatenate(labels), np.repeat(ids, [len(a) for a in parts])
