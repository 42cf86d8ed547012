"""Target distributions and few-shot draws: index arrays into a table, never copies of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pro2.tables.columns import row_numbers


@dataclass(frozen=True)
class Draw:
    """One few-shot problem: row numbers of the labelled, the evaluation and the validation part; disjoint."""

    few: np.ndarray
    rest: np.ndarray
    val: np.ndarray


def draw(y: Any, rows: Any, n_shots: int, seed: int, n_val: int = 0, keep: int | None = None) -> Draw:
    """Draw `n_shots` labelled rows of every class from a target distribution.

    Draws are nested: with one seed, a larger draw begins with the smaller one, class by class. The validation part
    is taken from the other end of the same shuffle, so it does not depend on `n_shots`.

    Parameters
    ----------
    y : array of shape (n,)
        Labels of the whole table.
    rows : array of int, or mask of shape (n,)
        The target distribution.
    n_shots : int
        Labelled rows of each class.
    seed : int
    n_val : int
        Validation rows of each class.
    keep : int, optional
        What to do with a class that has too few rows: None refuses; a number lets it give what it has, at least one
        row, and keeps so many for the evaluation where it can.

    Returns
    -------
    Draw
        ``few`` class by class, ``rest`` sorted (all rows that were not drawn), ``val`` class by class.
    """
    labels = _one_per_row("y", y, "label")
    rows = _rows(rows, len(labels))
    for name, value in (("n_shots", n_shots), ("n_val", n_val), ("keep", keep or 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise ValueError(f"{name} must be a non-negative integer, found {value!r}")
    pools = {label: rows[labels[rows] == label] for label in np.unique(labels[rows]).tolist()}
    if keep is None:
        _check_enough(pools, int(n_shots), int(n_val))
    rng = np.random.default_rng(seed)
    parts = [_cut(rng.permutation(pool), int(n_shots), int(n_val), keep or 0) for pool in pools.values()]
    few, val = (np.concatenate(each) for each in zip(*parts))
    return Draw(few, np.setdiff1d(rows, np.concatenate([few, val])), val)


def _cut(pool: np.ndarray, n_shots: int, n_val: int, keep: int) -> tuple[np.ndarray, np.ndarray]:
    """Labelled and validation rows of one class; a small class labels first, then keeps rows, then validates."""
    n = min(n_shots, max(1, len(pool) - n_val - keep))
    n_val = min(n_val, max(0, len(pool) - n - keep))
    return pool[:n], pool[len(pool) - n_val :]


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
    (label_names, labels), (group_names, groups) = (
        np.unique(_one_per_row(name, values), return_inverse=True) for name, values in (("y", y), ("group", group))
    )
    n_labels, n_groups = len(label_names), len(group_names)
    if len(labels) != len(groups):
        raise ValueError(f"y has {len(labels)} rows, group has {len(groups)}; they must describe the same rows")
    if n_labels < 2 or n_groups != n_labels:
        raise ValueError(
            f"found {n_labels} labels and {n_groups} groups; expected at least two and as many groups as labels, "
            "so that each label has a group of its own"
        )
    rows = _rows(rows, len(labels))
    if source is not None:
        groups = _partners(labels, groups, _rows(source, len(labels)), n_labels)[groups]
    parts = [rows[(labels[rows] == a) & (groups[rows] == b)] for a in range(n_labels) for b in range(n_labels)]
    n = min(map(len, parts))
    follows = labels[rows] == groups[rows]
    return {
        "spurious": rows[follows],
        "minority": rows[~follows],
        "balanced": np.concatenate([part[:n] for part in parts]),
    }


def domain_targets(domain: Any, rows: Any = None) -> dict[str, np.ndarray]:
    """One target for each value of a domain column, in sorted order."""
    values = _one_per_row("domain", domain)
    rows = np.arange(len(values)) if rows is None else _rows(rows, len(values))
    return {str(value): rows[values[rows] == value] for value in np.unique(values[rows]).tolist()}


def _partners(labels: np.ndarray, groups: np.ndarray, source: np.ndarray, k: int) -> np.ndarray:
    """For each group, the label it stands for: its sorted place, or the assignment the source shows more often."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((k, k))
    np.add.at(counts, (labels[source], groups[source]), 1)
    # Joint minus independent: for two classes its sign is that of the correlation, whatever the class sizes.
    excess = counts * counts.sum() - counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True)
    chosen, assigned = linear_sum_assignment(excess, maximize=True)
    if excess[chosen, assigned].sum() <= np.trace(excess):
        return np.arange(k)  # no evidence against the sorted order
    partners = np.empty(k, dtype=np.intp)
    partners[assigned] = chosen
    return partners


def _one_per_row(name: str, values: Any, what: str = "value") -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one {what} per row, found shape {array.shape}")
    return array


def _rows(rows: Any, n: int) -> np.ndarray:
    index = row_numbers(rows, n)
    if not index.size:
        raise ValueError("rows is empty; expected a non-empty list of row numbers or mask")
    return index


def _check_enough(pools: dict[Any, np.ndarray], n_shots: int, n_val: int) -> None:
    label, pool = min(pools.items(), key=lambda item: len(item[1]))
    if n_shots + n_val > len(pool):
        asked = f"{n_shots} shots" + (f" and {n_val} validation rows" if n_val else "")
        raise ValueError(
            f"{asked} of every class were asked for, but class {label!r} has only {len(pool)} rows in this target "
            f"(all classes: {', '.join(f'{key}: {len(each)}' for key, each in pools.items())}); ask for fewer"
        )
