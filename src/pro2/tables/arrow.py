"""Arrow's types and NumPy's, and the files of Arrow and Parquet that we write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pro2.tables import TableError, first_line
from pro2.tables.columns import objects, to_json

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

META = b"pro2"
_MISSING = ("None", "nan", "<NA>", "NaT")


# ---- Arrow's types and NumPy's


def kind_of(kind: pa.DataType) -> str:
    """What a column of this type is to a table; a list of floats may be an embedding, "other" is not supported."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_list(kind):
        values = kind_of(kind.value_type)
        return "list" if values == "float" else "numbers" if values in ("int", "bool") else "other"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    checks = {"float": pa.types.is_floating, "int": pa.types.is_integer, "bool": pa.types.is_boolean}
    return next((name for name, check in checks.items() if check(kind)), "null" if pa.types.is_null(kind) else "other")


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type has a list per row."""
    return pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)


def list_width(column: pa.Array | pa.ChunkedArray) -> int:
    """How many values the lists of a column have, by its type or by its first row."""
    if pa.types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    return (pc.list_value_length(column[:1])[0].as_py() or 0) if len(column) else 0


def matrix(array: pa.Array, width: int, name: str, start: int = 0) -> np.ndarray:
    """Lists that must all have one width as a matrix, without a copy; `start` is the number of the first row."""
    if array.null_count:
        row = start + pc.index(array.is_null(), True).as_py()
        raise TableError(f"{name!r} has no value in row {row} ({array.null_count} in all); drop or fill those rows")
    if pa.types.is_fixed_size_list(array.type):
        values = array.values.slice(array.offset * width, len(array) * width)  # no pass over the rows, unlike flatten
    else:
        lengths = pc.list_value_length(array)
        odd = pc.index(pc.equal(lengths, width), False).as_py()
        if odd >= 0:
            raise TableError(
                f"{name!r} has {lengths[odd]} values in row {start + odd}, {width} in the first row; expected one width"
            )
        values = array.flatten()
    if values.null_count:
        raise TableError(f"{name!r} holds {values.null_count} missing numbers; fill them or drop those rows")
    return _numbers(values).reshape(len(array), width)


def to_numpy(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """A column as `columns` describes it: numbers without a copy where they are in one piece, None for missing text."""
    kind = column.type
    if is_list(kind):
        width = list_width(column)
        parts = [matrix(chunk, width, name) for chunk in column.chunks] or [np.empty((0, width))]
    elif pa.types.is_dictionary(kind):
        # Rows of a dictionary share its values: a long text that repeats is one object.
        pairs = [(chunk.dictionary.to_pylist(), chunk.indices.fill_null(-1)) for chunk in column.chunks]
        parts = [objects([*texts, None])[_numbers(indices)] for texts, indices in pairs]
    elif column.null_count and kind_of(kind) in ("float", "int"):
        items = column.to_pylist()
        if pa.types.is_floating(kind) or max((abs(item) for item in items if item is not None), default=0) <= 2**53:
            return np.array([np.nan if item is None else item for item in items], dtype=np.float64)
        parts = [objects(items)]
    elif kind_of(kind) in ("float", "int") or (kind_of(kind) == "bool" and not column.null_count):
        parts = [_numbers(chunk) for chunk in column.chunks] or [np.empty(0, kind.to_pandas_dtype())]
    else:
        parts = [objects(column.to_pylist())]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else objects([])


def _numbers(array: pa.Array) -> np.ndarray:
    """Numbers where they lie. Arrow's own conversion would import pandas to find out whether it is installed."""
    if pa.types.is_boolean(array.type):
        return np.array(array.to_pylist(), dtype=bool)
    dtype = np.dtype(array.type.to_pandas_dtype())
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def to_arrow(name: str, values: Any, n_rows: int) -> pa.Array:
    """A checked column of bool, integer, float or text; None, NaN among texts and the NA of pandas become null.

    Numbers of NumPy are not copied.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    is_texts = isinstance(values, Sequence) and any(isinstance(value, str) for value in values)
    array = objects(values) if is_texts else np.asarray(values)  # NumPy would make NaN among texts a text as well
    if array.ndim not in (1, 2) or array.shape[1:] == (0,) or (array.ndim == 2 and array.dtype.kind not in "biuf"):
        raise TableError(f"column {name!r} has shape {array.shape}; expected ({n_rows},) or a short numeric (n, k)")
    if len(array) != n_rows:
        raise TableError(f"column {name!r} has {len(array)} rows, the embeddings have {n_rows}; give one value per row")
    try:
        if array.dtype.kind in "biuf":
            flat = pa.array(np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1))
            return flat if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
        array = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        column = pa.array(array.astype(object) if array.dtype.kind == "U" else array, from_pandas=True)
        if isinstance(column, pa.ChunkedArray):  # more than 2 GiB of text
            column = column.cast(pa.large_string()).combine_chunks()
        if kind_of(column.type) == "other":
            raise TypeError(f"its type is {column.type}")
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        problem = f"cannot be stored as {array.dtype} ({first_line(error)})"
        present = [(row, item) for row, item in enumerate(array.tolist()) if str(item) not in _MISSING]
        odd = next(((row, item) for row, item in present if type(item) is not type(present[0][1])), None)
        if odd is not None:
            problem = f"holds {odd[1]!r} ({type(odd[1]).__name__}) at row {odd[0]} among values of another type"
        raise TableError(
            f"column {name!r} {problem}; give every row a bool, a 64-bit integer, a float or a text, all of one type, "
            "or none (dates: .astype(str))"
        ) from error
    return column.cast(pa.string()) if column.type == pa.null() else column


def to_ids(ids: Any, n_rows: int) -> pa.ChunkedArray:
    """Ids as text; the row numbers when there are none."""
    if ids is None:
        return pa.chunked_array([pa.array(np.arange(n_rows)).cast(pa.string())])
    if len(ids) != n_rows:
        raise TableError(f"ids has {len(ids)} entries, the embeddings have {n_rows} rows; give one id per row")
    column = to_arrow("id", ids, n_rows)
    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise TableError(f"row {row} has no id; give every row one, or leave the ids out")
    if n_rows and kind_of(column.type) not in ("text", "int"):
        raise TableError(f"ids must be texts or integers, found a column of type {column.type}")
    return column if pa.types.is_large_string(column.type) else column.cast(pa.string())


# ---- files


def write_arrow(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write one record batch; a memory-mapped embedding passes through without being loaded."""
    columns = to_table(table, meta)
    # 64-bit lengths: the values of one batch may be more than 2^31, and one batch keeps the matrix in one piece.
    with pa.ipc.new_file(file, columns.schema, options=pa.ipc.IpcWriteOptions(allow_64bit=True)) as writer:
        writer.write_table(columns)


def write_parquet(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write with a checksum per page, so that a damaged page is refused before it is unpacked."""
    import pyarrow.parquet as pq

    pq.write_table(to_table(table, meta), file, write_page_checksum=True)


def to_table(table: EmbeddingTable, meta: Mapping[str, str]) -> pa.Table:
    """All rows, each column in one piece."""
    columns = {"id": table.ids, "embedding": table.embeddings, **table.columns}
    arrays = [to_arrow(name, values, len(table)) for name, values in columns.items()]
    fields = [pa.field(name, array.type, nullable=array.null_count > 0) for name, array in zip(columns, arrays)]
    return pa.table(arrays, schema=pa.schema(fields, metadata={META: to_json(dict(meta)).encode()}))
