"""What every data set knows: its layout on disk, its columns, its source rows and its named targets."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from pro2.embed.images import SUFFIXES
from pro2.tables.csv_files import read_columns
from pro2.tables.where import close_names

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ImageList:
    """Images of a data set: paths relative to `root` (with forward slashes), one unique id and typed columns each."""

    root: Path
    paths: tuple[str, ...]
    ids: tuple[str, ...]
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.paths)


@dataclass
class LayoutReport:
    """Outcome of `DataSet.check`: what is missing, and notes on sizes that differ from the official release."""

    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.missing


class DataSet(ABC):
    """One data set in its official layout: what it is, how to obtain it, what its folder looks like.

    `label` and `group` (the spurious attribute, where there is one) are columns; `published` has the sizes of the
    official release. `markers` are what its folder holds, `folders` where that often is below a root. `split_values`
    are the values of column `split`, by default the names in `published`; data whose source and targets are splits
    name them in `source_split` and `target_splits`, others write `source_rows` and `targets`.
    """

    name: str
    title: str
    licence: ClassVar[str]
    obtain: ClassVar[str]
    layout: ClassVar[str]
    label: str = "y"
    group: str | None = None
    published: ClassVar[Mapping[str, int]] = {}
    markers: ClassVar[tuple[str, ...]] = ()
    folders: ClassVar[tuple[str, ...]] = ()
    split_values: ClassVar[Mapping[str, int]] = {}
    source_split: ClassVar[str] = "train"
    target_splits: ClassVar[Mapping[str, str]] = {}

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
    def load(self, root: Path) -> ImageList:
        """Read the metadata and list the images; no image is opened. `root` is the data's folder, or its parent."""

    def column(self, columns: Columns, name: str) -> np.ndarray:
        """One of the columns, or an error that says which are there."""
        if name not in columns:
            raise ValueError(f"data set {self.name} needs column {name!r}; {close_names(name, list(columns))}")
        return np.asarray(columns[name])

    def source_rows(self, columns: Columns) -> np.ndarray:
        """Row numbers of the source distribution in a table with these columns."""
        return self.rows_of_split(columns, self.source_split)

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        """Named target distributions in a table with these columns, as row numbers."""
        return {name: self.rows_of_split(columns, split) for name, split in self.target_splits.items()}

    def splits(self, columns: Columns) -> dict[str, int]:
        """Row counts under the names used in `published`."""
        return {name: len(self.rows_of_split(columns, name)) for name in self.published}

    def rows_of_split(self, columns: Columns, name: str) -> np.ndarray:
        return np.flatnonzero(self.column(columns, "split") == self.split_values.get(name, name))

    def check(self, root: Path) -> LayoutReport:
        """Compare a folder with the official layout, down to every single image; no image is opened."""
        report = LayoutReport()
        try:
            images = self.load(root)
        except (OSError, ValueError) as error:
            report.missing.append(str(error))
            return report
        by_folder: dict[str, list[str]] = {}
        for path in images.paths:
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        for folder, names in by_folder.items():
            place = images.root / folder
            present = {entry.name for entry in os.scandir(place)} if place.is_dir() else set()
            absent = [name for name in names if name not in present]
            if absent:
                report.missing.append(f"{len(absent):,} of {len(names):,} images in {place}, first: {absent[0]}")
        for name, count in self.splits(images.columns).items():
            if count != self.published[name]:
                report.notes.append(f"{name}: {count:,} rows, the official release has {self.published[name]:,}")
        return report


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


def safe_paths(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Relative paths from a list; none of them may leave the root."""
    checked = []
    for name in names:
        parts = PurePosixPath(str(name).replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or not parts.parts or ":" in parts.parts[0]:
            raise ValueError(f"{path} lists {name!r}, which leaves the data folder; paths must stay below it")
        checked.append(str(parts))
    return tuple(checked)
