"""Few-shot draws: which rows of a target are labelled, evaluated and validated, as row numbers of a table."""

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
        What to do with a class that has too few rows: None raises an error. A number makes the class give what it
        has, at least one row, and reserves that many rows for the evaluation where it can.

    Returns
    -------
    Draw
        ``few`` class by class, ``rest`` sorted (all rows that were not drawn), ``val`` class by class.
    """
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"y must have one label per row, found shape {labels.shape}")
    rows = row_numbers(rows, len(labels))
    if not rows.size:
        raise ValueError("rows is empty; expected a non-empty list of row numbers or mask")
    for name, value in (("n_shots", n_shots), ("n_val", n_val), ("keep", keep or 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise ValueError(f"{name} must be a non-negative integer, found {value!r}")
    by_class = {label: rows[labels[rows] == label] for label in np.unique(labels[rows]).tolist()}
    smallest = min(by_class, key=lambda label: len(by_class[label]))
    if keep is None and n_shots + n_val > len(by_class[smallest]):
        wanted = f"{n_shots} shots" + (f" and {n_val} validation rows" if n_val else "")
        raise ValueError(
            f"{wanted} of every class were requested, but class {smallest!r} has only {len(by_class[smallest])} rows "
            f"in this target (all classes: {', '.join(f'{label}: {len(of)}' for label, of in by_class.items())}); "
            "request fewer"
        )
    rng = np.random.default_rng(seed)
    few, val = [], []
    for of_class in by_class.values():
        order = rng.permutation(of_class)
        # A small class gives labels first, then rows to evaluate, and validation rows last.
        n_few = min(int(n_shots), max(1, len(order) - int(n_val) - (keep or 0)))
        few.append(order[:n_few])
        val.append(order[len(order) - min(int(n_val), max(0, len(order) - n_few - (keep or 0))) :])
    drawn = np.concatenate([*few, *val])
    return Draw(np.concatenate(few), np.setdiff1d(rows, drawn), np.concatenate(val))
