"""`pro2 evaluate` and `pro2 diagnose`: accuracy on labelled rows, and how a target differs from the source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from pro2.cli import common, options
from pro2.cli.common import check_out, labelled_rows, load_estimator, make_table, print_result, status

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from pro2.tables.embeddings import EmbeddingTable

LONGEST = 15  # of many classes, groups or kinds of mistake, how many are shown
MATRIX = 12  # classes whose confusion matrix fits on a terminal
MEASURES = {
    "accuracy": ("accuracy", ".1%"), "balanced_accuracy": ("balanced accuracy", ".1%"),
    "ece": ("calibration error (ECE)", ".3f"), "log_loss": ("log-loss", ".3f"),
}  # fmt: skip
# columns of the file that --out names, for one label and for several
DETAILS = ["what", "name", "predicted", "rows", "accuracy", "low", "high", "source_head_accuracy"]
LABEL_DETAILS = [
    "label", "rows", "yes", "average_precision", "low", "high", "accuracy", "source_head_average_precision",
]  # fmt: skip


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
    confidence: Annotated[float, Option(help="Level of the confidence intervals.")] = 0.95,
    out: Annotated[Path | None, Option("--out", "-o", help="Write groups, classes and mistakes to this .csv.")] = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure accuracy, calibration and the worst group on labelled rows of TABLE.

    Accuracies have Wilson intervals; balanced accuracy, calibration and log-loss have bootstrap intervals. For a model
    of several labels: mean average precision, and average precision and accuracy of each label.

    \b
    Examples:
      pro2 evaluate adapted.safetensors test.arrow --label y
      pro2 evaluate adapted.safetensors test.arrow --label y --source model.safetensors --out details.csv
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
    models = [classifier] if source is None else [classifier, _source_model(source, classifier)]
    whole = common.rows_for(classifier, table, where, embedding, verify, force)
    rows, y, unlabelled = labelled_rows(whole, table, label, labels, classifier)
    groups = _groups(rows, group) if group else None

    def measure(model: Any) -> Any:
        from pro2.estimators.evaluation import evaluate as measure_classes
        from pro2.estimators.evaluation import evaluate_labels

        if several:
            scores = model.decision_function(rows.embeddings)
            return evaluate_labels(y, scores, model.labels_.tolist(), confidence=confidence)
        proba = model.predict_proba(rows.embeddings)
        return measure_classes(y, proba, model.classes_, groups, confidence=confidence)

    with status(f"evaluating {len(rows)} rows"):
        result, *before = map(measure, models)
    header, records = (LABEL_DETAILS, _label_details) if several else (DETAILS, _details)
    details = records(result, before)
    if out is not None:
        atomic_write(out, lambda file: write_rows(file, header, details), force)
    value = {"rows": len(rows), "unlabeled": len(unlabelled), **result.to_dict()}
    value |= {"source_head": before[0].to_dict() if before else None, "out": out}
    notes = [f"{len(unlabelled)} rows without a label were left out"] if len(unlabelled) else []
    notes += [f"{len(rows)} rows, {confidence:.0%} confidence intervals", ""]
    tables = _label_tables(result, before) if several else _tables(result, before, details, out)
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


def _groups(table: EmbeddingTable, names: list[str]) -> np.ndarray:
    """One text per row: `place=1`, or `y=0, place=1` for crossed columns."""
    from pro2.tables.columns import objects

    columns = [table.one_per_row(name, "a label is").tolist() for name in names]
    texts = [
        [f"{name}={'missing' if value is None else value}" for value in values] for name, values in zip(names, columns)
    ]
    return objects([", ".join(row) for row in zip(*texts)])


def _details(result: Any, before: list[Any]) -> list[tuple[Any, ...]]:
    """One record for each group, class and kind of mistake, in the columns of DETAILS; `before` is the source head."""
    records: list[tuple[Any, ...]] = []
    for kind in ("group", "class"):
        for name, accuracy in getattr(result, f"{kind}_accuracy").items():
            source = [getattr(head, f"{kind}_accuracy")[name].value for head in before] or [None]
            records.append((kind, name, None, accuracy.n, accuracy.value, accuracy.low, accuracy.high, *source))
    names = [str(name) for name in result.classes]
    for true, row in zip(names, result.confusion):
        wrong = [(predicted, n) for predicted, n in zip(names, row) if n and predicted != true]
        records += [("mistake", true, predicted, n, None, None, None, None) for predicted, n in wrong]
    return records


def _label_details(result: Any, before: list[Any]) -> list[tuple[Any, ...]]:
    """One record for each of several labels, in the columns of LABEL_DETAILS."""
    records = []
    for name, score in result.labels.items():
        scores = [score, *(head.labels[name] for head in before)]
        precision, accuracy = score.average_precision, score.accuracy
        interval = (None,) * 3 if precision is None else (precision.value, precision.low, precision.high)
        source = [each.average_precision and each.average_precision.value for each in scores[1:]] or [None]
        records.append((name, score.n, score.n_yes, *interval, accuracy and accuracy.value, *source))
    return records


def _tables(result: Any, before: list[Any], records: list[tuple[Any, ...]], out: Path | None) -> list[str | Table]:
    """Figures of all rows, of groups and classes, and the confusions; those of the source head, too, if there are."""
    figures = [
        [title, *(_interval(getattr(measured, name), form) for measured in (result, *before))]
        for name, (title, form) in MEASURES.items()
    ]
    if result.worst_group is not None:
        worst = result.group_accuracy[result.worst_group]
        figures.append([f"worst group, {result.worst_group}", _interval(worst, ".1%")])
    parts: list[str | Table] = [make_table(["", "adapted", "source head"] if before else ["", "value"], figures)]
    for kind, plural in (("group", "groups"), ("class", "classes")):
        found = [record[1:] for record in records if record[0] == kind]
        parts += [""] if found else []
        if len(found) > LONGEST:
            found = sorted(found, key=lambda record: (record[3], -record[2]))[:LONGEST]
            where = f"in {out}" if out else "with --out FILE.csv or --json"
            parts.append(f"the {LONGEST} worst {plural}; all of them {where}")
        rows = [
            [name, f"{value:.1%} [{low:.1%}, {high:.1%}]", n, *(f"{source:.1%}" for _ in before)]
            for name, _, n, value, low, high, source in found
        ]
        parts += [make_table([kind, "accuracy", "rows", *["source head" for _ in before]], rows)] if rows else []
    names = [str(name) for name in result.classes]
    if len(names) <= MATRIX:
        matrix = [[name, *counts] for name, counts in zip(names, result.confusion)]
        return [*parts, "", make_table(["true class / predicted", *names], matrix)]
    mistakes = sorted((record[1:4] for record in records if record[0] == "mistake"), key=lambda record: -record[2])
    title = f"most frequent of {len(mistakes)} kinds of mistake"  # nobody can read a matrix of 200 classes
    return [*parts, "", title, make_table(["true class", "predicted", "rows"], mistakes[:LONGEST], n_text=2)]


def _label_tables(result: Any, before: list[Any]) -> list[str | Table]:
    """Mean average precision and a row for each label; that of the source head, too, if there is one."""
    means = [_interval(measured.mean_average_precision, ".3f") for measured in (result, *before)]
    rows = []
    for name, score in result.labels.items():
        if score.n:
            precision, accuracy = _interval(score.average_precision, ".3f"), f"{score.accuracy.value:.1%}"
            source = [_interval(head.labels[name].average_precision, ".3f").split(" [")[0] for head in before]
            rows.append([name, precision, accuracy, score.n_yes, score.n, *source])
    header = ["label", "average precision", "accuracy", "yes", "rows", *["source head" for _ in before]]
    return [", source heads ".join([f"mean average precision  {means[0]}", *means[1:]]), "", make_table(header, rows)]


def _interval(measured: Any, form: str) -> str:
    """An estimate with its confidence interval."""
    if measured is None:
        return "not defined"
    return f"{measured.value:{form}} [{measured.low:{form}}, {measured.high:{form}}]"


def diagnose(
    model: options.ModelFile,
    target: options.TableFile,
    label: options.Label,
    where: options.Where = None,
    figure: Annotated[Path | None, Option(help="Draw a figure of the three answers: .png, .svg or .pdf.")] = None,
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
    table = common.rows_for(fitted, target, where, embedding, verify, force)
    rows, y, unlabelled = labelled_rows(table, target, label, model=fitted)
    with status(f"diagnosing {len(rows)} rows"):
        result = diagnosis.diagnose(fitted, rows.embeddings, y)
        if figure is not None:
            diagnosis.plot_diagnosis(result, figure, force)
    lines: list[Any] = [f"{len(unlabelled)} rows without a label were left out"] if len(unlabelled) else []
    counts = ", ".join(f"{name} {n}" for name, n in result.n_labels.items())
    lines += [f"{len(rows)} labels: {counts}", *result.differences, f"features needed: {result.features_needed}", ""]
    accuracies = {"source head": result.source_accuracy, "adapted, on held-out rows": result.loo_accuracy}
    heads = [[name, _interval(accuracy, ".1%")] for name, accuracy in accuracies.items() if accuracy is not None]
    curve: list[list[object]] = [
        [f"{n:.0f}", f"{accuracy:.1%} ± {error:.1%}", "measured"]
        for n, accuracy, error in zip(result.n_shots, result.accuracy, result.stderr)
    ]
    curve += [[n, _interval(accuracy, ".1%"), "extrapolated"] for n, accuracy in result.expected.items()]
    lines += [make_table(["", "accuracy"], heads), "", make_table(["labels per class", "accuracy", ""], curve)]
    lines += ["", *(f"note: {note}" for note in result.notes)] if result.notes else []
    print_result({"figure": figure, "unlabeled": len(unlabelled), **result.to_dict()}, lines, as_json)
