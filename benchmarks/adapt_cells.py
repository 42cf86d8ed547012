"""Accuracy and calibration of averaged Pro2 on the shared cells, and how far its report is right.

    python benchmarks/adapt_cells.py DATA [--seeds 10] [--tasks NAME ...] [--rows JSON] [--out MD]

DATA holds waterbirds.npz, collages.npz, celeba10k.npz and living_tiny.npz. A cell is a target and a number of labels
per class; supports are balanced draws, accuracy is on all other rows of the target. `--rows` keeps every draw as JSON
and goes on from there; `--out` writes the tables as a Markdown page, and a figure with its name.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import numpy as np
from harness import Page, Row, mean_and_error
from rivals import ALL_TITLES, create_method
from tasks import SHARED, label_counts, shared
from unseen_tasks import DEFAULT, TITLES_OF_DATA, accuracy_page, shortfall_page

COLOURS = ("#0072B2", "#7F7F7F", "#56B4E9", "#009E73", "#E69F00", "#CC79A7")  # Okabe & Ito (2008), and grey


def of_report(adapted: Any) -> Row:
    """What a report claims: accuracy, its interval, and accuracy at four times the labels."""
    report = getattr(adapted, "report_", None)
    if report is None or np.isnan(report.accuracy):
        return {}
    low, high = report.accuracy_interval
    row = {"claim": 100 * report.accuracy, "low": 100 * low, "high": 100 * high}
    curve = report.learning_curve
    if curve is not None:
        row |= {"ahead": 100 * curve.accuracy_at(4 * curve.n_per_class[-1]), "ahead_error": 100 * curve.spread}
    return row


def measure(asked: argparse.Namespace) -> list[Row]:
    def measured(known: set[tuple[str, str]]) -> Iterator[tuple[str, list[Row]]]:
        for task in shared(asked.data, tuple(asked.tasks)):
            models = {name: create_method(name) for name in DEFAULT if (task.name, name) not in known}
            for model in models.values():
                model.fit(task.X[task.source], task.y[task.source])
            yield task.name, list(harness.measure_methods(task, models, label_counts(task), asked.seeds, of_report))

    return harness.keep_rows(asked.rows, measured)


def by_labels_page(rows: list[Row]) -> Page:
    """Mean accuracy by number of labels; targets with other numbers of labels have lines of their own."""
    counts = sorted({r["shots"] for r in rows})
    body = []
    for data, own in comparable(rows).items():
        for method in DEFAULT:
            values = [mean_and_error([r for r in own if r["shots"] == n], method)[0] for n in counts]
            values.append(mean_and_error(own, method)[0])
            body.append([data, ALL_TITLES[method], *("" if np.isnan(v) else f"{v:.1f}" for v in values)])
    return "Accuracy, %, by labels per class", ["data", "classifier", *map(str, counts), "mean over cells"], body


def comparable(rows: list[Row]) -> dict[str, list[Row]]:
    """Data sets whose targets all have the same numbers of labels: else a mean moves because a target came or went."""
    groups: dict[str, list[Row]] = {}
    for data in dict.fromkeys(map(harness.family, rows)):
        own = [r for r in rows if harness.family(r) == data]
        counts: dict[tuple[str, str], set[int]] = {}
        for r in own:
            counts.setdefault((r["task"], r["target"]), set()).add(r["shots"])
        kinds = list(dict.fromkeys(tuple(sorted(found)) for found in counts.values()))
        for kind in kinds:
            n = sum(found == set(kind) for found in counts.values())
            name = data if len(kinds) == 1 else f"{data}, {n} targets with {', '.join(map(str, kind))} labels"
            groups[name] = [r for r in own if counts[r["task"], r["target"]] == set(kind)]
    return groups


def coverage_page(rows: list[Row]) -> Page:
    """Of the report's 95 % interval, and how far its accuracy is from the truth."""
    judged = [r | {"covered": 100.0 * (r["low"] <= r["accuracy"] <= r["high"])} for r in rows if "claim" in r]
    counts = sorted({r["shots"] for r in judged})
    body = []
    for data, own in comparable(judged).items():
        values = [mean_and_error([r for r in own if r["shots"] == n], "pro2", "covered")[0] for n in counts]
        claim, truth = (mean_and_error(own, "pro2", key)[0] for key in ("claim", "accuracy"))
        width = float(np.mean([r["high"] - r["low"] for r in own]))
        body.append(
            [data, *("" if np.isnan(v) else f"{v:.0f}" for v in values), f"{width:.0f}", f"{claim:.1f}", f"{truth:.1f}"]
        )
    head = ["data", *map(str, counts), "mean width, points", "accuracy claimed, %", "accuracy, %"]
    return "Draws, %, whose accuracy lies in the report's 95 % interval, by labels per class", head, body


def curve_page(rows: list[Row]) -> Page:
    """What the learning curve of the report predicts for four times the labels, and what was measured there."""
    body = []
    for shots in sorted({r["shots"] for r in rows}):
        later = [r for r in rows if r["shots"] == 4 * shots]
        ahead = {cell: mean_and_error([r for r in later if (r["task"], r["target"]) == cell], "pro2")[0]
                 for cell in dict.fromkeys((r["task"], r["target"]) for r in later)}  # fmt: skip
        known = [r for r in rows if r["shots"] == shots and "ahead" in r and (r["task"], r["target"]) in ahead]
        if known:
            truth = [ahead[r["task"], r["target"]] for r in known]
            numbers = [np.mean([r[key] for r in known]) for key in ("accuracy", "ahead")]
            numbers += [np.mean(truth), np.mean([abs(r["ahead"] - t) for r, t in zip(known, truth)])]
            numbers.append(np.mean([r["ahead_error"] for r in known]))
            body.append([str(shots), str(4 * shots), *(f"{v:.1f}" for v in numbers)])
    head = ["labels per class", "asked about", "accuracy now", "predicted", "measured", "mean error of a draw",
            "stated error of a draw"]  # fmt: skip
    return "Learning curve: predicted and measured accuracy at four times the labels", head, body


def draw_figure(rows: list[Row], path: Path) -> None:
    """Accuracy against labels per class with standard errors over draws, a panel for each data set.

    A data set whose targets have different numbers of labels comes in parts: the one with most of them is shown.
    """
    from matplotlib.figure import Figure

    panels: dict[str, list[Row]] = {}
    for own in comparable(rows).values():
        shown = panels.setdefault(harness.family(own[0]), own)
        if len({r["shots"] for r in own}) > len({r["shots"] for r in shown}):
            panels[harness.family(own[0])] = own
    figure = Figure(figsize=(2.9 * len(panels), 3.3), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (data, own) in zip(axes, panels.items()):
        shots = sorted({r["shots"] for r in own})
        for colour, method in zip(COLOURS, DEFAULT):
            points = [mean_and_error([r for r in own if r["shots"] == n], method) for n in shots]
            means, errors = zip(*points)
            axis.errorbar(shots, means, errors, label=ALL_TITLES[method], color=colour, marker="o", ms=4, capsize=2,
                          zorder=3 if method == "pro2" else 2)  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_xticks(shots, [str(n) for n in shots], minor=False)
        axis.minorticks_off()
        axis.set(title=TITLES_OF_DATA.get(data, data), xlabel="labels per class")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(DEFAULT), frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", default=list(SHARED))
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = measure(asked)
    pages = [
        accuracy_page(rows, list(DEFAULT)),
        by_labels_page(rows),
        harness.summary_page(harness.summary(rows, DEFAULT, ALL_TITLES)),
        coverage_page(rows),
        shortfall_page(rows, "pro2"),
        curve_page(rows),
    ]
    harness.show(pages)
    if asked.out:
        tasks = "" if asked.tasks == list(SHARED) else f" --tasks {' '.join(asked.tasks)}"
        command = f"python benchmarks/adapt_cells.py DATA --seeds {asked.seeds}{tasks}"
        harness.write_page(asked.out, pages, command, "Adaptation without tuning, cell by cell")
        draw_figure(rows, asked.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
