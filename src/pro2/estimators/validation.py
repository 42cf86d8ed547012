"""Checks at the door of every estimator: arrays of any Array-API library stay what and where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array, to_device
from sklearn.utils.validation import check_array, validate_data

from pro2.linalg.moments import Array, host


def check_X(estimator: Any, X: Any, *, reset: bool, name: str = "X") -> Array:
    """X as a finite 2-D float array with the width the estimator was fitted on.

    NumPy-like input (lists, frames, float16, integers) goes through scikit-learn's validation; arrays of another
    Array-API library (PyTorch, CuPy) are checked in place and never copied to the host.
    """
    if is_array_api_obj(X) and not is_numpy_array(X):
        return _check_foreign(estimator, X, reset, name)
    X = _widen(X)
    if reset or name == "X":
        return validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32])
    if hasattr(X, "columns"):  # a frame: its names must be those of the source, in their order
        validate_data(estimator, X, reset=False, skip_check_array=True)
    X = check_array(X, dtype=[np.float64, np.float32], input_name=name)
    _check_width(estimator, X.shape[1], name)
    return X


def table_rows(X: Any, y: Any) -> tuple[Any, Any]:
    """Rows and labels, where X may be an `EmbeddingTable` and y the name of its column of labels."""
    if hasattr(X, "X_y"):
        if not isinstance(y, str):
            raise TypeError(f"y must be the name of a column when X is a table, got {type(y).__name__}.")
        return X.X_y(y)
    return X, y


def like_model(X: Array, own: Array) -> Array:
    """X where a model's own arrays are: in their library and on their device."""
    if is_numpy_array(own):
        return X if is_numpy_array(X) else host(X)
    xp = array_namespace(own)
    if is_numpy_array(X):
        return xp.asarray(X, device=device(own))
    return X if device(X) == device(own) else to_device(X, device(own))


def _widen(X: Any) -> Any:
    """float16 is how embeddings are stored, not how they are multiplied: compute in float32."""
    if getattr(X, "dtype", None) == np.float16:
        return np.asarray(X).astype(np.float32)
    return X


def _check_foreign(estimator: Any, X: Array, reset: bool, name: str) -> Array:
    xp = array_namespace(X)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name} must be 2-D with at least one row and one feature, got shape {tuple(X.shape)}.")
    if X.dtype not in (xp.float32, xp.float64):
        X = xp.astype(X, xp.float32)
    if not bool(xp.all(xp.isfinite(X))):
        raise ValueError(f"{name} contains NaN or infinity: drop or repair those rows first.")
    if reset:
        estimator.n_features_in_ = int(X.shape[1])
    _check_width(estimator, int(X.shape[1]), name)
    return X


def _check_width(estimator: Any, found: int, name: str) -> None:
    if found != estimator.n_features_in_:
        raise ValueError(
            f"{name} has {found} features, but {type(estimator).__name__} was fitted on {estimator.n_features_in_}: "
            "embed it with the same backbone and layer as the source."
        )


def check_weight(sample_weight: Any, like: Array) -> Array | None:
    """sample_weight in the namespace of X, one finite non-negative number per row, not all zero."""
    if sample_weight is None:
        return None
    xp = array_namespace(like)
    values = np.asarray(host(sample_weight) if is_array_api_obj(sample_weight) else sample_weight, dtype=np.float64)
    w = xp.asarray(values, dtype=xp.float64, device=device(like))
    if w.ndim != 1 or w.shape[0] != like.shape[0]:
        raise ValueError(f"sample_weight has shape {tuple(w.shape)}, X has {like.shape[0]} rows: one weight per row.")
    if not bool(xp.all(xp.isfinite(w))) or bool(xp.any(w < 0)) or not bool(xp.any(w > 0)):
        raise ValueError("sample_weight must be finite, non-negative and not zero for every row.")
    return w
