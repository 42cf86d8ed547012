"""Labels from elsewhere: what is read from each kind of file, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from pro2 import EmbeddingTable
from pro2.label.inputs import Given, find_rows, read_given
from pro2.label.model import start_from
from pro2.label.outputs import write_outputs
from pro2.label.pool import Pool
from pro2.label.session import Action, Session, Settings
from pro2.label.store import IMPORTED, Store


@pytest.fixture
def session(picture_pool, model):
    made = Session(picture_pool, start_from(model, picture_pool), Store(None, picture_pool.row_of), Settings())
    yield made
    made.refitter.stop()


def choice(name: str) -> dict:
    return {"from_name": "label", "to_name": "item", "type": "choices", "value": {"choices": [name]}}


class TestReading:
    def test_csv(self, tmp_path):
        path = tmp_path / "old.csv"
        path.write_text("id,label\na.png,cat\nb.png,\nc.png,7\n")  # one line without a label
        assert read_given(path) == [Given("a.png", "cat"), Given("c.png", "7")]

    def test_label_studio(self, tmp_path):
        tasks = [
            {"data": {"image": "/data/local-files/?d=cats/a.png"},
             "annotations": [{"result": [choice("cat")], "completed_by": {"email": "ann@b.c"}}]},
            {"data": {"image": "/data/upload/3/0a1b2c3d-b.png"},
             "annotations": [{"result": [choice("dog")], "completed_by": 2}]},
            {"data": {"image": "c.png"}, "annotations": [{"result": []}]},
            {"data": {"image": "d.png"}, "annotations": [{"result": [choice("dog")], "was_cancelled": True}]},
        ]  # fmt: skip
        path = tmp_path / "export.json"
        path.write_text(json.dumps(tasks))
        assert read_given(path) == [Given("cats/a.png", "cat", "ann@b.c"), Given("b.png", "dog", "2")]

    def test_cvat(self, tmp_path):
        path = tmp_path / "annotations.xml"
        path.write_text(
            '<?xml version="1.0" encoding="utf-8"?><annotations><version>1.1</version><meta/>'
            '<image id="0" name="a.png" width="64" height="64"><tag label="cat" source="manual"></tag></image>'
            '<image id="1" name="b.png" width="64" height="64"><box label="dog"/></image></annotations>'
        )
        assert read_given(path) == [Given("a.png", "cat")]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.json", "[{}]", "not an export of Label Studio"),
            ("a.json", "{", "not an export of Label Studio"),
            ("a.json", json.dumps([{"data": {"id": "a"}, "annotations": [{"result": [choice("a"), choice("b")]}]}]),
             "'a' has several choices"),
            ("a.xml", "<other/>", "not an export of CVAT"),
            ("a.xml", "<annotations>", "not an export of CVAT"),
            ("a.xml", '<annotations><image name="a"><tag label="x"/><tag label="y"/></image></annotations>',
             "'a' has several tags"),
            ("a.csv", "name,label\na,b\n", "no column 'id'"),
        ],
    )  # fmt: skip
    def test_other_files_are_named(self, tmp_path, name, content, message):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=message):
            read_given(tmp_path / name)
        with pytest.raises(FileNotFoundError, match="no file of labels"):
            read_given(tmp_path / "missing.csv")


def test_items_are_found_by_id_or_by_the_only_file_of_that_name():
    pool = Pool(EmbeddingTable(np.eye(4, dtype="f4"), ["x/a.png", "y/a.png", "y/b.png", "c"]))
    given = [Given("y/a.png", "1"), Given("old/b.png", "2"), Given("c", "3"), Given("a.png", "4"), Given("d", "5")]
    found, missing = find_rows(pool, given)
    assert [(row, each.label) for row, each in found] == [(1, "1"), (2, "2"), (3, "3")]
    assert missing == ["a.png", "d"]
    with pytest.raises(ValueError, match="none of the 1 labelled items is in the pool, such as 'd'"):
        find_rows(pool, given[-1:])


class TestImport:
    def test_they_train_but_are_no_random_sample_and_undo_leaves_them(self, session):
        given = [(row, Given("", "Cat" if row % 2 else "wolf")) for row in range(10)]
        assert session.add_labels(given) == 10
        assert session.add_labels(given) == 0  # the same file again
        store = session.store
        assert {row: answer.label for row, answer in store.labels.items()} == {
            row: "cat" if row % 2 else "wolf" for row in range(10)
        }
        assert {store.draw_of(row) for row in range(10)} == {IMPORTED}
        assert session.classes == ["cat", "dog", "fox", "wolf"]
        assert session.sample() == []
        assert session.summary()["per_minute"] is None  # nobody typed them
        session.fit()
        assert session.fitted.n == 10
        row = session.assigned("")[0]["row"]
        session.act("", Action("label", "key-00001", [row], "dog"))
        assert session.act("", Action("undo", "key-00002"))["undone"]["rows"] == [row]
        with pytest.raises(ValueError, match="nothing to undo"):
            session.act("", Action("undo", "key-00003"))

    def test_a_label_without_a_usable_class_adds_nothing(self, session):
        with pytest.raises(ValueError, match="has 1 to 80 characters"):
            session.add_labels([(0, Given("", "cat")), (1, Given("", "x" * 81))])
        assert not session.store.labels

    def test_what_was_written_is_read_again(self, session, truth, tmp_path: Path):
        for i in range(12):
            row = session.assigned("")[0]["row"]
            session.act("", Action("label", f"key-{i:05d}", [row], truth[row]))
        session.act("", Action("none", "key-none1", [session.assigned("")[0]["row"]]))
        session.act("", Action("note", "key-note1", [row], "blurred"))
        session.refitter.wait()
        names = write_outputs(session, tmp_path)
        labels = {session.pool.ids[row]: answer.label for row, answer in session.store.labels.items()}
        for name in ("labels.csv", "labels.label-studio.json", "labels.cvat.xml"):
            assert name in names
            assert {each.item: each.label for each in read_given(tmp_path / name)} == labels

    def test_the_map_has_a_point_for_every_item(self, session, model, truth, tmp_path: Path):
        row = session.assigned("")[0]["row"]
        session.act("", Action("label", "key-00001", [row], truth[row]))
        session.act("", Action("note", "key-note1", [row], "blurred"))
        session.refitter.wait()
        write_outputs(session, tmp_path)
        points = pyarrow.parquet.read_table(tmp_path / "map.parquet").to_pydict()
        X = np.asarray(session.pool.table.embeddings)
        assert np.allclose(np.column_stack([points["x"], points["y"]]), model.projection_.transform(X)[:, :2])
        assert points["id"] == session.pool.ids
        assert points["predicted"] == [session.fitted.guess(i)[0] for i in range(len(X))]
        assert points["doubt"] == pytest.approx([1 - session.fitted.guess(i)[1] for i in range(len(X))])
        assert (points["label"][row], points["note"][row]) == (truth[row], "blurred")
        assert set(points["label"]) == {None, truth[row]}
        session.act("", Action("undo", "key-undo1"))
        write_outputs(session, tmp_path)
        assert str(pyarrow.parquet.read_schema(tmp_path / "map.parquet").field("note").type) == "string"  # without any

    def test_without_a_source_the_map_has_principal_axes(self, pool):
        start = start_from(None, pool, ["cat", "dog"])
        spread = start.plane(pool).std(axis=0)
        assert spread[0] >= spread[1] > 0
