"""Is choosing which rows to label better than drawing them? Accuracy at equal budgets on real embeddings.

    python benchmarks/suggest_labels.py DATA_FOLDER [--out docs/results/suggest-labels.md] [--seeds 10] [--jobs 2]

Half of each target (at most 1500 rows) is the unlabelled pool, the rest measures accuracy. Rounds go from 4 to 8, 16,
32 and 64 labels; after each, `model.adapt` with its default is fitted to all labels so far and guides the next choice.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from itertools import product
from pathlib import Path

import numpy as np
from harness import data_parser
from sklearn.cluster import KMeans, kmeans_plusplus
from tasks import CELEBA, Task, celeba, collages, living, waterbirds

from pro2 import ProjectAndProbe, suggest_labels

BUDGETS = (4, 8, 16, 32, 64)
MIN_ROWS = 200  # of a target: a pool of 100 for 64 labels
MAX_POOL = 1500
TASKS: dict[str, Callable[[Path], Task]] = {
    "waterbirds": waterbirds,
    "collages": collages,
    **{f"celeba-{v}": partial(celeba, variant=v) for v in CELEBA},
    "living": living,
}


class Round:
    """What a strategy may look at: the pool, what was labelled, the classifier so far."""

    def __init__(self, model: ProjectAndProbe, X: np.ndarray, features: np.ndarray, rng: np.random.Generator):
        self.model, self.X, self.features, self.rng = model, X, features, rng
        self.labeled = np.empty(0, dtype=int)
        self.adapted = None

    @property
    def free(self) -> np.ndarray:
        return np.setdiff1d(np.arange(len(self.X)), self.labeled)

    @property
    def probability(self) -> np.ndarray:
        """Of each class, for the free rows; the source head's at the cold start."""
        head = self.model.source_head_ if self.adapted is None else self.adapted
        return head.predict_proba(self.X[self.free])


def random(r: Round, n: int) -> np.ndarray:
    return r.rng.choice(r.free, n, replace=False)


def entropy(r: Round, n: int) -> np.ndarray:
    """For two classes the order by entropy, by margin and by least confidence is one and the same."""
    return r.free[np.argsort(r.probability.max(axis=1), kind="stable")[:n]]


def k_means(r: Round, n: int) -> np.ndarray:
    """The row nearest to each of n centres."""
    F = r.features[r.free]
    far = KMeans(n, n_init=1, random_state=int(r.rng.integers(1 << 31))).fit(F).transform(F)
    rows: list[int] = []
    for k in range(n):
        far[rows, k] = np.inf
        rows.append(int(far[:, k].argmin()))
    return r.free[rows]


def core_set(r: Round, n: int) -> np.ndarray:
    """Each time the row farthest from all that are labelled (Sener & Savarese 2018); the first at random."""
    F, start = r.features, [int(r.rng.integers(len(r.features)))] if not len(r.labeled) else []
    rows = list(start)
    near = np.min([np.sum((F - F[i]) ** 2, axis=1) for i in [*r.labeled, *start]], axis=0)
    while len(rows) < n:
        rows.append(int(near.argmax()))
        near = np.minimum(near, np.sum((F - F[rows[-1]]) ** 2, axis=1))
    return np.array(rows)


def badge(r: Round, n: int) -> np.ndarray:
    """k-means++ on the gradients of the head at the predicted labels (Ash et al. 2020)."""
    P = r.probability
    slope = (P - np.eye(P.shape[1])[P.argmax(axis=1)])[:, 1 if P.shape[1] == 2 else 0 :]
    G = (slope[:, :, None] * r.features[r.free][:, None, :]).reshape(len(P), -1)
    return r.free[kmeans_plusplus(G, n, random_state=int(r.rng.integers(1 << 31)), n_local_trials=1)[1]]


def suggested(r: Round, n: int) -> np.ndarray:
    labeled = r.X[r.labeled] if len(r.labeled) else None
    return r.free[suggest_labels(r.model, r.X[r.free], n, r.adapted, random_state=0, X_labeled=labeled)]


def suggested_blind(r: Round, n: int) -> np.ndarray:
    return r.free[suggest_labels(r.model, r.X[r.free], n, r.adapted, random_state=0)]


STRATEGIES = {
    "random": random,
    "entropy = margin": entropy,
    "k-means": k_means,
    "core-set": core_set,
    "BADGE": badge,
    "suggest_labels": suggested,
    "the same without X_labeled": suggested_blind,
}


def leading_features(model: ProjectAndProbe, X: np.ndarray, width: int = 64) -> np.ndarray:
    """Principal components of the scaled pool: the space in which the geometric strategies measure distance."""
    Z = np.asarray((X - model.projection_.mean_) / model.projection_.scale_, dtype=np.float64)
    Z = Z - Z.mean(axis=0)
    value, vector = np.linalg.eigh(Z @ Z.T)
    return vector[:, ::-1][:, :width] * np.sqrt(np.maximum(value[::-1][:width], 0.0))


def measure_cell(model: ProjectAndProbe, X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Accuracy, strategies x budgets, in per cent."""
    order = np.random.default_rng([5, seed]).permutation(len(y))
    cut = min(len(y) // 2, MAX_POOL)
    pool, test = order[:cut], order[cut:]
    features = leading_features(model, X[pool])
    table = np.empty((len(STRATEGIES), len(BUDGETS)))
    for s, choose in enumerate(STRATEGIES.values()):
        r = Round(model, X[pool], features, np.random.default_rng(seed))
        for b, budget in enumerate(BUDGETS):
            r.labeled = np.concatenate([r.labeled, choose(r, budget - len(r.labeled))])
            r.adapted = model.adapt(X[pool[r.labeled]], y[pool[r.labeled]])
            table[s, b] = 100 * r.adapted.score(X[test], y[test])
    return table


@lru_cache(maxsize=len(TASKS))
def fitted(name: str, folder: Path) -> tuple[ProjectAndProbe, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The source model of a task, and rows and labels of its targets that are large enough."""
    task = TASKS[name](folder)
    model = ProjectAndProbe().fit(task.X[task.source], task.y[task.source])
    targets = {key: rows for key, rows in task.targets.items() if len(rows) >= MIN_ROWS}
    return model, {key: (task.X[rows], task.y[rows]) for key, rows in targets.items()}


def measure(work: tuple[int, str], folder: Path) -> dict[tuple[str, str], np.ndarray]:
    """(task, target) -> accuracy for one seed, strategies x budgets."""
    seed, name = work
    model, targets = fitted(name, folder)
    return {(name, target): measure_cell(model, X, y, seed) for target, (X, y) in targets.items()}


def gain(values: np.ndarray) -> str:
    """Mean and its standard error of paired differences, over cells and seeds."""
    flat = values.ravel()
    return f"{flat.mean():+.1f} ± {flat.std(ddof=1) / np.sqrt(len(flat)):.1f}"


def write(results: dict[tuple[str, str], np.ndarray], seeds: int) -> str:
    names, A = list(STRATEGIES), np.stack(list(results.values()))  # cells x seeds x strategies x budgets
    over = A - A[:, :, :1, :]
    of = f" ({', '.join(dict.fromkeys(task for task, _ in results))})" if len(results) == 1 else ""
    lines = [
        f"# Which rows to label: `suggest_labels` against other choices{of}",
        "",
        f"Target accuracy after `model.adapt` with its default, mean over {len(A)} targets and {seeds} seeds; made by",
        "`benchmarks/suggest_labels.py`. In brackets: difference to random choice with the same pool, budget",
        "and test rows, ± its standard error over targets and seeds. For two classes, entropy and margin choose",
        "the same rows.",
        "",
        "| labels | " + " | ".join(map(str, BUDGETS)) + " | mean |",
        "|---" * (len(BUDGETS) + 2) + "|",
    ]
    for s, name in enumerate(names):
        cells = [f"{A[:, :, s, b].mean():.1f} ({gain(over[:, :, s, b])})" for b in range(len(BUDGETS))]
        lines.append(f"| {name} | " + " | ".join([*cells, f"**{gain(over[:, :, s].mean(-1))}**"]) + " |")
    lines += ["", "Difference to random by target, mean over budgets ± standard error over seeds:", ""]
    lines += ["| target | random | " + " | ".join(names[1:]) + " |", "|---" * (len(names) + 1) + "|"]
    for i, cell in enumerate(results):
        cells = [f"{A[i, :, 0].mean():.1f}", *(gain(over[i, :, s].mean(-1)) for s in range(1, len(names)))]
        lines.append(f"| {' '.join(cell)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = data_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    args = parser.parse_args()
    results: dict[tuple[str, str], list[np.ndarray]] = {}
    page = ""
    with ProcessPoolExecutor(args.jobs) as pool:
        work = list(product(range(args.seeds), args.tasks))
        for (seed, name), part in zip(work, pool.map(partial(measure, folder=args.folder), work)):
            for cell, table in part.items():
                results.setdefault(cell, []).append(table)
            print(seed, name, flush=True)
            if name == args.tasks[-1]:  # a whole seed: what is there so far is a table already
                page = write({cell: np.stack(tables) for cell, tables in results.items()}, seed + 1)
                if args.out is not None:
                    args.out.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
