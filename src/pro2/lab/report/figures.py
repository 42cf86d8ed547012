"""The figures of a report, each drawn from one table. Nothing here fits or chooses anything."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pro2.lab.report.style import COLOURS, INK, looks
from pro2.lab.report.tables import Table

Titles = Mapping[str, str]

_PANEL = (2.25, 2.1)


def _panels(n: int, size: tuple[float, float] = _PANEL, legend: float = 0.35, **options: Any) -> tuple[Any, list[Any]]:
    """A figure of `n` panels in rows of at most four, with room for a legend below."""
    from matplotlib.figure import Figure

    columns = min(n, 4) if n != 5 else 3
    lines = math.ceil(n / columns)
    figure = Figure(figsize=(size[0] * columns + 0.3, size[1] * lines + legend), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, **options).ravel()
    for spare in axes[n:]:
        spare.set_visible(False)
    return figure, list(axes[:n])


def _values(table: Table, name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in table))


def _shots_axis(axis: Any, shots: Iterable[int]) -> None:
    ticks = sorted(set(shots))
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks if len(ticks) <= 6 else ticks[::2])
    axis.minorticks_off()
    axis.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axis.set_xlabel("labels per class")


def _log_axis(axis: Any, values: Sequence[int]) -> None:
    """Feature counts over several powers of two are read on a logarithmic axis."""
    if max(values) > 32:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axis.set_xlabel("number of features d")


def _legend(figure: Any, axis: Any, columns: int = 4) -> None:
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def plot_accuracy(table: Table, titles: Titles, data: str) -> Any:
    """Accuracy against shots, one panel a target, with standard errors over seeds."""
    mine = [row for row in table if row["data"] == data]
    targets = _values(mine, "target")
    style = looks(_values(mine, "method"))
    figure, axes = _panels(len(targets))
    for axis, target in zip(axes, targets):
        for method, look in style.items():
            rows = sorted(
                (r for r in mine if r["target"] == target and r["method"] == method), key=lambda r: r["shots"]
            )
            if rows:
                _error_line(axis, rows, titles.get(method, method), look)
        axis.set_title(target)
        _shots_axis(axis, [r["shots"] for r in mine if r["target"] == target])
    axes[0].set_ylabel("test accuracy (%)")
    _legend(figure, axes[0])
    return figure


def _error_line(axis: Any, rows: Table, label: str, look: dict[str, Any]) -> None:
    mean = [100 * r["mean"] for r in rows]
    error = [100 * (r["standard_error"] or 0.0) for r in rows]
    axis.errorbar([r["shots"] for r in rows], mean, error, label=label, capsize=2, elinewidth=1, **look)


def plot_overall(table: Table, titles: Titles) -> Any:
    """Mean over targets against shots, one panel a data set."""
    sets = _values(table, "data")
    style = looks(_values(table, "method"))
    figure, axes = _panels(len(sets))
    for axis, data in zip(axes, sets):
        for method, look in style.items():
            rows = sorted((r for r in table if r["data"] == data and r["method"] == method), key=lambda r: r["shots"])
            if rows:
                _error_line(axis, rows, titles.get(method, method), look)
        axis.set_title(data)
        _shots_axis(axis, [r["shots"] for r in table if r["data"] == data])
    axes[0].set_ylabel("mean over targets (%)")
    _legend(figure, axes[0])
    return figure


def plot_ranking(table: Table, titles: Titles) -> Any:
    """Many methods at once: mean over targets, one dot for each number of shots, best method on top."""
    sets = _values(table, "data")
    shots = sorted(_values(table, "shots"))
    score = {m: float(np.mean([r["mean"] for r in table if r["method"] == m])) for m in _values(table, "method")}
    order = sorted(score, key=score.__getitem__)
    figure, axes = _panels(len(sets), (max(2.3, 4.8 / len(sets)), 0.19 * len(order) + 0.9), sharey=True)
    for axis, data in zip(axes, sets):
        for i, n in enumerate(shots):
            rows = {r["method"]: r for r in table if r["data"] == data and r["shots"] == n}
            at = [j for j, m in enumerate(order) if m in rows]
            means = [100 * rows[order[j]]["mean"] for j in at]
            axis.scatter(means, at, s=16, color=COLOURS[i % len(COLOURS)], label=f"{n} labels", zorder=3)
        axis.set_title(data)
        axis.set_xlabel("accuracy (%)")
    axes[0].set_yticks(range(len(order)), [titles.get(m, m) for m in order])
    _legend(figure, axes[0])
    return figure


def plot_differences(table: Table, titles: Titles, data: str) -> Any:
    """Paired differences to the baseline with their confidence intervals, one panel a target."""
    mine = [row for row in table if row["data"] == data]
    targets, methods = _values(mine, "target"), _values(mine, "method")
    baseline = mine[0]["baseline"]
    style = looks([*methods, baseline])
    figure, axes = _panels(len(targets))
    for axis, target in zip(axes, targets):
        axis.axhline(0, color=INK, linewidth=0.8)
        for i, method in enumerate(methods):
            rows = sorted(
                (r for r in mine if r["target"] == target and r["method"] == method), key=lambda r: r["shots"]
            )
            # a little apart, so that intervals of neighbours can be told
            at = [r["shots"] * 2 ** (0.22 * (i - (len(methods) - 1) / 2)) for r in rows]
            middle = np.array([100 * r["difference"] for r in rows])
            half = [100 * ((r["high"] - r["low"]) / 2 if r["high"] is not None else 0.0) for r in rows]
            look = {k: v for k, v in style[method].items() if k != "linestyle"}
            axis.errorbar(at, middle, half, label=titles.get(method, method), linestyle="none", capsize=2, **look)
        axis.set_title(target)
        _shots_axis(axis, [r["shots"] for r in mine if r["target"] == target])
    who = f"{titles.get(methods[0], methods[0])}: " if len(methods) == 1 else ""
    axes[0].set_ylabel(f"{who}points above\n{titles.get(baseline, baseline)}")
    _legend(figure, axes[0])
    return figure


def plot_heat_map(table: Table, data: str) -> Any:
    """Accuracy for every feature count and number of shots, one panel a target; blue is the panel's best."""
    mine = [row for row in table if row["data"] == data]
    targets = _values(mine, "target")
    sizes = sorted(_values(mine, "n_features"))
    figure, axes = _panels(len(targets), (2.2, 0.2 * len(sizes) + 0.75), legend=0.1)
    for axis, target in zip(axes, targets):
        shots = sorted({r["shots"] for r in mine if r["target"] == target})
        grid = np.full((len(sizes), len(shots)), np.nan)
        for row in mine:
            if row["target"] == target:
                grid[sizes.index(row["n_features"]), shots.index(row["shots"])] = 100 * row["mean"]
        _heat(axis, grid, shots, sizes)
        axis.set_title(target)
    axes[0].set_ylabel("number of features d")
    return figure


def _heat(axis: Any, grid: np.ndarray, shots: list[int], sizes: list[int]) -> None:
    low, high = float(np.nanmin(grid)), float(np.nanmax(grid))
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


def plot_nullspace(table: Table, titles: Titles, data: str) -> Any:
    """Nullspace norm against the number of features, one panel a method, one line a target."""
    mine = [row for row in table if row["data"] == data]
    methods, targets = _values(mine, "method"), _values(mine, "target")
    figure, axes = _panels(len(methods), sharey=True)
    for axis, method in zip(axes, methods):
        for i, target in enumerate(targets):
            rows = sorted(
                (r for r in mine if r["method"] == method and r["target"] == target), key=lambda r: r["n_features"]
            )
            line = dict(zip(("color", "marker"), (COLOURS[i % len(COLOURS)], "osD^vPX*"[i % 8])))
            axis.plot([r["n_features"] for r in rows], [r["nullspace_norm"] for r in rows], label=target, **line)
        axis.set_title(titles.get(method, method))
        axis.set_ylim(-0.03, 1.03)
        _log_axis(axis, [r["n_features"] for r in mine])
    axes[0].set_ylabel("nullspace norm")
    _legend(figure, axes[0])
    return figure


def plot_bias_variance(table: Table, data: str, method: str) -> Any:
    """Left: bias against nullspace norm, one line a target. Right: variance against shots, mean over targets."""
    mine = [row for row in table if row["data"] == data and row["method"] == method]
    figure, (left, right) = _panels(2, (2.9, 2.4), legend=0.0)
    for i, target in enumerate(_values(mine, "target")):
        rows = {r["n_features"]: r for r in mine if r["target"] == target}
        points = sorted(
            (r["nullspace_norm"], 100 * r["bias"]) for r in rows.values() if r["nullspace_norm"] is not None
        )
        left.plot(*zip(*points), label=target, color=COLOURS[i % len(COLOURS)], marker="osD^vPX*"[i % 8])
    left.set_xlabel("nullspace norm")
    left.set_ylabel("bias: error at most labels (%)")
    left.legend()
    sizes = sorted(_values(mine, "n_features"))
    shown = [d for d in (1, 4, 10, 16, 20) if d in sizes] or sizes[:: max(1, len(sizes) // 4)]
    for i, d in enumerate(shown):
        shots = sorted({r["shots"] for r in mine})
        means = [
            100 * np.mean([r["variance"] for r in mine if r["n_features"] == d and r["shots"] == s]) for s in shots
        ]
        right.plot(shots, means, label=f"d = {d}", color=COLOURS[i % len(COLOURS)], marker="osD^vPX*"[i % 8])
    _shots_axis(right, [r["shots"] for r in mine])
    right.set_ylabel("variance: error above that (%)")
    right.legend()
    return figure


def plot_picture(content: Mapping[str, Any], target: str) -> Any:
    """Three dimensions: source with its orthogonal decision boundaries, target with the mixture of a probe."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 3.4), layout="constrained")
    parts = [("source", content["boundaries"], COLOURS[2:5], "Project: orthogonal boundaries of source"),
             ("target", [content["mixture"]], COLOURS[5:6], f"Probe: their mixture on target '{target}'")]  # fmt: skip
    for i, (domain, planes, colours, title) in enumerate(parts):
        axis = figure.add_subplot(1, 2, i + 1, projection="3d")
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
