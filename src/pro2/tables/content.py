"""What a table holds, before anyone looks at it: lazy parts, their checks and one digest over all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

RESERVED = ("id", "embedding", "embeddings", "pro2")  # what the files themselves use
_KINDS = "biufU"


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written; the array it came from keeps its own flags."""
    view = array.view()
    view.setflags(write=False)
    return view


def as_text(name: str, values: np.ndarray) -> np.ndarray:
    """Object and bytes arrays as fixed-width text; anything that is not text is refused with its row."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    for row, value in enumerate(values.flat):
        if not isinstance(value, str):
            raise ValueError(
                f"column {name!r} holds {value!r} ({type(value).__name__}) at row {row} among text; "
                "give every row a value of one type (bool, integer, float or text)"
            )
    return np.asarray(values, dtype=str)


def as_column(name: str, values: Any, n_rows: int) -> np.ndarray:
    """Check one typed column: bool, integer, float or text; one value a row, or one short row of numbers."""
    array = np.asarray(values)
    if array.dtype.kind in "OST":
        array = as_text(name, array)
    if array.dtype.kind not in _KINDS:
        raise ValueError(
            f"column {name!r} has dtype {array.dtype}; a table holds bool, integer, float and text columns: "
            "convert it first (dates: .astype(str))"
        )
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.dtype.kind == "U"):
        raise ValueError(f"column {name!r} has shape {array.shape}; expected ({n_rows},) or a short numeric (n, k)")
    if len(array) != n_rows:
        raise ValueError(f"column {name!r} has {len(array)} rows, the embeddings have {n_rows}; give one value a row")
    return read_only(array.astype(array.dtype.newbyteorder("="), copy=False))


def as_ids(ids: Any, n_rows: int) -> np.ndarray:
    """Ids as text; without any, the row numbers."""
    if ids is None:
        return read_only(np.arange(n_rows).astype(str))
    array = np.asarray(ids)
    array = array.astype(str) if array.size == 0 else array
    if array.ndim != 1 or array.dtype.kind not in "iuUSOT":
        raise ValueError(f"ids must be a list of texts or integers, found shape {array.shape}, dtype {array.dtype}")
    array = as_text("id", array) if array.dtype.kind in "OST" else array.astype(str, copy=False)
    if len(array) != n_rows:
        raise ValueError(f"ids has {len(array)} entries, the embeddings have {n_rows} rows; give one id a row")
    return read_only(array)


def as_embeddings(embeddings: Any) -> np.ndarray:
    """A finite-shaped (n, D) floating matrix, C-ordered so that its rows can be written and hashed as they are."""
    array = np.asarray(embeddings)
    if array.ndim != 2 or array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise ValueError(
            f"embeddings must be a (rows, width) array of float16, float32 or float64, "
            f"found shape {array.shape}, dtype {array.dtype}; reshape it or use .astype('float32')"
        )
    return read_only(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))


def check_unique(ids: np.ndarray, what: str) -> None:
    """Ids name rows: two rows under one name cannot be told apart."""
    unique, counts = np.unique(ids, return_counts=True)
    if len(unique) < len(ids):
        twice = unique[counts > 1]
        raise ValueError(
            f"{what} repeats {len(twice)} id(s), e.g. {str(twice[0])!r} {counts.max()} times; "
            "ids must be unique: use the relative image path, or drop the repeated rows"
        )


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
    validate : callable
        Deep structural check of the file, run by ``EmbeddingTable.verify``.
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
        validate: Callable[[], None] = lambda: None,
        skipped: Mapping[str, str] | None = None,
        origin: str = "this table",
    ) -> None:
        self.shape, self.dtype, self.origin, self.digest = shape, dtype, origin, digest
        self._blocks, self._ids = blocks, ids
        # A foreign file may hold two embeddings; the one not chosen must not take the place of the other when saved.
        self._columns = {f"{name}_column" if name in RESERVED else name: get for name, get in columns.items()}
        self._cache: dict[str, np.ndarray] = {}
        self.provenance, self.validate, self.skipped = dict(provenance or {}), validate, dict(skipped or {})

    @cached_property
    def blocks(self) -> list[np.ndarray]:
        return [read_only(block) for block in self._blocks()]

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
        return as_ids(self._ids(), self.shape[0])

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def column(self, name: str) -> np.ndarray:
        if name not in self._cache:
            self._cache[name] = as_column(name, self._columns[name](), self.shape[0])
        return self._cache[name]

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


def text_bytes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Text as (offsets, UTF-8 bytes): one meaning whatever the width of the array."""
    encoded = [str(value).encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(encoded), dtype=np.uint8)


def bytes_text(offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Inverse of `text_bytes`."""
    raw = data.tobytes()
    return np.array([raw[a:b].decode() for a, b in pairwise(offsets.tolist())], dtype=str)


def digest_of(
    blocks: Iterable[np.ndarray], shape: Sequence[int], ids: np.ndarray, columns: Mapping[str, np.ndarray]
) -> str:
    """SHA-256 over rows, ids and columns: the same for every file format and every cut into blocks."""
    state = hashlib.sha256()
    blocks = iter(blocks)
    first = next(blocks, np.empty((0, shape[1]), dtype=np.float32))
    state.update(_header("embedding", first.dtype, tuple(shape)))
    state.update(_raw(first))
    for block in blocks:
        state.update(_raw(block))
    # Sorted, because not every format keeps the order of its columns.
    for name, values in [("id", ids), *sorted(columns.items())]:
        parts = text_bytes(values) if values.dtype.kind == "U" else (values,)
        state.update(_header(name, np.dtype(str) if len(parts) == 2 else values.dtype, values.shape))
        for part in parts:
            state.update(_raw(part))
    return "sha256:" + state.hexdigest()


def seal_of(digest: str, provenance: Mapping[str, Any]) -> str:
    """A short checksum over the digest and the provenance, so that edited metadata is noticed too."""
    return hashlib.sha256(f"{digest}\n{to_json(provenance)}".encode()).hexdigest()[:16]


def to_json(value: Any) -> str:
    """JSON with sorted keys: equal contents give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _header(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    return to_json([name, dtype.kind if dtype.kind == "U" else dtype.str, list(shape)]).encode()


def _raw(array: np.ndarray) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
