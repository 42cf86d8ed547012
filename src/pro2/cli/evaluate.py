"""`pro2 evaluate`: how good a classifier is on labelled rows, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pro2.cli.journey import (
    AdaptedFile,
    AsJson,
    Embedding,
    Force,
    Labels,
    TableFile,
    Verify,
    Where,
    check_table,
    labelled_rows,
    labels_of,
    load_estimator,
    open_table,
    tell,
    working,
)

if TYPE_CHECKING:
    import numpy as np

    from pro2.estimators.evaluation import Estimate, Evaluation
    from pro2.tables.embeddings import EmbeddingTable


def evaluate(
    adapted: AdaptedFile,
    table: TableFile,
    label: Annotated[str | None, typer.Option("--label", "-y", help="Column of the label.")] = None,
    labels: Labels = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Column of groups; several are crossed.")
    ] = None,
    where: Where = None,
    confidence: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.95,
    embedding: Embedding = None,
    verify: Verify = True,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy, calibration and the worst group on labelled rows of TABLE.

    Accuracies have Wilson intervals; balanced accuracy, calibration and log-loss have bootstrap intervals.
    """
    from pro2.estimators.evaluation import evaluate as measure

    if label is None and not labels:
        raise ValueError("give --label COLUMN, or --labels FILE with columns id and label")
    classifier = load_estimator(adapted, "predict", "evaluate")
    whole = open_table(table, where, embedding, verify)
    check_table(classifier, whole, table, force)
    rows, y, rest = labelled_rows(whole, table, label, labels, classifier.classes_)
    groups = _groups(rows, group) if group else None
    with working(f"evaluating {len(rows)} rows"):
        proba = classifier.predict_proba(rows.embeddings)
        result = measure(y, proba, classifier.classes_, groups, confidence=confidence)
    left_out = [f"{len(rest)} rows without a label were left out", ""] if len(rest) else []
    tell({"rows": len(rows), "unlabeled": len(rest), **result.to_dict()}, left_out + _lines(result), as_json)


def _groups(table: EmbeddingTable, names: list[str]) -> np.ndarray:
    """One text per row: `place=1`, or `y=0, place=1` for crossed columns."""
    from pro2.tables.columns import objects

    columns = [labels_of(table, name).tolist() for name in names]
    texts = [
        [f"{name}={'missing' if each is None else each}" for each in values] for name, values in zip(names, columns)
    ]
    return objects([", ".join(row) for row in zip(*texts)])


def _lines(result: Evaluation) -> list[str]:
    level = f"{result.confidence:.0%}"
    lines = [
        f"accuracy           {_percent(result.accuracy)}   ({level} intervals, {result.accuracy.n} rows)",
        f"balanced accuracy  {_percent(result.balanced_accuracy)}",
        f"calibration (ECE)  {_plain(result.ece)}",
        f"log-loss           {_plain(result.log_loss)}",
    ]
    if result.worst_group is not None:
        lines.append(f"worst group        {_percent(result.group_accuracy[result.worst_group])}   {result.worst_group}")
        lines += ["", "group", *_rows(result.group_accuracy)]
    lines += ["", "class", *_rows(result.class_accuracy)]
    return [*lines, "", "confusion matrix (row = true class, column = predicted)", *_matrix(result)]


def _rows(parts: dict[str, Estimate]) -> list[str]:
    width = max(map(len, parts))
    return [f"  {name:<{width}}  {_percent(each)}   {each.n} rows" for name, each in parts.items()]


def _matrix(result: Evaluation) -> list[str]:
    names = [str(each) for each in result.classes]
    width = max(map(len, [*names, *(str(n) for row in result.confusion for n in row)]))
    head = " " * (width + 2) + "  ".join(f"{name:>{width}}" for name in names)
    return [
        head,
        *(f"{name:>{width}}  " + "  ".join(f"{n:>{width}}" for n in row) for name, row in zip(names, result.confusion)),
    ]


def _percent(each: Estimate) -> str:
    return f"{each.value:6.1%}  [{each.low:.1%}, {each.high:.1%}]"


def _plain(each: Estimate) -> str:
    return f"{each.value:6.3f}  [{each.low:.3f}, {each.high:.3f}]"
