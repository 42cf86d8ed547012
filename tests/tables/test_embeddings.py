"""The table: read-only, checked by id, filters that are lazy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import make_table


def test_inputs_are_neither_copied_nor_changed() -> None:
    X, y = np.zeros((3, 2), dtype=np.float32), np.arange(3)
    table = EmbeddingTable(X, list("abc"), {"y": y})
    assert np.shares_memory(X, table.embeddings)
    X[0] = 1
    y[0] = 5
    assert X.flags.writeable
    assert y.flags.writeable


def test_verify_names_the_row_that_is_not_finite() -> None:
    X = np.ones((5, 2), dtype=np.float32)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 3 \(id 'd'\).*not finite"):
        EmbeddingTable(X, list("abcde")).verify()


def test_filters_are_lazy_and_keep_order() -> None:
    table = make_table()
    view = table.where("y == 1 and place == 0")
    assert "rows" not in view.__dict__
    assert view.rows.tolist() == [1, 5, 9]
    assert view.ids.tolist() == ["dir/001.jpg", "dir/005.jpg", "dir/009.jpg"]
    np.testing.assert_array_equal(view.embeddings, table.embeddings[[1, 5, 9]])
    assert view.head(2).rows.tolist() == [1, 5]
    assert view.take([2, 0]).rows.tolist() == [9, 1]
    assert view.provenance["selection"] == "where y == 1 and place == 0"
    assert view.provenance["backbone"] == "toy"


def test_split_is_a_partition() -> None:
    table = make_table()
    parts = table.split("place")
    assert list(parts) == [0, 1]
    assert sorted(np.concatenate([part.rows for part in parts.values()]).tolist()) == list(range(12))
    assert all((part.column("place") == value).all() for value, part in parts.items())


def test_a_saved_view_is_a_table_of_its_own(tmp_path: Path) -> None:
    view = make_table().where("held")
    opened = EmbeddingTable.open(view.save(tmp_path / "v.arrow"))
    assert opened.verify() == view.digest != make_table().digest
    assert opened.ids.tolist() == view.ids.tolist()


def test_digest_depends_on_every_part() -> None:
    table = make_table()
    X, ids, columns = table.embeddings, table.ids, dict(table.columns)
    changed = X.copy()
    changed[0, 0] += 1
    digests = {
        table.digest,
        EmbeddingTable(changed, ids, columns).digest,
        EmbeddingTable(X, ids[::-1], columns).digest,
        EmbeddingTable(X, ids, {**columns, "y": 1 - columns["y"]}).digest,
        EmbeddingTable(X, ids, {"z": columns["y"]}).digest,
        EmbeddingTable(X.astype(np.float64), ids, columns).digest,
    }
    assert len(digests) == 6
    assert EmbeddingTable(X, ids, dict(reversed(columns.items()))).digest == table.digest


# ---- mistakes


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"embeddings": np.ones(3)}, r"embeddings must be a \(rows, width\)"),
        ({"embeddings": np.ones((2, 2), dtype=int)}, "float16, float32 or float64"),
        ({"ids": ["a"]}, "ids has 1 entries, the embeddings have 2"),
        ({"ids": ["a", "a"]}, "repeats 1 id.*'a' 2 times"),
        ({"columns": {"y": [1]}}, "column 'y' has 1 rows"),
        ({"columns": {"id": [1, 2]}}, "cannot be called 'id'"),
        ({"columns": {"when": np.array(["2020", "2021"], dtype="M8[Y]")}}, "astype"),
        ({"columns": {"mixed": np.array(["a", 3], dtype=object)}}, r"3 \(int\) at row 1"),
        ({"columns": {"mixed": ["a", 3]}}, r"3 \(int\) at row 1"),
        ({"columns": {"code": [10**25, 1]}}, "64-bit integer"),
        ({"ids": ["a", None]}, "row 1 has no id"),
        ({"provenance": {"x": {1, 2}}}, "JSON"),
    ],
)
def test_mistakes_are_named(kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EmbeddingTable(**{"embeddings": np.ones((2, 2)), **kwargs})


def test_an_unknown_column_is_answered_with_near_ones() -> None:
    with pytest.raises(ValueError, match="did you mean 'place'"):
        make_table().column("plaec")
    with pytest.raises(ValueError, match="rows 0 to 11"):
        make_table().take([12])


# ---- real embeddings


@pytest.mark.real_data
def test_real_embeddings_open_and_convert(real_data: Path, tmp_path: Path) -> None:
    table = EmbeddingTable.open(real_data / "waterbirds.npz")
    groups = [len(table.where(f"split == 0 and y == {y} and place == {p}")) for y in (0, 1) for p in (0, 1)]
    assert groups == [3498, 184, 56, 1057]
    opened = EmbeddingTable.open(table.save(tmp_path / "t.arrow"))
    assert opened.verify() == table.digest
    assert opened.dtype == np.float16


@pytest.mark.real_data
def test_real_attributes_become_columns(real_data: Path) -> None:
    table = EmbeddingTable.open(real_data / "celeba10k.npz")
    assert len(table.columns) == 40
    assert len(table.where("Blond_Hair == 1 and Male == 1")) == 81
