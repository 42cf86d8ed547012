"""Typed columns: numbers and flags as arrays, text as objects. A missing value is NaN among numbers, None elsewhere.

Text is never made fixed-width: one long caption would make every row as long. Integers with gaps are floats as long as
that is exact, as in pandas; larger ones, and flags with gaps, are objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pro2.tables.errors import TableError

_NOT_A_VALUE = ("NAType", "NaTType")  # of pandas, by name: pandas need not be there


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written; the array it came from keeps its own flags."""
    view = array.view()
    view.setflags(write=False)
    return view


def objects(values: Sequence[Any]) -> np.ndarray:
    """A list as an object array of one dimension, whatever its items are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def as_column(name: str, values: Any, n_rows: int) -> np.ndarray:
    """Check one typed column: bool, integer, float or text; one value per row, or one short row of numbers."""
    array = _as_array(values)
    if array.dtype.kind in "OUST" and array.ndim == 1:
        array = _as_objects(name, array)
    if array.dtype.kind not in "biufO":
        raise TableError(
            f"column {name!r} has dtype {array.dtype}; a table holds bool, integer, float and text columns: "
            "convert it first (dates: .astype(str))"
        )
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.dtype.kind == "O"):
        raise TableError(f"column {name!r} has shape {array.shape}; expected ({n_rows},) or a short numeric (n, k)")
    if len(array) != n_rows:
        raise TableError(f"column {name!r} has {len(array)} rows, the embeddings have {n_rows}; give one value per row")
    return read_only(array.astype(array.dtype.newbyteorder("="), copy=False))


def _as_array(values: Any) -> np.ndarray:
    """An array; of objects from a list with text, all of which NumPy would make fixed-width text, NaN included."""
    if not isinstance(values, Sequence) or not any(isinstance(value, str) for value in values):
        return np.asarray(values)
    return objects(values)


def _as_objects(name: str, array: np.ndarray) -> np.ndarray:
    """Text and None as they are; other objects as what they all are, or an error that names the odd one out."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    items = array.tolist()
    if set(map(type, items)) <= {str, type(None)}:
        return array.astype(object, copy=False)
    items = [_plain(item) for item in items]
    kinds = {type(item) for item in items} - {type(None)}
    if kinds <= {str}:
        return objects(items)
    if kinds <= {int, float}:
        return _numbers(name, items, float in kinds)
    if kinds == {bool}:
        return objects(items) if None in items else np.array(items, dtype=bool)
    row, odd = next((row, item) for row, item in enumerate(items) if type(item) not in (str, type(None)))
    raise TableError(
        f"column {name!r} holds {odd!r} ({type(odd).__name__}) at row {row} beside values of another type; "
        "give every row a value of one type (bool, integer, float or text), or none"
    )


def _numbers(name: str, items: list[Any], floating: bool) -> np.ndarray:
    largest = max((item for item in items if item is not None), key=abs, default=0)
    if floating or (None in items and abs(largest) <= 2**53):
        return np.array([np.nan if item is None else item for item in items], dtype=np.float64)
    if not -(2**63) <= largest < 2**63:
        raise TableError(f"column {name!r} holds {largest}, which no 64-bit integer can be; give such codes as text")
    return objects(items) if None in items else np.array(items, dtype=np.int64)


def _plain(item: Any) -> Any:
    """A Python value; None for whatever stands for no value."""
    if type(item).__name__ in _NOT_A_VALUE or (isinstance(item, float) and item != item):
        return None
    if isinstance(item, np.generic):
        return _plain(item.item())
    return str(item) if isinstance(item, str) else item


def as_ids(ids: Any, n_rows: int) -> np.ndarray:
    """Ids as text; without any, the row numbers."""
    if ids is None:
        return read_only(objects(list(map(str, range(n_rows)))))
    array = _as_array(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuUSOT"):
        raise TableError(f"ids must be a list of texts or integers, found shape {array.shape}, dtype {array.dtype}")
    if len(array) != n_rows:
        raise TableError(f"ids has {len(array)} entries, the embeddings have {n_rows} rows; give one id per row")
    values = array.astype(object) if array.dtype.kind in "iu" else as_column("id", array, n_rows)
    items = values.tolist()
    if None in items:
        raise TableError(f"row {items.index(None)} has no id; give every row one, or leave the ids out")
    return read_only(objects(list(map(str, items))))


def row_numbers(rows: Any, n_rows: int) -> np.ndarray:
    """Row numbers, or a mask over all rows, as row numbers that exist."""
    index = np.asarray(rows)
    if index.dtype.kind == "b" and index.shape == (n_rows,):
        return np.flatnonzero(index)
    if index.size == 0:
        index = index.astype(np.intp)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise TableError(f"rows must be a list of row numbers or a mask of {n_rows}, found {index.dtype} {index.shape}")
    if index.size and (index.min() < 0 or index.max() >= n_rows):
        raise TableError(f"rows go from {index.min()} to {index.max()}; there are rows 0 to {n_rows - 1}")
    return index


def check_unique(ids: np.ndarray, what: str) -> None:
    """Ids name rows: two rows under one name cannot be told apart."""
    if len(set(ids.tolist())) == len(ids):
        return
    unique, counts = np.unique(ids, return_counts=True)
    twice = unique[counts > 1]
    raise TableError(
        f"{what} repeats {len(twice)} id(s), e.g. {str(twice[0])!r} {counts.max()} times; "
        "ids must be unique: give each row its own in a column called id, or drop the repeated rows"
    )


def filled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """A column without gaps, and where they were: None when there are none."""
    if values.dtype.kind != "O":
        return values, None
    items = values.tolist()
    missing = np.fromiter((item is None for item in items), bool, len(items))
    first = next((item for item in items if item is not None), "")
    if not isinstance(first, str):
        return np.array([type(first)() if item is None else item for item in items], dtype=type(first)), missing
    if missing.any():
        return objects(["" if item is None else item for item in items]), missing
    return values, None


def unfilled(values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Inverse of `filled` for a column with gaps."""
    return objects([None if gap else item for item, gap in zip(values.tolist(), missing.tolist())])


def text_bytes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Text as (offsets, UTF-8 bytes)."""
    encoded = [value.encode() for value in values.tolist()]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(encoded), dtype=np.uint8)


def bytes_text(offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Inverse of `text_bytes`; offsets that would read a byte twice or not at all are refused."""
    ends = offsets.tolist()
    if ends[:1] != [0] or ends[-1] != data.size or any(b < a for a, b in pairwise(ends)):
        raise ValueError("the offsets of a text column do not fit its bytes")
    raw = data.tobytes()
    return objects([raw[a:b].decode() for a, b in pairwise(ends)])
