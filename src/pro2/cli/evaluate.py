"""`pro2 evaluate` and `pro2 diagnose`: accuracy on labelled rows, and how a target differs from the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from pro2.cli import common, options
from pro2.cli.common import (
    Progress,
    check_out,
    labelled_rows,
    load_estimator,
    make_table,
    print_result,
    rows_for,
    status,
)
from pro2.cli.copies import copy_search, copy_warnings, learned_rows

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from pro2.tables.embeddings import EmbeddingTable

    Records = list[dict[str, Any]]

LONGEST = 15  # of many classes, groups or kinds of mistake, how many are shown
MATRIX = 12  # classes whose confusion matrix fits on a terminal
MEASURES = {
    "accuracy": ("accuracy", ".1%"), "balanced_accuracy": ("balanced accuracy", ".1%"),
    "ece": ("calibration error (ECE)", ".3f"), "log_loss": ("log-loss", ".3f"),
}  # fmt: skip


def evaluate(
    adapted: options.AdaptedFile,
    table: options.TableFile,
    label: options.SomeLabel = None,
    labels: options.Labels = None,
    source: Annotated[Path | None, Option(help="Model that ADAPTED was made from, for comparison.")] = None,
    group: Annotated[
        list[str] | None, Option("--group", "-g", metavar="<str>", help="Column of groups; several are crossed.")
    ] = None,
    where: options.Where = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Write groups, classes and mistakes to this .csv.")] = None,
    trained_on: options.TrainedOn = None,
    trained_on_where: options.TrainedOnWhere = None,
    cosine: options.Cosine = options.COSINE,
    embedding: options.Embedding = None,
    ray: options.Ray = None,
    verify: options.Verify = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure accuracy, calibration and the worst group on labelled rows of TABLE.

    Accuracies have Wilson intervals; balanced accuracy, calibration and log-loss have bootstrap intervals. For a model
    of several labels: mean average precision, and average precision and accuracy of each label. Rows that the model was
    adapted with are named, and with --trained-on those that are copies of others it has learned from.
    TABLE may be larger than memory.

    \b
    Examples:
      pro2 evaluate adapted.safetensors test.arrow --label y
      pro2 evaluate adapted.safetensors test.arrow --label y --source model.safetensors --out details.csv
      pro2 evaluate adapted.safetensors test.arrow --label y --trained-on source.arrow
      pro2 evaluate adapted.safetensors birds.npz -y y -w "split == 2" --group y --group place --json
    """
    check_out(out, force, (".csv",))
    from pro2.atomic import atomic_write
    from pro2.tables.csv_files import write_rows

    classifier = load_estimator(adapted, "predict", "evaluate", multilabel=True)
    several = hasattr(classifier, "labels_")
    if several:
        common.refuse({"--labels": labels, "--group": group}, common.ONE_LABEL)
    elif label is None and not labels:
        raise ValueError("give --label COLUMN, or --labels FILE with columns id and label")
    heads = [classifier] if source is None else [classifier, _source_model(source, classifier)]
    whole = rows_for(classifier, table, where, embedding, verify, force)
    rows, y, unlabelled = labelled_rows(whole, table, label, labels, classifier)
    learned = learned_rows(classifier, trained_on, trained_on_where, embedding, verify, force)
    results, labelled_before = _measured(heads, rows, y, _groups(rows, group) if group else None, ray)
    records = _records(results)
    if out is not None:
        lines = [list(each.values()) for each in records]
        atomic_write(out, lambda file: write_rows(file, list(records[0]), lines), force)
    known = rows.take(labelled_before).ids.tolist() if len(labelled_before) else []
    measured, *before = (result.to_dict() for result in results)
    value = {"rows": len(rows), "unlabeled": len(unlabelled), "labelled_before": known, **measured}
    find, batches = copy_search(learned, cosine), rows.iter_batches() if learned else []
    copies = [each for X, span in batches for each in find(X, rows.take(range(span.start, span.stop)).ids)]
    value |= {"copies": copies, "source_head": before[0] if before else None, "out": out}
    notes = [f"{len(unlabelled)} rows without a label were left out"] if len(unlabelled) else []
    if known:
        listed = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
        notes.append(f"warning: {adapted} was fitted to {len(known)} of these rows ({listed}): accuracy is too high")
    notes += copy_warnings(copies, "accuracy is too high")
    notes += [f"{len(rows)} rows, 95% confidence intervals", ""]
    tables = (_label_tables if several else _tables)(results, records, out)
    print_result(value, [*notes, *tables], as_json)


def _source_model(path: Path, classifier: Any) -> Any:
    """The model that a classifier was adapted from, as far as its classes and width can tell."""
    import numpy as np

    names = "labels_" if hasattr(classifier, "labels_") else "classes_"
    model = load_estimator(path, "adapt", "evaluate --source", multilabel=names == "labels_")
    same_names = np.array_equal(getattr(model, names, []), getattr(classifier, names))
    if model.n_features_in_ != classifier.n_features_in_ or not same_names:
        raise ValueError(f"--source {path} has other classes or another width; give the model that was adapted")
    return model


@dataclass(frozen=True)
class Measure:
    """What is measured of rows X and their true codes by each head, and which of the rows were labelled."""

    heads: Sequence[Any]

    def __call__(self, X: np.ndarray, *codes: np.ndarray) -> dict[str, Any]:
        import numpy as np

        from pro2.estimators.evaluation import row_scores

        columns: dict[str, Any] = {}
        for i, head in enumerate(self.heads):
            if hasattr(head, "labels_"):
                found = dict(zip(head.labels_.tolist(), np.ascontiguousarray(head.decision_function(X).T)))
            else:
                found = row_scores(head.predict_proba(X), *codes)
            columns |= {f"{i} {name}": values for name, values in found.items()}
        if hasattr(self.heads[0], "known_hashes_"):
            columns["labelled"] = self.heads[0]._was_labelled(X)
        return columns


def _measured(
    heads: Sequence[Any], rows: EmbeddingTable, y: np.ndarray, groups: tuple[np.ndarray, list[str]] | None,
    ray: str | None,
) -> tuple[list[Any], np.ndarray]:  # fmt: skip
    """An evaluation of each head, and the numbers of the rows that were labelled."""
    import numpy as np

    from pro2.estimators import evaluation
    from pro2.estimators.base import encode_known
    from pro2.tables.scan import parts, scan

    several, every, labelled = hasattr(heads[0], "labels_"), parts(rows), [np.empty(0, dtype=np.intp)]
    names = (heads[0].labels_ if several else heads[0].classes_).tolist()
    advice = "check the label column, or leave those rows out"
    codes = [] if several else [encode_known(y, heads[0].classes_, "y", advice)]
    sums = [evaluation.EvaluationSums(names) for _ in heads]
    scores: list[list[np.ndarray]] = [[] for _ in heads]
    with Progress("rows", quiet=len(every) == 1) as progress:
        for number, table in scan(rows, Measure(heads), *codes, ray=ray):
            found = {name: table[name].to_numpy() for name in table.column_names}
            span = every[number].rows
            if "labelled" in found:
                labelled.append(span.start + np.flatnonzero(found["labelled"]))
            for i in range(len(heads)):
                own = {name.partition(" ")[2]: values for name, values in found.items() if name.startswith(f"{i} ")}
                if several:
                    scores[i].append(np.column_stack([own[str(name)] for name in names]))
                else:
                    sums[i].add(codes[0][span], **own, group=None if groups is None else groups[0][span])
            progress.update(span.stop, len(rows))
    if several:
        return [evaluation.evaluate_labels(y, np.concatenate(each), names) for each in scores], np.concatenate(labelled)
    for each in sums:
        each.groups = {groups[1][code]: counts for code, counts in each.groups.items()} if groups else {}
    return [each.result() for each in sums], np.concatenate(labelled)


def _groups(table: EmbeddingTable, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """A code for each row, and a text for each code: `place=1`, or `y=0, place=1` for crossed columns."""
    import numpy as np
    import pyarrow as pa

    codes, texts = np.zeros(len(table), dtype=np.int64), [""]
    for name in names:
        column = pa.array(table.one_per_row(name, "a label is"), from_pandas=True).dictionary_encode("encode")
        values = [f"{name}={'missing' if value is None else value}" for value in column.dictionary.to_pylist()]
        pairs, codes = np.unique(codes * len(values) + column.indices.to_numpy(), return_inverse=True)
        texts = [", ".join(filter(None, [texts[p // len(values)], values[p % len(values)]])) for p in pairs.tolist()]
    return codes, texts


def _records(results: list[Any]) -> Records:
    """A record for each group, class and kind of mistake, or for each of several labels; the source head is second."""
    result = results[0]
    if hasattr(result, "labels"):
        return [
            _record(
                "label", name, score.n, "average_precision", [each.labels[name].average_precision for each in results]
            )
            | {"yes": score.n_yes, "accuracy": score.accuracy and score.accuracy.value}
            for name, score in result.labels.items()
        ]
    records = []
    for what in ("group", "class"):
        for name, accuracy in getattr(result, f"{what}_accuracy").items():
            estimates = [getattr(each, f"{what}_accuracy")[name] for each in results]
            records.append(_record(what, name, accuracy.n, "accuracy", estimates) | {"predicted": None})
    names = [str(name) for name in result.classes]
    for true, row in zip(names, result.confusion):
        for predicted, n in zip(names, row):
            if n and predicted != true:
                records.append(
                    _record("mistake", true, n, "accuracy", [None] * len(results)) | {"predicted": predicted}
                )
    return records


def _record(what: str, name: str, n_rows: int, measure: str, estimates: list[Any]) -> dict[str, Any]:
    value, low, high = (estimates[0] and getattr(estimates[0], end) for end in ("value", "low", "high"))
    record = {"what": what, "name": name, "rows": n_rows, measure: value, "low": low, "high": high}
    return record | {f"source_head_{measure}": each and each.value for each in estimates[1:]}


def _tables(results: list[Any], records: Records, out: Path | None) -> list[str | Table]:
    """Figures of all rows, of groups and classes, and the confusions; those of the source head, too, if there are."""
    result = results[0]
    figures = [
        [title, *(_estimate(getattr(each, name), form) for each in results)] for name, (title, form) in MEASURES.items()
    ]
    if result.worst_group is not None:
        worst = result.group_accuracy[result.worst_group]
        figures.append([f"worst group, {result.worst_group}", _estimate(worst, ".1%")])
    header = ["", "adapted", "source head"] if results[1:] else ["", "value"]
    parts = [make_table(header, figures), *_worst("group", "accuracy", ".1%", records, out)]
    parts += _worst("class", "accuracy", ".1%", records, out)
    names = [str(name) for name in result.classes]
    if len(names) <= MATRIX:
        matrix = [[name, *counts] for name, counts in zip(names, result.confusion)]
        return [*parts, "", make_table(["true class / predicted", *names], matrix)]
    mistakes = [[each["name"], each["predicted"], each["rows"]] for each in records if each["what"] == "mistake"]
    most = sorted(mistakes, key=lambda row: -row[2])[:LONGEST]
    title = f"most frequent of {len(mistakes)} kinds of mistake"  # nobody can read a matrix of 200 classes
    return [*parts, "", title, make_table(["true class", "predicted", "rows"], most, n_text=2)]


def _label_tables(results: list[Any], records: Records, out: Path | None) -> list[str | Table]:
    """Mean average precision and a row for each label; that of the source head, too, if there is one."""
    means = [_estimate(result.mean_average_precision, ".3f") for result in results]
    title = ", source heads ".join([f"mean average precision  {means[0]}", *means[1:]])
    return [title, *_worst("label", "average_precision", ".3f", records, out)]


def _worst(what: str, measure: str, form: str, records: Records, out: Path | None) -> list[Any]:
    """The records of one kind as a table after an empty line; of many those with the lowest numbers."""
    found = [each for each in records if each["what"] == what and each["rows"]]
    title = ""
    if len(found) > LONGEST:
        found = sorted(found, key=lambda each: (each[measure] is None, each[measure], -each["rows"]))[:LONGEST]
        place = f"in {out}" if out else "with --out FILE.csv or --json"
        title = f"\nthe {LONGEST} worst {'classes' if what == 'class' else what + 's'}; all of them {place}"
    rows, others = [], [key for key in records[0] if key not in ("what", "name", measure, "low", "high", "predicted")]
    for each in found:
        interval = _interval(each[measure], each["low"], each["high"], form)
        numbers = [f"{each[key]:{form}}" if isinstance(each[key], float) else each[key] for key in others]
        rows.append([each["name"], interval, *numbers])
    header = [what, *(key.replace("_", " ").removesuffix(" accuracy") for key in (measure, *others))]
    return [title, make_table(header, rows)] if rows else []


def _estimate(measured: Any, form: str) -> str:
    return "not defined" if measured is None else _interval(measured.value, measured.low, measured.high, form)


def _interval(value: float | None, low: float, high: float, form: str) -> str:
    return "not defined" if value is None else f"{value:{form}} [{low:{form}}, {high:{form}}]"


def diagnose(
    model: options.ModelFile,
    target: options.TableFile,
    label: options.Label,
    where: options.Where = None,
    figure: Annotated[Path | None, Option(help="Draw shift, features and learning curve: .png, .svg or .pdf.")] = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Show how the target differs from the source, how many features it needs and what more labels would add.

    \b
    Examples:
      pro2 diagnose model.safetensors target.arrow --label y
      pro2 diagnose model.safetensors target.arrow -y y --figure diagnosis.png --json
    """
    check_out(figure, force, (".png", ".svg", ".pdf"), "--figure")
    from pro2.estimators import diagnosis

    fitted = load_estimator(model, "adapt", "diagnose")
    table = rows_for(fitted, target, where, embedding, verify, force)
    rows, y, unlabelled = labelled_rows(table, target, label, model=fitted)
    with status(f"diagnosing {len(rows)} rows"):
        result = diagnosis.diagnose(fitted, rows.embeddings, y)
        if figure is not None:
            diagnosis.plot_diagnosis(result, figure, force)
    lines = [f"{len(unlabelled)} rows without a label were left out"] if len(unlabelled) else []
    value = {"figure": figure, "unlabeled": len(unlabelled), "verdict": result.report.verdict(), **result.to_dict()}
    print_result(value, [*lines, *str(result).splitlines()], as_json)
