"""Time and memory against rows, features, classes and labels, on log axes, beside what else one would fit.

Each point is a process of its own: the first call there, with all that it loads; the median of further calls; and the
memory that one of them takes beyond the rows. X'X in float32 is the least that moments cost. A way is left out beyond
the size at which a call took more than `--limit` seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import PAGES, processor_time, run

FIT, ADAPT = "fit", "adapt"
# what grows, how, what stays, for `fit` or `adapt`; the labels of a target are those of all classes together
AXES: dict[str, tuple[str, tuple[int, ...], dict[str, int]]] = {
    "N": (FIT, (500, 2_000, 8_000, 32_000), {"D": 1280, "K": 2}),
    "D": (FIT, (256, 1_024, 4_096), {"N": 4_000, "K": 2}),
    "K": (FIT, (2, 10, 100, 1_000), {"N": 10_000, "D": 512}),
    "M": (ADAPT, (16, 64, 256, 1_024, 4_096), {"N": 4_000, "D": 1280, "K": 2}),
}
MEANING = {"N": "source rows", "D": "features", "K": "classes", "M": "labels of the target"}
SECONDS = 0.5  # of further calls, at least one and at most five


def ways(stage: str, X: np.ndarray, y: np.ndarray, labelled: int) -> dict[str, Callable[[], Callable[[], Any]]]:
    """For each way a function that loads it and returns the call."""
    T, t = X[:labelled], y[:labelled]

    def pro2() -> Callable[[], Any]:
        from pro2 import ProjectAndProbe

        if stage == FIT:
            return lambda: ProjectAndProbe().fit(X, y)
        model = ProjectAndProbe().fit(X[labelled:], y[labelled:])
        return lambda: model.adapt(T, t)

    def ridge() -> Callable[[], Any]:
        from sklearn.linear_model import RidgeClassifier

        return lambda: RidgeClassifier().fit(T, t)

    def lda() -> Callable[[], Any]:
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        return lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(T, t)

    def logistic() -> Callable[[], Any]:
        from sklearn.linear_model import LogisticRegression

        return lambda: LogisticRegression(C=1e-3, max_iter=100).fit(T, t)

    return {"pro2": pro2, "ridge": ridge, "LDA": lda, "logistic": logistic, "X'X": lambda: lambda: T.T @ T}


NAMES = ("pro2", "ridge", "LDA", "logistic", "X'X")


def rows_of(size: dict[str, int], stage: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Gaussian classes; with `adapt`, the first M rows are the target's."""
    rng = np.random.default_rng(0)
    n_labelled = size["M"] if stage == ADAPT else size["N"]
    n = size["N"] + (n_labelled if stage == ADAPT else 0)
    y = np.arange(n) % size["K"]
    X = rng.standard_normal((n, size["D"]), dtype=np.float32)
    X[:, :64] += rng.standard_normal((size["K"], 64), dtype=np.float32)[y]
    return X, y, n_labelled


def point(stage: str, size: dict[str, int], name: str, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of the first call and of further ones, and the memory that a call takes, GiB."""
    X, y, n_labelled = rows_of(size, stage)
    make = ways(stage, X, y, n_labelled)[name]
    start = clock()
    call = make()
    loaded = clock() - start if stage == FIT else 0.0  # the source of `adapt` was fitted before
    start = clock()
    call()
    found = {"first": loaded + clock() - start}
    before = _reset_peak()
    call()
    found["memory"] = round(max(0.0, _status("VmHWM") - before), 3)
    times: list[float] = []
    while len(times) < 5 and (not times or sum(times) < SECONDS):
        start = clock()
        call()
        times.append(clock() - start)
    return found | {"seconds": statistics.median(times)}


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 2**20 for line in lines if line.startswith(field + ":"))


def _reset_peak() -> float:
    """Memory now, GiB; the peak is counted from here."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return _status("VmRSS")


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for axis, (stage, values, fixed) in AXES.items():
        slow: set[str] = set()
        for value in values[: options.points]:
            row: dict[str, Any] = {"stage": stage, axis: value, **{k: v for k, v in fixed.items() if k != axis}}
            for name in NAMES:
                if name in slow:
                    continue
                asked = {"stage": stage, "size": {**fixed, axis: value}, "name": name, "cpu": options.cpu}
                done = subprocess.run(
                    [sys.executable, __file__, "--point", json.dumps(asked)], capture_output=True, text=True, check=True
                )
                measured = json.loads(done.stdout.splitlines()[-1])
                row |= {
                    f"{name}, s": measured["seconds"], f"{name}, first call, s": measured["first"],
                    f"{name}, GiB": measured["memory"],
                }  # fmt: skip
                if measured["first"] > options.limit:
                    slow.add(name)
            found.append(row)
            print(row, flush=True)
    if options.write:
        draw(found, PAGES / "scaling.svg")
    return found


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds above, memory below, one column for what grows; the first call dotted."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "pro2", "font.size": 9}
    figure, axes = plt.subplots(2, len(AXES), figsize=(11, 5.5), sharex="col", sharey="row", layout="constrained")
    for column, (axis, (stage, values, fixed)) in enumerate(AXES.items()):
        own = [row for row in rows if row["stage"] == stage and set(row) >= {axis, *fixed}]
        own = [row for row in own if row[axis] in values and all(row[k] == v for k, v in fixed.items())]
        for number, name in enumerate(NAMES):
            for above, key, style in ((0, "s", "o-"), (0, "first call, s", ":"), (1, "GiB", "o-")):
                points = [(row[axis], row[f"{name}, {key}"]) for row in own if row.get(f"{name}, {key}")]
                label = name if key == "s" else None
                axes[above, column].plot(*zip(*points), style, color=f"C{number}", label=label, ms=3) if points else 0
        for panel in axes[:, column]:
            panel.set(xscale="log", yscale="log")
            panel.set_xticks(values, [f"{value:,}" for value in values])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        stays = ", ".join(f"{k} = {v:,}" for k, v in fixed.items())
        axes[0, column].set_title(f"{stage}: {stays}", fontsize=9)
        axes[1, column].set_xlabel(f"{axis}, {MEANING[axis]}")
    axes[0, 0].set_ylabel("seconds (dotted: first call)")
    axes[1, 0].set_ylabel("memory of a call, GiB")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, help="only so many of the sizes on each axis, from the smallest")
    parser.add_argument("--limit", type=float, default=4.0, help="seconds of a first call beyond which a way ends")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--point"]:
        asked = json.loads(sys.argv[2])
        clock = processor_time if asked["cpu"] else time.perf_counter
        print(json.dumps(point(asked["stage"], asked["size"], asked["name"], clock)))
    else:
        run("scaling", "Scaling: time and memory against N, D, K and M", work, _options)
