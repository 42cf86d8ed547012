"""What a reader of tables may make of a damaged file (the same content, or one error that names it), and the files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pro2.tables.csv_files import read_labels, write_rows
from pro2.tables.embeddings import EmbeddingTable


def verifies_the_same(path: Path, whole: Path) -> None:
    """Files with a digest: what verifies is what was written."""
    table = EmbeddingTable.open(path)
    table.verify()
    _use(table)
    assert table.digest == EmbeddingTable.open(whole).digest
    assert table.provenance == EmbeddingTable.open(whole).provenance


def opens(path: Path, whole: Path) -> None:
    """Any file, read without verifying: no crash, no hang, no traceback, whatever is asked for first."""
    for first in (lambda t: t.ids, lambda t: t.embeddings, lambda t: [t.columns[name] for name in t.columns]):
        first(EmbeddingTable.open(path))
    _use(EmbeddingTable.open(path))


def reads_labels(path: Path, whole: Path) -> None:
    """A file of labels: ids and labels of equal length."""
    ids, labels = read_labels([path])
    assert len(ids) == len(labels)


def _use(table: EmbeddingTable) -> None:
    """Touch every byte, as a command would."""
    assert np.asarray(table.embeddings, dtype=np.float64).shape == (len(table), table.width)
    assert len(set(table.ids.tolist())) == len(table)
    for values in table.columns.values():
        assert len(values) == len(table)
        assert all(item is None or item == item or item != item for item in values.ravel().tolist())


def write_targets(folder: Path) -> dict[str, list[Path]]:
    """Files to damage, under the check that they must pass."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    n, rng = 40, np.random.default_rng(0)
    columns = {
        "y": np.arange(n, dtype=np.int8) % 2,
        "weight": rng.random(n),
        "name": [f'Vögel, {i}\n"x"' for i in range(n)],
        "held": np.arange(n) % 3 == 0,
        "gap": [None if i % 4 == 0 else i + 2**60 for i in range(n)],
        "label": ["a" if i % 3 else None for i in range(n)],
    }
    X, ids = rng.standard_normal((n, 6)).astype(np.float32), [f"dir/{i}.jpg" for i in range(n)]
    plain = EmbeddingTable(X, ids, columns, {"backbone": "toy"})
    table = EmbeddingTable(X, ids, {**columns, "box": np.arange(2 * n).reshape(n, 2)}, {"backbone": "toy"})
    ours = [table.save(folder / f"ours{suffix}") for suffix in (".arrow", ".parquet", ".npz")]
    ours.append(Path(__file__).parents[1] / "golden" / "table-v1.safetensors")
    lists = pa.table(plain).replace_schema_metadata(None)
    wide = pa.table(
        {"id": ids, **{f"e{j}": X[:, j] for j in range(6)}, "part": pa.array(["u", "v"] * 20).dictionary_encode()}
    )
    pyarrow.feather.write_feather(lists, folder / "lists.feather", compression="lz4")
    pyarrow.feather.write_feather(wide, folder / "wide.feather", compression="zstd")
    pyarrow.parquet.write_table(lists, folder / "lists.parquet", compression="zstd")
    pyarrow.parquet.write_table(wide, folder / "wide.parquet")
    np.savez_compressed(folder / "foreign.npz", X=X, y=columns["y"], name=np.array(columns["name"]))
    np.save(folder / "bare.npy", X)
    with (folder / "labels.csv").open("wb") as file:
        write_rows(file, ["id", "label"], [(name, "cat" if i % 2 else "") for i, name in enumerate(ids)])
    names = ("lists.feather", "wide.feather", "lists.parquet", "wide.parquet", "foreign.npz", "bare.npy")
    foreign = [plain.save(folder / "plain.csv"), *(folder / name for name in names)]
    return {"verifies_the_same": ours, "opens": ours + foreign, "reads_labels": [folder / "labels.csv"]}
