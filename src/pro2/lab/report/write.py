"""From a sweep folder to a report folder: the page, and PNG, SVG and CSV of each figure, each written atomically.

A suite gets a report for every plan, and one page that judges the paper's claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pro2.lab.experiments.parsing import parse_plan
from pro2.lab.experiments.plan import Suite
from pro2.lab.experiments.presets import SUITE
from pro2.lab.experiments.view import RESULTS, write_json, write_text
from pro2.lab.report import tables
from pro2.lab.report.claims import Finding, judge
from pro2.lab.report.drawings import Drawn, draw_all
from pro2.lab.report.evidence import shown
from pro2.lab.report.loading import Results, load_results, read_json
from pro2.lab.report.markdown import write_markdown
from pro2.lab.report.names import html_text, markdown_text, slug
from pro2.lab.report.page import fill_page, html_table, render_page
from pro2.lab.report.selection import explain, rules_of
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
        return _write_suite(folder, out, selection, markdown)
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


def _write_suite(
    folder: Path, out: str | Path | None = None, selection: str | None = None, markdown: str | Path | None = None
) -> Path:
    """A report for every plan of a suite that has results, and one page that judges the claims; returns that page."""
    suite = parse_plan(read_json(folder / SUITE), where=str(folder / SUITE))
    if not isinstance(suite, Suite):
        raise ValueError(f"{folder / SUITE} is not a suite; it needs a list of plans")
    names = [name for name in suite.plans if (folder / slug(name) / RESULTS).is_file()]
    if not names:
        raise ValueError(f"{str(folder)!r} holds no results of {', '.join(suite.plans)}; run `pro2 sweep` first")
    out = Path(out) if out is not None else folder / "report"
    for name in names:
        write_report(folder / slug(name), out / slug(name), selection, markdown)
    results = {name: load_results(folder / slug(name)) for name in names}
    findings = judge(results)
    write_json(out / "claims.json", [_plain(finding) for finding in findings])
    if markdown is not None:
        lines = _markdown(suite, results, findings)
        write_text(Path(markdown) / f"{slug(suite.name)}.md", "\n".join(lines) + "\n")
    return write_text(out / "index.html", _html(suite, results, findings))


def _plain(finding: Finding) -> dict[str, Any]:
    claim = finding.claim
    parts = [part._asdict() for part in finding.parts]
    return {"says": claim.says, "where": claim.where, "verdict": finding.verdict, "holds_if": claim.holds_if,
            "command": finding.command, "parts": parts}  # fmt: skip


def _markdown(suite: Suite, results: dict[str, Results], findings: Sequence[Finding]) -> Iterator[str]:
    text = markdown_text
    yield f"# {text(suite.title or suite.name)}\n"
    yield "**Settings chosen as the page of each plan says on top;** each claim names its plan and rule below.\n"
    yield f"{text(suite.description)}\n"
    command = f"`pro2 sweep {slug(suite.name)}` and `pro2 report OUT --markdown docs/results`"
    yield f"Written by {command}; not edited. Errors are standard errors over seeds.\n"
    yield "| claim | verdict |\n|---|---|"
    for i, finding in enumerate(findings):
        yield f"| [{text(finding.claim.says)}](#claim-{i + 1}) | {finding.verdict} |"
    yield ""
    for i, finding in enumerate(findings):
        yield from _section(i + 1, finding, results)


def _section(number: int, finding: Finding, results: dict[str, Results]) -> Iterator[str]:
    claim, text = finding.claim, markdown_text
    yield f"(claim-{number})=\n\n## {text(claim.says)}\n"
    yield f"**{finding.verdict.capitalize()}.** In the paper: {text(claim.where)}."
    yield f"A part holds if {text(claim.holds_if)}.\n"
    if claim.plan not in results:
        yield f"No results of plan `{claim.plan}` are in this suite.\n"
    else:
        yield "| part | found | holds |\n|---|---|---|"
        yield from (f"| {text(part.what)} | {text(part.number)} | {shown(part.holds)} |" for part in finding.parts)
        plan = results[claim.plan]
        chosen = f"{text(explain(plan.rules, plan.titles)[0])} " if plan.has_accuracy else ""
        yield f"\n{chosen}Plan: [{claim.plan}]({claim.plan}.md).\n"
    yield f"```bash\n{finding.command}\n```\n"


def _html(suite: Suite, results: dict[str, Results], findings: Sequence[Finding]) -> str:
    links = ", ".join(f'<a href="{slug(name)}/index.html">{html_text(name)}</a>' for name in results)
    return fill_page(
        title=suite.title or suite.name,
        description=suite.description,
        rule_name="Settings were chosen as the page of each plan says.",
        rule_text="Errors are standard errors over seeds.",
        skips=f"{html_table((f.claim.says, f.verdict) for f in findings)}<p>Reports: {links}</p>",
        figures="".join(map(_html_section, findings)),
        table="",
        plan="\n".join(finding.command for finding in findings),
        facts="",
    )


def _html_section(finding: Finding) -> str:
    claim = finding.claim
    text = f"In the paper: {claim.where}. A part holds if {claim.holds_if}."
    parts = html_table((part.what, part.number, shown(part.holds)) for part in finding.parts)
    return f"<h2>{html_text(claim.says)}</h2><p><b>{html_text(finding.verdict)}</b>. {html_text(text)}</p>{parts}"
