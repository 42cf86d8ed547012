"""Checks of what users give to an estimator: rows, labels, weights. Each is made once, where the call comes in.

Arrays of any Array-API library stay what and where they are. An error names the argument, says what was found and what
to do about it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from pro2.linalg.arrays import Array, asarray_like, is_missing, to_numpy, unique_labels

LARGEST = 1e150  # of a value: its square, and sums of such squares, are still numbers; so are those of its inverse
WEIGHTS = (1e-100, 1e100)  # of a row, if not 0: products of two are still numbers
FLOATS = (np.float64, np.float32)
NEW_CLASS = "add labelled rows of them to the source, or drop them from the target"


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors of scikit-learn and NumPy do not always say which argument they are about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if re.search(rf"\b{name}\b", str(error)):
            raise
        raise type(error)(f"{name} cannot be used: {error}") from error


def check_fitted(estimator: Any, attribute: str) -> None:
    """Like scikit-learn's check; where `partial_fit` waits for a second class, it says so."""
    seen = getattr(estimator, "moments_", getattr(estimator, "source_moments_", None))
    waits = seen is not None and len(seen.classes) < 2  # with two, a `fit` has failed half-way
    why = "This %(name)s has seen y of one class only: give partial_fit rows of another one." if waits else None
    check_is_fitted(estimator, attribute, msg=why)


# ---- rows


def table_rows(X: Any, y: Any) -> tuple[Any, Any]:
    """Rows and labels, where X may be an `EmbeddingTable` and y the name of its column of labels."""
    if not hasattr(X, "X_y"):
        return X, y
    if not isinstance(y, str):
        raise TypeError(f"y must be the name of a column when X is a table, got {type(y).__name__}.")
    return X.X_y(y)


def check_X(estimator: Any, X: Any, *, reset: bool, name: str = "X") -> Array:
    """X as a finite 2-D float array with the width the estimator was fitted on.

    NumPy-like input (lists, frames, float16, integers) goes through scikit-learn's validation; arrays of another
    Array-API library (PyTorch, CuPy) are checked in place and never copied. Gradients flow through predictions, not
    through what a model is learned from.
    """
    X = without_gradient(X) if reset or name != "X" else X
    if is_array_api_obj(X) and not is_numpy_array(X):
        xp = array_namespace(X)
        if X.ndim != 2 or 0 in X.shape:
            raise ValueError(f"{name} must be 2-D with at least one row and one feature, got shape {tuple(X.shape)}.")
        X = X if X.dtype in (xp.float32, xp.float64) else xp.astype(X, xp.float32)
        if reset:
            forget_names(estimator)
            estimator.n_features_in_ = int(X.shape[1])
        check_width(estimator, int(X.shape[1]), name)
    else:
        if getattr(X, "dtype", None) == np.float16:  # how embeddings are stored, not how they are multiplied
            X = np.asarray(X).astype(np.float32)
        if np.ma.is_masked(X):
            raise ValueError(f"{name} is a masked array with masked values: fill them, or drop those rows.")
        with naming(name), np.errstate(invalid="ignore"):  # of a sum of infinities, which are refused
            X = _check_numpy(estimator, X, reset, name)
    _check_values(X, reset, name)
    return X


def _check_numpy(estimator: Any, X: Any, reset: bool, name: str) -> np.ndarray:
    if reset or name == "X":
        return validate_data(estimator, X, reset=reset, dtype=FLOATS, ensure_all_finite=False)
    if hasattr(X, "columns"):  # a frame: its names must be those of the source, in their order
        validate_data(estimator, X, reset=False, skip_check_array=True)
    # scikit-learn's message about a wrong width would speak of X, and not of what to do
    X = check_array(X, dtype=FLOATS, input_name=name, ensure_all_finite=False)
    check_width(estimator, X.shape[1], name)
    return X


def _check_values(X: Array, reset: bool, name: str) -> None:
    """Values must be finite and, in float64, have squares that neither overflow nor all underflow."""
    xp = array_namespace(X)
    X = without_gradient(X)
    largest = max(float(xp.max(X)), -float(xp.min(X)))
    if not math.isfinite(largest):
        row = int(np.argmin(to_numpy(xp.all(xp.isfinite(X), axis=1))))
        raise ValueError(f"row {row} of {name} is not finite (NaN or infinity); leave the row out or embed it again.")
    if X.dtype == xp.float64 and (largest > LARGEST or (reset and 0 < largest < 1 / LARGEST)):
        raise ValueError(
            f"{name} has values up to {largest:.0e}, whose squares exceed the range of float64; divide it by its "
            "standard deviation first."
        )


def check_width(estimator: Any, found: int, name: str) -> None:
    """As many features as the estimator was fitted on."""
    if found != estimator.n_features_in_:
        raise ValueError(
            f"{name} has {found} features, but {type(estimator).__name__} was fitted on {estimator.n_features_in_}: "
            "embed it with the same backbone and layer as the source."
        )


def without_gradient(X: Any) -> Any:
    """A tensor of PyTorch that is not followed any further; anything else as it is."""
    return X.detach() if hasattr(X, "detach") else X


def forget_names(estimator: Any) -> None:
    """What an estimator is now fitted on has no names of features, whatever it was fitted on before."""
    vars(estimator).pop("feature_names_in_", None)


# ---- labels


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


def as_labels(y: Any) -> np.ndarray:
    """Labels as NumPy holds them, each as it was given: among texts a NaN is no text, and neither is a number."""
    y = y.tolist() if np.ma.isMaskedArray(y) else y  # masked ones become None
    listed = isinstance(y, list | tuple)
    values = np.asarray(y, dtype=object) if listed else to_numpy(y)
    values = values.astype(object) if values.dtype.kind == "T" else values  # NumPy's own texts of any length
    if values.dtype.kind != "O" or is_missing(values.reshape(-1)).any():
        return values
    texts = {isinstance(label, str) for label in values.reshape(-1).tolist()}
    return np.asarray(values.tolist()) if texts == {False} or (listed and texts == {True}) else values


def check_classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes of checked source labels, and the labels as their codes.

    A column of measurements or ids, nearly a class for each row, is refused.
    """
    if y.dtype.kind == "S":
        raise TypeError("y holds bytes: decode them to text.")
    classes, codes = unique_labels(y)
    fractions = y.dtype.kind in "fc" and bool(np.any(y != np.round(y)))  # scikit-learn refuses them by their name
    if not fractions and len(classes) > max(20, len(y) // 2):
        raise ValueError(
            f"y has {len(classes)} different values in {len(y)} rows: is it a column of ids or measurements? "
            "A class needs several rows."
        )
    with naming("y"):
        check_classification_targets(y)
    return classes, codes


def encode_known(y: np.ndarray, classes: np.ndarray, name: str, advice: str = NEW_CLASS) -> np.ndarray:
    """Codes of checked target labels; where one is not a class of the source, the error says how it may be meant."""
    known = classes.tolist()
    unknown = sorted(set(y.tolist()) - set(known), key=str)
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise ValueError(
            f"{name} has classes {unknown[:5]}{more} that the source does not have ({known[:10]}): "
            f"{_spelling_mismatch(unknown, known) or advice}."
        )
    place = {label: code for code, label in enumerate(known)}
    return np.fromiter(map(place.__getitem__, y.tolist()), np.int64, len(y))


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


# ---- weights, domains, chance


def check_weight(sample_weight: Any, like: Array, name: str = "sample_weight") -> Array | None:
    """sample_weight in the namespace of X, one finite non-negative number per row, not all zero."""
    if sample_weight is None:
        return None
    with naming(name):
        values = to_numpy(sample_weight) if is_array_api_obj(sample_weight) else sample_weight
        w = np.asarray(values, dtype=np.float64)
    # scikit-learn's check would not say what to do, nor which of two arguments it is about
    if w.shape != (like.shape[0],):
        raise ValueError(f"{name} has shape {w.shape}, X has {like.shape[0]} rows: one weight per row.")
    if not np.isfinite(w).all() or (w < 0).any() or not (w > 0).any():
        raise ValueError(f"{name} must be finite, non-negative and not zero for every row.")
    if (w > WEIGHTS[1]).any() or ((w > 0) & (w < WEIGHTS[0])).any():
        raise ValueError(f"{name} must be 0 or in {WEIGHTS[0]:g}..{WEIGHTS[1]:g}: scale all of them.")
    xp = array_namespace(like)
    return xp.asarray(w, dtype=xp.float64, device=device(like))


def source_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, like: Array | None
) -> tuple[Array, np.ndarray, Array | None]:
    """Checked rows of positive weight, where earlier ones are: the others are absent, and so are their classes."""
    X = check_X(estimator, X, reset=like is None)
    X = X if like is None else asarray_like(X, like)
    y, weight = check_labels(y, X.shape[0]), check_weight(sample_weight, X)
    if weight is None or bool(array_namespace(weight).all(weight > 0)):
        return X, y, weight
    there = np.flatnonzero(to_numpy(weight) > 0)
    return take_rows(X, there), y[there], take_rows(weight, there)


def validation_rows(estimator: Any, X_val: Any, y_val: Any, like: Array) -> tuple[Array, np.ndarray] | None:
    """Checked held-out rows where `like` is, and the codes of their labels; None where there are none."""
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val go together: give both or neither.")
    if X_val is None:
        return None
    X_val = asarray_like(check_X(estimator, X_val, reset=False, name="X_val"), like)
    return X_val, encode_known(check_labels(y_val, X_val.shape[0], "y_val"), estimator.classes_, "y_val")


def take_rows(X: Array | None, rows: np.ndarray) -> Any:
    """Some rows of X, in its namespace and on its device; None of None."""
    if X is None:
        return None
    return X[rows] if is_numpy_array(X) else array_namespace(X).take(X, asarray_like(rows, X), axis=0)


def split_domains(sample_domain: Any, n_rows: int, weight: Array | None) -> tuple[np.ndarray, np.ndarray | None]:
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
    if len(target) and not there[target].any():
        raise ValueError("sample_weight is zero for every target row: give one a weight, or leave them out.")
    return source, target if len(target) else None


def random_generator(random_state: Any) -> Any:
    """What numbers are drawn from: a Generator as it is, anything else as scikit-learn takes it."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    with naming("random_state"):
        return check_random_state(random_state)
