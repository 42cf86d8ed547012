"""The whole journey through real `pro2` processes; every number must be the Python API's own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import pro2
from pro2.cli.main import app
from pro2.estimators.evaluation import evaluate
from pro2.tables.embeddings import EmbeddingTable

PROVENANCE = {"backbone": "pixels", "weights_digest": "sha256:none", "layer": "input"}


def run(*args: object) -> dict[str, Any]:
    """One process of the command with --json; its answer."""
    done = subprocess.run(
        [sys.executable, "-m", "pro2", *map(str, args), "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def call(*args: object) -> dict[str, Any]:
    """The same in this process: for options whose way into the library is all that is at stake."""
    done = CliRunner().invoke(app, [*map(str, args), "--json"])
    assert done.exit_code == 0, done.exception
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def few_rows(y: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([rng.permutation(np.flatnonzero(y == k))[:n] for k in np.unique(y)])


def save_target(table: EmbeddingTable, label: str, shots: int, folder: Path) -> tuple[Path, Path]:
    """Few labelled rows and the rest, as two files."""
    few = few_rows(table.column(label), shots, np.random.default_rng(0))
    rest = np.setdiff1d(np.arange(len(table)), few)
    return (
        table.take(few).save(folder / f"few{shots}.npz"),
        table.take(rest).save(folder / f"rest{shots}.npz"),
    )


def check_predictions(adapted: Path, table: Path, out: Path, expected: np.ndarray, classes: np.ndarray) -> None:
    """The files hold predict and predict_proba, row by row under the table's ids."""
    run("predict", adapted, table, "--proba", "--out", out)
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    opened = EmbeddingTable.open(table)
    assert [row["id"] for row in rows] == opened.ids.tolist()
    found = np.array([[float(row[f"proba_{name}"]) for name in classes] for row in rows])
    # float32 rows: the sum of a logit may run in another order in another process, a few units in the last place
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert [row["prediction"] for row in rows] == [str(classes[k]) for k in expected.argmax(axis=1)]


def check_onnx(adapted: Path, X: np.ndarray, path: Path) -> None:
    """The graph gives the labels, and the probabilities of `predict_proba` to 1e-5."""
    ort = pytest.importorskip("onnxruntime")
    assert run("export", adapted, "--format", "onnx", "--out", path)["opset"] == 18
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    proba, label = session.run(["probabilities", "label"], {"embedding": X})
    classifier = pro2.load(adapted)
    np.testing.assert_allclose(proba, classifier.predict_proba(X), rtol=0, atol=1e-5)
    assert label.tolist() == classifier.predict(X).tolist()


def check_layers(adapted: Path, X: np.ndarray, folder: Path) -> None:
    """Weight and bias give the probabilities to 1e-5, from safetensors and from PyTorch."""
    torch, tensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    for name in ("safetensors", "torch"):
        run("export", adapted, "--format", name, "--out", folder / f"head.{name}")
    loaded = (tensors.load_file(folder / "head.safetensors"), torch.load(folder / "head.torch", weights_only=True))
    classifier = pro2.load(adapted)
    for state in loaded:
        layer = torch.nn.Linear(X.shape[1], len(classifier.classes_))
        layer.load_state_dict(state)
        with torch.no_grad():
            proba = torch.softmax(layer(torch.tensor(X)), dim=1).numpy()
        np.testing.assert_allclose(proba, classifier.predict_proba(X), rtol=0, atol=1e-5)


def fit_both(source: Path, where: str, label: str, folder: Path) -> Any:
    """`pro2 fit` into the folder, and the same model from Python."""
    run("fit", source, "--label", label, "--where", where, "--out", folder / "model.safetensors")
    chosen = EmbeddingTable.open(source).where(where)
    return pro2.ProjectAndProbe().fit(chosen.embeddings, chosen.column(label))


def walk(python: Any, target: EmbeddingTable, label: str, group: str, folder: Path, shots: int) -> float:
    """adapt, predict, evaluate; compares each with the Python API and returns the accuracy."""
    model, adapted = folder / "model.safetensors", folder / f"adapted{shots}.safetensors"
    few, rest = save_target(target, label, shots, folder)
    run("adapt", model, few, "--label", label, "--out", adapted)
    few_table, rest_table = map(EmbeddingTable.open, (few, rest))
    python_adapted = python.adapt(few_table.embeddings, few_table.column(label))
    expected = python_adapted.predict_proba(rest_table.embeddings)
    check_predictions(adapted, rest, folder / f"p{shots}.csv", expected, python_adapted.classes_)
    answer = run("evaluate", adapted, rest, "--label", label, "--group", group)
    groups = np.array([f"{group}={value}" for value in rest_table.column(group).tolist()])
    measured = evaluate(rest_table.column(label), expected, python_adapted.classes_, groups).to_dict()
    assert answer.pop("rows") == len(rest_table)
    assert answer["confusion"] == measured["confusion"]
    assert answer["worst_group"] == measured["worst_group"]
    for name in ("accuracy", "balanced_accuracy", "ece", "log_loss"):
        assert answer[name] == pytest.approx(measured[name], abs=1e-6)
    return float(measured["accuracy"]["value"])


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EmbeddingTable]:
    """Five named classes; the target is the same digits turned upside down in half of their pixels."""
    data = load_digits(n_class=5)
    names = np.array(["zero", "one", "two", "three", "four"])[data.target]
    X = data.data.astype(np.float32)
    half = np.arange(len(X)) % 2
    shifted = np.concatenate([X[:, :32][:, ::-1], X[:, 32:]], axis=1)
    folder = tmp_path_factory.mktemp("digits")
    source = EmbeddingTable(X, None, {"name": names, "half": half, "odd": data.target % 2}, PROVENANCE).save(
        folder / "source.arrow"
    )
    rows = half == 1
    target = EmbeddingTable(
        shifted[rows], np.flatnonzero(rows), {"name": names[rows], "odd": data.target[rows] % 2}, PROVENANCE
    )
    return source, target


def test_five_classes_from_table_to_deployment(digits: tuple[Path, EmbeddingTable], tmp_path: Path) -> None:
    source, target = digits
    python = fit_both(source, "half == 0", "name", tmp_path)
    accuracy = [walk(python, target, "name", "odd", tmp_path, shots) for shots in (2, 16)]
    before = run("evaluate", tmp_path / "model.safetensors", tmp_path / "rest16.npz", "-y", "name")["accuracy"]["value"]
    assert accuracy[1] > max(accuracy[0], before)
    check_onnx(tmp_path / "adapted16.safetensors", target.embeddings[:200], tmp_path / "head.onnx")
    found = run("inspect", tmp_path / "adapted16.safetensors")
    assert found["intact"] is True
    assert found["classes"] == sorted(found["classes"])
    assert found["provenance"]["source"]["backbone"] == "pixels"
    assert found["provenance"]["source"]["digest"] == EmbeddingTable.open(source).digest
    assert found["provenance"]["target"]["rows"] == 80


def test_parquet_predictions_keep_types(digits: tuple[Path, EmbeddingTable], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    source, target = digits
    path = target.save(tmp_path / "t.npz")
    call("fit", source, "-y", "half", "--out", tmp_path / "m")
    call("predict", tmp_path / "m", path, "--proba", "--out", tmp_path / "p.parquet")
    found = parquet.read_table(tmp_path / "p.parquet")
    model = pro2.load(tmp_path / "m")
    assert found.column("prediction").to_pylist() == model.predict(target.embeddings).tolist()
    np.testing.assert_allclose(
        found.column("proba_1").to_numpy(), model.predict_proba(target.embeddings)[:, 1], atol=1e-7
    )


def test_a_validation_table_and_fixed_options_reach_the_estimator(
    digits: tuple[Path, EmbeddingTable], tmp_path: Path
) -> None:
    source, target = digits
    few, rest = save_target(target, "name", 4, tmp_path)
    call("fit", source, "-y", "name", "--n-components", 12, "--l2", 0.5, "--ridge", 0.1, "--out", tmp_path / "m")
    call("adapt", tmp_path / "m", few, "-y", "name", "--n-features", 8, "--out", tmp_path / "fixed")
    call("adapt", tmp_path / "m", few, "-y", "name", "--validation", rest, "--l2", "auto", "--out", tmp_path / "val")
    table, few_table, rest_table = map(EmbeddingTable.open, (source, few, rest))
    model = pro2.ProjectAndProbe(n_components=12, l2=0.5, ridge=0.1).fit(table.embeddings, table.column("name"))
    X, y = few_table.embeddings, few_table.column("name")
    fixed = model.set_params(n_features=8).adapt(X, y)
    model.set_params(n_features="auto", l2="auto")
    chosen = model.adapt(X, y, X_val=rest_table.embeddings, y_val=rest_table.column("name"))
    np.testing.assert_allclose(pro2.load(tmp_path / "fixed").coef_, fixed.coef_, rtol=1e-6)
    np.testing.assert_allclose(pro2.load(tmp_path / "val").coef_, chosen.coef_, rtol=1e-6)


def test_waterbirds_from_table_to_deployment(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "run", call)  # the digits above go through processes of their own
    source = real_data / "waterbirds.npz"
    minority = EmbeddingTable.open(source).where("split == 2 and y != place")
    python = fit_both(source, "split == 0", "y", tmp_path)
    accuracy = [walk(python, minority, "y", "place", tmp_path, shots) for shots in (2, 16)]
    before = run("evaluate", tmp_path / "model.safetensors", tmp_path / "rest16.npz", "-y", "y")["accuracy"]["value"]
    assert accuracy[1] > before
    X = minority.embeddings[:500].astype(np.float32)
    check_onnx(tmp_path / "adapted16.safetensors", X, tmp_path / "head.onnx")
    check_layers(tmp_path / "adapted16.safetensors", X, tmp_path)


def test_diagnose_says_what_the_library_says(digits: tuple[Path, EmbeddingTable], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from pro2.lab.theory import diagnose

    source, target = digits
    few, _ = save_target(target, "odd", 8, tmp_path)
    call("fit", source, "-y", "odd", "-w", "half == 0", "--out", tmp_path / "m")
    answer = call("diagnose", tmp_path / "m", few, "-y", "odd", "--figure", tmp_path / "d.png")
    table = EmbeddingTable.open(few)
    found = diagnose(pro2.load(tmp_path / "m"), table.embeddings, table.column("odd"))
    assert answer["severity"] == pytest.approx(found.severity)
    assert answer["features_needed"] == found.features_needed
    assert answer["accuracy"] == pytest.approx(found.accuracy)
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
    gaps = np.concatenate([table.column("odd").astype(float), [np.nan, np.nan]])
    X = np.concatenate([table.embeddings, table.embeddings[:2]])
    np.savez(tmp_path / "gaps.npz", embeddings=X, odd=gaps, id=np.arange(len(X)))
    with_gaps = call("diagnose", tmp_path / "m", tmp_path / "gaps.npz", "-y", "odd")
    assert (answer["unlabeled"], with_gaps["unlabeled"]) == (0, 2)
    assert with_gaps["severity"] == pytest.approx(found.severity)


def test_suggest_and_unlabeled_rows_say_what_the_library_says(
    digits: tuple[Path, EmbeddingTable], tmp_path: Path
) -> None:
    source, target = digits
    few, rest = save_target(target, "odd", 8, tmp_path)
    call("fit", source, "-y", "odd", "-w", "half == 0", "--out", tmp_path / "m")
    cold = call("suggest", tmp_path / "m", rest, "-n", 6)
    call("adapt", tmp_path / "m", few, "-y", "odd", "--unlabeled", rest, "--out", tmp_path / "a")
    later = call("suggest", tmp_path / "m", rest, "-n", 6, "--adapted", tmp_path / "a", "--out", tmp_path / "next.csv")
    model, pool, few_table = pro2.load(tmp_path / "m"), EmbeddingTable.open(rest), EmbeddingTable.open(few)
    adapted = model.adapt(few_table.embeddings, few_table.column("odd"), X_unlabeled=pool.embeddings)
    np.testing.assert_allclose(pro2.load(tmp_path / "a").coef_, adapted.coef_, rtol=1e-6)
    for answer, now in ((cold, None), (later, adapted)):
        rows = pro2.suggest_labels(model, pool.embeddings, 6, adapted=now, random_state=0)
        assert answer["ids"] == pool.ids[rows].tolist()
        assert len(set(answer["ids"])) == 6
    text = (tmp_path / "next.csv").read_text(encoding="utf-8").splitlines()
    assert text == ["id,label", *(f"{each}," for each in later["ids"])]


def test_adapting_without_any_label(digits: tuple[Path, EmbeddingTable], tmp_path: Path) -> None:
    source, target = digits
    pool = target.save(tmp_path / "pool.npz")
    call("fit", source, "-y", "odd", "--out", tmp_path / "m")
    call("adapt", tmp_path / "m", "--unlabeled", pool, "--out", tmp_path / "a")
    expected = pro2.load(tmp_path / "m").adapt_unlabeled(target.embeddings)
    np.testing.assert_allclose(pro2.load(tmp_path / "a").coef_, expected.coef_, rtol=1e-6)


def test_how_labels_were_drawn_and_leave_one_out_reach_the_estimator(
    digits: tuple[Path, EmbeddingTable], tmp_path: Path
) -> None:
    source, target = digits
    few, _ = save_target(target, "odd", 4, tmp_path)
    call("fit", source, "-y", "odd", "--out", tmp_path / "m")
    said = call("adapt", tmp_path / "m", few, "-y", "odd", "--label-sampling", "suggested", "--out", tmp_path / "a")
    assert said["report"]["accuracy"] is None
    assert "chosen" in said["report"]["withheld"]
    paper = ("--l2", "loo", "--n-features", "loo")
    said = call("adapt", tmp_path / "m", few, "-y", "odd", *paper, "--out", tmp_path / "b")
    table, model = EmbeddingTable.open(few), pro2.load(tmp_path / "m").set_params(l2="loo", n_features="loo")
    assert said["n_features"] == model.adapt(*table.X_y("odd")).n_features_


class TestManyClassesAndGroups:
    """`evaluate` stays readable: the ends of a long list on the screen, all of it in --out and --json."""

    @pytest.fixture(scope="class")
    @classmethod
    def files(cls, tmp_path_factory):
        rng = np.random.default_rng(0)
        folder = tmp_path_factory.mktemp("many")
        means = rng.standard_normal((40, 60)) * 0.3
        y = np.repeat(np.arange(40), 20)
        X = (means[y] + rng.standard_normal((len(y), 60))).astype(np.float32)
        model = pro2.ProjectAndProbe(n_components=40).fit(X[::2], y[::2])
        model.save(folder / "model.safetensors")
        model.adapt(X[1::4], y[1::4]).save(folder / "adapted.safetensors")
        columns = {"y": y, "site": np.arange(len(y)) % 300}
        EmbeddingTable(X, columns=columns).save(folder / "t.npz")
        return folder

    def run(self, folder, *extra):
        args = ["evaluate", folder / "adapted.safetensors", folder / "t.npz", "-y", "y", "-g", "site", *extra]
        result = CliRunner().invoke(app, [str(each) for each in args])
        assert result.exit_code == 0, result.output
        return result.stdout

    def test_the_screen_shows_both_ends_and_where_the_rest_is(self, files, tmp_path):
        out = tmp_path / "all.csv"
        text = self.run(files, "--source", files / "model.safetensors", "--out", out)
        assert len(text.splitlines()) < 70
        assert f"280 more groups between the worst 10 and the best 10: in {out}" in text
        assert "20 more classes" in text
        assert "source head" in text.splitlines()[0]
        assert "taken for" in text
        from pro2.tables.csv_files import read_columns

        rows = read_columns(out)
        kinds = rows["what"].tolist()
        assert (kinds.count("group"), kinds.count("class")) == (300, 40)
        mistakes = sum(n for kind, n in zip(kinds, rows["rows"].tolist()) if kind == "mistake")
        assert mistakes == 800 - round(800 * json.loads(self.run(files, "--json"))["accuracy"]["value"])

    def test_json_holds_everything_with_the_source_head(self, files):
        told = json.loads(self.run(files, "--json", "--source", files / "model.safetensors"))
        assert len(told["group_accuracy"]) == 300
        assert len(told["confusion"]) == 40
        assert told["source_head"]["accuracy"]["n"] == 800

    def test_another_model_is_no_source(self, files, tmp_path):
        X = np.random.default_rng(1).standard_normal((20, 60))
        pro2.ProjectAndProbe(n_components=2).fit(X, np.arange(20) % 2).save(tmp_path / "other.safetensors")
        args = ["evaluate", files / "adapted.safetensors", files / "t.npz", "-y", "y", "--source"]
        result = CliRunner().invoke(app, [str(each) for each in [*args, tmp_path / "other.safetensors"]])
        assert "give the model that was adapted" in str(result.exception)
