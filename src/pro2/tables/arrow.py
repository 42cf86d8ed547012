"""Arrow IPC (memory-mapped) and Parquet files, and anything in memory that speaks Arrow.

Our files have a text column `id`, a fixed-size-list column `embedding` and the typed columns, in one record batch, so
that the embedding is one matrix inside the memory map. The schema metadata key `pro2` holds provenance and digest.
Columns are read when they are asked for, and validated in full before anyone looks at them: Arrow itself follows
whatever offsets a file has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pro2.tables.columns import as_column, filled, objects
from pro2.tables.content import Content
from pro2.tables.digest import stored, to_json
from pro2.tables.errors import TableError, check_size, first_line
from pro2.tables.layout import ID_NAMES, choose

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

_META = b"pro2"
Read = Callable[[list[str]], Any]  # names -> pyarrow.Table


def pyarrow() -> Any:
    """The library, or how to get it."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError("Arrow and Parquet need pyarrow: pip install 'pro2[table]'") from error
    return pa


# ---- reading


def read_arrow(path: Path, embedding: str | None) -> Content:
    """Open an Arrow IPC file (or stream, as Hugging Face datasets writes it) without reading its rows."""
    schema, read = open_ipc(path)
    return content_of(schema, read, embedding, str(path))


def open_ipc(path: Path) -> tuple[Any, Read]:
    """Schema of an Arrow file or stream, and the function that reads some of its columns."""
    pa = pyarrow()
    # One map for all reads: it stays on this file, even when another one takes its name.
    source = pa.memory_map(str(path))
    opener = pa.ipc.open_file if source.read(6) == b"ARROW1" else pa.ipc.open_stream

    def opened(**options: Any) -> Any:
        source.seek(0)
        return opener(source, **options)

    schema, packed = opened().schema, _is_packed(opened)

    def read(names: list[str]) -> Any:
        # Only what is asked for is unpacked. A file that is not packed is read whole, which costs nothing: a part of it
        # would be copied out of the map.
        if not packed:
            return opened().read_all().select(names)
        fields = [schema.get_field_index(name) for name in names]
        return opened(options=pa.ipc.IpcReadOptions(included_fields=fields)).read_all()

    return schema, read


def _is_packed(opened: Callable[..., Any]) -> bool:
    """Whether the first rows needed memory of their own, and so were compressed: Arrow does not tell in another way."""
    pool = pyarrow().system_memory_pool()
    before = pool.bytes_allocated()
    reader = opened(memory_pool=pool)
    is_file = hasattr(reader, "num_record_batches")
    batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
    return next(iter(batches), None) is not None and pool.bytes_allocated() > before


def read_parquet(path: Path, embedding: str | None) -> Content:
    """Open a Parquet file; a column is unpacked when it is asked for."""
    pyarrow()
    import pyarrow.parquet as pq

    # ParquetFile and not read_table: the latter would read partitions out of folder names.
    schema = pq.ParquetFile(path).schema_arrow
    # Repeated text stays one text: a caption in a million rows is stored once, and unpacked it would fill the memory.
    texts = [field.name for field in schema if _is_text(field.type)]
    file = pq.ParquetFile(path, memory_map=True, read_dictionary=texts, page_checksum_verification=True)

    def read(names: list[str]) -> Any:
        for name in names:
            check_size(path, name, _unpacked(file.metadata, name, schema.field(name).type))
        return file.read(columns=names)

    return content_of(schema, read, embedding, str(path))


def _unpacked(metadata: Any, name: str, kind: Any) -> int:
    """Bytes of a column in memory, by what the footer declares."""
    size = 8 if not _is_list(kind) else max(1, kind.value_type.bit_width // 8)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    return sum(size * each.num_values for each in columns if each.path_in_schema.split(".list.")[0] == name)


def read_memory(data: Any, embedding: str | None, origin: str) -> Content:
    """A pyarrow table, or whatever hands its rows out as an Arrow stream."""
    try:
        table = pyarrow().table(data).combine_chunks()
    except (ValueError, TypeError) as error:  # Arrow's own errors are both
        raise TableError(f"{origin} cannot be handed over as Arrow: {first_line(error)}") from error
    return content_of(table.schema, table.select, embedding, origin)


def content_of(
    schema: Any, read: Read, embedding: str | None, origin: str, more: Mapping[str, Callable[[], np.ndarray]] = {}
) -> Content:
    """The lazy table over columns that `read` gives."""
    names = schema.names
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise TableError(f"{origin} has two columns called {twice!r}; rename one")

    def column(name: str) -> Any:
        table = read([name])
        table.validate(full=True)
        return table.column(name)

    chosen, meta = _chosen(schema, embedding, origin)
    shape, dtype, blocks = _embedding(schema, read, column, chosen, origin)
    id_name = next((each for each in ID_NAMES if each in names), None)
    columns, skipped = _columns(schema, column, {*chosen, id_name})
    provenance, digest = stored(meta, origin)
    return Content(
        shape,
        dtype,
        blocks=blocks,
        ids=lambda: None if id_name is None else _to_numpy(column(id_name), id_name),
        columns={**columns, **more},
        provenance=provenance,
        digest=digest,
        skipped=skipped,
        origin=origin,
    )


def _chosen(schema: Any, embedding: str | None, origin: str) -> tuple[list[str], Mapping[str, str]]:
    """Names of the embedding's column or columns, and what pro2 wrote beside them."""
    raw = (schema.metadata or {}).get(_META)
    matrices = [field.name for field in schema if _is_list(field.type) and _is_float(field.type.value_type)]
    if raw is not None and embedding is None and "embedding" in matrices:
        embedding = "embedding"
    numbers = {field.name: _is_float(field.type) for field in schema if _is_number(field.type)}
    found = ", ".join(f"{field.name} {field.type}" for field in list(schema)[:50])
    return choose(matrices, numbers, embedding, found, origin), json.loads(raw) if raw is not None else {}


def _embedding(
    schema: Any, read: Read, column: Callable[[str], Any], names: list[str], origin: str
) -> tuple[tuple[int, int], np.dtype, Callable[[], list[np.ndarray]]]:
    kinds = [schema.field(name).type for name in names]
    if not _is_list(kinds[0]):
        types = [np.dtype(kind.to_pandas_dtype()) for kind in kinds]
        dtype = np.result_type(*types, *([] if all(t.kind == "f" for t in types) else [np.float32]))
        n_rows = read(names[:1]).num_rows
        return (n_rows, len(names)), dtype, lambda: [_side_by_side(read(names), names, dtype)]
    values = column(names[0])
    if values.null_count:
        row = values.is_null().index(True).as_py()
        raise TableError(
            f"{values.null_count} rows of {names[0]!r} in {origin} have no embedding, the first is row {row}; "
            "drop them or embed them again"
        )
    width = _width(values, names[0], origin)
    dtype = np.dtype(values.type.value_type.to_pandas_dtype())
    return (len(values), width), dtype, lambda: [_matrix(chunk, width, names[0]) for chunk in values.chunks]


def _side_by_side(table: Any, names: list[str], dtype: np.dtype) -> np.ndarray:
    """One column per dimension as one matrix; a missing number is NaN, which verification names by its id."""
    table.validate(full=True)
    X = np.empty((table.num_rows, len(names)), dtype=dtype)
    for j, name in enumerate(names):
        X[:, j] = as_column(name, _to_numpy(table.column(name), name), len(X))
    return X


def _columns(
    schema: Any, column: Callable[[str], Any], taken: set[str | None]
) -> tuple[dict[str, Callable[[], np.ndarray]], dict[str, str]]:
    columns: dict[str, Callable[[], np.ndarray]] = {}
    skipped: dict[str, str] = {}
    for field in schema:
        if field.name in taken:
            continue
        if _is_supported(field.type):
            columns[field.name] = partial(lambda name: _to_numpy(column(name), name), field.name)
        else:
            skipped[field.name] = f"its type {field.type} is not bool, integer, float, text or a list of numbers"
    return columns, skipped


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _is_float(kind: Any) -> bool:
    return bool(pyarrow().types.is_floating(kind))


def _is_number(kind: Any) -> bool:
    return _is_float(kind) or bool(pyarrow().types.is_integer(kind))


def _is_text(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_supported(kind: Any) -> bool:
    types = pyarrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    scalar = _is_number(kind) or types.is_boolean(kind) or _is_text(kind) or types.is_null(kind)
    return scalar or (_is_list(kind) and (_is_number(kind.value_type) or types.is_boolean(kind.value_type)))


def _width(column: Any, name: str, origin: str) -> int:
    if pyarrow().types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    import pyarrow.compute as pc

    bounds = pc.min_max(pc.list_value_length(column)).as_py()
    if bounds["min"] != bounds["max"]:
        raise TableError(
            f"{name!r} in {origin} has {bounds['min']} to {bounds['max']} values per row; expected one width"
        )
    return int(bounds["max"] or 0)


def _matrix(chunk: Any, width: int, name: str) -> np.ndarray:
    if pyarrow().types.is_fixed_size_list(chunk.type):
        values = chunk.values.slice(chunk.offset * width, len(chunk) * width)  # no pass over the rows, unlike flatten
    else:
        values = chunk.flatten()
    if values.null_count:
        raise TableError(f"{name!r} holds {values.null_count} missing numbers; fill them or drop those rows")
    return _numbers(values).reshape(-1, width)


def _to_numpy(column: Any, name: str) -> np.ndarray:
    """One column as NumPy: numbers without a copy where there is one block, text as objects, None for missing."""
    kind = column.type
    if pyarrow().types.is_dictionary(kind):
        parts = [_decoded(chunk) for chunk in column.chunks]
    elif _is_list(kind):
        width = _width(column, name, "this file")
        parts = [np.empty((0, width)), *(_matrix(chunk, width, name) for chunk in column.chunks)]
    elif _is_number(kind) and not column.null_count:
        parts = [_numbers(chunk) for chunk in column.chunks]
    else:
        return objects(column.to_pylist())
    parts = [part for part in parts if len(part)] or parts[:1]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else objects([])


def _numbers(array: Any) -> np.ndarray:
    """Numbers without a gap, where they lie; Arrow's own conversion would import pandas to ask whether it is there."""
    if pyarrow().types.is_boolean(array.type):
        return np.array(array.to_pylist(), dtype=bool)
    data = array.buffers()[1]
    dtype = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(data, dtype)[array.offset : array.offset + len(array)] if len(array) else np.empty(0, dtype)


def _decoded(chunk: Any) -> np.ndarray:
    """Rows of a dictionary share its values: a long text that repeats is one object."""
    values = objects([*chunk.dictionary.to_pylist(), None])
    return values[_numbers(chunk.indices.fill_null(-1))]


# ---- writing


def write_arrow(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write one record batch; a memory-mapped embedding passes through without being loaded."""
    pa = pyarrow()
    batch = to_batch(table, meta)
    # 64-bit lengths: the values of one batch may be more than 2^31, and one batch keeps the matrix in one piece.
    options = pa.ipc.IpcWriteOptions(allow_64bit=True)
    with pa.ipc.new_file(file, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def write_parquet(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write with a checksum per page, so that a damaged page is refused before it is unpacked."""
    pa = pyarrow()
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_batches([to_batch(table, meta)]), file, write_page_checksum=True)


def to_batch(table: EmbeddingTable, meta: Mapping[str, str]) -> Any:
    """The whole table as one Arrow record batch."""
    pa = pyarrow()
    parts = {"id": table.ids, "embedding": table.embeddings, **table.columns}
    arrays = [_to_arrow(values) for values in parts.values()]
    fields = [pa.field(name, array.type, nullable=array.null_count > 0) for name, array in zip(parts, arrays)]
    return pa.record_batch(arrays, schema=pa.schema(fields, metadata={_META: to_json(dict(meta)).encode()}))


def _to_arrow(values: np.ndarray) -> Any:
    pa = pyarrow()
    if values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    full, missing = filled(values)
    if full.dtype.kind != "O":
        return pa.array(full, mask=missing)
    text = pa.array(values.tolist(), pa.string())
    return text if isinstance(text, pa.Array) else pa.array(values.tolist(), pa.large_string())  # above 2 GiB
