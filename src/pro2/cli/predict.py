"""`pro2 predict`: labels and probabilities for every row of a table."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.journey import check_out, load_estimator, rows_for, tell
from pro2.extras import imported

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

BATCH = 8192
Batch = dict[str, list[Any]]


def predict(
    adapted: options.AdaptedFile,
    table: options.TableFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="Predictions to write: .csv or .parquet.")],
    proba: Annotated[bool, typer.Option("--proba", help="Add one column of probabilities per class or label.")] = False,
    where: options.Where = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    spreadsheet: options.Spreadsheet = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Predict the class of every row of TABLE; of several labels, 0 or 1 for each."""
    writers: dict[str, Callable[[IO[bytes], Iterator[Batch]], None]] = {
        ".csv": partial(_write_csv, spreadsheet=spreadsheet),
        ".parquet": _write_parquet,
    }
    check_out(out, force, tuple(writers))
    from pro2.atomic import atomic_write

    classifier = load_estimator(adapted, "predict", "predict", several=True)
    rows = rows_for(classifier, table, where, embedding, verify, force)
    names = classifier.labels_ if hasattr(classifier, "labels_") else classifier.classes_
    counts = Counter({str(name): 0 for name in names.tolist()})
    batches = _progress(_batches(classifier, rows, proba, counts), len(rows))
    atomic_write(out, lambda file: writers[out.suffix.lower()](file, batches), force)
    shown = ", ".join(f"{name}: {n}" for name, n in counts.items() if n)
    tell({"out": out, "rows": len(rows), "predicted": counts}, [f"{out}: {len(rows)} rows ({shown})"], as_json)


def _batches(classifier: Any, table: EmbeddingTable, proba: bool, counts: Counter[str]) -> Iterator[Batch]:
    """A table larger than memory passes through in pieces; `counts`, by name, adds up the answers."""
    ids, several = table.ids, hasattr(classifier, "labels_")
    for X, span in table.iter_batches(BATCH):
        batch: Batch = {"id": ids[span].tolist()}
        answers = classifier.predict(X)
        if several:  # one column of 0 and 1 for each label; counted are those of 1
            batch |= {f"prediction_{name}": column.tolist() for name, column in zip(counts, answers.T)}
            counts.update(dict(zip(counts, answers.sum(axis=0).astype(int).tolist())))
        else:
            batch["prediction"] = answers.tolist()
            counts.update(map(str, batch["prediction"]))
        if proba:
            P = classifier.predict_proba(X)
            columns = [each[:, 1] for each in P] if several else P.T
            batch |= {f"proba_{name}": column.tolist() for name, column in zip(counts, columns)}
        yield batch


def _progress(batches: Iterator[Batch], total: int) -> Iterator[Batch]:
    if not sys.stderr.isatty() or total <= BATCH:
        return batches
    from rich.console import Console
    from rich.progress import track

    return iter(track(batches, "predicting", math.ceil(total / BATCH), console=Console(stderr=True)))


def _write_csv(file: IO[bytes], batches: Iterator[Batch], spreadsheet: bool) -> None:
    from pro2.tables.csv_files import write_rows

    first = next(batches)
    rows = chain.from_iterable(zip(*batch.values()) for batch in chain([first], batches))
    write_rows(file, list(first), rows, spreadsheet)


def _write_parquet(file: IO[bytes], batches: Iterator[Batch]) -> None:
    pa = imported("pyarrow", "Parquet files need pyarrow: pip install 'pro2[table]'; or write .csv", "parquet")
    first = pa.table(next(batches))
    with pa.parquet.ParquetWriter(file, first.schema) as writer:
        for part in chain([first], map(pa.table, batches)):
            writer.write_table(part)
