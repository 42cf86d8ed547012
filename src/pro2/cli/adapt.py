"""`pro2 adapt`: probe with a handful of target labels."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.errors import refuse
from pro2.cli.journey import (
    check_out,
    count,
    facts,
    labelled_rows,
    load_estimator,
    number_or_auto,
    rows_for,
    tell,
    working,
)
from pro2.cli.multilabel import ONE_LABEL, adapt_labels

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable


Sampling = enum.StrEnum("Sampling", ["auto", "by_class", "random", "suggested"])


def adapt(
    model: options.ModelFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="Adapted classifier to write, e.g. adapted.safetensors.")],
    target: Annotated[Path | None, typer.Argument(help="Table of target rows; a handful of labels is enough.")] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", "-y", help="Column of the label, in --labels or else in TARGET, or a,b,c."),
    ] = None,
    labels: options.Labels = None,
    where: options.Where = None,
    unlabeled: Annotated[Path | None, typer.Option(help="Table of target rows without labels.")] = None,
    validation: Annotated[Path | None, typer.Option(help="Table of labelled target rows to choose by.")] = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    l2: Annotated[str | None, typer.Option(help="Penalty instead of the model's, a number, auto or loo.")] = None,
    n_features: Annotated[
        str | None, typer.Option(help="Features instead of the model's, a number, auto or loo.")
    ] = None,
    label_sampling: Annotated[
        Sampling | None, typer.Option(help="How the labels were drawn; those of `pro2 suggest` claim no accuracy.")
    ] = None,
    new_classes: Annotated[
        bool, typer.Option("--new-classes", help="Accept labels of classes that the model's source does not have.")
    ] = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Adapt MODEL to a target with the labels of TARGET; by default its rows without a label are used as well.

    Labels are in a column of TARGET (--label), where an empty cell means none, or in files of their own (--labels).
    """
    import numpy as np

    check_out(out, force)
    fitted = load_estimator(model, "adapt", "adapt", several=True)
    if label_sampling is not None:
        fitted.set_params(label_sampling=label_sampling.value)
    if hasattr(fitted, "labels_"):
        one = {"--labels": labels, "--unlabeled": unlabeled, "--validation": validation, "--l2": l2}
        refuse(one | {"--n-features": n_features, "--new-classes": new_classes}, ONE_LABEL)
        return adapt_labels(fitted, target, label, where, embedding, verify, out, force, as_json)
    named = label is not None or bool(labels)
    if (target is None) == named or (target is None and unlabeled is None):
        raise ValueError("give TARGET with --label COLUMN or --labels FILE, or --unlabeled TABLE, or both")
    if new_classes and not named:
        raise ValueError("--new-classes goes with labels: give TARGET with --label COLUMN or --labels FILE")
    if l2 is not None:
        fitted.set_params(l2=number_or_auto(l2, "--l2", float))
    if n_features is not None:
        fitted.set_params(n_features=number_or_auto(n_features, "--n-features", int))

    def rows(path: Path, where: str | None = None) -> EmbeddingTable:
        return rows_for(fitted, path, where, embedding, verify, force)

    X, y, provenance = None, None, dict(fitted.provenance)
    extra: dict[str, Any] = {"new_classes": "allow"} if new_classes else {}
    without: list[EmbeddingTable] = []
    if target is not None:
        few, y, rest = labelled_rows(rows(target, where), target, label, labels, fitted.classes_)
        # A fixed penalty, fixed features or a validation set leave no use for rows without a label.
        is_default = fitted.l2 == fitted.n_features == "auto" and validation is None
        X, without = few.embeddings, [rest] if is_default else []
        provenance["target"] = facts(few, target, label, where, labels)
    if unlabeled is not None:
        without.append(rows(unlabeled))
        provenance["unlabeled"] = facts(without[-1], unlabeled)
    if any(map(len, without)):
        extra["X_unlabeled"] = np.concatenate([each.embeddings for each in without])
    if validation is not None:
        known, y_val, _ = labelled_rows(rows(validation), validation, label or "label", None, fitted.classes_)
        extra |= {"X_val": known.embeddings, "y_val": y_val}
        provenance["validation"] = facts(known, validation, label)
    with working("adapting"):
        adapted = fitted.adapt_unlabeled(extra["X_unlabeled"]) if y is None else fitted.adapt(X, y, **extra)
        adapted.save(out, force=force, provenance=provenance)
    return _report(adapted, y, sum(map(len, without)), out, as_json)


def _report(adapted: Any, y: Any, n_unlabeled: int, out: Path, as_json: bool) -> None:
    labels = [] if y is None else y.tolist()
    counts = {str(name): labels.count(name) for name in adapted.classes_.tolist()}
    result = {"out": out, "labels": counts, "unlabeled": n_unlabeled}
    chosen = {name: getattr(adapted, f"{name}_") for name in ("n_features", "l2") if hasattr(adapted, f"{name}_")}
    rest = f"{count(n_unlabeled, 'row')} without a label" if n_unlabeled else ""
    with_rows = [count(len(labels), "label"), rest] if labels else [rest]
    lines = [f"{out}: adapted with {' and '.join(filter(None, with_rows))}"]
    if chosen:
        lines.append("chosen: " + ", ".join(f"{name} = {value:.4g}" for name, value in chosen.items()))
    if hasattr(adapted, "report_"):
        lines += str(adapted.report_).splitlines()
        chosen |= {"verdict": adapted.report_.verdict(), "report": adapted.report_.to_dict()}
    missing = [name for name, n in counts.items() if n == 0]
    if missing and labels:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        lines.append(f"no label of {', '.join(missing[:5])}{more}: these classes rest on the source alone")
    tell(result | {"classes_without_labels": missing} | chosen, lines, as_json)
