"""What the shell proposes after the Tab key: names of plans, backbones, data sets and benchmarks."""

from __future__ import annotations

import importlib
from collections.abc import Callable


def proposing(module: str, listed: str) -> Callable[[str], list[str]]:
    """Names that a function of a module lists, by their beginning; the module is imported when the key is pressed."""

    def complete(incomplete: str) -> list[str]:
        names = getattr(importlib.import_module(module), listed)()
        return sorted(name for name in names if name.startswith(incomplete))

    return complete


complete_backbones = proposing("pro2.embed.registry", "list_beginnings")
complete_benchmarks = proposing("pro2.cli.bench", "list_benchmarks")
complete_datasets = proposing("pro2.lab.datasets.registry", "list_datasets")
complete_plans = proposing("pro2.lab.experiments.presets", "list_presets")
