"""What every data set knows: its layout on disk, its columns, its source rows and its named targets."""

from __future__ import annotations

import csv
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from pro2.embed.images import SUFFIXES
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
    are the values of column `split`; data whose source and targets are splits name them in `source_split` and
    `target_splits`, others write `source_rows` and `targets`.
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
    split_values: ClassVar[Mapping[str, Any]] = {}
    source_split: ClassVar[str] = "train"
    target_splits: ClassVar[Mapping[str, str]] = {}

    def find_folder(self, root: Path) -> Path:
        """The folder that holds the data, at or below `root`; raises FileNotFoundError that names what is missing."""
        root, advice = Path(root), f"get it: {self.obtain}"
        if not root.is_dir():
            raise FileNotFoundError(f"{root} is not a folder; {advice}")
        absent = {
            place: [marker for marker in self.markers if not (place / marker).exists()]
            for place in (root, *(root / folder for folder in self.folders))
        }
        best = min(absent, key=lambda place: len(absent[place]))
        if absent[best]:
            raise FileNotFoundError(f"missing in {best}: {', '.join(absent[best])}; {advice}")
        return best

    @abstractmethod
    def load(self, root: Path) -> ImageList:
        """Read the metadata and list the images; no image is opened."""

    def source_rows(self, columns: Columns) -> np.ndarray:
        """Rows to project with."""
        return self.rows_of_split(columns, self.source_split)

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        """Named target distributions."""
        return {name: self.rows_of_split(columns, split) for name, split in self.target_splits.items()}

    def splits(self, columns: Columns) -> dict[str, int]:
        """Row counts under the names used in `published`."""
        return {name: len(self.rows_of_split(columns, name)) for name in self.split_values}

    def rows_of_split(self, columns: Columns, name: str) -> np.ndarray:
        return np.flatnonzero(require_column(columns, "split", self.name) == self.split_values[name])

    def check(self, root: Path) -> LayoutReport:
        """Compare a folder with the official layout, down to every single image; no image is opened."""
        report = LayoutReport()
        try:
            images = self.load(Path(root))
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
            if count != self.published.get(name, count):
                report.notes.append(f"{name}: {count:,} rows, the official release has {self.published[name]:,}")
        return report


def image_names(folder: Path) -> list[str]:
    """Sorted names of the images directly in a folder; none when there is no such folder."""
    if not folder.is_dir():
        return []
    names = (entry.name for entry in os.scandir(folder))
    return sorted(name for name in names if Path(name).suffix.lower() in SUFFIXES and name[0] != ".")


def read_csv(path: Path, needed: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a CSV file as text; needed ones are checked, spaces around fields are dropped."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [[value.strip() for value in row] for row in csv.reader(file) if row]
    header = rows[0] if rows else []
    absent = [name for name in needed if name not in header]
    if absent:
        raise ValueError(f"{path} has no column {', '.join(absent)}; its header is: {', '.join(header) or '(empty)'}")
    return as_columns(path, header, rows[1:], 2)


def as_columns(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], first: int) -> dict[str, list[str]]:
    """Rows of a file as columns; line number `first` is that of the first row."""
    for i, row in enumerate(rows, first):
        if len(row) != len(header):
            raise ValueError(f"line {i} of {path} has {len(row)} fields, the header has {len(header)}")
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def as_int(path: Path, name: str, values: Sequence[str], dtype: Any = np.int64) -> np.ndarray:
    """Text to integers; the first value that is not one is named with its row."""
    try:
        return np.array([int(value) for value in values], dtype=dtype)
    except ValueError:
        row = next(i for i, value in enumerate(values) if not value.lstrip("-").isdigit())
        raise ValueError(f"{name} of row {row + 1} in {path} is {values[row]!r}; expected an integer") from None


def safe_paths(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Relative paths from a list; none of them may leave the root."""
    checked = []
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or not parts.parts or ":" in parts.parts[0]:
            raise ValueError(f"{path} lists {name!r}, which leaves the data folder; paths must stay below it")
        checked.append(str(parts))
    return tuple(checked)


def columns_of(table: Any) -> Columns:
    """Columns of an EmbeddingTable, an ImageList or a plain mapping."""
    columns = getattr(table, "columns", table)
    if not isinstance(columns, Mapping):
        raise ValueError(f"expected a table or a mapping of columns, found {type(table).__name__}")
    return columns


def require_column(columns: Columns, name: str, owner: str) -> np.ndarray:
    """One column, or an error that names the data set that needs it."""
    if name not in columns:
        raise ValueError(f"data set {owner} needs column {name!r}; {close_names(name, list(columns))}")
    return np.asarray(columns[name])
