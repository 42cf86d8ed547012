"""What `pro2 demo` measures: digit collages under four shifts, and shifted Gaussians where theory is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pro2.estimators import ProjectAndProbe
from pro2.lab.baselines import create_baseline
from pro2.lab.datasets.digits import make_digit_collages
from pro2.lab.datasets.shog import make_shog
from pro2.lab.theory import nullspace_norm
from pro2.linalg.bases import krylov_basis
from pro2.linalg.probes import fit_path
from pro2.tables.shifts import draw

SHOTS, SEEDS = (2, 8, 32), 10
SHOG_FEATURES = (1, 2, 4, 8, 20)
SHOG_SHOTS = (4, 16, 64, 256)


def demo_methods() -> dict[str, Any]:
    """Each chooses its own settings from the few target labels alone."""
    return {
        "pro2": ProjectAndProbe(),
        "source head": create_baseline("source-only"),
        "linear probe": create_baseline("linear-probe"),
        "random projection": create_baseline("random", random_state=0),
    }


def collage_rows(advance: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    """One row per fit: method, target, n_shots, seed, accuracy. `advance` is called after each."""
    table = make_digit_collages()
    X, y, split = np.asarray(table.embeddings), table.column("y"), table.column("split")
    source = split == "source"
    models = {name: method.fit(X[source], y[source]) for name, method in demo_methods().items()}
    for target in sorted(set(split[~source])):
        for n_shots in SHOTS:
            for seed in range(SEEDS):
                few = draw(y, split == target, n_shots, seed)
                for name, model in models.items():
                    score = model.adapt(X[few.few], y[few.few]).score(X[few.rest], y[few.rest])
                    yield {"method": name, "target": target, "n_shots": n_shots, "seed": seed, "accuracy": score}
                    advance()


def n_collage_rows() -> int:
    return len(demo_methods()) * 4 * len(SHOTS) * SEEDS


def shog_rows(advance: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    """Shifted Gaussians: target, n_features, n_shots, nullspace_norm, mean exact accuracy over seeds."""
    shog = make_shog(random_state=0)
    components = krylov_basis(shog.moments(), shog.n_features).components
    for target in shog.targets:
        norms = nullspace_norm(components, shog.head(target)[0])
        for n_shots in SHOG_SHOTS:
            draws = [shog.sample(target, 2 * n_shots, seed) for seed in range(SEEDS)]
            Z = np.stack([X @ components.T for X, _ in draws])
            fit = fit_path(Z, np.stack([y for _, y in draws]), list(SHOG_FEATURES), [0.01])
            for i, d in enumerate(SHOG_FEATURES):
                heads = zip(fit.coef[:, i, 0] @ components, fit.intercept[:, i, 0])
                accuracy = np.mean([shog.accuracy(target, w, b) for w, b in heads])
                norm = float(norms[d - 1])
                yield {"target": target, "n_features": d, "n_shots": n_shots, "nullspace_norm": norm,
                       "accuracy": float(accuracy)}  # fmt: skip
        advance()
