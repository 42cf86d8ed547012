"""A grid becomes frozen runs, batches of runs become result rows."""

from __future__ import annotations

from pro2.lab.experiments.parsing import load_plan, parse_plan
from pro2.lab.experiments.plan import Plan, Suite
from pro2.lab.experiments.presets import find_plan, list_presets, preset_text
from pro2.lab.experiments.results import ResultStore

__all__ = ["Plan", "ResultStore", "Suite", "find_plan", "list_presets", "load_plan", "parse_plan", "preset_text"]
