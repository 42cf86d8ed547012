"""Laws of the row-space logistic mode and its leave-one-out."""

import numpy as np
import pytest
from scipy.optimize import minimize

from pro2.linalg import laplace
from pro2.linalg.laplace import laplace_mode, log_likelihood
from pro2.linalg.moments import host
from tests.linalg.backends import BACKENDS, to


def _problem(M=14, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(M, 30))
    y = np.arange(M) % n_classes
    offset = rng.normal(size=(M,) if n_classes == 2 else (M, n_classes))
    if n_classes > 2:
        offset -= offset.mean(axis=1, keepdims=True)
    return Z @ Z.T / 10 + 0.1, offset, y, np.ones(M)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_mode_is_stationary(n_classes):
    K, offset, y, c = _problem(15, n_classes)
    mode = laplace_mode(K, offset, y, c, n_classes)
    if n_classes == 2:
        slope, prior = y - 1 / (1 + np.exp(-mode.scores)), K
    else:
        P = np.exp(mode.scores - mode.scores.max(1, keepdims=True))
        slope, prior = np.eye(n_classes)[y] - P / P.sum(1, keepdims=True), K / 2
    np.testing.assert_allclose(mode.alpha, slope, atol=1e-5)
    np.testing.assert_allclose(mode.scores, offset + prior @ mode.alpha, atol=1e-10)


def test_mode_minimises_the_objective():
    K, offset, y, c = _problem(10)

    def objective(a):
        f = offset + K @ a
        return np.sum(np.logaddexp(0, f) - y * f) + 0.5 * a @ K @ a

    best = minimize(objective, np.zeros(10), method="BFGS", options={"gtol": 1e-9})
    mode = laplace_mode(K, offset, y, c, 2)
    assert objective(mode.alpha) <= best.fun + 1e-9


def test_two_classes_as_softmax_give_the_same_difference():
    K, offset, y, c = _problem(12)
    one = laplace_mode(K, offset, y, c, 2)
    soft = laplace._Softmax(np, laplace.Dense(K), np.stack([-offset / 2, offset / 2], axis=1), np.eye(2)[y], c[:, None])
    _, f = laplace._solve(soft, 60, 1e-9)
    np.testing.assert_allclose(f[:, 1] - f[:, 0], one.scores, atol=1e-6)
    left = soft.leave_out(f)
    np.testing.assert_allclose(left[:, 1] - left[:, 0], one.loo_scores, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_batch_equals_single_fits(n_classes):
    problems = [_problem(9, n_classes, seed) for seed in range(4)]
    K, offset = (np.stack([p[i] for p in problems]) for i in (0, 1))
    batch = laplace_mode(K, offset, problems[0][2], problems[0][3], n_classes)
    for i, p in enumerate(problems):
        single = laplace_mode(*p, n_classes)
        np.testing.assert_allclose(batch.scores[i], single.scores, atol=1e-6)
        np.testing.assert_allclose(batch.loo_scores[i], single.loo_scores, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_is_close_to_refitting(n_classes):
    K, offset, y, c = _problem(24, n_classes, seed=3)
    mode = laplace_mode(K, offset, y, c, n_classes)
    for i in range(24):
        keep = np.arange(24) != i
        part = laplace_mode(K[np.ix_(keep, keep)], offset[keep], y[keep], c[keep], n_classes)
        scale = 1.0 if n_classes == 2 else 0.5
        exact = offset[i] + scale * K[i, keep] @ part.alpha
        np.testing.assert_allclose(mode.loo_scores[i], exact, atol=0.2)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weight_two_is_a_row_twice(n_classes):
    K, offset, y, _ = _problem(9, n_classes)
    twice = np.r_[0, np.arange(9)]
    a = laplace_mode(K, offset, y, np.r_[2.0, np.ones(8)], n_classes)
    b = laplace_mode(K[np.ix_(twice, twice)], offset[twice], y[twice], np.ones(10), n_classes)
    np.testing.assert_allclose(a.scores, b.scores[1:], atol=1e-5)
    np.testing.assert_allclose(a.loo_scores, b.loo_scores[1:], atol=1e-4)


@pytest.mark.parametrize("labels", [np.zeros(6, int), np.r_[0, 0, 0, 0, 0, 1]])
def test_one_class_or_separable_rows_converge_to_finite_scores(labels):
    K, offset, _, c = _problem(6)
    mode = laplace_mode(1e4 * K, offset, labels, c, 2)
    assert np.all(np.isfinite(mode.loo_scores))
    assert np.all((mode.scores > 0) == labels)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_backends_agree(backend, n_classes):
    problem = _problem(10, n_classes)
    ours = laplace_mode(*to(backend, *problem), n_classes)
    reference = laplace_mode(*problem, n_classes)
    for a, b in zip(ours, reference):
        np.testing.assert_allclose(host(a), b, atol=1e-6)


def test_log_likelihood_of_sure_scores():
    y = np.array([0, 1])
    np.testing.assert_allclose(log_likelihood(np.array([-50.0, 0.0]), y, 2), [0.0, np.log(0.5)], atol=1e-12)
    np.testing.assert_allclose(log_likelihood(np.zeros((2, 4)), y, 4), np.log(0.25))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_low_rank_covariance_gives_the_same_mode(n_classes):
    rng = np.random.default_rng(4)
    _, offset, y, c = _problem(20, n_classes)
    F = rng.normal(size=(20, 6))
    dense = laplace_mode(F @ F.T, offset, y, c, n_classes)
    thin = laplace_mode(laplace.LowRank(F), offset, y, c, n_classes)
    for a, b in zip(thin, dense):
        np.testing.assert_allclose(a, b, atol=1e-4)
