"""Where the columns of a table come from: Arrow and Parquet files, data frames, saved data sets, arrays in memory.

Our files have a text column `id`, a fixed-size-list column `embedding` and the typed columns, in one record batch, so
that the embedding is one matrix inside the memory map. The schema metadata key `pro2` holds provenance and digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pro2.tables import TableError, check_size, damaged, first_line, reading
from pro2.tables.columns import choose, column_name, objects, read_only, to_json

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

META = b"pro2"
_MISSING = ("None", "nan", "<NA>", "NaT")


class Source:
    """Columns by name, read when they are asked for: the one place where the bytes of a file become arrays.

    Parameters
    ----------
    schema, n_rows
        Of all columns; known without reading them.
    load : callable
        ``load(names, rows)`` returns record batches of those columns, if possible of about `rows` rows each.
    origin : str
        What messages call it.
    keep : bool
        Whether an embedding that was read should be kept, because it would be read as a whole again.
    skipped : mapping of column name to reason
        What the file holds and a table cannot.
    """

    embedding: Sequence[str] = ("embedding",)  # one column of lists, or one column per dimension

    def __init__(
        self,
        schema: pa.Schema,
        n_rows: int,
        load: Callable[[list[str], int | None], Iterable[pa.RecordBatch]],
        origin: str,
        keep: bool = False,
        skipped: Mapping[str, str] = {},
    ) -> None:
        if len(set(schema.names)) < len(schema.names):
            repeated = next(name for name in schema.names if schema.names.count(name) > 1)
            raise TableError(f"{origin} has two columns called {repeated!r}; rename one")
        self.schema, self.n_rows, self.load, self.origin = schema, n_rows, load, origin
        self.keep, self.skipped = keep, skipped

    @classmethod
    def of(cls, table: pa.Table, origin: str) -> Source:
        """Columns of a table in memory or in a memory map."""
        return cls(table.schema, table.num_rows, lambda names, rows: table.select(names).to_batches(), origin)

    def batches(self, names: list[str], rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Some columns in batches of at most `rows` rows, validated in full: Arrow itself follows any offset."""
        n_rows = 0
        with reading(self.origin):
            for batch in self.load(names, rows):
                batch.validate(full=True)
                n_rows += len(batch)
                step = rows or max(1, len(batch))
                yield from (batch.select(names).slice(start, step) for start in range(0, len(batch), step))
            if n_rows != self.n_rows:
                raise damaged(self.origin, f"{names[0]!r} has {n_rows} rows where {self.n_rows} are declared")

    def table(self, names: list[str]) -> pa.Table:
        """Some columns as one table."""
        batches = list(self.batches(names))
        return pa.Table.from_batches(batches) if batches else self.schema.empty_table().select(names)

    def column(self, name: str) -> np.ndarray:
        """One column as NumPy."""
        with reading(self.origin):
            return read_only(to_numpy(self.table([name]).column(0), name))

    def matrix_type(self) -> tuple[int, np.dtype]:
        """Width and type of the embedding."""
        kinds = [self.schema.field(name).type for name in self.embedding]
        if not is_list(kinds[0]):
            types = [np.dtype(kind.to_pandas_dtype()) for kind in kinds]
            return len(kinds), np.result_type(*types, *([] if all(t.kind == "f" for t in types) else [np.float32]))
        column = pa.array([], kinds[0])
        if not pa.types.is_fixed_size_list(kinds[0]):  # all rows are compared with the first when they are read
            column = next((batch.column(0) for batch in self.batches([*self.embedding], 1)), column)
        return list_width(column), np.dtype(kinds[0].value_type.to_pandas_dtype())

    def matrices(self, rows: int | None = None) -> Iterator[np.ndarray]:
        """The embedding in blocks of rows, in order; without a copy from a column of lists."""
        width, dtype = self.matrix_type()
        start = 0
        with reading(self.origin):
            for batch in self.batches([*self.embedding], rows):
                if is_list(batch.schema.field(0).type):
                    X = matrix(batch.column(0), width, self.embedding[0], start)
                else:
                    X = np.empty((len(batch), width), dtype)
                    for j, column in enumerate(batch.columns):  # a missing number is NaN
                        X[:, j] = to_numpy(pa.chunked_array([column]), self.embedding[j])
                start += len(batch)
                yield read_only(X)

    def choose(self, embedding: str | None) -> Source:
        """Find the column or columns that hold the embedding."""
        if META in (self.schema.metadata or {}) and embedding is None and "embedding" in self.schema.names:
            return self
        kinds = {field.name: kind_of(field.type) for field in self.schema}
        contents = ", ".join(f"{field.name} {field.type}" for field in list(self.schema)[:50])
        self.embedding = choose(kinds, embedding, contents, self.origin)
        if words := [name for name in self.embedding if kinds[name] not in ("list", "float", "int")]:
            raise not_a_number(self.table(words), words, self.origin)
        return self


def not_a_number(table: pa.Table, names: Sequence[str], origin: str) -> TableError:
    """The error for dimensions of an embedding that hold something else; it names the first such cell."""
    cells = []
    for name in names:
        for row, value in enumerate(table.column(name).to_pylist(), 1):
            try:
                float("nan" if value in (None, "") else value)
            except (TypeError, ValueError):
                cells.append((row, f"{name!r} of row {row} in {origin} is {str(value)[:40]!r}; expected a number"))
                break
    problem = min(cells, default=(0, f"{names[0]!r} of {origin} is not a column of numbers"))[1]
    return TableError(f"{problem}. If it is not part of the embedding, give embedding= a pattern without it")


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


def to_ids(ids: Any, n_rows: int) -> np.ndarray:
    """Ids as text; the row numbers when there are none."""
    if ids is None:
        return read_only(objects(list(map(str, range(n_rows)))))
    if len(ids) != n_rows:
        raise TableError(f"ids has {len(ids)} entries, the embeddings have {n_rows} rows; give one id per row")
    column = to_arrow("id", ids, n_rows)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise TableError(f"row {row} has no id; give every row one, or leave the ids out")
    values = to_numpy(pa.chunked_array([column]), "id")
    if n_rows and (values.ndim != 1 or values.dtype.kind not in "iuO"):
        raise TableError(f"ids must be a list of texts or integers, found shape {values.shape}, dtype {values.dtype}")
    return read_only(objects(list(map(str, values.tolist()))))


def in_memory(X: Any, columns: Mapping[str, Any], origin: str) -> Source:
    """Columns that are all there: the embedding and the columns with their ids, in one Arrow table."""
    values = {"embedding": X, **{column_name(name): column for name, column in columns.items()}}
    arrays = [to_arrow(name, column, len(X)) for name, column in values.items()]
    return Source.of(pa.table(arrays, names=list(values)), origin)


# ---- files


def read(path: Path, embedding: str | None) -> Source:
    """A file, or the folder of a saved data set, as the source of a table."""
    if path.is_dir():
        return read_folder(path).choose(embedding)
    return (read_parquet if path.suffix.lower() == ".parquet" else open_ipc)(path).choose(embedding)


def open_ipc(path: Path) -> Source:
    """Columns of an Arrow file or stream; those that are not compressed stay in the memory map."""
    # One map for all reads: it stays on this file, even when another one takes its name.
    mapped = pa.memory_map(str(path))
    is_file = mapped.read(6) == b"ARROW1"

    def opened(**options: Any) -> Any:
        mapped.seek(0)
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(mapped, **options)

    def batches(reader: Any) -> Iterator[pa.RecordBatch]:
        return map(reader.get_batch, range(reader.num_record_batches)) if is_file else iter(reader)

    # Whether the first rows needed memory of their own, and so were compressed: Arrow does not say it in another way.
    pool = pa.system_memory_pool()
    before = pool.bytes_allocated()
    first = next(batches(opened(memory_pool=pool)), None)
    if first is None or pool.bytes_allocated() == before:
        return Source.of(opened().read_all(), str(path))
    schema = first.schema

    def load(names: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        fields = [schema.get_field_index(name) for name in names]  # only these are unpacked
        return batches(opened(options=pa.ipc.IpcReadOptions(included_fields=fields)))

    return Source(schema, sum(map(len, load(schema.names[:1], None))), load, str(path))


def read_parquet(path: Path) -> Source:
    """Columns of a Parquet file; unpacked when they are read, the embedding in batches where that is enough."""
    import pyarrow.parquet as pq

    # ParquetFile and not read_table: the latter would read partitions out of folder names.
    schema = pq.ParquetFile(path).schema_arrow
    # Repeated text stays one text: a caption in a million rows is stored once, and unpacked it would fill the memory.
    texts = [field.name for field in schema if kind_of(field.type) == "text"]
    file = pq.ParquetFile(path, memory_map=True, read_dictionary=texts, page_checksum_verification=True)

    def load(names: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        kinds = [schema.field(name).type for name in names]
        fixed = [kind for kind in kinds if pa.types.is_fixed_size_list(kind)]
        row_bytes = 8 * len(kinds) + sum(kind.list_size * max(8, kind.value_type.bit_width) // 8 for kind in fixed)
        check_size(path, names[0], file.metadata.num_rows * row_bytes)
        lists = sum(map(is_list, kinds)) - len(fixed)
        if rows is None and not lists:
            yield from file.read(columns=names).to_batches()
            return
        size = 0
        for batch in file.iter_batches(columns=names, batch_size=rows or 1 << 16):
            size += batch.nbytes if lists else 0  # how much such a column unpacks to shows only on the way
            check_size(path, names[0], size)
            yield batch

    return Source(schema, file.metadata.num_rows, load, str(path))


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


# ---- objects and folders of other libraries


def read_object(data: Any, embedding: str | None) -> Source:
    """Columns of anything that gives an Arrow stream: polars, pandas, pyarrow, duckdb, Hugging Face."""
    origin = f"this {type(data).__name__}"
    if hasattr(data, "with_format") and hasattr(data, "features"):
        data = data.with_format("arrow")[:]  # a Hugging Face data set: its rows in its own order, after any selection
    if not hasattr(data, "__arrow_c_stream__"):
        raise TableError(
            f"{origin} gives no Arrow stream; expected a data frame of pandas or polars, a pyarrow table, a duckdb "
            "relation or a Hugging Face data set"
        )
    with reading(origin):
        try:
            table = pa.table(data).combine_chunks()
        except (ValueError, TypeError) as error:  # Arrow's own errors are both
            raise TableError(f"{origin} cannot be converted to Arrow: {first_line(error)}") from error
        return Source.of(table, origin).choose(embedding)


def read_folder(folder: Path) -> Source:
    """Columns of a data set, or a dictionary of splits, written by Hugging Face `save_to_disk`; splits are a column."""
    files, classes = saved_files(folder)
    parts = []
    for path, split in files:
        source = open_ipc(path)
        part = pa.Table.from_batches(source.load(source.schema.names, None), source.schema)
        parts.append(part.append_column("split", pa.repeat(split, len(part))) if split else part)
    if any(not part.schema.equals(parts[0].schema) for part in parts):
        raise TableError(f"the parts of {folder} do not have the same columns")
    table = pa.concat_tables(parts)
    for name in set(classes) & set(table.schema.names):
        codes = table.column(name)
        known = pc.if_else(pc.less(codes, 0), None, codes)  # -1 is how data sets write that a row has no label
        table = table.append_column(f"{name}_name", pc.take(pa.array(classes[name], pa.string()), known))
    return Source.of(table, str(folder))


def saved_files(folder: Path) -> tuple[list[tuple[Path, str]], dict[str, list[str]]]:
    """The Arrow files of a saved data set, each with its split, and the names of the classes of its class columns."""
    parts = [(folder, "")]
    if (folder / "dataset_dict.json").is_file():
        names = _json(folder / "dataset_dict.json")["splits"]
        parts = [(folder / _plain_name(name, folder), name) for name in names]
    elif not (folder / "state.json").is_file():
        raise TableError(f"{folder} is a folder, but not a saved Hugging Face data set: it has no state.json")
    files: list[tuple[Path, str]] = []
    features: dict[str, Any] = {}
    for part, split in parts:
        entries = _json(part / "state.json")["_data_files"]
        files += [(part / _plain_name(entry["filename"], folder), split) for entry in entries]
        features |= _json(part / "dataset_info.json").get("features") or {}
    if not files:
        raise TableError(f"{folder} lists no files; save the data set again")
    return files, {name: kind["names"] for name, kind in features.items() if isinstance(kind, dict) and "names" in kind}


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _plain_name(name: str, folder: Path) -> str:
    if Path(name).name != name:
        raise TableError(f"{folder} lists {name!r}, which leaves the folder")
    return name
