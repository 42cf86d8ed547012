"""What every data set knows: how to obtain it, its layout on disk, and its columns.

Which rows are source and which are targets is for plans to say: the standard entries are in
``experiments/presets/data.toml``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pro2.embed.images import SUFFIXES
from pro2.embed.sources import FileImages, text_array
from pro2.tables.csv_files import read_columns


class DataSet(ABC):
    """One data set in its official layout: what it is, how to obtain it, what its folder looks like.

    `label` and `group` (the spurious attribute, where there is one) are columns; `published` has the sizes of the
    official release by the values of column `split`. `markers` are what its folder holds, `folders` where that often
    is below a root.
    """

    name: str
    title: str
    licence: ClassVar[str]
    obtain: ClassVar[str]
    layout: ClassVar[str]
    label: str = "y"
    group: str | None = None
    published: ClassVar[Mapping[Any, int]] = {}
    markers: ClassVar[tuple[str, ...]] = ()
    folders: ClassVar[tuple[str, ...]] = ()

    def find_folder(self, root: Path) -> Path:
        """The folder that holds the data, at or below `root`; raises FileNotFoundError that names what is missing."""
        root, advice = Path(root), f"get it: {self.obtain}"
        if not root.is_dir():
            raise FileNotFoundError(f"{root} is not a folder; {advice}")
        places = [root, *(root / folder for folder in self.folders)]
        absent = [[marker for marker in self.markers if not (place / marker).exists()] for place in places]
        best = min(range(len(places)), key=lambda i: len(absent[i]))
        if absent[best]:
            raise FileNotFoundError(f"missing in {places[best]}: {', '.join(absent[best])}; {advice}")
        return places[best]

    @abstractmethod
    def load(self, root: Path) -> FileImages:
        """Read the metadata and list the images; no image is opened. `root` is the data's folder, or its parent."""

    def check(self, root: Path) -> dict[str, Any]:
        """Compare a folder with the official layout, down to every single image; no image is opened.

        What is `missing`, `notes` on sizes that are not those of the official release, and the number of `images`.
        """
        missing: list[str] = []
        try:
            images = self.load(root)
        except (OSError, ValueError) as error:
            return {"complete": False, "missing": [str(error)], "notes": [], "images": 0}
        by_folder: dict[str, list[str]] = {}
        for path in images.paths:
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        for folder, names in by_folder.items():
            place = images.root / folder
            present = {entry.name for entry in os.scandir(place)} if place.is_dir() else set()
            absent = [name for name in names if name not in present]
            if absent:
                missing.append(f"{len(absent):,} of {len(names):,} images in {place}, first: {absent[0]}")
        counts = {split: int(np.sum(images.columns["split"] == split)) for split in self.published}
        notes = [f"split {split}: {counts[split]:,} rows, the official release has {size:,}"
                 for split, size in self.published.items() if counts[split] != size]  # fmt: skip
        return {"complete": not missing, "missing": missing, "notes": notes, "images": len(images)}


def listed(root: Path, paths: Iterable[Any], columns: Mapping[str, np.ndarray], ids: Any = None) -> FileImages:
    """Images of a data set by their paths below its folder, which also are their ids unless others are given."""
    names = [str(path) for path in paths]
    return FileImages(root, names, text_array(names if ids is None else ids), columns)


def image_names(folder: Path) -> list[str]:
    """Sorted names of the images directly in a folder; none when there is no such folder."""
    names = [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
    return sorted(name for name in names if Path(name).suffix.lower() in SUFFIXES and name[0] != ".")


def read_csv(path: Path, needed: Iterable[str]) -> dict[str, np.ndarray]:
    """Columns of a CSV file, typed; the needed ones are there."""
    columns = read_columns(path)
    absent = [name for name in needed if name not in columns]
    if absent:
        raise ValueError(f"{path} has no column {', '.join(absent)}; it has: {', '.join(columns)}")
    return columns


def as_int(path: Path, name: str, values: np.ndarray, dtype: Any = np.int8) -> np.ndarray:
    """A column of integers; the first value that is not one is named."""
    try:
        return np.array([int(value) for value in values.tolist()], dtype=dtype)
    except (TypeError, ValueError):
        odd = next(value for value in values.tolist() if not str(value).lstrip("-").isdigit())
        raise ValueError(f"{name} in {path} has the value {odd!r}; expected integers") from None
