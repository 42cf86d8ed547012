"""Whatever takes arrays computes where they live, and gives there what it gives for NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pro2
from pro2.lab.baselines.bases import alignment_rows
from pro2.linalg import adamw, basis
from pro2.linalg.arrays import to_numpy
from pro2.linalg.moments import Moments
from tests.linalg.backends import to


def moments(X: Any, y: Any) -> Moments:
    return Moments.from_arrays(X, y)


def centred(X: Any) -> Any:
    return X - X.mean(axis=0)


def adamw_rows(X: Any, y: Any, w: Any, m: Any) -> Any:
    return adamw.adamw_basis(centred(X), y, 3, np.random.default_rng(0), steps=5)[0]


TWO_CLASSES: dict[str, Callable[..., Any]] = {
    "moments": lambda X, y, w, m: (moments(X, y) + Moments.from_arrays(X, y, w)).covariance(),
    "krylov_basis": lambda X, y, w, m: basis.krylov_basis(moments(X, y), 6, 0.5),
    "krylov_basis, all": lambda X, y, w, m: basis.krylov_basis(moments(X, y), 8, 0.0).scores,
    "logistic_basis": lambda X, y, w, m: basis.logistic_basis(centred(X), y, 3, 0.5, sample_weight=w),
    "adamw_basis": adamw_rows,
    "alignment_rows": lambda X, y, w, m: alignment_rows(centred(X), to_numpy(y), 3, 1.0, seed=0, n_steps=5),
    "adamw_probe": lambda X, y, w, m: adamw.adamw_probe(X, y, 0.1, 0.01, np.random.default_rng(0), steps=5),
    "Probe, prior": lambda X, y, w, m: pro2.Probe(n_features=3, l2=0.1).fit(X, y, prior_mean=np.ones(8)).coef_,
}

ANY_CLASSES: dict[str, Callable[..., Any]] = {
    "adapt": lambda X, y, w, m: _adapted(pro2.ProjectAndProbe(), X, y),
    "adapt, fixed": lambda X, y, w, m: _adapted(pro2.ProjectAndProbe(n_features=3, l2=0.1), X, y),
    "adapt, unlabeled": lambda X, y, w, m: _adapted(pro2.ProjectAndProbe(), X, y, X_unlabeled=X[40:, :]),
    "no labels": lambda X, y, w, m: pro2.ProjectAndProbe().fit(X, y).adapt_unlabeled(X[:40, :]).coef_,
    "adapt, leave-one-out": lambda X, y, w, m: _adapted(pro2.ProjectAndProbe(n_features="loo", l2="loo"), X, y),
    "ProbeBank": lambda X, y, w, m: (
        pro2.ProbeBank(pro2.ProjectAndProbe().fit(X, y)).fit(X.reshape(6, 10, 8), y.reshape(6, 10)).coef_
    ),
    "Projection": lambda X, y, w, m: pro2.Projection(3, solver="logistic").fit(X, y).transform(X),
    "Probe": lambda X, y, w, m: pro2.Probe().fit(X, y, sample_weight=w).coef_,
    "Probe, class weight": lambda X, y, w, m: pro2.Probe(class_weight="balanced").fit(X, y).coef_,
}


def _adapted(model: Any, X: Any, y: Any, **options: Any) -> Any:
    adapted = model.fit(X, y).adapt(X[:10, :] + 0.5, y[:10], **options)
    return adapted.coef_, adapted.predict_proba(X)


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [array for part in value for array in _arrays(part)]
    return [value]


def _problem(n_classes: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(n_classes)
    y = np.arange(60) % n_classes
    X = rng.standard_normal((60, 8)) * np.logspace(0, -1, 8)
    X[:, :3] += rng.standard_normal((n_classes, 3))[y]
    return X, y, rng.uniform(0.5, 2.0, 60), 0.1 * rng.standard_normal(8)


CALLS = {**TWO_CLASSES, **ANY_CLASSES}
CASES = [*((name, 2) for name in CALLS), *((name, 3) for name in [*ANY_CLASSES, "krylov_basis", "moments"])]


@pytest.mark.parametrize("backend", ["torch", "torch-cuda"])
@pytest.mark.parametrize(("name", "n_classes"), CASES)
def test_results_stay_on_the_device_and_are_those_of_numpy(name: str, n_classes: int, backend: str) -> None:
    problem = _problem(n_classes)
    there = to(backend, *problem)
    expected, found = _arrays(CALLS[name](*problem)), _arrays(CALLS[name](*there))
    assert len(expected) == len(found)
    for ours, theirs in zip(expected, found):
        if hasattr(ours, "shape") and np.ndim(ours):
            assert theirs.device == there[0].device
        np.testing.assert_allclose(to_numpy(theirs) if hasattr(theirs, "shape") else theirs, ours, rtol=1e-4, atol=1e-6)
