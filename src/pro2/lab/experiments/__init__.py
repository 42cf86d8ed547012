"""Experiments: a plan expands to cells, cells give result rows, rows end in one Parquet file.

What fits and measures is loaded when it runs, from `pro2.lab.experiments.run`.
"""

from pro2.lab.experiments.plan import Plan, Suite, find_plan, list_presets, parse_plan, preset_text
from pro2.lab.experiments.store import ResultStore

__all__ = ["Plan", "ResultStore", "Suite", "find_plan", "list_presets", "parse_plan", "preset_text"]
