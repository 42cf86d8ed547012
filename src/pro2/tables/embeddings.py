"""The embedding table: ids, one embedding matrix, typed columns; one file that opens in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pro2.tables import arrow, datasets, formats
from pro2.tables.columns import as_column, as_ids, check_unique, objects, read_only
from pro2.tables.content import BATCH, RESERVED, Content, as_embeddings
from pro2.tables.digest import Digest, seal_of, to_json
from pro2.tables.errors import TableError
from pro2.tables.labels import labelled
from pro2.tables.where import close_names, parse


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
        values; text, and integers and flags with missing values, are kept as objects with None.
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

    def __init__(
        self,
        embeddings: Any,
        ids: Any = None,
        columns: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        X = as_embeddings(embeddings)
        names = as_ids(ids, len(X))
        check_unique(names, "ids")
        checked = {_column_name(name): as_column(name, values, len(X)) for name, values in (columns or {}).items()}
        self._bind(
            Content(
                X.shape,
                X.dtype,
                blocks=lambda: [X],
                ids=lambda: names,
                columns={name: partial(_same, values) for name, values in checked.items()},
                provenance=_checked_provenance(provenance or {}),
            )
        )

    def _bind(self, content: Content, rows: Callable[[], np.ndarray] | None = None, note: str | None = None) -> None:
        self._content, self._lazy_rows = content, rows
        extra = {} if note is None else {"selection": note}
        self._provenance = MappingProxyType({**content.provenance, **extra})

    @classmethod
    def _of(
        cls, content: Content, rows: Callable[[], np.ndarray] | None = None, note: str | None = None
    ) -> EmbeddingTable:
        table = cls.__new__(cls)
        table._bind(content, rows, note)
        return table

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        embedding: str | None = None,
        columns: Mapping[str, Any] | str | PathLike[str] | None = None,
    ) -> EmbeddingTable:
        """Open ``.arrow``/``.feather`` (memory-mapped), ``.parquet``, ``.npz``, ``.npy``, ``.safetensors``, ``.csv``.

        Nothing is read before it is asked for, and offsets are validated before they are used. The content is compared
        with the stored digest by `verify`, `digest` and `save`.

        Parameters
        ----------
        path : path
            A file, or the folder of a saved Hugging Face data set.
        embedding : str, optional
            Which array or column holds the embedding, when there is more than one candidate. For tables with one column
            per dimension a pattern (``e*``), a prefix (``e``) or a range (``e0:e1279``); columns are taken in the order
            of their numbers.
        columns : mapping or path of a CSV file, optional
            Only for ``.npy``: the columns; by default the CSV file of the same name beside it, if there is one.
        """
        return cls._of(formats.read(Path(path), embedding, columns))

    @classmethod
    def from_arrow(cls, data: Any, embedding: str | None = None) -> EmbeddingTable:
        """Rows of anything that speaks Arrow: a polars or pandas frame, a pyarrow table, a duckdb relation, a Hugging
        Face data set. A column ``id`` names the rows; `embedding` is chosen as in `open`.

        The other way needs no method: a table hands out an Arrow stream itself, as in ``polars.DataFrame(table)``.
        """
        return cls._of(datasets.read_object(data, embedding))

    @classmethod
    def from_pandas(cls, frame: Any, embedding: str | None = None) -> EmbeddingTable:
        """Rows of a pandas data frame, with the embedding in one column per dimension or in one column of arrays.

        A column or index called ``id`` names the rows; so does an index of texts without a name.
        """
        return cls._of(datasets.read_frame(frame, embedding))

    def to_pandas(self) -> Any:
        """A pandas data frame: ``id``, the columns, and one column per dimension (``e0``, ``e1``, ...)."""
        return datasets.to_frame(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for any library that speaks Arrow; see the Arrow PyCapsule interface."""
        table = arrow.pyarrow().Table.from_batches([arrow.to_batch(self, {})])
        return table.__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The embedding matrix: a table can be given where an array is expected."""
        X = np.asarray(self.embeddings, dtype=dtype)
        return X.copy() if copy else X

    def save(self, path: str | PathLike[str], force: bool = False, *, spreadsheet: bool = True) -> Path:
        """Write atomically; the suffix chooses the format. An existing file is kept unless ``force``.

        In CSV files, text that a spreadsheet would take for a formula gets a quote before it, which `open` takes away
        again; ``spreadsheet=False`` writes it as it is.
        """
        provenance = {"pro2_version": _version(), **self.provenance}
        meta = {"provenance": provenance, "digest": self.digest, "seal": seal_of(self.digest, provenance)}
        return formats.write(Path(path), self, meta, force, spreadsheet)

    @cached_property
    def rows(self) -> np.ndarray:
        """Row numbers of this table in the table or file it was taken from."""
        return read_only(np.arange(self._content.shape[0]) if self._lazy_rows is None else self._lazy_rows())

    @cached_property
    def embeddings(self) -> np.ndarray:
        """(n_rows, width), read-only; a view of the memory map unless rows were picked out of order."""
        if self._lazy_rows is None:
            return self._content.embeddings
        span = _as_slice(self.rows)
        if span is not None and len(self._content.blocks) == 1:
            return self._content.blocks[0][span]
        return read_only(self._content.gather(self.rows))

    @cached_property
    def ids(self) -> np.ndarray:
        return self._content.ids if self._lazy_rows is None else read_only(self._content.ids[self.rows])

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Name to read-only array; a column is read when it is asked for."""
        return _Columns(self)

    def column(self, name: str) -> np.ndarray:
        """One column; an unknown name is answered with the nearest ones."""
        if name == "id":
            return self.ids
        if name in self._content.skipped:
            raise TableError(f"column {name!r} of {self._content.origin} cannot be used: {self._content.skipped[name]}")
        if name not in self._content.names:
            raise TableError(f"no column {name!r} in {self._content.origin}; {close_names(name, self._content.names)}")
        values = self._content.column(name)
        return values if self._lazy_rows is None else read_only(values[self.rows])

    @property
    def n_rows(self) -> int:
        return self._content.shape[0] if self._lazy_rows is None else len(self.rows)

    @property
    def width(self) -> int:
        return self._content.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self._content.dtype

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self._provenance

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        rows = "lazy" if self._lazy_rows is not None and "rows" not in self.__dict__ else str(self.n_rows)
        names = ", ".join(self._content.names) or "none"
        return f"EmbeddingTable({rows} rows, width {self.width}, {self.dtype}, columns: {names})"

    @cached_property
    def digest(self) -> str:
        """Digest of ids, rows and columns, computed from them; a file that stores another one is refused as damaged."""
        whole, _ = self._content.verified
        if self._lazy_rows is None:
            return whole
        digest = Digest((self.n_rows, self.width), self.dtype)
        for X, _ in self.iter_batches():
            digest.rows(X)
        return digest.columns(self.columns, self.column)

    @property
    def origin_digest(self) -> str | None:
        """Digest of the whole file or table that these rows were taken from; None as long as nobody verified it."""
        return self._content.verified[0] if "verified" in self._content.__dict__ else None

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

    def check(self) -> None:
        """What `verify` does, without the digest of these rows: a selection costs no second pass."""
        _, bad = self._content.verified
        bad = bad if self._lazy_rows is None else np.intersect1d(bad, self.rows)
        if len(bad):
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            raise TableError(
                f"the embedding of row {bad[0]} (id {self._content.ids[bad[0]]!r}){more} of {self._content.origin} is "
                "not finite; embed it again, or leave the row out with where() or take()"
            )

    def X_y(self, label: str) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings and labels for an estimator; rows without a label have None or NaN for one.

        An embedding that is not finite is refused under its id.
        """
        y = self.column(label)
        if y.ndim != 1:
            raise TableError(f"column {label!r} holds {y.shape[1]} numbers per row; a label is one value per row")
        finite = np.concatenate([np.isfinite(X).all(axis=1) for X, _ in self.iter_batches()] or [np.empty(0, bool)])
        if not finite.all():
            row = int(np.argmin(finite))
            raise TableError(
                f"the embedding of row {row} (id {self.ids[row]!r}) is not finite; leave it out with take()"
            )
        return self.embeddings, y

    def iter_batches(self, rows: int = BATCH) -> Iterator[tuple[np.ndarray, slice]]:
        """Yield (embedding rows, their slice) in order; at most `rows` at a time, never the whole matrix.

        For a memory-mapped file each batch is a view, so a table larger than memory streams through.
        """
        if rows < 1:
            raise TableError(f"rows must be at least 1, found {rows}")
        if self._lazy_rows is None:
            yield from self._content.spans(rows)
            return
        for start in range(0, self.n_rows, rows):
            part = self.rows[start : start + rows]
            yield read_only(self._content.gather(part)), slice(start, start + len(part))

    def where(self, expression: str) -> EmbeddingTable:
        """Rows that satisfy a filter such as ``"split == 0 and y != place"``; lazy.

        The text is parsed, never run: ``==  !=  <  <=  >  >=  in [..]`` over columns (and ``id``), joined by
        ``and``, ``or``, ``not`` and parentheses; text values in quotes, odd column names in backticks.
        """
        mask = parse(expression, ["id", *self._content.names])
        return self._pick(lambda: self.rows[mask(self.column)], f"where {expression}")

    def split(self, column: str) -> dict[Any, EmbeddingTable]:
        """One lazy table for each value of a column, in sorted order; rows without a value are in none of them."""
        values = self.column(column)
        if values.ndim != 1:
            raise TableError(
                f"column {column!r} holds {values.shape[1]} numbers per row; split needs one value per row"
            )
        return {
            value: self._pick(partial(_equal_rows, self, values, value), f"{column} == {value!r}")
            for value in np.unique(labelled(values)[0]).tolist()
        }

    def head(self, n: int = 5) -> EmbeddingTable:
        """The first `n` rows."""
        if n < 0:
            raise TableError(f"n must not be negative, found {n}")
        return self._pick(lambda: self.rows[:n], f"head {n}")

    def take(self, rows: Any) -> EmbeddingTable:
        """Rows by number (or by a boolean mask), in the order given."""
        index = np.asarray(rows)
        if index.dtype.kind == "b" and index.shape == (self.n_rows,):
            index = np.flatnonzero(index)
        if index.size == 0:
            index = index.astype(np.intp)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise TableError(
                f"rows must be a list of row numbers or a mask of {self.n_rows}, found {index.dtype} {index.shape}"
            )
        if index.size and (index.min() < 0 or index.max() >= self.n_rows):
            raise TableError(f"rows go from {index.min()} to {index.max()}, the table has rows 0 to {self.n_rows - 1}")
        return self._pick(lambda: self.rows[index], f"take {len(index)}")

    def align(self, ids: Any, values: Any) -> np.ndarray:
        """Values given under ids, brought into this table's row order.

        Every row needs exactly one value; ids that the table does not have are ignored. Position never matters.
        """
        given = np.asarray(values)
        keys = as_ids(ids, len(given))
        check_unique(keys, "ids")
        place = {name: row for row, name in enumerate(keys.tolist())}
        found = np.array([place.get(name, -1) for name in self.ids.tolist()], dtype=np.intp)
        missing = found < 0
        if missing.any():
            raise TableError(
                f"no value for {int(missing.sum())} of {self.n_rows} rows, e.g. id {self.ids[missing][0]!r}; "
                "ids must name every row of the table: check that both lists write ids the same way"
            )
        return read_only(given[found])

    def spread(self, ids: Any, values: Any) -> np.ndarray:
        """Values given under ids, brought into this table's row order; None for rows that have none.

        An id that the file does not have is an error: a label that reaches no row is a label lost. An id that a filter
        left out is not.
        """
        keys, given = as_ids(ids, len(values)).tolist(), np.asarray(values).tolist()
        strange = set(keys) - set(self._content.ids.tolist())
        if strange:
            raise TableError(
                f"{len(strange)} of {len(keys)} ids are not in {self._content.origin}, e.g. {min(strange)!r}; "
                f"its first is {self._content.ids[0]!r}: check that both write ids the same way"
            )
        found = dict(zip(keys, given))
        return read_only(objects([found.get(name) for name in self.ids.tolist()]))

    def _pick(self, rows: Callable[[], np.ndarray], selection: str) -> EmbeddingTable:
        before = self.provenance.get("selection")
        return self._of(self._content, rows, f"{before}; {selection}" if before else selection)


class _Columns(Mapping[str, np.ndarray]):
    """Columns by name, read on demand."""

    def __init__(self, table: EmbeddingTable) -> None:
        self._table = table

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._table._content.names:
            raise KeyError(name)
        return self._table.column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table._content.names)

    def __len__(self) -> int:
        return len(self._table._content.names)

    def __repr__(self) -> str:
        return f"columns({', '.join(self)})"


def _same(values: np.ndarray) -> np.ndarray:
    return values


def _equal_rows(table: EmbeddingTable, values: np.ndarray, value: Any) -> np.ndarray:
    return table.rows[values == value]


def _as_slice(rows: np.ndarray) -> slice | None:
    """Rows without a gap are a slice, and a slice is no copy."""
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return slice(int(rows[0]), int(rows[0]) + len(rows))
    return None


def _column_name(name: Any) -> str:
    if not isinstance(name, str) or not name or name in RESERVED:
        raise TableError(
            f"a column cannot be called {name!r}; use a text other than {' or '.join(map(repr, RESERVED))}"
        )
    return name


def _checked_provenance(provenance: Mapping[str, Any]) -> dict[str, Any]:
    try:
        to_json(dict(provenance))
    except TypeError as error:
        raise TableError(f"provenance must hold JSON values (text, numbers, lists, mappings): {error}") from error
    return dict(provenance)


def _version() -> str:
    import pro2

    return pro2.__version__
