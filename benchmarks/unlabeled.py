"""Unlabelled target rows in addition to labels, and alone: what they add, cell by cell.

    python benchmarks/unlabeled.py DATA [--seeds 10] [--stream 1000000] [--rows JSON] [--out MD]

The unlabelled rows are all rows of the target that have no label; accuracy is that of the labels alone, of the affine
map that `adapt(X, y, X_unlabeled=U)` returns, and of its answers for U itself (`transductive_proba_`).
`adapt_unlabeled(U)` gets all rows of the target and no label. Pools that lack half of the classes are measured, too.
`--stream` adds a U of so many rows of 1,280 numbers in a file that is mapped, not read: seconds, and memory beyond the
file's own pages.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import harness
import numpy as np
from harness import Page, Row
from rivals import ALL_TITLES, create_rivals
from tasks import label_counts, shared

from pro2 import ProjectAndProbe

WIDTH = 1280
METHODS = ("pro2", "pro2-map", "pro2-answers", "source", "probe", "paper", "interpolation")


def measured(known: set[tuple[str, str]], folder: Path, n_seeds: int) -> Iterator[tuple[str, list[Row]]]:
    for task in shared(folder):
        if (task.name, "alone") in known:
            continue
        models = create_rivals(names=METHODS)
        for model in models.values():
            model.fit(task.X[task.source], task.y[task.source])
        counts = [n for n in label_counts(task) if n <= 32]
        rows = list(harness.measure_methods(task, models, counts, n_seeds))
        for target, at in task.targets.items():  # without a label: the same in every draw
            alone = models["pro2"].adapt_unlabeled(task.X[at]).score(task.X[at], task.y[at])
            rows.append({"task": task.name, "target": target, "shots": 0, "seed": 0, "method": "alone",
                         "accuracy": 100 * alone})  # fmt: skip
        yield task.name, rows


def extremes_page(rows: list[Row]) -> Page:
    """The cells in which the answers for U lose most, and in which they gain most."""
    gains = {}
    for cell in dict.fromkeys((r["task"], r["target"], r["shots"]) for r in rows):
        own = [r for r in rows if (r["task"], r["target"], r["shots"]) == cell]
        gains["{}, {}, {} labels".format(*cell)] = [
            harness.mean_and_error(own, method, against="pro2") for method in ("pro2-answers", "pro2-map")
        ]
    order = sorted(gains.items(), key=lambda item: item[1][0][0])
    body = [[cell, *(f"{gain:+.1f} ± {error:.1f}" for gain, error in both)] for cell, both in (*order[:5], *order[-5:])]
    return "Gain over labels alone, points", ["cell", "answers for U", "affine map"], body


def alone_page(rows: list[Row]) -> Page:
    """No label at all, compared with the source head."""
    body = []
    for row in (r for r in rows if r["method"] == "alone"):
        own = [r for r in rows if (r["task"], r["target"]) == (row["task"], row["target"])]
        before = harness.mean_and_error(own, "source")[0]
        body.append([f"{row['task']}, {row['target']}", f"{before:.1f}", f"{row['accuracy']:.1f}"])
    return "No label at all: accuracy, %", ["target", "source head", "`adapt_unlabeled`"], body


def lacking_page(folder: Path, n_seeds: int) -> Page:
    """Pools that hold every second class only: accuracy on the pool, and on all rows of the target by the map."""
    body = []
    for task in shared(folder, ("waterbirds", "living")):
        model = ProjectAndProbe().fit(task.X[task.source], task.y[task.source])
        for target in task.targets:
            found = []
            for draw in task.draws(target, 2, n_seeds):
                pool = draw.rest[np.searchsorted(model.classes_, task.y[draw.rest]) % 2 == 0]
                shares = np.bincount(np.searchsorted(model.classes_, task.y[pool]), minlength=len(model.classes_))
                X, y, U = task.X[draw.few], task.y[draw.few], task.X[pool]
                alone, blind = model.adapt(X, y), model.adapt(X, y, X_unlabeled=U)
                known = model.adapt(X, y, X_unlabeled=U, class_shares=shares / shares.sum())
                answers = [model.classes_[each.transductive_proba_.argmax(axis=1)] for each in (blind, known)]
                right = [np.mean(each == task.y[pool]) for each in (alone.predict(U), *answers)]
                found.append([*right, *(each.score(task.X[draw.rest], task.y[draw.rest]) for each in (alone, blind))])
            body.append([f"{task.name}, {target}", *(f"{100 * each:.1f}" for each in np.mean(found, axis=0))])
    head = ["target, 2 labels per class", "pool: labels alone", "answers", "answers, shares known", "all: labels alone",
            "affine map"]  # fmt: skip
    return "Pools that lack every second class: accuracy, %", head, body


def stream_page(n: int) -> Page:
    """Adapt with 16 labels and n unlabelled rows on disk."""
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 2
    X = rng.standard_normal((len(y), WIDTH), dtype=np.float32)
    X[:, :64] += 0.3 * y[:, None]
    model = ProjectAndProbe().fit(X[:2000], y[:2000])
    with tempfile.TemporaryFile() as file:
        for start in range(0, n, 2000):
            file.write(np.roll(X[2000 : 2000 + min(2000, n - start)], start, axis=0))
        file.flush()
        U = np.memmap(file, np.float32, "r", shape=(n, WIDTH))
        with Anonymous() as memory:
            start = time.perf_counter()
            model.adapt(X[2000:2016], y[2000:2016], X_unlabeled=U)
            seconds = time.perf_counter() - start
        del U
    size = 4e-9 * n * WIDTH
    body = [[f"{n:,}", f"{size:.1f}", f"{seconds:.1f}", f"{memory.peak:.2f}"]]
    return "Unlabelled rows in a mapped file", ["rows", "file, GB", "seconds", "memory, GiB"], body


class Anonymous:
    """The most memory of this process that is no page of a file, in GiB, while the context lasts."""

    def __enter__(self) -> Anonymous:
        self.peak, self._over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            self.peak = max(self.peak, int(status["RssAnon"].split()[0]) / 2**20)


def main() -> None:
    parser = harness.data_parser(__doc__)
    parser.add_argument("--stream", type=int, help="rows of a mapped file")
    parser.add_argument("--rows", type=Path, help="JSON file that keeps every draw")
    asked = parser.parse_args()
    rows = harness.keep_rows(asked.rows, lambda known: measured(known, asked.folder, asked.seeds))
    labelled = [r for r in rows if r["shots"]]
    pages = [harness.summary_page(harness.summary(labelled, METHODS, ALL_TITLES)), extremes_page(labelled)]
    pages += [alone_page(rows), lacking_page(asked.folder, asked.seeds)]
    if asked.stream:
        pages.append(stream_page(asked.stream))
    harness.show(pages)
    if asked.out:
        more = f" --stream {asked.stream}" if asked.stream else ""
        command = f"python benchmarks/unlabeled.py DATA --seeds {asked.seeds}{more}"
        harness.write_page(asked.out, pages, command, "Unlabelled rows in addition to labels")


if __name__ == "__main__":
    main()
