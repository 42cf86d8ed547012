"""From a sweep folder to a report folder: the page, and PNG, SVG and CSV of each figure, each written atomically."""

from __future__ import annotations

from pathlib import Path

from pro2.lab.experiments.presets import SUITE
from pro2.lab.experiments.view import write_text
from pro2.lab.report import tables
from pro2.lab.report.drawings import Drawn, draw_all
from pro2.lab.report.loading import load_results
from pro2.lab.report.markdown import write_markdown
from pro2.lab.report.page import render_page
from pro2.lab.report.selection import rules_of
from pro2.lab.report.style import figure_style, require_matplotlib


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
        Result folder of `pro2.lab.experiments.run.run_sweep`, or the folder of a suite.
    out : path, optional
        Where to write; ``folder/report`` by default. Files of the same name are replaced.
    selection : {"validation", "oracle", "support"}, optional
        Choose settings by this rule instead of the plan's.
    markdown : path, optional
        A documentation folder that gets ``NAME.md`` and its pictures, too.
    """
    require_matplotlib()
    folder = Path(folder)
    if (folder / SUITE).is_file():
        from pro2.lab.report.claims_page import write_suite

        return write_suite(folder, out, selection, markdown)
    results = load_results(folder)
    rules = rules_of(results.plan, results.rows, selection)
    means = tables.mean_table(results.rows, rules) if results.has_accuracy else []
    drawn = list(draw_all(results, rules, means))
    out = Path(out) if out is not None else folder / "report"
    out.mkdir(parents=True, exist_ok=True)
    for each in drawn:
        _save(each, out)
    if means:
        tables.write_csv(out / "results.csv", means)
    if markdown is not None:
        write_markdown(Path(markdown), results, rules, drawn, means)
    with figure_style("page"):
        text = render_page(results, rules, drawn, means)
    return write_text(out / "index.html", text)  # last: a page never names a figure that is not there


def _save(drawn: Drawn, out: Path) -> None:
    with figure_style(drawn.name):
        drawn.save(out / f"{drawn.name}.png", facecolor="white")
        drawn.save(out / f"{drawn.name}.svg", metadata={"Date": None})
    tables.write_csv(out / f"{drawn.name}.csv", drawn.table)
