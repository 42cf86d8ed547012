"""Calls that no one should make: every estimator with inputs of any type, scale, shape and content.

The promise that is tried: a call gives finite probabilities that sum to one, or ValueError or TypeError that names the
argument. Calls are seeded: a finding names its number, and `outcome(subject, number)` makes the same call again.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pro2
from pro2.lab.baselines import create_baseline, list_baselines

# ---- inputs: rows, labels and weights, any of them spoiled

Rng = np.random.Generator


class Rows(NamedTuple):
    """What a caller passes: rows, labels, weights; any of them spoiled."""

    X: Any
    y: Any
    weight: Any


def rows(rng: Rng, n_classes: int, width: int, spoiled: int) -> tuple[Rows, list[str]]:
    """Some labelled rows with `spoiled` things wrong or odd about them, and what these are."""
    n = int(rng.integers(max(4, n_classes), 40))
    y = np.arange(n) % n_classes
    parts: dict[str, Any] = {"X": rng.standard_normal((n, width)) + 2 * y[:, None], "y": y, "weight": None}
    told = []
    for _ in range(spoiled):
        part = str(rng.choice(["X", "X", "X", "y", "weight"]))
        name = str(rng.choice(list(SPOILERS[part])))
        told.append(f"{part} {name}")
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                parts[part] = SPOILERS[part][name](parts[part] if part != "weight" else np.ones(n), rng)
            except Exception:
                told.pop()  # not possible after what was done before
    return Rows(**parts), told


def _with_cell(value: float) -> Callable[[Any, Rng], Any]:
    def spoil(X: Any, rng: Rng) -> Any:
        X = np.array(X)
        X[tuple(int(rng.integers(0, size)) for size in X.shape)] = value
        return X

    return spoil


def _frame(X: Any, rng: Rng) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=[f"f{i}" for i in range(np.shape(X)[1])])


def _torch(X: Any, rng: Rng) -> Any:
    import torch

    return torch.asarray(X)


def _sparse(X: Any, rng: Rng) -> Any:
    import scipy.sparse

    return scipy.sparse.csr_matrix(X)


def _constant_column(X: Any, rng: Rng) -> Any:
    X = np.array(X)
    X[:, 0] = 3
    return X


Spoiler = Callable[[Any, Rng], Any]
SPOILERS: dict[str, dict[str, Spoiler]] = {
    "X": {
        "float32": lambda X, rng: X.astype("f4"),
        "float16": lambda X, rng: X.astype("f2"),
        "integers": lambda X, rng: X.astype("i8"),
        "booleans": lambda X, rng: X > 0,
        "objects": lambda X, rng: X.astype(object),
        "complex": lambda X, rng: X.astype(complex),
        "text": lambda X, rng: X.astype(str),
        "float32 * 1e19": lambda X, rng: X.astype("f4") * np.float32(1e19),
        "float32 * 1e-25": lambda X, rng: X.astype("f4") * np.float32(1e-25),
        "* 1e155": lambda X, rng: X * 1e155,
        "* 1e300": lambda X, rng: X * 1e300,
        "* 1e-160": lambda X, rng: X * 1e-160,
        "* 1e-300": lambda X, rng: X * 1e-300,
        "float32 + 1e4": lambda X, rng: (X + 1e4).astype("f4"),
        "+ 1e8": lambda X, rng: X + 1e8,
        "+ 1e15": lambda X, rng: X + 1e15,
        "columns of any scale": lambda X, rng: X * 10.0 ** rng.uniform(-30, 30, X.shape[1]),
        "cell of 1e155": _with_cell(1e155),
        "cell of 1e160": _with_cell(1e160),
        "cell of 1e308": _with_cell(1e308),
        "cell of 1e38 in float32": lambda X, rng: _with_cell(1e38)(X.astype("f4"), rng),
        "NaN": _with_cell(np.nan),
        "infinity": _with_cell(np.inf),
        "equal rows": lambda X, rng: np.repeat(X[:1], len(X), axis=0),
        "rows that repeat": lambda X, rng: np.repeat(X[: max(1, len(X) // 2)], 2, axis=0)[: len(X)],
        "zeros": lambda X, rng: X * 0,
        "constant column": _constant_column,
        "one row": lambda X, rng: X[:1],
        "no row": lambda X, rng: X[:0],
        "no column": lambda X, rng: X[:, :0],
        "one column": lambda X, rng: X[:, :1],
        "one axis": lambda X, rng: X[:, 0],
        "three axes": lambda X, rng: X[None],
        "list": lambda X, rng: X.tolist(),
        "ragged list": lambda X, rng: [[1.0], *X.tolist()[1:]],
        "frame": _frame,
        "tensor": _torch,
        "sparse": _sparse,
        "None": lambda X, rng: None,
        "big endian": lambda X, rng: X.astype(">f8"),
        "column-major": lambda X, rng: np.asfortranarray(X),
        "read-only": lambda X, rng: np.broadcast_to(X[:1], X.shape),
    },
    "y": {
        "text": lambda y, rng: np.array(["a", "b", "c", "d"])[y],
        "booleans": lambda y, rng: y > 0,
        "floats": lambda y, rng: y.astype(float),
        "fractions": lambda y, rng: y + 0.5 * rng.random(len(y)),
        "mixed": lambda y, rng: np.array([each if each else "a" for each in y.tolist()], dtype=object),
        "None among them": lambda y, rng: np.array([each if each else None for each in y.tolist()], dtype=object),
        "NaN among them": lambda y, rng: np.where(y == 0, np.nan, y),
        "one class": lambda y, rng: y * 0,
        "a class for each row": lambda y, rng: np.arange(len(y)),
        "list": lambda y, rng: y.tolist(),
        "column": lambda y, rng: y[:, None],
        "two columns": lambda y, rng: np.stack([y, y], axis=1),
        "too short": lambda y, rng: y[:-1],
        "None": lambda y, rng: None,
        "bytes": lambda y, rng: y.astype("S1"),
        "dates": lambda y, rng: y.astype("M8[D]"),
        "huge numbers": lambda y, rng: y * 2**62,
        "tensor": _torch,
        "random": lambda y, rng: rng.permutation(y),
    },
    "weight": {
        "ones": lambda w, rng: w,
        "random": lambda w, rng: rng.random(len(w)),
        "zeros": lambda w, rng: 0 * w,
        "some zeros": lambda w, rng: rng.integers(0, 2, len(w)) * w,
        "one positive": lambda w, rng: (np.arange(len(w)) == 0) * w,
        "negative": lambda w, rng: -w,
        "NaN": _with_cell(np.nan),
        "infinity": _with_cell(np.inf),
        "1e20 once": _with_cell(1e20),
        "1e300": lambda w, rng: w * 1e300,
        "1e-300": lambda w, rng: w * 1e-300,
        "too short": lambda w, rng: w[:-1],
        "text": lambda w, rng: w.astype(str),
        "list": lambda w, rng: w.tolist(),
        "two axes": lambda w, rng: np.stack([w, w]),
        "a number": lambda w, rng: 1.0,
        "integers": lambda w, rng: w.astype("i4"),
    },
}
PARAMS: dict[str, list[Any]] = {
    "l2": ["auto", "auto", 1.0, 1e-20, 1e20, 0.0, -1.0, np.nan, np.inf, "x", None],
    "n_features": ["auto", "auto", 1, 2, 0, 99, -1, 1.5, "x"],
    "n_components": [None, None, 1, 2, 0, 99, 1.5],
    "ridge": [0.3, 0.3, 0.0, 1e-12, 1e12, -1.0, np.nan, np.inf, "x"],
    "scale": ["standard", "standard", None, "global", "unit", "x"],
    "solver": ["krylov", "krylov", "krylov", "logistic", "x"],
}


def params(rng: Rng, *names: str) -> dict[str, Any]:
    """Mostly the defaults; one argument may be anything."""
    if rng.random() < 0.7:
        return {}
    name = str(rng.choice(names))
    return {name: PARAMS[name][int(rng.integers(0, len(PARAMS[name])))]}


# ---- calls

ARGUMENTS = re.compile(
    r"\b(X|y|sample_weight|X_target|y_target|X_val|y_val|X_unlabeled|X_pool|X_labeled|sample_domain|target|classes|"
    r"l2|n_features|n_components|ridge|scale|solver|prior_mean|n|adapted|ids)\b"
)
# Each subject makes one call, or a few that belong together, and returns what must be probabilities or finite.
Call = Callable[[Rng, Rows, Rows], list[tuple[str, Any]]]


def _source_model(rng: Rng, source: Rows) -> Any:
    """A model of an honest source: what a target is adapted with."""
    y = np.arange(60) % 3 if rng.random() < 0.4 else np.arange(60) % 2
    shape = () if isinstance(source.X, list) else np.shape(source.X)  # a list may be ragged
    width = shape[1] if len(shape) == 2 and shape[1] else 3
    X = np.random.default_rng(0).standard_normal((60, width)) + 2 * y[:, None]
    return pro2.ProjectAndProbe(**params(rng, "l2", "n_features", "scale", "n_components")).fit(X, y)


def _fit_model(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    options = params(rng, "l2", "n_features", "ridge", "scale", "solver", "n_components")
    model = pro2.ProjectAndProbe(**options).fit(source.X, source.y, sample_weight=source.weight)
    return [("probabilities", model.predict_proba(source.X))]


def _fit_both(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    n = len(source.y) if source.y is not None else 4
    domain = np.where(np.arange(n) < n // 2, 1, -1)
    model = pro2.ProjectAndProbe().fit(source.X, source.y, sample_domain=domain, sample_weight=source.weight)
    return [("probabilities", model.predict_proba(source.X))]


def _adapt(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    model = _source_model(rng, target)
    extra: dict[str, Any] = {}
    if rng.random() < 0.3:
        extra = {"X_unlabeled": source.X} if rng.random() < 0.5 else {"X_val": source.X, "y_val": source.y}
    adapted = model.adapt(target.X, target.y, sample_weight=target.weight, **extra)
    assert str(adapted.report_)
    return [("probabilities", adapted.predict_proba(target.X)), ("coef_", adapted.coef_)]


def _adapt_unlabeled(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    adapted = _source_model(rng, target).adapt_unlabeled(target.X)
    return [("probabilities", adapted.predict_proba(target.X))]


def _projection(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    projection = pro2.Projection(**params(rng, "ridge", "scale", "solver", "n_components"))
    features = projection.fit(source.X, source.y, sample_weight=source.weight).transform(source.X)
    return [("features", features), ("components_", projection.components_)]


def _partial_fit(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    projection = pro2.Projection()
    for part in (source, target):
        projection.partial_fit(part.X, part.y, sample_weight=part.weight)
    return [("features", projection.transform(source.X))]


def _probe(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    prior = [None, None, None, np.nan, np.inf, 1e200, 1.0, "x"][int(rng.integers(0, 8))]
    mean = None if prior is None else np.full(3, prior)
    probe = pro2.Probe(**params(rng, "l2", "n_features")).fit(source.X, source.y, source.weight, prior_mean=mean)
    return [("probabilities", probe.predict_proba(source.X))]


def _bank(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    ids = None if source.X is None or not np.shape(source.y) else np.arange(len(source.y)) % 2
    model = _source_model(rng, source).set_params(l2="auto", n_features="auto")
    bank = pro2.ProbeBank(model).fit(source.X, source.y, target=ids)
    return [("probabilities", bank.predict_proba(source.X, target=ids))]


def _moments(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    moments = pro2.SourceMoments.from_arrays(source.X, source.y, source.weight)
    moments = moments + moments if rng.random() < 0.5 else moments
    found = [(name, getattr(moments, name)) for name in ("weight", "mean", "scatter")]
    return [*found, ("covariance", moments.covariance())]


def _fit_moments(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    moments = pro2.SourceMoments.from_arrays(source.X, source.y, source.weight)
    projection = pro2.Projection(**params(rng, "ridge", "scale", "n_components")).fit_moments(moments)
    return [("components_", projection.components_)] if len(moments.classes) > 1 else []


def _suggest(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    model = _source_model(rng, target)
    n = [1, 2, 2, 0, -1, 999, 1.5, "x"][int(rng.integers(0, 8))]
    labeled = {"X_labeled": source.X} if rng.random() < 0.3 else {}
    chosen = pro2.suggest_labels(model, target.X, n, **labeled)
    assert len(set(chosen.tolist())) == n
    return [("row numbers", chosen)]


def _predict(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
    return [("probabilities", _source_model(rng, target).predict_proba(target.X))]


def _baseline(name: str) -> Call:
    def call(rng: Rng, source: Rows, target: Rows) -> list[tuple[str, Any]]:
        baseline = create_baseline(name).fit(source.X, source.y)
        adapted = baseline.adapt(target.X, target.y)
        return [("probabilities", adapted.predict_proba(target.X))]

    return call


SUBJECTS: dict[str, Call] = {
    "ProjectAndProbe.fit": _fit_model,
    "ProjectAndProbe.fit with domains": _fit_both,
    "ProjectAndProbe.adapt": _adapt,
    "ProjectAndProbe.adapt without labels": _adapt_unlabeled,
    "ProjectAndProbe.predict_proba": _predict,
    "Projection.fit": _projection,
    "Projection.partial_fit": _partial_fit,
    "Projection.fit_moments": _fit_moments,
    "Probe.fit": _probe,
    "ProbeBank.fit": _bank,
    "SourceMoments": _moments,
    "suggest_labels": _suggest,
    **{f"baseline {name}": _baseline(name) for name in list_baselines()},
}


def outcome(subject: str, number: int, seed: int = 0) -> tuple[str, str]:
    """What one call came to ("answered", "refused" or "finding"), and what is to say about it."""
    rng = np.random.default_rng([seed, number])
    n_classes, width = int(rng.choice([2, 2, 3, 4])), int(rng.choice([3, 3, 1, 8]))
    source, told = rows(rng, n_classes, width, int(rng.choice([0, 1, 1, 2])))
    target, also = rows(rng, min(n_classes, 2), width, int(rng.choice([0, 1, 1, 2])))
    what = "; ".join([*(f"source {each}" for each in told), *(f"target {each}" for each in also)]) or "nothing odd"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)  # said, and that is enough: not converged, names of features
            results = SUBJECTS[subject](rng, source, target)
    except (ValueError, TypeError) as error:
        if ARGUMENTS.search(str(error)):
            return "refused", what
        return "finding", f"{what}: no argument is named in {type(error).__name__}: {_first_line(error)}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rsplit('/', 1)[-1]}:{place.lineno}"
        return "finding", f"{what}: {type(error).__name__} at {where}: {_first_line(error)}"
    wrong = [name for name, values in results if not _is_right(name, values)]
    return ("finding", f"{what}: {wrong} are not finite or do not sum to one") if wrong else ("answered", what)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:150]


def _is_right(name: str, values: Any) -> bool:
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        return False
    return name != "probabilities" or bool(np.allclose(values.sum(axis=1), 1.0, atol=1e-4) and values.min() >= 0)


def campaign(subject: str, n: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """How many calls were answered and refused, and the findings among them."""
    counts: Counter[str] = Counter()
    findings = []
    for number in range(n):
        kind, what = outcome(subject, number, seed)
        counts[kind] += 1
        if kind == "finding":
            findings.append(f"{subject}, call {number}: {what}")
    return counts, findings


# ---- tests


@pytest.mark.fuzz
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_call_is_answered_or_refused_by_argument(subject: str, fuzz_scale: int) -> None:
    counts, findings = campaign(subject, n=(10 if subject.startswith("baseline") else 70) * fuzz_scale)
    assert counts["answered"] > 0
    assert not findings, f"{len(findings)} of {counts.total()} calls:\n" + "\n".join(findings[:8])


# What only the long campaign found.
ONCE_BROKEN = [
    ("ProjectAndProbe.adapt", 1624, 0),
    ("Projection.partial_fit", 1624, 0),
    ("Projection.fit_moments", 1069, 0),
    ("Probe.fit", 1219, 0),
    ("Probe.fit", 1598, 0),
    ("baseline ridge", 21, 0),
    ("ProjectAndProbe.fit", 109, 0),
    ("ProjectAndProbe.fit with domains", 267, 0),
    ("Projection.fit_moments", 245, 0),
]


@pytest.mark.parametrize(("subject", "number", "seed"), ONCE_BROKEN)
def test_what_was_broken_stays_mended(subject: str, number: int, seed: int) -> None:
    assert outcome(subject, number, seed)[0] == "answered"
