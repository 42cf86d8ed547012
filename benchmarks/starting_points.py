"""What a model can start from besides labelled source rows, and many labels at once, on real embeddings.

    python benchmarks/starting_points.py DATA --synsets imagenet_synsets.txt [--seeds 10] [--out MD]

DATA holds living_tiny.npz, living_tiny_classes.json and celeba10k.npz. The file of synsets has the 1,000 WordNet ids of
ImageNet in order, one per line (timm ships one); with it the last layer of EfficientNet-Lite0, averaged over the
ImageNet classes of each Living class, is a head to start from. Times are processor seconds: use one BLAS thread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from harness import Page, show, write_page
from rivals import TITLES, create_method, create_rivals
from sklearn.metrics import average_precision_score
from tasks import Task, living

from pro2 import MultiLabelProjectAndProbe, ProjectAndProbe, SourceMoments
from pro2.tables.draws import draw

SHOTS = (1, 2, 5)
ROWS = (8, 32, 128)  # labelled rows of the multi-label targets
NEW = 4  # classes that the source of the last start lacks
MALE = "Male"
LIVING = "Living, 17 classes: accuracy, %, by labels per class"
CELEBA = "CelebA: mean average precision over labels, %, by labelled rows"
TIMES = "CelebA, 40 labels: processor seconds"
NOTES = (
    "Means over draws with standard errors. Living: draws and unlabelled rows come from one half of the target, and "
    "accuracy is on the other. A head is the last layer of EfficientNet-Lite0, whose embeddings these are, averaged "
    "over the ImageNet classes that are subclasses of a Living class: of those in the source, or of all. 0 labels: the "
    "head itself.",
    "CelebA: rows are drawn at random, so a rare label may have one value only among them. Without a shift a "
    "handful of rows has little to teach the source heads, and adapting mostly adds noise.",
    "Times are of one thread, all 40 labels. What a label needs beyond its head is made when it is first adapted to: "
    "only the second row counts it.",
)
Cells = dict[str, dict[int, list[float]]]  # what was measured, by row of a table and number of labels, over draws


def imagenet_head(data: Path, synsets: Path, parts: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """EfficientNet-Lite0's last layer, averaged over the ImageNet classes of each Living class: (17, 1280), (17,)."""
    import torch

    from pro2.embed.networks import lite_weights

    state = torch.load(lite_weights("efficientnet-lite0"), map_location="cpu", weights_only=True)
    place = {name: i for i, name in enumerate(synsets.read_text().split())}
    classes = json.loads((data / "living_tiny_classes.json").read_text())
    own = [[place[name] for part in parts for name in each[part]] for each in classes.values()]
    layer = [state[f"_fc.{name}"].numpy().astype(np.float64) for name in ("weight", "bias")]
    return np.stack([layer[0][i].mean(axis=0) for i in own]), np.array([layer[1][i].mean() for i in own])


def starts(task: Task, pool: np.ndarray, heads: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fitted models by what they were made from; `pool` are target rows without labels."""
    X, y, source = task.X, task.y, task.source
    yield "rows: Pro2 averaged", ProjectAndProbe().fit(X[source], y[source])
    others = {TITLES[key]: rival for key, rival in create_rivals().items()}
    others |= {name: create_method(name) for name in ("clap", "lp++")}
    for title, other in others.items():
        yield f"rows: {title}", other.fit(X[source], y[source])
    sites = [SourceMoments.from_arrays(X[part], y[part]) for part in np.array_split(source, 4)]
    yield "moments of four sites: Pro2 averaged", ProjectAndProbe.from_moments(reduce(add, sites))
    classes = np.unique(y)
    for title, (coef, intercept) in heads.items():
        model = ProjectAndProbe.from_head(coef, intercept, classes, X[pool])
        yield f"{title}: Pro2 averaged", model
        for name in ("clap", "lp++"):
            yield f"{title}: {name}", create_method(name).start(model.source_head_, X[pool])
    yield "unlabelled rows alone: Pro2 averaged", ProjectAndProbe.from_unlabeled(X[pool], classes)


def living_cells(task: Task, heads: dict[str, Any], n_seeds: int) -> Cells:
    """Accuracy, %, on the half of the target that no start and no draw touches; 0 labels is the head itself."""
    half = np.random.default_rng(0).permutation(task.targets["target"])
    pool, test = np.array_split(half, 2)
    X, y, cells = task.X, task.y, {}
    for name, model in starts(task, pool, heads):
        cells[name] = {0: [100 * model.score(X[test], y[test])]} if "alone" not in name else {}
        for shots in SHOTS:
            few = [draw(y, pool, shots, seed).few for seed in range(n_seeds)]
            cells[name][shots] = [100 * model.adapt(X[i], y[i]).score(X[test], y[test]) for i in few]
        print(name, {k: round(float(np.mean(v)), 1) for k, v in cells[name].items()}, flush=True)
    return cells | new_class_cells(task, pool, test, n_seeds)


def new_class_cells(task: Task, pool: np.ndarray, test: np.ndarray, n_seeds: int) -> Cells:
    """A source without the last classes, whose labels appear on the target only."""
    X, y = task.X, task.y
    known = task.source[y[task.source] < y.max() + 1 - NEW]
    model = ProjectAndProbe().fit(X[known], y[known])
    cells: Cells = {}
    for shots in SHOTS:
        few = [draw(y, pool, shots, seed).few for seed in range(n_seeds)]
        adapted = [model.adapt(X[i], y[i], new_classes="allow") for i in few]
        new = test[y[test] > y.max() - NEW]
        for name, rows in (("all classes", test), (f"the {NEW} new classes", new)):
            cell = cells.setdefault(f"rows of all but {NEW} classes: Pro2 averaged, on {name}", {})
            cell[shots] = [100 * each.score(X[rows], y[rows]) for each in adapted]
    return cells


def faces(data: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Title, rows, labels, source and target of the same faces and of women and men."""
    z = np.load(data / "celeba10k.npz")
    X, Y, names = z["embeddings"].astype(np.float32), z["attributes"].astype(int), z["attribute_names"].tolist()
    yield "no shift: the first 7,000 faces to the others", X, Y, np.arange(7000), np.arange(7000, 10000)
    men = Y[:, names.index(MALE)] == 1
    kept = [t for t in range(Y.shape[1]) if min((Y[g, t] == v).sum() for g in (men, ~men) for v in (0, 1)) >= 20]
    yield f"women to men ({len(kept)} labels)", X, Y[:, kept], np.flatnonzero(~men), np.flatnonzero(men)


def label_cells(data: Path, n_seeds: int) -> Cells:
    """Mean average precision, %, of source heads and of adapted ones, and what adapting changed."""
    cells: Cells = {}
    for title, X, Y, source, target in faces(data):
        model = MultiLabelProjectAndProbe().fit(X[source], Y[source])
        for n in ROWS:
            for seed in range(n_seeds):
                order = np.random.default_rng(seed).permutation(target)
                for name, value in label_draw(model, X, Y, order[:n], order[n:]).items():
                    cells.setdefault(f"{title}: {name}", {}).setdefault(n, []).append(value)
            print(title, n, {k: round(float(np.mean(v[n])), 2) for k, v in cells.items() if n in v}, flush=True)
    return cells


def label_draw(model: Any, X: np.ndarray, Y: np.ndarray, few: np.ndarray, test: np.ndarray) -> dict[str, float]:
    before, after = (
        100 * np.array(average_precision_score(Y[test], each.decision_function(X[test]), average=None))
        for each in (model, model.adapt(X[few], Y[few]))
    )
    both = Y[few].min(axis=0) < Y[few].max(axis=0)
    gain = after - before
    parts = {
        "source heads": before,
        "adapted": after,
        "difference": gain,
        "difference, labels with both values among the rows": gain[both],
        "difference, labels with one value among them": gain[~both],
    }
    return {name: float(values.mean()) for name, values in parts.items() if len(values)}


def seconds(work: Any, *args: Any) -> float:
    start = time.process_time()
    work(*args)
    return time.process_time() - start


def times(data: Path) -> list[list[str]]:
    """All labels at once, compared with one model per label: fitting, and fitting with one adaptation."""
    _, X, Y, source, target = next(faces(data))
    few, T = target[:32], Y.shape[1]

    def one_by_one(adapting: bool) -> None:
        for t in range(T):
            model = ProjectAndProbe().fit(X[source], Y[source, t])
            if adapting:
                model.adapt(X[few], Y[few, t])

    def at_once(adapting: bool) -> None:
        model = MultiLabelProjectAndProbe().fit(X[source], Y[source])
        if adapting:
            model.adapt(X[few], Y[few])

    at_once(True)  # what is loaded on first use is not counted
    body = []
    for title, adapting in (("fit", False), ("fit, then adapt with 32 rows", True)):
        a, b = min(seconds(at_once, adapting) for _ in range(3)), seconds(one_by_one, adapting)
        body.append([title, f"{b:.1f}", f"{a:.1f}", f"{b / a:.1f}"])
        print(body[-1], flush=True)
    return body


def cell_table(title: str, cells: Cells, columns: tuple[int, ...], first: str) -> Page:
    head = [first, *map(str, columns)]
    return title, head, [[name, *(_shown(cell.get(n)) for n in columns)] for name, cell in cells.items()]


def _shown(values: list[float] | None) -> str:
    if not values:
        return ""
    error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--synsets", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    heads = {
        "head of the source's subclasses": imagenet_head(args.data, args.synsets, ("source",)),
        "head of all subclasses": imagenet_head(args.data, args.synsets, ("source", "target")),
    }
    pages = [
        cell_table(LIVING, living_cells(living(args.data), heads, args.seeds), (0, *SHOTS), "start: method"),
        cell_table(CELEBA, label_cells(args.data, args.seeds), ROWS, "target: heads"),
        (TIMES, ["work", "one model per label", "all at once", "ratio"], times(args.data)),
    ]
    show(pages)
    if args.out:
        command = f"python benchmarks/starting_points.py DATA --synsets imagenet_synsets.txt --seeds {args.seeds}"
        write_page(args.out, pages, command, "Other starting points, and many labels at once", NOTES)


if __name__ == "__main__":
    main()
