"""`pro2 fit`: learn ranked features from a labelled source table."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from pro2.cli.journey import (
    AsJson,
    Embedding,
    Label,
    Replace,
    TableFile,
    Verify,
    Where,
    check_out,
    facts,
    labelled_rows,
    number_or_auto,
    open_table,
    tell,
    working,
)


class Solver(enum.StrEnum):
    """How the features are found."""

    krylov = "krylov"
    logistic = "logistic"
    adamw = "adamw"


class Scale(enum.StrEnum):
    """What embeddings are divided by first."""

    auto = "auto"
    none = "none"
    overall = "global"
    standard = "standard"
    unit = "unit"


def fit(
    source: TableFile,
    label: Label,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write, e.g. model.safetensors.")],
    where: Where = None,
    embedding: Embedding = None,
    verify: Verify = True,
    n_components: Annotated[int | None, typer.Option(help="Ranked features to learn; 128 or all by default.")] = None,
    solver: Annotated[
        Solver, typer.Option(help="Squared loss in closed form, log-loss, or the paper's.")
    ] = Solver.krylov,
    ridge: Annotated[float | None, typer.Option(help="Regularisation of the source problem.")] = None,
    scale: Annotated[Scale, typer.Option(help="What embeddings are divided by first.")] = Scale.auto,
    l2: Annotated[str, typer.Option(help="Penalty of the probe, a number, auto or loo.")] = "auto",
    n_features: Annotated[str, typer.Option(help="Features the probe may use, a number, auto or loo.")] = "auto",
    random_state: Annotated[int | None, typer.Option(help="Start of --solver adamw.")] = None,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Learn ranked features and a source classifier from a labelled SOURCE table."""
    check_out(out, force)
    from pro2.estimators import ProjectAndProbe

    table, y, rest = labelled_rows(open_table(source, where, embedding, verify), source, label)
    model = ProjectAndProbe(
        n_components=n_components,
        solver=solver.value,
        scale=None if scale is Scale.none else scale.value,
        l2=number_or_auto(l2, "--l2", float),
        n_features=number_or_auto(n_features, "--n-features", int),
        random_state=random_state,
    )
    if ridge is not None:
        model.set_params(ridge=ridge)
    with working(f"learning from {len(table)} rows"):
        model.fit(table.embeddings, y)
        model.save(out, force=force, provenance={"source": facts(table, source, label, where)})
    projection = model.projection_
    result = {
        "out": str(out),
        "rows": len(table),
        "unlabeled": len(rest),
        "label": label,
        "width": table.width,
        "classes": model.classes_.tolist(),
        "n_components": int(projection.components_.shape[0]),
        "n_informative": int(projection.n_informative_),
    }
    lines = [
        f"{out}: learned from {len(table)} rows of width {table.width}, classes {_listed(result['classes'])}",
        f"{result['n_components']} features, {result['n_informative']} of them carry signal about {label!r}",
    ]
    if len(rest):
        lines.append(f"{len(rest)} rows without a label were left out")
    tell(result, lines, as_json)


def _listed(names: object) -> str:
    items = [str(each) for each in names] if isinstance(names, list) else [str(names)]
    return ", ".join(items[:10]) + (f", ... ({len(items)})" if len(items) > 10 else "")
