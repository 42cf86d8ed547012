"""Many small targets on the processor: `ProbeBank`, `model.adapt` one after the other, and scikit-learn.

Loops are timed on some of the targets.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from harness import measure, run
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from pro2 import ProbeBank, ProjectAndProbe

SOME = 100  # targets of a loop


def make_rows(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of two classes that differ a little in every feature, and their labels, half of each class."""
    y = np.broadcast_to(np.arange(shape[-2]) % 2, shape[:-1])
    return rng.standard_normal(shape, dtype=np.float32) + 0.1 * y[..., None].astype(np.float32), y


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    T, M, D = options.targets, options.labels, options.width
    model = ProjectAndProbe().fit(*make_rows((5000, D), rng))
    X, y = make_rows((T, M, D), rng)
    rows = []
    for threads in options.threads:
        with threadpool_limits(threads):
            ways = {
                "ProbeBank": lambda: ProbeBank(model).fit(X, y),
                "adapt": lambda: [model.adapt(each, labels) for each, labels in zip(X[:SOME], y)],
                "scikit-learn": lambda: [LogisticRegression().fit(each, labels) for each, labels in zip(X[:SOME], y)],
            }
            seconds = measure(ways, options.repeats)
        rate = {name: (T if name == "ProbeBank" else min(T, SOME)) / value for name, value in seconds.items()}
        rows.append({
            "threads": threads, "work": f"{T} x {M} x {D}", **{f"{k}, targets/s": v for k, v in rate.items()},
            "ProbeBank / adapt": rate["ProbeBank"] / rate["adapt"],
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--targets", type=int, default=5_000)
    parser.add_argument("--labels", type=int, default=16, help="of each target")
    parser.add_argument("--width", type=int, default=1_280)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)


if __name__ == "__main__":
    run("bank", "Bank on the processor: targets per second", work, _options)
