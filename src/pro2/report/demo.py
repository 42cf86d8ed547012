"""The figure of `pro2 demo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Okabe & Ito (2008): distinguishable with every kind of colour vision
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
MARKERS = ("o", "s", "^", "D")


def mean_and_error(rows: Sequence[dict[str, Any]], **where: Any) -> tuple[float, float, int]:
    """Mean accuracy in percent, its standard error over rows, and how many rows match."""
    values = 100 * np.array([r["accuracy"] for r in rows if all(r[k] == v for k, v in where.items())])
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values)


def plot_demo(collages: Sequence[dict[str, Any]], shog: Sequence[dict[str, Any]], path: Path) -> Path:
    """Accuracy against shots for each collage target, then nullspace norm and accuracy of the shifted Gaussians."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("The figure needs matplotlib: pip install 'pro2[report]'.") from error
    targets = sorted({r["target"] for r in collages})
    figure = Figure(figsize=(12, 6), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    for axis, target in zip(top.subplots(1, len(targets), sharey=True), targets):
        _plot_target(axis, [r for r in collages if r["target"] == target], target)
    top.suptitle("Digit collages: only one of four blocks keeps its meaning in the target", fontsize=11)
    top.axes[0].set_ylabel("target accuracy (%)")
    top.axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    _plot_shog(bottom, shog)
    figure.savefig(path, dpi=150)
    return path


def _plot_target(axis: Any, rows: Sequence[dict[str, Any]], target: str) -> None:
    shots = sorted({r["n_shots"] for r in rows})
    for i, method in enumerate(dict.fromkeys(r["method"] for r in rows)):
        points = [mean_and_error(rows, method=method, n_shots=n) for n in shots]
        mean, error = [p[0] for p in points], [p[1] for p in points]
        axis.errorbar(shots, mean, error, color=COLOURS[i], marker=MARKERS[i], ms=4, capsize=2, label=method)
    axis.set_xscale("log", base=2)
    axis.set_xticks(shots, [str(n) for n in shots])
    axis.set_xlabel("labels per class")
    axis.set_title(f"only {target} agrees", fontsize=9)
    axis.grid(alpha=0.3)


def _plot_shog(figure: Any, rows: Sequence[dict[str, Any]]) -> None:
    targets = list(dict.fromkeys(r["target"] for r in rows))
    axes = figure.subplots(1, 1 + len(targets))
    for i, target in enumerate(targets):
        own = [r for r in rows if r["target"] == target]
        norms = {r["n_features"]: r["nullspace_norm"] for r in own}
        axes[0].plot(list(norms), list(norms.values()), color=COLOURS[i], marker=MARKERS[i], ms=4, label=target)
        for k, n in enumerate(sorted({r["n_shots"] for r in own})):
            line = [(r["n_features"], 100 * r["accuracy"]) for r in own if r["n_shots"] == n]
            axes[1 + i].plot(*zip(*line), color=str(0.75 - 0.25 * k), marker=MARKERS[k], ms=4, label=f"{n} a class")
        axes[1 + i].set_title(f"{target} target: accuracy (%)", fontsize=9)
        axes[1 + i].set_ylim(45, 100)
    axes[0].set_title("share of the best head outside\nthe first d features", fontsize=9)
    for axis in axes:
        axis.set_xlabel("features d")
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False, fontsize=8)
    axes[1].legend(frameon=False, fontsize=8, loc="lower left")
    figure.suptitle("Shifted Gaussians: the milder the shift, the fewer features", fontsize=11)
