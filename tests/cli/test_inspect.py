"""`pro2 inspect` shows a person what matters first, digests last and nothing twice; `--json` has all of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pro2
from pro2.tables.embeddings import EmbeddingTable
from tests.cli.commands import run, run_json

PROVENANCE = {"backbone": "toy", "weights_digest": "sha256:0", "layer": "penultimate"}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    y = np.arange(60) % 2
    X = (np.random.default_rng(0).normal(size=(60, 6)) + y[:, None]).astype(np.float32)
    for name, rows in (("t.arrow", slice(None)), ("few.arrow", slice(16))):
        EmbeddingTable(X[rows], None, {"kind": np.array(["cat", "dog"])[y[rows]]}, PROVENANCE).save(name)
    for line in ("fit t.arrow -y kind --ridge 0.5 -o model", "adapt model few.arrow -y kind -o adapted"):
        run(line)
    return tmp_path


def test_what_matters_comes_first_and_digests_last(files: Path) -> None:
    names = {}
    for name in ("t.arrow", "model", "adapted"):
        text = run("inspect", files / name)
        lines = [line for line in text.split("\n\n")[0].splitlines() if line]
        names[name] = [line.split("  ")[0] for line in lines]
        values = [line.split("  ", 1)[1].strip() for line in lines]
        is_digest = ["digest" in each for each in names[name]]
        assert is_digest == sorted(is_digest)
        assert len(set(values)) == len(values), "nothing twice"
        assert text.count("toy") == 1
        found = run_json("inspect", files / name)
        assert found["digest"] in text
        assert found["intact"] is True
    assert names["t.arrow"][:3] == ["file", "rows", "embedding"]
    assert names["model"][:4] == ["file", "classes", "embedding", "source"]
    assert names["adapted"][:3] == ["file", "verdict", "classes"]
    assert "ridge" in names["model"]
    assert run_json("inspect", files / "adapted")["verdict"] == pro2.load(files / "adapted").report_.verdict()


def test_columns_that_cannot_be_used_are_named_and_nothing_is_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", embeddings=np.eye(3), y=np.array([{}, 1, "a"], dtype=object))
    why = "its type Python objects is not bool, integer, float or text"
    assert run_json("inspect", tmp_path / "t.npz")["unused_columns"] == {"y": why}
    assert f"y: {why}" in run("inspect", tmp_path / "t.npz")


def test_thousands_of_columns_do_not_flood_a_terminal(tmp_path: Path) -> None:
    columns = {f"c{i}": np.arange(2) for i in range(3000)}
    EmbeddingTable(np.eye(2, dtype=np.float32), None, columns).save(tmp_path / "t.arrow")
    text = run("inspect", tmp_path / "t.arrow")
    assert len(text.splitlines()) < 60
    assert "with --json all 3000" in text
    assert list(run_json("inspect", tmp_path / "t.arrow")["columns"]) == list(columns)


def test_every_kind_of_file_is_named(files: Path) -> None:
    model, X, y = pro2.load("model"), np.eye(6, dtype=np.float32)[np.arange(60) % 6], np.arange(60) % 2
    pro2.SourceMoments.from_arrays(X, y).save("moments")
    names = np.array(["cat", "dog"])[y]
    pro2.ProbeBank(model).fit(X, names, target=np.arange(60) // 30).save("bank")
    pro2.Projection().fit(X, y).save("projection")
    pro2.Probe(l2=1.0).fit(X, y).save("probe")
    for name, format in (("head.onnx", "onnx"), ("head.safetensors", "safetensors"), ("head.pt", "torch")):
        line = f"export adapted --format {format} -o {name}"
        run(line)
    kinds = {
        "moments": "source moments", "bank": "bank of probes", "projection": "projection", "probe": "probe",
        "head.onnx": "exported classifier", "head.safetensors": "exported classifier", "head.pt": "exported classifier",
        "model": "model", "adapted": "adapted classifier", "t.arrow": "embedding table",
    }  # fmt: skip
    for name, what in kinds.items():
        assert run_json("inspect", files / name)["what"] == what
        assert run("inspect", files / name).startswith("file ")
    assert run_json("inspect", files / "moments")["classes"] == [0, 1]
