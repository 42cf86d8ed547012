"""The averaged head on targets of any kind: few rows, many rows, many classes, missing classes, and every library."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.linalg import average
from pro2.linalg.moments import host
from tests.linalg.backends import BACKENDS, to
from tests.linalg.source import make_average, make_prior, make_source, make_target


def answers(head, X):
    f = X @ head.coef.T + head.intercept
    return (f[:, 0] > 0).astype(int) if f.shape[1] == 1 else f.argmax(axis=1)


def test_a_class_without_target_rows_keeps_a_defined_score():
    prior, (Z, t) = make_prior(*make_source(3)), make_target(3)
    head = make_average(prior, Z[t < 2], t[t < 2])
    assert head.coef.shape == (3, 12)
    assert np.all(np.isfinite(head.coef))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_one_labelled_row_is_enough(n_classes):
    prior, (Z, t) = make_prior(*make_source(n_classes)), make_target(n_classes)
    head = make_average(prior, Z[:1], t[:1])
    assert np.all(np.isfinite(head.coef))
    assert answers(head, Z[:1]) == t[0]


def test_many_rows_are_weighed_on_some_and_fitted_on_all():
    X, y = make_source(N=600)
    prior = make_prior(X, y)
    head = make_average(prior, X, y)
    assert len(head.members) == average.KEEP
    assert head.loo_scores.shape == (600, 1)
    assert np.mean(answers(head, X) == y) > 0.9


@pytest.mark.parametrize("what", ["rows", "classes"])
def test_screening_agrees_with_no_screening(monkeypatch, what):
    n_classes = 3 if what == "rows" else 30
    prior = make_prior(*make_source(n_classes, N=3000))
    rng = np.random.default_rng(1)
    Z, t = make_target(n_classes, M=330 if what == "rows" else 90, shift=0.2)
    Z = Z + rng.normal(size=Z.shape)
    screened = make_average(prior, Z, t)
    monkeypatch.setattr(average, "SCREEN_ROWS", 10**6)
    monkeypatch.setattr(average, "MANY_CLASSES", 10**6)
    whole = make_average(prior, Z, t)
    assert len(screened.members) < len(whole.members)
    X, y = make_source(n_classes, N=1500)
    X = X + 0.2 + rng.normal(size=X.shape)
    right = [np.mean(answers(head, X) == y) for head in (screened, whole)]
    assert abs(right[0] - right[1]) < 0.02
    assert np.mean(answers(screened, X) == answers(whole, X)) > 0.9


def test_order_of_rows_does_not_matter_where_they_are_screened():
    X, y = make_source(N=600)
    prior, order = make_prior(X, y), np.random.default_rng(0).permutation(600)
    a, b = make_average(prior, X, y), make_average(prior, X[order], y[order])
    np.testing.assert_allclose(a.coef, b.coef, atol=1e-4 * np.abs(a.coef).max())


def test_names_of_classes_do_not_matter_where_some_of_them_stand_for_all():
    n_classes = average.MANY_CLASSES + 6
    (X, y), (Z, t) = make_source(n_classes, N=3000), make_target(n_classes, M=90, shift=0.2)
    name = np.random.default_rng(0).permutation(n_classes)  # class k is called name[k]
    a, b = make_average(make_prior(X, y), Z, t), make_average(make_prior(X, name[y]), Z, name[t])
    assert b.members == a.members
    np.testing.assert_allclose(b.coef[name], a.coef, atol=1e-4 * np.abs(a.coef).max())


def test_the_source_wins_where_it_holds_and_yields_where_it_does_not():
    """SHOG-like: labels follow the source head, or a direction orthogonal to it."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(4000, 20)), np.arange(4000) % 2
    X[:, 0] += 2.0 * (2 * y - 1)
    prior = make_prior(X, y)
    test = rng.normal(size=(2000, 20))
    for axis, shots, floor in ((0, 2, 0.9), (1, 64, 0.85)):
        t = np.arange(2000) % 2
        Z = test.copy()
        Z[:, axis] += 2.0 * (2 * t - 1)
        head = make_average(prior, Z[: 2 * shots], t[: 2 * shots])
        assert np.mean(answers(head, Z[2 * shots :]) == t[2 * shots :]) > floor


def test_a_feature_the_target_contradicts_is_damped():
    """The source's best feature is noise of ten times its spread on the target: what is left must decide."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(2000, 8)), np.arange(2000) % 2
    X[:, 0] += 3.0 * (2 * y - 1)
    X[:, 1] += 1.5 * (2 * y - 1)
    Z, t = rng.normal(size=(1000, 8)), np.arange(1000) % 2
    Z[:, 0] *= 40.0
    Z[:, 1] += 1.5 * (2 * t - 1)
    damped = make_average(make_prior(X, y), Z[:8], t[:8], others=Z[8:400])
    assert np.mean(answers(damped, Z[400:]) == t[400:]) > 0.85


def test_unlabelled_rows_move_nothing_where_they_look_like_the_source():
    X, y = make_source(N=2000)
    prior, (Z, t) = make_prior(X, y), make_target(shift=0.0)
    with_, without = make_average(prior, Z, t, others=X), make_average(prior, Z, t)
    np.testing.assert_allclose(with_.coef, without.coef, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_agree(backend, n_classes):
    X, y = make_source(n_classes)
    Z, t = make_target(n_classes)
    expected = make_average(make_prior(X, y), Z, t)
    X, y, Z, t = to(backend, X, y, Z, t)
    found = make_average(make_prior(X, y), Z, t)
    np.testing.assert_allclose(host(found.coef), expected.coef, atol=1e-5)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
