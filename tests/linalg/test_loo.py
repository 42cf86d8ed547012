"""Leave-one-out in closed form against refitting without the row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pro2.linalg import losses
from pro2.linalg.loo import leave_one_out, log_likelihood, typical_curvature
from pro2.linalg.mode import find_mode
from pro2.linalg.moments import host
from pro2.linalg.probes import fit_logistic, loo_loss, loo_path
from pro2.linalg.rows import orthogonal
from tests.linalg.backends import BACKENDS, to


def make(M: int = 24, p: int = 5, K: int = 2, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = np.arange(M) % K
    return rng.normal(size=(M, p)) + rng.normal(size=(K, p))[y], y


def without(Z, y, i, l2, K, c):
    """Scores of row i from a probe on the others; the penalty keeps its ratio to the weight of the others."""
    keep = np.arange(len(y)) != i
    fit = fit_logistic(Z[keep], y[keep], l2 * c.sum() / c[keep].sum(), n_classes=K, sample_weight=c[keep])
    return np.atleast_2d(fit.coef) @ Z[i] + fit.intercept


def centred(f):
    return f - f.mean(axis=-1, keepdims=True) if f.shape[-1] > 1 else f


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("p", [3, 40])
@pytest.mark.parametrize("weighted", [False, True])
def test_loo_is_close_to_refitting(K, p, weighted):
    Z, y = make(30, p, K)
    c = np.random.default_rng(1).uniform(0.2, 2.0, 30) if weighted else np.ones(30)
    _, scores = loo_path(Z, y, [p], [0.1, 1.0], n_classes=K, sample_weight=c)
    for j, l2 in enumerate((0.1, 1.0)):
        exact = np.array([without(Z, y, i, l2, K, c) for i in range(30)])
        ours = scores[0, j].reshape(30, -1)
        gap = np.abs(centred(ours) - centred(exact))
        # one logit knows the curvature of each row, several logits a typical one
        assert gap.max() < (0.1 if K == 2 else 0.5)
        assert gap.mean() < (0.02 if K == 2 else 0.1)


@pytest.mark.parametrize("weight", [1 / 16, 1.0, 16.0])
@pytest.mark.parametrize("K", [2, 3])
def test_the_unit_of_weights_plays_no_part(K, weight):
    """Sixteen rows of weight 1/16 once lost 216,411 where 0.14 is right."""
    Z, y = make(16 if K == 2 else 18, 4, K)
    _, plain = loo_path(Z, y, [4], [0.1], n_classes=K)
    _, scaled = loo_path(Z, y, [4], [0.1], n_classes=K, sample_weight=np.full(len(y), weight))
    np.testing.assert_allclose(scaled, plain, atol=1e-9)
    assert loo_loss(scaled, y, K) < 1.5


def test_a_row_leaves_with_all_of_its_weight():
    Z, y = make(12)
    c = np.r_[5.0, np.ones(11)]
    _, scores = loo_path(Z, y, [5], [0.5], sample_weight=c)
    assert scores[0, 0, 0] == pytest.approx(float(without(Z, y, 0, 0.5, 2, c)[0]), abs=0.1)


def test_a_row_of_weight_zero_leaves_nothing_behind():
    Z, y = make(12)
    fit, scores = loo_path(Z, y, [5], [0.5], sample_weight=np.r_[0.0, np.ones(11)])
    assert scores[0, 0, 0] == pytest.approx(float(fit.coef[0, 0] @ Z[0] + fit.intercept[0, 0]))


def test_loo_loss_prefers_the_signal_over_noise_features():
    rng = np.random.default_rng(1)
    y = np.tile([0, 1], 16)
    Z = rng.normal(size=(32, 60))
    Z[:, 0] += 3 * (2 * y - 1)
    _, scores = loo_path(Z, y, [1, 60], [0.01])
    assert np.diff(loo_loss(scores, y)[:, 0]) > 0


def test_loo_loss_is_the_weighted_mean_of_log_losses():
    rng = np.random.default_rng(0)
    y, w, f = np.arange(10) % 2, rng.uniform(0.1, 2, 10), rng.normal(size=(2, 3, 10))
    expected = np.average(np.logaddexp(0, f) - y * f, axis=-1, weights=w)
    np.testing.assert_allclose(loo_loss(f, y, 2, w), expected, rtol=1e-12)
    np.testing.assert_allclose(loo_loss(f, y), np.mean(np.logaddexp(0, f) - y * f, axis=-1), rtol=1e-12)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [3, 20])
def test_every_problem_of_a_batch_has_the_scores_of_its_own(K, p):
    rng = np.random.default_rng(3)
    Z, y = rng.normal(size=(4, 2, 15, p)), np.tile(np.arange(15) % K, (4, 2, 1))
    weight = rng.integers(1, 5, y.shape).astype(float)  # sums differ from problem to problem
    _, batch = loo_path(Z, y, [p, 2], [0.01, 1.0, 0.1], n_classes=K, sample_weight=weight)
    for at in np.ndindex(4, 2):
        _, alone = loo_path(Z[at], y[at], [p, 2], [0.01, 1.0, 0.1], n_classes=K, sample_weight=weight[at])
        np.testing.assert_allclose(batch[at], alone, rtol=1e-5, atol=1e-5)


def test_two_classes_as_softmax_leave_out_the_same():
    Z, y = make(14)
    c, precision = np.random.default_rng(2).uniform(0.5, 2, 14), np.array([0.3, 3.0])
    rows = orthogonal(Z, c)
    one = find_mode(rows, y[:, None].astype(float), np.zeros((14, 2, 1)), precision, tol=1e-10)
    two = find_mode(rows, np.eye(2)[y], np.zeros((14, 2, 2)), 2 * precision, tol=1e-10)
    single = leave_one_out(rows, one, y[:, None].astype(float), precision)
    both = leave_one_out(rows, two, np.eye(2)[y], 2 * precision)
    np.testing.assert_allclose(both[..., 1] - both[..., 0], single[..., 0], atol=1e-6)


def test_own_curvature_equals_a_typical_one_where_all_rows_are_alike():
    """A strong prior leaves every probability at one half."""
    Z, y = make(10)
    c, Y, precision = np.ones(10), y[:, None].astype(float), np.array([1e6])
    rows = orthogonal(Z, c)
    mode = find_mode(rows, Y, np.zeros((10, 1, 1)), precision, tol=1e-12)
    ways = [leave_one_out(rows, mode, Y, precision, own_curvature=own) for own in (False, True)]
    np.testing.assert_allclose(ways[0], ways[1], rtol=1e-4, atol=1e-10)


def test_typical_curvature_is_a_weighted_geometric_mean():
    P = np.array([0.5, 0.9, 0.99])[:, None, None]
    h, w = (P * (1 - P))[:, 0, 0], np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(typical_curvature(P, w), np.exp(np.sum(w * np.log(h)) / 6), rtol=1e-12)


def test_log_likelihood_of_sure_scores():
    f = np.array([-50.0, 0.0])[:, None, None]
    np.testing.assert_allclose(log_likelihood(f, np.array([[0.0], [1.0]]))[:, 0], [0.0, np.log(0.5)], atol=1e-12)
    np.testing.assert_allclose(log_likelihood(np.zeros((2, 1, 4)), np.eye(4)[:2])[:, 0], np.log(0.25))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 10), st.integers(1, 10), st.integers(2, 4), st.floats(-3, 3), st.integers(0, 10_000))
def test_scores_are_finite_whatever_the_shape_and_scale(M, p, K, log_scale, seed):
    Z, y = make(M, p, K, seed)
    c = np.random.default_rng(seed).uniform(0.0, 2.0, M)
    c[0] = 1.0
    _, scores = loo_path(Z * 10.0**log_scale, y, [p], [1e-3, 1.0], n_classes=K, sample_weight=c)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("K", [2, 3])
def test_backends_agree(backend, K):
    Z, y = make(12, 20, K)
    expected = loo_path(Z, y, [3, 20], [0.1, 1.0], n_classes=K)[1]
    found = loo_path(*to(backend, Z, y), [3, 20], [0.1, 1.0], n_classes=K)[1]
    np.testing.assert_allclose(host(found), expected, atol=1e-6)


@pytest.mark.parametrize("K", [2, 3, 6])
def test_loss_slope_and_curvature_are_derivatives_of_each_other(K):
    rng = np.random.default_rng(0)
    F, D = rng.normal(size=(2, 7, losses.n_scores(K)))
    Y = losses.one_hot(np.arange(7) % K, K, F)
    e = 1e-6

    def value(t):
        return losses.evaluate(F + t * D, Y)[0]

    def slope(t):
        return losses.evaluate(F + t * D, Y)[1] - Y

    np.testing.assert_allclose(np.sum(slope(0.0) * D, axis=1), (value(e) - value(-e)) / (2 * e), atol=1e-8)
    curvature = losses.curvature_times(losses.evaluate(F, Y)[1], D)
    np.testing.assert_allclose(curvature, (slope(e) - slope(-e)) / (2 * e), atol=1e-8)
