"""Labels: missing ones are normal, files of their own are matched by id, and no label is lost on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pro2.tables.columns import labelled, like_classes
from pro2.tables.csv_files import read_labels
from pro2.tables.embeddings import EmbeddingTable


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


def test_files_are_read_by_id(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,label\nr2,cat\nr0,\nr3,dog\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("time,label,id\n1,bird,r0\n", encoding="utf-8")
    ids, labels = read_labels([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert dict(zip(ids, labels)) == {"r2": "cat", "r3": "dog", "r0": "bird"}
    pool = table([0, 0, 0, 0, 0])
    assert pool.align(ids, labels).tolist() == ["bird", None, "cat", "dog", None]
    assert pool.where("id != 'r2'").align(ids, labels).tolist() == ["bird", None, "dog", None]


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


def test_one_id_in_two_files_and_an_id_from_elsewhere_are_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("id,label\nr0,cat\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.csv and .*b\.csv repeats 1 id"):
        read_labels([tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(ValueError, match=r"1 of 2 ids are not in this table, e\.g\. 'x\.jpg'; its first is 'r0'"):
        table([0, 0]).align(["r0", "x.jpg"], ["cat", "dog"])


def test_labels_take_the_type_of_the_classes() -> None:
    assert like_classes(np.array([1, 0]), np.array(["0", "1"])).tolist() == ["1", "0"]
    text = np.array(["1", "0"], dtype=object)
    assert like_classes(text, np.array([0, 1])).tolist() == [1, 0]
    assert like_classes(text, np.array([False, True])).tolist() == ["1", "0"]  # not written alike: the model decides
    assert like_classes(np.array([1, 7]), np.array(["0", "1"])).tolist() == [1, 7]


def test_X_y_gives_what_an_estimator_takes() -> None:
    import pro2

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
