"""What the shell proposes after the Tab key: names of plans, backbones and data sets."""

from __future__ import annotations

from collections.abc import Iterable


def complete_backbones(incomplete: str) -> list[str]:
    """Short names, and the runtimes that take any model of theirs."""
    from pro2.embed.registry import RUNTIMES, list_backbones

    return _starting(incomplete, [*list_backbones(), *(f"{name}:" for name in RUNTIMES)])


def complete_datasets(incomplete: str) -> list[str]:
    """Data sets of the package."""
    from pro2.lab.datasets.registry import list_datasets

    return _starting(incomplete, list_datasets())


def complete_plans(incomplete: str) -> list[str]:
    """Plans of the package."""
    from pro2.lab.experiments.presets import list_presets

    return _starting(incomplete, list_presets())


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
