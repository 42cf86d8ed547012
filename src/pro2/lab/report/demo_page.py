"""The page of `pro2 demo`: what was measured, in one sentence, in small charts and in tables; plain HTML and SVG.

The base installation shows it: no data frames and no plotting library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from pro2.atomic import atomic_write
from pro2.lab.demo import AVERAGED, PAPER

Rows = Sequence[dict[str, Any]]
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")  # Okabe & Ito (2008)
SHIFTS = {"id": "no shift", "near": "mild shift", "far": "severe shift"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 260, 190, 44, 246, 8, 152


def template(name: str = "demo.html") -> jinja2.Template:
    """A template of this package; names in it are escaped."""
    loader = jinja2.PackageLoader("pro2.lab.report", ".")
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(name)


def write_demo_page(collages: Rows, shog: Rows, path: Path, next_steps: Sequence[tuple[str, str]]) -> Path:
    """Write the page; `next_steps` are commands and what each does."""
    shots, targets = values_of(collages, "n_shots"), values_of(collages, "target")
    charts = [
        chart(f"only {t} predicts the class", "labels per class", shots,
              {m: [mean_and_error(collages, method=m, target=t, n_shots=n)[0] for n in shots]
               for m in values_of(collages, "method")}, (40, 100))
        for t in targets
    ]  # fmt: skip
    features, labels = values_of(shog, "n_features"), values_of(shog, "n_shots")
    exact = [
        chart(SHIFTS[t], "features d", features,
              {f"{n} labels per class": [mean_and_error(shog, target=t, n_shots=n, n_features=d)[0] for d in features]
               for n in labels}, (50, 100))
        for t in values_of(shog, "target")
    ]  # fmt: skip
    page = template().render(
        verdict=verdict(collages), collages=charts, shog=exact, means=accuracy_lines(collages), shots=shots,
        methods=list(zip(COLOURS, values_of(collages, "method"))), steps=next_steps,
        shog_lines=[(colour, f"{n} labels per class") for colour, n in zip(COLOURS, labels)],
    )  # fmt: skip
    return atomic_write(path, lambda file: file.write(page.encode()), force=True)


def values_of(rows: Rows, name: str) -> list[Any]:
    """Different values of a column, in the order of the rows."""
    return list(dict.fromkeys(row[name] for row in rows))


def mean_and_error(rows: Rows, **values: Any) -> tuple[float, float]:
    """Mean accuracy in percent of the rows that have these values, and its standard error over draws."""
    draws: dict[Any, list[float]] = {}
    for row in rows:
        if all(row[key] == value for key, value in values.items()):
            draws.setdefault(row.get("seed"), []).append(100 * row["accuracy"])
    # targets are fixed, draws are random: how targets differ is no error of their mean
    means = np.array([np.mean(found) for found in draws.values()])
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0


def accuracy_lines(rows: Rows) -> list[tuple[str, list[tuple[str, bool]]]]:
    """For each method its accuracy with its standard error by labels per class, and whether that is the best."""
    shots, methods = values_of(rows, "n_shots"), values_of(rows, "method")
    found = {m: [mean_and_error(rows, method=m, n_shots=n) for n in shots] for m in methods}
    best = [max(cells[i][0] for cells in found.values()) for i in range(len(shots))]
    return [(m, [(f"{v:.1f} ± {e:.1f}", v >= b) for (v, e), b in zip(cells, best)]) for m, cells in found.items()]


def verdict(rows: Rows) -> str:
    """What the rows say, in one sentence."""
    shots = values_of(rows, "n_shots")
    few, many = min(shots), max(shots)
    at = {m: mean_and_error(rows, method=m, n_shots=few)[0] for m in values_of(rows, "method")}
    others = [f"{m} {value:.1f}%" for m, value in at.items() if m not in (AVERAGED, PAPER)]
    return (
        f"With {few} labels per class, the accuracy on the targets is {at[AVERAGED]:.1f}% for {AVERAGED} and "
        f"{at[PAPER]:.1f}% for {PAPER} ({', '.join(others)}). With {many} labels per class, it is "
        f"{mean_and_error(rows, method=AVERAGED, n_shots=many)[0]:.1f}% and "
        f"{mean_and_error(rows, method=PAPER, n_shots=many)[0]:.1f}%."
    )


def chart(
    title: str, label: str, ticks: Sequence[int], lines: Mapping[str, Sequence[float]], span: tuple[int, int]
) -> Markup:
    """Lines over equally spaced ticks, in percent of accuracy."""
    low, high = span
    xs = np.linspace(LEFT + 6, RIGHT - 4, len(ticks)).round(1).tolist()

    def y(value: float) -> float:
        return round(BOTTOM - (min(max(value, low), high) - low) / (high - low) * (BOTTOM - TOP), 1)

    drawn = [
        {"name": name, "colour": colour, "points": [(x, y(v)) for x, v in zip(xs, values)],
         "text": ", ".join(f"{v:.1f} at {tick}" for tick, v in zip(ticks, values))}
        for colour, (name, values) in zip(COLOURS, lines.items())
    ]  # fmt: skip
    grid = [(value, y(value)) for value in range(low, high + 1, 20 if high - low > 50 else 10)]
    box = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "middle": (TOP + BOTTOM) / 2}
    module: Any = template().make_module({"macros_only": True})
    return Markup(module.chart(title, label, list(zip(xs, ticks)), grid, drawn, box))


def legend(names: Sequence[str]) -> Markup:
    """Names with their colours, for the charts of the documentation."""
    module: Any = template().make_module({"macros_only": True})
    return Markup(module.legend(list(zip(COLOURS, names))))
