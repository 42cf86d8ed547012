"""From real images to an adapted classifier, offline: handwritten digits on photographs, all shipped by scikit-learn.

The photograph behind a digit agrees with its class on the source, and on one half of the target rows only: a small
Waterbirds made of data that scikit-learn ships. Two demonstrations use it: one adapts with a few labels, one labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pro2.embed.extract import Progress, extract
from pro2.embed.registry import create_backbone
from pro2.embed.sources import open_images
from pro2.estimators import ProjectAndProbe
from pro2.lab.datasets.shifts import group_targets
from pro2.lab.demo import adapted_rows, save_rows
from pro2.label.pool import Pool, by_id
from pro2.tables.embeddings import EmbeddingTable

N_SOURCE, N_TARGET = 360, 280
SHOTS, SEEDS = (2, 8, 32), range(5)
_DIGITS = ((0, 6), (1, 7))
CLASSES = np.array(["ring: 0 or 6", "stroke: 1 or 7"])  # not digits alone: the key 1 stands for the first
_PHOTOGRAPHS = ("palace", "flower")
_AGREE = 0.95  # of the source rows
_SIDE = 112
_LARGE = 240  # pixels, large enough to look at
_DARKEN = 0.6


def images_demo(out: Path, show: Callable[[str], None], backbone: str = "efficientnet-lite0") -> list[dict[str, Any]]:
    """Write the images, embed them, verify the table, adapt with a few labels; `show` prints what is being done.

    Images, table and rows are in the folder `out`. Returns one row for each target, method, number of labels and seed.
    """
    listing = make_images(out / "images")
    show(f"{N_SOURCE + N_TARGET} real images in {out / 'images'}: handwritten digits on photographs")
    images = open_images(listing)
    network = create_backbone(backbone, "auto")
    began = time.monotonic()

    def show_progress(n_done: int, total: int) -> None:
        show(f"  embedded {n_done}/{total}" if n_done else "  embedding ...")

    done = extract(images, network, out / "images.arrow", force=True, progress=show_progress)
    table = EmbeddingTable.open(done.path)
    table.verify()
    seconds = time.monotonic() - began
    show(f"table {done.path}: {table.n_rows} x {table.width}, verified, {seconds:.1f} s")
    y, split = table.column("y"), table.column("split")
    targets = group_targets(y, table.column("photo"), split == "target", split == "source")
    X = table.embeddings.astype(np.float64)
    rows = list(adapted_rows(X, y, split == "source", targets, SHOTS, SEEDS))
    save_rows(out / "images.csv", rows)
    return rows


def make_images(folder: Path, seed: int = 0, side: int = _SIDE) -> Path:
    """Write the images and `list.csv` with the columns path, y, photo and split; the same bytes for the same seed."""
    from PIL import Image as pil
    from sklearn.datasets import load_digits, load_sample_images

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    digits, photographs = load_digits(), load_sample_images().images
    rows = []
    for i, (row, y, photo, split) in enumerate(_plan(digits.target, rng)):
        path = f"{split}-{i:03d}.png"
        pil.fromarray(_picture(digits.images[row], photographs[photo], rng, side)).save(folder / path)
        rows.append({"path": path, "y": y, "photo": _PHOTOGRAPHS[photo], "split": split})
    save_rows(folder / "list.csv", rows)
    return folder / "list.csv"


def _plan(target: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[int, int, int, str]]:
    """Which digit on which photograph: going together in the source, half and half in the target."""
    pools = [rng.permutation(np.flatnonzero(np.isin(target, digits))) for digits in _DIGITS]
    for i in range(N_SOURCE + N_TARGET):
        y, split = i % 2, "source" if i < N_SOURCE else "target"
        agrees = rng.random() < _AGREE if split == "source" else (i // 2) % 2 == 0
        yield int(pools[y][i // 2]), y, y if agrees else 1 - y, split


def _picture(digit: np.ndarray, photograph: np.ndarray, rng: np.random.Generator, side: int) -> np.ndarray:
    """White strokes of the digit over a random, darkened piece of the photograph."""
    from PIL import Image as pil

    top, left = (rng.integers(0, length - side) for length in photograph.shape[:2])
    piece = photograph[top : top + side, left : left + side].astype(np.float32) * _DARKEN
    small = pil.fromarray((digit * 255 / 16).clip(0, 255).astype(np.uint8))
    strokes = np.asarray(small.resize((side, side), pil.Resampling.BICUBIC), dtype=np.float32)[..., None] / 255
    return (piece * (1 - strokes) + 255 * strokes).astype(np.uint8)


def label_demo(folder: Path, progress: Progress = lambda done, total: None) -> tuple[Pool, ProjectAndProbe]:
    """Write and embed the images once; returns the pool to label and the model of the source."""
    done, listing = folder / "images.arrow", folder / "images" / "list.csv"
    if not done.exists():  # images that were written again would be embedded again
        make_images(folder / "images", side=_LARGE)
    images = open_images(listing)
    extract(images, create_backbone("efficientnet-lite0"), done, force=True, progress=progress)
    table = EmbeddingTable.open(done)
    source, target = (table.where(f"split == '{split}'") for split in ("source", "target"))
    model = ProjectAndProbe().fit(source.embeddings, CLASSES[source.column("y")])
    hidden = ("y", "photo", "split")
    return Pool(target, by_id(images, target), hidden=hidden, title="Digits on photographs"), model
