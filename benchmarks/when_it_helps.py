"""Where adapting helps and where not: each target of real data sets, next to what one could do instead.

    python benchmarks/when_it_helps.py [DATA_FOLDER] [--seeds 5] [--out docs/results/when.md]

Digit collages need no folder. With one, Waterbirds, Collages and CelebA embeddings are measured too (`tasks.py`
lists the files). The alternatives are the source head as it is, and, all by leave-one-out, a linear probe on the
target labels alone, the paper's Pro2 and head interpolation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tasks import Task, digit_collages, shared

from pro2 import ProjectAndProbe
from pro2.lab.baselines import create_baseline
from pro2.tables.draws import Draw

SHOTS = (2, 8, 32)
TITLES = ("source head", "linear probe", "paper's Pro2", "head interpolation", "Pro2 averaged (default)")

_THE = ("the source head", "the linear probe", "the paper's Pro2", "head interpolation")


def rows_of(task: Task, n_seeds: int) -> Iterator[tuple[str, np.ndarray]]:
    """One (target, accuracies (method, shots)) a target, in percent, mean over seeds; NaN where rows are too few."""
    X, y = task.X[task.source], task.y[task.source]
    rivals = [create_baseline(name) for name in ("source-only", "linear-probe")]
    rivals += [ProjectAndProbe(n_features="loo", l2="loo", scale="standard"), create_baseline("interpolation")]
    models = [m.fit(X, y) for m in (*rivals, ProjectAndProbe())]
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
    """A line for each target and number of labels that has rows enough."""
    lines = [
        "| data | target | labels per class | " + " | ".join(TITLES) + " |",
        "|---|---|---:|" + "---:|" * len(TITLES),
    ]
    for data, targets in found.items():
        for target, accuracy in targets.items():
            for n, values in zip(SHOTS, accuracy.T):
                if np.isfinite(values).all():
                    cells = [f"**{v:.1f}**" if v == values.max() else f"{v:.1f}" for v in values]
                    lines.append(f"| {data} | {target} | {n} | " + " | ".join(cells) + " |")
    return lines


def summary(found: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """Counts over the cells of the table."""
    cells = np.concatenate([a.T for targets in found.values() for a in targets.values()])
    cells = cells[np.isfinite(cells).all(axis=1)]
    source, ours, others = cells[:, 0], cells[:, -1], cells[:, :-1]
    short, gain = np.maximum(others.max(axis=1) - ours, 0.0), ours - source
    gains = [f"{(ours - rival).mean():.1f} over {name}" for name, rival in zip(_THE, others.T)]
    lines = [
        f"* Averaged Pro2 is at least as good as every alternative in {int((short == 0).sum())} of {len(cells)} cells.",
        f"* Mean gain in points: {', '.join(gains)}.",
        f"* It falls short of the best of them by {short.mean():.1f} points on average, {short.max():.1f} at most.",
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
    for task in shared(chosen.folder, ("waterbirds", "collages", "celeba-hair")) if chosen.folder else ():
        found[task.name] = dict(rows_of(task, chosen.seeds))
    intro = [
        "# Each target, next to the alternatives",
        "",
        f"Made by `python benchmarks/when_it_helps.py`. Accuracy in %, mean of {chosen.seeds} draws, at "
        f"{', '.join(map(str, SHOTS))} labels per class; the best in bold. "
        "Every method chooses its settings from these labels.",
        "",
    ]
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("\n".join([*intro, *summary(found), "", *table(found), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
