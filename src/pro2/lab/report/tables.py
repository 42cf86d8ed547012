"""Numbers behind the page: means with standard errors and deviations, paired differences, curves. Reads, never fits."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pro2.lab.report.selection import Row, cell_of, select

Table = list[dict[str, Any]]


def mean_table(rows: Iterable[Row], rule: str) -> Table:
    """Mean accuracy of each cell over seeds, with the standard error of the mean and the standard deviation."""
    cells: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in select(rows, rule):
        cells[cell_of(row)].append(row)
    return [
        {**_named(cell), **_moments([r["accuracy"] for r in runs]), **_settings(runs)} for cell, runs in cells.items()
    ]


def _named(cell: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("data", "target", "shots", "method"), cell))


def _moments(values: Sequence[float]) -> dict[str, float | int | None]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    error = None if deviation is None else deviation / math.sqrt(len(values))
    return {
        "mean": float(np.mean(values)),
        "standard_error": error,
        "standard_deviation": deviation,
        "n_seeds": len(values),
    }


def _settings(runs: Sequence[Row]) -> dict[str, Any]:
    """The settings that were chosen, most frequent first."""
    chosen: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in runs:
        chosen[row["n_features"], row["l2"]] += 1
    (n_features, l2), _ = max(chosen.items(), key=lambda e: e[1])
    return {"n_features": n_features, "l2": l2}


def overall_table(means: Table) -> Table:
    """Mean over targets of the cell means, for each data set, shots and method.

    Only targets that every method has at that number of shots are averaged, so that methods stay comparable.
    """
    methods = {row["method"] for row in means}
    by_target: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in means:
        by_target[row["data"], row["shots"], row["target"]][row["method"]] = row
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for (data, shots, _), found in by_target.items():
        if set(found) == methods:
            for method, row in found.items():
                groups[data, shots, method].append(row)
    return [
        {"data": d, "shots": s, "method": m, "mean": float(np.mean([r["mean"] for r in g])),
         # seeds of different targets draw different rows: errors of the targets add up in squares
         "standard_error": math.sqrt(sum((r["standard_error"] or 0.0) ** 2 for r in g)) / len(g), "n_targets": len(g)}
        for (d, s, m), g in groups.items()
    ]  # fmt: skip


def difference_table(rows: Iterable[Row], rule: str, baseline: str, level: float = 0.95) -> Table:
    """Paired differences to the baseline, seed by seed on the same draws, with a t interval over seeds."""
    from scipy.stats import t

    chosen = {(*cell_of(row), row["seed"]): row["accuracy"] for row in select(rows, rule)}
    pairs: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for (data, target, shots, method, seed), accuracy in chosen.items():
        other = chosen.get((data, target, shots, baseline, seed))
        if method != baseline and other is not None:
            pairs[data, target, shots, method].append(accuracy - other)
    table = []
    for cell, values in pairs.items():
        moments = _moments(values)
        error = moments["standard_error"]
        half = None if error is None else float(t.ppf(0.5 + level / 2, len(values) - 1)) * error
        low, high = (None, None) if half is None else (np.mean(values) - half, np.mean(values) + half)
        table.append({**_named(cell), "baseline": baseline, "difference": moments["mean"], "low": low, "high": high,
                      "level": level, "n_seeds": len(values)})  # fmt: skip
    return table


def dimension_table(rows: Iterable[Row], rule: str, method: str) -> Table:
    """Mean accuracy for every feature count, the penalty chosen within it: what the heat maps show."""
    cells: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    mine = [row for row in rows if row["method"] == method]
    for row in select(mine, rule, keep=("n_features",)):
        cells[cell_of(row, "n_features")].append(row["accuracy"])
    return [{**_named(cell[:4]), "n_features": cell[4], **_moments(values)} for cell, values in cells.items()]


def nullspace_table(rows: Iterable[Row]) -> Table:
    """Nullspace norm of each target's best direction, mean over seeds."""
    cells: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row["measure"] == "nullspace":
            cells[row["data"], row["target"], row["method"], row["n_features"]].append(row["nullspace_norm"])
    names = ("data", "target", "method", "n_features")
    return [
        {**dict(zip(names, cell)), "nullspace_norm": float(np.mean(v)), "n_seeds": len(v)} for cell, v in cells.items()
    ]


def bias_variance_table(dimensions: Table, nullspace: Table) -> Table:
    """Bias = error at the largest target set; variance = difference to it (the paper's approximations)."""
    norms = {(r["data"], r["target"], r["method"], r["n_features"]): r["nullspace_norm"] for r in nullspace}
    last: dict[tuple[Any, ...], int] = defaultdict(int)
    error = {}
    for row in dimensions:
        key = (row["data"], row["target"], row["method"], row["n_features"])
        last[key] = max(last[key], row["shots"])
        error[*key, row["shots"]] = 1.0 - row["mean"]
    return [
        {"data": d, "target": t, "method": m, "n_features": k, "shots": shots, "error": e,
         "bias": error[d, t, m, k, last[d, t, m, k]], "variance": e - error[d, t, m, k, last[d, t, m, k]],
         "nullspace_norm": norms.get((d, t, m, k))}
        for (d, t, m, k, shots), e in error.items()
    ]  # fmt: skip


def write_csv(path: Path, table: Sequence[Mapping[str, Any]]) -> None:
    """One line a row; an empty cell is a missing value."""
    names = list(dict.fromkeys(name for row in table for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(table)
