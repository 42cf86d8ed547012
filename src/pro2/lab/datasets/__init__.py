"""Data sets by name: official layout, licence, columns, source rows and named targets."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pro2.embed.sources import FileImages, text_array
from pro2.lab.datasets.base import DataSet, ImageList, columns_of
from pro2.lab.datasets.images import VARIANTS, Camelyon17, CelebA, Collages, FMoW, Living17, Waterbirds

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


def load_dataset(name: str, root: str | PathLike[str]) -> ImageList:
    """List the images of a data set with ids and columns; `root` is its folder, or the parent of that."""
    return get_dataset(name).load(Path(root))


def open_dataset(name: str, root: str | PathLike[str] | None, follow_links: bool = False) -> FileImages:
    """The same, ready for `pro2.embed.extract`."""
    if root is None:
        raise ValueError(f"dataset {name!r} needs root=, the folder that holds it")
    images = load_dataset(name, root)
    return FileImages(images.root, list(images.paths), text_array(images.ids), dict(images.columns), follow_links)


def source_rows(name: str, table: Any) -> np.ndarray:
    """Row numbers of the source distribution in a table (or mapping of columns) of this data set."""
    return get_dataset(name).source_rows(columns_of(table))


def targets(name: str, table: Any) -> dict[str, np.ndarray]:
    """Named target distributions in a table (or mapping of columns) of this data set, as row numbers."""
    return get_dataset(name).targets(columns_of(table))
