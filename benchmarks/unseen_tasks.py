"""The untuned default on problems other than those its constants were settled on: does adapting ever hurt?

    python benchmarks/unseen_tasks.py [DATA] [--seeds 5] [--out MD]

Always there: scikit-learn's digits (even or odd, ten classes) with changed pictures, its tables of wines and tumours
split by a measurement, and shifted Gaussians with random covariances. With DATA (a folder with celeba10k.npz):
attributes of faces drawn by chance, two and four classes. Same classifiers, draws and tables as `adapt_cells.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from adapt_cells import Page, Row, accuracy_table, run_task, shortfall_table, show, summary_table, write_page
from real_tasks import CELEBA, Task
from rich.console import Console
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from pro2.tables.shifts import group_targets

SHOTS = {2: (2, 8, 32), 3: (2, 8), 4: (2, 8), 10: (1, 4)}  # by number of classes
PAIRS = 6  # label and group attributes of faces, drawn by chance


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


def faces(folder: Path) -> Iterator[Task]:
    """Attributes drawn by chance among those with 15 to 85 %; pairs of the development set are left out."""
    z = np.load(folder / "celeba10k.npz")
    X, names, A = z["embeddings"].astype(np.float32), list(z["attribute_names"]), z["attributes"].astype(int)
    common = [i for i in range(len(names)) if 0.15 < A[:, i].mean() < 0.85]
    used = {frozenset(pair) for pair in CELEBA.values()}
    rng = np.random.default_rng(2)
    source, pool = np.arange(7000), np.arange(7000, 10000)
    made = 0
    while made < PAIRS:
        label, group = rng.choice(common, 2, replace=False)
        if frozenset((names[label], names[group])) not in used:
            made += 1
            targets = group_targets(A[:, label], A[:, group], pool, source)
            yield Task(f"faces-{names[label]}-{names[group]}", X, A[:, label], source, targets)
    a, b, domain = rng.choice(common, 3, replace=False)
    inside = A[:, domain] == 1
    targets = {"other": pool[~inside[pool]], "same": pool[inside[pool]]}
    yield Task(
        f"faces4-{names[a]}-{names[b]}-{names[domain]}", X, 2 * A[:, a] + A[:, b], source[inside[:7000]], targets
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    console = Console(width=150)
    rows: list[Row] = []
    for task in (*digits(), *tables(), *gaussians(), *(faces(args.data) if args.data else ())):
        console.print(task.name)
        shots = SHOTS[len(np.unique(task.y[task.source]))]
        rows += run_task(task, list(shots), args.seeds)
    shots_list = sorted({r["shots"] for r in rows})
    pages: list[Page] = [summary_table(rows), accuracy_table(rows, shots_list), shortfall_table(rows)]
    show(console, pages)
    if args.out:
        command = f"python benchmarks/unseen_tasks.py DATA --seeds {args.seeds}"
        write_page(args.out, pages, command, "Adaptation without tuning, on other kinds of problems")


if __name__ == "__main__":
    main()
