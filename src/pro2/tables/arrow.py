"""Arrow IPC (memory-mapped) and Parquet files of a table.

The file has a text column `id`, a fixed-size-list column `embedding` and the typed columns, in one record batch, so
that the embedding is one matrix inside the memory map. The schema metadata key `pro2` holds provenance and digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pro2.tables.content import Content, to_json
from pro2.tables.files import ID_NAMES, choose, damaged, stored

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

_META = b"pro2"


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("Arrow and Parquet files need pyarrow: pip install 'pro2[table]'") from error
    return pyarrow


def read_arrow(path: Path, embedding: str | None) -> Content:
    """Open an Arrow IPC file (or stream, as Hugging Face datasets writes it) without reading its rows."""
    pa = _pyarrow()
    try:
        source = pa.memory_map(str(path))
        with path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
        table = (pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)).read_all()
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, _first_line(error)) from error
    return _content(table, embedding, path)


def read_parquet(path: Path, embedding: str | None) -> Content:
    pa = _pyarrow()
    import pyarrow.parquet

    try:
        # ParquetFile and not read_table: the latter would read partitions out of folder names.
        table = pyarrow.parquet.ParquetFile(path, memory_map=True).read()
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, _first_line(error)) from error
    return _content(table, embedding, path)


def write_arrow(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write one record batch; a memory-mapped embedding passes through without being loaded."""
    pa = _pyarrow()
    batch = _batch(table, meta)
    # 64-bit lengths: the values of one batch may be more than 2^31, and one batch keeps the matrix in one piece.
    options = pa.ipc.IpcWriteOptions(allow_64bit=True)
    with pa.ipc.new_file(file, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def write_parquet(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    pa = _pyarrow()
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.Table.from_batches([_batch(table, meta)]), file)


def _batch(table: EmbeddingTable, meta: Mapping[str, str]) -> Any:
    pa = _pyarrow()
    parts = {"id": table.ids, "embedding": table.embeddings, **table.columns}
    arrays = [_to_arrow(values) for values in parts.values()]
    fields = [pa.field(name, array.type, nullable=False) for name, array in zip(parts, arrays)]
    return pa.record_batch(arrays, schema=pa.schema(fields, metadata={_META: to_json(dict(meta)).encode()}))


def _to_arrow(values: np.ndarray) -> Any:
    pa = _pyarrow()
    if values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.array(values.tolist(), pa.string()) if values.dtype.kind == "U" else pa.array(values)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _content(table: Any, embedding: str | None, path: Path) -> Content:
    raw = (table.schema.metadata or {}).get(_META)
    meta = _metadata(raw, path)
    candidates = [field.name for field in table.schema if _is_embedding(field.type)]
    if raw is not None and embedding is None and "embedding" in candidates:
        embedding = "embedding"
    found = ", ".join(f"{field.name} {field.type}" for field in table.schema)
    name = choose(candidates, embedding, found, path)
    shape, dtype, blocks = _embedding(table.column(name), name, path)
    id_name = next((each for each in ID_NAMES if each in table.column_names), None)
    columns, skipped = _columns(table, {name, id_name})
    provenance, digest, sealed = stored(meta, path)
    return Content(
        shape,
        dtype,
        blocks=blocks,
        ids=lambda: None if id_name is None else _to_numpy(table.column(id_name)),
        columns=columns,
        provenance=provenance,
        digest=digest,
        validate=partial(_validate, table, sealed, path),
        skipped=skipped,
        origin=str(path),
    )


def _metadata(raw: bytes | None, path: Path) -> dict[str, str]:
    try:
        return json.loads(raw) if raw is not None else {}
    except ValueError as error:
        raise damaged(path, f"unreadable metadata: {error}") from error


def _validate(table: Any, sealed: Callable[[], None], path: Path) -> None:
    pa = _pyarrow()
    sealed()
    try:
        table.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise damaged(path, _first_line(error)) from error


def _columns(table: Any, taken: set[str | None]) -> tuple[dict[str, Callable[[], np.ndarray]], dict[str, str]]:
    columns: dict[str, Callable[[], np.ndarray]] = {}
    skipped: dict[str, str] = {}
    for field in table.schema:
        if field.name in taken:
            continue
        if _is_supported(field.type):
            columns[field.name] = partial(_to_numpy, table.column(field.name))
        else:
            skipped[field.name] = f"its type {field.type} is not bool, integer, float, text or a list of numbers"
    return columns, skipped


def _is_list(kind: Any) -> bool:
    types = _pyarrow().types
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _is_embedding(kind: Any) -> bool:
    return _is_list(kind) and bool(_pyarrow().types.is_floating(kind.value_type))


def _is_number(kind: Any) -> bool:
    types = _pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_text(kind: Any) -> bool:
    types = _pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_supported(kind: Any) -> bool:
    if _pyarrow().types.is_dictionary(kind):
        kind = kind.value_type
    return _is_number(kind) or _is_text(kind) or (_is_list(kind) and _is_number(kind.value_type))


def _embedding(column: Any, name: str, path: Path) -> tuple[tuple[int, int], np.dtype, Callable[[], list[np.ndarray]]]:
    width = _width(column, name, path)
    if column.null_count:
        raise ValueError(f"{column.null_count} rows of {name!r} in {path} have no embedding; drop them or embed again")
    dtype = np.dtype(column.type.value_type.to_pandas_dtype())
    return (len(column), width), dtype, lambda: [_matrix(chunk, width, name) for chunk in column.chunks]


def _width(column: Any, name: str, path: Path) -> int:
    if _pyarrow().types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    import pyarrow.compute

    bounds = pyarrow.compute.min_max(pyarrow.compute.list_value_length(column)).as_py()
    if bounds["min"] != bounds["max"]:
        raise ValueError(f"{name!r} in {path} has {bounds['min']} to {bounds['max']} values a row; expected one width")
    return int(bounds["max"] or 0)


def _matrix(chunk: Any, width: int, name: str) -> np.ndarray:
    if _pyarrow().types.is_fixed_size_list(chunk.type):
        values = chunk.values.slice(chunk.offset * width, len(chunk) * width)  # no pass over the rows, unlike flatten
    else:
        values = chunk.flatten()
    if values.null_count:
        raise ValueError(f"{name!r} holds {values.null_count} missing numbers; fill them or drop those rows")
    return values.to_numpy(zero_copy_only=values.type.bit_width != 1).reshape(-1, width)


def _to_numpy(column: Any) -> np.ndarray:
    """One column as NumPy: numbers without a copy where there is one block; missing numbers become NaN."""
    if _pyarrow().types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_list(column.type):
        width = _width(column, "a list column", Path("this file"))
        blocks = [_matrix(chunk, width, "a list column") for chunk in column.chunks]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    if _is_text(column.type):
        return np.array(["" if value is None else value for value in column.to_pylist()], dtype=str)
    if column.num_chunks == 1 and not column.null_count and not _pyarrow().types.is_boolean(column.type):
        return column.chunk(0).to_numpy()
    if column.null_count and _pyarrow().types.is_boolean(column.type):
        column = column.cast("int8")
    return column.to_numpy()
