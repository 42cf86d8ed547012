"""Numbers behind the page: means with standard errors and deviations, paired differences, curves. Reads, never fits."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.lab.report.selection import CELL, Row, Rules, grouped, select, where
from pro2.tables.csv_files import write_rows

Table = list[dict[str, Any]]

_LEVEL = 0.95  # of confidence intervals


def mean_table(rows: Iterable[Row], rules: Rules) -> Table:
    """Mean accuracy of each cell over seeds, with standard error and deviation, and that of the worst group."""
    return [
        {**_named(cell), **moments([r["accuracy"] for r in runs]), **_worst_group(runs), **_settings(runs)}
        for cell, runs in grouped(select(rows, rules), *CELL).items()
    ]


def _named(cell: tuple[Any, ...]) -> dict[str, Any]:
    """What the values of a cell are, with or without a number of features."""
    return dict(zip((*CELL, "n_features"), cell))


def values_of(table: Iterable[Row], name: str) -> list[Any]:
    """Different values of a column, in the order of the table."""
    return list(dict.fromkeys(row[name] for row in table))


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
    """The setting that was chosen most often."""
    (((n_features, l2), _),) = Counter((row["n_features"], row["l2"]) for row in runs).most_common(1)
    return {"n_features": n_features, "l2": l2}


def overall_table(means: Table) -> Table:
    """Mean over targets of the cell means, for each data set, shots and method.

    The same targets at every number of shots and for every method, those that all of them have: else a curve would
    rise or fall because a target came or went.
    """
    table = []
    for (data,), mine in grouped(means, "data").items():
        targets = common_targets(mine)
        common = [row for row in mine if row["target"] in targets]
        for (shots, method), rows in grouped(common, "shots", "method").items():
            mean, error = combined(rows, "mean")
            table.append({"data": data, "shots": shots, "method": method, "mean": mean, "standard_error": error,
                          "n_targets": len(rows), "targets": ", ".join(targets)})  # fmt: skip
    return table


def combined(rows: Sequence[Row], name: str) -> tuple[float, float]:
    """Mean of a column over cells, and its standard error."""
    # seeds of different cells draw different rows: their errors add up in squares
    error = math.sqrt(sum((row["standard_error"] or 0.0) ** 2 for row in rows)) / len(rows)
    return float(np.mean([row[name] for row in rows])), error


def common_targets(rows: Table) -> list[str]:
    """Targets of one data set that have a row for every number of shots and every method."""
    wanted = set(grouped(rows, "shots", "method"))
    return [t for (t,), mine in grouped(rows, "target").items() if set(grouped(mine, "shots", "method")) == wanted]


def difference_table(rows: Iterable[Row], rules: Rules, baseline: str) -> Table:
    """Paired differences to the baseline, seed by seed on the same draws, with a t interval over seeds."""
    from scipy.stats import t

    chosen = {cell: runs[-1]["accuracy"] for cell, runs in grouped(select(rows, rules), *CELL, "seed").items()}
    pairs: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for (data, target, shots, method, seed), accuracy in chosen.items():
        other = chosen.get((data, target, shots, baseline, seed))
        if method != baseline and other is not None:
            pairs[data, target, shots, method].append(accuracy - other)
    table = []
    for cell, values in pairs.items():
        mean, error = float(np.mean(values)), moments(values)["standard_error"]
        half = None if error is None else float(t.ppf(0.5 + _LEVEL / 2, len(values) - 1)) * error
        low, high = (None, None) if half is None else (mean - half, mean + half)
        table.append({**_named(cell), "baseline": baseline, "difference": mean, "low": low, "high": high,
                      "standard_error": error, "level": _LEVEL, "n_seeds": len(values)})  # fmt: skip
    return table


def dimension_table(rows: Iterable[Row], rules: Rules, methods: Iterable[str]) -> Table:
    """Mean accuracy for every feature count, the penalty chosen within it: what the heat maps show."""
    rows = list(rows)
    chosen = [row for m in methods for row in select(where(rows, method=m), rules, keep=("n_features",))]
    cells = grouped(chosen, *CELL, "n_features")
    return [{**_named(cell), **moments([run["accuracy"] for run in runs])} for cell, runs in cells.items()]


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
    table = []
    for cell, runs in grouped(where(rows, measure=measure), *CELL, "n_features").items():
        found = {name: moments([run[name] for run in runs]) for name in names}
        means = {name: each["mean"] for name, each in found.items()}
        error = {"standard_error": found[names[0]]["standard_error"], "n_seeds": len(runs)}
        table.append({**_named(cell), **means, **error})
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
    rows = [[row.get(name) for name in names] for row in table]
    atomic_write(path, lambda file: write_rows(file, names, rows), force=True)
