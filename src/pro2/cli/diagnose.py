"""`pro2 diagnose`: how far the target is, what it needs, what more labels would bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pro2.cli import options
from pro2.cli.journey import check_out, labelled_rows, load_estimator, rows_for, tell, working

if TYPE_CHECKING:
    from pro2.lab.theory import Diagnosis


def diagnose(
    model: options.ModelFile,
    target: options.TableFile,
    label: options.Label,
    where: options.Where = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the three curves into this .png, .svg or .pdf.")] = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Say from labelled TARGET rows how severe the shift is, how many features are needed, what more labels bring."""
    check_out(figure, force, (".png", ".svg", ".pdf"), "--figure")
    from pro2.lab.theory import diagnose as look
    from pro2.lab.theory import plot_diagnosis

    fitted = load_estimator(model, "adapt", "diagnose")
    table = rows_for(fitted, target, where, embedding, verify, force)
    rows, y, rest = labelled_rows(table, target, label, classes=fitted.classes_)
    with working(f"looking at {len(rows)} rows"):
        found = look(fitted, rows.embeddings, y)
        if figure is not None:
            plot_diagnosis(found, figure, force)
    left_out = [f"{len(rest)} rows without a label were left out", ""] if len(rest) else []
    tell({"figure": figure, "unlabeled": len(rest), **found.to_dict()}, left_out + _lines(found), as_json)


def _lines(found: Diagnosis) -> list[str]:
    source = found.source_accuracy
    counts = ", ".join(f"{name}: {n}" for name, n in found.n_labels.items())
    lines = [
        f"target            {sum(found.n_labels.values())} labels ({counts})",
        f"source head       {source.value:.1%} right  [{source.low:.1%}, {source.high:.1%}]",
    ]
    if found.severity is not None and found.severity_without_shift is not None:
        low, _, high = found.severity_without_shift
        lines.append(
            f"shift severity    {found.severity:.2f} nats in the first {found.severity_features} features; "
            f"without a shift {low:.2f} to {high:.2f}"
        )
    lines.append(f"features needed   {found.features_needed}")
    if found.loo_accuracy is not None:
        each = found.loo_accuracy
        lines.append(f"adapted           {each.value:.1%} right  [{each.low:.1%}, {each.high:.1%}]  on rows left out")
    lines += [
        f"{n:>6.0f} per class  {a:.1%} ± {s:.1%}  measured"
        for n, a, s in zip(found.n_shots, found.accuracy, found.stderr)
    ]
    lines += [
        f"{n:>6} per class  {e.value:.1%}  [{e.low:.1%}, {e.high:.1%}]  extrapolated" for n, e in found.expected.items()
    ]
    return lines + [f"note: {note}" for note in found.notes]
