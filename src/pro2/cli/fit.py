"""`pro2 fit`, `pro2 adapt` and `pro2 suggest`: learn from a source, adapt to a target, choose rows to label."""

from __future__ import annotations

import enum
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from pro2.cli import common, options
from pro2.cli.common import check_out, labelled_rows, load_estimator, print_result, rows_for, status, table_metadata
from pro2.cli.copies import Copies, copy_search, copy_warnings, learned_rows

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

    Fitted = tuple[Any, str, dict[str, Any], dict[str, Any]]  # model, origin in words, provenance, JSON result

START = (
    "give one SOURCE table with --label COLUMN; or files of moments with --moments alone, which hold the labels; or "
    "--unlabeled TABLE without SOURCE, with --head LAYER or --classes A,B (target rows go to `pro2 adapt`)"
)
STREAMED = 1 << 30  # bytes of embeddings: a larger table is read in batches
ROW_NUMBERS = 1 << 20  # of a pool that `suggest` draws candidates from at a time

Solver = enum.StrEnum("Solver", ["krylov", "logistic", "adamw"])
Scale = enum.StrEnum("Scale", ["auto", "none", "global", "standard", "unit"])
Sampling = enum.StrEnum("Sampling", ["auto", "by_class", "random", "suggested"])


def fit(
    out: options.Out,
    source: Annotated[list[Path] | None, Argument(help="Table with labels, or files of moments.")] = None,
    label: Annotated[
        str | None, Option("--label", "-y", help="Column of the label, or columns of 0 and 1: a,b,c.")
    ] = None,
    moments: Annotated[bool, Option("--moments", help="SOURCE are files of moments, which are added up.")] = False,
    head: Annotated[Path | None, Option(help="Linear layer to start from, .safetensors.")] = None,
    unlabeled: Annotated[Path | None, Option(help="Table without labels, for --head or --classes.")] = None,
    classes: Annotated[str | None, Option(help="Names of the classes (cat,dog), in the order of --head.")] = None,
    where: options.Where = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    n_components: Annotated[int | None, Option(help="Number of ranked features; by default 128, or all.")] = None,
    solver: Annotated[Solver, Option(help="Closed form, logistic loss, or the paper's AdamW.")] = Solver.krylov,
    ridge: Annotated[float, Option(help="Regularisation of the source problem.")] = 0.3,
    scale: Annotated[Scale, Option(help="Scaling of the embeddings.")] = Scale.auto,
    l2: Annotated[str, Option(help="Penalty of the paper's probe: a number, auto or loo.")] = "auto",
    n_features: Annotated[str, Option(help="Features of the paper's probe: a number, auto or loo.")] = "auto",
    random_state: Annotated[int | None, Option(help="Seed of --solver adamw.")] = None,
    force: options.Replace = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn ranked features and a source classifier from a labelled SOURCE table; rows without a label are left out.

    Without source rows, start from their moments (--moments), from a linear layer and unlabelled rows (--head,
    --unlabeled), or from unlabelled rows and the names of the classes (--unlabeled, --classes).

    \b
    Examples:
      pro2 fit source.arrow --label y --out model.safetensors
      pro2 fit birds.npz -y y -w "split == 0" --out model.safetensors --json
      pro2 fit faces.arrow --label smiling,young,hat --out model.safetensors
      pro2 fit --moments site-a.moments site-b.moments --out model.safetensors
      pro2 fit --head layer.safetensors --unlabeled pool.arrow --out model.safetensors
    """
    check_out(out, force)
    params = {"n_components": n_components, "solver": solver.value, "ridge": ridge, "random_state": random_state}
    params |= {"scale": None if scale is Scale.none else scale.value}
    params |= {"l2": common.number(l2), "n_features": common.number(n_features)}
    files, has_head = source or [], head is not None or classes is not None
    if moments and files and not (label or where or unlabeled or has_head):
        model, origin, provenance, result = _from_moments(files, params)
    elif unlabeled is not None and has_head and not (moments or files or label):
        table = common.open_table(unlabeled, where, embedding, verify)
        model, origin, provenance, result = _from_unlabeled(unlabeled, table, where, head, classes, params)
    elif len(files) == 1 and label is not None and not (moments or unlabeled or has_head):
        table = common.open_table(files[0], where, embedding, verify)
        model, origin, provenance, result = _from_rows(files[0], table, label, where, params)
    else:
        raise ValueError(START)
    model.save(out, force=force, provenance=provenance)
    result |= {"out": out, "source_kind": getattr(model, "source_kind_", "source rows"), "width": model.n_features_in_}
    lines = [f"{out}: learned from {origin} of width {model.n_features_in_}"]
    if hasattr(model, "labels_"):
        lines.append("labels " + ", ".join(f"{name} ({n} yes)" for name, n in result["yes"].items()))
    else:
        names = model.classes_.tolist()
        lines[0] += ", classes " + ", ".join(map(str, names[:10])) + (f", ... ({len(names)})" if names[10:] else "")
        n, n_ranked = len(model.projection_.components_), int(model.projection_.n_informative_)
        some = f"{n} features, the first {n_ranked} of them"
        lines.append(f"{some if n_ranked < n else f'{n} features'} ranked by how well they predict the class")
        result |= {"classes": names, "n_components": n, "n_informative": n_ranked}
    if result["rows"] and result.get("unlabeled"):
        lines.append(f"{result['unlabeled']} rows without a label were left out")
    print_result(result, lines, as_json)


def _from_rows(path: Path, whole: EmbeddingTable, label: str, where: str | None, params: dict[str, Any]) -> Fitted:
    from pro2.estimators import ProjectAndProbe
    from pro2.estimators.base import check_classes
    from pro2.estimators.linear import unit_rows
    from pro2.estimators.moments import SourceMoments
    from pro2.estimators.multilabel import MultiLabelProjectAndProbe

    columns = common.label_columns(whole, label)
    if len(columns) == 1:
        table, y, unlabelled = labelled_rows(whole, path, columns[0])
    else:
        table, y, unlabelled = common.multilabel_rows(whole, path, columns, columns)
    result: dict[str, Any] = {"rows": len(table), "unlabeled": len(unlabelled)}
    with status(f"learning from {len(table)} rows"):
        if len(columns) == 1:
            model: Any = ProjectAndProbe(**params)
            result["label"] = columns[0]
            if len(table) * table.width * table.dtype.itemsize > STREAMED and model.solver == "krylov":
                # the closed form needs nothing but moments, which are read one batch at a time
                check_classes(y)
                unit = model.scale == "unit"
                batches = ((unit_rows(X) if unit else X, y[span]) for X, span in table.iter_batches())
                model.fit_moments(SourceMoments.from_batches(batches))
            else:
                model.fit(table.embeddings, y)
        else:
            defaults = ProjectAndProbe().get_params(deep=False)
            given = [name for name, value in params.items() if value != defaults[name]]
            if given:
                raise ValueError(f"--{given[0].replace('_', '-')} goes with one label; several use averaged Pro2")
            model = MultiLabelProjectAndProbe().fit(table.embeddings, y, labels=columns)
            result |= {"labels": columns, "yes": dict(zip(columns, (y == 1).sum(axis=0).tolist()))}
    provenance = {"source": table_metadata(table, path, ",".join(columns), where)}
    return model, f"{len(table)} rows", provenance, result


def _from_moments(paths: list[Path], params: dict[str, Any]) -> Fitted:
    from pro2.estimators import ProjectAndProbe
    from pro2.estimators.files import BACKBONE_KEYS
    from pro2.estimators.moments import SourceMoments

    total: Any = None
    backbone: dict[str, Any] = {}
    parts = []
    for path in paths:
        moments = SourceMoments.load(path)
        recorded = moments.provenance.get("source", moments.provenance)
        for key in BACKBONE_KEYS:
            if key in recorded and backbone.setdefault(key, recorded[key]) != recorded[key]:
                before = f"{backbone[key]!r} before it"
                raise ValueError(f"{path} has moments of another {key} ({recorded[key]!r}) than {before}")
        total = moments if total is None else total + moments
        parts.append({"file": path.name, "weight": moments.total_weight})
    with status(f"learning from {len(paths)} files of moments"):
        model = ProjectAndProbe.from_moments(total, **params)
    origin = f"moments of {total.total_weight:g} rows in {len(paths)} files"
    return model, origin, {"source": backbone, "moments": parts}, {"rows": total.total_weight, "moments": parts}


def _from_unlabeled(
    path: Path, table: EmbeddingTable, where: str | None, head: Path | None, classes: str | None,
    params: dict[str, Any],
) -> Fitted:  # fmt: skip
    from pro2.estimators import ProjectAndProbe
    from pro2.estimators.files import BACKBONE_KEYS
    from pro2.export import read_head

    pool = table_metadata(table, path, None, where)
    provenance: dict[str, Any] = {"source": {key: pool[key] for key in BACKBONE_KEYS if key in pool}, "unlabeled": pool}
    origin, result = f"{len(table)} rows without labels", {"rows": 0, "unlabeled": len(table)}
    names = None if classes is None else common.split_names(classes, "--classes")
    if head is None:
        with status(f"learning from {origin}"):
            return ProjectAndProbe.from_unlabeled(table, names or [], **params), origin, provenance, result
    layer = read_head(head)
    order = layer.classes if names is None else names
    if order is None:
        raise ValueError(f"{head} does not record the classes of its outputs: give --classes A,B,...")
    if layer.unit and params["scale"] != "unit":
        raise ValueError(f"{head} takes rows of length one: pass --scale unit")
    try:
        with status(f"learning from {head.name} and {origin}"):
            model = ProjectAndProbe.from_head(layer.weight, layer.bias, order, table, **params)
    except ValueError as error:
        raise ValueError(f"{head} does not fit --classes and {path}: {error}") from error
    provenance["head"] = {"file": head.name}
    return model, f"the head {head.name} and {origin}", provenance, result | {"head": head}


def adapt(
    model: options.ModelFile,
    out: options.Out,
    target: Annotated[Path | None, Argument(help="Table of target rows; a few labels are enough.")] = None,
    label: options.SomeLabel = None,
    labels: options.Labels = None,
    where: options.Where = None,
    unlabeled: Annotated[Path | None, Option(help="Table of target rows without labels.")] = None,
    validation: Annotated[Path | None, Option(help="Table of labelled rows that select the paper's probe.")] = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    l2: Annotated[str | None, Option(help="Override the model's: a number, auto or loo.")] = None,
    n_features: Annotated[str | None, Option(help="Override the model's: a number, auto or loo.")] = None,
    label_sampling: Annotated[Sampling | None, Option(help="How the labelled rows were drawn.")] = None,
    class_shares: Annotated[
        str | None, Option(help="Known shares of the classes in the target, such as cat=0.7,dog=0.3.")
    ] = None,
    new_classes: Annotated[bool, Option("--new-classes", help="Accept classes that the source lacks.")] = False,
    trained_on: options.TrainedOn = None,
    trained_on_where: options.TrainedOnWhere = None,
    cosine: options.Cosine = options.COSINE,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Adapt MODEL to a target with the labels of TARGET, whose other rows are used without labels.

    Labels are in a column of TARGET (--label), where an empty cell means none, or in separate files (--labels). Pass
    --label-sampling suggested for rows that `pro2 suggest` chose: no accuracy is then estimated from them. Rows that
    are copies of rows of --trained-on are named, and rows of --validation that are copies of labelled ones.

    \b
    Examples:
      pro2 adapt model.safetensors target.arrow --label y --out adapted.safetensors
      pro2 adapt model.safetensors pool.arrow --labels next.csv --label-sampling suggested -o adapted.safetensors
      pro2 adapt model.safetensors target.arrow --label y --new-classes --out adapted.safetensors
      pro2 adapt model.safetensors few.parquet -y y --unlabeled rest.parquet --out adapted.safetensors
    """
    import numpy as np

    check_out(out, force)
    fitted = load_estimator(model, "adapt", "adapt", multilabel=True)
    several = hasattr(fitted, "labels_")
    about_labels = {"--new-classes": new_classes, "--class-shares": class_shares, "--validation": validation}
    if several:
        about_one = {"--labels": labels, "--unlabeled": unlabeled, "--l2": l2, "--n-features": n_features}
        common.refuse(about_one | about_labels, common.ONE_LABEL)
    _check_has_rows(several, target, unlabeled, label is not None or bool(labels), about_labels)
    params = {"l2": l2, "n_features": n_features, "label_sampling": label_sampling and label_sampling.value}
    fitted.set_params(**{name: common.number(value) for name, value in params.items() if value is not None})
    extra: dict[str, Any] = {"new_classes": "allow"} if new_classes else {}
    extra |= {"class_shares": _class_shares(class_shares, fitted.classes_)} if class_shares is not None else {}
    open_rows = partial(rows_for, fitted, embedding=embedding, verify=verify, force=force)
    y, n_left_out, provenance = None, 0, dict(fitted.provenance)
    learned = learned_rows(fitted, trained_on, trained_on_where, embedding, verify, force)
    find_copies, copies = copy_search(learned, cosine), []
    pools: list[EmbeddingTable] = []
    if target is not None:
        labelled, y, unlabelled = labelled_rows(open_rows(target, where), target, label, labels, fitted)
        provenance["target"] = table_metadata(labelled, target, label, where, labels)
        # only averaged Pro2 uses rows without a label: the paper's probe does not, nor a choice by a validation set
        averaged = not several and fitted.l2 == fitted.n_features == "auto" and validation is None
        pools, n_left_out = ([unlabelled], 0) if averaged else ([], len(unlabelled))
        copies += find_copies(labelled.embeddings, labelled.ids)
    if unlabeled is not None:
        pools.append(open_rows(unlabeled, None))
        provenance["unlabeled"] = table_metadata(pools[-1], unlabeled)
    for pool in filter(len, pools):
        copies += find_copies(pool.embeddings, pool.ids)
    if any(map(len, pools)):
        extra["X_unlabeled"] = np.concatenate([pool.embeddings for pool in pools])
    if validation is not None:
        held_out, y_val, _ = labelled_rows(open_rows(validation, None), validation, label or "label", None, fitted)
        extra |= {"X_val": held_out.embeddings, "y_val": y_val}
        provenance["validation"] = table_metadata(held_out, validation, label)
        for find in (find_copies, copy_search({target: labelled}, cosine)):
            copies += find(held_out.embeddings, held_out.ids)
    with status("adapting"):
        adapted = fitted.adapt_unlabeled(**extra) if y is None else fitted.adapt(labelled.embeddings, y, **extra)
        adapted.save(out, force=force, provenance=provenance)
    _print_adapted(adapted, y, sum(map(len, pools)), n_left_out, copies, out, as_json)


def _check_has_rows(
    several: bool, target: Path | None, unlabeled: Path | None, has_labels: bool, about_labels: dict[str, Any]
) -> None:
    """Whether there are rows to adapt to, and labels where an option needs them."""
    if several and target is None:
        raise ValueError("a model of several labels needs TARGET: a table with its labels in columns of 0 and 1")
    if not several and ((target is None) == has_labels or (target is None and unlabeled is None)):
        raise ValueError("give TARGET with --label COLUMN or --labels FILE, or --unlabeled TABLE, or both")
    if not several and not has_labels:
        common.refuse(about_labels, "labels: give TARGET with --label COLUMN or --labels FILE")


def _class_shares(text: str, classes: Any) -> dict[Any, float]:
    """NAME=SHARE,... as numbers by the model's own classes, which may be numbers themselves."""
    named, shares = {str(name): name for name in classes.tolist()}, {}
    for part in text.split(","):
        name, separator, share = (piece.strip() for piece in part.rpartition("="))
        if not separator or not share.replace(".", "", 1).isdigit():
            raise ValueError(f"--class-shares must be NAME=NUMBER,NAME=NUMBER,..., got {part!r}")
        shares[named.get(name, name)] = float(share)
    return shares


def _print_adapted(
    adapted: Any, y: Any, n_unlabeled: int, n_left_out: int, copies: Copies, out: Path, as_json: bool
) -> None:
    if hasattr(adapted, "labels_"):
        counts = dict(zip(map(str, adapted.labels_.tolist()), (y == y).sum(axis=0).tolist()))  # NaN is no label
    else:
        counts = {str(name): 0 if y is None else y.tolist().count(name) for name in adapted.classes_.tolist()}
    used = [] if y is None else [common.count(len(y), "label" if y.ndim == 1 else "labelled row")]
    used += [f"{common.count(n_unlabeled, 'row')} without a label"] if n_unlabeled else []
    lines = [f"{out}: adapted with {' and '.join(used)}"]
    lines += [f"{n_left_out} rows without a label were left out"] if n_left_out else []
    lines += copy_warnings(copies, "such rows are not new to the model")
    missing = [name for name, n in counts.items() if n == 0]
    result = {"out": out, "labels": counts, "without_labels": missing, "unlabeled": n_unlabeled, "left_out": n_left_out}
    result["copies"] = copies
    chosen = {name: getattr(adapted, f"{name}_") for name in ("n_features", "l2") if hasattr(adapted, f"{name}_")}
    if chosen:
        lines.append("chosen: " + ", ".join(f"{name} = {value:.4g}" for name, value in chosen.items()))
    if hasattr(adapted, "report_"):
        lines += str(adapted.report_).splitlines()
        result |= {"verdict": adapted.report_.verdict(), "report": adapted.report_.to_dict()}
    if missing and y is not None:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        lines.append(f"no label of {', '.join(missing[:5])}{more}: predicted from the source alone")
    print_result(result | chosen, lines, as_json)


def suggest(
    model: options.ModelFile,
    pool: Annotated[Path, Argument(help="Table of target rows.")],
    n: Annotated[int, Option("-n", "--n", min=1, help="Number of rows to suggest.")] = 16,
    adapted: Annotated[Path | None, Option(help="Classifier adapted with the labels so far.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Write ids and empty labels to this .csv.")] = None,
    labels: options.Labels = None,
    label: options.SomeLabel = None,
    where: options.Where = None,
    embedding: options.Embedding = None,
    ray: options.Ray = None,
    verify: options.Verify = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Suggest the rows of POOL whose labels would help most; fill them in and run `pro2 adapt --labels`.

    POOL may be larger than memory: of many rows, some chosen by chance are candidates, and only those are read.
    Rows that have a label already, in --labels or in the column --label, are not suggested again. Suggested rows are
    not a random sample: pass `--label-sampling suggested` to `pro2 adapt`, so that no accuracy is estimated from them.

    \b
    Examples:
      pro2 suggest model.safetensors pool.arrow -n 16
      pro2 suggest model.safetensors pool.arrow -n 16 --out next.csv
      pro2 suggest model.safetensors pool.arrow --labels next.csv --adapted adapted.safetensors --out more.csv
    """
    check_out(out, force)
    import numpy as np

    from pro2.active import Candidates
    from pro2.atomic import atomic_write
    from pro2.tables.csv_files import write_rows
    from pro2.tables.scan import read_rows

    fitted = load_estimator(model, "adapt", "suggest")
    current = None if adapted is None else load_estimator(adapted, "predict", "suggest")
    table = rows_for(fitted, pool, where, embedding, verify, force)
    X_labeled, copied = None, []
    if labels or label:
        done, y, table = labelled_rows(table, pool, label, labels, required=False)
        X_labeled = done.embeddings if len(done) else None
        # labels of a column go into the new file, since `adapt --labels` reads them from files alone
        copied = [] if labels else list(zip(done.ids.tolist(), y.tolist()))
    if n > len(table):
        raise ValueError(f"-n {n} is more than the {len(table)} rows of {pool} that have no label")
    with status(f"choosing among {len(table)} rows"):
        candidates, pooled = Candidates(n, random_state=0), np.empty(0, dtype=np.intp)
        for first in range(0, len(table), ROW_NUMBERS):
            some = np.arange(first, min(first + ROW_NUMBERS, len(table)))
            pooled = candidates.among(np.concatenate([pooled, some]))
        rows = candidates.add(read_rows(table.take(pooled), ray), pooled).suggest(fitted, current, X_labeled)
    ids = table.take(rows).ids.tolist()
    lines = ids
    if out is not None:
        cells = [*copied, *((name, "") for name in ids)]
        atomic_write(out, lambda file: write_rows(file, ["id", "label"], cells), force)
        words = [word for path in [*(labels or []), out] for word in ("--labels", str(path))]
        words += ["--embedding", embedding] if embedding else []
        command = ["pro2", "adapt", str(model), str(pool), *words, "--label-sampling", "suggested"]
        after = f", below the {common.count(len(copied), 'label')} of column {label!r}" if copied else ""
        lines = [f"{out}: {common.count(len(ids), 'row')} to label{after}"]
        lines.append(f"fill in the labels, then: {shlex.join(command)} --out FILE")
    print_result({"ids": ids, "rows": table.rows[rows], "out": out}, lines, as_json)
