"""Unlabelled target rows beside the labels, and alone: what they add, cell by cell.

    python benchmarks/unlabeled.py DATA [--seeds 10] [--tasks NAME ...] [--stream 1000000] [--rows JSON] [--out MD]

Cells and draws are those of `adapt_cells.py`. The unlabelled rows are all rows of the target that have no label; their
accuracy is that of the labels alone, of the affine map that `adapt(X, y, X_unlabeled=U)` returns, and of its answers
for U itself (`transductive_proba_`). `adapt_unlabeled(U)` gets all rows of the target and no label. `--stream` adds a U
of so many rows of 1,280 numbers in a file that is mapped, not read: seconds, and memory beyond the file's own pages.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from adapt_cells import MANY_SHOTS, TASKS, Page, Row, collect, families, mean, show, write_page
from real_tasks import Task
from rich.console import Console
from rivals import TITLES, create_rivals

from pro2 import ProjectAndProbe

SHOTS = (2, 8, 32)
WIDTH = 1280
WAYS = {
    **TITLES,
    "labels": "the default, labels alone",
    "affine": "with U: the affine map",
    "graph": "with U: answers for U itself",
}


def run_task(task: Task, n_seeds: int) -> list[Row]:
    X, y = task.X, task.y
    model = ProjectAndProbe().fit(X[task.source], y[task.source])
    rivals = {key: rival.fit(X[task.source], y[task.source]) for key, rival in create_rivals().items()}
    rows: list[Row] = []
    for name, target in task.targets.items():
        before = 100 * model.score(X[target], y[target])
        blind = 100 * model.adapt_unlabeled(X[target]).score(X[target], y[target])
        rows.append({"task": task.name, "target": name, "shots": 0, "source": before, "unlabeled": blind})
        for shots in MANY_SHOTS if task.name == "living" else SHOTS:
            draws = [run_draw(model, rivals, X, y, d) for d in task.draws(name, shots, n_seeds)]
            if draws:
                each = {k: float(np.mean([d[k] for d in draws])) for k in WAYS}
                gain = [d["graph"] - d["labels"] for d in draws]
                error = float(np.std(gain, ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.nan
                rows.append({"task": task.name, "target": name, "shots": shots, **each, "error": error})
    return rows


def run_draw(
    model: ProjectAndProbe, rivals: dict[str, Any], X: np.ndarray, y: np.ndarray, draw: Any
) -> dict[str, float]:
    few, rest = draw.few, draw.rest
    alone = model.adapt(X[few], y[few])
    heard = model.adapt(X[few], y[few], X_unlabeled=X[rest])
    answers = heard.classes_[heard.transductive_proba_.argmax(axis=1)]
    return {
        **{key: 100 * rival.adapt(X[few], y[few]).score(X[rest], y[rest]) for key, rival in rivals.items()},
        "labels": 100 * alone.score(X[rest], y[rest]),
        "affine": 100 * heard.score(X[rest], y[rest]),
        "graph": 100 * float(np.mean(answers == y[rest])),
    }


def means_table(rows: list[Row]) -> Page:
    body = []
    for data, own in families([r for r in rows if r["shots"]]).items():
        for shots in [*sorted({r["shots"] for r in own}), 0]:
            cells = [r for r in own if shots in (0, r["shots"])]
            body.append([data, str(shots or "all"), *(f"{mean(cells, k):.1f}" for k in WAYS)])
    return "Mean accuracy over targets, %", ["data", "labels per class", *WAYS.values()], body


def extremes_table(rows: list[Row]) -> Page:
    """The cells in which the answers for U lose most, and in which they gain most."""
    cells = sorted((r for r in rows if r["shots"]), key=lambda r: r["graph"] - r["labels"])
    body = [
        [f"{r['task']}, {r['target']}, {r['shots']} labels", f"{r['graph'] - r['labels']:+.1f} ± {r['error']:.1f}",
         f"{r['affine'] - r['labels']:+.1f}"]
        for r in (*cells[:5], *cells[-5:])
    ]  # fmt: skip
    return "Gain over labels alone, points", ["cell", WAYS["graph"], WAYS["affine"]], body


def alone_table(rows: list[Row]) -> Page:
    body = [
        [f"{r['task']}, {r['target']}", f"{r['source']:.1f}", f"{r['unlabeled']:.1f}"] for r in rows if not r["shots"]
    ]
    return "No label at all: accuracy, %", ["target", "source head", "`adapt_unlabeled`"], body


def stream_table(n: int) -> Page:
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--stream", type=int)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = collect(args.rows, args.data, args.tasks, lambda task: run_task(task, args.seeds))
    pages = [means_table(rows), extremes_table(rows), alone_table(rows)]
    if args.stream:
        pages.append(stream_table(args.stream))
    show(Console(width=150), pages)
    if args.out:
        more = f" --stream {args.stream}" if args.stream else ""
        command = f"python benchmarks/unlabeled.py DATA --seeds {args.seeds}{more}"
        write_page(args.out, pages, command, "Unlabelled rows beside the labels")


if __name__ == "__main__":
    main()
