"""One HTML page that needs nothing else: figures inside, light and dark, a table to sort and filter."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from pro2.lab.report.drawings import Drawn
from pro2.lab.report.loading import Results
from pro2.lab.report.names import html_text
from pro2.lab.report.selection import Rules, explain, grouped
from pro2.lab.report.style import GRID, INK
from pro2.lab.report.tables import Table


def inline_svg(drawn: Drawn) -> str:
    """The drawing as SVG, and again with its panels below each other: the page shows what its width has room for."""
    if drawn.narrow is None:
        return _svg(drawn.figure, drawn.name, drawn.title, "")
    wide, narrow = (drawn.figure, drawn.name, "wide"), (drawn.narrow, f"{drawn.name}-narrow", "narrow")
    return "".join(_svg(figure, name, drawn.title, kind) for figure, name, kind in (wide, narrow))


def _svg(figure: Any, name: str, title: str, kind: str) -> str:
    """A figure as SVG that takes its text and grid colours from the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*pt"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*pt"', r"\1", text, count=1)
    # Ids count from one in every drawing; on one page each needs its own.
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    width = float(figure.get_figwidth()) * 110
    shown = f'role="img" class="{kind}" aria-label="{html_text(title)}" style="width:{width:.0f}px"'
    text = text.replace("<svg", f"<svg {shown}", 1)
    return text.replace(INK, "currentColor").replace(GRID, "var(--line)")


def render_page(results: Results, rules: Rules, figures: Sequence[Drawn], means: Table) -> str:
    """The whole page as text."""
    plan, summary = results.plan, results.summary
    line, meaning = explain(rules if means else {}, results.titles)
    return fill_page(
        title=plan.title or plan.name,
        description=plan.description,
        rule_name=line,
        rule_text=meaning,
        skips=_skips(summary),
        figures="\n".join(_figure(d) for d in figures),
        table=_results(means, results.titles) if means else "",
        plan=json.dumps(plan.to_dict(), indent=1),
        facts=_facts(summary),
    )


def fill_page(skips: str, figures: str, table: str, facts: str, **texts: str) -> str:
    """The template with its places filled: four of them hold HTML that was made here, all others are plain text."""
    template = Template((resources.files("pro2.lab.report") / "page.html").read_text(encoding="utf-8"))
    escaped = {name: "\n".join(map(html_text, text.split("\n"))) for name, text in texts.items()}
    return template.substitute(skips=skips, figures=figures, table=table, facts=facts, **escaped)


def _figure(drawn: Drawn) -> str:
    links = ", ".join(f'<a href="{drawn.name}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg", "csv"))
    return (
        f'<h2>{html_text(drawn.title)}</h2><figure id="{drawn.name}">{inline_svg(drawn)}'
        f'<figcaption>{html_text(drawn.caption)} <span class="links">{links}</span></figcaption></figure>'
    )


_COLUMNS = (("data", "data"), ("target", "target"), ("shots", "labels per class"), ("method", "method"),
            ("mean", "mean accuracy (%)"), ("standard_error", "standard error"),
            ("standard_deviation", "standard deviation"), ("worst_group", "worst group (%)"),
            ("n_seeds", "seeds"), ("n_features", "features"),
            ("l2", "l2"))  # fmt: skip
_PERCENT = ("mean", "standard_error", "standard_deviation", "worst_group")


def _results(means: Table, titles: Mapping[str, str]) -> str:
    cells = grouped(means, "data", "target", "shots")
    best = {cell: max(row["mean"] for row in rows) for cell, rows in cells.items()}
    head = "".join(f"<th{_text_class(name)}>{html_text(title)}</th>" for name, title in _COLUMNS)
    body = "".join(_row(row, titles, best[row["data"], row["target"], row["shots"]]) for row in means)
    filters = "".join(_filter(means, titles, i, *names) for i, names in enumerate(_COLUMNS[:4]))
    note = (
        "Standard error of the mean and standard deviation, both over seeds (points of accuracy). Features and l2 are "
        "the setting that was chosen most often. The best mean of each cell is bold; click a heading to sort."
    )
    return (
        f'<h2>All results</h2><p class="soft">{note}</p><div class="filters">{filters}<span id="shown"></span></div>'
        f'<div class="table"><table id="results"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _row(row: Mapping[str, Any], titles: Mapping[str, str], best: float) -> str:
    cells = []
    for name, _ in _COLUMNS:
        shown, exact = "" if row[name] is None else row[name], ""
        if name == "method":
            shown = titles.get(shown, shown)
        elif name in _PERCENT and row[name] is not None:
            shown, exact = f"{100 * shown:.1f}", f' data-value="{float(shown)!r}"'
        mark = ' class="best"' if name == "mean" and row["mean"] >= best else _text_class(name)
        cells.append(f"<td{mark}{exact}>{html_text(shown)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _text_class(name: str) -> str:
    return ' class="text"' if name in ("data", "target", "method") else ""


def _filter(means: Table, titles: Mapping[str, str], column: int, name: str, title: str) -> str:
    values = dict.fromkeys(str(titles.get(row[name], row[name]) if name == "method" else row[name]) for row in means)
    options = "".join(f"<option>{html_text(v)}</option>" for v in values)
    select = f'<select data-column="{column}"><option value="">all</option>{options}</select>'
    return f"<label>{html_text(title)} {select}</label>"


def _skips(summary: Mapping[str, Any]) -> str:
    skips, failed = summary["skips"], summary["failed"]
    told = f"<p><strong>{failed} runs failed</strong>; see failures.json.</p>" if failed else ""
    if not skips:
        return told
    items = "".join(f"<li>{html_text(skip_text(s))}</li>" for s in skips)
    heading = f"{len(skips)} parts of the plan were left out, with reasons"
    return f"{told}<details><summary>{heading}</summary><ul>{items}</ul></details>"


def skip_text(skip: Mapping[str, Any]) -> str:
    """What was left out, and why."""
    where = ", ".join(str(skip[k]) for k in ("data", "target", "method") if skip.get(k) not in (None, "*"))
    shots = f", {skip['shots']} shots" if skip.get("shots") is not None else ""
    return f"{where}{shots}: {skip['reason']}"


def _facts(summary: Mapping[str, Any]) -> str:
    facts: dict[str, Any] = {
        "runs": summary["runs"],
        "time of the last start (s)": summary["seconds"],
        "time in batches, all workers (s)": summary["batch_seconds"],
        "recipe": summary["recipe"],
        **summary["versions"],
    }
    for name, data in summary["data"].items():
        facts[f"data: {name}"] = ", ".join(f"{key} {value}" for key, value in data.items())
    return html_rows(facts.items())


def html_table(rows: Iterable[Sequence[Any]]) -> str:
    """A plain table of texts."""
    return f'<div class="table"><table><tbody>{html_rows(rows)}</tbody></table></div>'


def html_rows(rows: Iterable[Sequence[Any]]) -> str:
    """Rows of a table of texts."""
    cells = ("".join(f'<td class="text">{html_text(cell)}</td>' for cell in row) for row in rows)
    return "".join(f"<tr>{row}</tr>" for row in cells)
