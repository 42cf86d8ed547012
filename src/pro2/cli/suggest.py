"""`pro2 suggest`: which rows of a pool to label next."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import IO, Annotated

import typer

from pro2.cli.journey import (
    AsJson,
    Embedding,
    Force,
    ModelFile,
    Where,
    check_out,
    check_table,
    load_estimator,
    open_table,
    tell,
    working,
)


def suggest(
    model: ModelFile,
    pool: Annotated[Path, typer.Argument(help="Table of target rows without labels.")],
    n: Annotated[int, typer.Option("-n", "--n", min=1, help="How many rows to suggest.")] = 16,
    adapted: Annotated[Path | None, typer.Option(help="Classifier adapted so far, for a later round.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the ids to this .csv with an empty label.")
    ] = None,
    random_state: Annotated[int, typer.Option(help="Of the draw; the same number gives the same rows.")] = 0,
    where: Where = None,
    embedding: Embedding = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Suggest the rows of POOL whose labels would help most; label them and run `pro2 adapt`."""
    if out is not None:
        check_out(out, force)
    import numpy as np

    from pro2.active import suggest_labels
    from pro2.atomic import atomic_write

    fitted = load_estimator(model, "adapt", "suggest")
    now = None if adapted is None else load_estimator(adapted, "predict", "suggest")
    table = open_table(pool, where, embedding)
    check_table(fitted, table, pool, force)
    if n > len(table):
        raise ValueError(f"-n {n} is more than the {len(table)} rows of {pool}")
    with working(f"choosing among {len(table)} rows"):
        rows = np.asarray(suggest_labels(fitted, table.embeddings, n, adapted=now, random_state=random_state))
    ids = table.ids[rows].tolist()
    if out is not None:
        atomic_write(out, lambda file: _write(file, ids), force)
    result = {"ids": ids, "rows": table.rows[rows].tolist(), "out": None if out is None else str(out)}
    tell(result, ids if out is None else [f"{out}: {len(ids)} rows to label"], as_json)


def _write(file: IO[bytes], ids: list[str]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("id", "label"), *((each, "") for each in ids)])
    file.write(text.getvalue().encode())
