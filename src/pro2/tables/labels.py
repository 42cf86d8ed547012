"""Labels as people have them: some rows have none, and the text "1" may stand for a number."""

from __future__ import annotations

import numpy as np

from pro2.tables.columns import filled


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


def like_classes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels as a model writes its classes: a text file cannot tell the text "1" from the number."""
    known = {str(each): each for each in classes.tolist()}
    if set(labels.tolist()) <= set(known.values()) or not {str(each) for each in labels.tolist()} <= set(known):
        return labels
    return np.array([known[str(each)] for each in labels.tolist()], dtype=classes.dtype)
