"""Several yes-or-no labels from table to deployment, by commands alone."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import pro2
from pro2.tables.embeddings import EmbeddingTable
from tests.cli.commands import refused, run, run_json

NAMES = ("wet", "old", "far")


def rows(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return X, (X[:, :3] + 0.4 * rng.normal(size=(n, 3)) > [0.0, 0.5, -0.5]).astype(int)


def table(seed: int, n: int, gaps: float = 0.0, **more: Any) -> EmbeddingTable:
    X, Y = rows(seed, n)
    missing = np.random.default_rng(seed + 100).random(Y.shape) < gaps
    columns = {name: np.where(missing[:, t], np.nan, Y[:, t]) if gaps else Y[:, t] for t, name in enumerate(NAMES)}
    return EmbeddingTable(X, None, columns | more, {})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables, a model and an adapted classifier."""
    folder = tmp_path_factory.mktemp("labels")
    table(0, 300, 0.2, kind=np.array(["a", "b", "c"] * 100)).save(folder / "source.arrow")
    table(1, 24, 0.1).save(folder / "few.arrow")
    table(2, 200).save(folder / "test.arrow")
    run("fit", folder / "source.arrow", "--label", ",".join(NAMES), "--out", folder / "model")
    run("adapt", folder / "model", folder / "few.arrow", "--out", folder / "adapted")
    return folder


def test_commands_do_what_python_does(made: Path, tmp_path: Path) -> None:
    source, few = table(0, 300, 0.2), table(1, 24, 0.1)
    Y, y = (np.stack([each.column(name) for name in NAMES], axis=1) for each in (source, few))
    model = pro2.MultiLabelProjectAndProbe().fit(source.embeddings, Y, labels=NAMES)
    X, _ = rows(2, 200)
    np.testing.assert_allclose(pro2.load(made / "model").decision_function(X), model.decision_function(X), atol=1e-10)
    adapted = model.adapt(few.embeddings, y)
    np.testing.assert_allclose(
        pro2.load(made / "adapted").decision_function(X), adapted.decision_function(X), atol=1e-8
    )
    for name, what in (("model", "model of several labels"), ("adapted", "adapted classifier of several labels")):
        found = run_json("inspect", made / name)
        assert (found["what"], found["labels"]) == (what, list(NAMES))
    assert run_json("export", made / "adapted", "-o", tmp_path / "h.onnx")["labels"] == list(NAMES)
    assert run_json("inspect", tmp_path / "h.onnx")["labels"] == list(NAMES)


def test_fit_and_adapt_say_what_they_learned(made: Path, tmp_path: Path) -> None:
    found = run_json("fit", made / "source.arrow", "-y", "wet, far", "-o", tmp_path / "m")
    assert found["labels"] == ["wet", "far"]
    assert found["rows"] + found["unlabeled"] == 300
    report = run("adapt", made / "model", made / "few.arrow", "-y", "wet,old", "-o", tmp_path / "a")
    assert "adapted with 24 labelled rows" in report
    assert "no label of far: predicted from the source alone" in report
    assert "no label: source head" in report
    found = run_json("adapt", made / "model", made / "few.arrow", "-y", "wet,old", "-o", tmp_path / "a", "--force")
    assert found["without_labels"] == ["far"]
    assert found["report"]["wet"]["n_labels"] > 0
    assert found["verdict"] in report
    X, _ = rows(2, 50)
    kept = [pro2.load(path).decision_function(X)[:, 2] for path in (tmp_path / "a", made / "model")]
    np.testing.assert_array_equal(*kept)


def test_predictions_have_one_column_per_label(made: Path, tmp_path: Path) -> None:
    X, _ = rows(2, 200)
    adapted = pro2.load(made / "adapted")
    found = run_json("predict", made / "adapted", made / "test.arrow", "--proba", "-o", tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        lines = list(csv.DictReader(file))
    for t, name in enumerate(NAMES):
        assert [int(line[f"prediction_{name}"]) for line in lines] == adapted.predict(X)[:, t].tolist()
        proba = [float(line[f"proba_{name}"]) for line in lines]
        np.testing.assert_allclose(proba, adapted.predict_proba(X)[t][:, 1], atol=1e-6)
        assert found["predicted"][name] == adapted.predict(X)[:, t].sum()
    run("predict", made / "adapted", made / "test.arrow", "-o", tmp_path / "p.parquet")


def test_evaluate_has_mean_average_precision_and_each_label(made: Path, tmp_path: Path) -> None:
    X, Y = rows(2, 200)
    adapted = pro2.load(made / "adapted")
    files = made / "adapted", made / "test.arrow", "--source", made / "model", "-o", tmp_path / "e.csv"
    found = run_json("evaluate", *files)
    each = [average_precision_score(Y[:, t], adapted.decision_function(X)[:, t]) for t in range(3)]
    assert found["mean_average_precision"]["value"] == pytest.approx(np.mean(each))
    assert found["labels"]["old"]["average_precision"]["value"] == pytest.approx(each[1])
    assert found["labels"]["far"]["n_yes"] == Y[:, 2].sum()
    assert found["source_head"]["mean_average_precision"]["value"] > 0.5
    text = run("evaluate", *files, "--force")
    assert f"mean average precision  {np.mean(each):.3f}" in text
    assert sum(line.startswith(NAMES) for line in text.splitlines()) == 3
    with (tmp_path / "e.csv").open() as file:
        assert [line["name"] for line in csv.DictReader(file)] == list(NAMES)
    assert run_json("evaluate", made / "adapted", made / "test.arrow", "-y", "old")["labels"]["wet"]["n"] == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "fit source.arrow -y wet,kind -o m",
            "column 'kind' has the value 'a': of several labels each is 0, 1 or empty",
        ),
        ("fit source.arrow -y wet,wet -o m", "has an empty name or a name twice"),
        ("fit source.arrow -y wet,old --solver logistic -o m", "--solver goes with one label"),
        ("fit source.arrow -y wet,old --ridge 0.5 -o m", "--ridge goes with one label"),
        ("fit one.arrow -y wet,old -o m", "column 'old' of y has one value only"),
        ("adapt model -o a", "needs TARGET"),
        ("adapt model few.arrow --l2 1 -o a", "--l2 goes with a model of one label"),
        ("adapt model few.arrow --unlabeled test.arrow -o a", "--unlabeled goes with a model of one label"),
        ("adapt model few.arrow -y wet,blue -o a", "the model has no label 'blue'; it has wet, old, far"),
        ("adapt model bare.arrow -o a", "has none of the model's labels"),
        ("adapt model empty.arrow -o a", "have no label for any of the 24 rows"),
        ("evaluate adapted test.arrow --group wet", "--group goes with a model of one label"),
        ("evaluate adapted test.arrow --source single", "has other classes or another width"),
        ("suggest model few.arrow -n 2", "model has 3 labels, and `pro2 suggest` works on one"),
        ("fit --head adapted --unlabeled few.arrow -o m", "holds a MultiLabelClassifier, not one head"),
        ("fit --head heads.safetensors --unlabeled few.arrow -o m", "has 3 yes-or-no labels"),
    ],
)
def test_wrong_combinations_get_one_clear_line(
    made: Path, command: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    if not Path("one.arrow").exists():
        X, Y = rows(1, 24)
        none = np.full(24, np.nan)
        EmbeddingTable(X, None, {"wet": Y[:, 0], "old": 0 * Y[:, 0]}, {}).save("one.arrow")
        EmbeddingTable(X, None, {"y": Y[:, 0]}, {}).save("bare.arrow")
        EmbeddingTable(X, None, dict.fromkeys(NAMES, none), {}).save("empty.arrow")
        run("fit", "source.arrow", "-y", "wet", "-o", "single")
        run("export", "adapted", "--format", "safetensors", "-o", "heads.safetensors")
    assert said in refused(command)
