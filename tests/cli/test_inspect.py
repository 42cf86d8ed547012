"""`pro2 inspect` knows what the tool writes beside tables and models: sessions, pages, JSON, lists, pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pro2.cli.main import app


def told(path: Path, status: int = 0) -> dict:
    done = CliRunner().invoke(app, ["inspect", str(path), "--json"])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def test_a_labelling_session_is_counted_and_left_alone(tmp_path):
    pytest.importorskip("starlette")
    from pro2.label.events import Event
    from pro2.label.journal import Journal

    journal = Journal(tmp_path / "journal.sqlite")
    journal.append([Event("label", "ann", f"p{i}", "dog", key=f"k{i}") for i in range(3)])
    journal.close()
    for path in (tmp_path, tmp_path / "journal.sqlite"):
        found = told(path)
        assert (found["what"], found["events"], found["annotators"]) == ("labelling session", {"label": 3}, ["ann"])
        assert found["intact"]
    assert [each.name for each in tmp_path.iterdir()] == ["journal.sqlite"]


def test_labels_without_embeddings_are_a_list(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather

    pyarrow.feather.write_feather(pa.table({"id": ["a", "b"], "label": ["x", None]}), tmp_path / "labels.arrow",
                                  compression="uncompressed")  # fmt: skip
    found = told(tmp_path / "labels.arrow")
    assert (found["what"], found["rows"], list(found["columns"])) == ("list without embeddings", 2, ["id", "label"])


def test_columns_that_cannot_be_used_are_named_and_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "t.npz", embeddings=np.eye(3), y=np.array([{}, 1, "a"], dtype=object))
    assert told(tmp_path / "t.npz")["unused_columns"] == {
        "y": "its type Python objects is not bool, integer, float or text"
    }


def test_thousands_of_columns_do_not_flood_a_terminal(tmp_path):
    names = [f"c{i}" for i in range(3000)]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n", encoding="utf-8")
    lines = CliRunner().invoke(app, ["inspect", str(tmp_path / "t.csv")]).stdout.splitlines()
    assert len(lines) < 60
    assert "... 2950 more, with --json all of them" in lines[-11]
    assert lines[-1].split() == ["c2999", "text,", "0", "values"]
    assert list(told(tmp_path / "t.csv")["columns"]) == names


def test_pages_json_and_pictures(tmp_path):
    (tmp_path / "index.html").write_text("<title>Cats &amp; dogs</title>")
    (tmp_path / "plan.json").write_text('{"name": "x", "shots": [2]}')
    (tmp_path / "failures.json").write_text("[]")
    (tmp_path / "curve.svg").write_text("<svg/>")
    assert told(tmp_path)["what"] == "page with its files"
    assert told(tmp_path / "index.html")["title"] == "Cats & dogs"
    assert told(tmp_path / "plan.json")["keys"] == ["name", "shots"]
    assert told(tmp_path / "failures.json")["entries"] == 0
    assert told(tmp_path / "curve.svg")["what"] == "picture (svg)"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("plan.json", '{"name": ', "no JSON"), ("journal.sqlite", "not a database" * 100, "not a journal")],
)
def test_damage_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / name)])
    assert done.exit_code == 1
    assert message in str(done.exception)
    assert name in str(done.exception)
