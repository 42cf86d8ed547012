"""A result folder as the report needs it: the plan, checked again, the rows, and how they were made.

What a folder of the documentation still has of an earlier sweep (the plan, and the means of every cell) is a record:
differences of it have no pairs, so their errors add up in squares, and what needs single runs cannot be had from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from pro2.lab.experiments.plan import Measure, Plan, parse_plan
from pro2.lab.experiments.store import SUMMARY, read_view
from pro2.lab.report import tables

MOST_BYTES = 16 * 2**20
_FACTS: dict[str, tuple[type, ...]] = {
    "runs": (int,), "failed": (int,), "seconds": (float, int), "processor_seconds": (float, int), "code_hash": (str,),
    "device": (str,), "versions": (dict,), "skips": (list,), "data": (dict,), "methods": (dict,),
}  # fmt: skip


class OnlyARecord(LookupError):
    """A record has no single runs to compute this from."""


@dataclass(frozen=True, eq=False)
class Results:
    """One finished sweep, or (`is_record`) what the documentation keeps of one."""

    folder: Path
    plan: Plan
    all_rows: pd.DataFrame | None
    summary: dict[str, Any]

    @property
    def is_record(self) -> bool:
        return self.all_rows is None

    @property
    def rows(self) -> pd.DataFrame:
        if self.all_rows is None:
            raise OnlyARecord(str(self.folder))
        return self.all_rows

    @cached_property
    def data(self) -> set[str]:
        """Names of the data entries that have results."""
        if self.all_rows is not None:
            return set(self.all_rows["data"])
        return set(pd.concat([pd.read_csv(path) for path in self.folder.glob("*.csv")])["data"])

    @property
    def titles(self) -> dict[str, str]:
        return {m.name: m.title for m in self.plan.methods}

    @cached_property
    def rules(self) -> dict[str, str]:
        """How the plan has the setting of each method chosen."""
        return tables.rules_of(self.plan, self.rows)

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean accuracy of every cell."""
        if self.all_rows is None:
            return pd.read_csv(self.folder / "results.csv")
        return tables.mean_table(self.rows, self.rules)

    def differences(self, method: str, baseline: str, most_features: float = float("inf")) -> pd.DataFrame:
        """Difference of one method to another in every cell, both with at most so many features, and its error."""
        if self.all_rows is not None:
            rows = self.rows[self.rows["method"].isin([method, baseline])]
            rows = rows[rows["n_features"].fillna(0) <= most_features]
            return tables.difference_table(rows, self.rules, baseline)
        if most_features < float("inf"):
            raise OnlyARecord(str(self.folder))
        cell = ["data", "target", "shots"]
        own, other = (self.means[self.means["method"] == name].set_index(cell) for name in (method, baseline))
        error = (own["standard_error"] ** 2 + other["standard_error"] ** 2) ** 0.5
        found = pd.DataFrame({"difference": own["mean"] - other["mean"], "standard_error": error})
        return found.dropna(subset="difference").reset_index().assign(method=method, baseline=baseline)

    def measured(self, measure: str) -> pd.DataFrame:
        """Table of nullspace norms, or of Theorem 1."""
        if self.all_rows is not None:
            return tables.nullspace_table(self.rows) if measure == "nullspace" else tables.bound_table(self.rows)
        found = [pd.read_csv(path) for path in sorted(self.folder.glob(f"{measure}-*.csv"))]
        if not found:
            raise OnlyARecord(str(self.folder))
        return pd.concat(found)


def load_results(folder: str | Path) -> Results:
    """Read a result folder of `pro2 sweep`; what is not one is a `ValueError`."""
    folder = Path(folder)
    rows = read_view(folder).to_pandas()
    if rows.empty:
        raise ValueError(f"{str(folder)!r} holds no finished run; run `pro2 sweep` again and look at failures.json")
    plan = _plan(folder)
    known = rows["method"].isin([m.name for m in plan.methods]) & rows["measure"].isin(get_args(Measure))
    rows = rows[known].astype({"n_features": "Int64", "shots": "Int64", "seed": "Int64"})
    return Results(folder, plan, rows, _summary(folder / SUMMARY))


def load_record(folder: Path) -> Results | None:
    """What the documentation keeps of a sweep, if anything."""
    return Results(folder, _plan(folder), None, {}) if (folder / "plan.json").is_file() else None


def read_json(path: Path) -> Any:
    """Plain values of a small JSON file."""
    if not path.is_file():
        raise ValueError(f"{str(path)!r} is missing; {path.parent} is not a finished result folder of `pro2 sweep`")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; at most {MOST_BYTES} are read")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file: {str(error)[:200]}") from error


def _plan(folder: Path) -> Plan:
    plan = parse_plan(read_json(folder / "plan.json"), where=str(folder / "plan.json"))
    if not isinstance(plan, Plan):
        raise ValueError(f"{folder / 'plan.json'} is a suite; give the folder that holds its suite.json")
    return plan


def _summary(path: Path) -> dict[str, Any]:
    """How the results were made; entries of the wrong kind are left out, since a page only shows them."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no summary of a sweep; run `pro2 sweep` again")
    kept: dict[str, Any] = {
        name: found[name] if isinstance(found.get(name), kinds) else kinds[0]() for name, kinds in _FACTS.items()
    }
    kept["skips"] = [each for each in kept["skips"] if isinstance(each, dict) and "reason" in each]
    kept["data"] = {name: data for name, data in kept["data"].items() if isinstance(data, dict)}
    return kept
