"""The table: read-only, checked by id, filters that are lazy; and labels, where missing ones are normal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pro2
from pro2.tables.columns import labelled, like_classes
from pro2.tables.csv_files import read_labels
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


def test_selections_are_lazy_keep_order_and_are_tables_of_their_own(tmp_path: Path) -> None:
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
    opened = EmbeddingTable.open(view.save(tmp_path / "v.arrow"))
    assert opened.verify() == view.digest != table.digest
    assert opened.ids.tolist() == view.ids.tolist()
    numbered = EmbeddingTable(table.embeddings, None, None, {"steps": {9: "a", 10: ("b",)}})
    assert numbered.provenance["steps"] == {"9": "a", "10": ["b"]}  # as JSON has it
    assert "steps" in EmbeddingTable.open(numbered.save(tmp_path / "n.arrow")).provenance
    parts = table.split("place")
    assert list(parts) == [0, 1]
    assert sorted(np.concatenate([part.rows for part in parts.values()]).tolist()) == list(range(12))
    assert all((part.column("place") == value).all() for value, part in parts.items())


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


def test_an_unknown_column_or_row_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'place'"):
        make_table().column("plaec")
    with pytest.raises(ValueError, match="rows 0 to 11"):
        make_table().take([12])


# ---- labels


def table(values: Any) -> EmbeddingTable:
    return EmbeddingTable(np.zeros((len(values), 2)), [f"r{i}" for i in range(len(values))], {"y": values})


@pytest.mark.parametrize(
    ("values", "labels", "kind"),
    [
        (["a", None, "", float("nan"), "b"], ["a", "b"], "O"),
        (np.array(["a", "", "", "", "b"]), ["a", "b"], "O"),
        ([1, None, None, None, 0], [1, 0], "i"),
        ([1.0, np.nan, np.nan, np.nan, 0.0], [1, 0], "i"),
        ([1.5, np.nan, np.nan, np.nan, 0.5], [1.5, 0.5], "f"),
        ([True, None, None, None, False], [True, False], "b"),
        (pd.array([1, pd.NA, pd.NA, pd.NA, 0], dtype="Int64"), [1, 0], "i"),
        (pd.array(["a", pd.NA, None, "", "b"], dtype="string"), ["a", "b"], "O"),
        (pd.Series(["a", None, np.nan, pd.NA, "b"], dtype=object), ["a", "b"], "O"),
        ([2**60, None, None, None, 2**60 + 1], [2**60, 2**60 + 1], "i"),
    ],
)
def test_every_way_to_say_nothing(values: Any, labels: list[Any], kind: str) -> None:
    found, mask = labelled(table(values).column("y"))
    assert found.tolist() == labels
    assert found.dtype.kind == kind
    assert mask.tolist() == [True, False, False, False, True]


def test_files_of_labels_are_read_by_id(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,label\nr2,cat\nr0,\nr3,dog\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("time,label,id\n1,bird,r0\n", encoding="utf-8")
    ids, labels = read_labels([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert dict(zip(ids, labels)) == {"r2": "cat", "r3": "dog", "r0": "bird"}
    pool = table([0, 0, 0, 0, 0])
    assert pool.align(ids, labels).tolist() == ["bird", None, "cat", "dog", None]
    assert pool.where("id != 'r2'").align(ids, labels).tolist() == ["bird", None, "dog", None]
    with pytest.raises(ValueError, match=r"a\.csv and .*a\.csv repeats 2 id"):
        read_labels([tmp_path / "a.csv", tmp_path / "a.csv"])
    with pytest.raises(ValueError, match=r"1 of 2 ids are not in this table, e\.g\. 'x\.jpg'; its first is 'r0'"):
        table([0, 0]).align(["r0", "x.jpg"], ["cat", "dog"])


def test_the_label_column_is_named_or_the_only_one(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("id,species\nr0,cat\n", encoding="utf-8")
    assert read_labels([path])[1].tolist() == ["cat"]
    path.write_text("id,species,label\nr0,cat,1\n", encoding="utf-8")
    assert read_labels([path])[1].tolist() == [1]
    assert read_labels([path], "species")[1].tolist() == ["cat"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,label\nr0,a\nr0,b\n", "repeats 1 id.*'r0' 2 times"),
        ("name,label\nr0,a\n", "no column 'id'; its columns are name, label"),
        ("id,x,y\nr0,a,b\n", "no label column 'label'; besides the ids it has x, y"),
        ("id\nr0\n", "besides the ids it has none"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "l.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        read_labels([tmp_path / "l.csv"])
    assert "l.csv" in str(caught.value)


def test_labels_take_the_type_of_the_classes() -> None:
    assert like_classes(np.array([1, 0]), np.array(["0", "1"])).tolist() == ["1", "0"]
    text = np.array(["1", "0"], dtype=object)
    assert like_classes(text, np.array([0, 1])).tolist() == [1, 0]
    assert like_classes(text, np.array([False, True])).tolist() == ["1", "0"]  # not written alike: the model decides
    assert like_classes(np.array([1, 7]), np.array(["0", "1"])).tolist() == [1, 7]


def test_X_y_gives_what_an_estimator_takes() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = (rng.standard_normal((40, 3)) + y[:, None]).astype(np.float32)
    whole = EmbeddingTable(X, None, {"y": y, "wide": X})
    model = pro2.ProjectAndProbe().fit(*whole.X_y("y"))
    assert model.predict(whole).tolist() == model.predict(X).tolist()  # a table is an array where one is expected
    with pytest.raises(ValueError, match="'wide' holds 3 numbers per row"):
        whole.X_y("wide")
    with pytest.raises(ValueError, match="no column 'Y' in this table; columns are: y, wide"):
        whole.X_y("Y")
