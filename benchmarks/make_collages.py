"""Make the 4-way Collages from the official files of its four parts, by the published recipe.

    python benchmarks/make_collages.py RAW OUT

RAW holds `mnist/`, `fashion-mnist/`, `cifar-10-batches-bin/` and `svhn/` with the official files. Two classes of each
part stand for labels 0 and 1. Source collages are made of training images and show, in every block,
the class of the label; each target is made of test images, where one block follows the label and the others are drawn
from both classes. Teney et al., CVPR 2022; recipe in https://github.com/dteney/collages-dataset.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pro2.extras import imported
from pro2.lab.datasets.images import BLOCKS, COLLAGE_FOLDERS

Part = tuple[np.ndarray, np.ndarray]  # images (n, 32, 32, 3) uint8, labels (n,)


def read_idx(path: Path) -> np.ndarray:
    """An IDX file of bytes, gzipped or not; the announced size is checked."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}); download it again") from error
    if len(raw) < 8 or raw[:3] != b"\0\0\x08" or not 1 <= raw[3] <= 3:
        raise ValueError(f"{path} is not an IDX file of bytes; download it again")
    shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
    data = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3])
    if data.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} announces {shape} values and holds {data.size}; download it again")
    return data.reshape(shape)


def load_mnist(folder: Path, part: str) -> Part:
    """MNIST or Fashion-MNIST: `train` or `test`, padded from 28 to 32 pixels."""
    prefix = {"train": "train", "test": "t10k"}[part]
    images = read_idx(_one_of(folder, _idx_names(f"{prefix}-images", 3)))
    labels = read_idx(_one_of(folder, _idx_names(f"{prefix}-labels", 1)))
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise ValueError(
            f"{folder} holds {images.shape} images and {labels.shape} labels; expected (n, 28, 28) and (n,)"
        )
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    return np.repeat(padded[..., None], 3, axis=-1), labels.astype(np.int64)


def load_cifar10(folder: Path, part: str) -> Part:
    """CIFAR-10 in its binary version: each image is its label and 3,072 bytes of red, green and blue."""
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)] if part == "train" else ["test_batch.bin"]
    if not (folder / batches[0]).exists() and (folder / batches[0].removesuffix(".bin")).exists():
        raise ValueError(
            f"{folder} holds the Python version of CIFAR-10, which is made of pickles: they can run code and are not "
            "read. Get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html"
        )
    rows = np.concatenate([_cifar_rows(_one_of(folder, [name])) for name in batches])
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0].astype(np.int64)


def _cifar_rows(path: Path) -> np.ndarray:
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size % 3073 or raw.size == 0:
        raise ValueError(f"{path} has {raw.size} bytes, not a multiple of 3073; download it again")
    rows = raw.reshape(-1, 3073)
    if rows[:, 0].max() > 9:
        raise ValueError(f"{path} holds label {rows[:, 0].max()}; expected 0 to 9: download it again")
    return rows


def load_svhn(folder: Path, part: str) -> Part:
    """SVHN cropped digits; digit 0 is labelled 10 in the files."""
    from scipy.io import loadmat

    path = _one_of(folder, [f"{part}_32x32.mat", f"svhn_{part}_32x32.mat"])
    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].ravel().astype(np.int64)
    except (ValueError, KeyError, TypeError, NotImplementedError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is not an SVHN file ({error}); download it again") from error
    return images.transpose(3, 0, 1, 2), labels % 10


def _idx_names(stem: str, dims: int) -> list[str]:
    return [f"{stem}{mark}idx{dims}-ubyte{end}" for mark in "-." for end in ("", ".gz")]


def _one_of(folder: Path, names: list[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"missing in {folder}: {' or '.join(names)}")


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
    """Write the data set `collages` into a new folder, which appears when everything is written.

    `style` is grey 16 x 16 as published, or full colour 64 x 64; `n_source` and `n_target` (of each of the four
    targets) are even, half of each label.
    """
    _check(Path(out), style, n_source, n_target)
    image = imported("PIL.Image", "writing images needs Pillow: pip install 'pro2[lite]'")
    parts = {split: _load_parts(Path(raw), split) for split in ("train", "test")}
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{Path(out).name}.", dir=Path(out).parent))
    try:
        rows = []
        for number, (folder, split) in enumerate(COLLAGE_FOLDERS.items()):
            n = n_source if split == "source" else n_target
            pool = parts["train" if split == "source" else "test"]
            rows += _write_set(image, work / folder, pool, _choose(pool, split, n, [seed, number]), style)
        with (work / "blocks.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["path", *BLOCKS], *rows])
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--style", choices=STYLES, default="grey16")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal files")
    parser.add_argument("--n-source", type=int, default=51200, help="collages in the source")
    parser.add_argument("--n-target", type=int, default=10240, help="collages in each of the four targets")
    print(make_collages(**vars(parser.parse_args())))
