"""Model files: what goes in comes out, also from files of the past, and nothing is lost when a write fails."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pro2
from pro2.estimators import Probe, ProjectAndProbe, Projection
from pro2.estimators.files import check_backbone, describe, unpack
from pro2.lab.baselines import create_baseline

GOLDEN = Path(__file__).parents[1] / "golden"
PROVENANCE = {"source": {"backbone": "toy", "weights_digest": "sha256:0", "preprocessing": {"size": [224, 224]}}}


def rows(n_classes: int = 2, n: int = 60, width: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    X = rng.standard_normal((n, width))
    X[:, 0] += 2 * codes
    return X, codes


def fitted(kind: str, n_classes: int = 2, labels: Any = None) -> Any:
    X, codes = rows(n_classes)
    y = codes if labels is None else np.asarray(labels)[codes]
    if kind == "Projection":
        return Projection().fit(X, y)
    if kind == "Probe":
        return Probe().fit(X, y)
    model = ProjectAndProbe().fit(X, y)
    return model if kind == "ProjectAndProbe" else model.adapt(X[:12], y[:12])


def assert_equal(a: Any, b: Any) -> None:
    """Same type, same parameters, same fitted attributes, all the way down."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            assert_equal(one, other)
    elif hasattr(a, "__dict__"):
        mine, theirs = (
            {k: v for k, v in vars(each).items() if k not in ("_report", "_inputs", "_made")} for each in (a, b)
        )
        assert set(mine) == set(theirs)
        for name, value in mine.items():
            assert_equal(value, theirs[name])
        if hasattr(a, "report_"):  # made when it is asked for, so that it lies elsewhere in a copy
            assert_equal(a.report_, b.report_)
    else:
        assert a == b or (a != a and b != b)


def through_skops(estimator: Any, path: Path) -> Any:
    skops = pytest.importorskip("skops.io")
    data = skops.dumps(estimator)
    trusted = skops.get_untrusted_types(data=data)
    assert all(name.startswith("pro2.") for name in trusted)
    return skops.loads(data, trusted=trusted)


WAYS = {
    "file": lambda estimator, path: pro2.load(estimator.save(path)),
    "pickle": lambda estimator, path: pickle.loads(pickle.dumps(estimator)),  # our own bytes, made a moment ago
    "skops": through_skops,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", ["ProjectAndProbe", "LinearClassifier", "Projection", "Probe"])
def test_what_goes_in_comes_out(tmp_path: Path, kind: str, n_classes: int, way: str) -> None:
    before = fitted(kind, n_classes)
    after = WAYS[way](before, tmp_path / "m")
    assert_equal(before, after)
    X, _ = rows(n_classes, seed=1)
    call = "transform" if kind == "Projection" else "predict_proba"
    np.testing.assert_array_equal(getattr(before, call)(X), getattr(after, call)(X))


@pytest.mark.parametrize(
    "labels",
    [["mantis", "Möwe", ""], [False, True], [-5, 7, 2**40], [1.0, 2.0], np.array(["b", "a"], dtype=object)],
    ids=str,
)
def test_labels_keep_their_type(tmp_path: Path, labels: Any) -> None:
    before = fitted("LinearClassifier", len(labels), labels)
    after = pro2.load(before.save(tmp_path / "m"))
    assert after.classes_.dtype == before.classes_.dtype
    assert after.classes_.tolist() == before.classes_.tolist()
    X, _ = rows(len(labels))
    assert after.predict(X).tolist() == before.predict(X).tolist()


@pytest.mark.parametrize("solver", ["krylov", "logistic", "adamw"])
@pytest.mark.parametrize("scale", [None, "unit", "standard"])
def test_a_loaded_model_adapts_like_the_original(tmp_path: Path, solver: str, scale: str | None) -> None:
    X, y = rows(3)
    model = ProjectAndProbe(n_components=3, solver=solver, scale=scale, random_state=0).fit(X, y)
    loaded = pro2.load(model.save(tmp_path / "m"))
    a, b = (each.adapt(X[:9], y[:9]) for each in (model, loaded))
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.predict(X), b.predict(X))


def test_equal_models_give_equal_bytes_and_safetensors_reads_them(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    a, b = (fitted("ProjectAndProbe").save(tmp_path / name) for name in "ab")
    assert a.read_bytes() == b.read_bytes() == pro2.load(a).save(tmp_path / "c").read_bytes()
    ours, theirs = unpack(a.read_bytes())[1], load_file(a)
    assert set(ours) == set(theirs)
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_bank_of_very_many_names_comes_back_with_its_model(tmp_path: Path, n_classes: int) -> None:
    from pro2.estimators.bank import ProbeBank

    T = 2000
    X, y = rows(n_classes)
    names = np.array([f"{i:04d}-M\u00f6we-\ud800-{'x' * 60}" for i in range(T)])
    each = np.arange(2 * T) % 60
    bank = ProbeBank(ProjectAndProbe().fit(X, y)).fit(X[each], y[each], target=np.repeat(names, 2))
    loaded = pro2.load(bank.save(tmp_path / "m"))
    assert loaded.targets_.tolist() == names.tolist()
    np.testing.assert_array_equal(loaded.predict_proba(X[:5], target=names[7]), bank.predict_proba(X[:5], names[7]))


def test_what_could_not_come_back_is_not_written(tmp_path: Path) -> None:
    for spoil, message in [
        (lambda model: setattr(model, "note_", 1), "cannot have 'note_'"),
        (lambda model: model.source_moments_.mean.fill(np.nan), "mean is not finite"),
        (lambda model: setattr(model, "classes_", np.array(["a", "a"])), "same label twice"),
        (lambda model: delattr(model, "source_moments_"), "has no source_moments_"),
    ]:
        model = fitted("ProjectAndProbe")
        spoil(model)
        with pytest.raises(ValueError, match=rf"this ProjectAndProbe cannot be saved: .*{message}"):
            model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_model_file_holds_parameters_and_moments_and_nothing_derived(tmp_path: Path) -> None:
    model = fitted("ProjectAndProbe")
    model.adapt(*(v[:12] for v in rows()))
    model.projection_  # noqa: B018  made, and not saved
    names = set(describe(model.save(tmp_path / "m"))["tensors"])
    moments = {"source_moments_.weight", "source_moments_.mean", "source_moments_.scatter"}
    assert names == {"classes_", *moments}
    loaded = pro2.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.projection_.components_, model.projection_.components_)
    np.testing.assert_array_equal(loaded.source_head_.coef_, model.source_head_.coef_)


def test_provenance_travels(tmp_path: Path) -> None:
    model = pro2.load(fitted("ProjectAndProbe").save(tmp_path / "a", provenance=PROVENANCE))
    again = pro2.load(model.save(tmp_path / "b"))
    assert dict(again.provenance) == PROVENANCE
    facts = describe(tmp_path / "b")
    assert facts["provenance"] == PROVENANCE
    assert (facts["kind"], facts["classes"], facts["n_features_in"]) == ("ProjectAndProbe", [0, 1], 5)
    assert facts["pro2_version"] == pro2.__version__
    with pytest.raises(ValueError, match="provenance must hold JSON"):
        model.save(tmp_path / "c", provenance={"x": {1, 2}})
    with pytest.raises(ValueError, match="provenance must hold JSON"):
        model.save(tmp_path / "c", provenance={"x": float("nan")})


def test_another_backbone_is_refused(tmp_path: Path) -> None:
    model = pro2.load(fitted("ProjectAndProbe").save(tmp_path / "a", provenance=PROVENANCE))
    check_backbone(model, {**PROVENANCE["source"], "preprocessing": {"size": (224, 224)}})
    check_backbone(model, {})
    check_backbone(fitted("Probe"), {"backbone": "other"})
    with pytest.raises(ValueError, match=r"another weights_digest \('sha256:1'\).*'sha256:0'"):
        check_backbone(model, {"backbone": "toy", "weights_digest": "sha256:1"})


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    X, y = rows()
    with pytest.raises(ValueError, match="not fitted"):
        ProjectAndProbe().save(tmp_path / "m")
    model = ProjectAndProbe(solver="adamw", n_components=2, random_state=np.random.RandomState(0)).fit(X, y)
    with pytest.raises(ValueError, match="random_state is RandomState"):
        model.save(tmp_path / "m")
    baseline = create_baseline("source-only").fit(X, y)
    with pytest.raises(ValueError, match="save what its adapt"):
        baseline.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
    assert_equal(pro2.load(baseline.adapt(X, y).save(tmp_path / "m")).coef_, baseline.coef_)


@pytest.mark.parametrize("name", ["model", "adapted", "adapted-names"])
def test_golden_files_load_for_ever(name: str) -> None:
    expected = json.loads((GOLDEN / "expected-v4.json").read_text(encoding="utf-8"))
    estimator, answers = pro2.load(GOLDEN / f"{name}-v4.safetensors"), expected[f"{name}-v4"]
    X = np.array(expected["X"])
    assert estimator.predict(X).tolist() == answers["predict"]
    np.testing.assert_allclose(estimator.predict_proba(X), answers["predict_proba"], rtol=1e-6)
    assert dict(estimator.provenance) == answers["provenance"]


@pytest.mark.parametrize("name", ["model", "adapted"])
def test_files_of_version_1_ask_to_be_made_again(name: str) -> None:
    with pytest.raises(ValueError, match=r"format version 1, written by pro2 .* reads 4: fit it again"):
        pro2.load(GOLDEN / f"{name}-v1.safetensors")
