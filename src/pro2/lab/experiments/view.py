"""The finished view: one Parquet file (and a small JSON summary) that any data frame library opens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pro2.atomic import atomic_write
from pro2.extras import imported
from pro2.lab.experiments.results import ResultStore
from pro2.lab.experiments.runs import Batch

RESULTS = "results.parquet"
FAILURES = "failures.json"
SUMMARY = "summary.json"

# One row per run. Nothing here depends on when, where or in which order a run was done.
COLUMNS = {
    **dict.fromkeys(("key", "measure", "data", "target", "method"), "string"),
    **dict.fromkeys(("shots", "seed", "n_features"), "int32"),
    "l2": "float64",
    "params": "string",
    **dict.fromkeys(("accuracy", "worst_group", "val_accuracy", "support_loss", "log_loss"), "float64"),
    "n_test": "int32",
    **dict.fromkeys(("nullspace_norm", "excess_risk", "bound_bias", "bound_variance", "zero_risk"), "float64"),
    "detail": "string",
}


def require_pyarrow() -> Any:
    """pyarrow with its parquet module, or an error that names the extra."""
    return imported("pyarrow", "the results file is Parquet and needs pyarrow: pip install 'pro2[report]'", "parquet")


def write_view(store: ResultStore, batches: Iterable[Batch]) -> Path:
    """Write ``results.parquet`` with the finished runs of a plan, in the plan's order, atomically."""
    pa = require_pyarrow()
    table = pa.Table.from_pylist(list(_rows(store, batches)), schema=pa.schema(COLUMNS))
    return atomic_write(
        store.folder / RESULTS, lambda file: pa.parquet.write_table(table, file, compression="zstd"), force=True
    )


def _rows(store: ResultStore, batches: Iterable[Batch]) -> Iterator[dict[str, Any]]:
    """What a run is comes from the plan (names are not in the key), what it measured from the log."""
    measured = {row["key"]: row for row in store.rows()}
    for batch in batches:
        cell = {"measure": batch.measure, "data": batch.data, "target": batch.target, "method": batch.method.name}
        for seed, keys in zip(batch.seeds, batch.keys):
            for setting, key in zip(batch.settings, keys):
                if key in measured:
                    params = json.dumps(dict(setting.params), sort_keys=True) if setting.params else None
                    point = {"n_features": setting.n_features, "l2": setting.l2, "params": params}
                    yield {**cell, "shots": batch.shots, "seed": seed, **point, **measured[key]}


def write_json(path: Path, value: Any) -> Path:
    """Write plain values atomically."""
    return write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> Path:
    """Write text atomically, over what is there."""
    return atomic_write(path, lambda file: file.write(text.encode("utf-8")), force=True)


def read_view(folder: str | Path) -> Any:
    """The results of a sweep folder as a pyarrow Table."""
    pa, path = require_pyarrow(), Path(folder) / RESULTS
    if not path.is_file():
        raise ValueError(f"{str(folder)!r} holds no {RESULTS}: run a sweep into it first")
    try:
        table = pa.parquet.read_table(path)
        # what an older version did not measure is null; what is of another kind is no result of a sweep
        columns = [table[field.name].cast(field.type) if field.name in table.column_names
                   else pa.nulls(len(table), field.type) for field in pa.schema(COLUMNS)]  # fmt: skip
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or no results file: {str(error)[:200]}") from error
    return pa.table(columns, names=list(COLUMNS))
