"""`pro2 fit`: a model from a labelled source table, from moments, or from a head and unlabelled rows."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.journey import check_out, facts, labelled_rows, number_or_auto, open_table, tell, working
from pro2.cli.multilabel import fit_labels, label_columns

if TYPE_CHECKING:
    import numpy as np

    from pro2.estimators import ProjectAndProbe
    from pro2.tables.embeddings import EmbeddingTable

STREAMED = 1 << 30  # bytes of embeddings: more are read a batch at a time
STARTS = "give SOURCE with --label COLUMN, or --moments FILES, or --unlabeled TABLE with --head LAYER or --classes A,B"


Solver = enum.StrEnum("Solver", ["krylov", "logistic", "adamw"])
Scale = enum.StrEnum("Scale", ["auto", "none", "global", "standard", "unit"])


def fit(
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write, e.g. model.safetensors.")],
    source: Annotated[
        list[Path] | None, typer.Argument(help="Embedding table with labels; with --moments, files of moments.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", "-y", help="Column of the label, or columns of 0 and 1, e.g. a,b,c."),
    ] = None,
    moments: Annotated[
        bool, typer.Option("--moments", help="SOURCE are files that SourceMoments.save wrote; they are added up.")
    ] = False,
    head: Annotated[
        Path | None, typer.Option(help="Linear layer to start from (.safetensors), instead of a source.")
    ] = None,
    unlabeled: Annotated[
        Path | None, typer.Option(help="Table of rows without labels, for --head or --classes.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of the classes, e.g. cat,dog; with --head in the order of the layer.")
    ] = None,
    where: options.Where = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    n_components: Annotated[int | None, typer.Option(help="Ranked features to learn; 128 or all by default.")] = None,
    solver: Annotated[
        Solver, typer.Option(help="Squared loss in closed form, log-loss, or the paper's.")
    ] = Solver.krylov,
    ridge: Annotated[float | None, typer.Option(help="Regularisation of the source problem.")] = None,
    scale: Annotated[Scale, typer.Option(help="What embeddings are divided by first.")] = Scale.auto,
    l2: Annotated[str, typer.Option(help="Penalty of the probe, a number, auto or loo.")] = "auto",
    n_features: Annotated[str, typer.Option(help="Features the probe may use, a number, auto or loo.")] = "auto",
    random_state: Annotated[int | None, typer.Option(help="Start of --solver adamw.")] = None,
    force: options.Replace = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn ranked features and a source classifier from a labelled SOURCE table; rows without a label are left out.

    Without its rows: from moments of them (--moments), from a linear layer and unlabelled rows (--head, --unlabeled),
    or from unlabelled rows and the names of the classes (--unlabeled, --classes).
    """
    check_out(out, force)
    files = source or []
    _check_start(files, label, moments, head, unlabeled, classes, where)
    params: dict[str, Any] = {
        "n_components": n_components,
        "solver": solver.value,
        "scale": None if scale is Scale.none else scale.value,
        "l2": number_or_auto(l2, "--l2", float),
        "n_features": number_or_auto(n_features, "--n-features", int),
        "random_state": random_state,
    }
    params |= {} if ridge is None else {"ridge": ridge}
    if moments:
        model, learned = _from_moments(files, params)
    elif unlabeled is not None:
        table = open_table(unlabeled, where, embedding, verify)
        names = None if classes is None else [name.strip() for name in classes.split(",")]
        model, learned = _from_pool(unlabeled, table, where, head, names, params)
    else:
        table = open_table(files[0], where, embedding, verify)
        columns = label_columns(table, str(label))
        if len(columns) > 1:
            return fit_labels(files[0], table, columns, where, params, out, force, as_json)
        model, learned = _from_rows(files[0], str(label), table, where, params)
    model.save(out, force=force, provenance=learned["provenance"])
    return _tell(model, out, learned, as_json)


def _check_start(
    files: list[Path], label: str | None, moments: bool, head: Path | None, unlabeled: Path | None,
    classes: str | None, where: str | None,
) -> None:  # fmt: skip
    """One line for flags that do not go together."""
    if moments:
        if not files or label or head or unlabeled or classes or where:
            raise ValueError("--moments goes with files of moments alone: they hold the labels and have no rows")
    elif unlabeled is not None:
        if files or label:
            raise ValueError("--unlabeled stands in for SOURCE and --label; unlabelled target rows go to `pro2 adapt`")
        if head is None and classes is None:
            raise ValueError("--unlabeled needs --head LAYER, or --classes A,B to start without any source")
    elif head is not None:
        raise ValueError("--head needs --unlabeled TABLE: rows that say what embeddings look like")
    elif classes is not None:
        raise ValueError("--classes goes with --unlabeled TABLE; a labelled source says itself which classes there are")
    elif len(files) > 1:
        raise ValueError(f"SOURCE is one table, got {len(files)}; to add up files of moments pass --moments")
    elif not files or label is None:
        raise ValueError(STARTS)


def _from_rows(
    path: Path, label: str, whole: EmbeddingTable, where: str | None, params: dict[str, Any]
) -> tuple[ProjectAndProbe, dict[str, Any]]:
    from pro2.estimators import ProjectAndProbe

    table, y, rest = labelled_rows(whole, path, label)
    model = ProjectAndProbe(**params)
    with working(f"learning from {len(table)} rows"):
        if len(table) * table.width * table.dtype.itemsize > STREAMED and model.solver == "krylov":
            _learn_in_batches(model, table, y)
        else:
            model.fit(table.embeddings, y)
    lines = [f"{len(rest)} rows without a label were left out"] if len(rest) else []
    return model, {
        "from": f"{len(table)} rows",
        "facts": {"rows": len(table), "unlabeled": len(rest), "label": label},
        "lines": lines,
        "provenance": {"source": facts(table, path, label, where)},
    }


def _learn_in_batches(model: ProjectAndProbe, table: EmbeddingTable, y: np.ndarray) -> None:
    """The same model from one batch after the other: moments are all that the rows are needed for."""
    from pro2.estimators.contract import check_classes
    from pro2.estimators.linear import unit_rows
    from pro2.estimators.moments import SourceMoments

    check_classes(y)
    unit = model.scale == "unit"
    batches = ((unit_rows(X) if unit else X, y[span]) for X, span in table.iter_batches())
    model.fit_moments(SourceMoments.from_batches(batches))


def _from_moments(paths: list[Path], params: dict[str, Any]) -> tuple[ProjectAndProbe, dict[str, Any]]:
    from pro2.estimators import ProjectAndProbe
    from pro2.estimators.moments import SourceMoments

    parts = [SourceMoments.load(path) for path in paths]
    total = parts[0]
    for path, part in zip(paths[1:], parts[1:]):
        if part.width != total.width:
            widths = f"{path} has moments of width {part.width}, {paths[0]} of {total.width}"
            raise ValueError(f"{widths}: not one embedding")
        total = total + part
    with working(f"learning from {len(parts)} files of moments"):
        model = ProjectAndProbe.from_moments(total, **params)
    each = [{"file": path.name, "weight": part.total_weight} for path, part in zip(paths, parts)]
    return model, {
        "from": f"moments of {total.total_weight:g} rows in {len(parts)} files",
        "facts": {"rows": total.total_weight, "moments": each},
        "provenance": {"source": _common_backbone(paths, parts), "moments": each},
    }


def _common_backbone(paths: list[Path], parts: list[Any]) -> dict[str, Any]:
    """What the files say about the backbone of their rows; a ValueError where they contradict each other."""
    from pro2.estimators.files import BACKBONE_KEYS

    found: dict[str, Any] = {}
    for path, part in zip(paths, parts):
        told = part.provenance.get("source", part.provenance)
        for key in BACKBONE_KEYS:
            if key in told and found.setdefault(key, told[key]) != told[key]:
                raise ValueError(f"{path} has moments of another {key} ({told[key]!r}) than {found[key]!r} before it")
    return found


def _from_pool(
    path: Path, table: EmbeddingTable, where: str | None, head: Path | None, names: list[str] | None,
    params: dict[str, Any],
) -> tuple[ProjectAndProbe, dict[str, Any]]:  # fmt: skip
    from pro2.estimators import ProjectAndProbe
    from pro2.estimators.files import BACKBONE_KEYS

    pool = facts(table, path, None, where)
    told: dict[str, Any] = {"source": {key: pool[key] for key in BACKBONE_KEYS if key in pool}, "unlabeled": pool}
    known: dict[str, Any] = {"rows": 0, "unlabeled": len(table)}
    with working(f"learning from {len(table)} rows without labels"):
        if head is None:
            model = ProjectAndProbe.from_unlabeled(table, names or [], **params)
            start = f"{len(table)} rows without labels"
        else:
            model = _from_head(head, names, table, params)
            start = f"the head {head.name} and {len(table)} rows without labels"
            told["head"], known["head"] = {"file": head.name}, head
    return model, {"from": start, "facts": known, "provenance": told}


def _from_head(path: Path, names: list[str] | None, table: EmbeddingTable, params: dict[str, Any]) -> ProjectAndProbe:
    from pro2.estimators import ProjectAndProbe
    from pro2.export import read_head

    head = read_head(path)
    order = head.classes if names is None else names
    if order is None:
        n = len(head.weight)
        raise ValueError(f"{path} does not say which classes its {n} outputs are: give --classes A,B,...")
    if len(order) != len(head.weight) and (len(order), len(head.weight)) != (2, 1):
        raise ValueError(f"--classes names {len(order)} classes, {path} has {len(head.weight)} outputs")
    if head.weight.shape[1] != table.width:
        raise ValueError(f"{path} takes embeddings of width {head.weight.shape[1]}, the table has {table.width}")
    if head.unit and params["scale"] != "unit":
        raise ValueError(f"{path} takes rows of length one: pass --scale unit")
    return ProjectAndProbe.from_head(head.weight, head.bias, order, table, **params)


def _tell(model: ProjectAndProbe, out: Path, learned: dict[str, Any], as_json: bool) -> None:
    projection, width = model.projection_, int(model.n_features_in_)
    names = model.classes_.tolist()
    result = {
        "out": out,
        "made_from": model.made_from_,
        **learned["facts"],
        "width": width,
        "classes": names,
        "n_components": int(projection.components_.shape[0]),
        "n_informative": int(projection.n_informative_),
    }
    what = repr(result["label"]) if "label" in result else "the class"
    listed = ", ".join(map(str, names[:10])) + (f", ... ({len(names)})" if len(names) > 10 else "")
    lines = [
        f"{out}: learned from {learned['from']} of width {width}, classes {listed}",
        f"{result['n_components']} features, {result['n_informative']} of them ranked by how well they predict {what}",
        *learned.get("lines", []),
    ]
    tell(result, lines, as_json)
