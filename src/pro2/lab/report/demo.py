"""The figure of `pro2 demo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pro2.lab.report.style import COLOURS, MARKERS, figure_style


def mean_and_error(rows: Sequence[dict[str, Any]], **where: Any) -> tuple[float, float, int]:
    """Mean accuracy in percent, its standard error over rows, and how many rows match."""
    values = 100 * np.array([r["accuracy"] for r in rows if all(r[k] == v for k, v in where.items())])
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values)


def plot_demo(collages: Sequence[dict[str, Any]], shog: Sequence[dict[str, Any]], path: Path) -> Path:
    """Accuracy against shots for each collage target, then nullspace norm and accuracy of the shifted Gaussians."""
    with figure_style("demo"):
        return _plot(collages, shog, path)


def _plot(collages: Sequence[dict[str, Any]], shog: Sequence[dict[str, Any]], path: Path) -> Path:
    from matplotlib.figure import Figure

    targets = sorted({r["target"] for r in collages})
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    top, bottom = np.asarray(figure.subfigures(2, 1)).tolist()
    for axis, target in zip(top.subplots(1, len(targets), sharey=True), targets):
        _plot_target(axis, [r for r in collages if r["target"] == target], target)
    top.suptitle("Digit collages: only one of four blocks keeps its meaning in the target", fontsize=11)
    top.axes[0].set_ylabel("target accuracy (%)")
    top.axes[0].legend(loc="lower right")
    _plot_shog(bottom, shog)
    figure.savefig(path, dpi=150)
    return path


def _plot_target(axis: Any, rows: Sequence[dict[str, Any]], target: str) -> None:
    shots = sorted({r["n_shots"] for r in rows})
    for i, method in enumerate(dict.fromkeys(r["method"] for r in rows)):
        points = [mean_and_error(rows, method=method, n_shots=n) for n in shots]
        mean, error = [p[0] for p in points], [p[1] for p in points]
        axis.errorbar(shots, mean, error, color=COLOURS[i], marker=MARKERS[i], capsize=2, label=method)
    axis.set_xscale("log", base=2)
    axis.set_xticks(shots, [str(n) for n in shots])
    axis.set_xlabel("labels per class")
    axis.set_title(f"only {target} agrees")


def _plot_shog(figure: Any, rows: Sequence[dict[str, Any]]) -> None:
    targets = list(dict.fromkeys(r["target"] for r in rows))
    axes = figure.subplots(1, 1 + len(targets))
    for i, target in enumerate(targets):
        own = [r for r in rows if r["target"] == target]
        norms = {r["n_features"]: r["nullspace_norm"] for r in own}
        axes[0].plot(list(norms), list(norms.values()), color=COLOURS[i], marker=MARKERS[i], label=target)
        for k, n in enumerate(sorted({r["n_shots"] for r in own})):
            line = [(r["n_features"], 100 * r["accuracy"]) for r in own if r["n_shots"] == n]
            axes[1 + i].plot(*zip(*line), color=str(0.75 - 0.25 * k), marker=MARKERS[k], label=f"{n} per class")
        axes[1 + i].set_title(f"{target} target: accuracy (%)")
        axes[1 + i].set_ylim(45, 100)
    axes[0].set_title("share of the best head outside\nthe first d features")
    for axis in axes:
        axis.set_xlabel("features d")
        axes[0].legend()
    axes[1].legend(loc="lower left")
    figure.suptitle("Shifted Gaussians: the milder the shift, the fewer features", fontsize=11)
