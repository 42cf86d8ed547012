"""Rows to look at, with pictures."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pro2.embed.images import ImageError, decode, pillow_guard
from pro2.embed.sources import FileImages, table_images
from pro2.tables.embeddings import EmbeddingTable

THUMBNAIL = 192  # pixels of the longer side


@dataclass(frozen=True)
class Row:
    """A row to look at: its id, the answer with its probability, and its label where it has one."""

    id: str
    answer: str
    probability: float
    label: str | None = None


Shown = list[tuple[Row, str]]  # each with its picture as a `data:` address, empty where there is none


def doubtful_rows(adapted: Any, table: EmbeddingTable, n: int) -> tuple[np.ndarray, dict[str, int]]:
    """Numbers of the rows whose answer is least probable, most doubtful first; and how many rows get each answer."""
    sure = np.empty(len(table))
    counts = np.zeros(len(adapted.classes_), dtype=int)
    for X, span in table.iter_batches():
        P = np.asarray(adapted.predict_proba(X))
        sure[span] = P.max(axis=1)
        counts += np.bincount(P.argmax(axis=1), minlength=len(counts))
    names = [str(name) for name in adapted.classes_.tolist()]
    return np.argsort(sure, kind="stable")[:n], dict(zip(names, counts.tolist()))


def look(adapted: Any, table: EmbeddingTable, at: np.ndarray, y: np.ndarray | None, images: Path | None) -> Shown:
    """Rows `at` of a table, with their labels `y` if they have any, and with pictures from a folder if there is one."""
    some = table.take(at)
    if not len(some):
        return []
    P = np.asarray(adapted.predict_proba(some.embeddings))
    names = [str(adapted.classes_[k]) for k in P.argmax(axis=1)]
    labels = [None] * len(some) if y is None else [str(y[i]) for i in at]
    rows = [Row(str(i), *each) for i, *each in zip(some.ids.tolist(), names, P.max(axis=1).tolist(), labels)]
    return list(zip(rows, [""] * len(rows) if images is None else _pictures(some, images)))


def _pictures(table: EmbeddingTable, folder: Path) -> list[str]:
    files = table_images(table, folder)
    with pillow_guard():
        return [_picture(files, row) for row in range(len(files))]


def _picture(files: FileImages, row: int) -> str:
    """A small picture as text; nothing for one that cannot be read, which is no reason to have no page."""
    try:
        image = decode(files.read(row))
    except ImageError:
        return ""
    image.thumbnail((THUMBNAIL, THUMBNAIL), reducing_gap=2.0)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
