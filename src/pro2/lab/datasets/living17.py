"""Living17 of BREEDS: 17 kinds of animals; source and target show different subclasses of each.

Santurkar, Tsipras and Madry, BREEDS: Benchmarks for Subpopulation Shift, ICLR 2021. Subclasses as published: of every
superclass, `numpy.random.RandomState(2)` picks four ImageNet classes; two are source, two are target.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from pro2.lab.datasets.base import Columns, DataSet, ImageList, image_names, need

# superclass: source subclasses | target subclasses
SUPERCLASSES = {
    "salamander": ("n01631663 n01632777", "n01630670 n01632458"),  # eft, axolotl | common newt, spotted salamander
    "turtle": ("n01669191 n01665541", "n01664065 n01667114"),  # box, leatherback | loggerhead, mud turtle
    "lizard": ("n01685808 n01689811", "n01694178 n01675722"),  # whiptail, alligator l. | African chameleon, gecko
    "snake": ("n01740131 n01735189", "n01751748 n01742172"),  # night, garter | sea snake, boa constrictor
    "spider": ("n01774750 n01773157", "n01773797 n01775062"),  # tarantula, black and gold | garden, wolf spider
    "grouse": ("n01796340 n01798484", "n01797886 n01795545"),  # ptarmigan, prairie chicken | ruffed, black grouse
    "parrot": ("n01818515 n01820546", "n01817953 n01819313"),  # macaw, lorikeet | African grey, cockatoo
    "crab": ("n01978287 n01980166", "n01978455 n01981276"),  # Dungeness, fiddler | rock, king crab
    "dog": ("n02088466 n02086079", "n02111500 n02086910"),  # bloodhound, Pekinese | Great Pyrenees, papillon
    "wolf": ("n02114855 n02114712", "n02114548 n02114367"),  # coyote, red | white, timber wolf
    "fox": ("n02120505 n02120079", "n02119022 n02119789"),  # grey, Arctic | red, kit fox
    "domestic cat": ("n02123159 n02124075", "n02123394 n02123597"),  # tiger, Egyptian | Persian, Siamese cat
    "bear": ("n02134418 n02133161", "n02134084 n02132136"),  # sloth, American black | ice, brown bear
    "beetle": ("n02172182 n02174001", "n02167151 n02168699"),  # dung, rhinoceros | ground, long-horned beetle
    "butterfly": ("n02281406 n02276258", "n02280649 n02277742"),  # sulphur, admiral | cabbage, ringlet
    "ape": ("n02483362 n02480495", "n02480855 n02481823"),  # gibbon, orangutan | gorilla, chimpanzee
    "monkey": ("n02490219 n02493509", "n02493793 n02492660"),  # marmoset, titi | spider, howler monkey
}


class Living17(DataSet):
    """Source: training images of the source subclasses. Target: validation images of the target subclasses."""

    name = "living17"
    title = "Living17: 17 animal kinds, unseen subclasses in the target"
    licence = "ImageNet terms of access: non-commercial research and education"
    obtain = "https://image-net.org, ILSVRC2012 (train and validation images, sorted into one folder per wnid)"
    layout = "train/<wnid>/*.JPEG and val/<wnid>/*.JPEG for 68 wnids"
    group = "wnid"
    markers, folders = ("train", "val"), ("ILSVRC/Data/CLS-LOC", "ILSVRC2012", "imagenet", "ImageNet")
    published: ClassVar[Mapping[str, int]] = {"id-test": 1700, "ood-test": 1700}

    def load(self, root: Path) -> ImageList:
        home = self.home(root)
        found: list[tuple[str, int, str, str, str]] = []
        absent = []
        for part in ("train", "val"):
            for y, domain, wnid in subclasses():
                names = image_names(home / part / wnid)
                found.extend((f"{part}/{wnid}/{name}", y, wnid, domain, part) for name in names)
                absent.extend([] if names else [f"{part}/{wnid}"])
        if absent:
            raise FileNotFoundError(f"missing or empty in {home}: {len(absent)} folders: {', '.join(absent)}")
        paths, y_column, wnids, domains, parts = zip(*found)
        names = list(SUPERCLASSES)
        columns = {
            "y": np.array(y_column, dtype=np.int8),
            "superclass": np.array([names[y] for y in y_column], dtype=str),
            "wnid": np.array(wnids, dtype=str),
            "domain": np.array(domains, dtype=str),
            "split": np.array(parts, dtype=str),
        }
        return ImageList(home, paths, paths, columns)

    def splits(self, columns: Columns) -> dict[str, int]:
        return {name: len(rows) for name, rows in self.targets(columns).items()}

    def source_rows(self, columns: Columns) -> np.ndarray:
        domain, split = need(columns, "domain", self.name), need(columns, "split", self.name)
        return np.flatnonzero((domain == "source") & (split == "train"))

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        domain, val = need(columns, "domain", self.name), need(columns, "split", self.name) == "val"
        return {
            "id-test": np.flatnonzero((domain == "source") & val),
            "ood-test": np.flatnonzero((domain == "target") & val),
        }


def subclasses() -> list[tuple[int, str, str]]:
    """(label, domain, wnid) of the 68 subclasses."""
    return [
        (y, domain, wnid)
        for y, parts in enumerate(SUPERCLASSES.values())
        for domain, wnids in zip(("source", "target"), parts)
        for wnid in wnids.split()
    ]
