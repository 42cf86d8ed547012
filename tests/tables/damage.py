"""What a reader of tables may make of a damaged file: the same content, or one error that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pro2.tables.embeddings import EmbeddingTable
from pro2.tables.labels import read_labels


def verifies_the_same(path: Path, whole: Path) -> None:
    """Files with a digest: what verifies is what was written."""
    table = EmbeddingTable.open(path)
    table.verify()
    _use(table)
    assert table.digest == EmbeddingTable.open(whole).digest
    assert table.provenance == EmbeddingTable.open(whole).provenance


def opens(path: Path, whole: Path) -> None:
    """Any file, read without verifying: no crash, no hang, no traceback, whatever is asked for first."""
    for first in (lambda t: t.ids, lambda t: t.embeddings, lambda t: [t.columns[name] for name in t.columns]):
        first(EmbeddingTable.open(path))
    _use(EmbeddingTable.open(path))


def reads_labels(path: Path, whole: Path) -> None:
    """A file of labels: ids and labels of equal length."""
    ids, labels = read_labels([path])
    assert len(ids) == len(labels)


def _use(table: EmbeddingTable) -> None:
    """Touch every byte, as a command would."""
    assert np.asarray(table.embeddings, dtype=np.float64).shape == (len(table), table.width)
    assert len(set(table.ids.tolist())) == len(table)
    for values in table.columns.values():
        assert len(values) == len(table)
        assert all(item is None or item == item or item != item for item in values.ravel().tolist())
