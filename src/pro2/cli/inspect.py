"""`pro2 inspect` and `pro2 export`: what a file holds, and a classifier in other formats."""

import enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from pro2.cli import common, options
from pro2.cli.common import make_table, print_result, status

SHOWN = 40  # columns of a table that a terminal shows; --json has all of them
KINDS = {
    "ProjectAndProbe": "model",
    "LinearClassifier": "adapted classifier",
    "Projection": "projection",
    "Probe": "probe",
    "ProbeBank": "bank of probes",
    "MultiLabelProjectAndProbe": "model of several labels",
    "MultiLabelClassifier": "adapted classifier of several labels",
    "SourceMoments": "source moments",
}
DEFAULTS = {"ridge": 0.3, "solver": "krylov"}  # a person is shown what was chosen
Format = enum.StrEnum("Format", ["onnx", "safetensors", "torch"])


def inspect(
    file: Annotated[Path, Argument(help="Model, table, moments, export or result folder.")],
    embedding: options.Embedding = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what FILE is, where it came from and whether it is intact; exit status 1 if it is not.

    \b
    Examples:
      pro2 inspect model.safetensors
      pro2 inspect birds.npz --json
    """
    with status(f"reading {file}"):
        content = _describe(file, embedding)
    parts: list[Any] = [make_table(["", ""], _summary(content), n_text=2)]
    if columns := [[name, *kind.split(", ", 1)] for name, kind in content.get("columns", {}).items()]:
        more = f"; with --json all {len(columns)}" if len(columns) > SHOWN else ""
        parts += ["", make_table(["column", "type", f"values (rows){more}"], columns[:SHOWN], n_text=3)]
    print_result({"file": file, **content}, parts, as_json)
    if content.get("intact") is False:
        raise typer.Exit(1)


def _describe(path: Path, embedding: str | None) -> dict[str, Any]:
    """Everything about a file, as `--json` prints it; a damaged file is an error."""
    from pro2.estimators.files import describe, is_model_file, load
    from pro2.export import describe_export, is_export
    from pro2.tables.sources import is_address

    if not is_address(path):
        common.check_exists(path, "file")
    if path.is_dir():
        from pro2.lab.experiments.store import STORE, ResultStore

        if (path / STORE).is_file():  # before tables: results are in a Parquet file, too
            with ResultStore(path) as store:
                runs = sum(len(next(iter(columns.values()), [])) for _, columns in store.results())
                counts = {"runs": runs, "failed": len(store.failures())}
                return {"what": "results of a sweep", **counts, "intact": not store.damaged()}
    if path.is_file() and is_model_file(path):
        content = describe(path)
        report = getattr(load(path), "report_", None) if content["kind"].endswith("Classifier") else None
        verdict = {} if report is None else {"verdict": report.verdict()}
        return {"what": KINDS[content["kind"]], **verdict, **content, "intact": True}
    if path.suffix in (".onnx", ".pt") or is_export(path):
        return {"what": "exported classifier", **describe_export(path)}
    table = common.open_table(path, None, embedding, verify=False)
    digest = table.verify()  # before anything else is read; raises where the table is damaged
    content = {"what": "embedding table", "rows": len(table), "width": table.width, "dtype": str(table.dtype)}
    content["columns"] = {name: _describe_column(values) for name, values in table.columns.items()}
    content |= {"unused_columns": dict(table.skipped)} if table.skipped else {}
    return content | {"provenance": dict(table.provenance), "digest": digest, "intact": True}


def _describe_column(values: Any) -> str:
    """The type, and the values with their counts if there are few."""
    import numpy as np

    from pro2.tables.columns import labelled

    if values.ndim == 2:
        return f"{values.dtype}, {values.shape[1]} numbers per row"
    present, mask = labelled(values)
    kind = str(values.dtype)
    if values.dtype.kind == "O":
        kind = {int: "integer", bool: "bool"}.get(type(next(iter(present.tolist()), "")), "text")
    unique, counts = np.unique(present, return_counts=True)
    listed = [f"{len(unique)} different values"]
    if 0 < len(unique) <= 10:
        listed = [f"{str(value)[:40]} ({n})" for value, n in zip(unique.tolist(), counts.tolist())]
    return ", ".join([kind, *listed, *([] if mask.all() else [f"missing ({np.sum(~mask)})"])])


def _summary(content: dict[str, Any]) -> list[tuple[str, str]]:
    """What a person wants to know, digests last and nothing twice; `--json` has the rest."""
    provenance = content.get("provenance", {})
    tables = {name: provenance[name] for name in ("source", "target", "unlabeled", "validation") if name in provenance}
    backbone = provenance if "backbone" in provenance else next(iter(tables.values()), {})
    state = "" if "intact" not in content else ", intact" if content["intact"] else ", damaged"
    rows: list[tuple[str, Any]] = [("file", content["what"] + state)]
    rows += [(name, content.get(name)) for name in ("verdict", "classes", "labels", "rows", "runs", "failed")]
    rows += [] if "file" in provenance.get("source", {}) else [("source kind", content.get("source_kind"))]
    width, dtype = content.get("width", content.get("n_features_in")), content.get("dtype")
    network, layer = backbone.get("backbone"), backbone.get("layer")
    layer = None if str(network).endswith(f"@{layer}") else layer
    rows.append(("embedding", ", ".join(filter(None, [width and f"width {width}", dtype, network, layer]))))
    for name, table in tables.items():
        label = f", labels in column {table['label']!r}" if table.get("label") else ""
        where = f", where {table['where']}" if table.get("where") else ""
        rows.append((name, f"{table['rows']} rows of {table['file']}{label}{where}" if "file" in table else None))
    rows += [(name, value) for name, value in content.get("params", {}).items() if value != DEFAULTS.get(name, "auto")]
    rows += [("unused column", f"{name}: {why}") for name, why in content.get("unused_columns", {}).items()]
    rows.append(("written by", f"pro2 {content['pro2_version']}" if "pro2_version" in content else None))
    rows += [("digest", content.get("digest"))]
    rows += [(f"digest of {name}", each.get("digest")) for name, each in tables.items()]
    rows.append(("weights digest", backbone.get("weights_digest")))
    return [(name.replace("_", " "), _text(value)) for name, value in rows if value not in (None, "", [], {})]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value[:12])) + (f", ... ({len(value)})" if len(value) > 12 else "")
    return str(value)


def export(
    adapted: options.AdaptedFile,
    out: options.Out,
    format: Annotated[Format, Option("--format", help="ONNX, or weight and bias of a layer.")] = Format.onnx,
    backbone: Annotated[Path | None, Option(help="With onnx: backbone graph to attach to.")] = None,
    force: options.Replace = False,
    as_json: options.AsJson = False,
) -> None:
    """Write ADAPTED as one affine map: ONNX with labels and probabilities, safetensors or PyTorch weights.

    A classifier of several labels becomes one layer with one output per label.

    \b
    Examples:
      pro2 export adapted.safetensors --format onnx --out head.onnx
      pro2 export adapted.safetensors --format onnx --backbone backbone.onnx --out image_to_class.onnx
      pro2 export adapted.safetensors --format torch --out head.pt
    """
    common.check_out(out, force)
    from pro2.export import OPSET
    from pro2.export import export as write

    classifier = common.load_estimator(adapted, "predict", "export", multilabel=True)
    with status("exporting"):
        write(classifier, out, format.value, force=force, backbone=backbone)
    what, width = "labels" if hasattr(classifier, "labels_") else "classes", classifier.n_features_in_
    names = getattr(classifier, f"{what}_").tolist()
    result = {"out": out, "format": format.value, what: names, "width": width}
    line = f"{out}: {width} numbers in, {len(names)} {what} out, {format.value}"
    if format is Format.onnx and backbone is None:
        result["opset"], line = OPSET, f"{line} (opset {OPSET}; outputs probabilities and label)"
    print_result(result, [line], as_json)
