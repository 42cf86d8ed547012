"""Rows of a table: what can be read of them, and the lazy selections of some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from pro2.tables.columns import read_only, row_numbers
from pro2.tables.content import BATCH, Content
from pro2.tables.errors import TableError
from pro2.tables.labels import labelled
from pro2.tables.where import close_names, parse


class Rows:
    """Some rows of a content, in some order; nothing is read before it is asked for."""

    _content: Content
    _lazy_rows: Callable[[], np.ndarray] | None
    _provenance: Mapping[str, Any]

    def _bind(self, content: Content, rows: Callable[[], np.ndarray] | None = None, note: str | None = None) -> None:
        self._content, self._lazy_rows = content, rows
        extra = {} if note is None else {"selection": note}
        self._provenance = MappingProxyType({**content.provenance, **extra})

    @classmethod
    def _of(cls, content: Content, rows: Callable[[], np.ndarray] | None = None, note: str | None = None) -> Self:
        table = cls.__new__(cls)
        table._bind(content, rows, note)
        return table

    def _pick(self, rows: Callable[[], np.ndarray], selection: str) -> Self:
        before = self.provenance.get("selection")
        return self._of(self._content, rows, f"{before}; {selection}" if before else selection)

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

    @property
    def skipped(self) -> Mapping[str, str]:
        """Columns of the file that cannot be used, each with the reason."""
        return self._content.skipped

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

    def one_per_row(self, name: str, use: str) -> np.ndarray:
        """A column of single values; of a column with several per row the error says what the `use` needs."""
        values = self.column(name)
        if values.ndim != 1:
            raise TableError(f"column {name!r} holds {values.shape[1]} numbers per row; {use} one value per row")
        return values

    @property
    def n_rows(self) -> int:
        return self._content.shape[0] if self._lazy_rows is None else len(self.rows)

    @property
    def width(self) -> int:
        return self._content.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the embedding matrix."""
        return self.n_rows, self.width

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

    def where(self, expression: str) -> Self:
        """Rows that satisfy a filter such as ``"split == 0 and y != place"``; lazy.

        The text is parsed, never run: ``==  !=  <  <=  >  >=  in [..]`` over columns (and ``id``), joined by
        ``and``, ``or``, ``not`` and parentheses; text values in quotes, odd column names in backticks.
        """
        mask = parse(expression, ["id", *self._content.names])
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


class _Columns(Mapping[str, np.ndarray]):
    """Columns by name, read on demand."""

    def __init__(self, table: Rows) -> None:
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


def _as_slice(rows: np.ndarray) -> slice | None:
    """Rows without a gap are a slice, and a slice is no copy."""
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return slice(int(rows[0]), int(rows[0]) + len(rows))
    return None
