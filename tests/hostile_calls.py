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
from typing import Any

import numpy as np

import pro2
from pro2.lab.baselines import create_baseline, list_baselines
from tests.hostile_inputs import Rng, Rows, params, rows

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
        baseline = create_baseline(name).fit(source.X, source.y, sample_weight=source.weight)
        adapted = baseline.adapt(target.X, target.y, sample_weight=target.weight)
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


# The campaign


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
