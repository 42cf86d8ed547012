"""Columns of Arrow: their types and NumPy's, and the `Source` that reads them when they are asked for."""

import contextlib
import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pro2.cluster import available_cores
from pro2.extras import one_line
from pro2.tables import TableError, damaged, reading
from pro2.tables.columns import ID_NAMES, check_unique, choose, column_name, filled, objects, read_only, to_json

BATCH = 8192  # rows of a pass over the embedding
KEPT = 1 << 30  # bytes of embeddings: up to here they are kept once they were read
SAME_IN_ALL_PARTS = ("backbone", "weights_digest", "layer", "preprocessing")
META = b"pro2"
_MISSING = ("None", "nan", "<NA>", "NaT")


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
    kind = kind_of(column.type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.dictionary_encode()
    if is_list(column.type):
        width = list_width(column)
        parts = [matrix(chunk, width, name) for chunk in column.chunks] or [np.empty((0, width))]
    elif pa.types.is_dictionary(column.type):
        # Rows of a dictionary share its values: a long text that repeats is one object.
        pairs = [(chunk.dictionary.to_pylist(), chunk.indices.fill_null(-1)) for chunk in column.chunks]
        parts = [objects([*texts, None])[_numbers(indices)] for texts, indices in pairs]
    else:
        if column.null_count and kind in ("float", "int"):
            with contextlib.suppress(pa.ArrowInvalid):  # integers that a float cannot hold
                column = column.cast(pa.float64()).fill_null(np.nan)
        if kind in ("float", "int", "bool") and not column.null_count:
            parts = [_numbers(chunk) for chunk in column.chunks] or [np.empty(0, column.type.to_pandas_dtype())]
        else:
            parts = [objects(column.to_pylist())]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else objects([])


def _numbers(array: pa.Array) -> np.ndarray:
    """Numbers where they lie. Arrow's own conversion would import pandas to find out whether it is installed."""
    return np.array(array.to_pylist(), bool) if pa.types.is_boolean(array.type) else np.from_dlpack(array)


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
        problem = f"cannot be stored as {array.dtype} ({one_line(error)})"
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


# ---- columns that are read when they are asked for


@dataclasses.dataclass(eq=False)
class Source:
    """Columns by name, read when they are asked for: the one place where the bytes of a file become arrays."""

    schema: pa.Schema  # of all columns; it and the number of rows are known without reading them
    n_rows: int
    load: Callable[[list[str], int | None], Iterable[pa.RecordBatch]]  # of columns, in batches of about so many rows
    origin: str  # what messages call it
    mapped: bool = False  # whether rows are views of memory, or of a memory map, that cost nothing to read again
    keep: bool = False  # whether the whole embedding is one such view
    unusable: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what a table cannot hold, and why
    parts: Sequence["Source"] = ()  # of a folder: its files, in the order of their names
    embedding: Sequence[str] = ("embedding",)  # one column of lists, or one column per dimension
    read_columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    opened: tuple[str, str | None] | None = None  # what `sources.read` was called with: path and embedding

    def __post_init__(self) -> None:
        repeated = [name for name, n in Counter(self.schema.names).items() if n > 1]
        if repeated:
            raise TableError(f"{self.origin} has two columns called {repeated[0]!r}; rename one")

    @classmethod
    def of(cls, table: pa.Table, origin: str) -> Self:
        """Columns of a table in memory or in a memory map."""

        def load(names: list[str], rows: int | None) -> list[pa.RecordBatch]:
            return table.select(names).to_batches()

        is_one = all(column.num_chunks <= 1 for column in table.columns)
        return cls(table.schema, len(table), load, origin, mapped=True, keep=is_one)

    def choose(self, embedding: str | None) -> Self:
        """Find the column or columns that hold the embedding."""
        if META in (self.schema.metadata or {}) and embedding is None and "embedding" in self.schema.names:
            return self
        kinds = {field.name: kind_of(field.type) for field in self.schema}
        contents = ", ".join(f"{field.name} {field.type}" for field in list(self.schema)[:50])
        self.embedding = choose(kinds, embedding, contents, self.origin)
        if words := [name for name in self.embedding if kinds[name] not in ("list", "float", "int")]:
            raise not_a_number(self.table(words), words, self.origin)
        return self

    # ---- columns

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

    @cached_property
    def id_name(self) -> str | None:
        """The stored column that names the rows, if there is one."""
        return next((name for name in ID_NAMES if name in self.schema.names and name not in self.embedding), None)

    @cached_property
    def columns(self) -> dict[str, str]:
        """The stored name of every column that a table can use, by the name that it has in the table."""
        others = [name for name in self.schema.names if name not in {self.id_name, *self.embedding}]
        return {column_name(n): n for n in others if kind_of(self.schema.field(n).type) != "other"}

    @cached_property
    def skipped(self) -> dict[str, str]:
        """Columns that cannot be used, each with the reason."""
        reason = "its type {} is not bool, integer, float, text or a list of numbers"
        unusable = set(self.schema.names) - {self.id_name, *self.embedding, *self.columns.values()}
        fields = (field for field in self.schema if field.name in unusable)
        return {field.name: reason.format(field.type) for field in fields} | dict(self.unusable)

    def column(self, name: str, keep: bool = True) -> np.ndarray:
        """One column as NumPy, by the name that it has in a table."""
        if name in self.read_columns:
            return self.read_columns[name]
        stored = self.columns.get(name, name)
        with reading(self.origin):
            values = read_only(to_numpy(self.table([stored]).column(0), stored))
        if keep:
            self.read_columns[name] = values
        return values

    @cached_property
    def ids(self) -> pa.ChunkedArray:
        """The ids as Arrow text, which takes a fraction of the memory of Python's; the row numbers if there are none.

        Where an id repeats, the error names the parts of a folder that have it.
        """
        if self.id_name is None:
            return to_ids(None, self.n_rows)
        with reading(self.origin):
            ids = to_ids(self.table([self.id_name]).column(0), self.n_rows)
            if pc.count_distinct(ids).as_py() < len(ids):
                texts, origin = ids.to_pylist(), self.origin
                if self.parts:
                    repeated = Counter(texts).most_common(1)[0][0]
                    parts = self.part_of([row for row, text in enumerate(texts) if text == repeated])
                    origin = " and ".join(dict.fromkeys(self.parts[i].origin for i in parts.tolist()))
                check_unique(texts, origin)
            return ids

    def check_ids(self) -> None:
        """Refuse ids that repeat, before any of them is used."""
        if self.id_name is not None:
            self.ids  # noqa: B018 - read for its check

    def part_of(self, rows: Any) -> np.ndarray:
        """The number of the part that each of these rows is in."""
        return np.searchsorted(np.cumsum([part.n_rows for part in self.parts]), rows, side="right")

    # ---- the embedding

    @cached_property
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
        """The embedding in blocks of rows, in order, read again at every call; a column of lists without a copy."""
        if self.parts:
            for part in self.parts:
                yield from part.matrices(rows)
            return
        width, dtype = self.matrix_type
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

    @cached_property
    def whole(self) -> np.ndarray:
        """The whole embedding as one array, which is kept; a view of a memory map that has it in one piece."""
        pieces = list(self.matrices())
        if len(pieces) == 1:
            return pieces[0]
        return read_only(np.concatenate([np.empty((0, self.matrix_type[0]), self.matrix_type[1]), *pieces]))

    @property
    def is_kept(self) -> bool:
        """Whether to have the whole embedding at once, because that costs little or is done already."""
        width, dtype = self.matrix_type
        is_small = self.n_rows * width * dtype.itemsize <= KEPT
        is_view = self.mapped and len(self.embedding) == 1  # and not made of a column for each dimension
        return self.keep or "whole" in self.__dict__ or (is_small and not is_view)

    def blocks(self, size: int, rows: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """The embedding in order, at most `size` rows at a time: all of it, or `rows` that increase.

        From memory where it is kept, or else read again.
        """
        start = 0
        at_hand = self.keep or "whole" in self.__dict__
        if self.parts and rows is not None and not at_hand:  # only the parts that these rows are in
            for part in self.parts:
                low, high = np.searchsorted(rows, (start, start + part.n_rows))
                if low < high:
                    yield from part.blocks(size, rows[low:high] - start)
                start += part.n_rows
            return
        blocks: Iterator[np.ndarray]
        if at_hand:
            blocks = (self.whole[i : i + size] for i in range(0, self.n_rows, size))
        else:
            blocks = self.matrices(size)
        for block in blocks:
            if rows is None:
                yield block
                continue
            low, high = np.searchsorted(rows, (start, start + len(block)))
            if low < high:
                yield block if high - low == len(block) else read_only(block[rows[low:high] - start])
            if high == len(rows):
                return
            start += len(block)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Some rows of the embedding in any order; rows without a gap in one piece are a view."""
        if self.is_kept:
            if without_gap(rows):
                return self.whole[rows[0] : rows[0] + len(rows)]
            return read_only(self.whole[rows])
        order, start = np.argsort(rows, kind="stable"), 0
        X = np.empty((len(rows), self.matrix_type[0]), self.matrix_type[1])
        for block in self.blocks(BATCH, rows[order]):
            X[order[start : start + len(block)]] = block
            start += len(block)
        return read_only(X)

    # ---- provenance and digest

    @cached_property
    def recorded(self) -> tuple[dict[str, Any], str | None]:
        """Provenance and digest in our own files; of a folder the provenance that its parts share, and no digest."""
        if self.parts:
            recorded = [part.recorded[0] for part in self.parts]
            for key in SAME_IN_ALL_PARTS:
                for part, found in zip(self.parts, recorded):
                    if key in found and found[key] != recorded[0].get(key, found[key]):
                        first = f"{self.parts[0].origin} with {recorded[0][key]!r}"
                        raise TableError(f"{part.origin} was embedded with {key} {found[key]!r}, {first}")
            return {k: v for k, v in recorded[0].items() if all(each.get(k) == v for each in recorded)}, None
        meta = json.loads((self.schema.metadata or {}).get(META, b"{}"))
        if not meta:
            return {}, None
        provenance = json.loads(meta["provenance"])
        if not isinstance(provenance, dict) or seal(meta["digest"], provenance) != meta["seal"]:
            raise damaged(self.origin, "its provenance was edited after it was written")
        return provenance, meta["digest"]

    @cached_property
    def verified(self) -> tuple[str, np.ndarray]:
        """What `verify` found, once."""
        return self.verify()

    def verify(self) -> tuple[str, np.ndarray]:
        """One pass over everything: the digest, compared with the stored one, and the rows that are not finite.

        The digest of a folder is made of the names and digests of its parts.
        """
        bad: list[np.ndarray] = [np.empty(0, np.intp)]
        if self.parts:
            start, digests = 0, []
            with ThreadPoolExecutor(min(available_cores(), 8)) as pool:
                found = list(pool.map(Source.verify, self.parts))  # not `verified`, which one thread at a time can make
            for part, (digest, rows) in zip(self.parts, found):
                bad.append(start + rows)
                digests.append([part.origin.removeprefix(self.origin), digest])
                start += part.n_rows
            return "sha256:" + hashlib.sha256(to_json(digests).encode()).hexdigest(), np.concatenate(bad)

        def checked() -> Iterator[np.ndarray]:
            start = 0
            for X in self.blocks(BATCH):
                bad.append(start + not_finite(X))
                start += len(X)
                yield X

        columns = ((name, self.column(name, keep=False)) for name in sorted(self.columns))
        digest = content_digest(checked(), (self.n_rows, *self.matrix_type), self.ids, columns)
        if self.recorded[1] not in (None, digest):
            raise damaged(self.origin, "its content does not match the digest stored with it")
        return digest, np.concatenate(bad)


def without_gap(rows: np.ndarray) -> bool:
    """Whether these are consecutive numbers, so that a slice will do."""
    return len(rows) > 0 and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows)))


def not_finite(X: np.ndarray) -> np.ndarray:
    """Numbers of the rows with NaN or infinity."""
    if X.dtype == np.float16:  # by their exponent: NumPy compares such numbers slowly
        exponent = np.uint16(0x7C00)
        if not X.size or (X.view(np.uint16) & exponent).max() < exponent:
            return np.empty(0, dtype=np.intp)
    # They show in the extremes, which cost less than a test of every number.
    elif not X.size or (np.isfinite(X.min()) and np.isfinite(X.max())):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(~np.isfinite(X).all(axis=1))


def content_digest(
    blocks: Iterable[np.ndarray],
    kind: tuple[int, int, np.dtype],
    ids: pa.ChunkedArray,
    columns: Iterable[tuple[str, np.ndarray]],
) -> str:
    """SHA-256 of rows, ids and columns in the order of their names: one for every file format and cut into blocks.

    `kind` is the number of rows, the width and the type of the embedding.
    """
    state = hashlib.sha256()

    def add(array: np.ndarray) -> None:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        state.update(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)

    def header(name: str, dtype: np.dtype | str, shape: tuple[int, ...]) -> None:
        code = dtype if isinstance(dtype, str) else dtype.newbyteorder("<").str
        state.update(to_json([name, code, list(shape)]).encode())

    n_rows, width, dtype = kind
    # A table without rows never showed its type to the digest.
    header("embedding", dtype if n_rows else np.dtype(np.float32), (n_rows, width))
    for X in blocks:
        add(X)

    def add_texts(name: str, texts: pa.Array | pa.ChunkedArray) -> None:
        header(name, "U", (len(texts),))
        add(np.cumsum(np.append(0, pc.binary_length(texts).to_numpy(zero_copy_only=False)), dtype=np.int64))
        for start in range(0, len(texts), BATCH):
            state.update("".join(texts[start : start + BATCH].to_pylist()).encode())

    add_texts("id", ids)
    for name, column in columns:
        values, missing = filled(column)
        if values.dtype.kind == "O":
            add_texts(name, pa.array(values, pa.large_string()))
        else:
            header(name, values.dtype, values.shape)
            add(values)
        if missing is not None:
            header(f"{name}#missing", missing.dtype, missing.shape)
            add(missing)
    return "sha256:" + state.hexdigest()


def seal(digest: str, provenance: Mapping[str, Any]) -> str:
    """A short checksum of digest and provenance, so that edited metadata is noticed too."""
    return hashlib.sha256(f"{digest}\n{to_json(provenance)}".encode()).hexdigest()[:16]


def not_a_number(table: pa.Table, names: Sequence[str], origin: str) -> TableError:
    """The error for dimensions of an embedding that hold something else; it names the first such cell."""
    cells = []
    for name in names:
        for row, value in enumerate(table.column(name).to_pylist()):
            try:
                float("nan" if value in (None, "") else value)
            except (TypeError, ValueError):
                cells.append((row, f"{name!r} of row {row} in {origin} is {str(value)[:40]!r}; expected a number"))
                break
    problem = min(cells, default=(0, f"{names[0]!r} of {origin} is not a column of numbers"))[1]
    return TableError(f"{problem}. If it is not part of the embedding, give embedding= a pattern without it")


def in_memory(X: Any, columns: Mapping[str, Any], origin: str) -> Source:
    """Columns that are all there: the embedding and the columns with their ids, in one Arrow table."""
    values = {"embedding": X, **{column_name(name): column for name, column in columns.items()}}
    arrays = [to_arrow(name, column, len(X)) for name, column in values.items()]
    return Source.of(pa.table(arrays, names=list(values)), origin)
