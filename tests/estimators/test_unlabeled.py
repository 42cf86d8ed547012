"""Unlabelled rows: the graph and its walk, the affine map that follows the smoothed scores, and what they add."""

from __future__ import annotations

import numpy as np
import pytest

from pro2 import PriorFamily, ProjectAndProbe
from pro2.estimators import unlabeled
from pro2.estimators.unlabeled import PENALTIES, distilled, graph_rows, random_walk, smoothed

K, D = 6, 30


def clusters(n, centre, rng):
    y = np.arange(n) % K
    return centre[y] + rng.normal(size=(n, D)), y


@pytest.fixture(scope="module")
def problem():
    """Six classes that lie elsewhere on the target, where they are clusters, too."""
    rng = np.random.default_rng(0)
    centre = 0.5 * rng.normal(size=(K, D))
    model = ProjectAndProbe().fit(*clusters(300, centre, rng))
    return model, *clusters(400, centre + 0.4 * rng.normal(size=(K, D)), rng)


def test_smoothing_is_the_resolvent_of_a_random_walk():
    rng = np.random.default_rng(1)
    walk, values = random_walk(rng.normal(size=(30, 5)), 4), rng.normal(size=(30, 2))
    np.testing.assert_allclose(walk.sum(axis=1), 1.0)
    stationary = np.linalg.solve(np.eye(30) - 0.5 * walk.toarray(), 0.5 * values)
    np.testing.assert_allclose(smoothed(walk, values, 0.5), stationary, atol=1e-5)
    np.testing.assert_array_equal(smoothed(walk, values, 0.0), values)
    assert random_walk(np.ones((1, 3)), 10).toarray().tolist() == [[1.0]]


@pytest.mark.parametrize("n", [6, 60])
def test_the_affine_map_is_a_ridge_regression_towards_the_head(problem, n):
    """With the penalty of least generalised cross-validation score, found here from the hat matrix itself."""
    model, X, _ = problem
    (prior, *_), rng = model.priors_, np.random.default_rng(n)
    scores, head = rng.normal(size=(n, 2)), (rng.normal(size=(2, D)), rng.normal(size=2))
    A = np.hstack([prior.rows(X[:n]), np.ones((n, 1))])
    R = scores - X[:n] @ head[0].T - head[1]
    found = []
    for p in PENALTIES * np.trace(A @ A.T) / n:
        hat = A @ np.linalg.solve(A.T @ A + p * np.eye(D + 1), A.T)
        found.append((np.sum((R - hat @ R) ** 2) / np.trace(np.eye(n) - hat) ** 2, hat @ R))
    coef, intercept = distilled(prior, X[:n], scores, head)
    expected = X[:n] @ head[0].T + head[1] + min(found, key=lambda each: each[0])[1]
    np.testing.assert_allclose(X[:n] @ coef.T + intercept, expected, atol=1e-8)


def test_without_smoothing_the_answers_are_those_of_the_map(problem):
    _, X, y = problem
    model = ProjectAndProbe(priors=PriorFamily(smoothing=(0.0,))).fit(X[:100], y[:100])
    adapted = model.adapt(X[100:110], y[100:110], X_unlabeled=X[110:])
    np.testing.assert_allclose(adapted.transductive_proba_, adapted.predict_proba(X[110:]), atol=1e-9)


def test_the_order_of_the_pool_changes_nothing(problem):
    model, X, y = problem
    order = np.random.default_rng(2).permutation(len(X) - 8)
    one = model.adapt(X[:8], y[:8], X_unlabeled=X[8:])
    other = model.adapt(X[:8], y[:8], X_unlabeled=X[8:][order])
    np.testing.assert_allclose(other.coef_, one.coef_, atol=1e-6)
    np.testing.assert_allclose(
        other.transductive_proba_, one.transductive_proba_[order], atol=1e-6
    )  # of float32 distances


def test_neighbours_that_share_a_label_help(problem):
    model, X, y = problem
    alone, informed, answers = [], [], []
    for start in range(0, 60, 12):
        few, rest = slice(start, start + 12), np.r_[0:start, start + 12 : len(X)]
        alone.append(model.adapt(X[few], y[few]).score(X[rest], y[rest]))
        adapted = model.adapt(X[few], y[few], X_unlabeled=X[rest])
        informed.append(adapted.score(X[rest], y[rest]))
        answers.append(np.mean(adapted.transductive_proba_.argmax(axis=1) == y[rest]))
    assert np.mean(answers) > np.mean(alone) + 0.02
    assert np.mean(informed) > np.mean(alone) + 0.01


def test_of_a_large_pool_some_rows_spread_over_it_are_in_the_graph(problem, monkeypatch):
    model, X, y = problem
    monkeypatch.setattr(unlabeled, "MOST_ROWS", 50)
    at = graph_rows(len(X) - 8)
    assert (len(at), at[0], at[-1]) == (50, 0, len(X) - 9)
    some = model.adapt(X[:8], y[:8], X_unlabeled=X[8:])
    only = model.adapt(X[:8], y[:8], X_unlabeled=X[8:][at])
    np.testing.assert_allclose(some.coef_, only.coef_, atol=1e-10)
    rest = np.setdiff1d(np.arange(len(X) - 8), at)
    np.testing.assert_allclose(some.transductive_proba_[rest], some.predict_proba(X[8:][rest]))
    np.testing.assert_allclose(some.transductive_proba_[at], only.transductive_proba_, atol=1e-10)


def test_without_any_label_the_source_head_is_smoothed(problem):
    model, X, y = problem
    adapted = model.adapt_unlabeled(X)
    assert adapted.score(X, y) > model.score(X, y) - 0.02
    np.testing.assert_allclose(model.adapt_unlabeled(X[::-1]).coef_, adapted.coef_, atol=1e-6)


def test_every_scale_has_its_members():
    """Of two scales one was once dropped: 30 points lost where features have different units."""
    rng = np.random.default_rng(0)
    unit, y = 10.0 ** np.repeat([0.0, 0.5], [30, 6]), np.arange(400) % 2
    X = (rng.normal(size=(400, 36)) + 0.5 * y[:, None]) * unit
    model = ProjectAndProbe(priors=PriorFamily(smoothing=(0.0,), tolerance=1e9)).fit(X[:200], y[:200])
    assert len(model.priors_) == 2
    alone, informed = model.adapt(X[200:208], y[200:208]), model.adapt(X[200:208], y[200:208], X_unlabeled=X[208:])
    np.testing.assert_allclose(informed.coef_, alone.coef_, atol=1e-9)
    np.testing.assert_allclose(informed.intercept_, alone.intercept_, atol=1e-9)


def test_smoothing_starts_behind_and_labels_decide(problem):
    """One label says nothing about neighbours; many of clusters do."""
    model, X, y = problem

    def smoothed_share(n):
        members = model.adapt(X[:n], y[:n], X_unlabeled=X[n:]).report_.members
        return sum(member["weight"] for member in members if member["smoothing"])

    assert smoothed_share(1) < 0.5 < smoothed_share(60)
