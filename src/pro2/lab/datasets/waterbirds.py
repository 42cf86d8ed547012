"""Waterbirds: birds cut out of CUB-200-2011 and placed on land or water backgrounds from Places.

Sagawa et al., Distributionally Robust Neural Networks for Group Shifts, ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from pro2.lab.datasets.base import Columns, DataSet, ImageList, as_int, need, read_csv, safe_paths
from pro2.tables.shifts import group_targets


class Waterbirds(DataSet):
    """Label: waterbird or landbird. Spurious attribute: water or land background."""

    name = "waterbirds"
    title = "Waterbirds: land or water birds, correlated with the background"
    licence = "none of its own; CUB-200-2011 and Places images, for non-commercial research and education"
    obtain = "https://nlp.stanford.edu/data/dro/waterbird_complete95_forest2water2.tar.gz (unpack it)"
    layout = "metadata.csv (img_id, img_filename, y, split, place, place_filename) and one folder for each species"
    group = "place"
    markers, folders = ("metadata.csv",), ("waterbird_complete95_forest2water2", "waterbirds_v1.0", "waterbirds")
    published: ClassVar[Mapping[str, int]] = {"train": 4795, "val": 1199, "test": 5794}
    split_values: ClassVar[Mapping[str, int]] = {"train": 0, "val": 1, "test": 2}

    def load(self, root: Path) -> ImageList:
        home = self.home(root)
        path = home / "metadata.csv"
        rows = read_csv(path, ["img_filename", "y", "split", "place"])
        paths = safe_paths(path, rows["img_filename"])
        columns = {name: as_int(path, name, rows[name], np.int8) for name in ("y", "place", "split")}
        return ImageList(home, paths, paths, columns)

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        y, place = need(columns, "y", self.name), need(columns, "place", self.name)
        return group_targets(y, place, self._rows_of(columns, "test"), self.source_rows(columns))
