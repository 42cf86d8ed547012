"""`pro2 export`: the adapted classifier for machines that know nothing of this package."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from pro2.cli import options
from pro2.cli.journey import check_out, load_estimator, tell, working

Format = enum.StrEnum("Format", ["onnx", "safetensors", "torch"])


def export(
    adapted: options.AdaptedFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")],
    format: Annotated[Format, typer.Option("--format", help="ONNX, or weight and bias of a layer.")] = Format.onnx,
    backbone: Annotated[Path | None, typer.Option(help="With onnx: backbone graph to attach to.")] = None,
    force: options.Replace = False,
    as_json: options.AsJson = False,
) -> None:
    """Write ADAPTED as one affine map: ONNX with labels and probabilities, safetensors or PyTorch weights.

    Of several labels all heads are written, as one layer with one output per label.
    """
    check_out(out, force)
    from pro2.export import OPSET
    from pro2.export import export as write

    classifier = load_estimator(adapted, "predict", "export", several=True)
    with working("exporting"):
        write(classifier, out, format.value, force=force, backbone=backbone)
    what, D = "labels" if hasattr(classifier, "labels_") else "classes", classifier.n_features_in_
    names = getattr(classifier, f"{what}_").tolist()
    result = {"out": out, "format": format.value, what: names, "width": D}
    line = f"{out}: {D} numbers in, {len(names)} {what} out, {format.value}"
    if format is Format.onnx and backbone is None:
        result["opset"], line = OPSET, f"{line} (opset {OPSET}; outputs probabilities and label)"
    tell(result, [line], as_json)
