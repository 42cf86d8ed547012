"""The embedding table: ids, one embedding matrix, typed columns; one file that opens in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pro2.tables import formats
from pro2.tables.content import (
    RESERVED,
    Content,
    as_column,
    as_embeddings,
    as_ids,
    check_unique,
    digest_of,
    read_only,
    seal_of,
    to_json,
)
from pro2.tables.files import damaged
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
        One unique name a row, e.g. the relative image path. Row numbers when None.
    columns : mapping of name to array, optional
        bool, integer, float or text, one value a row (or a short row of numbers).
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
        """Open ``.arrow``/``.feather`` (memory-mapped), ``.parquet``, ``.npz``, ``.npy`` or ``.safetensors``.

        Parameters
        ----------
        path : path
        embedding : str, optional
            Which array or column holds the embedding, when there is more than one candidate.
        columns : mapping or path of a CSV file, optional
            Only for ``.npy``: the columns; by default the CSV file of the same name beside it, if there is one.
        """
        return cls._of(formats.read(Path(path), embedding, columns))

    def save(self, path: str | PathLike[str], force: bool = False) -> Path:
        """Write atomically; the suffix chooses the format. An existing file is kept unless ``force``."""
        provenance = {"pro2_version": _version(), **self.provenance}
        digest = self.digest
        return formats.write(Path(path), self, provenance, digest, seal_of(digest, provenance), force)

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
            raise ValueError(f"column {name!r} of {self._content.origin} cannot be used: {self._content.skipped[name]}")
        if name not in self._content.names:
            raise ValueError(f"no column {name!r} in {self._content.origin}; {close_names(name, self._content.names)}")
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
        """Digest of ids, rows and columns: as stored in the file, computed when there is none."""
        stored = self._content.digest if self._lazy_rows is None else None
        return stored or self._computed_digest()

    def _computed_digest(self) -> str:
        blocks = (X for X, _ in self.iter_batches())
        return digest_of(blocks, (self.n_rows, self.width), self.ids, dict(self.columns))

    def verify(self) -> str:
        """Read everything and compare it with the stored digest.

        Returns
        -------
        str
            The digest. Raises ValueError when the file was truncated or altered, an id repeats, or an embedding is
            not finite; the message says what to do.
        """
        self._content.validate()
        computed = self._computed_digest()
        if self._lazy_rows is None and self._content.digest not in (None, computed):
            raise damaged(self._content.origin, "its content does not match the digest stored with it")
        check_unique(self.ids, f"{self._content.origin}")
        for X, span in self.iter_batches():
            finite = np.isfinite(X).all(axis=1)
            if not finite.all():
                row = span.start + int(np.argmin(finite))
                raise ValueError(
                    f"the embedding of row {row} (id {str(self.ids[row])!r}) of {self._content.origin} is not finite; "
                    "embed that image again, or leave the row out with take()"
                )
        return computed

    def iter_batches(self, rows: int = 8192) -> Iterator[tuple[np.ndarray, slice]]:
        """Yield (embedding rows, their slice) in order; at most `rows` at a time, never the whole matrix.

        For a memory-mapped file each batch is a view, so a table larger than memory streams through.
        """
        if rows < 1:
            raise ValueError(f"rows must be at least 1, found {rows}")
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
        """One lazy table for each value of a column, in sorted order."""
        values = self.column(column)
        if values.ndim != 1:
            raise ValueError(f"column {column!r} holds {values.shape[1]} numbers a row; split needs one value a row")
        return {
            value: self._pick(partial(_equal_rows, self, values, value), f"{column} == {value!r}")
            for value in np.unique(values).tolist()
        }

    def head(self, n: int = 5) -> EmbeddingTable:
        """The first `n` rows."""
        if n < 0:
            raise ValueError(f"n must not be negative, found {n}")
        return self._pick(lambda: self.rows[:n], f"head {n}")

    def take(self, rows: Any) -> EmbeddingTable:
        """Rows by number (or by a boolean mask), in the order given."""
        index = np.asarray(rows)
        if index.dtype.kind == "b" and index.shape == (self.n_rows,):
            index = np.flatnonzero(index)
        if index.size == 0:
            index = index.astype(np.intp)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise ValueError(
                f"rows must be a list of row numbers or a mask of {self.n_rows}, found {index.dtype} {index.shape}"
            )
        if index.size and (index.min() < 0 or index.max() >= self.n_rows):
            raise ValueError(f"rows go from {index.min()} to {index.max()}, the table has rows 0 to {self.n_rows - 1}")
        return self._pick(lambda: self.rows[index], f"take {len(index)}")

    def align(self, ids: Any, values: Any) -> np.ndarray:
        """Values given under ids, brought into this table's row order.

        Every row needs exactly one value; ids that the table does not have are ignored. Position never matters.
        """
        given = np.asarray(values)
        keys = as_ids(ids, len(given))
        check_unique(keys, "ids")
        check_unique(self.ids, self._content.origin)
        order = np.argsort(keys)
        place = np.searchsorted(keys, self.ids, sorter=order)
        found = order[np.minimum(place, len(keys) - 1)] if len(keys) else np.zeros(self.n_rows, dtype=np.intp)
        missing = np.ones(self.n_rows, dtype=bool) if not len(keys) else keys[found] != self.ids
        if missing.any():
            raise ValueError(
                f"no value for {int(missing.sum())} of {self.n_rows} rows, e.g. id {str(self.ids[missing][0])!r}; "
                "ids must name every row of the table: check that both lists write ids the same way"
            )
        return read_only(given[found])

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
        raise ValueError(
            f"a column cannot be called {name!r}; use a text other than {' or '.join(map(repr, RESERVED))}"
        )
    return name


def _checked_provenance(provenance: Mapping[str, Any]) -> dict[str, Any]:
    try:
        to_json(dict(provenance))
    except TypeError as error:
        raise ValueError(f"provenance must hold JSON values (text, numbers, lists, mappings): {error}") from error
    return dict(provenance)


def _version() -> str:
    import pro2

    return pro2.__version__
