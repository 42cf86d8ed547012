"""4-way Collages: four small images in each; in the source all four tell the label, in each target only one does.

Teney et al., Evading the Simplicity Bias, CVPR 2022; https://github.com/dteney/collages-dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from pro2.lab.datasets.base import DataSet, ImageList, as_int, image_names, read_csv

BLOCKS = ("mnist", "cifar", "fashion", "svhn")
SETS = {"train-all": "source", **{f"test-{block}": block for block in BLOCKS}}


class Collages(DataSet):
    """Source: every block agrees with the label. Targets: only the MNIST, CIFAR, Fashion or SVHN block does."""

    name = "collages"
    title = "4-way Collages: MNIST, CIFAR-10, Fashion-MNIST and SVHN blocks"
    licence = "of its parts: MNIST CC BY-SA 3.0, Fashion-MNIST MIT, CIFAR-10 none stated, SVHN non-commercial use"
    obtain = (
        "https://github.com/dteney/collages-dataset (4 blocks), or make it from the official files of the four: "
        "`pro2 datasets make-collages RAW OUT`"
    )
    layout = "train-all/{0,1}/*.png and test-{mnist,cifar,fashion,svhn}/{0,1}/*.png"
    group = "split"
    markers = tuple(SETS)
    folders = (*(f"collages-4blocks-randomOrder{i}-downsampling2" for i in (0, 1)), "collages")
    published: ClassVar[Mapping[str, int]] = {"source": 51200, **dict.fromkeys(BLOCKS, 10240)}
    split_values: ClassVar[Mapping[str, str]] = {name: name for name in published}
    source_split = "source"
    target_splits: ClassVar[Mapping[str, str]] = {name: name for name in BLOCKS}

    def load(self, root: Path) -> ImageList:
        home = self.home(root)
        images = {(folder, y): image_names(home / folder / str(y)) for folder in SETS for y in (0, 1)}
        empty = [f"{folder}/{y}" for (folder, y), names in images.items() if not names]
        if empty:
            raise FileNotFoundError(f"no images in {home}: {', '.join(empty)}")
        found = [(f"{folder}/{y}/{name}", y, SETS[folder]) for (folder, y), names in images.items() for name in names]
        paths, labels, splits = zip(*found)
        columns = {"y": np.array(labels, dtype=np.int8), "split": np.array(splits, dtype=str)}
        columns |= _block_classes(home / "blocks.csv", paths)
        return ImageList(home, paths, paths, columns)


def _block_classes(path: Path, images: Sequence[str]) -> dict[str, np.ndarray]:
    """Each block's class, known for collages made here and not for downloaded ones."""
    if not path.is_file():
        return {}
    rows = read_csv(path, ["path", *BLOCKS])
    place = {name: i for i, name in enumerate(rows["path"])}
    unknown = next((name for name in images if name not in place), None)
    if unknown is not None:
        raise ValueError(f"{path} does not list {unknown}; make the collages again")
    order = [place[name] for name in images]
    return {block: as_int(path, block, rows[block], np.int8)[order] for block in BLOCKS}
