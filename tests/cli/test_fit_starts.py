"""`pro2 fit` without the rows of a source, and what the other commands make of such models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import pro2
from pro2.cli import fit as fit_command
from pro2.estimators.moments import SourceMoments
from pro2.export import export
from pro2.tables.embeddings import EmbeddingTable
from tests.cli.commands import refused, run_json

BACKBONE = {"backbone": "toy", "layer": "penultimate"}
CLASSES = np.array(["cat", "dog", "fox", "owl"])


def table(seed: int, n: int = 240, K: int = 3) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    X = (2 * np.eye(4, 8)[y] + rng.normal(size=(n, 8))).astype(np.float32)
    return EmbeddingTable(X, None, {"y": CLASSES[y]}, BACKBONE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table(0).save("source.arrow")
    table(1).save("pool.arrow")
    table(2, 32, 4).save("few.arrow")
    for name, part in (("a", slice(0, 100)), ("b", slice(100, 240))):
        whole = table(0)
        moments = SourceMoments.from_arrays(whole.embeddings[part], whole.column("y")[part])
        moments.save(f"{name}.moments", provenance=BACKBONE)
    return tmp_path


def same_answers(one: str, other: str, atol: float = 1e-5) -> None:
    X = table(1).embeddings
    np.testing.assert_allclose(pro2.load(one).predict_proba(X), pro2.load(other).predict_proba(X), atol=atol)


def test_moments_of_two_sites_are_the_whole_source(folder: Path) -> None:
    run_json("fit", "source.arrow", "-y", "y", "-o", "rows")
    found = run_json("fit", "--moments", "a.moments", "b.moments", "-o", "merged")
    assert (found["source_kind"], found["rows"], found["classes"]) == ("moments", 240, ["cat", "dog", "fox"])
    same_answers("rows", "merged")
    assert run_json("inspect", "merged")["source_kind"] == "moments of 240 source rows"
    assert run_json("inspect", "rows")["source_kind"] == "240 source rows"
    assert pro2.load("merged").provenance["source"] == BACKBONE


def test_moments_and_layers_that_do_not_fit_together_are_refused(folder: Path) -> None:
    whole = table(0)
    SourceMoments.from_arrays(whole.embeddings, whole.column("y")).save("c.moments", provenance={"backbone": "other"})
    SourceMoments.from_arrays(whole.embeddings[:, :5], whole.column("y")).save("d.moments")
    save_file({"weight": np.ones((2, 5), "f4")}, "narrow")
    save_file({"a.weight": np.ones((2, 8), "f4"), "b.weight": np.ones((2, 8), "f4")}, "two")
    for line, message in {
        "--moments a.moments c.moments": "another backbone",
        "--moments a.moments d.moments": "not one embedding",
        "--head narrow --unlabeled pool.arrow --classes a,b": "coef has shape (2, 5), 2 classes",
        "--head two --unlabeled pool.arrow --classes a,b": "2 matrices called weight",
    }.items():
        assert message in refused(f"fit {line} -o m")


@pytest.mark.parametrize("scale", ["auto", "unit"])
def test_a_large_table_is_read_in_batches(folder: Path, monkeypatch: pytest.MonkeyPatch, scale: str) -> None:
    run_json("fit", "source.arrow", "-y", "y", "--scale", scale, "-o", "rows")
    monkeypatch.setattr(fit_command, "STREAMED", 0)

    def refused(self: object) -> None:
        raise AssertionError("the whole matrix was asked for")

    monkeypatch.setattr(EmbeddingTable, "embeddings", property(refused))
    run_json("fit", "source.arrow", "-y", "y", "-w", "y != 'no'", "--scale", scale, "-o", "streamed")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    same_answers("rows", "streamed")


@pytest.mark.parametrize("kind", ["model", "export", "layer"])
def test_a_head_and_unlabelled_rows(folder: Path, kind: str) -> None:
    run_json("fit", "source.arrow", "-y", "y", "-o", "rows")
    head = pro2.load("rows").source_head_
    extra = []
    if kind == "model":
        head.save("layer")
    elif kind == "export":
        export(head, "layer", "safetensors")
    else:
        save_file({"fc.weight": head.coef_.astype("f4"), "fc.bias": head.intercept_.astype("f4")}, "layer")
        assert "--classes" in refused("fit", "--head", "layer", "--unlabeled", "pool.arrow", "-o", "m")
        extra = ["--classes", "cat,dog,fox"]
    found = run_json("fit", "--head", "layer", "--unlabeled", "pool.arrow", *extra, "-o", "m")
    assert (found["source_kind"], found["unlabeled"]) == ("head", 240)
    same_answers("rows", "m", atol=1e-4)
    assert run_json("inspect", "m")["source_kind"] == "a head and 240 unlabelled rows"
    run_json("adapt", "m", "few.arrow", "-y", "y", "--new-classes", "-o", "adapted")
    assert pro2.load("adapted").score(table(1).embeddings, table(1).column("y")) > 0.7


def test_names_and_unlabelled_rows_alone(folder: Path) -> None:
    found = run_json("fit --unlabeled pool.arrow --classes 'cat, dog,fox' -o m")
    assert (found["source_kind"], found["classes"]) == ("unlabelled rows", ["cat", "dog", "fox"])
    assert run_json("inspect m")["source_kind"] == "240 unlabelled rows"
