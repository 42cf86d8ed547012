"""Does labelling with `pro2 label` pay, and is the figure on the page true? Scripted people on real data.

    python benchmarks/label_pays.py DATA_FOLDER [--out docs/results/label.md] [--seeds 10] [--jobs 2] [--no-browser]

A scripted person answers with the truth: folder names of the photographs, a column of the table for Waterbirds. All
else is the session that the page uses: the same refits, the same share of random items, the same figures. The last
table comes from one run in Chromium, by key strokes.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from harness import data_parser

from pro2 import EmbeddingTable, ProjectAndProbe, load
from pro2.label.model import Start, refit, start_from
from pro2.label.pool import Pool
from pro2.label.session import Action, Session, Settings
from pro2.label.store import Store

STAGES = (17, 34, 68, 136)
SUGGESTED, RANDOM, MARGIN = "suggested", "random order", "margin sampling"
ALONE, ALIKE = "one by one", "with “more like this”"  # counted in actions, and measured on rows outside the pool
LOOK = 4  # items after which the scripted person asks for more like the one on screen
HELD_OUT = 1 / 3
PHOTOGRAPHS, BIRDS = "photographs", "Waterbirds minority"
WORK = Path(tempfile.gettempdir()) / "pro2-label-pays"  # embeddings and models, kept for the next time

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A pool to label, its truth, and the model of its source."""

    table: EmbeddingTable
    truth: np.ndarray
    model: Any


def photographs(folder: Path) -> Task:
    """17 classes; the target shows other kinds of each than the source."""
    from pro2.embed import create_backbone, open_images
    from pro2.embed.extract import extract

    tables = []
    for part in ("source", "target"):
        images, network = open_images(folder / "living_photos" / part), create_backbone("efficientnet-lite0")
        tables.append(EmbeddingTable.open(extract(images, network, WORK / f"{part}.arrow").path))
    source, target = tables
    model = fitted("photographs", source.embeddings, source.column("label"))
    return Task(target, target.column("label"), model)


def birds(folder: Path) -> Task:
    """Two classes; birds in front of the background that does not go with them."""
    table = EmbeddingTable.open(folder / "waterbirds.npz")
    source, target = table.where("split == 0"), table.where("split == 2 and y != place")
    model = fitted("birds", source.embeddings.astype(np.float32), source.column("y"))
    return Task(EmbeddingTable(target.embeddings.astype(np.float32), target.ids), target.column("y").astype(str), model)


def fitted(name: str, X: np.ndarray, y: np.ndarray) -> Any:
    """The model of a source, fitted once for all processes."""
    path = WORK / f"{name}.safetensors"
    if not path.exists():
        ProjectAndProbe().fit(X, y).save(path, force=True)
    return load(path)


@lru_cache
def task(name: str, folder: Path) -> Task:
    return {PHOTOGRAPHS: photographs, BIRDS: birds}[name](folder)


class ByMargin(Start):
    """In place of `suggest_labels`: rows whose two most probable classes are closest."""

    def suggest(self, X: np.ndarray, n: int, adapted: Any, X_labeled: np.ndarray) -> np.ndarray:
        P = np.sort(np.asarray((adapted or self.model.source_head_).predict_proba(X)), axis=1)
        return np.argsort(P[:, -1] - P[:, -2], kind="stable")[:n]


def run_one(work: tuple[str, str, int], folder: Path, every: int) -> list[Row]:
    return (run_by_actions if work[1] in (ALONE, ALIKE) else run)(work, folder, every)


def run(work: tuple[str, str, int], folder: Path, every: int) -> list[Row]:
    """One scripted session; a row per stage."""
    name, order, seed = work
    where = task(name, folder)
    pool = Pool(where.table)
    start: Any = ByMargin(where.model) if order == MARGIN else start_from(where.model, pool)
    settings = Settings(1.0 if order == RANDOM else 0.25, seed=seed)
    session = Session(pool, start, Store(None, pool.row_of), settings)
    session.refitter.stop()  # refits are made here, at known labels
    rows: list[Row] = []
    update(session)
    for n in range(1, STAGES[-1] + 1):
        row = session.assigned("")[0]["row"]
        session.act("", Action("label", f"key-{n:08d}", [row], str(where.truth[row])))
        if n in STAGES or (n % every == 0 and order != RANDOM):
            update(session, out_of_fold=order == SUGGESTED and n in STAGES)
        if n in STAGES:
            rows.append({"data": name, "order": order, "seed": seed, "labels": n, **measured(session, where.truth)})
    return rows


def run_by_actions(work: tuple[str, str, int], folder: Path, every: int) -> list[Row]:
    """One scripted session on two thirds of the rows; a row per stage, which is a number of actions."""
    name, order, seed = work
    where = task(name, folder)
    inside = np.random.default_rng(seed).random(len(where.table)) >= HELD_OUT
    pool, truth = Pool(where.table.take(np.flatnonzero(inside))), where.truth[inside].astype(str)
    X, y = where.table.embeddings[~inside], where.truth[~inside].astype(str)
    session = Session(pool, start_from(where.model, pool), Store(None, pool.row_of), Settings(seed=seed))
    session.refitter.stop()
    update(session)
    rows: list[Row] = []
    actions = n = 0
    for stage in STAGES:
        while actions < stage:
            n += 1
            row = session.assigned("")[0]["row"]
            # not before the model has seen as many items as there are classes
            if order == ALIKE and n % LOOK == 0 and n > len(session.classes):
                actions += look(session, truth, row, n)
            session.act("", Action("label", f"key-{n:08d}", [row], truth[row]))
            actions += 1
            if n % every == 0:
                update(session)
        update(session, out_of_fold=True)
        right = float((np.asarray(session.fitted.classifier.predict(X)).astype(str) == y).mean())
        found = {"labels": len(session.store.labels), "accuracy": right, "rest": measured(session, truth)["accuracy"]}
        shown = session.summary()["accuracy"]
        rows.append({"data": name, "order": order, "seed": seed, "actions": stage, "shown": shown, **found})
    return rows


def look(session: Session, truth: np.ndarray, row: int, n: int) -> int:
    """Ask for more like a row and label what has its class; how many actions that takes.

    A key for the grid and one back; the class, where the prediction is wrong; marks, either of what is wrong or of all
    and then of what is right; and Enter.
    """
    label = truth[row]
    items = session.grid("", label, "doubtful", like=row)["items"]
    right = [item["row"] for item in items if truth[item["row"]] == label]
    if not right:
        return 2
    session.act("", Action("label", f"like-{n:08d}", right, label, selected=True))
    guess = session.fitted.guess(row)
    return 3 + (guess is None or guess[0] != label) + min(len(items) - len(right), 1 + len(right))


def update(session: Session, out_of_fold: bool = False) -> None:
    """A complete refit. Out-of-fold predictions change only the figures: they are left out until somebody looks."""
    labelled = session.labelled() if out_of_fold else replace(session.labelled(), random=())
    for step in refit(session.pool, session.start, labelled, session.fitted):
        session.fitted = step


def measured(session: Session, truth: np.ndarray) -> Row:
    """Accuracy on the rows without a label, and what the page says about it."""
    rest = session.unlabelled()
    right = np.array(session.fitted.names)[session.fitted.top[rest]] == truth[rest]
    return {"accuracy": float(right.mean()), "shown": session.summary()["accuracy"]}


def pick(rows: list[Row], **wanted: Any) -> list[Row]:
    found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    return sorted(found, key=lambda row: row["seed"])


def accuracies(rows: list[Row], **wanted: Any) -> np.ndarray:
    return np.array([row["accuracy"] for row in pick(rows, **wanted)])


def mean_error(values: np.ndarray, sign: str = "") -> str:
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{100 * values.mean():{sign}.1f} ± {100 * error:.1f}"


def accuracy_table(rows: list[Row], data: str) -> list[str]:
    lines = ["| order | " + " | ".join(f"{n} labels" for n in STAGES) + " |", "|---" * (len(STAGES) + 1) + "|"]
    for order in (SUGGESTED, RANDOM, MARGIN):
        cells = []
        for n in STAGES:
            values, base = (accuracies(rows, data=data, order=each, labels=n) for each in (order, RANDOM))
            gain = f" ({mean_error(values - base, '+')})" if order != RANDOM and len(base) == len(values) else ""
            cells.append(mean_error(values) + gain if len(values) else "")
        lines.append(f"| {order} | " + " | ".join(cells) + " |")
    return lines


def coverage_table(rows: list[Row]) -> list[str]:
    head = ("data", "labels", "random items", "runs whose interval holds the truth", "mean width", "shown minus true")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for data, n in product((PHOTOGRAPHS, BIRDS), STAGES):
        found = pick(rows, data=data, order=SUGGESTED, labels=n)
        shown, true = [row["shown"] for row in found], [row["accuracy"] for row in found]
        inside = sum(each["low"] <= right <= each["high"] for each, right in zip(shown, true))
        width = np.mean([each["high"] - each["low"] for each in shown])
        bias = mean_error(np.array([each["value"] - right for each, right in zip(shown, true)]), "+")
        items = np.mean([each["n"] for each in shown])
        lines.append(f"| {data} | {n} | {items:.0f} | {inside} of {len(found)} | {100 * width:.0f} | {bias} |")
    return lines


def action_table(rows: list[Row]) -> list[str]:
    head = ["data", "person", *(f"{n} actions" for n in STAGES), "labels", "intervals that hold the truth"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for data, order in product((PHOTOGRAPHS, BIRDS), (ALONE, ALIKE)):
        cells = []
        for n in STAGES:
            values, base = (accuracies(rows, data=data, order=each, actions=n) for each in (order, ALONE))
            gain = f" ({mean_error(values - base, '+')})" if order == ALIKE and len(base) == len(values) else ""
            cells.append(mean_error(values) + gain if len(values) else "")
        found = [row for row in pick(rows, data=data, order=order) if row["shown"]]
        inside = sum(row["shown"]["low"] <= row["accuracy"] <= row["shown"]["high"] for row in found)
        n_labels = np.mean([row["labels"] for row in found if row["actions"] == STAGES[-1]])
        lines.append(f"| {data} | {order} | " + " | ".join(cells) + f" | {n_labels:.0f} | {inside} of {len(found)} |")
    return lines


INTRODUCTION = """# Labelling in the browser: does it pay, and is its figure true?

Made by `benchmarks/label_pays.py`, which says how: scripted people who know the truth, {runs} runs, {refits}.
Accuracy in % on the rows without a label, mean ± standard error over runs; in brackets the difference to random order
with the same default, paired by run. All orders but random order draw one item in four at random, to measure on."""

COVERAGE = """The interval that the page shows after each stage of the suggested order, against the accuracy on all rows
without a label. Widths and differences in percentage points."""

ACTIONS = """A person who presses `m` at one item in {look}, once there are as many labels as classes, and labels the
items of its class among the 24 most alike, compared with one who only labels one by one. Every key and click is an
action. Accuracy in % on a third of the rows that were never in the pool; `labels` after the last stage; the last column
counts the intervals that the page showed at any stage."""

BROWSER = """Photographs, by key strokes alone: Enter where the guess on screen is right, else the key of the class.
What the page said after each stage, word for word."""


def page(rows: list[Row], browser: list[Row], runs: int, every: int) -> str:
    refits = "a refit after every label" if every == 1 else f"a refit after every {every} labels"
    parts = [INTRODUCTION.format(runs=runs, refits=refits)]
    for data in (PHOTOGRAPHS, BIRDS):
        parts += [f"## {data[0].upper()}{data[1:]}", "\n".join(accuracy_table(rows, data))]
    parts += ["## Is the figure on the page true?", COVERAGE, "\n".join(coverage_table(rows))]
    if pick(rows, order=ALIKE):
        parts += ["## More like this", ACTIONS.format(look=LOOK), "\n".join(action_table(rows))]
    if browser:
        lines = ["| labels | true accuracy | accuracy shown | its range | advice |", "|---|---|---|---|---|"]
        lines += [
            f"| {r['labels']} | {100 * r['accuracy']:.1f} | {r['shown']} | {r['range']} | {r['advice']} |"
            for r in browser
        ]
        parts += ["## One run in Chromium", BROWSER, "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = data_parser(__doc__)
    parser.add_argument("--every", type=int, default=1, help="labels between refits")
    parser.add_argument("--data", nargs="+", choices=(PHOTOGRAPHS, BIRDS), default=[PHOTOGRAPHS, BIRDS])
    orders = [SUGGESTED, RANDOM, MARGIN, ALONE, ALIKE]
    parser.add_argument("--orders", nargs="+", choices=orders, default=orders)
    parser.add_argument("--rows", type=Path, help="JSON file of what was measured; a second run goes on from it")
    parser.add_argument("--browser", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    for name in args.data:
        task(name, args.folder)  # embedded and fitted before the processes start
    rows: list[Row] = json.loads(args.rows.read_text()) if args.rows and args.rows.exists() else []
    done = {(row["data"], row["order"], row["seed"]) for row in rows}
    work = [each for each in product(args.data, args.orders, range(args.seeds)) if each not in done]
    with ProcessPoolExecutor(args.jobs) as pool:
        for found in pool.map(partial(run_one, folder=args.folder, every=args.every), work):
            rows += found
            print("\n".join(map(str, found)), flush=True)
            if args.rows:
                args.rows.write_text(json.dumps(rows))
    browser: list[Row] = []
    if args.browser:
        from label_person import label_in_browser

        where = task(PHOTOGRAPHS, args.folder)
        browser = label_in_browser(where, args.folder / "living_photos" / "target", STAGES)
    text = page(rows, browser, args.seeds, args.every)
    print(text)
    if args.out is not None:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
