"""Where adapting helps and where not: each target of real data sets, next to the two things one could do instead.

    python benchmarks/when_it_helps.py [DATA_FOLDER] [--seeds 5] [--out docs/results/when.md]

Digit collages need no folder. With one, Waterbirds, Collages and CelebA embeddings are measured too (`real_tasks.py`
says which files). The alternatives are the source head as it is, and a linear probe on the target labels alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from real_tasks import Task, tasks

from pro2 import ProjectAndProbe
from pro2.lab.baselines import create_baseline
from pro2.lab.datasets.digits import make_digit_collages
from pro2.tables.shifts import Draw, domain_targets

SHOTS = (2, 8, 32)
TITLES = ("source head", "linear probe", "Pro2")


def digit_collages() -> Task:
    table = make_digit_collages()
    split = table.column("split")
    targets = {name: rows for name, rows in domain_targets(split).items() if name != "source"}
    return Task("digit collages", table.embeddings, table.column("y"), np.flatnonzero(split == "source"), targets)


def rows_of(task: Task, n_seeds: int) -> Iterator[tuple[str, np.ndarray]]:
    """One (target, accuracies (method, shots)) a target, in percent, mean over seeds; NaN where rows are too few."""
    X, y = task.X[task.source], task.y[task.source]
    models = [m.fit(X, y) for m in (create_baseline("source-only"), create_baseline("linear-probe"), ProjectAndProbe())]
    for target in task.targets:
        accuracy = np.full((len(models), len(SHOTS)), np.nan)
        for j, n in enumerate(SHOTS):
            draws = task.draws(target, n, n_seeds)
            for i, model in enumerate(models):
                scores = [_score(model, task, d) for d in draws]
                accuracy[i, j] = 100 * np.mean(scores) if scores else np.nan
        print(task.name, target, accuracy.round(1).tolist(), flush=True)
        yield target, accuracy


def _score(model: Any, task: Task, rows: Draw) -> float:
    return float(model.adapt(task.X[rows.few], task.y[rows.few]).score(task.X[rows.rest], task.y[rows.rest]))


def table(found: dict[str, dict[str, np.ndarray]]) -> list[str]:
    heads = [f"{title}, {n}" for n in SHOTS for title in TITLES]
    lines = ["| data | target | " + " | ".join(heads) + " |", "|---|---|" + "---:|" * len(heads)]
    for data, targets in found.items():
        for target, accuracy in targets.items():
            cells = []
            for j in range(len(SHOTS)):
                best = np.nanmax(accuracy[:, j]) if np.isfinite(accuracy[:, j]).any() else np.nan
                cells += [_cell(value, value >= best) for value in accuracy[:, j]]
            lines.append(f"| {data} | {target} | " + " | ".join(cells) + " |")
    return lines


def _cell(value: float, best: bool) -> str:
    text = "–" if np.isnan(value) else f"{value:.1f}"
    return f"**{text}**" if best else text


def summary(found: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """What the table says, counted."""
    cells = np.concatenate([a.T for targets in found.values() for a in targets.values()])
    cells = cells[np.isfinite(cells).all(axis=1)]
    source, probe, ours = cells.T
    short, gain = np.maximum(np.maximum(source, probe) - ours, 0.0), ours - source
    lines = [
        f"* Pro2 is at least as good as both alternatives in {int((short == 0).sum())} of {len(cells)} cells.",
        f"* Mean gain: {gain.mean():.1f} points over the source head and {(ours - probe).mean():.1f} over the probe.",
        f"* It is short of the better alternative by {short.mean():.1f} points on average, {short.max():.1f} at most.",
    ]
    for name, at in (("reaches 90 %", source >= 90), ("stays below 90 %", source < 90)):
        if at.any():
            lines.append(
                f"* Where the source head {name} ({at.sum()} cells), adapting adds {gain[at].mean():.1f} points."
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder with the real embeddings")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/results/when.md"))
    chosen = parser.parse_args()
    found = {"digit collages": dict(rows_of(digit_collages(), chosen.seeds))}
    for task in tasks(chosen.folder, ("hair",)) if chosen.folder else ():
        found[task.name] = dict(rows_of(task, chosen.seeds))
    intro = [
        "# Each target, next to the alternatives",
        "",
        f"Made by `python benchmarks/when_it_helps.py`. Accuracy in %, mean of {chosen.seeds} draws, at "
        f"{', '.join(map(str, SHOTS))} labels per class; best of three in bold. All settings are the defaults.",
        "",
    ]
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("\n".join([*intro, *summary(found), "", *table(found), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
