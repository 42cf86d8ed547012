"""A result folder as the report needs it: the plan, checked again, the rows, and how they were made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from pro2.lab.experiments.parsing import parse_plan
from pro2.lab.experiments.plan import Measure, Plan
from pro2.lab.experiments.view import SUMMARY, read_view
from pro2.lab.report.selection import rules_of

_MOST_BYTES = 16 * 2**20
_FACTS: dict[str, tuple[type, ...]] = {
    "runs": (int,), "failed": (int,), "seconds": (float, int), "batch_seconds": (float, int), "recipe": (str, int),
    "device": (str,), "versions": (dict,), "skips": (list,), "data": (dict,),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Results:
    """One finished sweep."""

    folder: Path
    plan: Plan
    rows: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def titles(self) -> dict[str, str]:
        return {m.name: m.title for m in self.plan.methods}

    @cached_property
    def rules(self) -> dict[str, str]:
        """How the plan has the setting of each method chosen."""
        return rules_of(self.plan, self.rows)

    @property
    def has_accuracy(self) -> bool:
        return any(row["measure"] == "accuracy" for row in self.rows)


def load_results(folder: str | Path) -> Results:
    """Read a result folder of `pro2 sweep`, also one of an older version; what is not one is a `ValueError`."""
    folder = Path(folder)
    rows = read_view(folder).to_pylist()
    if not rows:
        raise ValueError(f"{str(folder)!r} holds no finished run; run `pro2 sweep` again and look at failures.json")
    plan = parse_plan(read_json(folder / "plan.json"), where=str(folder / "plan.json"))
    if not isinstance(plan, Plan):
        raise ValueError(f"{folder / 'plan.json'} is a suite; give the folder that holds its suite.json")
    known = {m.name for m in plan.methods}
    rows = [row for row in rows if row["method"] in known and row["measure"] in get_args(Measure)]
    return Results(folder, plan, rows, _summary(folder / SUMMARY))


def read_json(path: Path) -> Any:
    """Plain values of a small JSON file."""
    if not path.is_file():
        raise ValueError(f"{str(path)!r} is missing; {path.parent} is not a finished result folder of `pro2 sweep`")
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; at most {_MOST_BYTES} are read")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file: {str(error)[:200]}") from error


def _summary(path: Path) -> dict[str, Any]:
    """How the results were made; entries of the wrong kind are left out, for a page only shows them."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no summary of a sweep; run `pro2 sweep` again")
    kept: dict[str, Any] = {
        name: found[name] if isinstance(found.get(name), kinds) else kinds[0]() for name, kinds in _FACTS.items()
    }
    kept["versions"] = {str(k): str(v) for k, v in kept["versions"].items()}
    kept["skips"] = [each for each in kept["skips"] if isinstance(each, dict) and "reason" in each]
    kept["data"] = {str(k): v for k, v in kept["data"].items() if isinstance(v, dict)}
    return kept
