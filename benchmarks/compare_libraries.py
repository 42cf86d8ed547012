"""What other libraries do with the same few target labels: accuracy and time, written to docs/results/libraries.md.

    python benchmarks/compare_libraries.py [--waterbirds waterbirds.npz] [--out docs/results/libraries.md]

Runs whatever is installed: scikit-learn always, skada and ADAPT when they can be imported. All methods get the same
rows in one process. None looks at test labels. Penalties are chosen by what a library offers for it; where it offers
nothing (fits on source rows, ADAPT), one constant is used for all cells and can be read below.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import tables
from rivals import TITLES, create_rivals
from tasks import Task, digit_collages, waterbirds

from pro2 import ProjectAndProbe
from pro2.lab.baselines import create_baseline
from pro2.tables.draws import draw

SHOTS, SEEDS = (2, 8, 32), 5
Predictor = Callable[[np.ndarray], np.ndarray]


class Method(NamedTuple):
    """`learn` sees the source once; what it returns adapts to (few rows, labels, unlabelled rows) of a target."""

    title: str
    uses: str
    learn: Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray, np.ndarray, np.ndarray], Predictor]]


def methods() -> Iterator[Method]:
    yield Method("pro2 `ProjectAndProbe`", "source, few labels", _ours(ProjectAndProbe()))
    for key, rival in create_rivals().items():
        uses = {"source": "source", "probe": "few labels"}.get(key, "source, few labels")
        yield Method(f"pro2, {TITLES[key]}", uses, _ours(rival))
    yield from _scikit_learn()
    yield Method("DFR (this package's)", "few labels", _ours(create_baseline("dfr", random_state=0)))
    if importlib.util.find_spec("skada"):
        yield from _skada()
    if importlib.util.find_spec("adapt"):
        yield from _adapt()


def _ours(model: Any) -> Any:
    def learn(X: np.ndarray, y: np.ndarray) -> Any:
        model.fit(X, y)
        return lambda few, labels, unlabelled: model.adapt(few, labels).predict

    return learn


def _scaled(start: Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray, np.ndarray], Predictor]]) -> Any:
    """A method on rows scaled by the source, as a user with few target rows would scale them.

    `start` gets the scaled source and its labels, what it returns the few scaled rows and theirs.
    """
    from sklearn.preprocessing import StandardScaler

    def learn(X: np.ndarray, y: np.ndarray) -> Any:
        scale = StandardScaler().fit(X)
        fit = start(scale.transform(X), y)

        def adapt(few: np.ndarray, labels: np.ndarray, unlabelled: np.ndarray) -> Predictor:
            predict = fit(scale.transform(few), labels)
            return lambda rows: np.asarray(predict(scale.transform(rows))).reshape(-1)

        return adapt

    return learn


def _scikit_learn() -> Iterator[Method]:
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifierCV

    def source_only(X: np.ndarray, y: np.ndarray) -> Any:
        model = LogisticRegression(C=0.01, max_iter=1000).fit(X, y)
        return lambda few, labels: model.predict

    def target_only(make: Callable[[int], Any]) -> Any:
        return _scaled(lambda X, y: lambda few, labels: make(len(labels) // 2).fit(few, labels).predict)

    alphas = np.logspace(-2, 6, 17)
    yield Method("scikit-learn `LogisticRegression`, no adaptation", "source", _scaled(source_only))
    shared = {"Cs": np.logspace(-6, 1, 8), "max_iter": 1000, "l1_ratios": (0.0,), "use_legacy_attributes": False}
    cv = target_only(lambda n: LogisticRegressionCV(cv=min(n, 5), **shared))
    yield Method("scikit-learn `LogisticRegressionCV`", "few labels", cv)
    yield Method("scikit-learn `RidgeClassifierCV`", "few labels", target_only(lambda n: RidgeClassifierCV(alphas)))
    # the recipe that CLIP's repository prints for its linear probe
    clip = target_only(lambda n: LogisticRegression(C=0.316, max_iter=1000))
    yield Method("CLIP's linear probe (`LogisticRegression`, C = 0.316)", "few labels", clip)


def _skada() -> Iterator[Method]:
    import skada
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    def aligned(adapter: Any) -> Any:
        def learn(X: np.ndarray, y: np.ndarray) -> Any:
            def adapt(few: np.ndarray, labels: np.ndarray, unlabelled: np.ndarray) -> Predictor:
                head = LogisticRegression(C=0.01, max_iter=1000)
                pipeline = skada.make_da_pipeline(StandardScaler(), adapter(), head)
                domain = np.r_[np.ones(len(X), int), -np.ones(len(unlabelled), int)]
                masked = np.r_[y, np.full(len(unlabelled), -1)]  # skada's mark of a row without label
                pipeline.fit(np.concatenate([X, unlabelled]), masked, sample_domain=domain)
                return lambda rows: pipeline.predict(rows, sample_domain=-np.ones(len(rows), int))

            return adapt

        return learn

    yield Method("skada `CORALAdapter`", "source, unlabelled", aligned(lambda: skada.CORALAdapter(reg=0.1)))
    subspace = aligned(lambda: skada.SubspaceAlignmentAdapter(n_components=64))
    yield Method("skada `SubspaceAlignmentAdapter`", "source, unlabelled", subspace)


def _adapt() -> Iterator[Method]:
    from adapt.feature_based import FA
    from adapt.parameter_based import RegularTransferLC
    from sklearn.linear_model import LogisticRegression, RidgeClassifier

    def regular(X: np.ndarray, y: np.ndarray) -> Any:
        source = RidgeClassifier(alpha=1000.0).fit(X, y)

        def adapt(few: np.ndarray, labels: np.ndarray) -> Predictor:
            return RegularTransferLC(source, lambda_=1.0, verbose=0, random_state=0).fit(few, labels).predict

        return adapt

    def feature_augmentation(X: np.ndarray, y: np.ndarray) -> Any:
        def adapt(few: np.ndarray, labels: np.ndarray) -> Predictor:
            head = LogisticRegression(C=0.01, max_iter=300)
            model = FA(head, Xt=few, yt=labels, verbose=0, random_state=0).fit(X, y)
            return lambda rows: model.predict(rows, domain="tgt")

        return adapt

    yield Method("ADAPT `RegularTransferLC`", "source head, few labels", _scaled(regular))
    yield Method("ADAPT `FA`", "source, few labels", _scaled(feature_augmentation))


class Measured(NamedTuple):
    """Accuracies (targets, shots, seeds) in percent; CPU seconds for the source and for each adaptation."""

    accuracy: np.ndarray
    learn: Any
    adapt: np.ndarray


def measure(task: Task, method: Method, seeds: int) -> Measured:
    started = time.process_time()
    adapt = method.learn(task.X[task.source], task.y[task.source])
    learned = time.process_time() - started
    accuracy, seconds = np.empty((2, len(task.targets), len(SHOTS), seeds))
    for t, rows in enumerate(task.targets.values()):
        predict = None
        for i, n in enumerate(SHOTS):
            for seed in range(seeds):
                few = draw(task.y, rows, n, seed)
                started = time.process_time()
                if predict is None or "few labels" in method.uses:  # one fit per target for those that see no label
                    with contextlib.redirect_stdout(None):  # ADAPT prints shapes
                        predict = adapt(task.X[few.few], task.y[few.few], task.X[rows])
                    elapsed = time.process_time() - started
                seconds[t, i, seed] = elapsed
                accuracy[t, i, seed] = 100 * np.mean(predict(task.X[few.rest]) == task.y[few.rest])
    return Measured(accuracy, learned, seconds)


def page(task: Task, found: dict[Method, Measured], seeds: int) -> list[str]:
    n, D = len(task.source), task.X.shape[1]
    head = ["method", "uses", *(f"{s} labels per class" for s in SHOTS), "source", "adapt"]
    best = np.max([f.accuracy.mean(axis=(0, 2)) for f in found.values()], axis=0)
    body = []
    for method, measured in found.items():
        by_draw = measured.accuracy.mean(axis=0)
        error = by_draw.std(axis=1, ddof=1) / np.sqrt(by_draw.shape[1])
        cells = [f"{m:.1f} ± {e:.1f}" for m, e in zip(by_draw.mean(axis=1), error)]
        cells = [f"**{c}**" if m >= b else c for c, m, b in zip(cells, by_draw.mean(axis=1), best)]
        body.append([method.title, method.uses, *cells, f"{measured.learn:.2g}", f"{np.median(measured.adapt):.2g}"])
    return [
        f"## {task.name.capitalize()}",
        "",
        f"Source: {n:,} rows of width {D}. Targets: {', '.join(task.targets)}. {seeds} draws each; accuracy in %, mean",
        "over targets and draws, ± standard error over the draws' means. Times are medians, in CPU seconds.",
        "",
        tables(head, body),
        "",
    ]


def versions() -> str:
    names = ("pro2", "scikit-learn", "skada", "adapt", "numpy")
    have = [n for n in names if importlib.util.find_spec(n.replace("scikit-learn", "sklearn"))]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in have)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waterbirds", type=Path, help="table of Waterbirds embeddings with y, place and split")
    parser.add_argument("--out", type=Path, default=Path("docs/results/libraries.md"))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", default="", help="measure again only methods with this text, keep the other rows")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # peers warn about few rows; what counts here is the result
    path = chosen.waterbirds
    tasks = [digit_collages()] + ([waterbirds(path.parent, path.stem)] if path else [])
    made = f"Made by `python benchmarks/compare_libraries.py` with {versions()}."
    lines = ["# Other libraries, same labels", "", made, ""]
    kept = chosen.out.with_suffix(".json")
    rows: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {}
    for task in tasks:
        found = {}
        for method in methods():
            key = f"{task.name.capitalize()}: {method.title}: {chosen.seeds}"
            if chosen.only in method.title or key not in rows:
                rows[key] = [np.asarray(part).tolist() for part in measure(task, method, chosen.seeds)]
            found[method] = Measured(*map(np.asarray, rows[key]))
            print(task.name, method.title, found[method].accuracy.mean(axis=(0, 2)).round(1), flush=True)
        lines += page(task, found, chosen.seeds)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("\n".join(lines), encoding="utf-8")
    kept.write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
