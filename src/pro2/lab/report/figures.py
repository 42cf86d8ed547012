"""Every figure of a report, each drawn from one table: colour-blind-safe, legible at column width, on light and dark.

Every `plot_` function takes `columns`, the number of panels in a row: one of them fits on a narrow screen.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from pro2.atomic import atomic_write
from pro2.lab.report import tables
from pro2.lab.report.tables import Results, Rules, explain

# Okabe & Ito (2008), darkest first; yellow is left out because it vanishes on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#6A4C93", "#7A7A7A")
MARKERS = "osD^vPX*"
INK, GRID = "#1b1b1f", "#d0d0d7"  # the page replaces these two by the colours of its theme
_FIXED = {"pro2": 0, "linear-probe": 1, "random": 2, "teney": 3, "averaged": 4}  # the same look in every figure
_STYLE: Any = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 8, "axes.titlesize": 8.5,
    "axes.labelsize": 8, "xtick.labelsize": 7.5, "ytick.labelsize": 7.5, "legend.fontsize": 7.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
    "grid.color": GRID, "grid.linewidth": 0.6, "lines.linewidth": 1.5, "lines.markersize": 4, "legend.frameon": False,
    "figure.dpi": 110, "savefig.dpi": 200, "svg.fonttype": "none", "figure.constrained_layout.use": True,
}  # fmt: skip
_PANEL = (2.25, 2.1)
_LEGEND_LINE, _LETTER = 0.17, 0.062  # inches
_LONGEST = 60  # letters of a name in a figure or a file name
_MOST_LINES = 8  # methods: with more than colours, lines look alike, and a ranking is drawn instead
_MOST_MAPS = 3  # methods whose heat maps are in one figure
Titles = Mapping[str, str]
Draw = Callable[[Any, pd.DataFrame], None]


def plain(value: Any) -> str:
    """Text without control characters, which could hide or turn round what follows."""
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", " ", str(value))
    return text.encode("utf-8", "replace").decode("utf-8")


def slug(name: Any) -> str:
    """Part of a file name: letters, digits, dots and dashes; a name that had to be changed ends in a digest."""
    text = str(name)
    kept = re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.")[:_LONGEST]
    if kept and kept == text:
        return kept
    return f"{kept}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}".strip("-")


def figure_text(value: Any, titles: Titles = MappingProxyType({})) -> str:
    """Text of a figure, the title of a method that has one: short, and no formula."""
    text = plain(titles.get(value, value))
    return (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…").replace("$", r"\$")


@contextmanager
def figure_style(name: str) -> Iterator[None]:
    """Draw inside this block; `name` makes the ids inside an SVG its own, and the same each time."""
    import matplotlib

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # a name may hold letters that the font lacks: they are drawn as boxes, and the table has them right
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def look(i: int, line: str = "-") -> dict[str, Any]:
    """Colour, marker and line number `i`."""
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "linestyle": line}


def looks(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and line of each method; known ones always look the same, others whatever their order."""
    taken = {_FIXED[m] for m in methods if m in _FIXED}
    free = [i for i in range(len(COLOURS)) if i not in taken] or list(range(len(COLOURS)))
    others = sorted(m for m in methods if m not in _FIXED)
    found = {m: look(free[i % len(free)], "-" if i < len(free) else "--") for i, m in enumerate(others)}
    return {m: found[m] if m in found else look(_FIXED[m]) for m in methods}


def panels(
    n: int, size: tuple[float, float] = _PANEL, legend: float = 0.35, columns: int | None = None, **options: Any
) -> tuple[Any, list[Any]]:
    """A figure of `n` panels, by default in rows of at most four, with room for a legend below."""
    from matplotlib.figure import Figure

    columns = columns or (min(n, 4) if n != 5 else 3)
    lines = math.ceil(n / columns)
    figure = Figure(figsize=(size[0] * columns + 0.3, size[1] * lines + legend), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, **options).ravel()
    for spare in axes[n:]:
        spare.set_visible(False)
    return figure, list(axes[:n])


def panelled(
    table: pd.DataFrame, names: list[str], titles: Titles, draw: Draw, label: str, columns: int | None, *,
    size: tuple[float, float] = _PANEL, legend: int = 4, **options: Any,
) -> Any:  # fmt: skip
    """A panel for each combination of values of some columns; `draw` fills one with its rows."""
    groups = list(table.groupby(names, sort=False))
    figure, axes = panels(len(groups), size, columns=columns, **options)
    for axis, (values, rows) in zip(axes, groups):
        draw(axis, rows)
        axis.set_title(": ".join(figure_text(v, titles if k == "method" else {}) for k, v in zip(names, values)))
    axes[0].set_ylabel(label)
    add_legend(figure, axes[0], legend)
    return figure


def add_legend(figure: Any, axis: Any, columns: int) -> None:
    """Names below the panels, in at most so many columns; where fewer fit, there is room for their lines."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) < 2:
        return

    def width(n: int) -> float:  # in inches: a mark, a space and the longest name of each column
        parts = np.array_split(np.array([len(label) for label in labels]), n)
        return float(sum(0.5 + _LETTER * part.max() for part in parts))

    wanted = min(columns, len(labels))
    fitting = next((n for n in range(wanted, 1, -1) if width(n) <= figure.get_figwidth()), 1)
    more = math.ceil(len(labels) / fitting) - math.ceil(len(labels) / wanted)
    figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * more)
    figure.legend(handles, labels, loc="outside lower center", ncols=fitting)


def shots_axis(axis: Any, shots: pd.Series) -> None:
    """Labels per class on a logarithmic axis."""
    ticks = sorted(set(shots))
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks if len(ticks) <= 6 else ticks[::2])
    axis.minorticks_off()
    axis.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axis.set_xlabel("labels per class")


def plot_lines(
    table: pd.DataFrame, titles: Titles, panel: str, line: str, label: str = "test accuracy (%)",
    columns: int | None = None,
) -> Any:  # fmt: skip
    """Accuracy against shots, with standard errors: a panel for each value of one column, a line for each of `line`."""
    styles = looks(list(table[line].unique()))

    def draw(axis: Any, rows: pd.DataFrame) -> None:
        for value, mine in rows.sort_values("shots").groupby(line, sort=False):
            error = 100 * mine["standard_error"].fillna(0.0)
            style = {"label": figure_text(value, titles), "capsize": 2, "elinewidth": 1, **styles[value]}
            axis.errorbar(mine["shots"], 100 * mine["mean"], error, **style)
        shots_axis(axis, rows["shots"])

    return panelled(table, [panel], titles, draw, label, columns)


def plot_ranking(table: pd.DataFrame, titles: Titles, columns: int | None = None) -> Any:
    """Many methods at once: mean over targets, one dot for each number of shots, best method on top."""
    order = list(table.groupby("method")["mean"].mean().sort_values(kind="stable").index)

    def draw(axis: Any, rows: pd.DataFrame) -> None:
        for i, (shots, mine) in enumerate(rows.groupby("shots")):
            at, colour = [order.index(method) for method in mine["method"]], COLOURS[i % len(COLOURS)]
            axis.scatter(100 * mine["mean"], at, s=16, color=colour, label=f"{shots} labels", zorder=3)
        axis.set_xlabel("accuracy (%)")
        axis.set_yticks(range(len(order)), [figure_text(m, titles) for m in order])

    width = 3.2 if columns == 1 else max(2.3, 4.8 / table["data"].nunique())
    size = (width, 0.19 * len(order) + 0.9)
    return panelled(table, ["data"], titles, draw, "", columns, size=size, sharey=True)


def plot_differences(table: pd.DataFrame, titles: Titles, columns: int | None = None) -> Any:
    """Paired differences to the baseline with their confidence intervals, one panel per target."""
    methods, baseline = list(table["method"].unique()), table["baseline"].iloc[0]
    styles = looks([*methods, baseline])

    def draw(axis: Any, rows: pd.DataFrame) -> None:
        axis.axhline(0, color=INK, linewidth=0.8)
        for i, method in enumerate(methods):
            mine = rows[rows["method"] == method].sort_values("shots")
            # a little apart, so that intervals of neighbours do not overlap
            at = mine["shots"].astype(float) * 2 ** (0.22 * (i - (len(methods) - 1) / 2))
            half = 50 * (mine["high"] - mine["low"]).fillna(0.0)
            style = {"label": figure_text(method, titles), "capsize": 2, **styles[method], "linestyle": "none"}
            axis.errorbar(at, 100 * mine["difference"], half, **style)
        shots_axis(axis, rows["shots"])

    name = figure_text(methods[0], titles) + ": " if len(methods) == 1 else ""
    label = f"{name}points above\n{figure_text(baseline, titles)}"
    return panelled(table, ["target"], titles, draw, label, columns)


def plot_heat_maps(table: pd.DataFrame, titles: Titles, columns: int | None = None) -> Any:
    """Accuracy for every feature count and number of shots: a column for each target, a row for each method.

    Colours span what the methods reach on a target; blue is its best.
    """
    targets, methods = list(table["target"].unique()), list(table["method"].unique())
    sizes = sorted(table["n_features"].unique())
    columns = columns or len(targets)
    figure, axes = panels(len(targets) * len(methods), (2.2, 0.2 * len(sizes) + 0.75), 0.1, columns=columns)
    for i, (axis, (method, target)) in enumerate(zip(axes, [(m, t) for m in methods for t in targets])):
        here = table[table["target"] == target]
        shots = sorted(here["shots"].unique())
        grid = here[here["method"] == method].pivot(index="n_features", columns="shots", values="mean")
        values = 100 * grid.reindex(index=sizes, columns=shots).to_numpy(dtype=float)
        _heat(axis, values, 100 * here["mean"].min(), 100 * here["mean"].max())
        axis.set_xticks(range(len(shots)), shots)
        axis.set_yticks(range(len(sizes)), sizes)
        axis.set_xlabel("labels per class")
        name = figure_text(method, titles)
        axis.set_title(figure_text(target) if columns > 1 else f"{name}: {figure_text(target)}")
        if i % columns == 0:
            axis.set_ylabel(f"{name}\nnumber of features d" if columns > 1 else "features d")
    return figure


def _heat(axis: Any, values: np.ndarray, low: float, high: float) -> None:
    axis.imshow(values, origin="lower", aspect="auto", cmap="RdYlBu", vmin=low, vmax=high)
    for i, j in np.argwhere(np.isfinite(values)):
        near_end = abs((values[i, j] - low) / max(high - low, 1e-9) - 0.5) > 0.38
        colour = "white" if near_end else "black"
        axis.text(j, i, f"{values[i, j]:.0f}", ha="center", va="center", fontsize=6.5, color=colour)
    axis.grid(False)


def plot_nullspace(table: pd.DataFrame, titles: Titles, columns: int | None = None) -> Any:
    """Nullspace norm against the number of features, one panel per method, one line per target."""

    def draw(axis: Any, rows: pd.DataFrame) -> None:
        for i, (target, mine) in enumerate(rows.sort_values("n_features").groupby("target", sort=False)):
            axis.plot(mine["n_features"], mine["nullspace_norm"], label=figure_text(target), **look(i))
        axis.set_ylim(-0.03, 1.03)
        if table["n_features"].max() > 32:  # counts over several powers of two
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
        axis.set_xlabel("number of features d")

    return panelled(table, ["method"], titles, draw, "nullspace norm", columns, sharey=True)


def plot_bias_variance(table: pd.DataFrame, columns: int | None = None) -> Any:
    """Left: bias against nullspace norm, one line per target. Right: variance against shots, mean over targets."""
    figure, (left, right) = panels(2, (2.9, 2.4), legend=0.0, columns=columns)
    for i, (target, rows) in enumerate(table.groupby("target", sort=False)):
        points = rows.dropna(subset="nullspace_norm").drop_duplicates("n_features").sort_values("nullspace_norm")
        left.plot(points["nullspace_norm"], 100 * points["bias"], label=figure_text(target), **look(i))
    left.set(xlabel="nullspace norm", ylabel="bias: error at most labels (%)")
    left.legend()
    variance = 100 * table.pivot_table(index="shots", columns="n_features", values="variance")
    shown = [d for d in (1, 4, 10, 16, 20) if d in variance] or list(variance)[:: max(1, variance.shape[1] // 4)]
    for i, d in enumerate(shown):
        right.plot(variance.index, variance[d], label=f"d = {d}", **look(i))
    shots_axis(right, table["shots"])
    right.set_ylabel("variance: error above that (%)")
    right.legend()
    return figure


def plot_bound(table: pd.DataFrame, titles: Titles, columns: int | None = None) -> Any:
    """Excess risk (solid) and the bound on it (dashed) against labels, a column per target, a row per method."""

    def draw(axis: Any, rows: pd.DataFrame) -> None:
        for i, (d, mine) in enumerate(rows.sort_values("shots").groupby("n_features")):
            axis.plot(mine["shots"], mine["excess_risk"].clip(lower=1e-5), label=f"d = {d}", **look(i))
            axis.plot(mine["shots"], mine["bound"], linestyle="--", color=look(i)["color"], linewidth=1)
        axis.axhline(rows["zero_risk"].iloc[0], color=INK, linewidth=0.8, linestyle=":")
        axis.set_yscale("log")
        shots_axis(axis, rows["shots"])

    columns, label = columns or table["target"].nunique(), "excess risk (nats)"
    figure = panelled(table, ["method", "target"], titles, draw, label, columns, legend=6, sharey=True)
    for axis in figure.axes[::columns]:
        axis.set_ylabel(label)
    return figure


def plot_picture(table: pd.DataFrame, content: Mapping[str, Any], target: str, columns: int = 2) -> Any:
    """Three dimensions: source with its orthogonal decision boundaries, target with the mixture of a probe."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3 * columns, 3.4 * (2 // columns)), layout="constrained")
    mixture = f"Probe: their mixture on target '{figure_text(target)}'"
    parts = [("source", content["boundaries"], COLOURS[2:5], "Project: orthogonal boundaries of source"),
             ("target", [content["mixture"]], COLOURS[5:6], mixture)]  # fmt: skip
    for i, (domain, planes, colours, title) in enumerate(parts):
        axis = figure.add_subplot(2 // columns, columns, i + 1, projection="3d")
        X, y = np.array(content[domain]["X"]), np.array(content[domain]["y"])
        X = X - X.mean(axis=0)
        extent = 1.2 * float(np.quantile(np.abs(X), 0.98))
        for label, marker in ((0, "o"), (1, "^")):
            style = {"s": 9, "marker": marker, "color": COLOURS[label], "depthshade": False}
            axis.scatter(*X[y == label].T, label=f"class {label}", **style)
        for plane, colour in zip(planes, colours):
            # a square piece of the plane through the middle of the cloud, in the plane's own two directions
            normal = np.array(plane["normal"]) / np.linalg.norm(plane["normal"])
            first = np.linalg.svd(normal[None])[2][1]
            u, v = np.meshgrid([-extent, extent], [-extent, extent])
            corners = np.clip(u[..., None] * first + v[..., None] * np.cross(normal, first), -extent, extent)
            style = {"color": colour, "alpha": 0.2, "shade": False, "edgecolor": colour, "linewidth": 1}
            axis.plot_surface(*np.moveaxis(corners, -1, 0), **style)
        axis.set(title=title, xticklabels=[], yticklabels=[], zticklabels=[])
        axis.set(xlim=(-extent, extent), ylim=(-extent, extent), zlim=(-extent, extent))
        axis.set_box_aspect((1, 1, 1), zoom=1.1)
        axis.view_init(elev=18, azim=-55)
    axis.legend(loc="upper right")
    return figure


@dataclass(frozen=True)
class Drawn:
    """A finished figure: its file name, what it shows, the drawing and the rows behind it.

    `narrow` is the same drawing with its panels below each other, for a narrow screen; None where there is one panel.
    """

    name: str
    title: str
    caption: str
    figure: Any
    table: pd.DataFrame
    narrow: Any = None

    def save(self, path: Path, **options: Any) -> None:
        """The drawing in the format of the file's ending, atomically."""
        kind = path.suffix[1:]
        atomic_write(path, lambda file: self.figure.savefig(file, format=kind, **options), force=True)


def drawn(name: str, title: str, caption: str, table: pd.DataFrame, plot: Callable[..., Any], *values: Any) -> Drawn:
    """Draw a table with `plot` and its further arguments, once wide and, with several panels, once narrow."""

    def laid_out(figure: Any) -> Any:
        # the layout takes longer than the drawing, and a figure is written four times
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure

    with figure_style(slug(name)):
        figure = laid_out(plot(table, *values))
        narrow = laid_out(plot(table, *values, columns=1)) if len(figure.axes) > 1 else None
        return Drawn(slug(name), title, caption, figure, table, narrow)


Spec = tuple[Any, ...]  # name, title, caption, table, function that plots it and its further arguments


def draw_all(results: Results, rules: Rules, means: pd.DataFrame | None) -> Iterator[Drawn]:
    """Every figure that the measures of a sweep allow."""
    specs = [_pictures(results), _theory(results, rules)]
    if means is not None:
        specs[1:1] = [_accuracies(results, rules, means), _comparisons(results, rules)]
    yield from (drawn(*spec) for each in specs for spec in each)


def _pictures(results: Results) -> Iterator[Spec]:
    caption = "Planes through the middle of the points; the last one is the classifier that the probe mixes."
    for row in results.rows[results.rows["measure"] == "picture"].to_dict("records"):
        content, target = json.loads(row["detail"]), row["target"]
        planes = pd.DataFrame([*content["boundaries"], content["mixture"]]).astype({"normal": str})
        table = planes.rename_axis("plane").reset_index()
        yield f"picture-{target}", f"Project and Probe, target {target}", caption, table, plot_picture, content, target


def _accuracies(results: Results, rules: Rules, means: pd.DataFrame) -> Iterator[Spec]:
    titles, chosen, bars = results.titles, explain(rules, results.titles)[0], "bars are standard errors of the mean"
    if results.plan.compare == "data":
        for method, mine in means.groupby("method", sort=False):
            title, label = titles[method], f"{figure_text(titles[method])}:\ntest accuracy (%)"
            caption = f"{title}: one line per data set; {bars}. {chosen}"
            name = f"by-data-{method}"
            yield name, f"{title}: accuracy by data set", caption, mine, plot_lines, {}, "target", "data", label
    overall = tables.overall_table(means)
    targets = {} if overall.empty else dict(zip(overall["data"], overall["targets"]))
    each = "; ".join(f"{data}: {names}" for data, names in targets.items())
    caption = f"Mean over the targets that every method has at every number of labels ({each})."
    if len(titles) > _MOST_LINES:
        yield "ranking", "All methods", f"{caption} {chosen}", overall, plot_ranking, titles
        return
    if len(targets) > 1:
        caption, label = f"{caption} Bars are standard errors. {chosen}", "mean over targets (%)"
        yield "overall", "Mean over targets", caption, overall, plot_lines, titles, "data", "method", label
    for data, table in means.groupby("data", sort=False):
        caption = f"Mean over {table['n_seeds'].iloc[0]} seeds; {bars}. {chosen}"
        yield (f"accuracy-{data}", f"{data}: accuracy against labels", caption, table, plot_lines, titles, "target",
               "method")  # fmt: skip


def _comparisons(results: Results, rules: Rules) -> Iterator[Spec]:
    """Paired differences to the plan's baseline, and heat maps of the number of features."""
    baseline, titles, rows = results.plan.baseline, results.titles, results.rows
    if baseline is not None and len(titles) <= _MOST_LINES:
        caption = (
            f"Difference in accuracy to {titles[baseline]} on the same draws, in points; bars are 95 % confidence "
            f"intervals over seeds (Student's t). {explain(rules, titles)[0]}"
        )
        for data, table in tables.difference_table(rows, rules, baseline).groupby("data", sort=False):
            yield f"difference-{data}", f"{data}: paired differences", caption, table, plot_differences, titles
    methods = ranked_methods(results)[:_MOST_MAPS]
    caption = (
        f"Accuracy (%) of {' and '.join(titles[m] for m in methods)} by number of features and labels; colours span "
        "each target's range, blue is high. Only the penalty is chosen within a cell. "
        + explain({m: rules[m] for m in methods}, titles)[0]
    )
    for data, table in tables.dimension_table(rows, rules, methods).groupby("data", sort=False):
        yield f"dimension-{data}", f"{data}: features and labels", caption, table, plot_heat_maps, titles


def ranked_methods(results: Results) -> list[str]:
    """Methods with several numbers of features: Pro2 in all its forms, then a random projection, then others."""
    rows = results.rows[results.rows["measure"].isin(["accuracy", "bound"])]
    sizes = rows.groupby("method")["n_features"].nunique()
    several = [m for m in results.plan.methods if sizes.get(m.name, 0) > 1]
    # methods that differ only in how their setting is chosen share their runs
    first = {(m.method, str(m.params)): m for m in reversed(several)}.values()
    order = {"pro2": 0, "random": 1}
    return [m.name for m in sorted(first, key=lambda m: (order.get(m.method, 2), several.index(m)))]


def _theory(results: Results, rules: Rules) -> Iterator[Spec]:
    """Nullspace norms with bias and variance, and Theorem 1."""
    titles, methods = results.titles, ranked_methods(results)[:1]
    missed = "Share of the length of each target's best direction that the first d features miss (1 = all, 0 = none)."
    found = tables.dimension_table(results.rows, rules, methods)
    for data, table in tables.nullspace_table(results.rows).groupby("data", sort=False):
        yield f"nullspace-{data}", f"{data}: nullspace norm", missed, table, plot_nullspace, titles
        if (found["data"] == data).any():
            both = tables.bias_variance_table(found[found["data"] == data], table)
            caption = (
                f"{titles[methods[0]]}. Bias is the error at the most labels, variance the error above that; bias is "
                "shown for each target, variance averaged over targets."
            )
            yield f"bias-variance-{data}", f"{data}: bias and variance", caption, both, plot_bias_variance
    for data, table in tables.bound_table(results.rows).groupby("data", sort=False):
        caption = (
            "Solid: excess risk of the norm-bounded probe on d features. Dashed: the bound of Theorem 1 with its "
            "constants, delta = 0.05. Dotted: excess risk of the head that is zero, which has seen no label; a bound "
            f"above it is vacuous. That is so in {table['vacuous'].sum()} of {len(table)} cells."
        )
        yield f"bound-{data}", f"{data}: Theorem 1 and what it bounds", caption, table, plot_bound, titles
