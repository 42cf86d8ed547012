"""Target distributions of the paper: rows grouped by how label and attribute go together, or by domain."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from pro2.tables.columns import row_numbers


def group_targets(y: Any, group: Any, rows: Any, source: Any = None) -> dict[str, np.ndarray]:
    """Targets by how label and group go together: `spurious`, `minority` and `balanced`.

    Parameters
    ----------
    y, group : arrays of shape (n,)
        Label and spurious attribute, numbers or text, with as many groups as labels.
    rows : array of int, or mask of shape (n,)
        Where targets are taken from, e.g. the test split.
    source : array of int, or mask of shape (n,), optional
        Source rows. They decide which group a label usually comes with; without them, groups and labels are
        matched in sorted order.

    Returns
    -------
    dict
        `spurious`: rows that follow the source's correlation. `minority`: rows that break it. `balanced`: equally
        many rows of every (label, group) pair, the first of each in row order.
    """
    (label_names, labels), (group_names, groups) = (np.unique(values, return_inverse=True) for values in (y, group))
    k = len(label_names)
    if len(labels) != len(groups):
        raise ValueError(f"y has {len(labels)} rows, group has {len(groups)}; they must describe the same rows")
    if k < 2 or len(group_names) != k:
        raise ValueError(
            f"found {k} labels and {len(group_names)} groups; expected at least two and as many groups as labels, "
            "so that each label has a group of its own"
        )
    rows = row_numbers(rows, len(labels))
    if source is not None:
        groups = _matching_labels(labels, groups, row_numbers(source, len(labels)), k)[groups]
    pairs = [rows[(labels[rows] == a) & (groups[rows] == b)] for a in range(k) for b in range(k)]
    n = min(map(len, pairs))
    follows = labels[rows] == groups[rows]
    balanced = np.concatenate([pair[:n] for pair in pairs])
    return {"spurious": rows[follows], "minority": rows[~follows], "balanced": balanced}


def domain_targets(domain: Any, rows: Any = None) -> dict[str, np.ndarray]:
    """One target for each value of a domain column, in sorted order."""
    values = np.asarray(domain)
    rows = np.arange(len(values)) if rows is None else row_numbers(rows, len(values))
    return {str(value): rows[values[rows] == value] for value in np.unique(values[rows]).tolist()}


def _matching_labels(labels: np.ndarray, groups: np.ndarray, source: np.ndarray, k: int) -> np.ndarray:
    """For each group, the label it stands for: the sorted order, or the assignment the source shows more often."""
    counts = np.zeros((k, k))
    np.add.at(counts, (labels[source], groups[source]), 1)
    # Joint minus independent: for two classes its sign is that of the correlation, whatever the class sizes.
    excess = counts * counts.sum() - counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True)
    chosen, assigned = linear_sum_assignment(excess, maximize=True)
    if excess[chosen, assigned].sum() <= np.trace(excess):
        return np.arange(k)  # no evidence against the sorted order
    label_of = np.empty(k, dtype=np.intp)
    label_of[assigned] = chosen
    return label_of
