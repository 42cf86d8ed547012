"""`pro2 predict`: labels and probabilities for every row of a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.journey import check_out, load_estimator, rows_for, tell

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
    if out.suffix.lower() not in writers:
        raise ValueError(f"--out {out} must end in .csv or .parquet")
    check_out(out, force)
    from pro2.atomic import atomic_write

    classifier = load_estimator(adapted, "predict", "predict", several=True)
    rows = rows_for(classifier, table, where, embedding, verify, force)
    several = hasattr(classifier, "labels_")
    names = classifier.labels_ if several else classifier.classes_
    counts: dict[str, int] = {str(name): 0 for name in names.tolist()}
    answers = _label_batches if several else _batches
    batches = _progress(answers(classifier, rows, proba, counts), len(rows))
    atomic_write(out, lambda file: writers[out.suffix.lower()](file, batches), force)
    shown = ", ".join(f"{name}: {n}" for name, n in counts.items() if n)
    tell({"out": str(out), "rows": len(rows), "predicted": counts}, [f"{out}: {len(rows)} rows ({shown})"], as_json)


def _batches(classifier: Any, table: EmbeddingTable, proba: bool, counts: dict[str, int]) -> Iterator[Batch]:
    """A table larger than memory passes through in pieces."""
    ids = table.ids
    for X, span in table.iter_batches(BATCH):
        labels = classifier.predict(X).tolist()
        for name in labels:
            counts[str(name)] += 1
        batch: Batch = {"id": ids[span].tolist(), "prediction": labels}
        if proba:
            P = classifier.predict_proba(X)
            batch |= {f"proba_{name}": P[:, k].tolist() for k, name in enumerate(classifier.classes_.tolist())}
        yield batch


def _label_batches(classifier: Any, table: EmbeddingTable, proba: bool, counts: dict[str, int]) -> Iterator[Batch]:
    """One column of 0 and 1 for each label; `counts` are those of 1."""
    ids = table.ids
    for X, span in table.iter_batches(BATCH):
        Y = classifier.predict(X)
        batch: Batch = {"id": ids[span].tolist()}
        for name, column in zip(counts, Y.T):
            batch[f"prediction_{name}"] = column.tolist()
            counts[name] += int(column.sum())
        if proba:
            batch |= {f"proba_{name}": P[:, 1].tolist() for name, P in zip(counts, classifier.predict_proba(X))}
        yield batch


def _progress(batches: Iterator[Batch], total: int) -> Iterator[Batch]:
    if not sys.stderr.isatty() or total <= BATCH:
        yield from batches
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("predicting", total=total)
        for batch in batches:
            yield batch
            bar.advance(task, len(batch["id"]))


def _write_csv(file: IO[bytes], batches: Iterator[Batch], spreadsheet: bool) -> None:
    from pro2.tables.csv_files import write_rows

    first: Batch = next(batches, {"id": [], "prediction": []})
    rows = chain.from_iterable(zip(*batch.values()) for batch in chain([first], batches))
    write_rows(file, list(first), rows, spreadsheet)


def _write_parquet(file: IO[bytes], batches: Iterator[Batch]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'pro2[table]'; or write .csv") from error
    writer = None
    for batch in batches:
        part = pa.table(batch)
        writer = writer or pyarrow.parquet.ParquetWriter(file, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()
