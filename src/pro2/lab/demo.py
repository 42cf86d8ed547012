"""`pro2 demo`: digit collages under four shifts, shifted Gaussians where theory is exact, and a page about both.

The base installation shows the page, plain HTML and SVG: no data frames and no plotting library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from pro2.atomic import atomic_write
from pro2.estimators import Probe, ProjectAndProbe
from pro2.lab.baselines import create_baseline
from pro2.lab.datasets.digits import make_digit_collages
from pro2.lab.datasets.shog import make_shog
from pro2.linalg.basis import krylov_basis
from pro2.tables.csv_files import write_rows
from pro2.tables.draws import draw

AVERAGED, PAPER, SOURCE = "averaged Pro2", "the paper's Pro2", "source head"
SHOTS, SEEDS = (2, 8, 32), 10
SHOG_FEATURES = (1, 2, 4, 8, 20)
SHOG_SHOTS = (4, 16, 64, 256)
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")  # Okabe & Ito (2008)
SHIFTS = {"id": "no shift", "near": "mild shift", "far": "severe shift"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 260, 190, 44, 246, 8, 152  # of a chart
Rows = Sequence[dict[str, Any]]


def demo_methods() -> dict[str, Any]:
    """Each chooses its own settings from the few target labels alone."""
    return {
        AVERAGED: ProjectAndProbe(),
        PAPER: ProjectAndProbe(n_features="loo", l2="loo"),
        SOURCE: create_baseline("source-only"),
        "linear probe": create_baseline("linear-probe"),
        "random projection": create_baseline("random", random_state=0),
    }


def adapted_rows(
    X: np.ndarray, y: np.ndarray, source: np.ndarray, targets: Mapping[str, np.ndarray],
    shots: Iterable[int] = SHOTS, seeds: Iterable[int] = range(SEEDS), advance: Callable[[], None] = lambda: None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """One row per fit: method, target, n_shots, seed, accuracy on all other rows. `advance` is called after each."""
    models = {name: method.fit(X[source], y[source]) for name, method in demo_methods().items()}
    for target, rows in targets.items():
        for n_shots in shots:
            for seed in seeds:
                few = draw(y, rows, n_shots, seed)
                for name, model in models.items():
                    score = model.adapt(X[few.few], y[few.few]).score(X[few.rest], y[few.rest])
                    yield {"method": name, "target": target, "n_shots": n_shots, "seed": seed, "accuracy": score}
                    advance()


def collage_rows(advance: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    """Digit collages: all four digits tell the class in the source, one of them in each target."""
    table = make_digit_collages()
    X, y, split = np.asarray(table.embeddings), table.column("y"), table.column("split")
    targets = {name: split == name for name in sorted(set(split) - {"source"})}
    yield from adapted_rows(X, y, split == "source", targets, SHOTS, range(SEEDS), advance)


def n_collage_rows() -> int:
    """How many rows `collage_rows` gives."""
    return len(demo_methods()) * 4 * len(SHOTS) * SEEDS


def shog_rows(advance: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    """Shifted Gaussians: target, n_features, n_shots, mean exact accuracy over seeds of a probe on the first d."""
    shog = make_shog(random_state=0)
    components = krylov_basis(shog.moments(), shog.n_features).components
    for target in shog.targets:
        for n_shots in SHOG_SHOTS:
            draws = [shog.sample(target, 2 * n_shots, seed) for seed in range(SEEDS)]
            for d in SHOG_FEATURES:
                probes = [Probe(l2=0.01).fit(X @ components[:d].T, y) for X, y in draws]
                found = [shog.accuracy(target, p.coef_[0] @ components[:d], float(p.intercept_[0])) for p in probes]
                yield {"target": target, "n_features": d, "n_shots": n_shots, "accuracy": float(np.mean(found))}
        advance()


def save_rows(path: Path, rows: Rows) -> None:
    """Rows of one kind as a CSV file."""
    values = [list(row.values()) for row in rows]
    atomic_write(path, lambda file: write_rows(file, list(rows[0]), values), force=True)


def template() -> jinja2.Template:
    """The page, and the macros for its charts; names in it are escaped."""
    loader = jinja2.PackageLoader("pro2.lab", ".")
    options: Any = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    return jinja2.Environment(loader=loader, **options).get_template("demo.html")


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
