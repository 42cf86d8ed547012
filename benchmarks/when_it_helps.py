"""Where adapting helps and where not: each target of real data sets, next to what one could do instead.

    python benchmarks/when_it_helps.py [DATA_FOLDER] [--seeds 5] [--out docs/results/when.md]

Digit collages need no folder. With one, Waterbirds, Collages and CelebA embeddings are measured too (`tasks.py`
lists the files). The alternatives are the source head as it is, and, all by leave-one-out, a linear probe on the
target labels alone, the paper's Pro2 and head interpolation.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from harness import measure_methods, tables
from tasks import digit_collages, shared

from pro2 import ProjectAndProbe
from pro2.lab.baselines import create_baseline

SHOTS = (2, 8, 32)
METHODS = {
    "source head": create_baseline("source-only"),
    "linear probe": create_baseline("linear-probe"),
    "paper's Pro2": ProjectAndProbe(n_features="loo", l2="loo", scale="standard"),
    "head interpolation": create_baseline("interpolation"),
    "Pro2 averaged (default)": ProjectAndProbe(),
}
_THE = ("the source head", "the linear probe", "the paper's Pro2", "head interpolation")

Cells = dict[tuple[str, str, int], np.ndarray]  # accuracy of each method, mean over draws, by task, target and labels


def measure(folder: Path | None, n_seeds: int) -> Cells:
    """Every cell with rows enough."""
    found: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    real = shared(folder, ("waterbirds", "collages", "celeba-hair")) if folder else ()
    for task in (digit_collages(), *real):
        models = {name: model.fit(task.X[task.source], task.y[task.source]) for name, model in METHODS.items()}
        for row in measure_methods(task, models, SHOTS, n_seeds):
            cell = found.setdefault((task.name, row["target"], row["shots"]), {})
            cell.setdefault(row["method"], []).append(row["accuracy"])
        print(task.name, flush=True)
    return {cell: np.array([np.mean(values[name]) for name in METHODS]) for cell, values in found.items()}


def summary(cells: np.ndarray) -> list[str]:
    """Counts over the cells of the table, (cells, methods)."""
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
            added = f"adapting adds {gain[at].mean():.1f} points"
            lines.append(f"* Where the source head {name} ({at.sum()} cells), {added}.")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder with the real embeddings")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/results/when.md"))
    chosen = parser.parse_args()
    cells, body = measure(chosen.folder, chosen.seeds), []
    for place, values in cells.items():
        body.append([*map(str, place), *(f"**{v:.1f}**" if v == values.max() else f"{v:.1f}" for v in values)])
    intro = (
        f"Made by `python benchmarks/when_it_helps.py`. Accuracy in %, mean of {chosen.seeds} draws, at "
        f"{', '.join(map(str, SHOTS))} labels per class; the best in bold. "
        "Every method chooses its settings from these labels."
    )
    lines = ["# Each target, next to the alternatives", "", intro, "", *summary(np.array(list(cells.values()))), ""]
    lines += [tables(["data", "target", "labels per class", *METHODS], body), ""]
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
