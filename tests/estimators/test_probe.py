"""The probe alone: solved or said so, weights that are honoured, and what a prefix of the features means for it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight

from pro2 import Probe
from pro2.estimators import probe as probe_module


def make_rows(n: int = 80, p: int = 5, K: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return rng.normal(size=(n, p)) + 1.5 * rng.normal(size=(K, p))[y], y


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 0.5}])
def test_it_is_scikit_learns_problem(K, class_weight):
    X, y = make_rows(K=K)
    keep = (y > 0) | (np.arange(len(y)) < 30)  # classes that are not equally common
    X, y = X[keep], y[keep]
    w = np.random.default_rng(1).uniform(0.1, 2.0, len(y))
    if class_weight is not None and K > 2:
        class_weight = class_weight if isinstance(class_weight, str) else {**class_weight, 2: 1.0, 3: 1.0}
    ours = Probe(l2=0.05, n_features=5, class_weight=class_weight).fit(X, y, w)
    total = w.copy() if class_weight is None else w * compute_sample_weight(class_weight, y)
    if class_weight == "balanced":  # by weight
        total = w / np.bincount(y, w)[y]
    theirs = LogisticRegression(C=1 / (0.05 * total.sum()), tol=1e-10, max_iter=5000).fit(X, y, total)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert ours.kkt_ <= 1e-9


def test_what_is_not_solved_is_said(monkeypatch):
    X, y = make_rows()

    solve = probe_module.fit_path
    monkeypatch.setattr(probe_module, "fit_path", lambda *args, **options: solve(*args, **options, max_iter=1))
    with pytest.warns(ConvergenceWarning, match=r"did not converge: relative gradient .* at l2=1e-06"):
        Probe(l2=1e-6, n_features=5).fit(X, y)


@pytest.mark.parametrize("scale", [1 / 16, 16.0])
@pytest.mark.parametrize("K", [2, 3])
def test_scaling_all_weights_changes_nothing(K, scale):
    X, y = make_rows(18, K=K)
    a, b = Probe().fit(X, y), Probe().fit(X, y, np.full(18, scale))
    assert (a.n_features_, a.l2_) == (b.n_features_, pytest.approx(b.l2_))
    np.testing.assert_allclose(a.scores_, b.scores_, atol=1e-7)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"l2": 0.1, "n_features": 3}, {"class_weight": "balanced"}])
def test_weights_are_repetitions_also_in_the_choice(options):
    X, y = make_rows(20)
    w = np.random.default_rng(0).integers(0, 3, 20)
    w[:4] = 1
    at = np.repeat(np.arange(20), w)
    a, b = Probe(**options).fit(X, y, w.astype(float)), Probe(**options).fit(X[at], y[at])
    assert a.n_features_ == b.n_features_
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fit": {"X_val": np.ones((2, 5))}}, "give both or neither"),
        ({"fit": {"sample_weight": np.ones(3)}}, "sample_weight has shape"),
        ({"fit": {"sample_weight": -np.ones(80)}}, "sample_weight must be"),
        ({"fit": {"sample_weight": ["a"] * 80}}, "sample_weight cannot be used"),
        ({"class_weight": {0: -1, 1: 1}}, "class_weight must be"),
        ({"class_weight": {0: np.nan, 1: 1}}, "class_weight must be"),
        ({"fit": {"prior_mean": np.nan * np.ones(5)}}, "prior_mean must be"),
        ({"fit": {"prior_mean": np.ones((2, 5))}}, "prior_mean must be"),
        ({"fit": {"prior_mean": [[1.0], [1.0, 2.0]]}}, "prior_mean must be"),
    ],
)
def test_mistakes_are_explained(change, message):
    extra = change.pop("fit", {})
    with pytest.raises((ValueError, TypeError), match=message):
        Probe(**change).fit(*make_rows(), **extra)
