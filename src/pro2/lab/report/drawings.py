"""Which figures a report has: each with its title, its caption and the rows behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pro2.atomic import atomic_write
from pro2.lab.report import curves, figures, tables
from pro2.lab.report.loading import Results
from pro2.lab.report.names import slug
from pro2.lab.report.selection import Rules, explain, grouped, where
from pro2.lab.report.style import figure_style
from pro2.lab.report.tables import Table

# With more methods than colours, lines cannot be told apart: a ranking is drawn instead.
_MOST_LINES = 8
_MOST_MAPS = 3  # methods whose heat maps stand beside each other


@dataclass(frozen=True)
class Drawn:
    """A finished figure: its file name, what it shows, the drawing and the rows behind it.

    `narrow` is the same drawing with its panels below each other, for a narrow screen; None where there is one panel.
    """

    name: str
    title: str
    caption: str
    figure: Any
    table: Table
    narrow: Any = None

    def save(self, path: Path, **options: Any) -> None:
        """The drawing in the format of the file's ending, atomically."""
        kind = path.suffix[1:]
        atomic_write(path, lambda file: self.figure.savefig(file, format=kind, **options), force=True)


def draw_all(results: Results, rules: Rules, means: Table) -> Iterator[Drawn]:
    """Every figure that the measures of a sweep allow."""
    yield from _pictures(results)
    if means:
        yield from _accuracies(results, rules, means)
        yield from _differences(results, rules)
        yield from _dimensions(results, rules)
    yield from _nullspaces(results, rules)
    yield from _bounds(results)


def _drawn(name: str, title: str, caption: str, table: Table, plot: Callable[..., Any]) -> Drawn:
    with figure_style(slug(name)):
        figure = _laid_out(plot())
        narrow = _laid_out(plot(columns=1)) if len(figure.axes) > 1 else None
        return Drawn(slug(name), title, caption, figure, table, narrow)


def _laid_out(figure: Any) -> Any:
    """The layout takes longer than the drawing, and a figure is written four times."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _by_data(table: Table) -> Iterator[tuple[str, Table]]:
    yield from ((data, rows) for (data,), rows in grouped(table, "data").items())


def _accuracies(results: Results, rules: Rules, means: Table) -> Iterator[Drawn]:
    titles, chosen = results.titles, explain(rules, results.titles)[0]
    overall = tables.overall_table(means)
    if results.plan.compare == "data":
        for method in (m.name for m in results.plan.methods):
            mine = where(means, method=method)
            caption = f"{titles[method]}: one line per data set; bars are standard errors of the mean. {chosen}"
            label = f"{figures.title_of(method, titles)}:\ntest accuracy (%)"
            yield _drawn(f"by-data-{method}", f"{titles[method]}: accuracy by data set", caption, mine,
                         partial(figures.plot_lines, mine, {}, "target", "data", label))  # fmt: skip
    if len(titles) > _MOST_LINES:
        caption = f"{_averaged(overall)} {chosen}"
        yield _drawn("ranking", "All methods", caption, overall, partial(figures.plot_ranking, overall, titles))
        return
    if len({row["data"] for row in overall}) > 1:
        caption = f"{_averaged(overall)} Bars are standard errors. {chosen}"
        plot = partial(figures.plot_lines, overall, titles, "data", "method", "mean over targets (%)")
        yield _drawn("overall", "Mean over targets", caption, overall, plot)
    for data, table in _by_data(means):
        caption = f"Mean over {table[0]['n_seeds']} seeds; bars are standard errors of the mean. {chosen}"
        yield _drawn(f"accuracy-{data}", f"{data}: accuracy against labels", caption, table,
                     partial(figures.plot_lines, table, titles, "target", "method"))  # fmt: skip


def _averaged(overall: Table) -> str:
    targets = {row["data"]: row["targets"] for row in overall}
    each = "; ".join(f"{data}: {names}" for data, names in targets.items())
    return f"Mean over the targets that every method has at every number of labels ({each})."


def _differences(results: Results, rules: Rules) -> Iterator[Drawn]:
    baseline, titles = results.plan.baseline, results.titles
    if baseline is None or len(titles) > _MOST_LINES:
        return
    for data, table in _by_data(tables.difference_table(results.rows, rules, baseline)):
        caption = (
            f"Difference in accuracy to {titles[baseline]} on the same draws, in points; bars are 95 % confidence "
            f"intervals over seeds (Student's t). {explain(rules, titles)[0]}"
        )
        yield _drawn(f"difference-{data}", f"{data}: paired differences", caption, table,
                     partial(figures.plot_differences, table, titles))  # fmt: skip


def _dimensions(results: Results, rules: Rules) -> Iterator[Drawn]:
    methods, titles = ranked_methods(results)[:_MOST_MAPS], results.titles
    chosen = explain({m: rules[m] for m in methods}, titles)[0]
    for data, table in _by_data(tables.dimension_table(results.rows, rules, methods)):
        who = " and ".join(titles[m] for m in methods)
        caption = (
            f"Accuracy (%) of {who} by number of features and labels; colours span each target's range, blue is high. "
            f"Only the penalty is chosen within a cell. {chosen}"
        )
        yield _drawn(f"dimension-{data}", f"{data}: features and labels", caption, table,
                     partial(curves.plot_heat_maps, table, titles))  # fmt: skip


def ranked_methods(results: Results) -> list[str]:
    """Methods with several numbers of features: Pro2 in all its forms, a random projection beside it, then others."""
    sizes: dict[str, set[int]] = {}
    for row in results.rows:
        if row["measure"] in ("accuracy", "bound") and row["n_features"] is not None:
            sizes.setdefault(row["method"], set()).add(row["n_features"])
    several = [m for m in results.plan.methods if len(sizes.get(m.name, ())) > 1]
    first = {(m.method, m.params): m for m in reversed(several)}.values()  # others differ in how they are chosen
    order = {"pro2": 0, "random": 1}
    return [m.name for m in sorted(first, key=lambda m: (order.get(m.method, 2), several.index(m)))]


def _nullspaces(results: Results, rules: Rules) -> Iterator[Drawn]:
    methods = ranked_methods(results)
    for data, table in _by_data(tables.nullspace_table(results.rows)):
        caption = (
            "Share of the length of each target's best direction that the first d features miss (1 = all, 0 = none)."
        )
        yield _drawn(f"nullspace-{data}", f"{data}: nullspace norm", caption, table,
                     partial(curves.plot_nullspace, table, results.titles))  # fmt: skip
        if not methods:
            continue
        found = where(tables.dimension_table(results.rows, rules, methods[:1]), data=data)
        both = tables.bias_variance_table(found, table)
        caption = (
            f"{results.titles[methods[0]]}. Bias is the error at the most labels, variance the error above that; bias "
            "is shown for each target, variance averaged over targets."
        )
        yield _drawn(f"bias-variance-{data}", f"{data}: bias and variance", caption, both,
                     partial(curves.plot_bias_variance, both))  # fmt: skip


def _bounds(results: Results) -> Iterator[Drawn]:
    for data, table in _by_data(tables.bound_table(results.rows)):
        vacuous = sum(row["vacuous"] for row in table)
        caption = (
            "Solid: excess risk of the norm-bounded probe on d features. Dashed: the bound of Theorem 1 with its "
            "constants, delta = 0.05. Dotted: excess risk of the head that is zero, which has seen no label; a bound "
            f"above it is vacuous. That is so in {vacuous} of {len(table)} cells."
        )
        yield _drawn(f"bound-{data}", f"{data}: Theorem 1 and what it bounds", caption, table,
                     partial(curves.plot_bound, table, results.titles))  # fmt: skip


def _pictures(results: Results) -> Iterator[Drawn]:
    for row in where(results.rows, measure="picture"):
        content, target = json.loads(row["detail"]), row["target"]
        planes = [*content["boundaries"], content["mixture"]]
        table = [{"plane": i, "normal": str(p["normal"]), "offset": p["offset"]} for i, p in enumerate(planes)]
        caption = "Planes through the middle of the points; the last one is the classifier that the probe mixes."
        yield _drawn(f"picture-{target}", f"Project and Probe, target {target}", caption, table,
                     partial(curves.plot_picture, content, target))  # fmt: skip
