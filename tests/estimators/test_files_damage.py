"""Damage and malice end in ValueError: never in a crash, a hang, a large allocation or running code."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pro2
from pro2.estimators.files import KEY, is_model_file, pack, sealed, unpack
from tests.mutators import attack

GOLDEN = Path(__file__).parents[1] / "golden"


def copied(folder: Path, name: str = "model") -> Path:
    """A file of our own to break."""
    return Path(shutil.copyfile(GOLDEN / f"{name}-v4.safetensors", folder / "m"))


def rewrite(path: Path, change: Any, reseal: bool = True) -> Path:
    """Edit a file as someone who knows the format would: the digest is made anew."""
    metadata, tensors = unpack(path.read_bytes())
    document = json.loads(metadata[KEY])
    change(document, tensors)
    path.write_bytes(sealed(document, tensors) if reseal else pack(tensors, {KEY: json.dumps(document)}))
    return path


def labels(*items: Any, tag: str = "$texts") -> dict[str, Any]:
    return {"classes_": {tag: list(items)}}


GONE = "this key is absent"
NAN = float("nan")  # Python's JSON writes and reads it
FORGED_OBJECTS = {
    "code": {"kind": "os.system"},
    "method": {"predict": 1},
    "unknown tag": {"x_": {"$call": "print"}},
    "parameter of another type": {"ridge": "0.3"},
    "true for a number": {"l2": True},
    "width": {"n_features_in_": 10**12},
    "no classes": {"classes_": GONE},
    "one class": labels("a"),
    "label type": labels("a", "b", tag="$numbers"),
    "numbers as texts": labels(1, 2),
    "no list of labels": {"classes_": {"$texts": "ab"}},
    "missing label": labels(0.0, NAN, tag="$objects"),
    "a number beyond all": {"ridge": {"$float": 10**400}},
    "labels that are equal": labels(True, 1, tag="$objects"),
    "mixed labels": labels("a", 1, tag="$objects"),
    "a wide label": labels("x" * 1_000_000, *map(str, range(5000))),
    "kind of source missing": {"source_kind_": GONE},
    "unknown kind of source": {"source_kind_": "unknown"},
    "a head that was not given": {"source_kind_": "head"},
    "a projection that is a number": {"trained_projection_": 1},
    "no moments": {"source_moments_": GONE},
    "an array that is not there": {"classes_": None},
    "an array in the place of a text": {"source_kind_": None, "source_moments_": {"kind": "SourceMoments"}},
}
FORGED_TENSORS = {
    "wrong shape": lambda t: {"source_moments_.mean": t["source_moments_.mean"][:, :3]},
    "not finite": lambda t: {"source_moments_.mean": np.nan * t["source_moments_.mean"]},
    "integers": lambda t: {"source_moments_.mean": np.zeros(t["source_moments_.mean"].shape, dtype=np.int64)},
    "an array that has no place": lambda t: {"coef_": np.zeros((1, 4))},
    "moments of another width": lambda t: {"source_moments_.scatter": np.zeros((2, 2))},
    "half precision": lambda t: {"source_moments_.scatter": t["source_moments_.scatter"].astype(np.float16)},
    "no weight at all": lambda t: {"source_moments_.weight": 0.0 * t["source_moments_.weight"]},
    "negative weight": lambda t: {"source_moments_.weight": -t["source_moments_.weight"]},
    "moments that are not finite": lambda t: {"source_moments_.mean": np.inf * t["source_moments_.mean"]},
}
FORGED_DESCRIPTIONS = [{"object": [1]}, {"object": 1}, {"provenance": GONE}, {"version": "1"}, {"format": "other"}]
FORGED_REPORTS = {
    "n_labels": "8",
    "members": [1, 2],
    "accuracy": "high",
    "accuracy_interval": [0.0],
    "learning_curve": {"n_labels": 1},
    "surprising": {"$texts": ["a"]},
    "temperature": None,
}


def forge(content: dict[str, Any], changes: dict[str, Any], tensors: dict[str, Any]) -> None:
    content.update(changes)
    for name in tensors.keys() & changes.keys():
        del tensors[name]
    for name in [name for name, value in changes.items() if value is GONE]:
        del content[name]


@pytest.mark.parametrize("name", FORGED_REPORTS)
def test_reports_of_wrong_types_are_refused(tmp_path: Path, name: str) -> None:
    path = copied(tmp_path, "adapted")

    def forged(document: Any, tensors: Any) -> None:
        document["object"]["report_"][name] = FORGED_REPORTS[name]
        for each in [each for each in tensors if each.startswith(f"report_.{name}")]:
            del tensors[each]

    rewrite(path, forged)
    with pytest.raises(ValueError, match=rf"{path.name} is damaged \(.*{name}"):
        pro2.load(path)


FORGERIES = {
    **{name: lambda d, t, c=changes: forge(d["object"], c, t) for name, changes in FORGED_OBJECTS.items()},
    **{name: lambda d, t, c=change: t.update(c(t)) for name, change in FORGED_TENSORS.items()},
    **{str(changes): lambda d, t, c=changes: forge(d, c, {}) for changes in FORGED_DESCRIPTIONS},
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_forged_files_are_refused(tmp_path: Path, change: Any) -> None:
    path = rewrite(copied(tmp_path), change)
    with pytest.raises(ValueError, match="is damaged"):
        pro2.load(path)


def test_an_edited_file_does_not_match_its_digest(tmp_path: Path) -> None:
    for edit in (
        lambda d, t: d["provenance"]["source"].update(backbone="better"),
        lambda d, t: d.update(digest=""),
        lambda d, t: d.update(digest="\ud800"),
    ):
        path = rewrite(copied(tmp_path), edit, reseal=False)
        with pytest.raises(ValueError, match=f"{path} is damaged .its content does not match its digest"):
            pro2.load(path)


def test_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = rewrite(copied(tmp_path, "adapted"), lambda d, t: d.update(version=5, pro2_version="9.9"))
    with pytest.raises(ValueError, match=r"format version 5, written by pro2 9\.9.*install a newer"):
        pro2.load(path)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "other.safetensors")
    (tmp_path / "text").write_text("hello, this is no model at all")
    (tmp_path / "empty").touch()
    assert is_model_file(copied(tmp_path, "adapted"))
    assert not any(is_model_file(tmp_path / name) for name in ("other.safetensors", "text", "empty", "absent", "."))
    with pytest.raises(ValueError, match="not a pro2 model"):
        pro2.load(tmp_path / "other.safetensors")
    for name in ("text", "empty"):
        with pytest.raises(ValueError, match="is damaged"):
            pro2.load(tmp_path / name)


def test_a_sparse_giant_is_refused_without_reading_it(tmp_path: Path) -> None:
    size = 1 << 40
    header = json.dumps({"x": {"dtype": "F64", "shape": [size // 8], "data_offsets": [0, size]}}).encode()
    path = tmp_path / "m"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    with pytest.raises(ValueError, match=r"1,099,511,\d+,\d+ bytes, more than the limit"):
        pro2.load(path)


# ---- thousands of damaged files, in a child process with little memory: see tests/mutators.py

HERE = "tests/estimators/damage.py"
# each is tried in two ways
N = {"model": 42, "adapted": 42, "names": 42, "bank": 42, "labels": 42, "labels adapted": 42, "moments": 125}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One small file of each kind."""
    folder, rng = tmp_path_factory.mktemp("whole"), np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.standard_normal((60, 5)) + 2 * y[:, None]
    names = np.array(["Möwe", "owl", ""])[np.arange(60) % 3]
    model = pro2.ProjectAndProbe(n_components=3).fit(X, y)
    several = pro2.MultiLabelProjectAndProbe().fit(X, np.stack([y, y[::-1]], axis=1))
    made: dict[str, Any] = {
        "model": model,
        "adapted": model.adapt(X[:12], y[:12]),
        "names": pro2.ProjectAndProbe().fit(X, names).adapt(X[:9], names[:9]),
        "bank": pro2.ProbeBank(model).fit(X, y, target=np.repeat(["north", "south"], 30)),
        "labels": several,
        "labels adapted": several.adapt(X[:12], np.stack([y, y[::-1]], axis=1)[:12]),
        "moments": pro2.SourceMoments.from_arrays(X, names),
    }
    provenance = {"source": {"backbone": "toy", "digest": "sha256:0", "rows": 60}}
    return {name: value.save(folder / name, provenance=provenance) for name, value in made.items()}


@pytest.mark.fuzz
@pytest.mark.slow
@pytest.mark.parametrize("kind", N)
def test_damage_is_refused_by_name_or_harmless(files: dict[str, Path], kind: str, fuzz_scale: int) -> None:
    counts = attack(f"{HERE}:loads_the_same", files[kind], n=N[kind] * fuzz_scale, seed=0)
    assert counts["refused"] > 0.9 * counts.total()


@pytest.mark.fuzz
@pytest.mark.slow
def test_a_forged_file_is_refused_or_works(files: dict[str, Path], fuzz_scale: int) -> None:
    """What passes is counted over all kinds: of some it is 3 cases in 100, so that of 42 cases there may be none."""
    tried = [attack(f"{HERE}:works_if_it_loads", files[kind], n=N[kind] * fuzz_scale, seed=1) for kind in N]
    assert all(counts["refused"] > 0.02 * counts.total() for counts in tried), "the forger is too careful"
    every = sum(tried, Counter())
    assert every["passed"] > 0.02 * every.total(), "the forger is too wild"
