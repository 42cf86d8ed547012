"""What the button Done writes: files that other programs, and this one, can read."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from pro2 import EmbeddingTable, load
from pro2.label.model import start_from
from pro2.label.outputs import write_outputs
from pro2.label.pool import Pool
from pro2.label.session import Session, Settings
from pro2.label.store import Event, Store


@pytest.fixture(scope="module")
def written(table: EmbeddingTable, model, truth, tmp_path_factory) -> tuple[Session, Path, list[str]]:
    folder, pool = tmp_path_factory.mktemp("results"), Pool(table)
    store = Store(None, pool.row_of)
    session = Session(pool, start_from(model, pool), store, Settings(annotators=("ann", "ben")))
    events = [Event("label", "ann", pool.ids[i], truth[i], key=f"k{i}", time=1e9 + i) for i in range(24)]
    events.append(Event("label", "ben", pool.ids[0], truth[0], key="b0", time=2e9))
    events.append(Event("label", "ben", pool.ids[1], "dog" if truth[1] != "dog" else "fox", key="b1", time=2e9))
    events.append(Event("adjudicate", "ben", pool.ids[1], truth[1], key="b2", time=2e9))
    with store.transaction():
        store.append(events)
    session.refitter.request()
    session.refitter.wait()
    export = pytest.importorskip("pro2.export").export
    writers = {"classifier.onnx": lambda head, path: export(head, path, "onnx", force=True)}
    return session, folder, write_outputs(session, folder, writers, {"source": {"backbone": "net"}})


def test_every_file_is_there_and_nothing_else(written):
    _, folder, names = written
    assert sorted(names) == sorted(path.name for path in folder.iterdir())
    assert set(names) == {
        "adapted.safetensors", "labels.csv", "labels.arrow", "labels.label-studio.json", "predictions.csv",
        "map.parquet", "classifier.onnx",
    }  # fmt: skip


def test_the_model_predicts_what_the_page_showed(written, table):
    session, folder, _ = written
    predicted = load(folder / "adapted.safetensors").predict(np.asarray(table.embeddings)).tolist()
    assert predicted == [session.fitted.guess(row)[0] for row in range(len(table))]
    known = load(folder / "adapted.safetensors").provenance
    assert known["source"] == {"backbone": "net"}
    assert known["target"]["labels"] == 24
    with (folder / "predictions.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["label"] for row in rows] == predicted
    assert [row["id"] for row in rows] == table.ids.tolist()
    assert all(0 < float(row["probability"]) <= 1 for row in rows)


def test_label_sets_and_outlier_scores_are_those_of_the_model(written, table):
    _, folder, _ = written
    model, X = load(folder / "adapted.safetensors"), np.asarray(table.embeddings)
    sets = ["|".join(model.classes_[each]) for each in model.predict_set(X, 0.9)]
    points = pyarrow.parquet.read_table(folder / "map.parquet").to_pydict()
    with (folder / "predictions.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert points["set"] == [row["set"] for row in rows] == sets
    for found in (points["outlier_score"], [float(row["outlier_score"]) for row in rows]):
        np.testing.assert_allclose(found, model.outlier_score(X), atol=1e-6)


def test_labels_have_one_row_per_item_in_the_shared_format(written, truth):
    session, folder, _ = written
    with (folder / "labels.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["id", "label", "annotator", "time", "draw", "note"]
    assert {row["id"]: row["label"] for row in rows} == {session.pool.ids[i]: truth[i] for i in range(24)}
    assert rows[0]["time"] == "2001-09-09T01:46:40+00:00"
    feather = pytest.importorskip("pyarrow.feather")
    assert feather.read_table(folder / "labels.arrow").to_pylist() == rows


def test_label_studio_gets_everybodys_choice_and_the_models(written, truth):
    session, folder, _ = written
    tasks = json.loads((folder / "labels.label-studio.json").read_text())
    assert len(tasks) == 24
    assert [each["annotator"] for each in tasks[0]["annotations"]] == ["ann", "ben"]
    result = tasks[0]["annotations"][0]["result"][0]
    assert result["type"] == "choices"
    assert result["value"] == {"choices": [truth[0]]}
    assert tasks[5]["predictions"][0]["result"][0]["value"]["choices"] == [session.fitted.guess(5)[0]]
    assert 0 < tasks[5]["predictions"][0]["score"] <= 1


def test_writing_again_replaces_the_files(written):
    session, folder, names = written
    before = (folder / "labels.csv").read_bytes()
    (folder / "labels.csv").write_text("old")
    assert write_outputs(session, folder) == [name for name in names if name != "classifier.onnx"]
    assert (folder / "labels.csv").read_bytes() == before


def test_without_labels_there_is_nothing_to_write(pool, model, tmp_path):
    with pytest.raises(ValueError, match="no labels yet"):
        write_outputs(Session(pool, start_from(model, pool), Store(None, {})), tmp_path)
    assert list(tmp_path.iterdir()) == []
