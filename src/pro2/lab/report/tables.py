"""Numbers behind the page: means with standard errors and deviations, paired differences, curves. Reads, never fits."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pro2.lab.experiments.view import write_text
from pro2.lab.report.names import csv_text
from pro2.lab.report.selection import Row, Rules, cell_of, select

Table = list[dict[str, Any]]


def mean_table(rows: Iterable[Row], rules: Rules) -> Table:
    """Mean accuracy of each cell over seeds, with standard error and deviation, and that of the worst group."""
    cells: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in select(rows, rules):
        cells[cell_of(row)].append(row)
    return [
        {**_named(cell), **moments([r["accuracy"] for r in runs]), **_worst_group(runs), **_settings(runs)}
        for cell, runs in cells.items()
    ]


def _named(cell: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("data", "target", "shots", "method"), cell))


def moments(values: Sequence[float]) -> dict[str, float | int | None]:
    """Mean, standard error, standard deviation and number of values."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    error = None if deviation is None else deviation / math.sqrt(len(values))
    return {
        "mean": float(np.mean(values)),
        "standard_error": error,
        "standard_deviation": deviation,
        "n_seeds": len(values),
    }


def _worst_group(runs: Sequence[Row]) -> dict[str, Any]:
    """Results of a table without groups, or of an older version, have none."""
    values = [r["worst_group"] for r in runs if r.get("worst_group") is not None]
    found = moments(values) if values else {"mean": None, "standard_error": None}
    return {"worst_group": found["mean"], "worst_group_error": found["standard_error"]}


def _settings(runs: Sequence[Row]) -> dict[str, Any]:
    """The settings that were chosen, most frequent first."""
    chosen: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in runs:
        chosen[row["n_features"], row["l2"]] += 1
    (n_features, l2), _ = max(chosen.items(), key=lambda e: e[1])
    return {"n_features": n_features, "l2": l2}


def overall_table(means: Table) -> Table:
    """Mean over targets of the cell means, for each data set, shots and method.

    The same targets at every number of shots and for every method, those that all of them have: else a curve would
    rise or fall because a target came or went.
    """
    table = []
    for data in dict.fromkeys(row["data"] for row in means):
        mine = [row for row in means if row["data"] == data]
        targets = common_targets(mine)
        groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        for row in mine:
            if row["target"] in targets:
                groups[row["shots"], row["method"]].append(row)
        for (shots, method), rows in groups.items():
            # seeds of different targets draw different rows: errors of the targets add up in squares
            error = math.sqrt(sum((r["standard_error"] or 0.0) ** 2 for r in rows)) / len(rows)
            mean = float(np.mean([r["mean"] for r in rows]))
            table.append({"data": data, "shots": shots, "method": method, "mean": mean, "standard_error": error,
                          "n_targets": len(rows), "targets": ", ".join(targets)})  # fmt: skip
    return table


def common_targets(rows: Table) -> list[str]:
    """Targets of one data set that have a row for every number of shots and every method."""
    wanted = {(row["shots"], row["method"]) for row in rows}
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for row in rows:
        found[row["target"]].add((row["shots"], row["method"]))
    return [target for target, cells in found.items() if cells == wanted]


def difference_table(rows: Iterable[Row], rules: Rules, baseline: str, level: float = 0.95) -> Table:
    """Paired differences to the baseline, seed by seed on the same draws, with a t interval over seeds."""
    chosen = {(*cell_of(row), row["seed"]): row["accuracy"] for row in select(rows, rules)}
    pairs: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for (data, target, shots, method, seed), accuracy in chosen.items():
        other = chosen.get((data, target, shots, baseline, seed))
        if method != baseline and other is not None:
            pairs[data, target, shots, method].append(accuracy - other)
    table = []
    for cell, values in pairs.items():
        found = moments(values)
        half = half_width(found["standard_error"], len(values), level)
        low, high = (None, None) if half is None else (np.mean(values) - half, np.mean(values) + half)
        table.append({**_named(cell), "baseline": baseline, "difference": found["mean"], "low": low, "high": high,
                      "standard_error": found["standard_error"], "level": level, "n_seeds": len(values)})  # fmt: skip
    return table


def half_width(error: float | None, n: int, level: float = 0.95) -> float | None:
    """Half of a t interval for a mean of n values."""
    from scipy.stats import t

    return None if error is None else float(t.ppf(0.5 + level / 2, n - 1)) * error


def dimension_table(rows: Iterable[Row], rules: Rules, methods: Iterable[str]) -> Table:
    """Mean accuracy for every feature count, the penalty chosen within it: what the heat maps show."""
    cells: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    rows, wanted = list(rows), list(methods)
    for method in wanted:
        for row in select([row for row in rows if row["method"] == method], rules, keep=("n_features",)):
            cells[cell_of(row, "n_features")].append(row["accuracy"])
    return [{**_named(cell[:4]), "n_features": cell[4], **moments(values)} for cell, values in cells.items()]


def nullspace_table(rows: Iterable[Row]) -> Table:
    """Nullspace norm of each target's best direction, mean and standard error over seeds."""
    return _measured(rows, "nullspace", ("nullspace_norm",))


def bound_table(rows: Iterable[Row]) -> Table:
    """Excess risk of the norm-bounded probe, the two parts of the bound on it, and whether that says anything."""
    names = ("excess_risk", "bound_bias", "bound_variance", "zero_risk")
    table = _measured(rows, "bound", names)
    for row in table:
        row["bound"] = row["bound_bias"] + row["bound_variance"]
        row["vacuous"] = row["bound"] >= row["zero_risk"]
    return table


def _measured(rows: Iterable[Row], measure: str, names: tuple[str, ...]) -> Table:
    cells: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["measure"] == measure:
            cells[cell_of(row, "n_features")].append(row)
    table = []
    for cell, runs in cells.items():
        found = {name: moments([run[name] for run in runs]) for name in names}
        means = {name: each["mean"] for name, each in found.items()}
        error = {"standard_error": found[names[0]]["standard_error"], "n_seeds": len(runs)}
        table.append({**_named(cell[:4]), "n_features": cell[4], **means, **error})
    return table


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
    """One line per row, atomically; an empty cell is a missing value."""
    names = list(dict.fromkeys(name for row in table for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_text(value) for name, value in row.items()} for row in table)
    write_text(path, text.getvalue())
