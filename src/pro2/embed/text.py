"""Text as a source of rows: one column of a list, read and cut like a list of images, so that a run can be resumed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pro2.embed.lists import list_columns, unique_ids
from pro2.embed.spec import RowError
from pro2.tables.columns import objects

BACKBONE = "minilm"


@dataclasses.dataclass(frozen=True)
class TextRows:
    """Rows of text with the other columns of their list.

    Parameters
    ----------
    file : str
        Name of the list, for messages.
    texts : ndarray of object
        One text per row, None where it is missing.
    ids : ndarray of str
    columns : mapping of name to ndarray
        All columns of the list but the ids, the text among them.
    """

    file: str
    texts: np.ndarray
    ids: np.ndarray
    columns: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.texts)

    def place(self, row: int) -> str:
        """The row's id; the name of the list is not part of it, because a renamed list has the same rows."""
        return f"row {row + 1} (id {self.ids[row]})"

    def read(self, row: int) -> bytes:
        """The text's bytes; a text that is missing or blank is a `RowError`."""
        text = self.texts[row]
        if text is None or not str(text).strip():
            raise RowError(f"the text in {self.file} is empty")
        return str(text).encode("utf-8", "surrogatepass")

    def stamp(self, row: int) -> str:
        """A digest of the text: a changed one is embedded again."""
        return hashlib.blake2b(str(self.texts[row]).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def open_texts(source: Path, column: str) -> TextRows:
    """Open one column of a `.csv`, `.tsv` or `.parquet` list.

    Parameters
    ----------
    source : Path
        With a header. A column `id` names the rows; without one they are numbered. Other columns are kept.
    column : str
        The text.
    """
    columns = list_columns(source)
    if column not in columns:
        raise ValueError(f"{source} has no column {column!r}; it has {', '.join(columns)}")
    texts = objects([None if each is None else str(each) for each in columns[column].tolist()])
    if len(texts) == 0:
        raise ValueError(f"{source} has no rows below its header; there is nothing to embed")
    ids = columns.pop("id", None)
    names = [str(row) for row in range(len(texts))] if ids is None else [str(each) for each in ids.tolist()]
    return TextRows(source.name, texts, unique_ids(names, source), columns)
