"""Arrow and Parquet: mapped and not copied, read column by column, with the types that others write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import assert_same, make_table


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_arrow_is_zero_copy_and_read_only(tmp_path: Path, dtype: str) -> None:
    path = make_table(n=1000, dtype=dtype).save(tmp_path / "t.arrow")
    before = pa.total_allocated_bytes()
    opened = EmbeddingTable.open(path)
    X = opened.embeddings
    assert not X.flags.owndata
    assert pa.total_allocated_bytes() - before < X.nbytes  # the rows stayed in the memory map
    assert np.shares_memory(X, opened.head(3).embeddings)
    for array in (X, opened.ids, opened.column("y"), opened.column("name"), opened.where("y == 1").embeddings):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


def test_opening_reads_neither_rows_nor_columns(tmp_path: Path) -> None:
    opened = EmbeddingTable.open(make_table(n=1000).save(tmp_path / "t.arrow"))
    assert (opened.n_rows, opened.width) == (1000, 5)
    assert not {"embeddings", "ids", "rows"} & set(opened.__dict__)
    assert not {"ids", "pieces"} & set(opened._source.__dict__)
    opened.column("y")
    assert list(opened._source.read_columns) == ["y"]


def test_batches_cover_all_rows_in_order_across_record_batches(tmp_path: Path) -> None:
    table = make_table(n=25)
    whole = pa.ipc.open_file(pa.memory_map(str(table.save(tmp_path / "one.arrow")))).read_all()
    with pa.OSFile(str(tmp_path / "many.arrow"), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=7)
    many = EmbeddingTable.open(tmp_path / "many.arrow")
    seen = list(many.iter_batches(5))
    assert all(len(X) <= 5 for X, _ in seen)
    assert [row for _, span in seen for row in range(span.start, span.stop)] == list(range(25))
    np.testing.assert_array_equal(np.concatenate([X for X, _ in seen]), table.embeddings)
    assert len(many._source.pieces) == 4  # streaming never joined the blocks
    rows = [24, 0, 7, 6, 13, 7]
    np.testing.assert_array_equal(many.take(rows).embeddings, table.embeddings[rows])
    assert many.verify() == table.digest
    assert_same(table, many)


def test_foreign_arrow_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "vector": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32())),
            "ids": pa.array([7, 8]),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "count": pa.array([1, None], pa.int32()),
            "flag": pa.array([True, False]),
            "image": pa.array([{"path": "x"}, {"path": "y"}]),
        }
    )
    for stream in (pa.ipc.new_file, pa.ipc.new_stream):
        with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, stream(sink, table.schema) as writer:
            writer.write_table(table)
        opened = EmbeddingTable.open(tmp_path / "t.arrow")
        assert opened.embeddings.tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert opened.ids.tolist() == ["7", "8"]
        assert opened.column("kind").tolist() == ["a", "b"]
        assert np.isnan(opened.column("count")[1])
        assert opened.column("flag").tolist() == [True, False]
        assert list(opened.columns) == ["kind", "count", "flag"]
        with pytest.raises(ValueError, match="struct"):
            opened.column("image")
        assert opened.verify() == opened.digest


def test_parquet_streams_in_batches_and_is_kept_only_as_a_whole(tmp_path: Path) -> None:
    table = make_table(n=25)
    wide = pa.table({"id": table.ids, **{f"e{j}": table.embeddings[:, j] for j in range(5)}})
    pyarrow.parquet.write_table(wide, tmp_path / "wide.parquet", row_group_size=9)
    for path in (table.save(tmp_path / "t.parquet"), tmp_path / "wide.parquet"):
        opened = EmbeddingTable.open(path)
        batches = [X for X, _ in opened.iter_batches(4)]
        assert max(map(len, batches)) <= 4
        np.testing.assert_array_equal(np.concatenate(batches), table.embeddings)
        opened.verify()
        assert "pieces" not in opened._source.__dict__
        np.testing.assert_array_equal(opened.embeddings, table.embeddings)


def test_missing_or_ragged_embeddings_are_refused(tmp_path: Path) -> None:
    for rows, message in (
        ([[1.0], None], "'e' has no value in row 1"),
        ([[1.0], [1.0, 2.0]], "2 values in row 1, 1 in"),
    ):
        pyarrow.parquet.write_table(pa.table({"e": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=message):
            EmbeddingTable.open(tmp_path / "t.parquet").verify()
