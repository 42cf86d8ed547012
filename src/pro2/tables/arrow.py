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
from typing import IO, Any, NamedTuple

import numpy as np

from pro2.tables.arrow_columns import (
    is_list,
    is_number,
    is_supported,
    is_text,
    list_width,
    matrices,
    pyarrow,
    to_arrow,
    to_numpy,
)
from pro2.tables.columns import as_column
from pro2.tables.content import Content, ready
from pro2.tables.digest import stored, to_json
from pro2.tables.errors import TableError, check_size
from pro2.tables.layout import ID_NAMES, choose
from pro2.tables.rows import Rows

_META = b"pro2"
Load = Callable[[], np.ndarray]


class Source(NamedTuple):
    """Arrow columns that are read by name."""

    schema: Any
    n_rows: int
    read: Callable[[list[str]], Any]
    origin: str

    def table(self, names: list[str]) -> Any:
        """Some columns, validated in full."""
        table = self.read(names)
        table.validate(full=True)
        return table

    def column(self, name: str) -> np.ndarray:
        """One column as NumPy."""
        return to_numpy(self.table([name]).column(name), name, self.origin)


# ---- reading


def read_arrow(path: Path, embedding: str | None) -> Content:
    """Open an Arrow IPC file (or stream, as Hugging Face datasets writes it) without reading its rows."""
    return content_of(open_ipc(path), embedding)


def open_ipc(path: Path) -> Source:
    """Columns of an Arrow file or stream; those that are not compressed stay in the memory map."""
    pa = pyarrow()
    # One map for all reads: it stays on this file, even when another one takes its name.
    mapped = pa.memory_map(str(path))
    opener = pa.ipc.open_file if mapped.read(6) == b"ARROW1" else pa.ipc.open_stream

    def opened(**options: Any) -> Any:
        mapped.seek(0)
        return opener(mapped, **options)

    schema, packed = opened().schema, _is_packed(opened)

    def read(names: list[str]) -> Any:
        # Only what is asked for is unpacked. A file that is not packed is read whole, which costs nothing: a part of it
        # would be copied out of the map.
        if not packed:
            return opened().read_all().select(names)
        fields = [schema.get_field_index(name) for name in names]
        return opened(options=pa.ipc.IpcReadOptions(included_fields=fields)).read_all()

    return Source(schema, read(schema.names[:1]).num_rows, read, str(path))


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
    is_fixed = pyarrow().types.is_fixed_size_list
    import pyarrow.parquet as pq

    # ParquetFile and not read_table: the latter would read partitions out of folder names.
    schema = pq.ParquetFile(path).schema_arrow
    # Repeated text stays one text: a caption in a million rows is stored once, and unpacked it would fill the memory.
    texts = [field.name for field in schema if is_text(field.type)]
    file = pq.ParquetFile(path, memory_map=True, read_dictionary=texts, page_checksum_verification=True)

    def read(names: list[str]) -> Any:
        kinds = [schema.field(name).type for name in names]
        check_size(path, names[0], file.metadata.num_rows * sum(map(_row_bytes, kinds)))
        if not any(is_list(kind) and not is_fixed(kind) for kind in kinds):
            return file.read(columns=names)
        # How much such a column unpacks to shows only on the way.
        batches, size = [], 0
        for batch in file.iter_batches(columns=names):
            batches.append(batch)
            size += batch.nbytes
            check_size(path, names[0], size)
        return pyarrow().Table.from_batches(batches) if batches else schema.empty_table().select(names)

    return content_of(Source(schema, file.metadata.num_rows, read, str(path)), embedding)


def _row_bytes(kind: Any) -> int:
    """Bytes of one row in memory, as far as its type tells."""
    fixed = pyarrow().types.is_fixed_size_list(kind)
    return kind.list_size * max(1, kind.value_type.bit_width // 8) if fixed else 8


def content_of(source: Source, embedding: str | None, more: Mapping[str, Load] = {}) -> Content:
    """The lazy table over some Arrow columns, and more columns that come from elsewhere."""
    names, origin = source.schema.names, source.origin
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f"{origin} has two columns called {twice!r}; rename one")
    chosen, meta = _chosen(source.schema, embedding, origin)
    width, dtype, blocks = _embedding(source, chosen)
    id_name = next((each for each in ID_NAMES if each in names), None)
    taken = {*chosen, id_name}
    kinds = {field.name: field.type for field in source.schema if field.name not in taken}
    columns = {name: partial(source.column, name) for name, kind in kinds.items() if is_supported(kind)}
    reason = "its type {} is not bool, integer, float, text or a list of numbers"
    skipped = {name: reason.format(kind) for name, kind in kinds.items() if name not in columns}
    provenance, digest = stored(meta, origin)
    return Content(
        (source.n_rows, width),
        dtype,
        blocks=blocks,
        ids=lambda: None if id_name is None else source.column(id_name),
        columns={**columns, **more},
        provenance=provenance,
        digest=digest,
        skipped=skipped,
        origin=origin,
    )


def _chosen(schema: Any, embedding: str | None, origin: str) -> tuple[list[str], Mapping[str, str]]:
    """Names of the embedding's column or columns, and what pro2 wrote beside them."""
    raw = (schema.metadata or {}).get(_META)
    is_float = pyarrow().types.is_floating
    lists = [field.name for field in schema if is_list(field.type) and is_float(field.type.value_type)]
    if raw is not None and embedding is None and "embedding" in lists:
        embedding = "embedding"
    numbers = {field.name: is_float(field.type) for field in schema if is_number(field.type)}
    found = ", ".join(f"{field.name} {field.type}" for field in list(schema)[:50])
    return choose(lists, numbers, embedding, found, origin), json.loads(raw) if raw is not None else {}


def _embedding(source: Source, names: list[str]) -> tuple[int, np.dtype, Callable[[], list[np.ndarray]]]:
    """Width, type, and the function that reads the embedding."""
    kinds = [source.schema.field(name).type for name in names]
    if not is_list(kinds[0]):
        types = [np.dtype(kind.to_pandas_dtype()) for kind in kinds]
        dtype = np.result_type(*types, *([] if all(t.kind == "f" for t in types) else [np.float32]))
        return len(names), dtype, lambda: [_side_by_side(source, names, dtype)]
    dtype, name = np.dtype(kinds[0].value_type.to_pandas_dtype()), names[0]
    if pyarrow().types.is_fixed_size_list(kinds[0]):
        return kinds[0].list_size, dtype, lambda: matrices(source.table([name]).column(name), name, source.origin)
    lists = source.table([name]).column(name)  # only its rows tell how wide it is
    return list_width(lists, name, source.origin), dtype, ready(matrices(lists, name, source.origin))


def _side_by_side(source: Source, names: list[str], dtype: np.dtype) -> np.ndarray:
    """One column per dimension as one matrix; a missing number is NaN, which verification names by its id."""
    table = source.table(names)
    X = np.empty((table.num_rows, len(names)), dtype=dtype)
    for j, name in enumerate(names):
        X[:, j] = as_column(name, to_numpy(table.column(name), name, source.origin), len(X))
    return X


# ---- writing


def write_arrow(table: Rows, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write one record batch; a memory-mapped embedding passes through without being loaded."""
    pa = pyarrow()
    batch = to_batch(table, meta)
    # 64-bit lengths: the values of one batch may be more than 2^31, and one batch keeps the matrix in one piece.
    options = pa.ipc.IpcWriteOptions(allow_64bit=True)
    with pa.ipc.new_file(file, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def write_parquet(table: Rows, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write with a checksum per page, so that a damaged page is refused before it is unpacked."""
    pa = pyarrow()
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_batches([to_batch(table, meta)]), file, write_page_checksum=True)


def to_batch(table: Rows, meta: Mapping[str, str]) -> Any:
    """The whole table as one Arrow record batch."""
    pa = pyarrow()
    parts = {"id": table.ids, "embedding": table.embeddings, **table.columns}
    arrays = [to_arrow(values) for values in parts.values()]
    fields = [pa.field(name, array.type, nullable=array.null_count > 0) for name, array in zip(parts, arrays)]
    return pa.record_batch(arrays, schema=pa.schema(fields, metadata={_META: to_json(dict(meta)).encode()}))
