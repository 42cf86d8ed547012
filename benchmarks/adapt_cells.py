"""Accuracy and calibration of the untuned default on real embeddings, cell by cell.

    python benchmarks/adapt_cells.py DATA [--seeds 10] [--shots 2 8 32 128] [--tasks NAME ...] [--rows JSON] [--out MD]

DATA holds waterbirds.npz, collages.npz, celeba10k.npz and living_tiny.npz. A cell is a target and a number of labels
per class; supports are balanced draws, accuracy is on all other rows of the target. The default is compared with the
source head, with a ridge classifier on the target alone, and with a linear probe, the paper's Pro2 and head
interpolation, which choose their settings by leave-one-out. `--rows` keeps the cells as JSON and goes on from there;
`--out` writes the tables as a Markdown page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from real_tasks import CELEBA, Task, celeba, collages, living, waterbirds
from rich.console import Console
from rich.table import Table
from rivals import TITLES, create_rivals
from sklearn.linear_model import RidgeClassifierCV

from pro2 import ProjectAndProbe

TASKS = ("waterbirds", "collages", "living", *(f"celeba-{v}" for v in CELEBA))
MANY_SHOTS = [1, 2, 5]  # the paper's, for many classes
MODELS = {"source": TITLES["source"], "ridge": "ridge on the target", **TITLES, "ours": "the default"}
Row = dict[str, Any]
Page = tuple[str, list[str], list[list[str]]]


def load_task(folder: Path, name: str) -> Task:
    if name.startswith("celeba-"):
        return celeba(folder, name.removeprefix("celeba-"))
    if name == "living":
        return living(folder)
    return collages(folder) if name == "collages" else waterbirds(folder, name)


def calibration_error(p: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error of the winning class's probability, equal-width bins."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    gaps = [abs(p[place == b].mean() - right[place == b].mean()) * (place == b).mean() for b in np.unique(place)]
    return float(np.sum(gaps))


def probabilities_of(classifier: object, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    P = np.asarray(classifier.predict_proba(X))  # type: ignore[attr-defined]
    loss = -np.log(np.maximum(P[np.arange(len(y)), y], 1e-12)).mean()
    return float(loss), calibration_error(P.max(axis=1), P.argmax(axis=1) == y)


def run_task(task: Task, shots_list: list[int], n_seeds: int) -> list[Row]:
    X, y = task.X, task.y
    model = ProjectAndProbe().fit(X[task.source], y[task.source])
    rivals = {k: v.fit(X[task.source], y[task.source]) for k, v in create_rivals().items()}
    deviation = X[task.source].std(axis=0)
    scaled = X / np.maximum(deviation, 0.1 * deviation.mean())
    rows: list[Row] = []
    for target in task.targets:
        for shots in shots_list:
            seeds = [
                run_draw(model, rivals, task, scaled, d.few, d.rest, shots) for d in task.draws(target, shots, n_seeds)
            ]
            if seeds:
                mean = {k: float(np.mean([v[k] for v in seeds])) for k in seeds[0]}
                rows.append({"task": task.name, "target": target, "shots": shots, **mean})
    return rows


def run_draw(
    model: ProjectAndProbe, rivals: dict[str, Any], task: Task, scaled: np.ndarray, few: np.ndarray,
    rest: np.ndarray, shots: int,
) -> dict[str, float]:  # fmt: skip
    X, y = task.X, task.y
    adapted = model.adapt(X[few], y[few])
    row = {"ours": 100 * adapted.score(X[rest], y[rest])}
    ridge = RidgeClassifierCV(10.0 ** np.arange(-1, 6)).fit(scaled[few], y[few])
    row["ridge"] = 100 * ridge.score(scaled[rest], y[rest])
    row["log_loss"], row["ece"] = probabilities_of(adapted, X[rest], y[rest])
    for name, rival in rivals.items():
        other = rival.adapt(X[few], y[few])
        row[name] = 100 * other.score(X[rest], y[rest])
        if name == "probe":
            row["probe_log_loss"], row["probe_ece"] = probabilities_of(other, X[rest], y[rest])
    report = adapted.report_
    row["claim"] = 100 * report.accuracy
    low, high = report.accuracy_interval
    row["covered"] = float(low <= row["ours"] / 100 <= high)
    curve = report.learning_curve
    row["ahead"] = np.nan if curve is None else 100 * curve.accuracy_at(4 * shots)
    row["ahead_spread"] = np.nan if curve is None else 100 * curve.spread
    return row


def family(row: Row) -> str:
    return str(row["task"]).split("-")[0]


def families(rows: list[Row]) -> dict[str, list[Row]]:
    return {f: [r for r in rows if family(r) == f] for f in dict.fromkeys(map(family, rows))}


def comparable(rows: list[Row]) -> dict[str, list[Row]]:
    """Families whose targets all have the same numbers of labels: else a mean moves because a target came or went."""
    groups: dict[str, list[Row]] = {}
    for data, own in families(rows).items():
        cell: dict[tuple[str, str], tuple[int, ...]] = {}
        for r in own:
            place = (r["task"], r["target"])
            cell[place] = (*cell.get(place, ()), r["shots"])
        kinds = list(dict.fromkeys(cell.values()))
        for shots in kinds:
            n = sum(found == shots for found in cell.values())
            name = data if len(kinds) == 1 else f"{data}, {n} targets with {', '.join(map(str, shots))} labels"
            groups[name] = [r for r in own if cell[r["task"], r["target"]] == shots]
    return groups


def mean(rows: list[Row], key: str) -> float:
    found = [r[key] for r in rows if key in r]
    return float(np.mean(found)) if found else np.nan


def accuracy_table(rows: list[Row], shots_list: list[int]) -> Page:
    head = ["data", "classifier", *map(str, shots_list), "mean over cells"]
    body = []
    for data, own in comparable(rows).items():
        for key, title in MODELS.items():
            if not any(key in r for r in own):
                continue
            cells = [mean([r for r in own if r["shots"] == s], key) for s in shots_list]
            body.append([data, title, *("" if np.isnan(v) else f"{v:.1f}" for v in [*cells, mean(own, key)])])
    return "Accuracy, %, by labels per class", head, body


def summary_table(rows: list[Row]) -> Page:
    """Each data set in two lines: with the fewest labels, and over all its cells; the best in bold."""
    body = []
    for data, own in families(rows).items():
        shots_list = sorted({r["shots"] for r in own})
        fewest = [r for r in own if r["shots"] == shots_list[0]]
        for cells, labels in ((fewest, str(shots_list[0])), (own, f"{shots_list[0]} to {shots_list[-1]}")):
            means = [mean(cells, key) for key in MODELS]
            shown = [f"**{v:.1f}**" if v == np.nanmax(means) else f"{v:.1f}" for v in means]
            body.append([data, labels, *shown])
    return "Mean accuracy, %", ["data", "labels per class", *MODELS.values()], body


def calibration_table(rows: list[Row]) -> Page:
    keys = ("log_loss", "probe_log_loss", "ece", "probe_ece")
    head = ["data", "log-loss", "of the probe", "ECE", "of the probe", "leave-one-out accuracy", "accuracy"]
    body = []
    for data, own in families([r for r in rows if r["shots"] <= 32]).items():
        numbers = [f"{mean(own, k):.3f}" for k in keys]
        body.append([data, *numbers, f"{mean(own, 'claim'):.1f}", f"{mean(own, 'ours'):.1f}"])
    return "Calibration, 2 to 32 labels per class", head, body


def shortfall_table(rows: list[Row]) -> Page:
    """Cells where adapting loses most against the better of doing nothing and ignoring the source."""
    gap = {f"{r['task']}, {r['target']}, {r['shots']} shots": max(r["source"], r["ridge"]) - r["ours"] for r in rows}
    body = [[cell, f"{v:.1f}"] for cell, v in sorted(gap.items(), key=lambda e: -e[1])[:10]]
    body.append([f"mean over {len(gap)} cells, gains counted as 0", f"{np.maximum(list(gap.values()), 0).mean():.2f}"])
    body.append(["mean difference (negative: ours is better)", f"{np.mean(list(gap.values())):.2f}"])
    return "Shortfall against the better of source head and ridge, points", ["cell", "shortfall"], body


def curve_table(rows: list[Row]) -> Page:
    """What the learning curve of the report says about four times the labels, and what was measured there."""
    at = {(r["task"], r["target"], r["shots"]): r for r in rows}
    body = []
    for shots in sorted({r["shots"] for r in rows}):
        known = [r for r in rows if r["shots"] == shots and np.isfinite(r["ahead"])]
        there = [at.get((r["task"], r["target"], 4 * shots)) for r in known]
        pairs = [(a, b) for a, b in zip(known, there) if b is not None]
        if pairs:
            now, told = mean([a for a, _ in pairs], "ours"), mean([a for a, _ in pairs], "ahead")
            miss = np.mean([abs(a["ahead"] - b["ours"]) for a, b in pairs])
            numbers = (
                now,
                told,
                mean([b for _, b in pairs], "ours"),
                miss,
                mean([a for a, _ in pairs], "ahead_spread"),
            )
            body.append([str(shots), str(4 * shots), *(f"{v:.1f}" for v in numbers)])
    head = [
        "labels per class",
        "asked about",
        "accuracy now",
        "predicted",
        "measured",
        "mean miss per cell",
        "stated spread of one draw",
    ]
    return "Learning curve: predicted and measured accuracy at four times the labels", head, body


def coverage_table(rows: list[Row]) -> Page:
    """Of the report's 95 % interval."""
    shots_list = sorted({r["shots"] for r in rows})
    body = []
    for data, own in comparable(rows).items():
        cells = [mean([r for r in own if r["shots"] == s], "covered") for s in [*shots_list]]
        body.append([data, *("" if np.isnan(v) else f"{100 * v:.0f}" for v in [*cells, mean(own, "covered")])])
    head = ["data", *map(str, shots_list), "all"]
    return "Draws, %, whose accuracy lies in the report's 95 % interval, by labels per class", head, body


def show(console: Console, pages: list[Page]) -> None:
    for title, head, body in pages:
        table = Table(*head, title=title)
        for row in body:
            table.add_row(*row)
        console.print(table)


def write_page(path: Path, pages: list[Page], command: str, title: str, notes: tuple[str, ...] = ()) -> None:
    rule = "**Settings chosen by each method itself, from the few labels alone.**"
    lines = [f"# {title}", "", rule, "", f"Written by `{command}`.", ""]
    lines += [line for note in notes for line in (note, "")]
    for title, head, body in pages:
        lines += [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(row) + " |" for row in body] + [""]
    path.write_text("\n".join(lines))


def collect(kept: Path | None, data: Path, names: list[str], measure: Callable[[Task], list[Row]]) -> list[Row]:
    """Rows of all tasks; those that the JSON file `kept` has already are not measured again."""
    rows: list[Row] = json.loads(kept.read_text()) if kept and kept.exists() else []
    for name in names:
        if name not in {r["task"] for r in rows}:
            rows += measure(load_task(data, name))
        if kept:
            kept.write_text(json.dumps(rows))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--shots", type=int, nargs="+", default=[2, 8, 32, 128])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = collect(
        args.rows, args.data, args.tasks,
        lambda task: run_task(task, MANY_SHOTS if task.name == "living" else args.shots, args.seeds),
    )  # fmt: skip
    pages = [
        summary_table(rows),
        accuracy_table(rows, sorted({r["shots"] for r in rows})),
        coverage_table(rows),
        calibration_table(rows),
        shortfall_table(rows),
        curve_table(rows),
    ]
    show(Console(width=150), pages)
    if args.out:
        some = "" if args.tasks == list(TASKS) else f" --tasks {' '.join(args.tasks)}"
        command = f"python benchmarks/adapt_cells.py DATA --seeds {args.seeds}{some}"
        write_page(args.out, pages, command, "Adaptation without tuning, cell by cell")


if __name__ == "__main__":
    main()
