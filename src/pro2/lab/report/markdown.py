"""The same results as one Markdown file with its pictures, for a repository's documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pro2.lab.report.page import Drawn, skip_text
from pro2.lab.report.selection import EXPLAINED
from pro2.lab.report.tables import Table, write_csv


def write_markdown(
    docs: Path, plan: Mapping[str, Any], summary: Mapping[str, Any], rule: str, figures: Sequence[Drawn], means: Table
) -> Path:
    """Write ``NAME.md``, and its pictures, rows and plan under ``NAME/``; NAME is the plan's name."""
    name = plan["name"]
    folder = docs / name
    folder.mkdir(parents=True, exist_ok=True)
    for drawn in figures:
        drawn.figure.savefig(folder / f"{drawn.name}.png", facecolor="white", dpi=150)
    if means:
        write_csv(folder / "results.csv", means)
    (folder / "plan.json").write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    page = docs / f"{name}.md"
    page.write_text("\n".join(_lines(plan, summary, rule, figures, means)) + "\n", encoding="utf-8")
    return page


def _lines(
    plan: Mapping[str, Any], summary: Mapping[str, Any], rule: str, figures: Sequence[Drawn], means: Table
) -> Iterator[str]:
    name = plan["name"]
    yield f"# {plan.get('title', name)}\n"
    yield f"{plan.get('description', '')}\n"
    yield "Written by `pro2 sweep` with the plan below and `pro2 report OUT --markdown docs/results`; not edited.\n"
    if means:
        yield f"**Settings chosen {EXPLAINED[rule][0]}.** {EXPLAINED[rule][1]}\n"
        yield from _tables(means, {m["name"]: m.get("title", m["name"]) for m in plan["methods"]})
    for drawn in figures:
        yield f"## {drawn.title}\n\n![{drawn.title}]({name}/{drawn.name}.png)\n\n{drawn.caption}\n"
    if summary["skips"]:
        yield "## Left out\n"
        yield from (f"* {skip_text(skip)}" for skip in summary["skips"])
        yield ""
    yield from _made(summary)
    yield f"## Plan\n\n```json\n{json.dumps(plan, indent=1)}\n```"


def _tables(means: Table, titles: Mapping[str, str]) -> Iterator[str]:
    """One table a data set: accuracy in percent, mean and standard error of the mean over seeds, best in bold."""
    seeds = max(row["n_seeds"] for row in means)
    for data in dict.fromkeys(row["data"] for row in means):
        mine = [row for row in means if row["data"] == data]
        methods = [m for m in titles if any(row["method"] == m for row in mine)]
        yield f"## {data}: accuracy\n\nMean ± standard error over {seeds} seeds, in percent.\n"
        yield from _wide(mine, methods, titles) if len(methods) > 8 else _long(mine, methods, titles)
        yield ""


def _cells(rows: Table) -> list[tuple[str, int]]:
    """Targets in the order of the results, labels ascending."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    return sorted({(row["target"], row["shots"]) for row in rows}, key=lambda c: (targets.index(c[0]), c[1]))


def _long(rows: Table, methods: list[str], titles: Mapping[str, str]) -> Iterator[str]:
    yield "| target | labels per class | " + " | ".join(titles[m] for m in methods) + " |"
    yield "|---|---" + "|---" * len(methods) + "|"
    for target, shots in _cells(rows):
        found = {row["method"]: row for row in rows if (row["target"], row["shots"]) == (target, shots)}
        best = max(row["mean"] for row in found.values())
        yield f"| {target} | {shots} | " + " | ".join(_cell(found.get(m), best) for m in methods) + " |"


def _wide(rows: Table, methods: list[str], titles: Mapping[str, str]) -> Iterator[str]:
    """Many methods are easier to read as rows."""
    cells = _cells(rows)
    found = {(row["target"], row["shots"], row["method"]): row for row in rows}
    best = [max(row["mean"] for row in rows if (row["target"], row["shots"]) == cell) for cell in cells]
    yield "| method | " + " | ".join(f"{target} {shots}" for target, shots in cells) + " |"
    yield "|---" * (len(cells) + 1) + "|"
    for m in methods:
        yield f"| {titles[m]} | " + " | ".join(_cell(found.get((*c, m)), b) for c, b in zip(cells, best)) + " |"


def _cell(row: Mapping[str, Any] | None, best: float) -> str:
    if row is None:
        return ""
    error = "" if row["standard_error"] is None else f" ± {100 * row['standard_error']:.1f}"
    number = f"{100 * row['mean']:.1f}"
    return (f"**{number}**" if round(row["mean"], 3) >= round(best, 3) else number) + error


def _made(summary: Mapping[str, Any]) -> Iterator[str]:
    yield "## How it was made\n"
    versions = ", ".join(f"{k} {v}" for k, v in summary["versions"].items() if k != "platform")
    yield f"* {summary['runs']} runs; {summary['batch_seconds']:.0f} s of work in batches; {versions}"
    for name, data in summary["data"].items():
        targets = ", ".join(f"{t} {n}" for t, n in data["targets"].items())
        source = f"{data['source']} source rows of width {data['width']}"
        yield f"* {name}: {source}; target rows: {targets}; digest `{data['digest']}`"
    yield ""
