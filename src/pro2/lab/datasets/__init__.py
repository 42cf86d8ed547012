"""Data sets by name: how to obtain them, licence, official layout, columns."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

from pro2.embed.sources import FileImages
from pro2.lab.datasets.base import DataSet
from pro2.lab.datasets.images import VARIANTS, Camelyon17, CelebA, Collages, FMoW, Living17, Waterbirds

__all__ = ["DataSet", "get_dataset", "list_datasets", "open_dataset", "register_dataset"]

_MAKERS: dict[str, Callable[[], DataSet]] = {
    "waterbirds": Waterbirds,
    **{variant: partial(CelebA, variant) for variant in VARIANTS},
    **{data.name: data for data in (Camelyon17, FMoW, Living17, Collages)},
}


def register_dataset(name: str, make: Callable[[], DataSet]) -> None:
    """Add a data set under a new name; `make` returns it."""
    if name in _MAKERS:
        raise ValueError(f"a data set called {name!r} exists already; choose another name")
    _MAKERS[name] = make


def list_datasets() -> list[str]:
    """Names of all data sets, the paper's first."""
    return list(_MAKERS)


def get_dataset(name: str) -> DataSet:
    """A data set by name."""
    if name not in _MAKERS:
        close = difflib.get_close_matches(name, _MAKERS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no data set {name!r}; {hint}there are: {', '.join(_MAKERS)}")
    return _MAKERS[name]()


def open_dataset(name: str, root: str | PathLike[str] | None, follow_links: bool = False) -> FileImages:
    """Images of a data set, ready for `pro2.embed.extract`; `root` is its folder, or the parent of that."""
    if root is None:
        raise ValueError(f"dataset {name!r} needs root=, the folder that holds it")
    return replace(get_dataset(name).load(Path(root)), follow_links=follow_links)
