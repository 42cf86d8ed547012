"""The embedding table: ids, one embedding matrix, typed columns; one file that opens in milliseconds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import pro2
from pro2.atomic import atomic_folder, atomic_write
from pro2.extras import imported
from pro2.tables import TableError, damaged, reading
from pro2.tables.columns import (
    ID_NAMES,
    RESERVED,
    check_unique,
    column_name,
    dimension_names,
    filled,
    labelled,
    objects,
    read_only,
    row_numbers,
    to_json,
)
from pro2.tables.where import close_names, parse

if TYPE_CHECKING:
    import pyarrow as pa

    from pro2.tables.sources import Source

SUFFIXES = {".arrow", ".feather", ".parquet", ".npz", ".npy", ".safetensors", ".csv", ".tsv"}
WRITERS = SUFFIXES - {".safetensors", ".tsv"}
BATCH = 8192
KEPT = 1 << 30  # bytes of embeddings: up to here they are kept once they were read
PART_ROWS = 1 << 16  # of each file of a folder that is written
SAME_IN_ALL_PARTS = ("backbone", "weights_digest", "layer", "preprocessing")


class EmbeddingTable:
    """Rows of embeddings with their ids and typed columns.

    Every array that comes out is read-only. Filters are lazy: they hold row numbers, and copy embedding rows only
    when ``embeddings`` is read.

    Parameters
    ----------
    embeddings : array of shape (n_rows, width)
        float16, float32 or float64; not copied when C-ordered.
    ids : sequence of str or int, optional
        One unique name per row, e.g. the relative image path. Row numbers when None.
    columns : mapping of name to array, optional
        bool, integer, float or text, one value per row (or a short row of numbers). None, NaN and pd.NA are missing
        values; text columns hold objects, None for a missing one.
    provenance : mapping, optional
        JSON values that say where the rows come from. `pro2 embed` writes ``backbone``, ``weights_digest``,
        ``layer``, ``preprocessing`` and ``image_list_digest``; saving adds ``pro2_version`` and the content digest.

    Examples
    --------
    >>> import numpy as np
    >>> table = EmbeddingTable(np.eye(3, dtype="f4"), ["a", "b", "c"], {"y": [0, 1, 1]})
    >>> table.where("y == 1").ids.tolist()
    ['b', 'c']
    """

    _whole: EmbeddingTable | None
    _lazy_rows: Callable[[], np.ndarray] | None

    def __init__(
        self,
        embeddings: Any,
        ids: Any = None,
        columns: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        from pro2.tables.arrow import to_ids
        from pro2.tables.sources import in_memory

        X = np.asarray(embeddings)
        if X.ndim != 2 or X.dtype.kind != "f" or X.dtype.itemsize > 8:
            raise TableError(
                f"embeddings must be a (rows, width) array of float16, float32 or float64, "
                f"found shape {X.shape}, dtype {X.dtype}; reshape it or use .astype('float32')"
            )
        for name in columns or {}:
            if not isinstance(name, str) or name in ("", "id", *RESERVED):
                raise TableError(f"a column cannot be called {name!r}; use a text other than id, {', '.join(RESERVED)}")
        try:
            to_json(dict(provenance or {}))
        except TypeError as error:
            raise TableError(f"provenance must hold JSON values (text, numbers, lists, mappings): {error}") from error
        named = dict(columns or {})
        if ids is not None or "ids" in named:  # row numbers are made when they are asked for
            named["id"] = to_ids(ids, len(X))
            _check_unique(named["id"], "ids")
        self._bind(in_memory(X, named, "this table"), provenance)

    def _bind(self, source: Source, provenance: Mapping[str, Any] | None = None) -> Self:
        """A whole table over the columns of a source."""
        from pro2.tables.arrow import kind_of

        self._whole, self._lazy_rows, self._source = None, None, source
        self._width, self._dtype = source.matrix_type()
        names = [name for name in source.schema.names if name not in set(source.embedding)]
        self._id_name = next((name for name in ID_NAMES if name in names), None)
        types = {name: source.schema.field(name).type for name in names if name != self._id_name}
        self._stored_names = {column_name(name): name for name, kind in types.items() if kind_of(kind) != "other"}
        reason = "its type {} is not bool, integer, float, text or a list of numbers"
        self._skipped = {name: reason.format(kind) for name, kind in types.items() if kind_of(kind) == "other"}
        self._skipped |= source.skipped
        self._read: dict[str, np.ndarray] = {}
        recorded, self._stored_digest = _recorded(source)
        self._provenance = MappingProxyType(dict(provenance or recorded))
        return self

    @classmethod
    def _of(cls, source: Source) -> Self:
        table = cls.__new__(cls)._bind(source)
        if table._stored_digest is None and table._id_name is not None:
            table.id_column  # noqa: B018 - read for its check, which our own files passed when they were written
        return table

    @property
    def _root(self) -> EmbeddingTable:
        return self if self._whole is None else self._whole  # no reference to itself: it would outlive its last use

    def _pick(self, rows: Callable[[], np.ndarray], note: str) -> Self:
        """Some rows of this table; what was read stays with the whole table."""
        table = type(self).__new__(type(self))
        table._whole, table._lazy_rows = self._root, rows
        before = self.provenance.get("selection")
        note = f"{before}; {note}" if before else note
        table._provenance = MappingProxyType({**self.provenance, "selection": note})
        return table

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        embedding: str | None = None,
        columns: Mapping[str, Any] | str | PathLike[str] | None = None,
    ) -> Self:
        """Open ``.arrow``/``.feather`` (memory-mapped), ``.parquet``, ``.npz``, ``.npy``, ``.safetensors``, ``.csv``.

        Nothing is read before it is asked for, and offsets are validated before they are used. The content is compared
        with the stored digest by `verify`, `digest` and `save`.

        Parameters
        ----------
        path : path or address
            A file; a folder of Arrow or Parquet files, where sub-folders called NAME=VALUE are a column; a saved
            Hugging Face data set; or a ``.lance`` data set. Files and folders of Arrow and Parquet may be in an object
            store: ``s3://bucket/folder``, ``gs://bucket/file.parquet``.
        embedding : str, optional
            Which array or column holds the embedding, when there is more than one candidate. For tables with one column
            per dimension a pattern (``e*``); columns are taken in the order of their numbers.
        columns : mapping or path of a CSV file, optional
            Only for ``.npy``: the columns; by default the CSV file of the same name in the same folder, if any.
        """
        from pro2.tables import arrays, csv_files, sources

        readers = {".npz": arrays.read_npz, ".safetensors": arrays.read_safetensors}
        readers |= dict.fromkeys((".csv", ".tsv"), csv_files.read_table)
        suffix, is_store = Path(path).suffix.lower(), sources.is_address(path)
        if columns is not None and suffix != ".npy":
            raise TableError(f"columns is only for .npy files; {Path(path).name} brings its own columns")
        if is_store or Path(path).is_dir():
            return cls._of(sources.read(path, embedding))
        path = Path(path)
        if suffix not in SUFFIXES:
            expected = ", ".join(sorted(SUFFIXES))
            raise TableError(f"cannot open {path}: suffix {path.suffix!r}; expected one of {expected}")
        if not path.exists():
            raise FileNotFoundError(f"no embedding table at {path}; make one with `pro2 embed`")
        with reading(path):
            if suffix == ".npy":
                source = arrays.read_npy(path, columns)
            else:
                source = readers.get(suffix, sources.read)(path, embedding)
            table = cls._of(source)
            if table._stored_digest is None and _carries_digest(path):
                raise damaged(path, "the digest in it is out of place")
            return table

    @classmethod
    def from_arrow(cls, data: Any, embedding: str | None = None) -> Self:
        """Rows of anything that gives an Arrow stream: a polars or pandas frame, a pyarrow table, a duckdb relation, a
        Hugging Face data set. A column ``id`` names the rows; `embedding` is chosen as in `open`.

        The other way needs no method: a table gives an Arrow stream itself, as in ``polars.DataFrame(table)``.
        """
        from pro2.tables.sources import read_object

        source = read_object(data, embedding)
        with reading(source.origin):
            return cls._of(source)

    @classmethod
    def from_pandas(cls, frame: Any, embedding: str | None = None) -> Self:
        """Rows of a pandas data frame, with the embedding in one column per dimension or in one column of arrays.

        A column or index called ``id`` names the rows; so does an index of texts without a name.
        """
        index = frame.index
        if index.name is None and "id" not in frame.columns and all(isinstance(label, str) for label in index):
            index = index.rename("id")
        frame = frame.set_axis(index).reset_index(drop=index.name is None)
        return cls.from_arrow(frame.set_axis(frame.columns.map(str), axis="columns"), embedding)

    def to_pandas(self) -> Any:
        """A pandas data frame: ``id``, the columns, and one column per dimension (``e0``, ``e1``, ...)."""
        pd = imported("pandas", "to_pandas needs pandas: pip install pandas")
        columns: dict[str, Any] = {"id": self.ids}
        columns |= {name: list(values) if values.ndim > 1 else values for name, values in self.columns.items()}
        wide = pd.DataFrame(self.embeddings, columns=dimension_names(self.width, list(columns)))
        return pd.concat([pd.DataFrame(columns), wide], axis=1)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for any library that reads Arrow; see the Arrow PyCapsule interface."""
        from pro2.tables.arrow import to_table

        return to_table(self, {}).__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The embedding matrix: a table can be given where an array is expected."""
        X = np.asarray(self.embeddings, dtype=dtype)
        return X.copy() if copy else X

    # ---- what is in it

    @cached_property
    def rows(self) -> np.ndarray:
        """Row numbers of this table in the table or file it was taken from."""
        return read_only(np.arange(self._root.n_rows) if self._lazy_rows is None else self._lazy_rows())

    @cached_property
    def embeddings(self) -> np.ndarray:
        """(n_rows, width), read-only; a view of the memory map unless rows were picked out of order."""
        if self._lazy_rows is not None:
            return self._root._gather(self.rows)
        if len(self._pieces) == 1:
            return self._pieces[0]
        return read_only(np.concatenate(self._pieces) if self._pieces else np.empty(self.shape, self.dtype))

    @cached_property
    def ids(self) -> np.ndarray:
        """One text per row, unique in the table or file they come from."""
        return read_only(objects(self.id_column.to_pylist()))

    @cached_property
    def id_column(self) -> pa.ChunkedArray:
        """The ids as Arrow text, which takes a fraction of the memory."""
        from pro2.tables.arrow import to_ids

        if self._lazy_rows is not None:
            return self._root.id_column.take(self.rows)
        source = self._source
        with reading(source.origin):
            stored = None if self._id_name is None else source.table([self._id_name]).column(0)
            ids = to_ids(stored, self.n_rows)
            if stored is not None:
                _check_unique(ids, source.origin, source.parts)
            return ids

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Name to read-only array; a column is read when it is asked for."""
        return _Columns(self)

    @property
    def skipped(self) -> Mapping[str, str]:
        """Columns of the file that cannot be used, each with the reason."""
        return self._root._skipped

    def column(self, name: str) -> np.ndarray:
        """One column; the error for an unknown name lists the most similar ones."""
        root = self._root
        if name == "id":
            return self.ids
        if name in self.skipped:
            raise TableError(f"column {name!r} of {root._source.origin} cannot be used: {self.skipped[name]}")
        if name not in root._stored_names:
            raise TableError(f"no column {name!r} in {root._source.origin}; {close_names(name, list(self.columns))}")
        if name not in root._read:
            root._read[name] = root._source.column(root._stored_names[name])
        return root._read[name] if self._lazy_rows is None else read_only(root._read[name][self.rows])

    def one_per_row(self, name: str, use: str) -> np.ndarray:
        """A column of single values; of a column with several per row the error says what the `use` needs."""
        values = self.column(name)
        if values.ndim != 1:
            raise TableError(f"column {name!r} holds {values.shape[1]} numbers per row; {use} one value per row")
        return values

    @property
    def n_rows(self) -> int:
        return self._source.n_rows if self._lazy_rows is None else len(self.rows)

    @property
    def width(self) -> int:
        return self._root._width

    @property
    def shape(self) -> tuple[int, int]:
        """Of the embedding matrix."""
        return self.n_rows, self.width

    @property
    def dtype(self) -> np.dtype:
        return self._root._dtype

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self._provenance

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        rows = "lazy" if self._lazy_rows is not None and "rows" not in self.__dict__ else str(self.n_rows)
        columns = ", ".join(self.columns) or "none"
        return f"EmbeddingTable({rows} rows, width {self.width}, {self.dtype}, columns: {columns})"

    def X_y(self, label: str) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings and labels for an estimator; rows without a label have None, NaN or empty text for one.

        An embedding that is not finite is refused under its id.
        """
        y = self.one_per_row(label, "a label is")
        self._refuse(self.rows[_not_finite(self.embeddings)])
        return self.embeddings, y

    def align(self, ids: Any, values: Any) -> np.ndarray:
        """Values given by id, in the order of this table's rows; None for rows that have none.

        An id that the file does not have is an error, because a label without a row is a lost label. An id that a
        filter left out is not.
        """
        from pro2.tables.arrow import to_ids

        keys = to_ids(ids, len(values)).to_pylist()
        unknown = set(keys) - set(self._root.id_column.to_pylist())
        if unknown:
            raise TableError(
                f"{len(unknown)} of {len(keys)} ids are not in {self._root._source.origin}, e.g. {min(unknown)!r}; "
                f"its first is {self._root.ids[0]!r}: check that both write ids the same way"
            )
        by_id = dict(zip(keys, np.asarray(values).tolist()))
        return read_only(objects([by_id.get(name) for name in self.ids.tolist()]))

    # ---- some of its rows

    def iter_batches(self, rows: int = BATCH) -> Iterator[tuple[np.ndarray, slice]]:
        """Yield (embedding rows, their slice) in order; at most `rows` at a time, never the whole matrix.

        For a memory-mapped file each batch is a view, so a table larger than memory streams through.
        """
        if rows < 1:
            raise TableError(f"rows must be at least 1, found {rows}")
        start = 0
        for X in self._root._blocks(rows) if self._lazy_rows is None else self._picked(rows):
            yield X, slice(start, start := start + len(X))

    def _blocks(self, rows: int) -> Iterator[np.ndarray]:
        """The embedding of a whole table, in order: from memory where it is kept, or else read again."""
        if self._source.keep or "_pieces" in self.__dict__:
            return (piece[i : i + rows] for piece in self._pieces for i in range(0, len(piece), rows))
        return self._source.matrices(rows)

    def _picked(self, rows: int) -> Iterator[np.ndarray]:
        """The embedding of some rows; while the whole passes by, where their order allows that."""
        if self._root._is_kept or not (self.rows[1:] > self.rows[:-1]).all():
            yield from (self._root._gather(self.rows[i : i + rows]) for i in range(0, self.n_rows, rows))
            return
        start = 0
        for block in self._root._blocks(rows):
            low, high = np.searchsorted(self.rows, (start, start + len(block)))
            if low < high:
                yield read_only(block[self.rows[low:high] - start])
            start += len(block)

    def where(self, expression: str) -> Self:
        """Rows that satisfy a filter such as ``"split == 0 and y != place"``; lazy.

        The text is parsed, never run: ``==  !=  <  <=  >  >=  in [..]`` over columns (and ``id``), joined by
        ``and``, ``or``, ``not`` and parentheses; text values in quotes, odd column names in backticks.
        """
        mask = parse(expression, ["id", *self.columns])
        return self._pick(lambda: self.rows[mask(self.column)], f"where {expression}")

    def split(self, column: str) -> dict[Any, Self]:
        """One lazy table for each value of a column, in sorted order; rows without a value are in none of them."""
        values = self.one_per_row(column, "split needs")
        return {
            value: self._pick(partial(np.compress, values == value, self.rows), f"{column} == {value!r}")
            for value in np.unique(labelled(values)[0]).tolist()
        }

    def head(self, n: int = 5) -> Self:
        """The first `n` rows."""
        if n < 0:
            raise TableError(f"n must not be negative, found {n}")
        return self._pick(lambda: self.rows[:n], f"head {n}")

    def take(self, rows: Any) -> Self:
        """Rows by number (or by a boolean mask), in the order given."""
        index = row_numbers(rows, self.n_rows)
        return self._pick(lambda: self.rows[index], f"take {len(index)}")

    # ---- digest and files

    @cached_property
    def digest(self) -> str:
        """Digest of ids, rows and columns, computed from them; a file that stores another one is refused as damaged."""
        whole, _ = self._root._verified
        if self._lazy_rows is None and not self._source.parts:
            return whole
        return _digest(self, (X for X, _ in self.iter_batches()), self.column)

    @property
    def origin_digest(self) -> str | None:
        """Digest of the whole file or table that these rows were taken from; None as long as nobody verified it.

        That of a folder is made of the names and digests of its parts.
        """
        return self._root._verified[0] if "_verified" in self._root.__dict__ else None

    def check(self) -> None:
        """What `verify` does, without the digest of these rows: a selection costs no second pass."""
        _, bad = self._root._verified
        self._refuse(bad if self._lazy_rows is None else np.intersect1d(bad, self.rows))

    def verify(self) -> str:
        """Read everything once: compare it with the stored digest, and check that ids are unique and rows finite.

        Returns
        -------
        str
            The digest. Raises ValueError when the file was truncated or altered, an id repeats, or an embedding
            of this table is not finite; the message says what to do.
        """
        self.check()
        return self.digest

    def save(self, path: str | PathLike[str], force: bool = False, *, spreadsheet: bool = True) -> Path:
        """Write atomically; the suffix chooses the format. An existing file is kept unless ``force``.

        Without a suffix it is a folder of Arrow files, each of 65,536 rows.

        In CSV files, text that a spreadsheet would take for a formula gets a quote before it, which `open` removes
        again; ``spreadsheet=False`` writes it as it is.
        """
        from pro2.tables import arrays, arrow, csv_files

        path = Path(path)
        suffix = path.suffix.lower()
        if suffix == "":
            return atomic_folder(path, self._save_parts, force)
        if suffix not in WRITERS:
            expected = ", ".join(sorted(WRITERS))
            raise TableError(f"cannot write {path}: suffix {path.suffix!r}; expected one of {expected}, or a folder")
        if suffix == ".csv":
            return atomic_write(path, partial(csv_files.write_table, self, spreadsheet=spreadsheet), force)
        if suffix == ".npy":  # the columns first: a .npy file that is there then always has its CSV file
            columns = partial(csv_files.write_columns, self, spreadsheet=spreadsheet)
            atomic_write(path.with_suffix(".csv"), columns, force)
            return atomic_write(path, lambda file: np.save(file, self.embeddings, allow_pickle=False), force)
        provenance = {"pro2_version": pro2.__version__, **self.provenance}
        meta = {"provenance": to_json(provenance), "digest": self.digest, "seal": _seal(self.digest, provenance)}
        write = {".parquet": arrow.write_parquet, ".npz": arrays.write_npz}.get(suffix, arrow.write_arrow)
        return atomic_write(path, partial(write, self, meta), force)

    def _save_parts(self, folder: Path) -> None:
        for i, start in enumerate(range(0, max(self.n_rows, 1), PART_ROWS)):
            rows = slice(start, start + PART_ROWS)
            columns = {name: values[rows] for name, values in self.columns.items()}
            part = type(self)(self.embeddings[rows], self.ids[rows], columns, self.provenance)
            part.save(folder / f"part-{i:05d}.arrow")

    # ---- reading, of a whole table only

    @cached_property
    def _pieces(self) -> list[np.ndarray]:
        """The embedding as the arrays that a file has it in; views of a memory map cost nothing."""
        return list(self._source.matrices())

    @property
    def _is_kept(self) -> bool:
        """Whether to have the whole embedding at once, because that costs little or is done already."""
        n_bytes = self.n_rows * self.width * self.dtype.itemsize
        return self._source.keep or "_pieces" in self.__dict__ or n_bytes <= KEPT

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        """Some rows of the embedding; rows without a gap in one piece are a view."""
        if self._is_kept and len(self._pieces) == 1:
            if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
                return self._pieces[0][rows[0] : rows[0] + len(rows)]
            return read_only(self._pieces[0][rows])
        order = np.argsort(rows, kind="stable")
        ordered, start, high = rows[order], 0, 0
        X = np.empty((len(rows), self.width), self.dtype)
        for block in self._pieces if self._is_kept else self._blocks(BATCH):
            low, high = high, int(np.searchsorted(ordered, start + len(block)))
            X[order[low:high]] = block[ordered[low:high] - start]
            start += len(block)
            if high == len(rows):
                break
        return read_only(X)

    @cached_property
    def _verified(self) -> tuple[str, np.ndarray]:
        """One pass over everything: `origin_digest`, and the rows that are not finite."""
        if self._source.parts:
            start, bad_rows, digests = 0, [], []
            for part in self._source.parts:
                digest, rows = type(self)._of(part)._verified
                bad_rows.append(start + rows)
                digests.append([part.origin.removeprefix(self._source.origin), digest])
                start += part.n_rows
            return "sha256:" + hashlib.sha256(to_json(digests).encode()).hexdigest(), np.concatenate(bad_rows)
        bad: list[int] = []

        def blocks() -> Iterator[np.ndarray]:
            for X, span in self.iter_batches():
                bad.extend((span.start + _not_finite(X)).tolist())
                yield X

        def column(name: str) -> np.ndarray:  # not kept: a caption that nobody uses costs no memory
            kept = name == "id" or name in self._read
            return self.column(name) if kept else self._source.column(self._stored_names[name])

        digest = _digest(self, blocks(), column)
        if self._stored_digest not in (None, digest):
            raise damaged(self._source.origin, "its content does not match the digest stored with it")
        return digest, np.array(bad, dtype=np.intp)

    def _refuse(self, bad: np.ndarray) -> None:
        if len(bad):
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            raise TableError(
                f"row {bad[0]} (id {self._root.ids[bad[0]]!r}){more} of {self._root._source.origin} is not finite "
                "(NaN or infinity); leave the row out or embed it again"
            )


class _Columns(Mapping[str, np.ndarray]):
    """Columns by name, read on demand."""

    def __init__(self, table: EmbeddingTable) -> None:
        self._table, self._names = table, table._root._stored_names

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._table.column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"columns({', '.join(self)})"


def _not_finite(X: np.ndarray) -> np.ndarray:
    """Numbers of the rows with NaN or infinity."""
    # They show in the extremes, which cost less than a test of every number.
    if not X.size or (np.isfinite(X.min()) and np.isfinite(X.max())):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(~np.isfinite(X).all(axis=1))


def _digest(table: EmbeddingTable, blocks: Iterable[np.ndarray], column: Callable[[str], np.ndarray]) -> str:
    """SHA-256 of rows, ids and columns: the same for every file format and every cut into blocks."""
    state = hashlib.sha256()

    def header(name: str, kind: np.dtype | str, shape: tuple[int, ...]) -> None:
        code = kind if isinstance(kind, str) else kind.newbyteorder("<").str
        state.update(to_json([name, code, list(shape)]).encode())

    def add(array: np.ndarray) -> None:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        state.update(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)

    # A table without rows never showed its type to the digest.
    header("embedding", table.dtype if table.n_rows else np.dtype(np.float32), table.shape)
    for X in blocks:
        add(X)
    for name in ["id", *sorted(table.columns)]:  # not every format keeps the order of its columns
        values, missing = filled(column(name))
        header(name, "U" if values.dtype.kind == "O" else values.dtype, values.shape)
        if values.dtype.kind == "O":
            texts = [value.encode() for value in values.tolist()]
            add(np.cumsum([0, *map(len, texts)], dtype=np.int64))
            state.update(b"".join(texts))
        else:
            add(values)
        if missing is not None:
            header(f"{name}#missing", missing.dtype, missing.shape)
            add(missing)
    return "sha256:" + state.hexdigest()


def _recorded(source: Source) -> tuple[dict[str, Any], str | None]:
    """Provenance and digest in our own files; of a folder the provenance that its parts share, and no digest."""
    from pro2.tables.arrow import META

    if source.parts:
        recorded = [_recorded(part)[0] for part in source.parts]
        for key in SAME_IN_ALL_PARTS:
            for part, found in zip(source.parts, recorded):
                if key in found and found[key] != recorded[0].get(key, found[key]):
                    first = f"{source.parts[0].origin} with {recorded[0][key]!r}"
                    raise TableError(f"{part.origin} was embedded with {key} {found[key]!r}, {first}")
        shared = {key: value for key, value in recorded[0].items() if all(each.get(key) == value for each in recorded)}
        return shared, None
    meta = json.loads((source.schema.metadata or {}).get(META, b"{}"))
    if not meta:
        return {}, None
    provenance = json.loads(meta["provenance"])
    if not isinstance(provenance, dict) or _seal(meta["digest"], provenance) != meta["seal"]:
        raise damaged(source.origin, "its provenance was edited after it was written")
    return provenance, meta["digest"]


def _check_unique(ids: pa.ChunkedArray, origin: str, parts: Sequence[Source] = ()) -> None:
    """Refuse ids that repeat; of a folder the error names the parts that have one."""
    import pyarrow.compute as pc

    if pc.count_distinct(ids).as_py() == len(ids):
        return
    texts = ids.to_pylist()
    if parts:
        repeated = next(text for text, n in Counter(texts).items() if n > 1)
        rows = [row for row, text in enumerate(texts) if text == repeated]
        of = np.searchsorted(np.cumsum([part.n_rows for part in parts]), rows, side="right")
        origin = " and ".join(dict.fromkeys(parts[i].origin for i in of.tolist()))
    check_unique(objects(texts), origin)


def _seal(digest: str, provenance: Mapping[str, Any]) -> str:
    """A short checksum of digest and provenance, so that edited metadata is noticed too."""
    return hashlib.sha256(f"{digest}\n{to_json(provenance)}".encode()).hexdigest()[:16]


def _carries_digest(path: Path) -> bool:
    """Whether either end of a file holds our description, also where damage keeps a reader from finding it."""
    with path.open("rb") as file:
        ends = file.read(1 << 20)
        file.seek(max(0, path.stat().st_size - (1 << 20)))
        ends += file.read()
    # .npz has four bytes per character, and .safetensors JSON within JSON
    plain = ends.replace(b"\0", b"").replace(b"\\", b"")
    return any(mark in plain for mark in (b'"digest":"sha256:', b'","seal":"'))
