"""What `pro2 demo` measures: digit collages under four shifts, and shifted Gaussians where theory is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.estimators import Probe, ProjectAndProbe
from pro2.lab.baselines import create_baseline
from pro2.lab.datasets.digits import make_digit_collages
from pro2.lab.datasets.shog import make_shog
from pro2.linalg.basis import krylov_basis
from pro2.tables.csv_files import write_rows
from pro2.tables.draws import draw

AVERAGED, PAPER, SOURCE = "averaged Pro2", "the paper's Pro2", "source head"
SHOTS, SEEDS = (2, 8, 32), 10
SHOG_FEATURES = (1, 2, 4, 8, 20)
SHOG_SHOTS = (4, 16, 64, 256)


def demo_methods() -> dict[str, Any]:
    """Each chooses its own settings from the few target labels alone."""
    return {
        AVERAGED: ProjectAndProbe(),
        PAPER: ProjectAndProbe(n_features="loo", l2="loo"),
        SOURCE: create_baseline("source-only"),
        "linear probe": create_baseline("linear-probe"),
        "random projection": create_baseline("random", random_state=0),
    }


def adapted_rows(
    X: np.ndarray, y: np.ndarray, source: np.ndarray, targets: Mapping[str, np.ndarray],
    shots: Iterable[int] = SHOTS, seeds: Iterable[int] = range(SEEDS), advance: Callable[[], None] = lambda: None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """One row per fit: method, target, n_shots, seed, accuracy on all other rows. `advance` is called after each."""
    models = {name: method.fit(X[source], y[source]) for name, method in demo_methods().items()}
    for target, rows in targets.items():
        for n_shots in shots:
            for seed in seeds:
                few = draw(y, rows, n_shots, seed)
                for name, model in models.items():
                    score = model.adapt(X[few.few], y[few.few]).score(X[few.rest], y[few.rest])
                    yield {"method": name, "target": target, "n_shots": n_shots, "seed": seed, "accuracy": score}
                    advance()


def collage_rows(advance: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    """Digit collages: all four digits tell the class in the source, one of them in each target."""
    table = make_digit_collages()
    X, y, split = np.asarray(table.embeddings), table.column("y"), table.column("split")
    targets = {name: split == name for name in sorted(set(split) - {"source"})}
    yield from adapted_rows(X, y, split == "source", targets, SHOTS, range(SEEDS), advance)


def n_collage_rows() -> int:
    """How many rows `collage_rows` gives."""
    return len(demo_methods()) * 4 * len(SHOTS) * SEEDS


def shog_rows(advance: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    """Shifted Gaussians: target, n_features, n_shots, mean exact accuracy over seeds of a probe on the first d."""
    shog = make_shog(random_state=0)
    components = krylov_basis(shog.moments(), shog.n_features).components
    for target in shog.targets:
        for n_shots in SHOG_SHOTS:
            draws = [shog.sample(target, 2 * n_shots, seed) for seed in range(SEEDS)]
            for d in SHOG_FEATURES:
                probes = [Probe(l2=0.01).fit(X @ components[:d].T, y) for X, y in draws]
                found = [shog.accuracy(target, p.coef_[0] @ components[:d], float(p.intercept_[0])) for p in probes]
                yield {"target": target, "n_features": d, "n_shots": n_shots, "accuracy": float(np.mean(found))}
        advance()


def save_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Rows of one kind as a CSV file."""
    values = [list(row.values()) for row in rows]
    atomic_write(path, lambda file: write_rows(file, list(rows[0]), values), force=True)
