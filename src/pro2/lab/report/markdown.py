"""The same results as one Markdown file with its pictures, for a repository's documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pro2.lab.experiments.view import write_json, write_text
from pro2.lab.report.drawings import Drawn
from pro2.lab.report.loading import Results
from pro2.lab.report.names import markdown_text, slug
from pro2.lab.report.page import skip_text
from pro2.lab.report.selection import Rules, explain
from pro2.lab.report.style import figure_style
from pro2.lab.report.tables import Table, write_csv

_MANY = 8  # methods that fit side by side in one table


def write_markdown(docs: Path, results: Results, rules: Rules, figures: Sequence[Drawn], means: Table) -> Path:
    """Write ``NAME.md``, and its pictures, rows and plan under ``NAME/``; NAME is the plan's name."""
    name = slug(results.plan.name)
    folder = docs / name
    folder.mkdir(parents=True, exist_ok=True)
    for drawn in figures:
        with figure_style("markdown"):
            drawn.save(folder / f"{drawn.name}.png", facecolor="white", dpi=150)
        if not means:
            write_csv(folder / f"{drawn.name}.csv", drawn.table)
    if means:
        write_csv(folder / "results.csv", means)
    write_json(folder / "plan.json", results.plan.to_dict())
    return write_text(docs / f"{name}.md", "\n".join(_lines(results, rules, figures, means)) + "\n")


def _lines(results: Results, rules: Rules, figures: Sequence[Drawn], means: Table) -> Iterator[str]:
    plan, text = results.plan, markdown_text
    yield f"# {text(plan.title or plan.name)}\n"
    line, meaning = explain(rules, results.titles) if means else ("Nothing was chosen: no accuracy was measured.", "")
    yield f"**{text(line)}** {text(meaning)}\n"
    yield f"{text(plan.description)}\n"
    yield "Written by `pro2 sweep` with the plan below and `pro2 report OUT --markdown docs/results`; not edited.\n"
    if means:
        yield from _tables(means, results.titles)
    for drawn in figures:
        picture = f"{slug(plan.name)}/{drawn.name}.png"
        yield f"## {text(drawn.title)}\n\n![{text(drawn.title)}]({picture})\n\n{text(drawn.caption)}\n"
    if results.summary["skips"]:
        yield "## Left out\n"
        yield from (f"* {text(skip_text(skip))}" for skip in results.summary["skips"])
        yield ""
    yield from _made(results.summary)
    yield f"## Plan\n\n{code_block(json.dumps(plan.to_dict(), indent=1), 'json')}"


def code_block(code: str, language: str) -> str:
    """A fence that no text inside can close."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def _tables(means: Table, titles: Mapping[str, str]) -> Iterator[str]:
    """Two tables per data set, best in bold: accuracy, and where there are groups the accuracy of the worst of them."""
    seeds = max(row["n_seeds"] for row in means)
    for data in dict.fromkeys(row["data"] for row in means):
        mine = [row for row in means if row["data"] == data]
        methods = [m for m in titles if any(row["method"] == m for row in mine)]
        layout = _wide if len(methods) > _MANY else _long
        yield f"## {markdown_text(data)}: accuracy\n\nMean ± standard error over {seeds} seeds, in percent.\n"
        yield from layout(mine, methods, titles, ("mean", "standard_error"))
        yield ""
        if any(row["worst_group"] is not None for row in mine):
            yield f"### {markdown_text(data)}: accuracy of the worst group\n"
            yield "A group is a label with a value of the group column; the worst is taken in every run.\n"
            yield from layout(mine, methods, titles, ("worst_group", "worst_group_error"))
            yield ""


def _cells(rows: Table) -> list[tuple[str, int]]:
    """Targets in the order of the results, labels ascending."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    return sorted({(row["target"], row["shots"]) for row in rows}, key=lambda c: (targets.index(c[0]), c[1]))


def _long(rows: Table, methods: list[str], titles: Mapping[str, str], columns: tuple[str, str]) -> Iterator[str]:
    yield "| target | labels per class | " + " | ".join(markdown_text(titles[m]) for m in methods) + " |"
    yield "|---|---" + "|---" * len(methods) + "|"
    for target, shots in _cells(rows):
        found = {row["method"]: row for row in rows if (row["target"], row["shots"]) == (target, shots)}
        best = max(row[columns[0]] or 0.0 for row in found.values())
        cells = " | ".join(_cell(found.get(m), best, columns) for m in methods)
        yield f"| {markdown_text(target)} | {shots} | {cells} |"


def _wide(rows: Table, methods: list[str], titles: Mapping[str, str], columns: tuple[str, str]) -> Iterator[str]:
    """Many methods are easier to read as rows."""
    cells = _cells(rows)
    found = {(row["target"], row["shots"], row["method"]): row for row in rows}
    best = [max(row[columns[0]] or 0.0 for row in rows if (row["target"], row["shots"]) == cell) for cell in cells]
    yield "| method | " + " | ".join(f"{markdown_text(target)} {shots}" for target, shots in cells) + " |"
    yield "|---" * (len(cells) + 1) + "|"
    for m in methods:
        shown = " | ".join(_cell(found.get((*c, m)), b, columns) for c, b in zip(cells, best))
        yield f"| {markdown_text(titles[m])} | {shown} |"


def _cell(row: Mapping[str, Any] | None, best: float, columns: tuple[str, str]) -> str:
    if row is None or row[columns[0]] is None:
        return ""
    value, error = row[columns[0]], row[columns[1]]
    number = f"**{100 * value:.1f}**" if round(value, 3) >= round(best, 3) else f"{100 * value:.1f}"
    return number + ("" if error is None else f" ± {100 * error:.1f}")


def _made(summary: Mapping[str, Any]) -> Iterator[str]:
    yield "## How it was made\n"
    versions = ", ".join(f"{k} {v}" for k, v in summary["versions"].items() if k != "platform")
    made = f"{summary['runs']} runs; {summary['batch_seconds']:.0f} s of work in batches; {versions}"
    yield f"* {markdown_text(made)}; recipe `{slug(summary['recipe'])}`"
    for name, data in summary["data"].items():
        counts = data.get("targets")
        targets = ", ".join(f"{t} {n}" for t, n in (counts if isinstance(counts, dict) else {}).items())
        rows = f"{name}: {data.get('source')} source rows of width {data.get('width')}; target rows: {targets}"
        yield f"* {markdown_text(rows)}; digest `{slug(data.get('digest'))}`"
    yield ""
