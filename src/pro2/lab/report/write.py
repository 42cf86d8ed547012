"""From a sweep folder to a report folder: the page, and PNG, SVG and CSV of each figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pro2.lab.experiments.view import SUMMARY, read_view
from pro2.lab.report import figures as draw
from pro2.lab.report import tables
from pro2.lab.report.markdown import write_markdown
from pro2.lab.report.page import Drawn, render_page
from pro2.lab.report.selection import EXPLAINED, RULES, is_tuned
from pro2.lab.report.style import figure_style, require_matplotlib
from pro2.lab.report.tables import Table

# With more methods than colours, lines cannot be told apart: a ranking is drawn instead.
_MOST_LINES = 8


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    selection: str | None = None,
    markdown: str | Path | None = None,
) -> Path:
    """Write ``index.html`` and the files of each figure; returns the page's path.

    Parameters
    ----------
    folder : path
        Result folder of `pro2.lab.experiments.run.run_sweep`.
    out : path, optional
        Where to write; ``folder/report`` by default. Files of the same name are replaced.
    selection : {"validation", "oracle", "support"}, optional
        Choose settings by this rule instead of the plan's.
    markdown : path, optional
        A documentation folder that gets ``NAME.md`` and its pictures, too.
    """
    require_matplotlib()
    folder = Path(folder)
    rows = read_view(folder).to_pylist()
    if not rows:
        raise ValueError(f"{str(folder)!r} holds no finished run; run `pro2 sweep` again and look at failures.json")
    plan, summary = (_read_json(folder / name) for name in ("plan.json", SUMMARY))
    rule = selection or plan.get("selection", "oracle")
    if rule not in RULES:
        raise ValueError(f"selection {rule!r} is not known; expected {' or '.join(map(repr, RULES))}")
    rule = rule if is_tuned(rows) else "untuned"
    out = Path(out) if out is not None else folder / "report"
    out.mkdir(parents=True, exist_ok=True)
    means = tables.mean_table(rows, rule)
    drawn = list(_all_figures(plan, rows, rule, means))
    for each in drawn:
        _save(each, out)
    if means:
        tables.write_csv(out / "results.csv", means)
    page = out / "index.html"
    with figure_style("page"):
        page.write_text(render_page(plan, summary, rule, drawn, means), encoding="utf-8")
    if markdown is not None:
        with figure_style("markdown"):
            write_markdown(Path(markdown), plan, summary, rule, drawn, means)
    return page


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{str(path)!r} is missing; {path.parent} is not a finished result folder of `pro2 sweep`")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _save(drawn: Drawn, out: Path) -> None:
    with figure_style(drawn.name):
        drawn.figure.savefig(out / f"{drawn.name}.png", facecolor="white")
        drawn.figure.savefig(out / f"{drawn.name}.svg", metadata={"Date": None})
    tables.write_csv(out / f"{drawn.name}.csv", drawn.table)


def _all_figures(plan: Mapping[str, Any], rows: list[dict[str, Any]], rule: str, means: Table) -> Iterator[Drawn]:
    titles = {m["name"]: m.get("title", m["name"]) for m in plan["methods"]}
    yield from _picture_figures(rows)
    if means:
        yield from _accuracy_figures(titles, rule, means)
        yield from _difference_figures(plan, titles, rows, rule)
        yield from _dimension_figures(plan, titles, rows, rule)
    yield from _nullspace_figures(plan, titles, rows, rule)


def _drawn(name: str, title: str, caption: str, table: Table, plot: Callable[..., Any], *more: Any) -> Drawn:
    with figure_style(name):
        return Drawn(name, title, caption, plot(*more), table)


def _accuracy_figures(titles: dict[str, str], rule: str, means: Table) -> Iterator[Drawn]:
    chosen = f"Settings chosen {EXPLAINED[rule][0]}."
    overall = tables.overall_table(means)
    if len(titles) > _MOST_LINES:
        caption = f"Mean over targets. {chosen}"
        yield _drawn("ranking", "All methods", caption, overall, draw.plot_ranking, overall, titles)
        return
    if len({row["data"] for row in means}) > 1:
        caption = f"Mean over the targets of each data set; bars are standard errors. {chosen}"
        yield _drawn("overall", "Mean over targets", caption, overall, draw.plot_overall, overall, titles)
    for data in dict.fromkeys(row["data"] for row in means):
        table = [row for row in means if row["data"] == data]
        caption = f"Mean over {table[0]['n_seeds']} seeds; bars are standard errors of the mean. {chosen}"
        yield _drawn(f"accuracy-{data}", f"{data}: accuracy against labels", caption, table,
                     draw.plot_accuracy, table, titles, data)  # fmt: skip


def _difference_figures(
    plan: Mapping[str, Any], titles: dict[str, str], rows: list[dict[str, Any]], rule: str
) -> Iterator[Drawn]:
    baseline = plan.get("baseline")
    if baseline is None or len(titles) > _MOST_LINES:
        return
    table = tables.difference_table(rows, rule, baseline)
    for data in dict.fromkeys(row["data"] for row in table):
        mine = [row for row in table if row["data"] == data]
        caption = (
            f"Difference in accuracy to {titles[baseline]} on the same draws, in points; bars are 95 % confidence "
            f"intervals over seeds (Student's t). Settings chosen {EXPLAINED[rule][0]}."
        )
        yield _drawn(f"difference-{data}", f"{data}: paired differences", caption, mine,
                     draw.plot_differences, mine, titles, data)  # fmt: skip


def _dimension_figures(
    plan: Mapping[str, Any], titles: dict[str, str], rows: list[dict[str, Any]], rule: str
) -> Iterator[Drawn]:
    method = _ranked(plan, rows)
    if method is None:
        return
    table = tables.dimension_table(rows, rule, method)
    for data in dict.fromkeys(row["data"] for row in table):
        mine = [row for row in table if row["data"] == data]
        if len({row["n_features"] for row in mine}) < 2:
            continue
        caption = (
            f"Accuracy (%) of {titles[method]} by number of features and labels; colours span each panel's range, blue "
            f"is high. Within each cell the penalty was chosen {EXPLAINED[rule][0]}."
        )
        yield _drawn(f"dimension-{data}", f"{data}: features and labels", caption, mine,
                     draw.plot_heat_map, mine, data)  # fmt: skip


def _ranked(plan: Mapping[str, Any], rows: list[dict[str, Any]]) -> str | None:
    """The method whose dimension is looked at: Pro2 when it is there, else the first with several dimensions."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        if row["measure"] == "accuracy" and row["n_features"] is not None:
            sizes.setdefault(row["method"], set()).add(row["n_features"])
    several = [m["name"] for m in plan["methods"] if len(sizes.get(m["name"], ())) > 1]
    ours = [m["name"] for m in plan["methods"] if m["method"] == "pro2" and m["name"] in several]
    return next(iter([*ours, *several]), None)


def _nullspace_figures(
    plan: Mapping[str, Any], titles: dict[str, str], rows: list[dict[str, Any]], rule: str
) -> Iterator[Drawn]:
    table = tables.nullspace_table(rows)
    method = _ranked(plan, rows)
    for data in dict.fromkeys(row["data"] for row in table):
        mine = [row for row in table if row["data"] == data]
        caption = (
            "Share of the length of each target's best direction that the first d features miss (1 = all, 0 = none)."
        )
        yield _drawn(f"nullspace-{data}", f"{data}: nullspace norm", caption, mine,
                     draw.plot_nullspace, mine, titles, data)  # fmt: skip
        if method is None:
            continue
        dimensions = [r for r in tables.dimension_table(rows, rule, method) if r["data"] == data]
        curves = tables.bias_variance_table(dimensions, mine)
        caption = (
            f"{titles[method]}. Bias is the error at the most labels, variance the error above that; left per target, "
            "right averaged over targets."
        )
        yield _drawn(f"bias-variance-{data}", f"{data}: bias and variance", caption, curves,
                     draw.plot_bias_variance, curves, data, method)  # fmt: skip


def _picture_figures(rows: list[dict[str, Any]]) -> Iterator[Drawn]:
    for row in rows:
        if row["measure"] == "picture":
            content, target = json.loads(row["detail"]), row["target"]
            planes = [*content["boundaries"], content["mixture"]]
            table = [{"plane": i, "normal": p["normal"], "offset": p["offset"]} for i, p in enumerate(planes)]
            caption = "Planes through the middle of the points; the last one is the classifier that the probe mixes."
            yield _drawn(f"picture-{target}", f"Project and Probe, target {target}", caption, table,
                         draw.plot_picture, content, target)  # fmt: skip
