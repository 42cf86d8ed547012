"""The page of `pro2 demo`: what was measured, in one sentence, in small charts and in tables; plain HTML and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from pro2.lab.experiments.view import write_text
from pro2.lab.report.names import html_text
from pro2.lab.report.selection import where
from pro2.lab.report.style import COLOURS
from pro2.lab.report.tables import values_of

Rows = Sequence[dict[str, Any]]
Lines = Mapping[str, Sequence[float]]
SHIFTS = {"id": "no shift", "near": "mild shift", "far": "severe shift"}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 260, 180, 34, 24


def write_demo_page(collages: Rows, shog: Rows, path: Path, next_steps: Sequence[tuple[str, str]]) -> Path:
    """Write the page; `next_steps` are commands and what each does."""
    template = Template((resources.files("pro2.lab.report") / "demo.html").read_text(encoding="utf-8"))
    steps = "".join(f"<dt><code>{html_text(step)}</code></dt><dd>{html_text(why)}</dd>" for step, why in next_steps)
    page = template.substitute(
        verdict=html_text(verdict(collages)),
        legend=legend(values_of(collages, "method")),
        collages=_collage_charts(collages),
        means=_means(collages),
        shog=_shog_charts(shog),
        steps=steps,
    )
    return write_text(path, page)


def mean_and_error(rows: Rows, **values: Any) -> tuple[float, float]:
    """Mean accuracy in percent of the rows that have these values, and its standard error."""
    found = 100 * np.array([row["accuracy"] for row in where(rows, **values)])
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))


def verdict(rows: Rows) -> str:
    """What the rows say, in one sentence."""
    methods, shots = values_of(rows, "method"), values_of(rows, "n_shots")
    few, many = min(shots), max(shots)
    at = {(m, n): mean_and_error(rows, method=m, n_shots=n)[0] for m in methods for n in (few, many)}
    others = [m for m in methods if m not in ("the default", "source head")]
    rest = " and ".join(f"{m} {at[m, few]:.1f}%" for m in others)
    return (
        f"With {few} labels per class the default is right on {at['the default', few]:.1f}% of the target rows, the "
        f"source head on {at['source head', few]:.1f}% ({rest}); with {many} it reaches "
        f"{at['the default', many]:.1f}%."
    )


def _collage_charts(rows: Rows) -> str:
    shots = sorted(values_of(rows, "n_shots"))
    charts = []
    for target in sorted(values_of(rows, "target")):
        lines = {
            method: [mean_and_error(rows, method=method, target=target, n_shots=n)[0] for n in shots]
            for method in values_of(rows, "method")
        }
        charts.append(chart(f"only {target} keeps its meaning", "labels per class", shots, lines, (40, 100)))
    return "".join(charts)


def _shog_charts(rows: Rows) -> str:
    features = sorted(values_of(rows, "n_features"))
    charts = []
    for target in values_of(rows, "target"):
        lines = {
            f"{n} labels per class": [100 * r["accuracy"] for r in where(rows, target=target, n_shots=n)]
            for n in sorted(values_of(rows, "n_shots"))
        }
        charts.append(chart(SHIFTS[target], "features d", features, lines, (50, 100)))
    return legend(list(lines)) + f'<div class="charts">{"".join(charts)}</div>'


def chart(title: str, label: str, ticks: Sequence[int], lines: Lines, span: tuple[int, int]) -> str:
    """Lines over equally spaced ticks, in percent."""
    low, high = span
    step = (_WIDTH - _LEFT - 18) / max(1, len(ticks) - 1)
    xs = [_LEFT + 4 + i * step for i in range(len(ticks))]

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (min(max(value, low), high) - low) / (high - low) * (_HEIGHT - _BOTTOM - 8)

    parts = []
    for value in range(low, high + 1, 20):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>')
    for x, tick in zip(xs, ticks):
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{tick}</text>')
    for i, (name, values) in enumerate(lines.items()):
        points = " ".join(f"{x:.1f},{y(value):.1f}" for x, value in zip(xs, values))
        told = f"{name}: " + ", ".join(f"{value:.1f} at {tick}" for tick, value in zip(ticks, values))
        colour = COLOURS[i]
        parts.append(f'<g stroke="{colour}" fill="{colour}"><title>{html_text(told)}</title>')
        parts.append(f'<polyline fill="none" stroke-width="2.2" points="{points}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y(value):.1f}" r="3"/>' for x, value in zip(xs, values)]
        parts.append("</g>")
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html_text(title)}">{"".join(parts)}</svg>'
    return f"<figure>{svg}<figcaption>{html_text(title)} <span>({html_text(label)})</span></figcaption></figure>"


def legend(names: Sequence[str]) -> str:
    """Names beside their colours."""
    items = "".join(f'<li><i style="background:{c}"></i>{html_text(name)}</li>' for c, name in zip(COLOURS, names))
    return f'<ul class="legend">{items}</ul>'


def _means(rows: Rows) -> str:
    """Mean over the four targets, with its standard error over targets and draws."""
    methods, shots = values_of(rows, "method"), sorted(values_of(rows, "n_shots"))
    head = "".join(f"<th>{n} labels per class</th>" for n in shots)
    found = {m: [mean_and_error(rows, method=m, n_shots=n) for n in shots] for m in methods}
    best = [max(mean for mean, _ in column) for column in zip(*found.values())]
    body = ""
    for method, cells in found.items():
        marked = "".join(
            f"<td{' class=best' if mean >= most else ''}>{mean:.1f} ± {error:.1f}</td>"
            for (mean, error), most in zip(cells, best)
        )
        body += f"<tr><th>{html_text(method)}</th>{marked}</tr>"
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
