"""Arrays of NumPy and PyTorch: conversion between them, labels as integer codes, orthogonal rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_cupy_array,
    is_numpy_array,
    is_torch_array,
    to_device,
)

Array = Any

CLEAN = 0.7  # a Gram-Schmidt pass that leaves this much of the length needs no other


def asarray_like(values: Array, other: Array) -> Array:
    """An array where another one is: in its library and on its device."""
    if is_numpy_array(other):
        return values if is_numpy_array(values) else to_numpy(values)
    if is_numpy_array(values):
        return array_namespace(other).asarray(values, device=device(other))
    return values if device(values) == device(other) else to_device(values, device(other))


def encode(y: Array, classes: Sequence[Any] | None = None) -> tuple[tuple[Any, ...], np.ndarray]:
    """Labels as (sorted classes, integer codes on the host); missing, mixed and unknown labels are an error."""
    labels = np.asarray(y if is_numpy_array(y) or isinstance(y, list) else to_numpy(y))
    if is_missing(labels).any():
        raise ValueError("y has missing labels (NaN or None): give the rows that have a label.")
    found, codes = unique_labels(labels)
    if classes is None:
        return tuple(found.tolist()), codes
    place = {label: i for i, label in enumerate(classes)}
    unknown = [label for label in found.tolist() if label not in place]
    if unknown:
        raise ValueError(f"y has labels {unknown[:5]} that are not among the classes {list(place)[:10]}.")
    if len(place) < len(classes):
        raise ValueError(f"classes has {len(classes)} entries, but only {len(place)} different ones.")
    lookup = np.array([place[label] for label in found.tolist()], dtype=np.int64)
    return tuple(np.asarray(list(classes)).tolist()), lookup[codes]


def unique_labels(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted different labels, and all labels as their codes."""
    try:
        found, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise TypeError(f"y mixes labels of types {kinds}: convert them to one, for instance to text.") from None
    return found, codes.reshape(-1)


def is_missing(labels: np.ndarray) -> np.ndarray:
    """Which labels are None, NaN or another value that is not equal to itself."""
    if labels.dtype.kind == "O":
        return np.array([_is_nothing(label) for label in labels.tolist()], dtype=bool)
    return np.isnan(labels) if labels.dtype.kind in "fc" else np.zeros(labels.shape, dtype=bool)


def _is_nothing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas' NA is neither equal nor unequal to anything
        return True


def to_numpy(x: Array) -> np.ndarray:
    """Any Array-API array as a NumPy array, wherever it lives."""
    if is_numpy_array(x) or not is_array_api_obj(x):
        return np.asarray(x)
    if is_torch_array(x):
        x = x.detach().cpu()
        return np.asarray(x.float() if "bfloat16" in str(x.dtype) else x)  # NumPy has no such type
    # CuPy copies only where it is asked to; JAX and the strict standard do it by themselves
    return np.asarray(x.get() if is_cupy_array(x) else x)


def stacked(A: np.ndarray) -> np.ndarray:
    """Rows (..., D) as one matrix (n, D): a product with them is then one, too, not one for each leading index."""
    return A.reshape(-1, A.shape[-1])


def both_scores(f: np.ndarray, axis: int) -> np.ndarray:
    """The one logit of two classes as their two centred scores, along a new axis."""
    return np.stack([-0.5 * f, 0.5 * f], axis=axis)


def orthogonalise(Q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, float]:
    """v made orthogonal to the rows of Q to machine precision and of unit length; and which share of v was left.

    The last two rows come first: in a Krylov sequence nearly all of M q lies along them (Lanczos 1950). Then all
    rows, until a pass leaves most of the length (Daniel et al. 1976). A share near 0: v was in the span already.
    """
    start, share = np.linalg.norm(v), 1.0
    if start == 0:
        return v, 0.0
    v = v / start
    for rows in (Q[-2:], Q, Q, Q):
        v = v - (rows @ v) @ rows
        before, share = share, float(np.linalg.norm(v))
        if rows is Q and share > CLEAN * before:
            break
    return (v / share if share > 0 else v), share
