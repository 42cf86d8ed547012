"""Checks at the door of every estimator: arrays of any Array-API library stay what and where they are."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from pro2.linalg.arrays import Array, is_missing, to_numpy

LARGEST = 1e150  # of a value: its square, and sums of such squares, are still numbers; so are those of its inverse
WEIGHTS = (1e-100, 1e100)  # of a row, if not 0: products of two are still numbers


def check_fitted(estimator: Any, attribute: str) -> None:
    """Like scikit-learn's check; where `partial_fit` waits for a second class, it says so."""
    seen = getattr(estimator, "moments_", getattr(estimator, "source_moments_", None))
    waits = seen is not None and len(seen.classes) < 2  # with two, a `fit` has failed half-way
    why = "This %(name)s has seen y of one class only: give partial_fit rows of another one." if waits else None
    check_is_fitted(estimator, attribute, msg=why)


def check_X(estimator: Any, X: Any, *, reset: bool, name: str = "X") -> Array:
    """X as a finite 2-D float array with the width the estimator was fitted on.

    NumPy-like input (lists, frames, float16, integers) goes through scikit-learn's validation; arrays of another
    Array-API library (PyTorch, CuPy) are checked in place and never copied to the host. Gradients flow through
    predictions, not through what a model is learned from.
    """
    X = without_gradient(X) if reset or name != "X" else X
    if is_array_api_obj(X) and not is_numpy_array(X):
        X = _check_foreign(estimator, X, reset, name)
    else:
        if getattr(X, "dtype", None) == np.float16:  # how embeddings are stored, not how they are multiplied
            X = np.asarray(X).astype(np.float32)
        if np.ma.is_masked(X):
            raise ValueError(f"{name} is a masked array with masked values: fill them, or drop those rows.")
        with naming(name), np.errstate(invalid="ignore"):  # of a sum of infinities, which are refused
            X = _check_host(estimator, X, reset, name)
    _check_values(X, reset, name)
    return X


def _check_values(X: Array, reset: bool, name: str) -> None:
    """Values must be finite and, in float64, have squares that neither overflow nor all underflow."""
    xp = array_namespace(X)
    X = without_gradient(X)
    largest = max(float(xp.max(X)), -float(xp.min(X)))
    if not math.isfinite(largest):
        finite = to_numpy(xp.all(xp.isfinite(X), axis=1))
        raise ValueError(
            f"row {int(np.argmin(finite))} of {name} is not finite (NaN or infinity); leave the row out or embed it "
            "again."
        )
    if X.dtype == xp.float64 and (largest > LARGEST or (reset and 0 < largest < 1 / LARGEST)):
        raise ValueError(
            f"{name} has values up to {largest:.0e}, whose squares exceed the range of float64; divide it by its "
            "standard deviation first."
        )


def _check_host(estimator: Any, X: Any, reset: bool, name: str) -> np.ndarray:
    if reset or name == "X":
        return validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
    if hasattr(X, "columns"):  # a frame: its names must be those of the source, in their order
        validate_data(estimator, X, reset=False, skip_check_array=True)
    X = check_array(X, dtype=[np.float64, np.float32], input_name=name, ensure_all_finite=False)
    check_width(estimator, X.shape[1], name)
    return X


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors of scikit-learn and NumPy do not always say which argument they are about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if re.search(rf"\b{name}\b", str(error)):
            raise
        raise type(error)(f"{name} cannot be used: {error}") from error


def table_rows(X: Any, y: Any) -> tuple[Any, Any]:
    """Rows and labels, where X may be an `EmbeddingTable` and y the name of its column of labels."""
    if hasattr(X, "X_y"):
        if not isinstance(y, str):
            raise TypeError(f"y must be the name of a column when X is a table, got {type(y).__name__}.")
        return X.X_y(y)
    return X, y


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


def _check_foreign(estimator: Any, X: Array, reset: bool, name: str) -> Array:
    xp = array_namespace(X)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name} must be 2-D with at least one row and one feature, got shape {tuple(X.shape)}.")
    if X.dtype not in (xp.float32, xp.float64):
        X = xp.astype(X, xp.float32)
    if reset:
        forget_names(estimator)
        estimator.n_features_in_ = int(X.shape[1])
    check_width(estimator, int(X.shape[1]), name)
    return X


def without_gradient(X: Any) -> Any:
    """A tensor of PyTorch that is not followed any further; anything else as it is."""
    return X.detach() if hasattr(X, "detach") else X


def random_generator(random_state: Any) -> Any:
    """What numbers are drawn from: a Generator as it is, anything else as scikit-learn takes it."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    with naming("random_state"):
        return check_random_state(random_state)


def forget_names(estimator: Any) -> None:
    """What an estimator is now fitted on has no names of features, whatever it was fitted on before."""
    vars(estimator).pop("feature_names_in_", None)


def check_width(estimator: Any, found: int, name: str) -> None:
    """As many features as the estimator was fitted on."""
    if found != estimator.n_features_in_:
        raise ValueError(
            f"{name} has {found} features, but {type(estimator).__name__} was fitted on {estimator.n_features_in_}: "
            "embed it with the same backbone and layer as the source."
        )


def check_weight(sample_weight: Any, like: Array, name: str = "sample_weight") -> Array | None:
    """sample_weight in the namespace of X, one finite non-negative number per row, not all zero."""
    if sample_weight is None:
        return None
    xp = array_namespace(like)
    with naming(name):
        values = np.asarray(
            to_numpy(sample_weight) if is_array_api_obj(sample_weight) else sample_weight, dtype=np.float64
        )
    w = xp.asarray(values, dtype=xp.float64, device=device(like))
    if w.ndim != 1 or w.shape[0] != like.shape[0]:
        raise ValueError(f"{name} has shape {tuple(w.shape)}, X has {like.shape[0]} rows: one weight per row.")
    if not bool(xp.all(xp.isfinite(w))) or bool(xp.any(w < 0)) or not bool(xp.any(w > 0)):
        raise ValueError(f"{name} must be finite, non-negative and not zero for every row.")
    if bool(xp.any((w > WEIGHTS[1]) | ((w > 0) & (w < WEIGHTS[0])))):
        raise ValueError(f"{name} must be 0 or in {WEIGHTS[0]:g}..{WEIGHTS[1]:g}: scale all of them.")
    return w


def check_probe_options(l2: Any, n_features: Any) -> None:
    """Penalty and number of features of the paper's probe, before anything is learned."""
    for name, value, kind, expected in (
        ("l2", l2, numbers.Real, "a positive number"),
        ("n_features", n_features, numbers.Integral, "a positive integer"),
    ):
        if isinstance(value, str) and value in ("auto", "loo"):
            continue
        if isinstance(value, bool) or not isinstance(value, kind) or not 0 < float(value) < math.inf:
            raise ValueError(f"{name} must be {expected}, 'auto' or 'loo', got {value!r}.")
