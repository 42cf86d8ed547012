"""Many classes: fitting a source and adapting to a few labels of each, compared with ridge and logistic regression.

Every way gets the same labelled target rows. Times are the best of three turns for small cases, of one for large ones.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import numpy as np
from harness import run
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV

from pro2 import ProjectAndProbe

# classes, labels per class, dimensions
CASES = ((2, 8, 1280), (2, 400, 1280), (10, 5, 1280), (62, 1, 1280), (62, 5, 1280), (62, 32, 1280), (200, 2, 256))
LARGE = (1000, 16, 1280)
SOURCE_ROWS = 4000
SLOW = 1000  # labels above which one turn is enough


def data(n_classes: int, n_shots: int, width: int) -> tuple[np.ndarray, ...]:
    """Gaussian classes whose means move between source and target."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(n_classes, width)) * 6 / np.sqrt(width)
    y = np.arange(max(SOURCE_ROWS, 4 * n_classes)) % n_classes
    t = np.repeat(np.arange(n_classes), n_shots)
    moved = mean + 0.3 * rng.normal(size=mean.shape)
    X, T = mean[y] + rng.normal(size=(len(y), width)), moved[t] + rng.normal(size=(len(t), width))
    return X.astype(np.float32), y, T.astype(np.float32), t


def seconds(work: Any, turns: int) -> float:
    found = []
    for _ in range(turns):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def case(n_classes: int, n_shots: int, width: int, rivals: bool) -> dict[str, Any]:
    X, y, T, t = data(n_classes, n_shots, width)
    turns = 1 if len(t) > SLOW else 3
    model = ProjectAndProbe()
    row: dict[str, Any] = {"classes": n_classes, "labels per class": n_shots, "width": width}
    row["fit, s"] = seconds(lambda: model.fit(X, y), turns)
    row["adapt, s"] = seconds(lambda: model.adapt(T, t), turns)
    if rivals:
        row["ridge, s"] = seconds(lambda: RidgeClassifierCV(np.logspace(-2, 4, 10)).fit(T, t), turns)
        row["logistic, s"] = seconds(lambda: LogisticRegression(C=1e-3, max_iter=100).fit(T, t), 1)
        row["adapt / ridge"] = row["adapt, s"] / row["ridge, s"]
    row["memory so far, GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(row, flush=True)
    return row


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = [case(*each, rivals=True) for each in CASES]
    return [*rows, case(*LARGE, rivals=False)] if options.large else rows


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--large", action="store_true", help="also 1,000 classes with 16,000 labels")


if __name__ == "__main__":
    run("many_classes", "Many classes: seconds of one thread, compared with scikit-learn", work, _options)
