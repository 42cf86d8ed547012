"""The rows to label: embeddings, ids, and what a person can look at."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Protocol

import numpy as np

from pro2.tables.embeddings import EmbeddingTable

MAX_TEXT = 20_000  # characters of one row that are sent to the page
MAX_COLUMNS = 24


class Pictures(Protocol):
    """Encoded images by row number, as `pro2.embed.open_images` gives them."""

    def read(self, row: int) -> bytes:
        """The encoded image, or an error that says why not."""


@dataclass(frozen=True)
class Pool:
    """Rows of one table, unlabelled as far as this room is concerned.

    Attributes
    ----------
    table : EmbeddingTable
    pictures : Pictures or None
        Images of the rows, in the table's order.
    text : str or None
        The column to show as the text of a row.
    hidden : sequence of str
        Columns that are not shown: the folder name would give the label away.
    title : str
        What the page calls the pool.
    """

    table: EmbeddingTable
    pictures: Pictures | None = None
    text: str | None = None
    hidden: Sequence[str] = ()
    title: str = "the pool"

    def __len__(self) -> int:
        return len(self.table)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Embeddings of some rows, (m, D)."""
        return np.asarray(self.table.take(np.asarray(rows, dtype=np.intp)).embeddings)

    @cached_property
    def ids(self) -> list[str]:
        return self.table.ids.tolist()

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Row numbers by id."""
        return {name: row for row, name in enumerate(self.ids)}

    def mark(self, row: int) -> str:
        """A short fingerprint of the row's embedding: labels remember what they were given to."""
        return hashlib.blake2b(self.take(np.array([row])).tobytes(), digest_size=8).hexdigest()

    def name(self, row: int) -> str:
        """The row's id as the page may show it."""
        return shown(self.ids[row])

    def describe(self, row: int) -> dict[str, Any]:
        """What a person sees of a row, everything as text."""
        found: dict[str, Any] = {"row": row, "name": self.name(row), "image": self.pictures is not None}
        if self.text is not None:
            found["text"] = str(self.table.column(self.text)[row])[:MAX_TEXT]
        found["columns"] = [[name, shown(_value(self.table.column(name)[row]))] for name in self.visible]
        return found

    @cached_property
    def visible(self) -> list[str]:
        """Names of the columns that are shown."""
        left_out = {self.text, "path", *self.hidden}
        return [name for name in self.table.columns if name not in left_out][:MAX_COLUMNS]

    def words(self, row: int) -> str:
        """What a search looks through."""
        parts = [self.name(row)] + ([] if self.text is None else [str(self.table.column(self.text)[row])])
        return " ".join(parts).casefold()

    def logits(self, coef: np.ndarray, intercept: np.ndarray, unit: bool = False) -> np.ndarray:
        """(n, K') of an affine map on all rows, block by block: the pool may be larger than memory."""
        out = np.empty((len(self), len(coef)), dtype=np.float32)
        weight = np.ascontiguousarray(np.asarray(coef, dtype=np.float32).T)
        for X, span in self.table.iter_batches():
            X = np.asarray(X, dtype=np.float32)
            if unit:
                length = np.linalg.norm(X, axis=1, keepdims=True)
                X = X / np.where(length > 0, length, 1.0)
            out[span] = X @ weight
        return out + np.asarray(intercept, dtype=np.float32)


@dataclass(frozen=True)
class _Aligned:
    """Images of other rows in other order, by the rows of a table."""

    pictures: Pictures
    rows: list[int]

    def read(self, row: int) -> bytes:
        return self.pictures.read(self.rows[row])


def by_id(images: Any, table: EmbeddingTable) -> Pictures:
    """The images of a table's rows, found by id: images that could not be embedded have no row."""
    place = {str(name): row for row, name in enumerate(images.ids.tolist())}
    return _Aligned(images, [place[str(name)] for name in table.ids.tolist()])


def shown(text: str) -> str:
    """Absolute paths shrink to the file's name: the page tells nobody where things are on this machine."""
    if text.startswith("/"):
        path = PurePosixPath(text)
        # "/s" and "/ or not" are text; a path begins with a folder that exists
        return path.name if len(path.parts) > 2 and Path(*path.parts[:2]).is_dir() else text
    windows = PureWindowsPath(text)
    return windows.name if windows.is_absolute() and len(windows.parts) > 1 else text


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return ", ".join(_value(each) for each in value[:8].tolist()) + (" …" if len(value) > 8 else "")
    value = value.item() if hasattr(value, "item") else value
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:MAX_TEXT]


def folder_of(path: Path) -> Path:
    """Where the journal and the results of a pool go, beside it: photos/ -> photos-labels/."""
    whole = path.resolve()
    return whole.with_name(f"{whole.stem if path.is_file() else whole.name}-labels")
