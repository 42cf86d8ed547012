"""Does labelling with `pro2 label` pay, and is the figure on the page true? Scripted people on real data.

    python benchmarks/label_pays.py DATA_FOLDER [--out docs/results/label.md] [--runs 10] [--jobs 2] [--no-browser]

A scripted person answers with the truth: folder names of the photographs, the table's column for Waterbirds. Everything
else is the session that the page uses: the same refits, the same share of random items, the same figures. The last table
comes from one run in Chromium with key strokes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pro2 import EmbeddingTable, ProjectAndProbe
from pro2.label.events import Event
from pro2.label.fitting import refit
from pro2.label.pool import Pool
from pro2.label.session import Session, Settings
from pro2.label.start import FromModel, start_model

STAGES = (17, 34, 68, 136)
HOLD = 3
ORDERS = ("suggested", "random order", "margin sampling")
DATA = ("photographs", "waterbirds minority")


@dataclass(frozen=True)
class Task:
    """A pool to label, its truth, and the model of its source."""

    table: EmbeddingTable
    truth: np.ndarray
    model: ProjectAndProbe


def photographs(folder: Path) -> Task:
    """17 classes; the target shows other kinds of each than the source."""
    from pro2.embed import create_backbone, open_images
    from pro2.embed.extract import extract

    cache = Path(tempfile.gettempdir()) / "pro2-label-pays"
    cache.mkdir(exist_ok=True)
    for part in ("source", "target"):
        extract(open_images(folder / "living_photos" / part), create_backbone("efficientnet-lite0"), cache / f"{part}.arrow")
    source, target = (EmbeddingTable.open(cache / f"{part}.arrow") for part in ("source", "target"))
    model = _cached_model(cache / "model.safetensors", source.embeddings, source.column("label"))
    return Task(target, target.column("label"), model)


def _cached_model(path: Path, X: np.ndarray, y: np.ndarray) -> Any:
    """Workers of one run fit it once."""
    from pro2 import load

    if not path.exists():
        ProjectAndProbe().fit(X, y).save(path, force=True)
    return load(path)


def waterbirds(folder: Path) -> Task:
    """Two classes; birds before the background that does not go with them."""
    table = EmbeddingTable.open(folder / "waterbirds.npz")
    source, target = table.where("split == 0"), table.where("split == 2 and y != place")
    model = ProjectAndProbe().fit(source.embeddings.astype(np.float32), source.column("y"))
    pool = EmbeddingTable(target.embeddings.astype(np.float32), target.ids)
    return Task(pool, target.column("y").astype(str), model)


@lru_cache(maxsize=2)
def task(name: str, folder: Path) -> Task:
    return {"photographs": photographs, "waterbirds minority": waterbirds}[name](folder)


class ByMargin(FromModel):
    """Instead of `suggest_labels`: rows whose two most probable classes are closest."""

    def suggest(self, X: np.ndarray, n: int, adapted: Any, X_labeled: np.ndarray) -> np.ndarray:
        P = np.sort(np.asarray((adapted or self.model.source_head_).predict_proba(X)), axis=1)
        return np.argsort(P[:, -1] - P[:, -2], kind="stable")[:n]


def run(work: tuple[str, str, int], folder: Path, every: int) -> list[dict[str, Any]]:
    """One scripted session; a row per stage."""
    name, order, seed = work
    where = task(name, folder)
    pool = Pool(where.table)
    start = start_model(where.model, pool)
    if order == "margin sampling":
        start = ByMargin(where.model, start._fallback)
    session = Session(pool, start.classes, Settings(1.0 if order == "random order" else 0.25, seed=seed))
    rows, judged = [], order == "suggested"
    update(session, start, verdicts=False)
    for n in range(1, STAGES[-1] + 1):
        session.apply(session.give("", HOLD, 0.0))
        row = session.hands("")[0].row
        session.apply([Event("label", "", pool.ids[row], str(where.truth[row]), key=f"k{n}", seq=n)])
        if n in STAGES or (n % every == 0 and order != "random order"):
            update(session, start, verdicts=judged and n in STAGES)
        if n in STAGES:
            rows.append({"data": name, "order": order, "seed": seed, "labels": n, **measured(session, where.truth)})
    return rows


def update(session: Session, start: Any, verdicts: bool) -> None:
    """A refit to the end; verdicts take most of it and change nothing but the figures, so they wait for a stage."""
    labelled = session.labelled()
    if not verdicts:
        labelled = type(labelled)(labelled.rows, labelled.labels, [], labelled.free, labelled.held)
    for fitted in refit(session.pool, start, labelled, session.fitted, clock=lambda: 0.0):
        session.adopt(fitted)


def measured(session: Session, truth: np.ndarray) -> dict[str, Any]:
    """Accuracy on the rows without a label, and what the page says about it."""
    rest = session.rest()
    right = np.array(session.fitted.names)[session.fitted.top[rest]] == truth[rest]
    shown = session.figures()["accuracy"]
    return {"accuracy": float(right.mean()), "shown": shown}


def mean_error(values: np.ndarray) -> str:
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=1) / math.sqrt(len(values)):.1f}"


def pick(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return sorted(found, key=lambda row: row["seed"])


def accuracy_table(rows: list[dict[str, Any]], data: str) -> list[str]:
    lines = ["| order | " + " | ".join(f"{n} labels" for n in STAGES) + " |", "|---" * (len(STAGES) + 1) + "|"]
    base = {n: np.array([row["accuracy"] for row in pick(rows, data=data, order="random order", labels=n)]) for n in STAGES}
    for order in ORDERS:
        cells = []
        for n in STAGES:
            values = np.array([row["accuracy"] for row in pick(rows, data=data, order=order, labels=n)])
            gain = "" if order == "random order" else f" ({mean_error(values - base[n]).replace(' ±', ' ±')})"
            cells.append(f"{mean_error(values)}{gain}")
        lines.append(f"| {order} | " + " | ".join(cells) + " |")
    return lines


def coverage_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| data | labels | runs whose interval holds the truth | mean width | mean of shown minus true |", "|---" * 5 + "|"]
    for data in DATA:
        for n in STAGES:
            found = pick(rows, data=data, order="suggested", labels=n)
            inside = [row["shown"]["low"] <= row["accuracy"] <= row["shown"]["high"] for row in found]
            width = np.mean([row["shown"]["high"] - row["shown"]["low"] for row in found])
            bias = np.array([row["shown"]["value"] - row["accuracy"] for row in found])
            lines.append(f"| {data} | {n} | {sum(inside)} of {len(inside)} | {100 * width:.0f} | {mean_error(bias)} |")
    return lines


def page(rows: list[dict[str, Any]], browser: list[dict[str, Any]], runs: int, every: int) -> str:
    refits = "every label" if every == 1 else f"every {every} labels"
    parts = [
        "# Labelling in the browser: does it pay, and is its figure true?",
        "",
        f"Made by `benchmarks/label_pays.py`, which says how: scripted people with the truth, {runs} runs, a refit after {refits}.",
        "Accuracy in % on the rows without a label, mean ± standard error over runs; in brackets the difference to random",
        "order with the same default, paired by run. All orders but random order draw one item in four at random, to measure on.",
    ]  # fmt: skip
    for data in DATA:
        parts += ["", f"## {data.capitalize()}", "", *accuracy_table(rows, data)]
    parts += [
        "", "## Is the figure on the page true?", "",
        "The interval shown after each stage of the suggested order, against the accuracy on all rows without a label.", "",
        *coverage_table(rows),
    ]  # fmt: skip
    if browser:
        lines = ["| labels | true accuracy | shown on the page |", "|---|---|---|"]
        lines += [f"| {row['labels']} | {100 * row['accuracy']:.1f} | {row['shown']} |" for row in browser]
        parts += ["", "## One run in Chromium", "", "Photographs, by key strokes alone.", "", *lines]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="labels between refits")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    work = list(product(args.data, args.orders, range(args.runs)))
    with ProcessPoolExecutor(args.jobs) as pool:
        for (data, order, seed), found in zip(work, pool.map(partial(run, folder=args.folder, every=args.every), work)):
            rows += found
            for row in found:
                print(data, order, seed, row["labels"], f"{row['accuracy']:.3f}", row["shown"], flush=True)


if __name__ == "__main__":
    main()
