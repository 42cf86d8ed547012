"""From a table to a deployed classifier by commands; every number must equal that of the Python API."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import pro2
from pro2.cli import options
from pro2.estimators import duplicates
from pro2.estimators.diagnosis import diagnose
from pro2.estimators.evaluation import evaluate
from pro2.tables.embeddings import EmbeddingTable
from tests.cli.commands import refused, run, run_json

PROVENANCE = {"backbone": "pixels", "weights_digest": "sha256:none", "layer": "input"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five digits by name; in the target half of the pixels are turned. `few` has four rows of each class."""
    folder = tmp_path_factory.mktemp("digits")
    data = load_digits(n_class=5)
    names = np.array(["zero", "one", "two", "three", "four"])[data.target]
    X, is_target = data.data.astype(np.float32), np.arange(len(data.data)) % 2 == 1
    shifted = np.concatenate([X[:, :32][:, ::-1], X[:, 32:]], axis=1)
    columns = {"name": names, "odd": data.target % 2}
    EmbeddingTable(X, None, columns, PROVENANCE).take(np.flatnonzero(~is_target)).save(folder / "source.arrow")
    target = EmbeddingTable(shifted, None, columns, PROVENANCE).take(np.flatnonzero(is_target))
    y = target.column("name")
    few = np.concatenate([np.flatnonzero(y == name)[:4] for name in np.unique(y)])
    target.take(few).save(folder / "few.arrow")
    target.take(np.setdiff1d(np.arange(len(target)), few)).save(folder / "rest.arrow")
    run(f"fit {folder}/source.arrow -y name -o {folder}/model")
    run(f"adapt {folder}/model {folder}/few.arrow -y name -o {folder}/adapted")
    return folder


@pytest.fixture(autouse=True)
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def table(name: str) -> EmbeddingTable:
    return EmbeddingTable.open(f"{name}.arrow")


def test_a_process_prints_one_json_object_and_nothing_else() -> None:
    words = [sys.executable, "-m", "pro2", "evaluate", "adapted", "rest.arrow", "-y", "name", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == run_json("evaluate adapted rest.arrow -y name")


def fitted(where: str = "name != ''", **params: Any) -> pro2.ProjectAndProbe:
    return pro2.ProjectAndProbe(**params).fit(*table("source").where(where).X_y("name"))


Adapted = Callable[[np.ndarray, np.ndarray, EmbeddingTable], Any]
SAME: dict[str, tuple[str, str, Adapted]] = {
    "defaults": ("", "", lambda X, y, rest: fitted().adapt(X, y)),
    "unlabelled rows": (
        "", "--unlabeled rest.arrow", lambda X, y, rest: fitted().adapt(X, y, X_unlabeled=rest.embeddings),
    ),
    "the paper's probe": (
        "--n-components 12 --l2 0.5 --ridge 0.1 --n-features 8", "",
        lambda X, y, rest: fitted(n_components=12, l2=0.5, ridge=0.1, n_features=8).adapt(X, y),
    ),
    "leave-one-out": (
        "", "--l2 loo --n-features loo", lambda X, y, rest: fitted(l2="loo", n_features="loo").adapt(X, y),
    ),
    "a validation table": (
        "", "--validation rest.arrow",
        lambda X, y, rest: fitted().adapt(X, y, X_val=rest.embeddings, y_val=rest.column("name")),
    ),
    "suggested labels": (
        "", "--label-sampling suggested", lambda X, y, rest: fitted(label_sampling="suggested").adapt(X, y),
    ),
    "known class shares": (
        "", "--class-shares zero=0.6,one=0.1,two=0.1,three=0.1,four=0.1",
        lambda X, y, rest: fitted().adapt(
            X, y, class_shares={"zero": 0.6, "one": 0.1, "two": 0.1, "three": 0.1, "four": 0.1}
        ),
    ),
    "a new class": (
        "-w \"name != 'four'\"", "--new-classes",
        lambda X, y, rest: fitted("name != 'four'").adapt(X, y, new_classes="allow"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fit", "adapt", "python"), SAME.values(), ids=SAME)
def test_options_reach_the_estimator(fit: str, adapt: str, python: Adapted) -> None:
    run(f"fit source.arrow -y name {fit} -o m --force")
    answer = run_json(f"adapt m few.arrow -y name {adapt} -o a --force")
    expected = python(*table("few").X_y("name"), table("rest"))
    np.testing.assert_allclose(pro2.load("a").coef_, expected.coef_, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(pro2.load("a").intercept_, expected.intercept_, rtol=1e-5, atol=1e-6)
    assert answer["labels"] == dict.fromkeys(sorted(set(table("few").column("name").tolist())), 4)
    if "report" in answer:
        assert (answer["report"]["accuracy"] is None) == ("suggested" in adapt)
        assert answer["verdict"] == expected.report_.verdict()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_and_probabilities_by_id(suffix: str) -> None:
    run(f"predict adapted rest.arrow --proba -o p.{suffix} --force")
    if suffix == "csv":
        with Path("p.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table("p.parquet").to_pylist()
    adapted, rest = pro2.load("adapted"), table("rest")
    assert [row["id"] for row in rows] == rest.ids.tolist()
    assert [row["prediction"] for row in rows] == adapted.predict(rest.embeddings).tolist()
    found = np.array([[float(row[f"proba_{name}"]) for name in adapted.classes_] for row in rows])
    np.testing.assert_allclose(found, adapted.predict_proba(rest.embeddings), rtol=0, atol=1e-5)


def test_sets_and_rows_without_a_prediction() -> None:
    run("predict adapted rest.arrow --sets 0.8 --reject 0.1 -o sets.parquet --force")
    rows = pytest.importorskip("pyarrow.parquet").read_table("sets.parquet").to_pylist()
    adapted, X = pro2.load("adapted"), table("rest").embeddings
    rejected = adapted.outlier_score(X) > 0.9
    assert [row["prediction"] is None for row in rows] == rejected.tolist()
    names = adapted.classes_.astype(str)
    assert [row["set"] for row in rows] == ["|".join(names[row]) for row in adapted.predict_set(X, 0.8)]
    n = len(adapted.known_rows_)
    assert f"--reject 0.001 needs 999 labelled rows, adapted had {n}" in refused(
        "predict adapted rest.arrow --reject 0.001 -o x.csv"
    )
    assert "--sets 2 must be between 0 and 1" in refused("predict adapted rest.arrow --sets 2 -o x.csv")


def test_rows_that_were_labelled_are_named() -> None:
    few, rest = table("few").ids.tolist(), table("rest").ids.tolist()
    answer = run_json("evaluate adapted few.arrow -y name")
    assert answer["labelled_before"] == few
    assert f"warning: adapted was fitted to {len(few)} of these rows ({few[0]}, " in run(
        "evaluate adapted few.arrow -y name"
    )
    assert not set(run_json("evaluate adapted rest.arrow -y name")["labelled_before"]) - set(rest)


def test_copies_of_rows_that_were_learned_from_are_named() -> None:
    source, rest = table("source"), table("rest")
    X = np.concatenate([rest.embeddings[:40], source.embeddings[[5, 9]] * np.float32(1.5)])
    ids, names = [*rest.ids[:40], "again", "more"], [*rest.column("name")[:40], *source.column("name")[[5, 9]]]
    EmbeddingTable(X, ids, {"name": names}, PROVENANCE).save("mixed.arrow", force=True)
    words = "evaluate adapted mixed.arrow -y name --trained-on source.arrow --cosine 0.9999"
    found = run_json(words)["copies"]
    assert [(each["id"], each["copy_of"], each["table"]) for each in found] == [
        ("again", source.ids[5], "source.arrow"), ("more", source.ids[9], "source.arrow"),
    ]  # fmt: skip
    listed = f"copied from source.arrow: 2 rows (again = {source.ids[5]}, more = {source.ids[9]})"
    assert f"warning: {listed}; accuracy is too high" in run(words)
    some = f"{words} --trained-on-where \"id == '{source.ids[9]}'\""
    assert [each["id"] for each in run_json(some)["copies"]] == ["more"]
    assert run_json("evaluate adapted mixed.arrow -y name")["copies"] == []
    adapting = "adapt model mixed.arrow -y name --force -o copied"
    for words in (adapting, "adapt model --unlabeled mixed.arrow --force -o copied"):
        found = run(f"{words} --trained-on source.arrow --cosine 0.9999")
        assert f"warning: {listed}; such rows are not new to the model" in found
    validated = run_json(f"{adapting} --validation few.arrow --cosine 1")["copies"]
    assert validated == []
    validated = run_json("adapt model few.arrow -y name --force -o copied --validation few.arrow --cosine 1")["copies"]
    assert [each["id"] for each in validated] == table("few").ids.tolist()
    assert "--trained-on-where goes with --trained-on TABLE" in refused(
        "evaluate adapted rest.arrow -y name --trained-on-where odd"
    )


def test_the_bound_of_the_commands_is_that_of_the_library() -> None:
    assert options.COSINE == duplicates.COSINE


def test_evaluate_equals_the_library() -> None:
    answer = run_json("evaluate adapted rest.arrow -y name --group odd --source model")
    rest = table("rest")
    groups = np.array([f"odd={value}" for value in rest.column("odd").tolist()])
    for name, found in (("adapted", answer), ("model", answer["source_head"])):
        classifier = pro2.load(name)
        proba = classifier.predict_proba(rest.embeddings)
        expected = evaluate(rest.column("name"), proba, classifier.classes_, groups).to_dict()
        assert {key: found[key] for key in ("confusion", "worst_group", "classes")} == {
            key: expected[key] for key in ("confusion", "worst_group", "classes")
        }
        for key in ("accuracy", "balanced_accuracy", "ece", "log_loss"):
            assert found[key] == pytest.approx(expected[key], abs=1e-6)
    assert answer["accuracy"]["value"] > answer["source_head"]["accuracy"]["value"]


def test_suggestions_equal_the_library() -> None:
    cold = run_json("suggest model rest.arrow -n 6")
    later = run_json("suggest model rest.arrow -n 6 --adapted adapted --out next.csv --force")
    model, rest = pro2.load("model"), table("rest")
    for answer, adapted in ((cold, None), (later, pro2.load("adapted"))):
        rows = pro2.suggest_labels(model, rest.embeddings, 6, adapted=adapted, random_state=0)
        assert answer["ids"] == rest.ids[rows].tolist()
    text = Path("next.csv").read_text(encoding="utf-8").splitlines()
    assert text == ["id,label", *(f"{name}," for name in later["ids"])]


def test_diagnose_equals_the_library() -> None:
    pytest.importorskip("matplotlib")
    answer = run_json("diagnose model few.arrow -y name --figure d.png --force")
    expected = diagnose(pro2.load("model"), *table("few").X_y("name"))
    assert answer["verdict"] == expected.report.verdict()
    assert answer["report"]["mean_shift"] == pytest.approx(expected.report.mean_shift)
    assert answer["features_needed"] == expected.features_needed
    assert Path("d.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 classes in 300 groups."""
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 20)
    X = (0.3 * rng.standard_normal((40, 60))[y] + rng.standard_normal((len(y), 60))).astype(np.float32)
    model = pro2.ProjectAndProbe(n_components=40).fit(X[::2], y[::2])
    model.save(folder / "model")
    model.adapt(X[1::4], y[1::4]).save(folder / "adapted")
    EmbeddingTable(X, columns={"y": y, "site": np.arange(len(y)) % 300}).save(folder / "t.arrow")
    return folder


def test_of_many_classes_and_groups_the_worst_are_shown(many: Path, tmp_path: Path) -> None:
    line = f"evaluate {many}/adapted {many}/t.arrow -y y -g site --source {many}/model"
    text = run(f"{line} --out {tmp_path}/all.csv")
    assert len(text.splitlines()) < 70
    assert f"the 15 worst groups; all of them in {tmp_path}/all.csv" in text
    assert "the 15 worst classes" in text
    assert "most frequent of" in text
    assert ["adapted", "source", "head"] in [line.split() for line in text.splitlines()]
    answer = run_json(line)
    assert (len(answer["group_accuracy"]), len(answer["confusion"])) == (300, 40)
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = [row["what"] for row in rows]
    assert (kinds.count("group"), kinds.count("class")) == (300, 40)
    n_mistakes = sum(int(row["rows"]) for row in rows if row["what"] == "mistake")
    assert n_mistakes == 800 - round(800 * answer["accuracy"]["value"])


def test_another_model_is_not_the_source(many: Path) -> None:
    assert "give the model that was adapted" in refused(f"evaluate adapted rest.arrow -y name --source {many}/model")
