"""`pro2 predict`: classes, or answers to several labels, of the rows of a table."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from typer import Option

from pro2.cli import options
from pro2.cli.common import Progress, check_out, load_estimator, print_result, rows_for

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pro2.tables.scan import Results

RESUMED = "from an earlier run"


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
    ray: options.Ray = None,
    verify: options.Verify = True,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Predict the class of every row of TABLE, or 0 or 1 for each of several labels.

    TABLE may be larger than memory. Interrupt it at any moment and run the same command again: it continues where it
    stopped.

    \b
    Examples:
      pro2 predict adapted.safetensors new.arrow --out predictions.csv
      pro2 predict adapted.safetensors new.arrow --proba --out predictions.parquet
      pro2 predict adapted.safetensors new.arrow --sets 0.9 --reject 0.05 --out predictions.csv
      pro2 predict adapted.safetensors s3://bucket/rows --ray auto --out predictions
    """
    for flag, value in (("--sets", sets), ("--reject", reject)):
        if value is not None and not 0.0 < value < 1.0:
            raise ValueError(f"{flag} {value:g} must be between 0 and 1")
    is_folder = out.suffix == ""
    if is_folder and out.exists():
        raise FileExistsError(f"{out} exists; give --out a folder that does not exist yet")
    check_out(out, force, (".csv", ".parquet", ""))
    from pro2.atomic import atomic_folder, atomic_write
    from pro2.tables.scan import keep_parts, parts, scan, working_in
    from pro2.tables.sources import fingerprint

    classifier = load_estimator(adapted, "predict", "predict", multilabel=True)
    if sets is not None or reject is not None:
        _check_can_abstain(classifier, adapted, reject)
    rows = rows_for(classifier, table, where, embedding, verify, force)
    every = parts(rows)

    def results(missing: list[int]) -> Results:
        for number, found in scan(rows, Predictions(classifier, proba, sets, reject), ray=ray, wanted=missing):
            ids = rows.take(range(every[number].rows.start, every[number].rows.stop)).id_column
            yield number, found.add_column(0, "id", ids)

    content = rows.origin_digest or fingerprint(table)
    depends_on = [hashlib.sha256(adapted.read_bytes()).hexdigest(), content, where, embedding, proba, sets, reject]
    with working_in(out) as folder, Progress("rows", quiet=len(every) == 1) as progress:
        try:
            files = keep_parts(
                folder, depends_on, every, results,
                # what the first call reports as done comes from an earlier run
                lambda n: progress.update(n, len(rows), "" if progress.total or not n else RESUMED),
            )  # fmt: skip
        except KeyboardInterrupt:
            kept = f"{progress.done} of {len(rows)} rows are predicted and kept in {folder}"
            raise KeyboardInterrupt(f"interrupted; {kept}. Run the same command again to continue") from None
        if is_folder:
            by_file = {
                name: [file for _, file in some] for name, some in groupby(zip(every, files), lambda each: each[0].file)
            }
            atomic_folder(out, partial(_write_folder, by_file))
        else:
            atomic_write(out, partial(_write, files, out.suffix.lower()), force)
        counts = _count(classifier, map(_read, files))
    listed = ", ".join(f"{name}: {n}" for name, n in counts.items() if n)
    print_result({"out": out, "rows": len(rows), "predicted": counts}, [f"{out}: {len(rows)} rows ({listed})"], as_json)


def _check_can_abstain(classifier: Any, path: Path, reject: float | None) -> None:
    """Whether it remembers enough labelled rows to compare others with them."""
    if not hasattr(classifier, "known_rows_"):
        raise ValueError(f"--sets and --reject need a classifier adapted by averaged Pro2 to one label; {path} is none")
    n = len(classifier.known_rows_)
    if reject is not None and (n + 1) * reject < 1.0:
        raise ValueError(f"--reject {reject:g} needs {math.ceil(1.0 / reject) - 1} labelled rows, {path} had {n}")


@dataclass(frozen=True)
class Predictions:
    """Columns of predictions for rows X."""

    classifier: Any
    proba: bool
    sets: float | None
    reject: float | None

    def __call__(self, X: np.ndarray) -> dict[str, Any]:
        import numpy as np
        import pyarrow as pa

        P = self.classifier.predict_proba(X)
        columns: dict[str, Any] = {}
        if hasattr(self.classifier, "labels_"):  # one column of 0 and 1 for each label
            names, P = self.classifier.labels_.tolist(), np.stack([label_proba[:, 1] for label_proba in P], axis=1)
            columns |= {f"prediction_{name}": (p > 0.5).astype(np.int64) for name, p in zip(names, P.T)}
        else:
            names, codes = self.classifier.classes_.tolist(), P.argmax(axis=1)
            rejected = None
            if self.reject is not None:
                score = self.classifier.outlier_score(X)
                rejected = score > 1.0 - self.reject
            columns["prediction"] = pa.array(names).take(pa.array(codes, mask=rejected))
            if self.sets is not None:
                found, which = np.unique(self.classifier.predict_set(X, self.sets), axis=0, return_inverse=True)
                texts = ["|".join(str(names[k]) for k in np.flatnonzero(row)) for row in found]
                columns["set"] = pa.array(texts).take(pa.array(which.reshape(-1)))
            if self.reject is not None:
                columns["outlier_score"] = score
        if self.proba:
            columns |= {f"proba_{name}": np.ascontiguousarray(p) for name, p in zip(names, P.T)}
        return columns


def _write_folder(files: dict[str, list[Path]], folder: Path) -> None:
    """A Parquet file for each file of the table."""
    for name, some in files.items():
        path = (folder / name).with_suffix(".parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            _write(some, ".parquet", file)


def _write(files: Sequence[Path], suffix: str, file: IO[bytes]) -> None:
    """The rows of some parts as one file."""
    import pyarrow.parquet as pq

    from pro2.tables.csv_files import write_columns

    if suffix == ".csv":
        for i, table in enumerate(map(_read, files)):
            write_columns(file, table, header=i == 0)
        return
    with pq.ParquetWriter(file, _read(files[0]).schema) as writer:
        for table in map(_read, files):
            writer.write_table(table)


def _read(file: Path) -> pa.Table:
    from pro2.tables.scan import from_ipc

    return from_ipc(file.read_bytes())


def _count(classifier: Any, tables: Iterable[pa.Table]) -> dict[str, int]:
    """How many rows have each class, or each of several labels."""
    import pyarrow.compute as pc

    several = hasattr(classifier, "labels_")
    names = (classifier.labels_ if several else classifier.classes_).tolist()
    counts = Counter({str(name): 0 for name in names})
    for table in tables:
        if several:
            counts.update({str(name): pc.sum(table[f"prediction_{name}"]).as_py() for name in names})
        else:
            found = table["prediction"].value_counts().to_pylist()
            counts.update({"none of these" if f["values"] is None else str(f["values"]): f["counts"] for f in found})
    return counts
