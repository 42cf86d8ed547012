"""`pro2 adapt`: probe with a handful of target labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli.journey import (
    AsJson,
    Embedding,
    Force,
    ModelFile,
    Where,
    check_out,
    check_table,
    facts,
    labels_of,
    load_estimator,
    number_or_auto,
    open_table,
    tell,
    working,
)

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable


def adapt(
    model: ModelFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="Adapted classifier to write, e.g. adapted.safetensors.")],
    target: Annotated[Path | None, typer.Argument(help="Table of labelled target rows; a handful is enough.")] = None,
    label: Annotated[str | None, typer.Option("--label", "-y", help="Column of the label.")] = None,
    where: Where = None,
    unlabeled: Annotated[Path | None, typer.Option(help="Table of target rows without labels.")] = None,
    validation: Annotated[Path | None, typer.Option(help="Table of labelled target rows to choose by.")] = None,
    embedding: Embedding = None,
    l2: Annotated[str | None, typer.Option(help="Penalty instead of the model's, a number or auto.")] = None,
    n_features: Annotated[str | None, typer.Option(help="Features instead of the model's, a number or auto.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Adapt MODEL to a target with the labels of TARGET, and rows without labels if there are any."""
    check_out(out, force)
    if (target is None) != (label is None) or (target is None and unlabeled is None):
        raise ValueError("give TARGET with --label COLUMN, or --unlabeled TABLE, or both")
    fitted = load_estimator(model, "adapt", "adapt")
    if l2 is not None:
        fitted.set_params(l2=number_or_auto(l2, "--l2", float))
    if n_features is not None:
        fitted.set_params(n_features=number_or_auto(n_features, "--n-features", int))

    def rows(path: Path, where: str | None = None) -> EmbeddingTable:
        table = open_table(path, where, embedding)
        check_table(fitted, table, path, force)
        return table

    X, y, provenance = None, None, dict(fitted.provenance)
    if target is not None and label is not None:
        table = rows(target, where)
        X, y = table.embeddings, labels_of(table, label)
        provenance["target"] = facts(table, target, label, where, embedding)
    extra: dict[str, Any] = {}
    if unlabeled is not None:
        table = rows(unlabeled)
        extra["X_unlabeled"] = table.embeddings
        provenance["unlabeled"] = facts(table, unlabeled)
    if validation is not None and label is not None:
        table = rows(validation)
        extra |= {"X_val": table.embeddings, "y_val": labels_of(table, label)}
        provenance["validation"] = facts(table, validation, label)
    with working("adapting"):
        adapted = fitted.adapt(X, y, **extra)
        adapted.save(out, force=force, provenance=provenance)
    _report(adapted, y, out, as_json)


def _report(adapted: Any, y: Any, out: Path, as_json: bool) -> None:
    labels = [] if y is None else y.tolist()
    counts = {str(name): labels.count(name) for name in adapted.classes_.tolist()}
    result = {"out": str(out), "labels": counts}
    chosen = {name: getattr(adapted, f"{name}_") for name in ("n_features", "l2") if hasattr(adapted, f"{name}_")}
    lines = [f"{out}: adapted with {len(labels)} labels ({', '.join(f'{k}: {n}' for k, n in counts.items())})"]
    if chosen:
        lines.append("chosen: " + ", ".join(f"{name} = {value:.4g}" for name, value in chosen.items()))
    if hasattr(adapted, "report_"):
        lines.append(str(adapted.report_))
        chosen["loo_accuracy"] = None if not labels else adapted.report_.loo_accuracy
    missing = [name for name, n in counts.items() if n == 0]
    if missing and labels:
        lines.append(f"no label of {', '.join(missing[:5])}: these classes rest on the source alone")
    tell(result | chosen, lines, as_json)
