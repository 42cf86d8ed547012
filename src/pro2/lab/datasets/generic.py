"""Data sets without a name: any image list with a label and a group or domain column, any folder of images."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pro2.lab.datasets.base import IMAGE_SUFFIXES, Columns, DataSet, ImageList, find_home, need, read_csv, safe_paths
from pro2.tables.csv_files import typed
from pro2.tables.shifts import domain_targets, group_targets

_PATH_NAMES = ("path", "file", "filename", "file_name", "img_filename", "image", "image_id")
_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_TRAIN, _TEST = ("train", "0", "source"), ("test", "2", "target")


class _ListedImages(DataSet):
    """Images and columns in a metadata.csv with a path column."""

    licence = "yours"
    obtain = "your own images"

    def home(self, root: Path) -> Path:
        return find_home(root, ["metadata.csv"], (), "write one line per image: its path and its columns")

    def load(self, root: Path) -> ImageList:
        home = self.home(root)
        path = home / "metadata.csv"
        rows = read_csv(path, [])
        name = next((each for each in _PATH_NAMES if each in rows), None)
        if name is None:
            raise ValueError(f"{path} has no path column; call one of its columns {', '.join(_PATH_NAMES)}")
        paths = safe_paths(path, rows.pop(name))
        ids = tuple(rows.pop("id")) if "id" in rows else paths
        return ImageList(home, paths, ids, {key: typed(values) for key, values in rows.items()})


class GroupTable(_ListedImages):
    """Any table with a label and a group column: targets spurious, minority and balanced.

    Parameters
    ----------
    label, group : str
        Column names.
    split : str
        Column that tells source rows (``train``, ``source`` or 0) from target rows (``test``, ``target`` or 2).
        A table without it uses every row for both.
    """

    name = "group-table"
    title = "any table with a label and a group column: spurious, minority, balanced"
    layout = "metadata.csv with path, label, group and (optional) split columns"

    def __init__(self, label: str = "y", group: str = "group", split: str = "split") -> None:
        self.label, self.group, self.split = label, group, split

    def source_rows(self, columns: Columns) -> np.ndarray:
        return _part(columns, self.split, _TRAIN, len(need(columns, self.label, self.name)))

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        y, group = need(columns, self.label, self.name), need(columns, str(self.group), self.name)
        rows = _part(columns, self.split, _TEST, len(y))
        return group_targets(y, group, rows, self.source_rows(columns))


class DomainTable(_ListedImages):
    """Any table with a label and a domain column: one target for each domain but the source.

    Parameters
    ----------
    label, domain : str
        Column names.
    source : str, optional
        The source domain; the largest one when None.
    """

    name = "domain-table"
    title = "any table with a domain column: one target a domain"
    layout = "metadata.csv with path, label and domain columns"

    def __init__(self, label: str = "y", domain: str = "domain", source: str | None = None) -> None:
        self.label, self.group, self.source = label, domain, source

    def _source(self, columns: Columns) -> str:
        found = domain_targets(need(columns, str(self.group), self.name))
        if self.source is None:
            return max(found, key=lambda name: len(found[name]))
        if str(self.source) not in found:
            raise ValueError(f"source domain {self.source!r} does not occur; domains are: {', '.join(found)}")
        return str(self.source)

    def source_rows(self, columns: Columns) -> np.ndarray:
        return domain_targets(need(columns, str(self.group), self.name))[self._source(columns)]

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        found = domain_targets(need(columns, str(self.group), self.name))
        found.pop(self._source(columns))
        return found


class ImageFolder(DataSet):
    """A folder whose sub-folders are classes, or whose sub-folders train, val and test hold classes."""

    name = "image-folder"
    title = "a folder of images: sub-folders are labels"
    licence = "yours"
    obtain = "your own images"
    layout = "<class>/**/image, or {train,val,test}/<class>/**/image"

    def home(self, root: Path) -> Path:
        return find_home(root, [], (), "give a folder of images")

    def load(self, root: Path) -> ImageList:
        home = self.home(root)
        paths = tuple(sorted(_walk(home)))
        if not paths:
            raise FileNotFoundError(
                f"no images in {home}; expected files ending in {', '.join(sorted(IMAGE_SUFFIXES))}"
            )
        split = [path.split("/")[0].lower() if "/" in path else "" for path in paths]
        columns: dict[str, np.ndarray] = {}
        depth = 0
        if all(name in _SPLITS for name in split):
            columns["split"] = np.array([_SPLITS[name] for name in split], dtype=str)
            depth = 1
        classes = np.array([_part_of(path, depth) for path in paths], dtype=str)
        if (classes != "").any():
            columns = {"y": np.unique(classes, return_inverse=True)[1].astype(np.int32), "label": classes, **columns}
        return ImageList(home, paths, paths, columns)

    def source_rows(self, columns: Columns) -> np.ndarray:
        return _part(columns, "split", _TRAIN, len(need(columns, self.label, self.name)))

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        n = len(need(columns, self.label, self.name))
        if "split" not in columns:
            return {"all": np.arange(n)}
        return {"test": _part(columns, "split", _TEST, n)}


def _walk(home: Path) -> list[str]:
    found = []
    for folder, inner, names in os.walk(home):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in names:
            if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                found.append((Path(folder) / name).relative_to(home).as_posix())
    return found


def _part_of(path: str, depth: int) -> str:
    parts = path.split("/")
    return parts[depth] if len(parts) > depth + 1 else ""


def _part(columns: Columns, split: str, values: tuple[str, ...], n: int) -> np.ndarray:
    if split not in columns:
        return np.arange(n)
    text = np.char.lower(np.asarray(columns[split]).astype(str))
    rows = np.flatnonzero(np.isin(text, values))
    if not len(rows):
        raise ValueError(
            f"column {split!r} holds {', '.join(np.unique(text)[:10])}; expected one of {', '.join(values)}"
        )
    return rows
