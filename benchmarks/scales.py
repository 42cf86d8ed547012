"""Does the default find the scale? Raw pixels whose borders are constant in the source, and real embeddings.

    python benchmarks/scales.py DATA [--seeds 10] [--out MD]

Pixels are scikit-learn's digits, drawn into the middle of a larger frame in the source; in the targets they are moved
or the frame is alive, so that pixels without any variance in the source have some. `scale="auto"` against each fixed
scale, with the same labels.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from adapt_cells import MANY_SHOTS, Page, Row, load_task, mean, show, write_page
from real_tasks import Task
from rich.console import Console
from rivals import TITLES, create_rivals
from sklearn.datasets import load_digits

from pro2 import ProjectAndProbe

SCALES = ("auto", "standard", "global", "unit")
SHOTS = (1, 2, 5)


def pixels() -> Task:
    """Ten digits in a frame of three dead pixels; targets are moved by two, noisy, or inverted in their brightness."""
    data = load_digits()
    order = np.random.default_rng(3).permutation(len(data.target))
    image = np.pad(data.images[order] / 16.0, ((0, 0), (3, 3), (3, 3)))
    source, rest = np.arange(900), np.arange(900, len(order))
    rng = np.random.default_rng(4)
    changed = {
        "moved": np.roll(image[rest], (2, 1), axis=(1, 2)),
        "noisy": image[rest] + 0.2 * rng.normal(size=image[rest].shape),
        "inverted": 1.0 - image[rest] + 0.02 * rng.normal(size=image[rest].shape),
    }
    X = np.concatenate([image[source], *changed.values()]).reshape(-1, image[0].size).astype(np.float32)
    y = np.concatenate([data.target[order][source], *[data.target[order][rest]] * len(changed)])
    targets = {name: 900 + i * len(rest) + np.arange(len(rest)) for i, name in enumerate(changed)}
    return Task("pixels", X, y, source, targets)


def problems(folder: Path) -> Iterator[tuple[Task, tuple[int, ...]]]:
    yield pixels(), SHOTS
    yield load_task(folder, "living"), tuple(MANY_SHOTS)
    for name in ("waterbirds", "collages"):
        yield load_task(folder, name), (2, 8, 32)


def run_task(task: Task, shots_list: tuple[int, ...], n_seeds: int) -> list[Row]:
    models: dict[str, Any] = {s: ProjectAndProbe(scale=s) for s in SCALES} | create_rivals()
    models = {s: model.fit(task.X[task.source], task.y[task.source]) for s, model in models.items()}
    rows = []
    for target in task.targets:
        for shots in shots_list:
            draws = task.draws(target, shots, n_seeds)
            found = {
                s: float(np.mean([100 * _score(model, task, d.few, d.rest) for d in draws]))
                for s, model in models.items()
            }
            rows.append({"task": task.name, "target": target, "shots": shots, **found})
    return rows


def _score(model: Any, task: Task, few: np.ndarray, rest: np.ndarray) -> float:
    return model.adapt(task.X[few], task.y[few]).score(task.X[rest], task.y[rest])


def table(rows: list[Row]) -> Page:
    body = []
    for task in dict.fromkeys(r["task"] for r in rows):
        own = [r for r in rows if r["task"] == task]
        for target in dict.fromkeys(r["target"] for r in own):
            cells = [r for r in own if r["target"] == target]
            numbers = [mean(cells, s) for s in SCALES]
            gain = f"{numbers[0] - max(numbers[1:]):+.1f}"
            body.append(
                [task, target, *(f"{v:.1f}" for v in numbers), gain, *(f"{mean(cells, k):.1f}" for k in TITLES)]
            )
    head = ["data", "target", *(f"default, `{s}`" for s in SCALES), "`auto` minus the best fixed one", *TITLES.values()]
    return "Mean accuracy over labels per class, %", head, body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = [row for task, shots in problems(args.data) for row in run_task(task, shots, args.seeds)]
    pages = [table(rows)]
    show(Console(width=150), pages)
    if args.out:
        write_page(args.out, pages, f"python benchmarks/scales.py DATA --seeds {args.seeds}", "Scale without a choice")


if __name__ == "__main__":
    main()
