"""Which target rows to label next."""

from __future__ import annotations

from typing import Any

import numpy as np


def suggest_labels(
    model: Any, X_pool: Any, n: int, adapted: Any = None, ids: Any = None, random_state: Any = None
) -> np.ndarray:
    """Rows of an unlabelled pool whose labels help `model.adapt` most, in labelling order.

    Parameters
    ----------
    model : ProjectAndProbe
        Fitted on the source.
    X_pool : array (N, D)
        Unlabelled target rows; leave out rows that are labelled already.
    n : int
        How many rows to label, 1..N.
    adapted : LinearClassifier, optional
        What `model.adapt` returned for the labels so far; None at the cold start.
    ids : array (N,), optional
        Names of the rows: what is returned instead of row numbers.
    random_state : int, Generator or None

    Returns
    -------
    array (n,)
        Row numbers (or ids), no row twice.
    """
    raise NotImplementedError("suggest_labels is being written")
