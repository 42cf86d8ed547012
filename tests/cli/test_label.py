"""`pro2 label` as people run it: what it prints, what it refuses, how it ends; and the demo."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from pro2 import EmbeddingTable, ProjectAndProbe
from tests.cli.commands import refused

pytest.importorskip("starlette")

_PRO2 = [sys.executable, "-c", "import sys; from pro2.cli.main import main; sys.argv[0] = 'pro2'; main()"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a table to label and one of another width."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = (rng.normal(size=(200, 6)) + 2 * y[:, None]).astype(np.float32)
    ProjectAndProbe().fit(X[:100], np.array(["cat", "dog"])[y[:100]]).save(folder / "model.safetensors")
    EmbeddingTable(X[100:], [f"p{i}" for i in range(100)], {"note": ["x"] * 100}).save(folder / "pool.arrow")
    EmbeddingTable(X[100:, :3]).save(folder / "narrow.arrow")
    (folder / "photos").mkdir()
    (folder / "other.csv").write_text("id,label\nq0,cat\n")
    (folder / "old.csv").write_text("id,label\np0,cat\np1,dog\nq0,cat\n")
    return folder


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["pool.arrow"], "give either --model MODEL or --classes"),
        (["pool.arrow", "--model", "model.safetensors", "--classes", "a,b"], "give either --model MODEL or --classes"),
        (["pool.arrow", "--classes", "a,,b"], "has an empty name or a name twice"),
        (["pool.arrow", "--classes", "fox,Fox"], "has an empty name or a name twice"),
        (["pool.arrow", "--classes", "fox"], "needs two classes or more"),
        (["pool.arrow", "--classes", "a,b", "--token", "short"], "use at least 12 letters"),
        (["pool.arrow", "--classes", "a,b", "--token", "with/slash/in/it"], "letters, digits"),
        (["pool.arrow", "--classes", "a,b", "--overlap", "0.1"], "needs --annotators with two names"),
        (["pool.arrow", "--classes", "a,b", "--backbone", "x"], "goes with a folder of images"),
        (["photos", "--classes", "a,b", "--where", "y == 1"], "go with a table"),
        (["pool.arrow", "--model", "pool.arrow"], "is a table where a model file is expected"),
        (["none.arrow", "--classes", "a,b"], "no embedding table at none.arrow"),
        (["narrow.arrow", "--model", "model.safetensors"], "embeddings of width 3, the model was fitted on 6"),
        (["pool.arrow", "--model", "model.safetensors", "--images", "nowhere"], "nowhere is not a folder"),
        (["pool.arrow", "--model", "model.safetensors", "--text", "nite"], "did you mean"),
        (["pool.arrow", "--classes", "a,b", "--labels", "none.csv"], "no file of labels at none.csv"),
        (["pool.arrow", "--classes", "a,b", "--labels", "other.csv"], "none of the 1 labelled items is in pool.arrow"),
        (["pool.arrow", "--classes", "a,b", "--out", "model.safetensors"], "is a file; a session needs a folder"),
    ],
)
def test_mistakes_end_in_one_line(files, tmp_path, args, message, monkeypatch):
    monkeypatch.chdir(files)
    assert message in refused("label", "--no-browser", "--out", tmp_path / "s", *args)
    assert list(tmp_path.iterdir()) == []


class Running:
    """The command as a process, its address read from what it prints."""

    def __init__(self, *args: str, cwd: Path) -> None:
        command = [*_PRO2, "label", *args, "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
        assert self.process.stdout is not None
        self.lines = []
        while not self.lines or not self.lines[-1].startswith(("Ctrl-C", "{")):
            line = self.process.stdout.readline()
            assert line, self.process.communicate()
            self.lines.append(line)
        self.urls = re.findall(r"http://\S+", "".join(self.lines))

    def end(self) -> tuple[str, str]:
        """Ctrl-C."""
        os.kill(self.process.pid, signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        assert "Traceback" not in err
        return "".join(self.lines) + out, err


@pytest.mark.slow
def test_it_says_the_address_answers_there_and_ctrl_c_is_an_ordinary_end(files, tmp_path):
    args = "pool.arrow", "--model", "model.safetensors", "--labels", "old.csv", "--out", str(tmp_path / "s")
    running = Running(*args, cwd=files)
    with urllib.request.urlopen(running.urls[0], timeout=60) as answer:
        assert answer.status == 200
    out, err = running.end()
    assert "100 items, 2 classes, 2 labels so far (2 of them from the file); results go to" in out
    assert out.endswith("2 labels are saved; run the same command to continue\n")
    assert "1 label of old.csv left out: their items are not here, such as 'q0'" in err
    again = Running(*args, cwd=files)
    assert again.urls == running.urls
    assert "2 labels so far;" in again.end()[0]


@pytest.mark.slow
def test_events_as_json_and_a_session_next_to_its_pool_for_people_elsewhere(files):
    people = "--annotators", "ann, ben", "--host", "0.0.0.0"
    running = Running("pool.arrow", "--classes", "cat,dog", "--json", *people, cwd=files)
    ready = json.loads(running.lines[0])
    assert (ready["event"], ready["items"], ready["classes"], ready["labels"]) == ("ready", 100, ["cat", "dog"], 0)
    assert [ready["addresses"][name].rsplit("?")[1] for name in ("ann", "ben")] == ["as=ann", "as=ben"]
    out, err = running.end()
    assert "everybody who can reach 0.0.0.0 and knows the address" in err
    assert json.loads(out.splitlines()[-1]) == {"event": "ended", "labels": 0, "folder": str(files / "pool-labels")}
    assert (files / "pool-labels" / "journal.sqlite").is_file()


@pytest.mark.slow
def test_a_changed_pool_is_refused_with_what_changed_or_matched_by_id(files, tmp_path, monkeypatch):
    from pro2.label.store import Event, Store

    session = tmp_path / "s"
    session.mkdir()
    store = Store(session / "journal.sqlite", {})
    with store.transaction():
        store.append([Event("label", "", name, "dog", key=f"key-{name}") for name in ("p1", "gone")])
    store.close()
    args = ["pool.arrow", "--model", "model.safetensors", "--out", str(session)]
    monkeypatch.chdir(files)
    said = refused("label", *args, "--no-browser")
    assert "1 labelled row is no longer there ('gone')" in said
    assert "--match-by-id" in said
    out, err = Running(*args, "--match-by-id", cwd=files).end()
    assert "1 labels so far" not in out
    assert "1 label so far" in out
    assert "changed since the last time" in err


def test_without_the_extra_the_command_names_it(files, tmp_path):
    code = "import sys; sys.modules['uvicorn'] = None; from pro2.cli.main import main; sys.argv[0] = 'pro2'; main()"
    command = [sys.executable, "-c", code, "label", "pool.arrow", "--classes", "a,b", "--out", str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=files, timeout=120, check=False)
    assert done.returncode == 1
    assert "pip install 'pro2[label]'" in done.stderr
