"""`pro2 predict`: classes, or answers to several labels, of the rows of a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from typer import Option

from pro2.cli import options
from pro2.cli.common import Progress, check_out, load_estimator, print_result, rows_for

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

BATCH = 8192


def predict(
    adapted: options.AdaptedFile,
    table: options.TableFile,
    out: Annotated[Path, Option("--out", "-o", help="Predictions to write: .csv, .parquet, or a folder like TABLE.")],
    proba: Annotated[bool, Option("--proba", help="Add a column of probabilities per class or label.")] = False,
    sets: Annotated[
        float | None, Option("--sets", help="Add sets of classes that hold the true class for this share of rows.")
    ] = None,
    reject: Annotated[
        float | None,
        Option("--reject", help="Predict nothing for rows unlike the labelled ones, with this false alarm rate."),
    ] = None,
    where: options.Where = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Predict the class of every row of TABLE, or 0 or 1 for each of several labels.

    \b
    Examples:
      pro2 predict adapted.safetensors new.arrow --out predictions.csv
      pro2 predict adapted.safetensors new.arrow --proba --out predictions.parquet
      pro2 predict adapted.safetensors new.arrow --sets 0.9 --reject 0.05 --out predictions.csv
    """
    for flag, value in (("--sets", sets), ("--reject", reject)):
        if value is not None and not 0.0 < value < 1.0:
            raise ValueError(f"{flag} {value:g} must be between 0 and 1")
    is_folder = out.suffix == ""
    if is_folder and out.exists():
        raise FileExistsError(f"{out} exists; give --out a folder that does not exist yet")
    check_out(out, force, (".csv", ".parquet", ""))
    from pro2.atomic import atomic_folder, atomic_write
    from pro2.tables.csv_files import write_rows

    classifier = load_estimator(adapted, "predict", "predict", multilabel=True)
    if sets is not None or reject is not None:
        _check_can_abstain(classifier, adapted, reject)
    rows = rows_for(classifier, table, where, embedding, verify, force)
    names = classifier.labels_ if hasattr(classifier, "labels_") else classifier.classes_
    counts = Counter({str(name): 0 for name in names.tolist()})

    def write(file: IO[bytes], part: EmbeddingTable = rows) -> None:
        batches: Iterator[dict[str, list[Any]]] = _predictions(classifier, part, proba, counts, sets, reject)
        first = next(batches)
        batches = map(advance, chain([first], batches))
        if out.suffix.lower() == ".csv":
            write_rows(file, list(first), chain.from_iterable(zip(*batch.values()) for batch in batches))
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.table(first).schema
        if "prediction" in first:  # all rows of the first batch may be rejected
            kind = pa.array(names.tolist()).type
            schema = schema.set(schema.get_field_index("prediction"), pa.field("prediction", kind))
        with pq.ParquetWriter(file, schema) as writer:
            for batch in batches:
                writer.write_table(pa.table(batch, schema=schema))

    def write_parts(folder: Path) -> None:
        for name, part in rows.split_by_part().items():
            path = (folder / name).with_suffix(".parquet")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                write(file, part)

    def advance(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        progress.update(progress.done + len(batch["id"]), len(rows))
        return batch

    with Progress("rows", quiet=len(rows) <= BATCH) as progress:
        if is_folder:
            atomic_folder(out, write_parts)
        else:
            atomic_write(out, write, force)
    listed = ", ".join(f"{name}: {n}" for name, n in counts.items() if n)
    print_result({"out": out, "rows": len(rows), "predicted": counts}, [f"{out}: {len(rows)} rows ({listed})"], as_json)


def _check_can_abstain(classifier: Any, path: Path, reject: float | None) -> None:
    """Whether it remembers enough labelled rows to compare others with them."""
    if not hasattr(classifier, "known_rows_"):
        raise ValueError(f"--sets and --reject need a classifier adapted by averaged Pro2 to one label; {path} is none")
    n = len(classifier.known_rows_)
    if reject is not None and (n + 1) * reject < 1.0:
        raise ValueError(f"--reject {reject:g} needs {math.ceil(1.0 / reject) - 1} labelled rows, {path} had {n}")


def _predictions(
    classifier: Any, table: EmbeddingTable, proba: bool, counts: Counter[str], sets: float | None, reject: float | None
) -> Iterator[dict[str, list[Any]]]:
    """Columns of predictions, a batch at a time for tables larger than memory; `counts` adds up the answers."""
    import numpy as np

    ids = table.ids
    for X, span in table.iter_batches(BATCH):
        columns: dict[str, list[Any]] = {"id": ids[span].tolist()}
        P = classifier.predict_proba(X)
        if hasattr(classifier, "labels_"):  # one column of 0 and 1 for each label; the 1s are counted
            probabilities = [label_proba[:, 1] for label_proba in P]
            answers = [(values > 0.5).astype(int) for values in probabilities]
            columns |= {f"prediction_{name}": values.tolist() for name, values in zip(counts, answers)}
            counts.update({name: int(values.sum()) for name, values in zip(counts, answers)})
        else:
            probabilities = P.T
            found = classifier.classes_[P.argmax(axis=1)].tolist()
            if reject is not None:
                score = classifier.outlier_score(X)
                found = [None if out else name for name, out in zip(found, score > 1.0 - reject)]
            columns["prediction"] = found
            counts.update("none of these" if name is None else str(name) for name in found)
            if sets is not None:
                names = np.array([str(name) for name in classifier.classes_.tolist()])
                columns["set"] = ["|".join(names[row]) for row in classifier.predict_set(X, sets)]
            if reject is not None:
                columns["outlier_score"] = score.tolist()
        if proba:
            columns |= {f"proba_{name}": values.tolist() for name, values in zip(counts, probabilities)}
        yield columns
