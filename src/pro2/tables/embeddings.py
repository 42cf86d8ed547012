"""The embedding table: ids, one embedding matrix, typed columns; one file that opens in milliseconds."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pro2
from pro2.atomic import atomic_folder, atomic_write
from pro2.extras import imported
from pro2.tables import TableError, arrays, csv_files, sources
from pro2.tables.arrow import BATCH, Source, content_digest, in_memory, not_finite, seal, to_ids, without_gap
from pro2.tables.columns import RESERVED, dimension_names, labelled, objects, read_only, row_numbers, to_json
from pro2.tables.where import close_names, parse

SUFFIXES = {".arrow", ".feather", ".parquet", ".npz", ".npy", ".safetensors", ".csv", ".tsv"}
WRITERS = SUFFIXES - {".safetensors", ".tsv"}
MAX_NUMBERS = 10**7  # that are written as CSV
PART_ROWS = 1 << 16  # of each file of a folder that is written


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

    provenance: Mapping[str, Any]
    _source: Source
    _lazy_rows: Callable[[], np.ndarray] | None = None  # numbers of these rows in the source; None for all of it

    def __init__(
        self,
        embeddings: Any,
        ids: Any = None,
        columns: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        X = np.asarray(embeddings)
        if X.ndim != 2 or X.dtype.kind != "f" or X.dtype.itemsize > 8:
            raise TableError(
                f"embeddings must be a (rows, width) array of float16, float32 or float64, "
                f"found shape {X.shape}, dtype {X.dtype}; reshape it or use .astype('float32')"
            )
        named = dict(columns or {})
        for name in named:
            if not isinstance(name, str) or name in ("", "id", *RESERVED):
                raise TableError(f"a column cannot be called {name!r}; use a text other than id, {', '.join(RESERVED)}")
        try:  # as a file gives it back, where all keys are text
            self.provenance = MappingProxyType(json.loads(to_json(dict(provenance or {}))))
        except TypeError as error:
            raise TableError(f"provenance must hold JSON values (text, numbers, lists, mappings): {error}") from error
        if ids is not None or "ids" in named:  # row numbers are made when they are asked for
            named["id"] = to_ids(ids, len(X))
        self._source = in_memory(X, named, "this table")
        self._source.check_ids()

    @classmethod
    def _of(cls, source: Source) -> Self:
        table = cls.__new__(cls)
        provenance, digest = source.recorded
        table._source, table.provenance = source, MappingProxyType(provenance)
        if digest is None:  # in our own files no id repeats
            source.check_ids()
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
        source = sources.read(path, embedding, columns)
        source.opened = str(path), embedding
        return cls._of(source)

    @classmethod
    def from_arrow(cls, data: Any, embedding: str | None = None) -> Self:
        """Rows of anything that gives an Arrow stream: a polars or pandas frame, a pyarrow table, a duckdb relation, a
        Hugging Face data set. A column ``id`` names the rows; `embedding` is chosen as in `open`.

        The other way needs no method: a table gives an Arrow stream itself, as in ``polars.DataFrame(table)``.
        """
        return cls._of(sources.read_object(data, embedding))

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
        columns = {"id": self.ids, "embedding": self.embeddings, **self.columns}
        return sources.to_table(columns).__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The embedding matrix: a table can be given where an array is expected."""
        X = np.asarray(self.embeddings, dtype=dtype)
        return X.copy() if copy else X

    # ---- what is in it

    @cached_property
    def rows(self) -> np.ndarray:
        """Row numbers of this table in the table or file it was taken from."""
        return read_only(np.arange(self.n_rows) if self._lazy_rows is None else self._lazy_rows())

    @cached_property
    def embeddings(self) -> np.ndarray:
        """(n_rows, width), read-only; a view of the memory map unless rows were picked out of order."""
        return self._source.whole if self._lazy_rows is None else self._source.gather(self.rows)

    @cached_property
    def ids(self) -> np.ndarray:
        """One text per row, unique in the table or file they come from."""
        return read_only(objects(self.id_column.to_pylist()))

    @property
    def id_column(self) -> pa.ChunkedArray:
        """The ids as Arrow text, which takes a fraction of the memory."""
        ids = self._source.ids
        if self._lazy_rows is None:
            return ids
        return ids.slice(self.rows[0], len(self.rows)) if without_gap(self.rows) else ids.take(self.rows)

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Name to read-only array; a column is read when it is asked for."""
        return _Columns(self)

    @property
    def skipped(self) -> Mapping[str, str]:
        """Columns of the file that cannot be used, each with the reason."""
        return self._source.skipped

    def column(self, name: str) -> np.ndarray:
        """One column; the error for an unknown name lists the most similar ones."""
        source = self._source
        if name == "id":
            return self.ids
        if name in source.skipped:
            raise TableError(f"column {name!r} of {source.origin} cannot be used: {source.skipped[name]}")
        if name not in source.columns:
            raise TableError(f"no column {name!r} in {source.origin}; {close_names(name, list(source.columns))}")
        values = source.column(name)
        return values if self._lazy_rows is None else read_only(values[self.rows])

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
        return self._source.matrix_type[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the embedding matrix."""
        return self.n_rows, self.width

    @property
    def dtype(self) -> np.dtype:
        return self._source.matrix_type[1]

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
        self._refuse(self.rows[not_finite(self.embeddings)])
        return self.embeddings, y

    def align(self, ids: Any, values: Any) -> np.ndarray:
        """Values given by id, in the order of this table's rows; None for rows that have none.

        An id that the file does not have is an error, because a label without a row is a lost label. An id that a
        filter left out is not.
        """
        known = self._source.ids
        keys = to_ids(ids, len(values)).cast(known.type).combine_chunks()
        place = pc.index_in(known, value_set=keys)  # of each row of the file, among the keys
        by_id = dict(zip(keys.to_pylist(), np.asarray(values).tolist()))
        unknown = by_id.keys() - set(keys.take(place.unique().drop_null()).to_pylist())
        if unknown:
            raise TableError(
                f"{len(unknown)} of {len(keys)} ids are not in {self._source.origin}, e.g. {min(unknown)!r}; "
                f"its first is {known[0].as_py()!r}: check that both write ids the same way"
            )
        found = objects([*(by_id[key] for key in keys.to_pylist()), None])
        return read_only(found[place.fill_null(-1).to_numpy()[self.rows]])

    # ---- some of its rows

    def iter_batches(self, rows: int = BATCH) -> Iterator[tuple[np.ndarray, slice]]:
        """Yield (embedding rows, their slice) in order; at most `rows` at a time, never the whole matrix.

        For a memory-mapped file each batch is a view, so a table larger than memory streams through.
        """
        if rows < 1:
            raise TableError(f"rows must be at least 1, found {rows}")
        source, start = self._source, 0
        picked = None if self._lazy_rows is None else self.rows
        # rows in order are picked while the whole passes by
        if picked is None or (not source.is_kept and (picked[1:] > picked[:-1]).all()):
            blocks = source.blocks(rows, picked)
        else:
            blocks = (source.gather(picked[i : i + rows]) for i in range(0, len(picked), rows))
        for X in blocks:
            yield X, slice(start, start := start + len(X))

    def _pick(self, rows: Callable[[], np.ndarray], note: str) -> Self:
        """Some rows of this table; what was read stays with the source."""
        table = type(self).__new__(type(self))
        table._source, table._lazy_rows = self._source, rows
        notes = filter(None, [self.provenance.get("selection"), note])
        table.provenance = MappingProxyType({**self.provenance, "selection": "; ".join(notes)})
        return table

    def where(self, expression: str) -> Self:
        """Rows that satisfy a filter such as ``"split == 0 and y != place"``; lazy.

        The text is parsed, never run: ``==  !=  <  <=  >  >=  in [..]`` over columns (and ``id``), joined by
        ``and``, ``or``, ``not`` and parentheses; text values in quotes, odd column names in backticks, ``None`` for a
        missing value.
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
        whole, _ = self._source.verified
        if self._lazy_rows is None and not self._source.parts:
            return whole
        columns = ((name, self.column(name)) for name in sorted(self.columns))
        return content_digest((X for X, _ in self.iter_batches()), (*self.shape, self.dtype), self.id_column, columns)

    @property
    def origin_digest(self) -> str | None:
        """Digest of the whole file or table that these rows were taken from; None as long as nobody verified it.

        That of a folder is made of the names and digests of its parts.
        """
        return self._source.verified[0] if "verified" in self._source.__dict__ else None

    def check(self) -> None:
        """What `verify` does, without the digest of these rows: a selection costs no second pass."""
        _, bad = self._source.verified
        self._refuse(bad if self._lazy_rows is None else np.intersect1d(bad, self.rows))

    def verify(self) -> str:
        """Read everything once: compare it with the stored digest, which is returned.

        Raises ValueError when the file was truncated or altered, an id repeats, or an embedding of this table is not
        finite; the message says what to do.
        """
        self.check()
        return self.digest

    def _refuse(self, bad: np.ndarray) -> None:
        if len(bad):
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            raise TableError(
                f"row {bad[0]} (id {self._source.ids[int(bad[0])].as_py()!r}){more} of {self._source.origin} is not "
                "finite (NaN or infinity); leave the row out or embed it again"
            )

    def save(self, path: str | PathLike[str], force: bool = False, *, spreadsheet: bool = True) -> Path:
        """Write atomically; the suffix chooses the format. An existing file is kept unless ``force``.

        Without a suffix it is a folder of Arrow files, each of 65,536 rows.

        In CSV files, text that a spreadsheet would take for a formula gets a quote before it, which `open` removes
        again; ``spreadsheet=False`` writes it as it is.
        """
        path = Path(path)
        suffix = check_format(path, self.n_rows * self.width)
        if suffix == "":
            return atomic_folder(path, self._save_parts, force)
        X, columns = self.embeddings, {"id": self.ids, **self.columns}
        if suffix == ".csv":
            return atomic_write(path, partial(csv_files.write_table, columns, X, spreadsheet), force)
        if suffix == ".npy":  # the columns first: a .npy file that is there then always has its CSV file
            atomic_write(path.with_suffix(".csv"), partial(csv_files.write_table, columns, None, spreadsheet), force)
            return atomic_write(path, lambda file: np.save(file, X, allow_pickle=False), force)
        provenance = {"pro2_version": pro2.__version__, **self.provenance}
        meta = {"provenance": to_json(provenance), "digest": self.digest, "seal": seal(self.digest, provenance)}
        if suffix == ".npz":
            return atomic_write(path, partial(arrays.write_npz, {"embeddings": X, **columns}, meta), force)
        table = sources.to_table({"id": self.ids, "embedding": X, **self.columns}, meta)
        if suffix == ".parquet":  # with a checksum per page, so that a damaged page is refused before it is unpacked
            return atomic_write(path, partial(pq.write_table, table, write_page_checksum=True), force)
        return atomic_write(path, partial(sources.write_arrow, table), force)

    def _save_parts(self, folder: Path) -> None:
        for i, start in enumerate(range(0, max(self.n_rows, 1), PART_ROWS)):
            part = self.take(range(start, min(start + PART_ROWS, self.n_rows)))
            part.provenance = self.provenance
            part.save(folder / f"part-{i:05d}.arrow")


def check_format(path: Path, numbers: int) -> str:
    """The suffix of a table that can be written, in lower case; `numbers` is the size of its embedding.

    A folder is replaced only where it holds nothing but the files of a table.
    """
    suffix = path.suffix.lower()
    if suffix not in WRITERS | {""}:
        expected = ", ".join(sorted(WRITERS))
        raise TableError(f"cannot write {path}: suffix {path.suffix!r}; expected one of {expected}, or a folder")
    if suffix == ".csv" and numbers > MAX_NUMBERS:
        raise TableError(
            f"cannot write {path}: {numbers:,} numbers are more than the {MAX_NUMBERS:,} that a .csv file may hold; "
            "save as .arrow or .parquet"
        )
    if suffix == "" and path.is_dir():
        others = sorted(each.name for each in path.iterdir() if not each.match("part-*.arrow"))
        if others:
            raise FileExistsError(f"{path} holds {others[0]}, which is not of a table; give another folder")
    return suffix


class _Columns(Mapping[str, np.ndarray]):
    """Columns by name, read on demand."""

    def __init__(self, table: EmbeddingTable) -> None:
        self._table, self._names = table, table._source.columns

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
