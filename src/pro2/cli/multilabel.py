"""Several yes-or-no labels at the command line: what `fit`, `adapt` and `evaluate` do with --label a,b,c."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pro2.cli.journey import facts, rows_for, tell, working

if TYPE_CHECKING:
    import numpy as np

    from pro2.estimators.multilabel_evaluation import MultiLabelEvaluation
    from pro2.tables.embeddings import EmbeddingTable


# What options belong to that a model of several labels has no use for; see `refuse`.
ONE_LABEL = "a model of one label; this one has several, in columns of 0 and 1"


def label_columns(table: EmbeddingTable, text: str) -> list[str]:
    """The columns that --label names; a column may have a comma in its name."""
    if text in table.columns:
        return [text]
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names) or not all(names):
        raise ValueError(f"--label {text!r} has an empty name or one twice; write it as a,b,c")
    return names


def label_rows(
    table: EmbeddingTable, path: Path, names: list[str]
) -> tuple[EmbeddingTable, np.ndarray, EmbeddingTable]:
    """The rows that have at least one of the labels, their labels (n, T) with NaN for missing ones, and the rest."""
    import numpy as np

    Y = np.stack([_yes_or_no(table, name) for name in names], axis=1)
    some = ~np.isnan(Y).all(axis=1)
    if not some.any():
        raise ValueError(f"columns {', '.join(names[:5])} of {path} have no label for any of the {len(table)} rows")
    return table.take(some), Y[some], table.take(~some)


def _yes_or_no(table: EmbeddingTable, name: str) -> np.ndarray:
    import numpy as np

    from pro2.tables.labels import labelled

    labels, mask = labelled(table.one_per_row(name, "a label is"))
    odd = [each for each in dict.fromkeys(labels.tolist()) if each not in (0, 1)]
    if odd:
        raise ValueError(
            f"column {name!r} has the value {odd[0]!r}: of several labels each is 0, 1 or empty; "
            f"one label with classes is --label {name}"
        )
    column = np.full(len(mask), np.nan)
    column[mask] = labels.astype(np.float64)
    return column


def fit_labels(
    path: Path, whole: EmbeddingTable, names: list[str], where: str | None, params: dict[str, Any], out: Path,
    force: bool, as_json: bool,
) -> None:  # fmt: skip
    """`pro2 fit --label a,b,c`."""
    import numpy as np

    from pro2.estimators import ProjectAndProbe
    from pro2.estimators.multilabel import MultiLabelProjectAndProbe

    usual = ProjectAndProbe().get_params(deep=False)
    given = [name for name, value in params.items() if name != "ridge" and value != usual[name]]
    if given:
        flag = given[0].replace("_", "-")
        raise ValueError(f"--{flag} goes with one label; several are learned in closed form and adapted by the default")
    table, Y, rest = label_rows(whole, path, names)
    one = [name for name, y in zip(names, Y.T) if len(np.unique(y[~np.isnan(y)])) < 2]
    if one:
        raise ValueError(f"column {one[0]!r} of {path} has one value only: a label needs rows with 0 and with 1")
    model = MultiLabelProjectAndProbe(**({"ridge": params["ridge"]} if "ridge" in params else {}))
    with working(f"learning {len(names)} labels from {len(table)} rows"):
        model.fit(table.embeddings, Y, labels=names)
    model.save(out, force=force, provenance={"source": facts(table, path, ",".join(names), where)})
    yes = {name: int(np.nansum(y)) for name, y in zip(names, Y.T)}
    result = {"out": out, "made_from": "source rows", "rows": len(table), "unlabeled": len(rest), "labels": names}
    lines = [f"{out}: learned {len(names)} labels from {len(table)} rows of width {table.width}"]
    lines += [f"  {name}: {n} yes" for name, n in yes.items()]
    lines += [f"{len(rest)} rows without any label were left out"] if len(rest) else []
    tell(result | {"width": table.width, "yes": yes}, lines, as_json)


def adapt_labels(
    fitted: Any, target: Path | None, label: str | None, where: str | None, embedding: str | None, verify: bool,
    out: Path, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """`pro2 adapt` with a model of several labels: those of TARGET's columns; the others keep their source heads."""
    if target is None:
        raise ValueError("a model of several labels needs TARGET: a table with its labels in columns of 0 and 1")
    table = rows_for(fitted, target, where, embedding, verify, force)
    few, Y, rest = rows_of_model(fitted, table, target, label)
    provenance = dict(fitted.provenance) | {"target": facts(few, target, label, where)}
    with working("adapting"):
        adapted = fitted.adapt(few.embeddings, Y)
        adapted.save(out, force=force, provenance=provenance)
    report = adapted.report_
    without = [str(name) for name, each in report.reports.items() if each is None]
    lines = [f"{out}: adapted {len(report.reports) - len(without)} labels with {len(few)} rows"]
    lines += [f"{len(rest)} rows without any label were left out"] if len(rest) else []
    result = {"out": out, "rows": len(few), "unlabeled": len(rest), "labels_without_rows": without}
    result |= {"verdict": report.verdict(), "report": report.to_dict()}
    tell(result, [*lines, *str(report).splitlines()], as_json)


def rows_of_model(
    model: Any, table: EmbeddingTable, path: Path, label: str | None
) -> tuple[EmbeddingTable, np.ndarray, EmbeddingTable]:
    """Rows with labels in the order of the model's; those that --label leaves out, or the table lacks, are missing."""
    import numpy as np

    known = [str(name) for name in model.labels_.tolist()]
    asked = known if label is None else label_columns(table, label)
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise ValueError(f"the model has no label {unknown[0]!r}; it has {', '.join(known[:10])}")
    there = [name for name in asked if label is not None or name in table.columns]
    if not there:
        raise ValueError(f"{path} has none of the model's labels as a column: {', '.join(known[:10])}")
    rows, found, rest = label_rows(table, path, there)
    Y = np.full((len(rows), len(known)), np.nan)
    Y[:, [known.index(name) for name in there]] = found
    return rows, Y, rest


def measure_labels(rows: EmbeddingTable, Y: np.ndarray, confidence: float, classifier: Any) -> MultiLabelEvaluation:
    """How good a classifier of several labels is on labelled rows."""
    from pro2.estimators.multilabel_evaluation import evaluate_labels

    scores = classifier.decision_function(rows.embeddings)
    return evaluate_labels(Y, scores, classifier.labels_.tolist(), confidence=confidence)


def label_lines(found: MultiLabelEvaluation, head: MultiLabelEvaluation | None) -> list[str]:
    """What `pro2 evaluate` prints of several labels, with the source heads beside if they are asked for."""
    shown = [(name, each) for name, each in found.labels.items() if each.n]
    width = max(22, *(len(name) for name, _ in shown))
    title = f"({found.confidence:.0%} intervals, {len(shown)} labels)"
    beside = "" if head is None else f"   source heads {_figure(head.mean_average_precision, short=True)}"
    lines = [f"{'mean average precision':<{width}}  {_figure(found.mean_average_precision)}{beside}   {title}", ""]
    lines.append(f"{'label':<{width}}  {'average precision':<22} {'accuracy':<24} {'yes':>6} {'rows':>6}")
    for name, each in shown:
        share = each.accuracy
        accuracy = "" if share is None else f"{share.value:6.1%}  [{share.low:.1%}, {share.high:.1%}]"
        old = "" if head is None else f"   source head {_figure(head.labels[name].average_precision, short=True)}"
        figure = _figure(each.average_precision)
        lines.append(f"{name:<{width}}  {figure:<22} {accuracy:<24} {each.n_yes:>6} {each.n:>6}{old}")
    return lines


def _figure(each: Any, short: bool = False) -> str:
    if each is None:
        return "not defined"
    return f"{each.value:.3f}" if short else f"{each.value:.3f}  [{each.low:.3f}, {each.high:.3f}]"


def label_details(
    found: MultiLabelEvaluation, head: MultiLabelEvaluation | None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns, and one line for each label."""

    def three(each: Any) -> tuple[Any, ...]:
        return (None,) * 3 if each is None else (each.value, each.low, each.high)

    old = {} if head is None else {name: three(each.average_precision)[0] for name, each in head.labels.items()}
    lines = [
        (name, each.n, each.n_yes, *three(each.average_precision), *three(each.accuracy)[:1], old.get(name))
        for name, each in found.labels.items()
    ]
    header = ["label", "rows", "yes", "average_precision", "low", "high", "accuracy", "source_head_average_precision"]
    return header, lines
