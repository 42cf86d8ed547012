"""Where a pool comes from: a folder of images, a list of texts, or a table that is embedded already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pro2.embed.extract import Progress, extract
from pro2.embed.lists import open_images
from pro2.embed.registry import create_backbone
from pro2.embed.sources import table_images
from pro2.embed.text import BACKBONE as TEXT_BACKBONE
from pro2.embed.text import open_texts
from pro2.label.pool import Pool, by_id
from pro2.tables.embeddings import EmbeddingTable

BACKBONE = "efficientnet-lite0"
TABLE = "pool.arrow"  # in the folder of the session
_GIVEN_AWAY = ("label", "split")  # columns that come from folder names

Tell = Callable[[Progress], None]


def folder_pool(path: Path, session: Path, model: Any, backbone: str | None, hide: Sequence[str], tell: Tell) -> Pool:
    """The images of a folder, embedded once with the model's backbone; those that cannot be decoded are left out."""
    images = open_images(path)
    network = create_backbone(backbone or backbone_of(model))
    extract(images, network, session / TABLE, on_error="skip", force=True, progress=tell)
    table = EmbeddingTable.open(session / TABLE)
    return Pool(table, by_id(images, table), None, [*_GIVEN_AWAY, *hide], path.resolve().name)


def backbone_of(model: Any, usual: str = BACKBONE) -> str:
    """What the model's source was embedded with."""
    known = {} if model is None else model.provenance.get("source", {})
    return str(known.get("backbone", usual))


def text_pool(
    path: Path, session: Path, model: Any, column: str, backbone: str | None, hide: Sequence[str], tell: Tell
) -> Pool:
    """The rows of a list, embedded once by their text with the model's backbone; empty texts are left out."""
    network = create_backbone(backbone or backbone_of(model, TEXT_BACKBONE))
    extract(open_texts(path, column), network, session / TABLE, on_error="skip", force=True, progress=tell)
    return Pool(EmbeddingTable.open(session / TABLE), None, column, hide, path.name)


def table_pool(
    table: EmbeddingTable,
    images: Path | None = None,
    text: str | None = None,
    hide: Sequence[str] = (),
    title: str = "",
) -> Pool:
    """The rows of a table, with their images under a folder if there is one."""
    if text is not None:
        table.column(text)  # an unknown name is answered here, with the nearest ones
    return Pool(table, None if images is None else table_images(table, images), text, hide, title)
