"""What a table holds, before anyone looks at it: lazy parts, and the one pass that verifies all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from pro2.tables.columns import as_column, as_ids, check_unique, read_only
from pro2.tables.digest import Digest
from pro2.tables.errors import TableError, damaged, reading

RESERVED = ("id", "embedding", "embeddings", "pro2")  # what the files themselves use
BATCH = 8192


def as_embeddings(embeddings: Any) -> np.ndarray:
    """A (n, D) floating matrix, C-ordered so that its rows can be written and hashed as they are."""
    array = np.asarray(embeddings)
    if array.ndim != 2 or array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise TableError(
            f"embeddings must be a (rows, width) array of float16, float32 or float64, "
            f"found shape {array.shape}, dtype {array.dtype}; reshape it or use .astype('float32')"
        )
    return read_only(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))


class Content:
    """Lazy parts of one table: blocks of embedding rows, ids, columns.

    Parameters
    ----------
    shape, dtype
        Of the whole embedding matrix; known without reading it.
    blocks : callable
        Returns the embedding as a list of row blocks, in order; a memory-mapped block costs nothing.
    ids : callable
    columns : mapping of name to callable
    provenance : mapping
        Where the rows come from; JSON values.
    digest : str or None
        As stored in the file; None when the file carries none.
    skipped : mapping of name to reason
        What the file holds and a table does not.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype,
        blocks: Callable[[], list[np.ndarray]],
        ids: Callable[[], np.ndarray | None],
        columns: Mapping[str, Callable[[], np.ndarray]],
        provenance: Mapping[str, Any] | None = None,
        digest: str | None = None,
        skipped: Mapping[str, str] | None = None,
        origin: str = "this table",
    ) -> None:
        self.shape, self.dtype, self.origin, self.stored = shape, dtype, origin, digest
        self._blocks, self._ids = blocks, ids
        # A foreign file may hold two embeddings; the one not chosen must not take the place of the other when saved.
        self._columns = {f"{name}_column" if name in RESERVED else name: get for name, get in columns.items()}
        self._cache: dict[str, np.ndarray] = {}
        self.provenance, self.skipped = dict(provenance or {}), dict(skipped or {})

    @cached_property
    def blocks(self) -> list[np.ndarray]:
        with reading(self.origin):
            blocks = [read_only(block) for block in self._blocks()]
            n_rows = sum(map(len, blocks))
            if n_rows != self.shape[0]:
                raise damaged(self.origin, f"{n_rows} rows of embeddings where {self.shape[0]} are declared")
            return blocks

    @cached_property
    def starts(self) -> np.ndarray:
        return np.cumsum([0] + [len(block) for block in self.blocks])

    @cached_property
    def embeddings(self) -> np.ndarray:
        """One matrix: the block itself when there is one, else one copy."""
        blocks = self.blocks
        if len(blocks) == 1:
            return blocks[0]
        return read_only(np.concatenate(blocks) if blocks else np.empty(self.shape, self.dtype))

    @cached_property
    def ids(self) -> np.ndarray:
        """Text, unique: two rows under one name are refused."""
        with reading(self.origin):
            ids = as_ids(self._ids(), self.shape[0])
            check_unique(ids, self.origin)
            return ids

    def check_ids(self) -> None:
        """Refuse repeated ids now; row numbers that stand in for ids are not made for it."""
        with reading(self.origin):
            given = self._ids()
        if given is not None:
            self.ids  # noqa: B018 - read for its check

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def column(self, name: str) -> np.ndarray:
        return self._cache.setdefault(name, self._load(name))

    def _load(self, name: str) -> np.ndarray:
        if name in self._cache:
            return self._cache[name]
        with reading(self.origin):
            return as_column(name, self._columns[name](), self.shape[0])

    @cached_property
    def verified(self) -> tuple[str, np.ndarray]:
        """One pass over everything: the digest, which is that of the file, and the rows that are not finite."""
        digest = Digest(self.shape, self.dtype)
        bad: list[int] = []
        for X, span in self.spans(BATCH):
            digest.rows(X)
            bad += (span.start + not_finite(X)).tolist()
        # Columns pass through one at a time and are not kept: a caption nobody asks for costs no memory.
        computed = digest.columns(self.names, lambda name: self.ids if name == "id" else self._load(name))
        if self.stored not in (None, computed):
            raise damaged(self.origin, "its content does not match the digest stored with it")
        return computed, np.array(bad, dtype=np.intp)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Embedding rows by number, touching only the blocks that hold them."""
        if len(self.blocks) == 1:
            return self.blocks[0][rows]
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        home = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(home):
            here = home == number
            out[here] = self.blocks[number][rows[here] - self.starts[number]]
        return out

    def spans(self, rows: int) -> Iterator[tuple[np.ndarray, slice]]:
        """Views of at most `rows` embedding rows, in order; no view crosses a block."""
        for block, start in zip(self.blocks, self.starts):
            for first in range(0, len(block), rows):
                part = block[first : first + rows]
                yield part, slice(int(start) + first, int(start) + first + len(part))


def ready(values: Any) -> Callable[[], Any]:
    """A part that is there already, for a content that takes functions."""
    return lambda: values


def not_finite(X: np.ndarray) -> np.ndarray:
    """Numbers of the rows with NaN or infinity."""
    # They show in the extremes, which cost less than a test of every number.
    if not X.size or (np.isfinite(X.min()) and np.isfinite(X.max())):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(~np.isfinite(X).all(axis=1))
