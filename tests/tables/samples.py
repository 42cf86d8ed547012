"""Tables and comparisons that the tests of tables share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from pro2.tables.embeddings import EmbeddingTable

SUFFIXES = [".arrow", ".feather", ".parquet", ".npz", ".npy", ".csv"]
EXACT = [suffix for suffix in SUFFIXES if suffix not in (".npy", ".csv")]  # text forgets integer widths and provenance
PROVENANCE = {"backbone": "toy", "layer": "penultimate", "preprocessing": {"size": 224}, "weights_digest": "sha256:0"}


def make_table(n: int = 12, width: int = 5, dtype: str = "float32", seed: int = 0) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    columns = {
        "y": np.arange(n, dtype=np.int8) % 2,
        "place": (np.arange(n, dtype=np.int16) // 2) % 2,
        "weight": rng.random(n),
        "name": np.array([f'Vögel, {i}\n"x"' for i in range(n)]),
        "held": np.arange(n) % 3 == 0,
    }
    X = rng.standard_normal((n, width)).astype(dtype)
    return EmbeddingTable(X, [f"dir/{i:03d}.jpg" for i in range(n)], columns, PROVENANCE)


def assert_same(a: EmbeddingTable, b: EmbeddingTable, exact: bool = True) -> None:
    """The same rows, ids and columns; `exact`: in the same type."""
    np.testing.assert_array_equal(a.embeddings, b.embeddings)
    assert a.embeddings.dtype == b.embeddings.dtype or not exact
    np.testing.assert_array_equal(a.ids, b.ids)
    assert list(a.columns) == list(b.columns)
    for name, values in a.columns.items():
        np.testing.assert_array_equal(values, b.columns[name])


def write_foreign(table: pa.Table, path: Path) -> Path:
    """Write columns as other programs do, without our metadata."""
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.feather.write_feather(table, path, compression="lz4" if path.suffix == ".feather" else "uncompressed")
    return path
