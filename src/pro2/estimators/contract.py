"""The contract of every method here: learn from a large source, then adapt to a small target."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pro2.estimators.linear import AffineMixin, LinearClassifier
from pro2.estimators.validation import as_labels, check_weight, check_X, naming, table_rows
from pro2.linalg.arrays import Array, asarray_like, encode, is_missing, to_numpy

NEW_CLASS = "add labelled rows of them to the source, or drop them from the target"


class SourceTargetClassifier(AffineMixin, BaseEstimator):
    """fit(source) -> self, adapt(target) -> a new `LinearClassifier`; or both in one `fit` with `sample_domain`.

    A subclass writes two methods on checked arrays: `_fit_source(X, codes, weight)`, which returns the source head as
    (coef, intercept), and `_adapt(X, codes, weight, **extra)`, which returns a `LinearClassifier`.
    """

    _advice_on_new_classes = NEW_CLASS

    def fit(self, X: Any, y: Any, sample_domain: Any = None, sample_weight: Any = None) -> SourceTargetClassifier:
        """Learn from source rows; with `sample_domain`, adapt to the target rows too.

        Parameters
        ----------
        X : array (n, D)
        y : array (n,)
            Labels, any type.
        sample_domain : array (n,), optional
            Positive = source row, negative = labelled target row (as in skada). None: every row is source, and
            `predict` uses the source head.
        sample_weight : array (n,), optional
        """
        X, y = table_rows(X, y)
        X = check_X(self, X, reset=True)
        y = check_labels(y, X.shape[0])
        weight = check_weight(sample_weight, X)
        source, target = _split_domains(sample_domain, X.shape[0], weight)
        self.classes_ = check_classes(y[source])
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only {self.classes_.tolist()}: a source needs rows of at least two.")
        _, codes = encode(y[source], self.classes_.tolist())
        Xs = X if len(source) == X.shape[0] else take_rows(X, source)
        coef, intercept = self._fit_source(Xs, asarray_like(codes, X), take_rows(weight, source))
        self._set_head(coef, intercept)
        if target is None:
            return self
        adapted = self.adapt(take_rows(X, target), y[target], sample_weight=take_rows(weight, target))
        self.coef_, self.intercept_ = adapted.coef_, adapted.intercept_
        self._inputs, self._report = adapted._inputs, adapted._report
        return self

    def adapt(self, X_target: Any, y_target: Any, sample_weight: Any = None, **extra: Any) -> LinearClassifier:
        """Probe with labelled target rows; the fitted source model is not changed."""
        check_is_fitted(self, "classes_")
        X = asarray_like(check_X(self, X_target, reset=False, name="X_target"), self.coef_)
        codes = self._encode_target(y_target, X, "y_target", self._advice_on_new_classes)
        return self._named(self._adapt(X, codes, check_weight(sample_weight, X), **extra))

    def _encode_target(self, y: Any, X: Array, name: str, advice: str = NEW_CLASS) -> Array:
        y = check_labels(y, X.shape[0], name)
        unknown = sorted(set(y.tolist()) - set(self.classes_.tolist()), key=str)
        if unknown:
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            known = self.classes_.tolist()
            raise ValueError(
                f"{name} has classes {unknown[:5]}{more} that the source does not have ({known[:10]}): "
                f"{_spelling_mismatch(unknown, known) or advice}."
            )
        return asarray_like(encode(y, self.classes_.tolist())[1], X)

    def _set_head(self, coef: Array, intercept: Array) -> None:
        """The source head as the classifier of this object."""
        head = LinearClassifier.from_arrays(self.classes_, coef, intercept)
        self.coef_, self.intercept_ = head.coef_, head.intercept_
        self._inputs = self._report = None  # those of an earlier adaptation

    def _fit_source(self, X: Array, codes: Array, weight: Array | None) -> tuple[Array, Array]:
        raise NotImplementedError

    def _adapt(self, X: Array, codes: Array, weight: Array | None, **extra: Any) -> LinearClassifier:
        raise NotImplementedError


def _spelling_mismatch(unknown: list[Any], known: list[Any]) -> str | None:
    """What to correct where labels are the source's classes in another type or spelling; None where they are new."""
    label, is_text = unknown[0], isinstance(known[0], str)
    if isinstance(label, str) != is_text:
        kinds = "a number but the classes are text" if is_text else "text but the classes are numbers"
        return f"{label!r} is {kinds}; convert the labels to the type of the source's classes"
    if not is_text:
        fraction = isinstance(label, float) and not label.is_integer()
        return f"{label!r} is a fraction; labels are classes, not scores or probabilities" if fraction else None
    spelled = {name.strip().casefold(): name for name in known}
    for text in unknown:
        if text.strip().casefold() in spelled:
            return f"{text!r} differs from {spelled[text.strip().casefold()]!r} in spaces or capital letters only"
    return None


def check_labels(y: Any, n_rows: int, name: str = "y", *, missing: bool = False) -> np.ndarray:
    """Labels as a row of the right length; missing ones (None, NaN) only where that is allowed."""
    if y is None:
        raise ValueError(f"{name} is None: this estimator requires y to be passed, but the target y is None.")
    y = as_labels(y)
    if y.ndim == 2 and y.shape[1] > 1:
        raise ValueError(
            f"{name} has shape {y.shape}, but one label per row is expected; for several yes-or-no labels per row use "
            "MultiLabelProjectAndProbe."
        )
    with naming(name):
        y = column_or_1d(y, warn=True)
    if len(y) != n_rows:
        raise ValueError(f"{name} has {len(y)} entries but there are {n_rows} rows: one is needed per row.")
    if y.dtype.kind in "fc" and np.isinf(y).any():
        raise ValueError(f"{name} contains infinity: labels are names or whole numbers.")
    if not missing and is_missing(y).any():
        raise ValueError(f"{name} contains NaN or None: leave out rows without one.")
    return y


def check_classes(y: np.ndarray) -> np.ndarray:
    """The classes of a source; a column of measurements or ids is refused."""
    if y.dtype.kind == "S":
        raise TypeError("y holds bytes: decode them to text.")
    try:
        classes = np.unique(y)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in y.tolist()})
        raise TypeError(f"y mixes labels of types {kinds}: convert them to one, for instance to text.") from None
    if y.dtype.kind not in "fc" or bool(np.all(y == np.round(y))):  # fractions are refused below, by their name
        check_few(len(classes), len(y))
    with naming("y"):
        check_classification_targets(y)
    return classes


def check_few(n_classes: int, n_rows: int) -> None:
    """Not nearly a class for each row."""
    if n_classes > max(20, n_rows // 2):
        raise ValueError(
            f"y has {n_classes} different values in {n_rows} rows: is it a column of ids or measurements? "
            "A class needs several rows."
        )


def _split_domains(sample_domain: Any, n_rows: int, weight: Array | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Row indices of source and target; the target is None when no domain is given or all rows are source.

    Source rows of weight 0 are absent, and so are their classes.
    """
    there = np.ones(n_rows, dtype=bool) if weight is None else to_numpy(weight) > 0
    if sample_domain is None:
        return np.flatnonzero(there), None
    domain = to_numpy(sample_domain).reshape(-1)
    if len(domain) != n_rows or domain.dtype.kind not in "iuf" or not np.all((domain > 0) | (domain < 0)):
        raise ValueError(
            f"sample_domain must hold one non-zero number per row (positive = source, negative = target), got "
            f"{len(domain)} entries of type {domain.dtype} for {n_rows} rows."
        )
    source, target = np.flatnonzero((domain > 0) & there), np.flatnonzero(domain < 0)
    if not len(source):
        raise ValueError("sample_domain has no positive entry of positive weight: the source is needed to learn from.")
    return source, target if len(target) else None


def weighted_rows(X: Array, y: np.ndarray, weight: Array | None) -> tuple[Array, np.ndarray, Array | None]:
    """Rows of positive weight, with their labels and weights: the others are absent, and so are their classes."""
    if weight is None or bool(array_namespace(weight).all(weight > 0)):
        return X, y, weight
    there = np.flatnonzero(to_numpy(weight) > 0)
    return take_rows(X, there), y[there], take_rows(weight, there)


def take_rows(X: Array | None, rows: np.ndarray) -> Any:
    """Some rows of X, in its namespace and on its device; None of None."""
    if X is None:
        return None
    return X[rows] if is_numpy_array(X) else array_namespace(X).take(X, asarray_like(rows, X), axis=0)
