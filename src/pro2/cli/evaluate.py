"""`pro2 evaluate`: how good a classifier is on labelled rows, and for whom."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.errors import refuse
from pro2.cli.journey import check_out, labelled_rows, load_estimator, rows_for, tell, working
from pro2.cli.multilabel import ONE_LABEL, label_details, label_lines, measure_labels, rows_of_model

if TYPE_CHECKING:
    import numpy as np

    from pro2.estimators.evaluation import Estimate, Evaluation
    from pro2.tables.embeddings import EmbeddingTable

ENDS = 10  # of a long list: so many of the best and of the worst are shown
MATRIX = 12  # classes whose confusion matrix fits on a terminal


def evaluate(
    adapted: options.AdaptedFile,
    table: options.TableFile,
    label: Annotated[
        str | None, typer.Option("--label", "-y", help="Column of the label; several are a,b,c, by default all.")
    ] = None,
    labels: options.Labels = None,
    source: Annotated[
        Path | None, typer.Option("--source", help="Model that ADAPTED was made from, to show its source head beside.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", metavar="<str>", help="Column of groups; several are crossed.")
    ] = None,
    where: options.Where = None,
    confidence: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write all groups, classes and confusions to this .csv.")
    ] = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    spreadsheet: options.Spreadsheet = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure accuracy, calibration and the worst group on labelled rows of TABLE.

    Accuracies have Wilson intervals; balanced accuracy, calibration and log-loss have bootstrap intervals. Of several
    labels: mean average precision, and average precision and accuracy of each.
    """
    check_out(out, force, (".csv",))
    from pro2.atomic import atomic_write
    from pro2.tables.csv_files import write_rows

    classifier = load_estimator(adapted, "predict", "evaluate", several=True)
    several = hasattr(classifier, "labels_")
    if label is None and not labels and not several:
        raise ValueError("give --label COLUMN, or --labels FILE with columns id and label")
    before = None if source is None else _source_head(source, classifier)
    whole = rows_for(classifier, table, where, embedding, verify, force)
    measure: partial[Any]
    if several:
        refuse({"--labels": labels, "--group": group}, ONE_LABEL)
        rows, y, rest = rows_of_model(classifier, whole, table, label)
        measure = partial(measure_labels, rows, y, confidence)
    else:
        rows, y, rest = labelled_rows(whole, table, label, labels, classifier.classes_)
        measure = partial(_measure, rows, y, _groups(rows, group) if group else None, confidence)
    with working(f"evaluating {len(rows)} rows"):
        result: Any = measure(classifier)
        head: Any = None if before is None else measure(before)
    if out is not None:
        header, details = label_details(result, head) if several else _details(result, head)
        atomic_write(out, lambda file: write_rows(file, header, details, spreadsheet), force)
    found = {"rows": len(rows), "unlabeled": len(rest), **result.to_dict()}
    found |= {"source_head": None if head is None else head.to_dict(), "out": out}
    notes = [f"{len(rest)} rows without {'any' if several else 'a'} label were left out", ""] if len(rest) else []
    tell(found, notes + (label_lines(result, head) if several else _lines(result, head, out)), as_json)


def _source_head(path: Path, classifier: Any) -> Any:
    """The model that a classifier was adapted from; another one would be a comparison of nothing."""
    import numpy as np

    several = hasattr(classifier, "labels_")
    model = load_estimator(path, "adapt", "evaluate --source", several)
    names = "labels_" if several else "classes_"
    if model.n_features_in_ != classifier.n_features_in_ or not np.array_equal(
        getattr(model, names, []), getattr(classifier, names)
    ):
        raise ValueError(f"--source {path} has other classes or another width; give the model that was adapted")
    return model


def _measure(rows: EmbeddingTable, y: Any, groups: Any, confidence: float, classifier: Any) -> Evaluation:
    from pro2.estimators.evaluation import evaluate as measure

    return measure(y, classifier.predict_proba(rows.embeddings), classifier.classes_, groups, confidence=confidence)


def _groups(table: EmbeddingTable, names: list[str]) -> np.ndarray:
    """One text per row: `place=1`, or `y=0, place=1` for crossed columns."""
    from pro2.tables.columns import objects

    columns = [table.one_per_row(name, "a label is").tolist() for name in names]
    texts = [
        [f"{name}={'missing' if each is None else each}" for each in values] for name, values in zip(names, columns)
    ]
    return objects([", ".join(row) for row in zip(*texts)])


def _lines(result: Evaluation, head: Evaluation | None, out: Path | None) -> list[str]:
    level = f"{result.confidence:.0%}"
    figures = [
        ("accuracy", _percent, result.accuracy, head and head.accuracy),
        ("balanced accuracy", _percent, result.balanced_accuracy, head and head.balanced_accuracy),
        ("calibration (ECE)", _plain, result.ece, head and head.ece),
        ("log-loss", _plain, result.log_loss, head and head.log_loss),
    ]
    lines = [] if head is None else [f"{'':<18} {'adapted':<24} source head"]
    lines += [
        f"{name:<18} {show(each):<24} {show(before)}" if before else f"{name:<18} {show(each)}"
        for name, show, each, before in figures
    ]
    at = 0 if head is None else 1
    lines[at] += f"   ({level} intervals, {result.accuracy.n} rows)"
    if result.worst_group is not None:
        worst = result.group_accuracy[result.worst_group]
        lines.append(f"{'worst group':<18} {_percent(worst)}   {result.worst_group}")
        lines += ["", "group", *_rows(result.group_accuracy, head.group_accuracy if head else None, "groups", out)]
    lines += ["", "class", *_rows(result.class_accuracy, head.class_accuracy if head else None, "classes", out), ""]
    return lines + (_matrix(result) if len(result.classes) <= MATRIX else _confusions(result))


def _rows(parts: dict[str, Estimate], before: dict[str, Estimate] | None, kind: str, out: Path | None) -> list[str]:
    """Every part of a few; of many the worst and the best."""
    worst, best = (list(parts), []) if len(parts) <= 2 * ENDS else _ends(parts)
    width = max(map(len, worst + best))
    digits = max(len(str(parts[name].n)) for name in worst + best)

    def line(name: str) -> str:
        n, beside = parts[name].n, f"   source head {before[name].value:6.1%}" if before else ""
        count = f"{n:>{digits}} {'row ' if n == 1 else 'rows'}{beside}".rstrip()
        return f"  {name:<{width}}  {_percent(parts[name])}   {count}"

    if not best:
        return [line(name) for name in worst]
    where = f"in {out}" if out else "with --out FILE.csv or --json"
    rest = f"  ... {len(parts) - 2 * ENDS} more {kind} between the worst {ENDS} and the best {ENDS}: {where}"
    return [*map(line, worst), rest, *map(line, best)]


def _ends(parts: dict[str, Estimate]) -> tuple[list[str], list[str]]:
    """The worst and the best; of equally good parts those with more rows, because their figure says more."""
    worst = sorted(parts, key=lambda name: (parts[name].value, -parts[name].n))[:ENDS]
    others = [name for name in parts if name not in worst]
    return worst, sorted(others, key=lambda name: (parts[name].value, parts[name].n))[-ENDS:]


def _matrix(result: Evaluation) -> list[str]:
    names = [str(each) for each in result.classes]
    width = max(map(len, [*names, *(str(n) for row in result.confusion for n in row)]))
    return [
        "confusion matrix (row = true class, column = predicted)",
        " " * (width + 2) + "  ".join(f"{name:>{width}}" for name in names),
        *(f"{name:>{width}}  " + "  ".join(f"{n:>{width}}" for n in row) for name, row in zip(names, result.confusion)),
    ]


def _confusions(result: Evaluation) -> list[str]:
    """A matrix of 200 classes says nothing on a terminal: the most frequent mistakes do."""
    mistakes = sorted(_mistakes(result), key=lambda each: -each[2])
    shown = [f"  {n:>6}  {true} taken for {predicted}" for true, predicted, n in mistakes[:ENDS]]
    return [f"most frequent of {len(mistakes)} kinds of mistake", *shown]


def _mistakes(result: Evaluation) -> list[tuple[str, str, int]]:
    names = [str(each) for each in result.classes]
    return [
        (names[i], names[j], n) for i, row in enumerate(result.confusion) for j, n in enumerate(row) if n and i != j
    ]


def _details(result: Evaluation, head: Evaluation | None) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns, and one line for each group, class and kind of mistake."""
    lines: list[tuple[Any, ...]] = []
    for kind, parts, before in (
        ("group", result.group_accuracy, head and head.group_accuracy),
        ("class", result.class_accuracy, head and head.class_accuracy),
    ):
        for name, each in parts.items():
            lines.append((kind, name, None, each.n, each.value, each.low, each.high, before and before[name].value))
    lines += [("mistake", true, predicted, n, None, None, None, None) for true, predicted, n in _mistakes(result)]
    return ["what", "name", "predicted", "rows", "accuracy", "low", "high", "source_head_accuracy"], lines


def _percent(each: Estimate) -> str:
    return f"{each.value:6.1%}  [{each.low:.1%}, {each.high:.1%}]"


def _plain(each: Estimate) -> str:
    return f"{each.value:6.3f}  [{each.low:.3f}, {each.high:.3f}]"
