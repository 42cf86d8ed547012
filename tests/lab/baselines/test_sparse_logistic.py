"""L1 logistic regression: optimality, sparsity, batches, and scikit-learn's solution."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pro2.lab.baselines.sparse_logistic import fit_sparse_logistic
from pro2.linalg.moments import host


def problem(n_classes=2, n=80, p=15, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.standard_normal((n, p)) + 1.5 * np.eye(n_classes, p)[y], y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("l1", [0.01, 0.1])
def test_agrees_with_scikit_learn(n_classes, l1):
    Z, y = problem(n_classes)
    fit = fit_sparse_logistic(Z, y, l1, n_classes=n_classes, tol=1e-9, max_iter=20_000)
    theirs = LogisticRegression(solver="saga", l1_ratio=1.0, C=1 / (l1 * len(y)), tol=1e-10, max_iter=100_000).fit(Z, y)
    ours = np.atleast_2d(fit.coef)
    assert bool(fit.converged)
    assert np.allclose(ours, theirs.coef_, atol=1e-5)
    # softmax intercepts are fixed up to a common shift
    shift = np.atleast_1d(fit.intercept) - theirs.intercept_
    assert np.ptp(shift) < 1e-5 if n_classes > 2 else abs(shift[0]) < 1e-5


def test_gradient_is_within_the_penalty_and_tight_where_a_weight_is():
    Z, y = problem()
    fit = fit_sparse_logistic(Z, y, 0.05, tol=1e-9)
    p = 1 / (1 + np.exp(-(Z @ fit.coef + fit.intercept)))
    gradient = Z.T @ (p - y) / len(y)
    assert np.abs(gradient).max() <= 0.05 + 1e-8
    on = fit.coef != 0
    assert 0 < on.sum() < len(on)
    assert np.allclose(gradient[on], -0.05 * np.sign(fit.coef[on]), atol=1e-8)
    assert np.mean(p) == pytest.approx(np.mean(y), abs=1e-8)


def test_strong_penalty_leaves_the_intercept_alone():
    Z = problem()[0]
    fit = fit_sparse_logistic(Z, np.where(np.arange(80) < 20, 1, 0), 10.0)
    assert np.all(fit.coef == 0)
    assert fit.intercept == pytest.approx(np.log(20 / 60), abs=1e-5)


def test_batch_equals_single_fits():
    parts = [problem(seed=s) for s in range(3)]
    Z, y = np.stack([p[0] for p in parts]), np.stack([p[1] for p in parts])
    fit = fit_sparse_logistic(Z, y, 0.03, tol=1e-9)
    for i, (a, b) in enumerate(parts):
        one = fit_sparse_logistic(a, b, 0.03, tol=1e-9)
        assert np.allclose(fit.coef[i], one.coef, atol=1e-6)
        assert fit.intercept[i] == pytest.approx(one.intercept, abs=1e-6)


def test_weights_are_repetitions():
    Z, y = problem(3)
    w = np.arange(80) % 3
    a = fit_sparse_logistic(Z, y, 0.05, n_classes=3, sample_weight=w, tol=1e-9)
    b = fit_sparse_logistic(np.repeat(Z, w, axis=0), np.repeat(y, w), 0.05, n_classes=3, tol=1e-9)
    assert np.allclose(a.coef, b.coef, atol=1e-6)


@pytest.mark.parametrize("xp", [array_api_strict, torch])
def test_backends_agree(xp):
    Z, y = problem(3)
    got = fit_sparse_logistic(xp.asarray(Z), xp.asarray(y), 0.05, n_classes=3)
    assert np.allclose(host(got.coef), fit_sparse_logistic(Z, y, 0.05, n_classes=3).coef, atol=1e-6)


def test_separable_rows_converge():
    fit = fit_sparse_logistic(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1, 0]), 0.01)
    assert bool(fit.converged)
    assert fit.coef[0] > 0 == fit.coef[1]


def test_a_penalty_must_be_positive():
    with pytest.raises(ValueError, match="l1 must be a positive finite number"):
        fit_sparse_logistic(*problem(), 0.0)
