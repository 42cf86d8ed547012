"""From results to files: the page, PNG, SVG and CSV of each figure, and Markdown for documentation, each atomically.

Names come from files and are not to be trusted: the templates escape whatever they print.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from pro2.lab.experiments.plan import SUITE, Suite, parse_plan
from pro2.lab.experiments.store import RESULTS, write_json, write_text
from pro2.lab.report import claims, tables
from pro2.lab.report.figures import GRID, INK, Drawn, draw_all, figure_style, plain, slug
from pro2.lab.report.tables import Results, explain, read_json

COLUMNS = {
    "data": "data", "target": "target", "shots": "labels per class", "method": "method", "mean": "mean accuracy (%)",
    "standard_error": "standard error", "standard_deviation": "standard deviation", "worst_group": "worst group (%)",
    "n_seeds": "seeds", "n_features": "features", "l2": "l2",
}  # fmt: skip
PERCENT = ("mean", "standard_error", "standard_deviation", "worst_group")
MANY = 8  # methods that fit side by side in a table of a Markdown page


def markdown_text(value: Any) -> str:
    """Text of a Markdown page, inside and outside tables; nothing in it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", plain(value).replace("&", "&amp;"))


def render(template: str, **values: Any) -> str:
    """A template with its values; in HTML and in Markdown all that is no `Markup` is escaped."""

    def text(value: Any) -> Any:
        if hasattr(value, "__html__"):
            return value
        return plain(value) if template.endswith(".html") else markdown_text(value)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pro2.lab.report", "."), autoescape=template.endswith(".html"), finalize=text,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["slug"] = lambda name: Markup(slug(name))
    return environment.get_template(template).render(**values)


def write_report(
    folder: str | Path, out: str | Path | None = None, selection: str | None = None, markdown: str | Path | None = None
) -> Path:
    """Write ``index.html``, and PNG, SVG and CSV of each figure; returns the page's path.

    A suite gets a report for every plan, and a page that judges the paper's claims.

    Parameters
    ----------
    folder : path
        Result folder of `pro2.lab.experiments.run.run_sweep`, or the folder of a suite.
    out : path, optional
        Where to write; ``folder/report`` by default. Files of the same name are replaced.
    selection : {"validation", "oracle", "support"}, optional
        Choose settings by this rule instead of the plan's.
    markdown : path, optional
        A documentation folder that also gets ``NAME.md`` and its figures.
    """
    folder = Path(folder)
    write = write_suite if (folder / SUITE).is_file() else write_sweep
    return write(folder, Path(out or folder / "report"), selection, None if markdown is None else Path(markdown))


def write_sweep(folder: Path, out: Path, selection: str | None, markdown: Path | None) -> Path:
    """A report of one sweep; returns the page."""
    results = Results.load(folder)
    rules = tables.rules_of(results.plan, results.rows, selection)
    measured = (results.rows["measure"] == "accuracy").any()
    means = tables.mean_table(results.rows, rules) if measured else None
    figures = list(draw_all(results, rules, means))
    out.mkdir(parents=True, exist_ok=True)
    for each in figures:
        with figure_style(each.name):
            each.save(out / f"{each.name}.png", facecolor="white")
            each.save(out / f"{each.name}.svg", metadata={"Date": None})
        tables.write_csv(out / f"{each.name}.csv", each.table)
    if means is not None:
        tables.write_csv(out / "results.csv", means)
    values = {"plan": results.plan, "titles": results.titles, "summary": results.summary, "figures": figures,
              "chosen": explain(rules if measured else {}, results.titles),
              "plan_text": json.dumps(results.plan.to_dict(), indent=1)}  # fmt: skip
    if markdown is not None:
        _write_markdown(markdown, values, figures, means)
    with figure_style("page"):
        svgs = [inline_svg(each) for each in figures]
    page = render("page.html", **values, svgs=svgs, table=_result_rows(means, results))
    return write_text(out / "index.html", page)  # last: a page never names a figure that is not there


def _write_markdown(docs: Path, values: dict[str, Any], figures: Sequence[Drawn], means: pd.DataFrame | None) -> None:
    """``NAME.md``, and its figures, rows and plan under ``NAME/``; NAME is the plan's name."""
    name = slug(values["plan"].name)
    (docs / name).mkdir(parents=True, exist_ok=True)
    for each in figures:
        with figure_style("markdown"):
            each.save(docs / name / f"{each.name}.png", facecolor="white", dpi=150)
        if means is None:
            tables.write_csv(docs / name / f"{each.name}.csv", each.table)
    if means is not None:
        tables.write_csv(docs / name / "results.csv", means)
    write_json(docs / name / "plan.json", values["plan"].to_dict())
    found = [] if means is None else _accuracy_tables(means, values["titles"])
    longest = max((len(run) for run in re.findall("`+", values["plan_text"])), default=0)
    fence = Markup("`" * max(3, longest + 1))  # longer than any in the plan, which then cannot close it
    page = render("page.md", **{**values, "plan_text": Markup(values["plan_text"])}, tables=found, fence=fence)
    write_text(docs / f"{name}.md", page)


def _accuracy_tables(means: pd.DataFrame, titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Two tables per data set, best in bold: accuracy, and where there are groups the accuracy of the worst of them."""
    found = []
    for data, mine in means.groupby("data", sort=False):
        seeds = int(means["n_seeds"].max())
        found.append({"data": data, "seeds": seeds, **_table(mine, titles, "mean", "standard_error")})
        if mine["worst_group"].notna().any():
            found.append({"data": data, "seeds": 0, **_table(mine, titles, "worst_group", "worst_group_error")})
    return found


def _table(mine: pd.DataFrame, titles: Mapping[str, str], value: str, error: str) -> dict[str, Any]:
    """A line for each target and number of labels; a line for each method where those would be too many columns."""
    best = mine.groupby(["target", "shots"])[value].transform("max")
    bold = mine[value].round(3) >= best.round(3)
    cells = []
    for m, e, b in zip(mine[value], mine[error], bold):
        text = f"**{100 * m:.1f}**" if b else f"{100 * m:.1f}"
        cells.append("" if pd.isna(m) else text + ("" if pd.isna(e) else f" ± {100 * e:.1f}"))
    grid = mine.assign(cell=cells).pivot(index=["target", "shots"], columns="method", values="cell").fillna("")
    grid = grid[[m for m in titles if m in grid]].rename(columns=titles)
    grid = grid.loc[sorted(grid.index, key=lambda at: (list(mine["target"].unique()).index(at[0]), at[1]))]
    if grid.shape[1] > MANY:
        lines = [[name, *map(Markup, column)] for name, column in grid.items()]
        return {"head": ["method", *(f"{target} {shots}" for target, shots in grid.index)], "lines": lines}
    lines = [[target, shots, *map(Markup, row)] for (target, shots), row in zip(grid.index, grid.to_numpy())]
    return {"head": ["target", "labels per class", *grid.columns], "lines": lines}


def _result_rows(means: pd.DataFrame | None, results: Results) -> dict[str, Any] | None:
    """Cells of the page's table, which of them are the best, and what the filters offer."""
    if means is None:
        return None
    best = means["mean"] >= means.groupby(["data", "target", "shots"])["mean"].transform("max")
    percent = {name: means[name].map(lambda value: f"{100 * value:.1f}", na_action="ignore") for name in PERCENT}
    shown = means.assign(method=means["method"].map(results.titles), **percent)[list(COLUMNS)].astype(object)
    shown = shown.where(shown.notna(), "")
    filters = [(title, list(dict.fromkeys(shown[name]))) for name, title in list(COLUMNS.items())[:4]]
    return {"head": COLUMNS, "rows": list(zip(best, shown.to_numpy().tolist())), "filters": filters}


def inline_svg(drawn: Drawn) -> Markup:
    """The drawing, and again with its panels below each other: the page shows what its width has room for."""
    if drawn.narrow is None:
        return _svg(drawn.figure, drawn.name, drawn.title, "")
    wide = _svg(drawn.figure, drawn.name, drawn.title, "wide")
    return wide + _svg(drawn.narrow, f"{drawn.name}-narrow", drawn.title, "narrow")


def _svg(figure: Any, name: str, title: str, kind: str) -> Markup:
    """A figure as SVG that takes its text and grid colours from the page, with ids that no other figure has."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*pt" height="[^"]*pt"', r"\1", text, count=1)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    style = f"width:{figure.get_figwidth() * 110:.0f}px"
    head = Markup('<svg role="img" class="{}" aria-label="{}" style="{}"').format(kind, plain(title), style)
    text = text.replace("<svg", head, 1)
    return Markup(text.replace(INK, "currentColor").replace(GRID, "var(--line)"))


def write_suite(folder: Path, out: Path, selection: str | None, markdown: Path | None) -> Path:
    """A report for every plan of a suite that has results, and one page that judges the claims; returns that page."""
    suite = parse_plan(read_json(folder / SUITE), where=str(folder / SUITE))
    if not isinstance(suite, Suite):
        raise ValueError(f"{folder / SUITE} is not a suite; it needs a list of plans")
    names = [name for name in suite.plans if (folder / slug(name) / RESULTS).is_file()]
    if not names:
        raise ValueError(f"{str(folder)!r} holds no results of {', '.join(suite.plans)}; run `pro2 sweep` first")
    for name in names:
        write_sweep(folder / slug(name), out / slug(name), selection, markdown)
    findings = claims.judge({name: Results.load(folder / slug(name)) for name in names}, markdown)
    found = [finding.to_dict() for finding in findings]
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "claims.json", found)
    values = {"suite": suite, "findings": findings, "names": names}
    if markdown is not None:
        write_json(markdown / f"{slug(suite.name)}.json", found)
        pages = [name for name in suite.plans if (markdown / f"{slug(name)}.md").is_file()]
        write_text(markdown / f"{slug(suite.name)}.md", render("page.md", **values, pages=pages))
    return write_text(out / "index.html", render("page.html", **values))
