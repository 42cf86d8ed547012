"""Inputs that no one should pass: rows, labels and weights of any type, scale, shape and content."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Rng = np.random.Generator


class Rows(NamedTuple):
    """What a caller passes: rows, labels, weights; any of them spoiled."""

    X: Any
    y: Any
    weight: Any


def rows(rng: Rng, n_classes: int, width: int, spoiled: int) -> tuple[Rows, list[str]]:
    """Some labelled rows with `spoiled` things wrong or odd about them, and what these are."""
    n = int(rng.integers(max(4, n_classes), 40))
    y = np.arange(n) % n_classes
    parts: dict[str, Any] = {"X": rng.standard_normal((n, width)) + 2 * y[:, None], "y": y, "weight": None}
    told = []
    for _ in range(spoiled):
        part = str(rng.choice(["X", "X", "X", "y", "weight"]))
        name = str(rng.choice(list(SPOILERS[part])))
        told.append(f"{part} {name}")
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                parts[part] = SPOILERS[part][name](parts[part] if part != "weight" else np.ones(n), rng)
            except Exception:
                told.pop()  # not possible after what was done before
    return Rows(**parts), told


def _with_cell(value: float) -> Callable[[Any, Rng], Any]:
    def spoil(X: Any, rng: Rng) -> Any:
        X = np.array(X)
        X[tuple(int(rng.integers(0, size)) for size in X.shape)] = value
        return X

    return spoil


def _frame(X: Any, rng: Rng) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=[f"f{i}" for i in range(np.shape(X)[1])])


def _torch(X: Any, rng: Rng) -> Any:
    import torch

    return torch.asarray(X)


def _sparse(X: Any, rng: Rng) -> Any:
    import scipy.sparse

    return scipy.sparse.csr_matrix(X)


def _constant_column(X: Any, rng: Rng) -> Any:
    X = np.array(X)
    X[:, 0] = 3
    return X


Spoiler = Callable[[Any, Rng], Any]
SPOILERS: dict[str, dict[str, Spoiler]] = {
    "X": {
        "float32": lambda X, rng: X.astype("f4"),
        "float16": lambda X, rng: X.astype("f2"),
        "integers": lambda X, rng: X.astype("i8"),
        "booleans": lambda X, rng: X > 0,
        "objects": lambda X, rng: X.astype(object),
        "complex": lambda X, rng: X.astype(complex),
        "text": lambda X, rng: X.astype(str),
        "float32 * 1e19": lambda X, rng: X.astype("f4") * np.float32(1e19),
        "float32 * 1e-25": lambda X, rng: X.astype("f4") * np.float32(1e-25),
        "* 1e155": lambda X, rng: X * 1e155,
        "* 1e300": lambda X, rng: X * 1e300,
        "* 1e-160": lambda X, rng: X * 1e-160,
        "* 1e-300": lambda X, rng: X * 1e-300,
        "float32 + 1e4": lambda X, rng: (X + 1e4).astype("f4"),
        "+ 1e8": lambda X, rng: X + 1e8,
        "+ 1e15": lambda X, rng: X + 1e15,
        "columns of any scale": lambda X, rng: X * 10.0 ** rng.uniform(-30, 30, X.shape[1]),
        "cell of 1e155": _with_cell(1e155),
        "cell of 1e160": _with_cell(1e160),
        "cell of 1e308": _with_cell(1e308),
        "cell of 1e38 in float32": lambda X, rng: _with_cell(1e38)(X.astype("f4"), rng),
        "NaN": _with_cell(np.nan),
        "infinity": _with_cell(np.inf),
        "equal rows": lambda X, rng: np.repeat(X[:1], len(X), axis=0),
        "rows that repeat": lambda X, rng: np.repeat(X[: max(1, len(X) // 2)], 2, axis=0)[: len(X)],
        "zeros": lambda X, rng: X * 0,
        "constant column": _constant_column,
        "one row": lambda X, rng: X[:1],
        "no row": lambda X, rng: X[:0],
        "no column": lambda X, rng: X[:, :0],
        "one column": lambda X, rng: X[:, :1],
        "one axis": lambda X, rng: X[:, 0],
        "three axes": lambda X, rng: X[None],
        "list": lambda X, rng: X.tolist(),
        "ragged list": lambda X, rng: [[1.0], *X.tolist()[1:]],
        "frame": _frame,
        "tensor": _torch,
        "sparse": _sparse,
        "None": lambda X, rng: None,
        "big endian": lambda X, rng: X.astype(">f8"),
        "column-major": lambda X, rng: np.asfortranarray(X),
        "read-only": lambda X, rng: np.broadcast_to(X[:1], X.shape),
    },
    "y": {
        "text": lambda y, rng: np.array(["a", "b", "c", "d"])[y],
        "booleans": lambda y, rng: y > 0,
        "floats": lambda y, rng: y.astype(float),
        "fractions": lambda y, rng: y + 0.5 * rng.random(len(y)),
        "mixed": lambda y, rng: np.array([each if each else "a" for each in y.tolist()], dtype=object),
        "None among them": lambda y, rng: np.array([each if each else None for each in y.tolist()], dtype=object),
        "NaN among them": lambda y, rng: np.where(y == 0, np.nan, y),
        "one class": lambda y, rng: y * 0,
        "a class for each row": lambda y, rng: np.arange(len(y)),
        "list": lambda y, rng: y.tolist(),
        "column": lambda y, rng: y[:, None],
        "two columns": lambda y, rng: np.stack([y, y], axis=1),
        "too short": lambda y, rng: y[:-1],
        "None": lambda y, rng: None,
        "bytes": lambda y, rng: y.astype("S1"),
        "dates": lambda y, rng: y.astype("M8[D]"),
        "huge numbers": lambda y, rng: y * 2**62,
        "tensor": _torch,
        "random": lambda y, rng: rng.permutation(y),
    },
    "weight": {
        "ones": lambda w, rng: w,
        "random": lambda w, rng: rng.random(len(w)),
        "zeros": lambda w, rng: 0 * w,
        "some zeros": lambda w, rng: rng.integers(0, 2, len(w)) * w,
        "one positive": lambda w, rng: (np.arange(len(w)) == 0) * w,
        "negative": lambda w, rng: -w,
        "NaN": _with_cell(np.nan),
        "infinity": _with_cell(np.inf),
        "1e20 once": _with_cell(1e20),
        "1e300": lambda w, rng: w * 1e300,
        "1e-300": lambda w, rng: w * 1e-300,
        "too short": lambda w, rng: w[:-1],
        "text": lambda w, rng: w.astype(str),
        "list": lambda w, rng: w.tolist(),
        "two axes": lambda w, rng: np.stack([w, w]),
        "a number": lambda w, rng: 1.0,
        "integers": lambda w, rng: w.astype("i4"),
    },
}
PARAMS: dict[str, list[Any]] = {
    "l2": ["auto", "auto", 1.0, 1e-20, 1e20, 0.0, -1.0, np.nan, np.inf, "x", None],
    "n_features": ["auto", "auto", 1, 2, 0, 99, -1, 1.5, "x"],
    "n_components": [None, None, 1, 2, 0, 99, 1.5],
    "ridge": [0.3, 0.3, 0.0, 1e-12, 1e12, -1.0, np.nan, np.inf, "x"],
    "scale": ["standard", "standard", None, "global", "unit", "x"],
    "solver": ["krylov", "krylov", "krylov", "logistic", "x"],
}


def params(rng: Rng, *names: str) -> dict[str, Any]:
    """Mostly the defaults; one argument may be anything."""
    if rng.random() < 0.7:
        return {}
    name = str(rng.choice(names))
    return {name: PARAMS[name][int(rng.integers(0, len(PARAMS[name])))]}
