"""The real few-shot problems that method choices are judged on: a data folder in, sources and targets out.

The folder holds `waterbirds.npz`, `collages.npz` and `celeba10k.npz` (arrays: embeddings, y/attributes, split...).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pro2.tables.shifts import Draw, draw, group_targets

CELEBA = {
    "hair": ("Blond_Hair", "Male"),
    "mouth": ("Mouth_Slightly_Open", "Wearing_Lipstick"),
    "attractive": ("Attractive", "Smiling"),
    "wavy": ("Wavy_Hair", "High_Cheekbones"),
    "makeup": ("Heavy_Makeup", "Big_Lips"),
}
SHOTS = (2, 8, 32, 128)
HELD_OUT = 20  # a cell needs this many rows of every class beyond the shots


@dataclass(frozen=True)
class Task:
    name: str
    X: np.ndarray
    y: np.ndarray
    source: np.ndarray
    targets: dict[str, np.ndarray]

    def draws(self, target: str, n_shots: int, n_seeds: int = 10) -> list[Draw]:
        """One draw a seed, or none where a class is too small for shots and evaluation."""
        rows = self.targets[target]
        if np.unique(self.y[rows], return_counts=True)[1].min() < n_shots + HELD_OUT:
            return []
        return [draw(self.y, rows, n_shots, seed) for seed in range(n_seeds)]


def waterbirds(folder: Path, name: str = "waterbirds") -> Task:
    z = np.load(folder / f"{name}.npz")
    y, split = z["y"].astype(int), z["split"]
    source = np.flatnonzero(split == 0)
    targets = group_targets(y, z["place"].astype(int), np.flatnonzero(split == 2), source)
    return Task(name, z["embeddings"].astype(np.float32), y, source, targets)


def collages(folder: Path) -> Task:
    z = np.load(folder / "collages.npz")
    targets = {k: np.flatnonzero(z["split"] == k) for k in ("mnist", "fashion", "cifar", "svhn")}
    source = np.flatnonzero(z["split"] == "source")
    return Task("collages", z["embeddings"].astype(np.float32), z["y"].astype(int), source, targets)


def living(folder: Path) -> Task:
    """17 classes whose subclasses differ between source and target."""
    z = np.load(folder / "living_tiny.npz")
    source, target = (np.flatnonzero(z["split"] == name) for name in ("source", "target"))
    return Task("living", z["embeddings"].astype(np.float32), z["y"].astype(int), source, {"target": target})


def celeba(folder: Path, variant: str) -> Task:
    z = np.load(folder / "celeba10k.npz")
    names = list(z["attribute_names"])
    y, group = (z["attributes"][:, names.index(a)].astype(int) for a in CELEBA[variant])
    targets = group_targets(y, group, np.arange(7000, 10000), np.arange(7000))
    return Task(f"celeba-{variant}", z["embeddings"].astype(np.float32), y, np.arange(7000), targets)


def tasks(folder: Path, celeba_variants: tuple[str, ...] = tuple(CELEBA)) -> Iterator[Task]:
    yield waterbirds(folder)
    yield collages(folder)
    for variant in celeba_variants:
        yield celeba(folder, variant)
