"""Experiments: a plan expands to cells, cells give result rows, rows end in one Parquet file."""

from __future__ import annotations

from typing import Any

from pro2.lab.experiments.plan import Plan, Suite, find_plan, list_presets, load_plan, parse_plan, preset_text
from pro2.lab.experiments.store import ResultStore

__all__ = [
    "Plan", "ResultStore", "Suite", "find_plan", "list_presets", "load_plan", "parse_plan", "preset_text", "run_sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "run_sweep":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pro2.lab.experiments.run import run_sweep  # what fits and measures is loaded when it runs

    return run_sweep
