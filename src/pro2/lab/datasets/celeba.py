"""CelebA: faces with 40 binary attributes; the paper's main task and its four variants.

Liu et al., Deep Learning Face Attributes in the Wild, ICCV 2015; the variants are those of Lee et al., Diversify and
Disambiguate, 2022.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from pro2.lab.datasets.base import Columns, DataSet, ImageList, as_columns, as_int, need, read_csv, safe_paths
from pro2.tables.shifts import group_targets

VARIANTS = {
    "celeba": ("Blond_Hair", "Male"),
    "celeba-mouth": ("Mouth_Slightly_Open", "Wearing_Lipstick"),
    "celeba-attractive": ("Attractive", "Smiling"),
    "celeba-wavy": ("Wavy_Hair", "High_Cheekbones"),
    "celeba-makeup": ("Heavy_Makeup", "Big_Lips"),
}
_IMAGE_FOLDERS = ("img_align_celeba/img_align_celeba", "img_align_celeba", "Img/img_align_celeba")
_SOURCE_PART = 0.7  # of a table without official partition, in row order


class CelebA(DataSet):
    """Label and spurious attribute are two of the 40 attributes; all 40 become 0/1 columns."""

    licence = "CelebA agreement: non-commercial research only"
    obtain = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html (aligned images, attributes, partition)"
    layout = "img_align_celeba/*.jpg, list_attr_celeba.txt and list_eval_partition.txt (or both as .csv)"
    published: ClassVar[Mapping[str, int]] = {"train": 162770, "val": 19867, "test": 19962}
    split_values: ClassVar[Mapping[str, int]] = {"train": 0, "val": 1, "test": 2}

    def __init__(self, variant: str = "celeba") -> None:
        if variant not in VARIANTS:
            raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, found {variant!r}")
        self.name = variant
        self.label, self.group = VARIANTS[variant]
        self.title = f"CelebA: faces, {self.label} correlated with {self.group}"

    def load(self, root: Path) -> ImageList:
        home = self.home(root)
        attributes, names, values = self._attributes(home)
        partition = self._partition(home)
        unknown = [name for name in names if name not in partition]
        if unknown:
            raise ValueError(f"{len(unknown):,} images of {attributes} have no partition, first: {unknown[0]}")
        folder = next((each for each in _IMAGE_FOLDERS if (home / each).is_dir()), "img_align_celeba")
        columns = {key: np.array(column, dtype=np.int8) for key, column in values.items()}
        columns["split"] = np.array([partition[name] for name in names], dtype=np.int8)
        return ImageList(home, safe_paths(attributes, [f"{folder}/{name}" for name in names]), tuple(names), columns)

    def _find(self, home: Path, stem: str) -> Path:
        for folder in ("", "Anno", "Eval", "celeba"):
            for suffix in (".txt", ".csv"):
                if (home / folder / f"{stem}{suffix}").is_file():
                    return home / folder / f"{stem}{suffix}"
        raise FileNotFoundError(f"missing in {home}: {stem}.txt (or .csv); get it: {self.obtain}")

    def _attributes(self, home: Path) -> tuple[Path, list[str], dict[str, np.ndarray]]:
        path = self._find(home, "list_attr_celeba")
        rows = read_csv(path, ["image_id"]) if path.suffix == ".csv" else _read_official(path)
        names = rows.pop("image_id")
        values = {key: as_int(path, key, column) for key, column in rows.items()}
        for key, column in values.items():
            if not np.isin(column, (-1, 0, 1)).all():
                raise ValueError(f"attribute {key} of {path} holds {np.unique(column).tolist()}; expected -1 and 1")
        absent = [each for each in (self.label, self.group) if each not in values]
        if absent:
            raise ValueError(f"{path} has no attribute {', '.join(map(str, absent))}")
        return path, names, {key: (column == 1).astype(np.int8) for key, column in values.items()}

    def _partition(self, home: Path) -> dict[str, int]:
        path = self._find(home, "list_eval_partition")
        header = ["image_id", "partition"]
        rows = read_csv(path, header) if path.suffix == ".csv" else as_columns(path, header, _fields(path), 1)
        return dict(zip(rows["image_id"], as_int(path, "partition", rows["partition"]).tolist()))

    def source_rows(self, columns: Columns) -> np.ndarray:
        """Training partition; without a `split` column the first 70% of the rows."""
        if "split" in columns:
            return super().source_rows(columns)
        return np.arange(int(len(need(columns, self.label, self.name)) * _SOURCE_PART))

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        """From the test partition; without a `split` column from the last 30% of the rows."""
        y, group = need(columns, self.label, self.name), need(columns, str(self.group), self.name)
        source = self.source_rows(columns)
        rows = self._rows_of(columns, "test") if "split" in columns else np.arange(len(source), len(y))
        return group_targets(y, group, rows, source)


def _read_official(path: Path) -> dict[str, list[str]]:
    """The txt form: a line with the count, a line of names, then `file  -1  1 ...` padded with spaces."""
    lines = _fields(path)
    if len(lines) < 2 or len(lines[0]) != 1 or not lines[0][0].isdigit():
        found = " ".join(lines[0]) if lines else "nothing"
        raise ValueError(f"{path} should begin with the number of images, found {found!r}")
    (count,), names, *rows = lines
    if len(rows) != int(count):
        raise ValueError(f"{path} announces {int(count):,} images and lists {len(rows):,}; the file is cut off")
    return as_columns(path, ["image_id", *names], rows, 3)


def _fields(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines() if line.strip()]
