"""Model files: what goes in comes out; damage and malice end in ValueError, never in a crash or in running code."""

from __future__ import annotations

import errno
import json
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import pro2
from pro2.estimators import LinearClassifier, Probe, ProjectAndProbe, Projection
from pro2.estimators.baselines import create_baseline
from pro2.estimators.files import KEY, _digest, check_backbone, describe, is_model_file
from pro2.estimators.tensors import read_tensors, write_tensors

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
    elif hasattr(a, "__dict__"):
        assert set(vars(a)) == set(vars(b))
        for name, value in vars(a).items():
            assert_equal(value, vars(b)[name])
    else:
        assert a == b or (a != a and b != b)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", ["ProjectAndProbe", "LinearClassifier", "Projection", "Probe"])
def test_load_returns_what_was_saved(tmp_path: Path, kind: str, n_classes: int) -> None:
    before = fitted(kind, n_classes)
    after = pro2.load(before.save(tmp_path / "m"))
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


def test_loaded_moments_still_merge(tmp_path: Path) -> None:
    X, y = rows()
    half = Projection().fit(X[:30], y[:30])
    whole = pro2.load(half.save(tmp_path / "m")).partial_fit(X[30:], y[30:])
    np.testing.assert_allclose(whole.components_, Projection().fit(X, y).components_, atol=1e-9)


def test_equal_models_give_equal_bytes_and_safetensors_reads_them(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    a, b = (fitted("ProjectAndProbe").save(tmp_path / name) for name in "ab")
    assert a.read_bytes() == b.read_bytes()
    ours, theirs = read_tensors(a)[1], load_file(a)
    assert set(ours) == set(theirs)
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name])


def test_torch_models_come_back_as_numpy(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    X, y = rows()
    model = ProjectAndProbe().fit(torch.from_numpy(X), y)
    loaded = pro2.load(model.save(tmp_path / "m"))
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(torch.from_numpy(X)).numpy(), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_bank_of_probes_comes_back_with_its_projection(tmp_path: Path, n_classes: int) -> None:
    from pro2.estimators.bank import ProbeBank

    X, y = rows(n_classes)
    bank = ProbeBank(Projection(n_components=3).fit(X, y)).fit(
        X, y, target=np.array(["north", "south"])[np.arange(60) // 30]
    )
    loaded = pro2.load(bank.save(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.predict_proba(X, target="south"), bank.predict_proba(X, target="south"))


def test_the_report_of_an_adaptation_travels(tmp_path: Path) -> None:
    adapted = fitted("LinearClassifier")
    loaded = pro2.load(adapted.save(tmp_path / "m"))
    assert loaded.report_.learning_curve is not None
    assert str(loaded.report_) == str(adapted.report_)


def test_what_model_and_projection_share_is_stored_once(tmp_path: Path) -> None:
    model = fitted("ProjectAndProbe")
    assert model.source_moments_.scatter is model.projection_.moments_.scatter
    loaded = pro2.load(model.save(tmp_path / "m"))
    assert loaded.source_moments_.scatter is loaded.projection_.moments_.scatter


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


def test_existing_files_are_kept_unless_forced(tmp_path: Path) -> None:
    path = fitted("Probe").save(tmp_path / "m")
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="force"):
        fitted("Projection").save(path)
    assert path.read_bytes() == before
    fitted("Projection").save(path, force=True)
    assert describe(path)["kind"] == "Projection"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fitted("Probe").save(tmp_path / "m")
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot write .*No space left.*nothing was changed"):
        fitted("Projection").save(path, force=True)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["m"]


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


def test_a_mistyped_name_gets_a_suggestion(tmp_path: Path) -> None:
    fitted("Probe").save(tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match=r"did you mean .*model\.safetensors"):
        pro2.load(tmp_path / "modle.safetensors")


# Damage and malice


def rewrite(path: Path, change: Any, reseal: bool = True) -> Path:
    """Edit a file as someone who knows the format would: the digest is made anew."""
    metadata, views = read_tensors(path)
    document, tensors = json.loads(metadata[KEY]), {name: view.copy() for name, view in views.items()}
    change(document, tensors)
    if reseal:
        document["digest"] = _digest(document, tensors)
    with path.open("wb") as file:
        write_tensors(file, tensors, {KEY: json.dumps(document)})
    return path


HOSTILE = {
    "code": lambda d, t: d["object"].update(kind="os.system"),
    "dunder": lambda d, t: d["object"]["fitted"].update(__class__=1),
    "method": lambda d, t: d["object"]["fitted"].update(predict=1),
    "parameter": lambda d, t: d["object"]["params"].update(shell="rm"),
    "missing tensor": lambda d, t: t.pop("coef_"),
    "unknown tag": lambda d, t: d["object"]["fitted"].update(x_={"$call": "print"}),
    "wrong shape": lambda d, t: t.update(coef_=t["coef_"][:, :3]),
    "not finite": lambda d, t: t["coef_"].fill(np.nan),
    "integers": lambda d, t: t.update(coef_=np.zeros(t["coef_"].shape, dtype=np.int64)),
    "no classes": lambda d, t: d["object"]["fitted"].pop("classes_"),
    "one class": lambda d, t: d["object"]["fitted"].update(classes_={"$labels": ["a"], "dtype": "str"}),
    "label type": lambda d, t: d["object"]["fitted"].update(classes_={"$labels": ["a", "b"], "dtype": "int64"}),
    "structured label type": lambda d, t: d["object"]["fitted"].update(
        classes_={"$labels": [1, 2], "dtype": "i8,(1000000,1000000)f8"}
    ),
    "huge label": lambda d, t: d["object"]["fitted"].update(classes_={"$labels": [1, 10**40], "dtype": "int64"}),
    "fitted is a list": lambda d, t: d["object"].update(fitted=[]),
    "object is a list": lambda d, t: d.update(object=[1]),
    "object is a number": lambda d, t: d.update(object=1),
    "projection missing": lambda d, t: d["object"]["fitted"].pop("projection_"),
    "projection is a probe": lambda d, t: d["object"]["fitted"].update(
        projection_=d["object"]["fitted"]["source_head_"]
    ),
    "moments": lambda d, t: t.update({"projection_.moments_.scatter": np.zeros((2, 2))}),
    "no provenance": lambda d, t: d.pop("provenance"),
    "width": lambda d, t: d["object"]["fitted"].update(n_features_in_=10**12),
    "version": lambda d, t: d.update(version="1"),
    "format": lambda d, t: d.update(format="other"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_forged_files_are_refused(tmp_path: Path, change: Any) -> None:
    path = rewrite(fitted("ProjectAndProbe").save(tmp_path / "m"), change)
    with pytest.raises(ValueError, match="is damaged"):
        pro2.load(path)


def test_an_edited_file_does_not_match_its_digest(tmp_path: Path) -> None:
    path = fitted("ProjectAndProbe").save(tmp_path / "m", provenance=PROVENANCE)
    rewrite(path, lambda d, t: d["provenance"]["source"].update(backbone="better"), reseal=False)
    with pytest.raises(ValueError, match="does not match its digest"):
        pro2.load(path)


def test_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = rewrite(fitted("Probe").save(tmp_path / "m"), lambda d, t: d.update(version=2, pro2_version="9.9"))
    with pytest.raises(ValueError, match=r"format version 2, written by pro2 9\.9.*upgrade"):
        pro2.load(path)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "other.safetensors")
    (tmp_path / "text").write_text("hello, this is no model at all")
    (tmp_path / "empty").touch()
    assert is_model_file(fitted("Probe").save(tmp_path / "m"))
    assert not any(is_model_file(tmp_path / name) for name in ("other.safetensors", "text", "empty", "absent", "."))
    with pytest.raises(ValueError, match="not a pro2 model"):
        pro2.load(tmp_path / "other.safetensors")
    for name in ("text", "empty"):
        with pytest.raises(ValueError, match="is damaged"):
            pro2.load(tmp_path / name)


def header_file(path: Path, header: Any, data: bytes = b"") -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def entry(shape: Any, offsets: Any, dtype: Any = "F64") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


BAD_HEADERS = {
    "nested": b"[" * 100_000,
    "list": [],
    "huge tensor": {"x": entry([2**40, 2**40], [0, 2**83])},
    "huge empty": {"x": entry([2**62, 0], [0, 0])},
    "negative": {"x": entry([-1, -1], [0, 8])},
    "beyond": {"x": entry([4], [0, 32])},
    "backwards": {"x": entry([1], [8, 0])},
    "overlap": {"x": entry([1], [0, 8]), "y": entry([1], [0, 8])},
    "gap": {"x": entry([0], [8, 8])},
    "hidden rest": {},
    "text shape": {"x": entry("1", [0, 8])},
    "float shape": {"x": entry([1.0], [0, 8])},
    "true shape": {"x": entry([True], [0, 8])},
    "many axes": {"x": entry([1] * 40, [0, 8])},
    "type": {"x": entry([1], [0, 8], "BF16")},
    "type list": {"x": entry([1], [0, 8], [])},
    "entry": {"x": 5},
    "offsets": {"x": entry([1], 8)},
    "metadata": {"__metadata__": {KEY: 5}, "x": entry([1], [0, 8])},
    "twice": b'{"x": 1, "x": 2}',
    "long number": b'{"x": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_impossible_headers_allocate_nothing(tmp_path: Path, header: Any) -> None:
    path = header_file(tmp_path / "m", header, bytes(8))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="is damaged"):
            pro2.load(path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_a_lying_header_length_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "m"
    for length in (2**63, 2**64 - 1, 100):
        path.write_bytes(length.to_bytes(8, "little") + bytes(20))
        with pytest.raises(ValueError, match="cut off"):
            pro2.load(path)
    with path.open("wb") as file:  # a sparse file: large on paper only
        file.write((1 << 30).to_bytes(8, "little"))
        file.truncate(1 << 31)
    with pytest.raises(ValueError, match="header claims"):
        pro2.load(path)


def test_a_sparse_giant_is_refused_without_reading_it(tmp_path: Path) -> None:
    size = 1 << 40
    path = header_file(tmp_path / "m", {"x": entry([size // 8], [0, size])})
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)
    with pytest.raises(ValueError, match="not a pro2 model"):
        pro2.load(path)


@pytest.fixture(scope="module")
def intact() -> bytes:
    path = GOLDEN / "adapted-v1.safetensors"
    return path.read_bytes()


def outcome(path: Path, data: bytes) -> Any:
    """What loading gives: an estimator, or None for the one kind of error that is allowed."""
    path.write_bytes(data)
    try:
        return pro2.load(path)
    except ValueError as error:
        if str(path) not in str(error):
            raise AssertionError("the message does not name the file") from error
        return None


def test_every_truncation_is_noticed(tmp_path: Path, intact: bytes) -> None:
    assert outcome(tmp_path / "m", intact) is not None
    for length in range(len(intact)):
        assert outcome(tmp_path / "m", intact[:length]) is None
    assert outcome(tmp_path / "m", intact + b"\0") is None


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path: Path, intact: bytes) -> None:
    rng = np.random.default_rng(0)
    expected = outcome(tmp_path / "m", intact)
    for at in range(len(intact)):
        data = bytearray(intact)
        data[at] ^= int(rng.integers(1, 256))
        found = outcome(tmp_path / "m", bytes(data))
        if found is not None:  # only white space of the header says nothing
            assert_equal(found, expected)


@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_random_edits_are_noticed_or_harmless(tmp_path_factory: Any, intact: bytes, data: Any) -> None:
    at = data.draw(st.integers(0, len(intact)))
    cut = data.draw(st.integers(0, 40))
    new = data.draw(st.binary(max_size=40))
    changed = intact[:at] + new + intact[at + cut :]
    path = tmp_path_factory.getbasetemp() / "edited"
    found = outcome(path, changed)
    if found is not None:
        assert_equal(found, outcome(path, intact))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("$array"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["kind", "params", "fitted", "$array", "$labels", "$tuple", "$dict", "$record", "$float", "fields", "dtype",
         "classes_", "coef_"]) | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(document=JSON)
def test_random_documents_with_a_true_digest_are_refused(tmp_path_factory: Any, intact: bytes, document: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "forged"
    path.write_bytes(intact)
    rewrite(path, lambda d, t: d.update(object=document))
    with pytest.raises(ValueError, match="is damaged"):
        pro2.load(path)


@settings(max_examples=500, deadline=None)
@given(raw=st.binary(max_size=200), length=st.integers(0, 300))
def test_random_bytes_are_refused(tmp_path_factory: Any, raw: bytes, length: int) -> None:
    path = tmp_path_factory.getbasetemp() / "noise"
    assert outcome(path, length.to_bytes(8, "little") + raw) is None


# Files of the past, and other ways to keep an estimator


@pytest.mark.parametrize("name", ["model-v1", "adapted-v1", "adapted-names-v1"])
def test_files_of_version_1_are_read_for_ever(name: str) -> None:
    expected = json.loads((GOLDEN / "expected-v1.json").read_text(encoding="utf-8"))
    estimator = pro2.load(GOLDEN / f"{name}.safetensors")
    X = np.array(expected["X"])
    assert estimator.predict(X).tolist() == expected[name]["predict"]
    np.testing.assert_allclose(estimator.predict_proba(X), expected[name]["predict_proba"], rtol=1e-12)
    assert dict(estimator.provenance) == expected[name]["provenance"]
    if name == "model-v1":  # the rule may improve, but it must find all it needs in the file
        assert estimator.adapt(X[:4], [0, 1, 0, 1]).predict(X).shape == (5,)


@pytest.mark.parametrize("kind", ["ProjectAndProbe", "LinearClassifier", "Projection", "Probe"])
def test_pickle_keeps_everything(kind: str) -> None:
    estimator = fitted(kind, 3)
    assert_equal(estimator, pickle.loads(pickle.dumps(estimator)))  # our own bytes, made a moment ago


@pytest.mark.parametrize("kind", ["ProjectAndProbe", "Projection", "Probe"])
def test_a_loaded_estimator_can_be_cloned(tmp_path: Path, kind: str) -> None:
    estimator = fitted(kind).set_params(random_state=3)
    fresh = clone(pro2.load(estimator.save(tmp_path / "m")))
    assert fresh.get_params() == estimator.get_params()
    assert not hasattr(fresh, "n_features_in_")
    assert fresh.provenance == {}


@pytest.mark.parametrize("kind", ["ProjectAndProbe", "LinearClassifier", "Projection", "Probe"])
def test_skops_keeps_everything(kind: str) -> None:
    skops = pytest.importorskip("skops.io")
    estimator = fitted(kind, 3)
    data = skops.dumps(estimator)
    trusted = skops.get_untrusted_types(data=data)
    assert all(name.startswith("pro2.") for name in trusted)
    assert_equal(estimator, skops.loads(data, trusted=trusted))


def test_the_classifier_kind_is_public() -> None:
    assert isinstance(fitted("LinearClassifier"), LinearClassifier)
