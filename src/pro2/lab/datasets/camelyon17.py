"""Camelyon17-WILDS: tumour tissue in 96 x 96 patches from five hospitals.

Bandi et al., IEEE TMI 2018; Koh et al., WILDS, ICML 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from pro2.lab.datasets.base import DataSet, ImageList, as_int, read_csv

_VAL_CENTER, _TEST_CENTER = 1, 2  # as in WILDS, counted from 0


class Camelyon17(DataSet):
    """Source: three hospitals. Targets: held-out patches of those, and a hospital never seen."""

    name = "camelyon17"
    title = "Camelyon17-WILDS: tumour tissue, shift between hospitals"
    licence = "CC0 1.0"
    obtain = "pip install wilds, then get_dataset('camelyon17', download=True, root_dir=ROOT)"
    layout = "metadata.csv (patient, node, x_coord, y_coord, tumor, slide, center, split) and patches/patient_*/"
    group = "center"
    markers, folders = ("metadata.csv",), ("camelyon17_v1.0",)
    published: ClassVar[Mapping[str, int]] = {"train": 302436, "id_val": 33560, "val": 34904, "test": 85054}
    split_values: ClassVar[Mapping[str, str]] = {name: name for name in published}
    target_splits: ClassVar[Mapping[str, str]] = {"id-test": "id_val", "ood-test": "test"}

    def load(self, root: Path) -> ImageList:
        home = self.home(root)
        path = home / "metadata.csv"
        rows = read_csv(path, ["patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"])
        patients = [patient.zfill(3) for patient in rows["patient"]]  # a spreadsheet turns 004 into 4
        paths = tuple(
            f"patches/patient_{p}_node_{n}/patch_patient_{p}_node_{n}_x_{x}_y_{y}.png"
            for p, n, x, y in zip(patients, rows["node"], rows["x_coord"], rows["y_coord"])
        )
        center = as_int(path, "center", rows["center"], np.int8)
        columns = {
            "y": as_int(path, "tumor", rows["tumor"], np.int8),
            "center": center,
            "slide": as_int(path, "slide", rows["slide"], np.int16),
            "split": _split(as_int(path, "split", rows["split"]), center),
        }
        return ImageList(home, paths, paths, columns)


def _split(split: np.ndarray, center: np.ndarray) -> np.ndarray:
    """The file marks train (0) and held-out (1) patches; two hospitals are set apart whatever it says."""
    names = np.where(split == 0, "train", "id_val")
    names = np.where(center == _VAL_CENTER, "val", names)
    return np.where(center == _TEST_CENTER, "test", names)
