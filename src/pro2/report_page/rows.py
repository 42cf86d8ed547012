"""Rows to look at, with their images."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pro2.embed.images import ImageError, decode, pillow_guard
from pro2.embed.sources import FileImages, table_images
from pro2.tables.embeddings import EmbeddingTable

THUMBNAIL = 320  # pixels of the longer side: sharp at the 160 of a column, on displays of double density as well


class Row(NamedTuple):
    """A row to look at: its id, the predicted class with its probability, and its label where it has one."""

    id: str
    answer: str
    probability: float
    label: str | None = None


Shown = list[tuple[Row, str]]  # each with its image as a `data:` address, empty where there is none


def doubtful_rows(adapted: Any, table: EmbeddingTable, n: int) -> tuple[np.ndarray, dict[str, int]]:
    """Numbers of the `n` rows with the least probable predictions, and how many rows are predicted of each class."""
    probability = np.empty(len(table))
    counts = np.zeros(len(adapted.classes_), dtype=int)
    for X, span in table.iter_batches():
        P = np.asarray(adapted.predict_proba(X))
        probability[span] = P.max(axis=1)
        counts += np.bincount(P.argmax(axis=1), minlength=len(counts))
    names = [str(name) for name in adapted.classes_.tolist()]
    return np.argsort(probability, kind="stable")[:n], dict(zip(names, counts.tolist()))


def load_rows(adapted: Any, table: EmbeddingTable, at: np.ndarray, y: np.ndarray | None, images: Path | None) -> Shown:
    """Rows `at` of a table, with their labels `y` if they have any, and with images from a folder if there is one."""
    some = table.take(at)
    if not len(some):
        return []
    P = np.asarray(adapted.predict_proba(some.embeddings))
    names = [str(adapted.classes_[k]) for k in P.argmax(axis=1)]
    labels = [None] * len(some) if y is None else [str(y[i]) for i in at]
    rows = [Row(str(i), *each) for i, *each in zip(some.ids.tolist(), names, P.max(axis=1).tolist(), labels)]
    if images is None:
        return [(row, "") for row in rows]
    files = table_images(some, images)
    with pillow_guard():
        return [(row, _thumbnail(files, i)) for i, row in enumerate(rows)]


def _thumbnail(files: FileImages, row: int) -> str:
    """A `data:` address; empty for an image that cannot be read, which is no reason to have no page."""
    try:
        image = decode(files.read(row))
    except ImageError:
        return ""
    image.thumbnail((THUMBNAIL, THUMBNAIL), reducing_gap=2.0)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
