"""Make the 4-way Collages from the official files of its four parts, by the published recipe.

Two classes of each part stand for labels 0 and 1. Source collages are made of training images and show, in every block,
the class of the label; each target is made of test images, where one block follows the label and the others are drawn
from both classes. Teney et al., CVPR 2022; recipe in https://github.com/dteney/collages-dataset.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pro2.extras import imported
from pro2.lab.datasets.collages import BLOCKS, SETS
from pro2.lab.datasets.raw_images import Part, load_cifar10, load_mnist, load_svhn
from pro2.tables.csv_files import write_rows

CLASSES = {"mnist": (0, 1), "cifar": (1, 9), "fashion": (2, 4), "svhn": (0, 1)}
STYLES = ("grey16", "rgb64")
_AT_ONCE = 1024  # a colour set of 51,200 need not be in memory at once
_FOLDERS: dict[str, tuple[Callable[[Path, str], Part], tuple[str, ...]]] = {
    "mnist": (load_mnist, ("mnist", "MNIST/raw", "MNIST")),
    "cifar": (load_cifar10, ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar")),
    "fashion": (load_mnist, ("fashion-mnist", "FashionMNIST/raw", "fashion")),
    "svhn": (load_svhn, ("svhn", "SVHN", ".")),
}


def make_collages(
    raw: str | os.PathLike[str],
    out: str | os.PathLike[str],
    style: str = "grey16",
    seed: int = 0,
    n_source: int = 51200,
    n_target: int = 10240,
) -> Path:
    """Write the data set `collages` into a new folder.

    Parameters
    ----------
    raw : path
        Holds ``mnist/``, ``fashion-mnist/``, ``cifar-10-batches-bin/`` and ``svhn/`` with the official files.
    out : path
        New folder; it appears when everything is written.
    style : {"grey16", "rgb64"}
        Grey 16 x 16 as published, or full colour 64 x 64.
    seed : int
        Equal seeds give equal files.
    n_source, n_target : int
        Collages in the source and in each of the four targets; even, half of each label.
    """
    _check(Path(out), style, n_source, n_target)
    image = imported("PIL.Image", "writing images needs Pillow: pip install 'pro2[lite]'")
    parts = {split: _load_parts(Path(raw), split) for split in ("train", "test")}
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{Path(out).name}.", dir=Path(out).parent))
    try:
        rows = []
        for number, (folder, split) in enumerate(SETS.items()):
            n = n_source if split == "source" else n_target
            pool = parts["train" if split == "source" else "test"]
            rows += _write_set(image, work / folder, pool, _choose(pool, split, n, [seed, number]), style)
        with (work / "blocks.csv").open("wb") as file:
            write_rows(file, ["path", *BLOCKS], rows)
        work.chmod(0o755)
        work.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Path(out)


def _check(out: Path, style: str, n_source: int, n_target: int) -> None:
    if style not in STYLES:
        raise ValueError(f"style must be {' or '.join(STYLES)}, found {style!r}")
    for name, n in (("n_source", n_source), ("n_target", n_target)):
        if n < 2 or n % 2:
            raise ValueError(f"{name} must be a positive even number, found {n}")
    if out.exists():
        raise FileExistsError(f"{out} exists; choose a new folder or remove it first")


def _load_parts(raw: Path, split: str) -> dict[str, Part]:
    """Images and 0/1 labels of the two classes of each block."""
    found = {}
    for block in BLOCKS:
        load, folders = _FOLDERS[block]
        folder = next((raw / name for name in folders if (raw / name).is_dir()), raw / folders[0])
        images, labels = load(folder, split)
        keep = np.isin(labels, CLASSES[block])
        codes = (labels[keep] == CLASSES[block][1]).astype(np.int8)
        if len(np.unique(codes)) < 2:
            raise ValueError(f"{folder} lacks images of class {CLASSES[block][0]} or {CLASSES[block][1]} ({split})")
        found[block] = (images[keep], codes)
    return found


def _choose(parts: dict[str, Part], split: str, n: int, seed: list[int]) -> dict[str, np.ndarray]:
    """Row numbers of the images in each block, first those of label 0, then those of label 1."""
    chosen = {}
    for i, (block, (_, codes)) in enumerate(parts.items()):
        rng = np.random.default_rng([*seed, i])
        follows = split in ("source", block)
        pools = [np.flatnonzero(codes == y) if follows else np.arange(len(codes)) for y in (0, 1)]
        chosen[block] = np.concatenate([_pick(rng, pool, n // 2) for pool in pools])
    return chosen


def _pick(rng: np.random.Generator, rows: np.ndarray, n: int) -> np.ndarray:
    """`n` rows in random order; all are used before one is used again."""
    rounds = -(-n // len(rows))
    return np.concatenate([rng.permutation(rows) for _ in range(rounds)])[:n]


def assemble(blocks: dict[str, np.ndarray], style: str) -> np.ndarray:
    """Tile four (n, 32, 32, 3) stacks: MNIST above CIFAR on the left, Fashion above SVHN on the right."""
    left = np.concatenate([blocks["mnist"], blocks["cifar"]], axis=1)
    right = np.concatenate([blocks["fashion"], blocks["svhn"]], axis=1)
    tiled = np.concatenate([left, right], axis=2)
    if style == "rgb64":
        return tiled
    return np.rint(tiled[:, ::4, ::4].mean(axis=-1)).astype(np.uint8)  # nearest neighbour, as published


def _write_set(
    image: Any, folder: Path, parts: dict[str, Part], chosen: dict[str, np.ndarray], style: str
) -> list[list[Any]]:
    """PNG files of one set, numbered from 1 within each label; returns the rows of blocks.csv."""
    for y in (0, 1):
        (folder / str(y)).mkdir(parents=True)
    half = len(chosen[BLOCKS[0]]) // 2
    rows = []
    for start in range(0, 2 * half, _AT_ONCE):
        batch = {block: parts[block][0][picked[start : start + _AT_ONCE]] for block, picked in chosen.items()}
        for i, pixels in enumerate(assemble(batch, style), start):
            y, number = divmod(i, half)
            image.fromarray(pixels).save(folder / str(y) / f"{number + 1:06d}.png")
            codes = [int(parts[block][1][chosen[block][i]]) for block in BLOCKS]
            rows.append([f"{folder.name}/{y}/{number + 1:06d}.png", *codes])
    return rows
