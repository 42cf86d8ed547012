"""Figures of accuracy, each drawn from one table. Nothing here fits or chooses anything.

Every `plot_` function takes `columns`, the number of panels in a row: one of them fits on a narrow screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pro2.lab.report.names import figure_text
from pro2.lab.report.selection import grouped, where
from pro2.lab.report.style import COLOURS, INK, looks
from pro2.lab.report.tables import Table, values_of

Titles = Mapping[str, str]

_PANEL = (2.25, 2.1)
_LEGEND_LINE, _LETTER = 0.17, 0.062  # inches


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


def title_of(method: str, titles: Titles) -> str:
    """What a figure calls a method."""
    return figure_text(titles.get(method, method))


def shots_axis(axis: Any, shots: Iterable[int]) -> None:
    ticks = sorted(set(shots))
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks if len(ticks) <= 6 else ticks[::2])
    axis.minorticks_off()
    axis.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axis.set_xlabel("labels per class")


def add_legend(figure: Any, axis: Any, columns: int) -> None:
    """Names below the panels, in at most so many columns; where fewer fit, there is room for their lines."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) > 1:
        wanted = min(columns, len(labels))
        fitting = next((n for n in range(wanted, 1, -1) if _width(labels, n) <= figure.get_figwidth()), 1)
        more = math.ceil(len(labels) / fitting) - math.ceil(len(labels) / wanted)
        figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * more)
        figure.legend(handles, labels, loc="outside lower center", ncols=fitting)


def _width(labels: Sequence[str], columns: int) -> float:
    """Of a legend, in inches: a mark, a space and the longest name of each column."""
    parts = np.array_split(np.array([len(label) for label in labels]), columns)
    return float(sum(0.5 + _LETTER * part.max() for part in parts))


def by_shots(table: Table, **values: Any) -> Table:
    """Rows that have these values, from few labels to many."""
    return sorted(where(table, **values), key=lambda row: row["shots"])


Draw = Callable[[Any, Table], None]


def panelled(
    table: Table, names: Sequence[str], titles: Titles, draw: Draw, label: str, columns: int | None, *,
    size: tuple[float, float] = _PANEL, legend: int = 4, **options: Any,
) -> Any:  # fmt: skip
    """A panel for each combination of values of some columns; `draw` fills one with its rows."""
    groups = grouped(table, *names)
    figure, axes = panels(len(groups), size, columns=columns, **options)
    for axis, (values, rows) in zip(axes, groups.items()):
        draw(axis, rows)
        shown = [title_of(v, titles) if name == "method" else figure_text(v) for name, v in zip(names, values)]
        axis.set_title(": ".join(shown))
    axes[0].set_ylabel(label)
    add_legend(figure, axes[0], legend)
    return figure


def plot_lines(
    table: Table, titles: Titles, panel: str, line: str, label: str = "test accuracy (%)", columns: int | None = None
) -> Any:
    """Accuracy against shots, with standard errors: a panel for each value of one column, a line for each of `line`."""
    styles = looks(values_of(table, line))

    def draw(axis: Any, rows: Table) -> None:
        for value, look in styles.items():
            mine = by_shots(rows, **{line: value})
            mean, error = [100 * r["mean"] for r in mine], [100 * (r["standard_error"] or 0.0) for r in mine]
            if mine:
                name = title_of(value, titles)
                axis.errorbar([r["shots"] for r in mine], mean, error, label=name, capsize=2, elinewidth=1, **look)
        shots_axis(axis, [r["shots"] for r in rows])

    return panelled(table, [panel], titles, draw, label, columns)


def plot_ranking(table: Table, titles: Titles, columns: int | None = None) -> Any:
    """Many methods at once: mean over targets, one dot for each number of shots, best method on top."""
    n_sets, shots = len(values_of(table, "data")), sorted(values_of(table, "shots"))
    score = {m: float(np.mean([r["mean"] for r in where(table, method=m)])) for m in values_of(table, "method")}
    order = sorted(score, key=score.__getitem__)

    def draw(axis: Any, rows: Table) -> None:
        for i, n in enumerate(shots):
            found = {r["method"]: r for r in where(rows, shots=n)}
            at = [j for j, m in enumerate(order) if m in found]
            means = [100 * found[order[j]]["mean"] for j in at]
            axis.scatter(means, at, s=16, color=COLOURS[i % len(COLOURS)], label=f"{n} labels", zorder=3)
        axis.set_xlabel("accuracy (%)")
        axis.set_yticks(range(len(order)), [title_of(m, titles) for m in order])

    size = (3.2 if columns == 1 else max(2.3, 4.8 / n_sets), 0.19 * len(order) + 0.9)
    return panelled(table, ["data"], titles, draw, "", columns, size=size, sharey=True)


def plot_differences(table: Table, titles: Titles, columns: int | None = None) -> Any:
    """Paired differences to the baseline with their confidence intervals, one panel per target."""
    methods, baseline = values_of(table, "method"), table[0]["baseline"]
    styles = looks([*methods, baseline])

    def draw(axis: Any, rows: Table) -> None:
        axis.axhline(0, color=INK, linewidth=0.8)
        for i, method in enumerate(methods):
            mine = by_shots(rows, method=method)
            # a little apart, so that intervals of neighbours can be told
            at = [r["shots"] * 2 ** (0.22 * (i - (len(methods) - 1) / 2)) for r in mine]
            _intervals(axis, at, mine, title_of(method, titles), styles[method])
        shots_axis(axis, values_of(rows, "shots"))

    who = f"{title_of(methods[0], titles)}: " if len(methods) == 1 else ""
    return panelled(table, ["target"], titles, draw, f"{who}points above\n{title_of(baseline, titles)}", columns)


def _intervals(axis: Any, at: Sequence[float], rows: Table, label: str, look: dict[str, Any]) -> None:
    middle = np.array([100 * r["difference"] for r in rows])
    half = [100 * ((r["high"] - r["low"]) / 2 if r["high"] is not None else 0.0) for r in rows]
    look = {k: v for k, v in look.items() if k != "linestyle"}
    axis.errorbar(at, middle, half, label=label, linestyle="none", capsize=2, **look)
