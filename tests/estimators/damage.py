"""What a reader of model and moments files may make of damaged bytes; see tests/mutators.py."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

import pro2
from pro2.estimators.files import KEY, describe, from_bytes, sealed, to_bytes, unpack


def loads_the_same(damaged: Path, whole: Path) -> None:
    """Refused by name, or equal to the bit: the digest lets nothing else pass."""
    found = pro2.load(damaged)
    assert to_bytes(found) == to_bytes(pro2.load(whole))
    assert describe(damaged)["digest"] == describe(whole)["digest"]


def works_if_it_loads(damaged: Path, whole: Path) -> None:
    """A forger edits the content and makes the digest anew: refused by name, or an estimator that can be used.

    The damaged bytes only serve as the seed: as bytes they would seldom be JSON.
    """
    metadata, tensors = unpack(whole.read_bytes())
    document = json.loads(metadata[KEY])
    if damaged.read_bytes() != whole.read_bytes():
        rng = random.Random(damaged.read_bytes())
        for _ in range(rng.choice([1, 1, 2, 5])):
            _edit_tensor(tensors, rng) if rng.random() < 0.3 else _edit_document(document, rng)
    damaged.write_bytes(sealed(document, tensors))
    found = pro2.load(damaged)
    assert to_bytes(from_bytes(to_bytes(found))) == to_bytes(found)
    with np.errstate(all="ignore"):
        _use(found)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


def _edit_document(document: dict[str, Any], rng: random.Random) -> None:
    (container, key), (other, name) = rng.choices(_places(document), k=2)
    choice = rng.random()
    if choice < 0.15 and isinstance(container, dict):
        del container[key]
    elif choice < 0.4:
        container[key] = copy.deepcopy(other[name])
    elif choice < 0.5 and isinstance(container, dict):
        container[rng.choice(["x_", "classes_", "provenance_", "$texts", "n_features_in_"])] = container.pop(key)
    else:
        container[key] = copy.deepcopy(rng.choice(VALUES))


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**70, 1e308, float("nan"), "", "auto", "coef_", [], {}, [[]], {"$objects": []},
    {"$float": "nan"}, {"$texts": ["a", "b"]}, {"$objects": [0, 1]},
    {"kind": "SourceMoments"},
]  # fmt: skip


def _edit_tensor(tensors: dict[str, np.ndarray], rng: random.Random) -> None:
    name = rng.choice(sorted(tensors))
    values = tensors[name]
    edits = [
        lambda: values.astype(rng.choice(["f4", "i8", "?", "u1", "f2"])),
        lambda: values * rng.choice([0.0, -1.0, 1e150, 1e-300, np.nan, np.inf]),
        lambda: values[: max(0, len(values) - 1)] if values.ndim else values[None],
        lambda: values[..., None],
        lambda: np.zeros((0, *values.shape[1:])),
        lambda: np.broadcast_to(values, (2, *values.shape)),
    ]
    with np.errstate(all="ignore"):
        tensors[name] = np.asarray(rng.choice(edits)())
    if rng.random() < 0.1:
        tensors[rng.choice(["x", "classes_", "coef_"])] = tensors.pop(name)


def _use(found: Any) -> None:
    if isinstance(found, pro2.SourceMoments):
        assert np.isfinite((found + found).covariance()).all() or np.abs(found.mean).max() > 1e100
        return
    X = np.random.default_rng(0).standard_normal((4, found.n_features_in_))
    if hasattr(found, "report_"):
        assert str(found.report_)
    if hasattr(found, "labels_"):
        assert found.predict(X).shape == (4, len(found.labels_))
    elif hasattr(found, "predict"):
        which = {"target": found.targets_[0]} if hasattr(found, "targets_") else {}
        assert set(found.predict(X, **which).tolist()) <= set(found.classes_.tolist())
    if hasattr(found, "transform"):
        assert found.transform(X).shape[0] == 4
