"""Figures of features and theory: heat maps, nullspace norms, bias and variance, bounds, three dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pro2.lab.report.figures import Titles, by_shots, panelled, panels, shots_axis, title_of
from pro2.lab.report.names import figure_text
from pro2.lab.report.selection import where
from pro2.lab.report.style import COLOURS, INK, look
from pro2.lab.report.tables import Table, values_of


def plot_heat_maps(table: Table, titles: Titles, columns: int | None = None) -> Any:
    """Accuracy for every feature count and number of shots: a column for each target, a row for each method.

    Colours span what the methods reach on a target; blue is its best.
    """
    targets, methods = values_of(table, "target"), values_of(table, "method")
    sizes = sorted(values_of(table, "n_features"))
    columns = columns or len(targets)
    figure, axes = panels(len(targets) * len(methods), (2.2, 0.2 * len(sizes) + 0.75), 0.1, columns=columns)
    for i, method in enumerate(methods):
        for j, target in enumerate(targets):
            here = where(table, target=target)
            span = [100 * pick(r["mean"] for r in here) for pick in (min, max)]
            shots = sorted(values_of(here, "shots"))
            grid = np.full((len(sizes), len(shots)), np.nan)
            for row in where(here, method=method):
                grid[sizes.index(row["n_features"]), shots.index(row["shots"])] = 100 * row["mean"]
            axis = axes[i * len(targets) + j]
            _heat(axis, grid, shots, sizes, *span)
            who = title_of(method, titles)
            axis.set_title(figure_text(target) if columns > 1 else f"{who}: {figure_text(target)}")
            if j % columns == 0:
                axis.set_ylabel(f"{who}\nnumber of features d" if columns > 1 else "features d")
    return figure


def _heat(axis: Any, grid: np.ndarray, shots: list[int], sizes: list[int], low: float, high: float) -> None:
    axis.imshow(grid, origin="lower", aspect="auto", cmap="RdYlBu", vmin=low, vmax=high)
    for i, j in np.argwhere(np.isfinite(grid)):
        near_end = abs((grid[i, j] - low) / max(high - low, 1e-9) - 0.5) > 0.38
        axis.text(
            j, i, f"{grid[i, j]:.0f}", ha="center", va="center", fontsize=6.5, color="white" if near_end else "black"
        )
    axis.grid(False)
    axis.set_xticks(range(len(shots)), shots)
    axis.set_yticks(range(len(sizes)), sizes)
    axis.set_xlabel("labels per class")


def _features_axis(axis: Any, values: Sequence[int]) -> None:
    """Feature counts over several powers of two are read on a logarithmic axis."""
    if max(values) > 32:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axis.set_xlabel("number of features d")


def plot_nullspace(table: Table, titles: Titles, columns: int | None = None) -> Any:
    """Nullspace norm against the number of features, one panel per method, one line per target."""
    targets = values_of(table, "target")

    def draw(axis: Any, rows: Table) -> None:
        for i, target in enumerate(targets):
            points = sorted((r["n_features"], r["nullspace_norm"]) for r in where(rows, target=target))
            axis.plot(*zip(*points), label=figure_text(target), **look(i))
        axis.set_ylim(-0.03, 1.03)
        _features_axis(axis, [r["n_features"] for r in table])

    return panelled(table, ["method"], titles, draw, "nullspace norm", columns, sharey=True)


def plot_bias_variance(table: Table, columns: int | None = None) -> Any:
    """Left: bias against nullspace norm, one line per target. Right: variance against shots, mean over targets."""
    figure, (left, right) = panels(2, (2.9, 2.4), legend=0.0, columns=columns)
    for i, target in enumerate(values_of(table, "target")):
        rows = {r["n_features"]: r for r in where(table, target=target)}
        points = sorted(
            (r["nullspace_norm"], 100 * r["bias"]) for r in rows.values() if r["nullspace_norm"] is not None
        )
        left.plot(*zip(*points), label=figure_text(target), **look(i))
    left.set_xlabel("nullspace norm")
    left.set_ylabel("bias: error at most labels (%)")
    left.legend()
    sizes, shots = sorted(values_of(table, "n_features")), sorted(values_of(table, "shots"))
    shown = [d for d in (1, 4, 10, 16, 20) if d in sizes] or sizes[:: max(1, len(sizes) // 4)]
    for i, d in enumerate(shown):
        means = [np.mean([r["variance"] for r in where(table, n_features=d, shots=s)]) for s in shots]
        right.plot(shots, 100 * np.array(means), label=f"d = {d}", **look(i))
    shots_axis(right, shots)
    right.set_ylabel("variance: error above that (%)")
    right.legend()
    return figure


def plot_bound(table: Table, titles: Titles, columns: int | None = None) -> Any:
    """Excess risk (solid) and the bound on it (dashed) against labels, a column per target, a row per method."""

    def draw(axis: Any, rows: Table) -> None:
        for i, d in enumerate(sorted(values_of(rows, "n_features"))):
            mine = by_shots(rows, n_features=d)
            shots = [r["shots"] for r in mine]
            axis.plot(shots, [max(r["excess_risk"], 1e-5) for r in mine], label=f"d = {d}", **look(i))
            axis.plot(shots, [r["bound"] for r in mine], linestyle="--", color=look(i)["color"], linewidth=1)
        axis.axhline(rows[0]["zero_risk"], color=INK, linewidth=0.8, linestyle=":")
        axis.set_yscale("log")
        shots_axis(axis, [r["shots"] for r in rows])

    columns = columns or len(values_of(table, "target"))
    label = "excess risk (nats)"
    figure = panelled(table, ["method", "target"], titles, draw, label, columns, legend=6, sharey=True)
    for axis in figure.axes[::columns]:
        axis.set_ylabel(label)
    return figure


def plot_picture(content: Mapping[str, Any], target: str, columns: int = 2) -> Any:
    """Three dimensions: source with its orthogonal decision boundaries, target with the mixture of a probe."""
    from matplotlib.figure import Figure

    lines = 2 // columns
    figure = Figure(figsize=(3.3 * columns, 3.4 * lines), layout="constrained")
    mixture = f"Probe: their mixture on target '{figure_text(target)}'"
    parts = [("source", content["boundaries"], COLOURS[2:5], "Project: orthogonal boundaries of source"),
             ("target", [content["mixture"]], COLOURS[5:6], mixture)]  # fmt: skip
    for i, (domain, planes, colours, title) in enumerate(parts):
        axis = figure.add_subplot(lines, columns, i + 1, projection="3d")
        X, y = np.array(content[domain]["X"]), np.array(content[domain]["y"])
        X = X - X.mean(axis=0)
        reach = 1.2 * float(np.quantile(np.abs(X), 0.98))
        for label, marker in ((0, "o"), (1, "^")):
            axis.scatter(
                *X[y == label].T, s=9, marker=marker, color=COLOURS[label], depthshade=False, label=f"class {label}"
            )
        for plane, colour in zip(planes, colours):
            _plane(axis, np.array(plane["normal"]), colour, reach)
        axis.set_title(title)
        axis.set(xticklabels=[], yticklabels=[], zticklabels=[])
        axis.set_box_aspect((1, 1, 1), zoom=1.1)
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach), zlim=(-reach, reach))
        axis.view_init(elev=18, azim=-55)
    axis.legend(loc="upper right")
    return figure


def _plane(axis: Any, normal: np.ndarray, colour: str, reach: float) -> None:
    """A square piece of the plane through the middle of the cloud, in the plane's own two directions."""
    normal = normal / np.linalg.norm(normal)
    first = np.linalg.svd(normal[None])[2][1]
    second = np.cross(normal, first)
    u, v = np.meshgrid([-reach, reach], [-reach, reach])
    corners = u[..., None] * first + v[..., None] * second
    axis.plot_surface(
        *np.moveaxis(np.clip(corners, -reach, reach), -1, 0),
        color=colour,
        alpha=0.2,
        shade=False,
        edgecolor=colour,
        linewidth=1,
    )
