"""Labels as people have them: some rows have none, and they may lie in a file of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pro2.tables.columns import check_unique, filled
from pro2.tables.csv_files import read_columns
from pro2.tables.errors import TableError
from pro2.tables.layout import ID_NAMES


def labelled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels of the labelled rows, and where those are.

    Parameters
    ----------
    values : array (n,)
        A label column. None, NaN and empty text mean that a row has no label.

    Returns
    -------
    labels : array (m,)
        Without gaps, of one type; whole numbers that had become floats because of the gaps are integers again.
    mask : bool array (n,)
        True for the m rows that have a label.
    """
    full, missing = filled(values)
    mask = np.ones(len(values), dtype=bool) if missing is None else ~missing
    if full.dtype.kind == "O":
        mask &= full != ""
    elif full.dtype.kind == "f":
        mask &= ~np.isnan(full)
    labels = full[mask]
    if labels.dtype.kind == "f" and not mask.all() and all(label.is_integer() for label in labels.tolist()):
        labels = labels.astype(np.int64)
    return labels, mask


def read_labels(paths: Sequence[Path], label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and labels of the labelled lines of CSV files with a column `id` and one of labels.

    Parameters
    ----------
    paths : sequence of Path
        One file per round of labelling, say; an id may have a label in one of them only.
    label : str, optional
        Name of the label column. By default ``label``, or the only column beside the ids.
    """
    parts = [_read_one(path, label) for path in paths]
    ids, labels = (np.concatenate(each) for each in zip(*parts))
    check_unique(ids, " and ".join(map(str, paths)))
    return ids, labels


def _read_one(path: Path, label: str | None) -> tuple[np.ndarray, np.ndarray]:
    columns = read_columns(path)
    id_name = next((name for name in ID_NAMES if name in columns), None)
    if id_name is None:
        raise TableError(f"{path} has no column 'id'; its columns are {', '.join(columns)}")
    ids = columns.pop(id_name)
    check_unique(ids, str(path))
    name = label or (next(iter(columns)) if len(columns) == 1 else "label")
    if name not in columns:
        raise TableError(f"{path} has no label column {name!r}; beside the ids it has {', '.join(columns) or 'none'}")
    labels, mask = labelled(columns[name])
    return ids[mask], labels


def like_classes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels as a model writes its classes: a text file cannot tell the text "1" from the number."""
    known = {str(each): each for each in classes.tolist()}
    if set(labels.tolist()) <= set(known.values()) or not {str(each) for each in labels.tolist()} <= set(known):
        return labels
    return np.array([known[str(each)] for each in labels.tolist()], dtype=classes.dtype)
