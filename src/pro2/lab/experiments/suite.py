"""Several plans, each with a folder of its own: what a page of claims is made from."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from pro2.lab.experiments.plan import Plan, Suite
from pro2.lab.experiments.presets import find_plan
from pro2.lab.experiments.view import write_json

SUITE = "suite.json"


def members(suite: Suite, root: str | Path = ".") -> dict[str, Plan]:
    """The plans of a suite by name; paths are relative to `root`."""
    found: dict[str, Plan] = {}
    for each in suite.plans:
        path = Path(root) / each
        plan = find_plan(str(path) if path.is_file() else each)
        if isinstance(plan, Suite):
            raise ValueError(f"suite {suite.name} lists {each!r}, which is a suite itself; list its plans instead")
        if plan.name in found:
            raise ValueError(f"suite {suite.name} has two plans called {plan.name!r}; each needs a folder of its own")
        found[plan.name] = plan
    return found


def note_suite(suite: Suite, out: str | Path, names: list[str]) -> Path:
    """Write ``suite.json`` into `out`: the folders beside it hold the results of the plans in it."""
    Path(out).mkdir(parents=True, exist_ok=True)
    return write_json(Path(out) / SUITE, {**asdict(suite), "plans": names})
