"""The paper's data sets of images, each in its official layout."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np

from pro2.embed.sources import FileImages
from pro2.lab.datasets.base import DataSet, as_int, image_names, listed, read_csv

VARIANTS = {
    "celeba": ("Blond_Hair", "Male"),
    "celeba-mouth": ("Mouth_Slightly_Open", "Wearing_Lipstick"),
    "celeba-attractive": ("Attractive", "Smiling"),
    "celeba-wavy": ("Wavy_Hair", "High_Cheekbones"),
    "celeba-makeup": ("Heavy_Makeup", "Big_Lips"),
}
_CELEBA_FOLDERS = ("img_align_celeba/img_align_celeba", "img_align_celeba", "Img/img_align_celeba")

BLOCKS = ("mnist", "cifar", "fashion", "svhn")
COLLAGE_FOLDERS = {"train-all": "source", **{f"test-{block}": block for block in BLOCKS}}

LIVING17_CLASSES = {  # superclass: source subclasses | target subclasses
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


class Waterbirds(DataSet):
    """Label: waterbird or landbird. Spurious attribute: water or land background (Sagawa et al., ICLR 2020)."""

    name = "waterbirds"
    title = "Waterbirds: land or water birds, correlated with the background"
    licence = "none of its own; CUB-200-2011 and Places images, for non-commercial research and education"
    obtain = "https://nlp.stanford.edu/data/dro/waterbird_complete95_forest2water2.tar.gz (unpack it)"
    layout = "metadata.csv (img_id, img_filename, y, split, place, place_filename) and one folder for each species"
    group = "place"
    markers, folders = ("metadata.csv",), ("waterbird_complete95_forest2water2", "waterbirds_v1.0", "waterbirds")
    published: ClassVar[Mapping[int, int]] = {0: 4795, 1: 1199, 2: 5794}  # train, val, test

    def load(self, root: Path) -> FileImages:
        folder = self.find_folder(root)
        path = folder / "metadata.csv"
        rows = read_csv(path, ["img_filename", "y", "split", "place"])
        columns = {name: as_int(path, name, rows[name]) for name in ("y", "place", "split")}
        return listed(folder, rows["img_filename"], columns)


class CelebA(DataSet):
    """Faces (Liu et al., ICCV 2015): label and spurious attribute are two of the 40 attributes, all 0/1 columns.

    The paper's main task and its four variants, which are those of Lee et al., Diversify and Disambiguate, 2022.
    """

    licence = "CelebA agreement: non-commercial research only"
    obtain = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html (aligned images, attributes, partition)"
    layout = "img_align_celeba/*.jpg, list_attr_celeba.txt and list_eval_partition.txt (or both as .csv)"
    published: ClassVar[Mapping[int, int]] = {0: 162770, 1: 19867, 2: 19962}  # train, val, test

    def __init__(self, variant: str = "celeba") -> None:
        self.name = variant
        self.label, self.group = VARIANTS[variant]
        self.title = f"CelebA: faces, {self.label} correlated with {self.group}"

    def load(self, root: Path) -> FileImages:
        folder = self.find_folder(root)
        path, rows = self._read(folder, "list_attr_celeba", [self.label, str(self.group)])
        names, columns = rows.pop("image_id").tolist(), {}
        for key, cells in rows.items():
            values = as_int(path, key, cells)
            if not np.isin(values, (-1, 0, 1)).all():
                raise ValueError(f"attribute {key} of {path} holds {np.unique(values).tolist()}; expected -1 and 1")
            columns[key] = (values == 1).astype(np.int8)
        list_of_parts, parts = self._read(folder, "list_eval_partition", ["partition"])
        numbers = as_int(list_of_parts, "partition", parts["partition"]).tolist()
        partition = dict(zip(parts["image_id"].tolist(), numbers))
        unknown = [name for name in names if name not in partition]
        if unknown:
            raise ValueError(f"{len(unknown):,} images of {path} have no partition, first: {unknown[0]}")
        columns["split"] = np.array([partition[name] for name in names], dtype=np.int8)
        place = next((place for place in _CELEBA_FOLDERS if (folder / place).is_dir()), "img_align_celeba")
        return listed(folder, [f"{place}/{name}" for name in names], columns, ids=names)

    def _read(self, folder: Path, stem: str, needed: list[str]) -> tuple[Path, dict[str, np.ndarray]]:
        """A list as columns: CSV, or the official txt; that of attributes begins with their number and names."""
        below = [folder / name / f"{stem}{end}" for name in ("", "Anno", "Eval", "celeba") for end in (".txt", ".csv")]
        path = next((path for path in below if path.is_file()), None)
        if path is None:
            raise FileNotFoundError(f"missing in {folder}: {stem}.txt (or .csv); get it: {self.obtain}")
        if path.suffix == ".csv":
            return path, read_csv(path, ["image_id", *needed])
        lines, header = path.read_text().splitlines(), ["image_id", "partition"]
        if stem == "list_attr_celeba":
            if not lines or not lines[0].strip().isdigit():
                raise ValueError(f"{path} should begin with the number of images, found {lines[:1]}")
            count, header, lines = int(lines[0]), ["image_id", *lines[1].split()], lines[2:]
            if len(lines) != count:
                raise ValueError(f"{path} announces {count:,} images and lists {len(lines):,}; the file is cut off")
        try:
            cells = np.loadtxt(lines, dtype=str, ndmin=2)
            columns = dict(zip(header, cells.T, strict=True))
        except ValueError as error:
            raise ValueError(f"{path} is not the official list: {error}") from error
        if absent := [name for name in needed if name not in columns]:
            raise ValueError(f"{path} has no column {', '.join(absent)}")
        return path, columns


class Collages(DataSet):
    """Source: every block agrees with the label. Targets: only the MNIST, CIFAR, Fashion or SVHN block does.

    Teney et al., Evading the Simplicity Bias, CVPR 2022.
    """

    name = "collages"
    title = "4-way Collages: MNIST, CIFAR-10, Fashion-MNIST and SVHN blocks"
    licence = "of its parts: MNIST CC BY-SA 3.0, Fashion-MNIST MIT, CIFAR-10 none stated, SVHN non-commercial use"
    obtain = (
        "https://github.com/dteney/collages-dataset (4 blocks), or make it from the official files of the four: "
        "python benchmarks/make_collages.py RAW OUT"
    )
    layout = "train-all/{0,1}/*.png and test-{mnist,cifar,fashion,svhn}/{0,1}/*.png"
    group = "split"
    markers = tuple(COLLAGE_FOLDERS)
    folders = (*(f"collages-4blocks-randomOrder{i}-downsampling2" for i in (0, 1)), "collages")
    published: ClassVar[Mapping[str, int]] = {"source": 51200, **dict.fromkeys(BLOCKS, 10240)}

    def load(self, root: Path) -> FileImages:
        folder = self.find_folder(root)
        rows = [
            (f"{name}/{y}/{file}", y, split)
            for (name, split), y in product(COLLAGE_FOLDERS.items(), (0, 1))
            for file in image_names(folder / name / str(y))
        ]
        if len({(y, split) for _, y, split in rows}) < 2 * len(COLLAGE_FOLDERS):
            raise FileNotFoundError(f"no images in some of the folders {self.layout} of {folder}")
        paths, labels, splits = zip(*rows)
        columns = {"y": np.array(labels, dtype=np.int8), "split": np.array(splits, dtype=str)}
        if (folder / "blocks.csv").is_file():  # collages made by benchmarks/make_collages.py know their blocks' classes
            columns |= _block_classes(folder / "blocks.csv", paths)
        return listed(folder, paths, columns)


def _block_classes(path: Path, images: tuple[str, ...]) -> dict[str, np.ndarray]:
    rows = read_csv(path, ["path", *BLOCKS])
    number = {name: i for i, name in enumerate(rows["path"])}
    unknown = next((name for name in images if name not in number), None)
    if unknown is not None:
        raise ValueError(f"{path} does not list {unknown}; make the collages again")
    order = [number[name] for name in images]
    return {block: as_int(path, block, rows[block])[order] for block in BLOCKS}


class Camelyon17(DataSet):
    """Source: three hospitals. Targets: held-out patches of those, and a hospital never seen (Bandi et al., 2018)."""

    name = "camelyon17"
    title = "Camelyon17-WILDS: tumour tissue, shift between hospitals"
    licence = "CC0 1.0"
    obtain = "pip install wilds, then get_dataset('camelyon17', download=True, root_dir=ROOT)"
    layout = "metadata.csv (patient, node, x_coord, y_coord, tumor, slide, center, split) and patches/patient_*/"
    group = "center"
    markers, folders = ("metadata.csv",), ("camelyon17_v1.0",)
    published: ClassVar[Mapping[str, int]] = {"train": 302436, "id_val": 33560, "val": 34904, "test": 85054}

    def load(self, root: Path) -> FileImages:
        folder = self.find_folder(root)
        path = folder / "metadata.csv"
        names = ["patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"]
        rows = read_csv(path, names)
        patients = [str(patient).zfill(3) for patient in rows["patient"]]  # a spreadsheet turns 004 into 4
        paths = [
            f"patches/patient_{p}_node_{n}/patch_patient_{p}_node_{n}_x_{x}_y_{y}.png"
            for p, n, x, y in zip(patients, *(rows[name] for name in names[1:4]))
        ]
        center = as_int(path, "center", rows["center"])
        # the file marks train (0) and held-out (1) patches; as in WILDS, hospitals 1 and 2 are set apart all the same
        split = np.where(as_int(path, "split", rows["split"]) == 0, "train", "id_val")
        split = np.where(center == 1, "val", np.where(center == 2, "test", split))
        y, slide = as_int(path, "tumor", rows["tumor"]), as_int(path, "slide", rows["slide"], np.int16)
        return listed(folder, paths, {"y": y, "center": center, "slide": slide, "split": split})


class Living17(DataSet):
    """Source: training images of the source subclasses. Target: validation images of the target subclasses.

    Santurkar, Tsipras and Madry, BREEDS, ICLR 2021. Subclasses as published: of every superclass,
    `numpy.random.RandomState(2)` picks four ImageNet classes; two are source, two are target.
    """

    name = "living17"
    title = "Living17: 17 animal kinds, unseen subclasses in the target"
    licence = "ImageNet terms of access: non-commercial research and education"
    obtain = "https://image-net.org, ILSVRC2012 (train and validation images, sorted into one folder per wnid)"
    layout = "train/<wnid>/*.JPEG and val/<wnid>/*.JPEG for 68 wnids"
    group = "wnid"
    markers, folders = ("train", "val"), ("ILSVRC/Data/CLS-LOC", "ILSVRC2012", "imagenet", "ImageNet")
    published: ClassVar[Mapping[str, int]] = {"val": 3400}

    def load(self, root: Path) -> FileImages:
        folder = self.find_folder(root)
        subclasses = [
            (y, name, wnid, domain)
            for y, (name, halves) in enumerate(LIVING17_CLASSES.items())
            for domain, wnids in zip(("source", "target"), halves)
            for wnid in wnids.split()
        ]
        rows, absent = [], []
        for split, subclass in product(("train", "val"), subclasses):
            wnid = subclass[2]
            files = image_names(folder / split / wnid)
            rows += [(f"{split}/{wnid}/{file}", *subclass, split) for file in files]
            absent += [] if files else [f"{split}/{wnid}"]
        if absent:
            raise FileNotFoundError(f"missing or empty in {folder}: {len(absent)} folders: {', '.join(absent)}")
        paths, y_column, *texts = zip(*rows)
        columns = {name: np.array(text) for name, text in zip(("superclass", "wnid", "domain", "split"), texts)}
        return listed(folder, paths, {"y": np.array(y_column, dtype=np.int8), **columns})


class FMoW(DataSet):
    """Satellite images (Christie et al., CVPR 2018). Source: before 2013. Target of the paper: Africa from 2016 on."""

    name = "fmow"
    title = "FMoW-WILDS: 62 kinds of land use, shift over years and regions"
    licence = "FMoW Challenge Public License"
    obtain = "pip install wilds, then get_dataset('fmow', download=True, root_dir=ROOT)"
    layout = "rgb_metadata.csv, country_code_mapping.csv and images/rgb_img_<row>.png"
    group = "region"
    markers, folders = ("rgb_metadata.csv", "country_code_mapping.csv"), ("fmow_v1.1", "fmow_v1.0")
    published: ClassVar[Mapping[str, int]] = {
        "train": 76863, "id_val": 11483, "id_test": 11327, "val": 19915, "test": 22108,
    }  # fmt: skip

    def load(self, root: Path) -> FileImages:
        folder = self.find_folder(root)
        path = folder / "rgb_metadata.csv"
        rows = read_csv(path, ["split", "category", "country_code", "timestamp"])
        year = as_int(path, "the year of timestamp", rows["timestamp"].astype("U4"), np.int16)
        split = _fmow_split(rows["split"], year)
        # images are numbered by metadata row; sequestered and unused rows count, but are not part of the set
        keep = np.flatnonzero(split != "unused")
        codes = read_csv(folder / "country_code_mapping.csv", ["alpha-3", "region"])
        region = dict(zip(codes["alpha-3"], codes["region"]))
        category = rows["category"][keep].astype(str)
        columns = {
            "y": np.unique(category, return_inverse=True)[1].astype(np.int8),  # the 62 by name, as in WILDS
            "category": category,
            "region": np.array([region.get(country) or "Other" for country in rows["country_code"][keep]]),
            "year": year[keep],
            "split": split[keep],
        }
        return listed(folder, [f"images/rgb_img_{i}.png" for i in keep.tolist()], columns)


def _fmow_split(split: np.ndarray, year: np.ndarray) -> np.ndarray:
    """WILDS 'time_after_2016': the release's own split crossed with the year; what fits neither is not used."""
    early, late = year < 2013, year >= 2016
    cases = {
        "train": (split == "train") & early,
        "id_val": (split == "val") & early,
        "id_test": (split == "test") & early,
        "val": (split == "val") & ~early & ~late,
        "test": (split == "test") & late,
    }
    return np.select(list(cases.values()), list(cases), default="unused")
