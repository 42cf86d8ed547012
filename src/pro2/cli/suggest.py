"""`pro2 suggest`: which rows of a pool to label next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pro2.cli import options
from pro2.cli.journey import check_out, count, labelled_rows, load_estimator, rows_for, tell, working


def suggest(
    model: options.ModelFile,
    pool: Annotated[Path, typer.Argument(help="Table of target rows.")],
    n: Annotated[int, typer.Option("-n", "--n", min=1, help="How many rows to suggest.")] = 16,
    adapted: Annotated[Path | None, typer.Option(help="Classifier adapted so far, for a later round.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the ids to this .csv with an empty label.")
    ] = None,
    labels: options.Labels = None,
    label: Annotated[
        str | None, typer.Option("--label", "-y", help="Column of the label, in --labels or else in POOL.")
    ] = None,
    random_state: Annotated[int, typer.Option(help="Of the draw; the same number gives the same rows.")] = 0,
    where: options.Where = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    spreadsheet: options.Spreadsheet = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Suggest the rows of POOL whose labels would help most; fill them in and run `pro2 adapt --labels`.

    Rows that have a label already, in --labels or in the column --label, are never suggested again. Chosen rows are no
    sample, and say nothing about accuracy: tell `pro2 adapt` so, with `--label-sampling suggested`.
    """
    check_out(out, force)
    from pro2.active import suggest_labels
    from pro2.atomic import atomic_write
    from pro2.tables.csv_files import write_rows

    fitted = load_estimator(model, "adapt", "suggest")
    now = None if adapted is None else load_estimator(adapted, "predict", "suggest")
    table = rows_for(fitted, pool, where, embedding, verify, force)
    known = None
    if labels or label:
        done, _, table = labelled_rows(table, pool, label, labels, needed=False)
        known = done.embeddings if len(done) else None
    if n > len(table):
        raise ValueError(f"-n {n} is more than the {len(table)} rows of {pool} that have no label")
    with working(f"choosing among {len(table)} rows"):
        rows = suggest_labels(fitted, table.embeddings, n, adapted=now, random_state=random_state, X_labeled=known)
    ids = table.ids[rows].tolist()
    if out is not None:
        empty = [(each, "") for each in ids]
        atomic_write(out, lambda file: write_rows(file, ["id", "label"], empty, spreadsheet), force)
    then = shlex.join(["pro2", "adapt", str(model), str(pool), "--labels", str(out), "--label-sampling", "suggested"])
    lines = [f"{out}: {count(len(ids), 'row')} to label", f"fill in the labels, then: {then} --out FILE"]
    lines = ids if out is None else lines
    tell({"ids": ids, "rows": table.rows[rows], "out": out}, lines, as_json)
