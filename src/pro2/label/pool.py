"""The rows to label: embeddings, ids, and what a person can look at."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Protocol

import numpy as np

from pro2.embed.extract import Progress, extract
from pro2.embed.images import ImageError, decode
from pro2.embed.registry import DEFAULT_BACKBONES, create_backbone
from pro2.embed.sources import open_images, open_texts, table_images
from pro2.tables.embeddings import EmbeddingTable

MAX_TEXT = 20_000  # characters of one row that are sent to the page
MAX_COLUMNS = 24
FULL = 65_500  # pixels; no JPEG is larger
SIZES = (320, 1280, 2560, FULL)  # longest side of an image: a tile of the grid, a screen, a large screen, as it is
_TABLE = "pool.arrow"  # in the folder of the session
_REVEALING = ("label", "split")  # columns that come from folder names
_LOSSLESS = 512  # pixels; JPEG would blur the few that a small image has
_CACHED = 256  # images; at most about 1 MiB each
_DECODING = threading.Semaphore(2)  # large photographs take hundreds of megabytes while they are decoded


class Pictures(Protocol):
    """Encoded images by row number, as `pro2.embed.open_images` gives them."""

    def read(self, row: int) -> bytes:
        """The encoded image, or an error with the reason."""


@dataclass(frozen=True)
class Pool:
    """Rows of one table, unlabelled as far as this package is concerned."""

    table: EmbeddingTable
    pictures: Pictures | None = None  # images of the rows, in the table's order
    text: str | None = None  # the column to show as the text of a row
    hidden: Sequence[str] = ()  # columns that are not shown: a folder name would give the label away
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
        """A short fingerprint of the row's embedding, stored with each label."""
        return hashlib.blake2b(self.take(np.array([row])).tobytes(), digest_size=8).hexdigest()

    def describe(self, row: int) -> dict[str, Any]:
        """What a person sees of a row, everything as text."""
        item: dict[str, Any] = {"row": row, "name": without_folder(self.ids[row]), "image": self.pictures is not None}
        if self.text is not None:
            item["text"] = str(self.table.column(self.text)[row])[:MAX_TEXT]
        item["columns"] = [[name, without_folder(_as_text(self.table.column(name)[row]))] for name in self.visible]
        return item

    @cached_property
    def visible(self) -> list[str]:
        """Names of the columns that are shown."""
        return [name for name in self.shown if name not in (self.text, "path")][:MAX_COLUMNS]

    @cached_property
    def shown(self) -> list[str]:
        """Names of the columns that may be searched."""
        return [name for name in self.table.columns if name not in self.hidden]

    @cached_property
    def all_words(self) -> list[str]:
        """What a search looks through, for each row."""
        texts = [""] * len(self) if self.text is None else self.table.column(self.text)
        return [f"{without_folder(name)} {text}".casefold() for name, text in zip(self.ids, texts)]

    def logits(self, coef: np.ndarray, intercept: np.ndarray, unit: bool = False) -> np.ndarray:
        """(n, K') of an affine map on all rows, block by block: the pool may be larger than memory."""
        out = np.empty((len(self), len(coef)), dtype=np.float32)
        weight = np.ascontiguousarray(np.asarray(coef, dtype=np.float32).T)
        for X, rows in self.table.iter_batches():
            X = np.asarray(X, dtype=np.float32)
            if unit:
                length = np.linalg.norm(X, axis=1, keepdims=True)
                X = X / np.where(length > 0, length, 1.0)
            out[rows] = X @ weight
        return out + np.asarray(intercept, dtype=np.float32)


def without_folder(text: str) -> str:
    """Absolute paths shortened to the file's name: the page reveals nothing about the folders of this machine."""
    if text.startswith("/"):
        path = PurePosixPath(text)
        # "/s" and "/ or not" are text; a path begins with a folder that exists
        return path.name if len(path.parts) > 2 and Path(*path.parts[:2]).is_dir() else text
    windows = PureWindowsPath(text)
    return windows.name if windows.is_absolute() and len(windows.parts) > 1 else text


def _as_text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return ", ".join(_as_text(each) for each in value[:8].tolist()) + (" …" if len(value) > 8 else "")
    value = value.item() if hasattr(value, "item") else value
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:MAX_TEXT]


# where a pool comes from


@dataclass(frozen=True)
class _Aligned:
    pictures: Pictures
    rows: list[int]

    def read(self, row: int) -> bytes:
        return self.pictures.read(self.rows[row])


def by_id(images: Any, table: EmbeddingTable) -> Pictures:
    """The images of a table's rows, found by id: images that could not be embedded have no row."""
    row_of = {str(name): row for row, name in enumerate(images.ids.tolist())}
    return _Aligned(images, [row_of[str(name)] for name in table.ids.tolist()])


def embedded_pool(
    path: Path, session: Path, model: Any, text: str | None, backbone: str | None, hide: Sequence[str], update: Progress
) -> Pool:
    """The images of a folder, or the rows of a list by their text, embedded once with the model's backbone.

    Images that cannot be decoded and empty texts are left out.
    """
    rows: Any = open_images(path) if text is None else open_texts(path, text)
    source = {} if model is None else model.provenance.get("source", {})
    name = backbone or source.get("backbone") or DEFAULT_BACKBONES["images" if text is None else "texts"]
    extract(rows, create_backbone(name), session / _TABLE, on_error="skip", force=True, progress=update)
    table, title = EmbeddingTable.open(session / _TABLE), path.resolve().name
    if text is None:
        return Pool(table, by_id(rows, table), None, [*_REVEALING, *hide], title)
    return Pool(table, None, text, hide, title)


def table_pool(table: EmbeddingTable, images: Path | None, text: str | None, hide: Sequence[str], title: str) -> Pool:
    """The rows of a table, with their images under a folder if there is one."""
    if text is not None:
        table.column(text)  # an unknown name is reported here, with the nearest ones
    return Pool(table, None if images is None else table_images(table, images), text, hide, title)


def session_folder(path: Path) -> Path:
    """Where the journal and the results of a pool go: photos/ -> photos-labels/ next to it, or here for a store."""
    from pro2.tables.sources import is_address

    whole = Path(path.name if is_address(path) else path).resolve()
    return whole.with_name(f"{whole.stem if path.is_file() else whole.name}-labels")


# images for the page


class BrokenImage(ValueError):
    """An image that cannot be shown; the message is the reason, without any path."""


def thumbnails(pictures: Pictures) -> Callable[[int, int], tuple[bytes, str]]:
    """A function of row and size: the image upright, its longer side at most `size`, encoded; and its media type."""

    def encode(row: int, size: int) -> tuple[bytes, str]:
        with _DECODING:
            try:
                image = decode(pictures.read(row))
            except ImageError as error:
                reason = str(error)
                raise BrokenImage("it cannot be read" if "/" in reason or "\\" in reason else reason) from error
            image.thumbnail((size, size), reducing_gap=2.0)
            out, small = io.BytesIO(), max(image.size) <= _LOSSLESS
            if small:
                image.save(out, "PNG", compress_level=3)
            else:
                image.save(out, "JPEG", quality=88)
            return out.getvalue(), "image/png" if small else "image/jpeg"

    cached = lru_cache(_CACHED)(encode)
    return lambda row, size: (encode if size == FULL else cached)(row, size)  # some hundred large ones fill a memory
