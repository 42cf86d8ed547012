"""Does averaged Pro2 find the scale? Raw pixels whose borders are constant in the source, and real embeddings.

    python benchmarks/scales.py DATA [--seeds 10] [--out MD]

Pixels are scikit-learn's digits, drawn into the middle of a larger frame in the source; in the targets they are moved
or the frame is alive, so that pixels without any variance in the source have some. `scale="auto"` against each fixed
scale, with the same labels.
"""

from __future__ import annotations

from typing import Any

import harness
import numpy as np
from rivals import TITLES, create_rivals
from sklearn.datasets import load_digits
from tasks import Task, label_counts, shared

from pro2 import ProjectAndProbe

SCALES = ("auto", "standard", "global", "unit")


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
    return Task("pixels", X, y, source, targets, (1, 2, 5))


def main() -> None:
    parser = harness.data_parser(__doc__)
    asked = parser.parse_args()
    rows: list[harness.Row] = []
    for task in (pixels(), *shared(asked.folder, ("living", "waterbirds", "collages"))):
        models: dict[str, Any] = {scale: ProjectAndProbe(scale=scale) for scale in SCALES} | create_rivals()
        for model in models.values():
            model.fit(task.X[task.source], task.y[task.source])
        rows += harness.measure_methods(task, models, [n for n in label_counts(task) if n <= 32], asked.seeds)
        print(task.name, flush=True)
    titles = {scale: f"Pro2 averaged, `{scale}`" for scale in SCALES} | TITLES
    pages = [harness.summary_page(harness.summary(rows, list(titles), titles))]
    harness.show(pages)
    if asked.out:
        command = f"python benchmarks/scales.py DATA --seeds {asked.seeds}"
        harness.write_page(asked.out, pages, command, "Scale without a choice")


if __name__ == "__main__":
    main()
