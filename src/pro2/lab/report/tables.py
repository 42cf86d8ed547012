"""A folder of results, and the numbers behind its pages: settings chosen, means, paired differences, curves.

Functions take and return data frames; rows are those of ``results.parquet``. Nothing here fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import msgspec
import pandas as pd
from scipy.stats import t

from pro2.atomic import atomic_write
from pro2.lab.experiments.plan import Measure, Plan, Selection, Skip, parse_plan
from pro2.lab.experiments.store import SUMMARY, read_view
from pro2.tables.csv_files import write_rows

CELL = ["data", "target", "shots", "method"]  # what runs are compared within
SETTING = ["n_features", "l2", "params"]
LEVEL = 0.95  # of confidence intervals
Rules = Mapping[str, str]  # how the setting of each method is chosen

EXPLAINED = {
    "validation": (
        "by held-out target labels",
        "For every target, number of shots and seed, the setting with the best accuracy on held-out target rows was "
        "taken; accuracy is reported on other rows. This is the paper's protocol: it uses target labels in addition to "
        "the shots.",
    ),
    "oracle": (
        "by test accuracy (oracle)",
        "For every target and number of shots, the setting with the best mean test accuracy over seeds was taken. This "
        "is an upper limit that no user could reach, because the choice uses the test labels.",
    ),
    "support": (
        "by the few labels alone",
        "For every target, number of shots and seed, the setting with the smallest leave-one-out loss on the few "
        "labelled target rows was taken. No other target label was used.",
    ),
    "untuned": (
        "not at all",
        "Every method has one setting, so there was nothing to choose and no target label beyond the shots was used.",
    ),
}  # fmt: skip
_SCORE = {"validation": "val_accuracy", "support": "support_loss", "oracle": "accuracy"}
_NEEDS = {"validation": "validation = 25 (rows per label)", "support": 'selection = "support"'}
_NAMED = 4  # methods that one line can name


class Summary(msgspec.Struct, frozen=True):
    """How results were made, as far as a page tells."""

    runs: int = 0
    failed: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    code_hash: str = ""
    device: str | None = None
    versions: dict[str, str] = {}
    skips: list[Skip] = []
    data: dict[str, dict[str, Any]] = {}
    methods: dict[str, dict[str, int | float]] = {}


@dataclass(frozen=True, eq=False)
class Results:
    """One finished sweep: its plan, checked again, its rows, and how they were made."""

    plan: Plan
    rows: pd.DataFrame
    summary: Summary

    @classmethod
    def load(cls, folder: Path) -> Results:
        """Read a result folder of `pro2 sweep`; what is not one is a `ValueError`."""
        rows = read_view(folder).to_pandas()
        if rows.empty:
            raise ValueError(f"{str(folder)!r} holds no finished run; run `pro2 sweep` again and look at failures.json")
        plan = parse_plan(read_json(folder / "plan.json"), where=str(folder / "plan.json"))
        if not isinstance(plan, Plan):
            raise ValueError(f"{folder / 'plan.json'} is a suite; give the folder that holds its suite.json")
        known = rows["method"].isin([m.name for m in plan.methods]) & rows["measure"].isin(get_args(Measure))
        rows = rows[known].astype({"n_features": "Int64", "shots": "Int64", "seed": "Int64"})
        return cls(plan, rows, read_json(folder / SUMMARY, Summary))

    @property
    def titles(self) -> dict[str, str]:
        return {m.name: m.title for m in self.plan.methods}

    @cached_property
    def rules(self) -> dict[str, str]:
        """How the plan has the setting of each method chosen."""
        return rules_of(self.plan, self.rows)

    def differences(self, method: str, baseline: str, most_features: float = math.inf) -> pd.DataFrame:
        """Paired differences of one method to another in every cell, both with at most so many features."""
        rows = self.rows[self.rows["method"].isin([method, baseline])]
        return difference_table(rows[rows["n_features"].fillna(0) <= most_features], self.rules, baseline)


def read_json(path: Path, kind: Any = Any) -> Any:
    """The values of a JSON file that a sweep or a report wrote, checked against their type."""
    if not path.is_file():
        raise ValueError(f"{str(path)!r} is missing; {path.parent} is not a finished result folder of `pro2 sweep`")
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {str(error)[:200]}; run `pro2 sweep` again") from error


def rules_of(plan: Plan, rows: pd.DataFrame, asked: str | None = None) -> dict[str, str]:
    """The rule of each method: the one asked for, or the plan's; "untuned" where there is one setting only."""
    if asked is not None and asked not in get_args(Selection):
        raise ValueError(f"selection {asked!r} is not known; expected {' or '.join(map(repr, get_args(Selection)))}")
    settings = rows[rows["measure"] == "accuracy"].drop_duplicates(["method", "data", *SETTING])
    n_settings = settings.groupby(["method", "data"]).size().groupby("method").max()
    return {m.name: (asked or plan.rule(m.name)) if n_settings.get(m.name, 0) > 1 else "untuned" for m in plan.methods}


def explain(rules: Rules, titles: Mapping[str, str]) -> tuple[str, str]:
    """How settings were chosen, in one line, and what that means; without rules there was nothing to choose for."""
    if not rules:
        return "Nothing was chosen: no accuracy was measured.", ""
    by_rule: dict[str, list[str]] = {}
    for method, rule in rules.items():
        by_rule.setdefault(rule, []).append(titles.get(method, method))
    alone = by_rule.pop("untuned", [])
    if not by_rule:
        return f"Settings chosen {EXPLAINED['untuned'][0]}.", EXPLAINED["untuned"][1]
    several = len(by_rule) > 1
    parts = [EXPLAINED[rule][0] + (f" ({', '.join(names)})" if several else "") for rule, names in by_rule.items()]
    line = f"Settings chosen {', and '.join(parts)}."
    if alone:
        who = ", ".join(alone) if len(alone) <= _NAMED else f"{len(alone)} other methods"
        line += f" One setting only, nothing to choose: {who}."
    return line, " ".join(EXPLAINED[rule][1] for rule in by_rule)


def select(rows: pd.DataFrame, rules: Rules, keep: Iterable[str] = ()) -> pd.DataFrame:
    """One row for each data, target, shots, method and seed, of those that measure accuracy.

    `keep` are columns to choose within, e.g. ``["n_features"]`` for the best penalty of every dimension.
    """
    rows, cell = rows[rows["measure"] == "accuracy"], [*CELL, *keep]
    setting = rows.groupby(SETTING, dropna=False).ngroup()
    rows = rows.assign(setting=setting, features=rows["n_features"].fillna(0), penalty=rows["l2"].fillna(0.0))
    several = rows.groupby(cell, dropna=False)["setting"].transform("nunique") > 1
    rule = rows["method"].map(rules).where(several, "untuned")
    chosen = [rows[rule == "untuned"]]
    for name, column in _SCORE.items():
        mine = rows[rule == name]
        if mine.empty:
            continue
        missing = mine[mine[column].isna()]
        if len(missing):
            raise ValueError(
                f"selection {name!r} needs the column {column}, which method {missing['method'].iloc[0]} has no values "
                f"of; set {_NEEDS.get(name)} in the plan and run `pro2 sweep` again, or choose selection 'oracle'"
            )
        score = mine[column] if name == "validation" else -mine[column]
        if name == "oracle":
            score = mine.groupby([*cell, "setting"], dropna=False)[column].transform("mean")
        # equal scores go to fewer features, then to the larger penalty
        order = ["score", "features", "penalty"]
        ranked = mine.assign(score=score).sort_values(order, ascending=[False, True, False], kind="stable")
        per = ranked.groupby(cell if name == "oracle" else [*cell, "seed"], dropna=False)
        chosen.append(ranked[ranked["setting"] == per["setting"].transform("first")])
    return pd.concat(chosen).sort_index()[rows.columns[:-3]]


def mean_table(rows: pd.DataFrame, rules: Rules) -> pd.DataFrame:
    """Mean accuracy of each cell over seeds, with standard error and deviation, that of the worst group, and settings.

    The settings shown are those chosen most often.
    """
    chosen = select(rows, rules)
    groups = chosen.groupby(CELL, sort=False)
    counted = chosen.groupby([*CELL, "n_features", "l2"], dropna=False, sort=False).size().reset_index(name="n")
    often = counted.sort_values("n", ascending=False, kind="stable").drop_duplicates(CELL).set_index(CELL)
    worst = groups["worst_group"].agg(worst_group="mean", worst_group_error="sem")
    return _means(groups["accuracy"]).join(worst).join(often[["n_features", "l2"]]).reset_index()


def _means(groups: Any) -> pd.DataFrame:
    return groups.agg(mean="mean", standard_error="sem", standard_deviation="std", n_seeds="count")


def overall_table(means: pd.DataFrame) -> pd.DataFrame:
    """Mean over targets of the cell means, for each data set, shots and method.

    The same targets at every number of shots and for every method, those that all of them have: else a curve would
    rise or fall because a target came or went.
    """
    parts = []
    for _, mine in means.groupby("data", sort=False):
        n_cells = mine.groupby("target", sort=False).size()
        targets = n_cells.index[n_cells == len(mine.drop_duplicates(["shots", "method"]))]
        if len(targets):
            common = average(mine[mine["target"].isin(targets)], ["data", "shots", "method"], "mean")
            parts.append(common.assign(n_targets=len(targets), targets=", ".join(targets)))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def average(table: pd.DataFrame, by: list[str], column: str) -> pd.DataFrame:
    """Mean of a column over cells, and its standard error: seeds of different cells draw different rows."""
    groups = table.groupby(by, sort=False)
    error = groups["standard_error"].agg(lambda each: math.sqrt((each.fillna(0.0) ** 2).sum()) / len(each))
    return groups[column].mean().to_frame().assign(standard_error=error).reset_index()


def difference_table(rows: pd.DataFrame, rules: Rules, baseline: str) -> pd.DataFrame:
    """Paired differences to the baseline, seed by seed on the same draws, with a t interval over seeds."""
    chosen = select(rows, rules)[[*CELL, "seed", "accuracy"]]
    base = chosen[chosen["method"] == baseline].drop(columns="method")
    pairs = chosen[chosen["method"] != baseline].merge(base, on=["data", "target", "shots", "seed"])
    pairs["difference"] = pairs["accuracy_x"] - pairs["accuracy_y"]
    groups = pairs.groupby(CELL, sort=False)["difference"]
    table = groups.agg(difference="mean", standard_error="sem", n_seeds="count").reset_index()
    half = t.ppf(0.5 + LEVEL / 2, table["n_seeds"] - 1) * table["standard_error"]
    low, high = table["difference"] - half, table["difference"] + half
    return table.assign(baseline=baseline, low=low, high=high, level=LEVEL)


def dimension_table(rows: pd.DataFrame, rules: Rules, methods: Iterable[str]) -> pd.DataFrame:
    """Mean accuracy for every feature count, the penalty chosen within it: what the heat maps show."""
    order = {method: i for i, method in enumerate(methods)}
    chosen = select(rows[rows["method"].isin(order)], rules, keep=["n_features"])
    table = _means(chosen.groupby([*CELL, "n_features"], sort=False)["accuracy"]).reset_index()
    return table.sort_values("method", key=lambda names: names.map(order), kind="stable", ignore_index=True)


def nullspace_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Nullspace norm of each target's best direction, mean and standard error over seeds."""
    return _measured(rows, "nullspace", ["nullspace_norm"])


def bound_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Excess risk of the norm-bounded probe, the two parts of the bound on it, and whether that says anything."""
    table = _measured(rows, "bound", ["excess_risk", "bound_bias", "bound_variance", "zero_risk"])
    bound = table["bound_bias"] + table["bound_variance"]
    return table.assign(bound=bound, vacuous=bound >= table["zero_risk"])


def _measured(rows: pd.DataFrame, measure: str, names: list[str]) -> pd.DataFrame:
    groups = rows[rows["measure"] == measure].groupby([*CELL, "n_features"], sort=False, dropna=False)
    error = groups[names[0]].agg(standard_error="sem", n_seeds="count")
    return groups[names].mean().join(error).reset_index()


def bias_variance_table(dimensions: pd.DataFrame, nullspace: pd.DataFrame) -> pd.DataFrame:
    """Bias = error at the largest target set; variance = difference to it (the paper's approximations)."""
    line = ["data", "target", "method", "n_features"]
    table = dimensions[[*line, "shots"]].assign(error=1.0 - dimensions["mean"]).sort_values("shots", kind="stable")
    bias = table.groupby(line)["error"].transform("last")
    table = table.assign(bias=bias, variance=table["error"] - bias).sort_index()
    return table.merge(nullspace[[*line, "nullspace_norm"]].drop_duplicates(line), on=line, how="left")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """One line per row, atomically; an empty cell is a missing value, and no cell runs in a spreadsheet."""
    rows = table.astype(object).where(table.notna(), None).to_numpy().tolist()
    atomic_write(path, lambda file: write_rows(file, list(table.columns), rows), force=True)
