"""Between Arrow's columns and NumPy's arrays: which types a table takes, and how they are turned into each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from pro2.extras import imported
from pro2.tables.columns import filled, objects
from pro2.tables.errors import TableError


def pyarrow() -> Any:
    """The library, or how to get it."""
    return imported("pyarrow", "Arrow and Parquet need pyarrow: pip install 'pro2[table]'")


def is_list(kind: Any) -> bool:
    """Whether a column of this type has a list per row."""
    types = pyarrow().types
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def is_number(kind: Any) -> bool:
    """Whether a column of this type has an integer or a float per row."""
    types = pyarrow().types
    return bool(types.is_floating(kind) or types.is_integer(kind))


def is_text(kind: Any) -> bool:
    """Whether a column of this type has a text per row."""
    types = pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_supported(kind: Any) -> bool:
    """Whether a table takes a column of this type."""
    types = pyarrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    scalar = is_number(kind) or types.is_boolean(kind) or is_text(kind) or types.is_null(kind)
    return scalar or (is_list(kind) and (is_number(kind.value_type) or types.is_boolean(kind.value_type)))


def list_width(column: Any, name: str, origin: str) -> int:
    """How many values every list of a column has."""
    if pyarrow().types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    import pyarrow.compute as pc

    bounds = pc.min_max(pc.list_value_length(column)).as_py()
    if bounds["min"] != bounds["max"]:
        raise TableError(
            f"{name!r} in {origin} has {bounds['min']} to {bounds['max']} values per row; expected one width"
        )
    return int(bounds["max"] or 0)


def matrices(column: Any, name: str, origin: str) -> list[np.ndarray]:
    """A column of lists as one matrix per chunk, without a copy."""
    width = list_width(column, name, origin)
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise TableError(
            f"{column.null_count} rows of {name!r} in {origin} have none, the first is row {row}; drop or fill them"
        )
    return [_matrix(chunk, width, name) for chunk in column.chunks]


def _matrix(chunk: Any, width: int, name: str) -> np.ndarray:
    if pyarrow().types.is_fixed_size_list(chunk.type):
        values = chunk.values.slice(chunk.offset * width, len(chunk) * width)  # no pass over the rows, unlike flatten
    else:
        values = chunk.flatten()
    if values.null_count:
        raise TableError(f"{name!r} holds {values.null_count} missing numbers; fill them or drop those rows")
    return _numbers(values).reshape(-1, width)


def to_numpy(column: Any, name: str, origin: str) -> np.ndarray:
    """One column as NumPy: numbers without a copy where there is one chunk, text as objects, None for missing."""
    kind = column.type
    if pyarrow().types.is_dictionary(kind):
        parts = [_decoded(chunk) for chunk in column.chunks]
    elif is_list(kind):
        parts = matrices(column, name, origin) or [np.empty((0, list_width(column, name, origin)))]
    elif is_number(kind) and not column.null_count:
        parts = [_numbers(chunk) for chunk in column.chunks]
    else:
        parts = [objects(column.to_pylist())]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else objects([])


def _numbers(array: Any) -> np.ndarray:
    """Numbers without a gap, where they lie; Arrow's own conversion would import pandas to ask whether it is there."""
    if pyarrow().types.is_boolean(array.type):
        return np.array(array.to_pylist(), dtype=bool)
    dtype = np.dtype(array.type.to_pandas_dtype())
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _decoded(chunk: Any) -> np.ndarray:
    """Rows of a dictionary share its values: a long text that repeats is one object."""
    values = objects([*chunk.dictionary.to_pylist(), None])
    return values[_numbers(chunk.indices.fill_null(-1))]


def to_arrow(values: np.ndarray) -> Any:
    """A column, or the embedding, as an Arrow array; None becomes null."""
    pa = pyarrow()
    if values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    full, missing = filled(values)
    if full.dtype.kind != "O":
        return pa.array(full, mask=missing)
    text = pa.array(values.tolist(), pa.string())
    return text if isinstance(text, pa.Array) else pa.array(values.tolist(), pa.large_string())  # above 2 GiB
