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
from pro2.lab.report.selection import Rules, explain, grouped, where
from pro2.lab.report.style import figure_style
from pro2.lab.report.tables import Table, values_of, write_csv

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
    line, meaning = explain(rules if means else {}, results.titles)
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
    for (data,), mine in grouped(means, "data").items():
        yield f"## {markdown_text(data)}: accuracy\n\nMean ± standard error over {seeds} seeds, in percent.\n"
        yield from _table(mine, titles, "mean", "standard_error")
        yield ""
        if any(row["worst_group"] is not None for row in mine):
            yield f"### {markdown_text(data)}: accuracy of the worst group\n"
            yield "A group is a label with a value of the group column; the worst is taken in every run.\n"
            yield from _table(mine, titles, "worst_group", "worst_group_error")
            yield ""


def _table(rows: Table, titles: Mapping[str, str], value: str, error: str) -> Iterator[str]:
    """A line for each target and number of labels; a line for each method where those would be too many columns."""
    targets = values_of(rows, "target")
    cells = sorted(grouped(rows, "target", "shots").items(), key=lambda c: (targets.index(c[0][0]), c[0][1]))
    methods = [m for m in titles if where(rows, method=m)]
    found = []  # a list for each cell, an entry for each method
    for _, mine in cells:
        best, by_method = max(row[value] or 0.0 for row in mine), {row["method"]: row for row in mine}
        found.append([_number(by_method.get(m, {}), best, value, error) for m in methods])
    names = [markdown_text(titles[m]) for m in methods]
    if len(methods) > _MANY:
        head = ["method", *(f"{markdown_text(target)} {shots}" for (target, shots), _ in cells)]
        lines = [[name, *each] for name, each in zip(names, zip(*found))]
    else:
        head = ["target", "labels per class", *names]
        lines = [[markdown_text(target), str(shots), *each] for ((target, shots), _), each in zip(cells, found)]
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (f"| {' | '.join(line)} |" for line in lines)


def _number(row: Mapping[str, Any], best: float, value: str, error: str) -> str:
    """In percent, the best in bold; nothing where it was not measured."""
    if row.get(value) is None:
        return ""
    number = f"**{100 * row[value]:.1f}**" if round(row[value], 3) >= round(best, 3) else f"{100 * row[value]:.1f}"
    return number + ("" if row[error] is None else f" ± {100 * row[error]:.1f}")


def _made(summary: Mapping[str, Any]) -> Iterator[str]:
    yield "## How it was made\n"
    versions = ", ".join(f"{k} {v}" for k, v in summary["versions"].items() if k != "platform")
    # only methods that need gradient steps use the device, and not every plan has one
    device = f"; gradient steps on {summary['device']}" if summary["device"] else ""
    made = f"{summary['runs']} runs; {summary['batch_seconds']:.0f} s of work in batches{device}; {versions}"
    yield f"* {markdown_text(made)}; recipe `{slug(summary['recipe'])}`"
    for name, data in summary["data"].items():
        counts = data.get("targets")
        targets = ", ".join(f"{t} {n}" for t, n in (counts if isinstance(counts, dict) else {}).items())
        rows = f"{name}: {data.get('source')} source rows of width {data.get('width')}; target rows: {targets}"
        yield f"* {markdown_text(rows)}; digest `{slug(data.get('digest'))}`"
    yield ""
