"""The page of `pro2 demo`: what was measured, in one sentence, in small charts and in tables; plain HTML and SVG."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.lab.report.style import COLOURS

Rows = Sequence[dict[str, Any]]
Lines = Mapping[str, Sequence[float]]
_SHIFTS = {"id": "no shift", "near": "mild shift", "far": "severe shift"}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 260, 180, 34, 24


def write_demo_page(collages: Rows, shog: Rows, path: Path, next_steps: Sequence[tuple[str, str]]) -> Path:
    """Write the page; `next_steps` are commands and what each does."""
    template = Template((resources.files("pro2.lab.report") / "demo.html").read_text(encoding="utf-8"))
    steps = "".join(f"<dt><code>{_text(command)}</code></dt><dd>{_text(why)}</dd>" for command, why in next_steps)
    page = template.substitute(
        verdict=_text(verdict(collages)),
        legend=legend(_methods(collages)),
        collages=_collage_charts(collages),
        means=_means(collages),
        shog=_shog_charts(shog),
        steps=steps,
    )
    return atomic_write(path, lambda file: file.write(page.encode()), force=True)


def mean_and_error(rows: Rows, **where: Any) -> tuple[float, float]:
    """Mean accuracy in percent of the rows that match, and its standard error."""
    values = 100 * np.array([r["accuracy"] for r in rows if all(r[k] == v for k, v in where.items())])
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def verdict(rows: Rows) -> str:
    """What the rows say, in one sentence."""
    few, many = min(_shots(rows)), max(_shots(rows))
    at = {(m, n): mean_and_error(rows, method=m, n_shots=n)[0] for m in _methods(rows) for n in (few, many)}
    others = [m for m in _methods(rows) if m not in ("Pro2", "source head")]
    rest = " and ".join(f"{m} {at[m, few]:.1f} %" for m in others)
    return (
        f"With {few} labels per class Pro2 is right on {at['Pro2', few]:.1f} % of the target rows, the source head on "
        f"{at['source head', few]:.1f} % ({rest}); with {many} labels per class Pro2 reaches {at['Pro2', many]:.1f} %."
    )


def _methods(rows: Rows) -> list[str]:
    return list(dict.fromkeys(r["method"] for r in rows))


def _shots(rows: Rows) -> list[int]:
    return sorted({r["n_shots"] for r in rows})


def _collage_charts(rows: Rows) -> str:
    shots = _shots(rows)
    charts = []
    for target in sorted({r["target"] for r in rows}):
        lines = {
            method: [mean_and_error(rows, method=method, target=target, n_shots=n)[0] for n in shots]
            for method in _methods(rows)
        }
        charts.append(chart(f"only {target} keeps its meaning", "labels per class", shots, lines, (40, 100)))
    return "".join(charts)


def _shog_charts(rows: Rows) -> str:
    features = sorted({r["n_features"] for r in rows})
    charts = []
    for target in dict.fromkeys(r["target"] for r in rows):
        lines = {
            f"{n} labels per class": [100 * r["accuracy"] for r in rows if r["target"] == target and r["n_shots"] == n]
            for n in _shots(rows)
        }
        charts.append(chart(_SHIFTS.get(target, target), "features d", features, lines, (50, 100)))
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
        parts.append(f'<g stroke="{colour}" fill="{colour}"><title>{_text(told)}</title>')
        parts.append(f'<polyline fill="none" stroke-width="2.2" points="{points}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y(value):.1f}" r="3"/>' for x, value in zip(xs, values)]
        parts.append("</g>")
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_text(title)}">{"".join(parts)}</svg>'
    return f"<figure>{svg}<figcaption>{_text(title)} <span>({_text(label)})</span></figcaption></figure>"


def legend(names: Sequence[str]) -> str:
    """Names beside their colours."""
    items = "".join(f'<li><i style="background:{COLOURS[i]}"></i>{_text(name)}</li>' for i, name in enumerate(names))
    return f'<ul class="legend">{items}</ul>'


def _means(rows: Rows) -> str:
    """Mean over the four targets, with its standard error over targets and draws."""
    shots = _shots(rows)
    head = "".join(f"<th>{n} labels per class</th>" for n in shots)
    best = {n: max(mean_and_error(rows, method=m, n_shots=n)[0] for m in _methods(rows)) for n in shots}
    body = ""
    for method in _methods(rows):
        cells = [(mean_and_error(rows, method=method, n_shots=n), n) for n in shots]
        marked = "".join(
            f"<td{' class=best' if mean >= best[n] else ''}>{mean:.1f} ± {error:.1f}</td>" for (mean, error), n in cells
        )
        body += f"<tr><th>{_text(method)}</th>{marked}</tr>"
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    return html.escape(str(value))
