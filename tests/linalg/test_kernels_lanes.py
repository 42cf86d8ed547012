"""The compiled lanes: exact functions, and problems that do not notice their neighbours."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from numba import njit

from pro2.linalg.kernels.lanes import WIDTH, absolute, load, logistic, smallest, store
from pro2.linalg.kernels.lanes_newton import solve_range


@njit
def _logistic_of(f, prob, soft):
    for i in range(f.size // WIDTH):
        p, s = logistic(load(f, i))
        store(prob, i, p)
        store(soft, i, s)


@njit
def _arithmetic_of(a, b, out):
    x, y = load(a, 0), load(b, 0)
    store(out, 0, (x - y) / (x * y + y))
    store(out, 1, smallest(absolute(x), y))


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1.0, 30.0, 300.0])
def test_probabilities_and_log_losses_have_all_their_digits(scale):
    f = np.random.default_rng(0).normal(size=(4000, WIDTH)) * scale
    f[0, :2] = 0.0, -0.0
    prob, soft = np.empty_like(f), np.empty_like(f)
    _logistic_of(f, prob, soft)
    e = np.exp(-np.abs(f))
    normal = e > 1e-306  # below, the exponential stays at about 1e-307
    exact = np.where(f >= 0, 1 / (1 + e), e / (1 + e))
    np.testing.assert_allclose(prob[normal], exact[normal], rtol=2e-15)
    np.testing.assert_allclose(soft[normal], np.logaddexp(0, f)[normal], rtol=2e-15)
    assert np.all(np.where(normal, 0.0, np.minimum(prob, 1 - prob)) < 1e-306)


def test_scores_beyond_all_bounds_give_probabilities():
    f = np.resize([-np.inf, -1e308, 1e308, np.inf], (1, WIDTH))
    prob, soft = np.empty_like(f), np.empty_like(f)
    _logistic_of(f, prob, soft)
    np.testing.assert_allclose(prob[0, :4], [0, 0, 1, 1], atol=1e-300)
    np.testing.assert_allclose(soft[0, :4], [0, 0, 1e308, np.inf], atol=1e-300)


def test_lanes_compute_like_numbers():
    a, b = np.random.default_rng(1).normal(size=(2, 1, WIDTH))
    out = np.empty((2, WIDTH))
    _arithmetic_of(a, b, out)
    np.testing.assert_allclose(out[0], ((a - b) / (a * b + b))[0], rtol=1e-13)
    assert np.array_equal(out[1], np.minimum(np.abs(a), b)[0])


def _solve(Z, y, l2):
    T, M, p = Z.shape
    theta, b, kkt, n = np.zeros((T, p)), np.zeros(T), np.empty(T), np.empty(T, np.int64)
    solve_range(Z, y, np.full((T, M), 1 / M), np.zeros((T, M)), l2, 1e-10, 100, theta, b, kkt, n)
    return theta, b, kkt, n


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 5), (9, 4, 4), (21, 30, 17)])
def test_every_problem_is_solved_as_if_it_were_alone(shape):
    """Whatever lane it gets, whoever sits beside it: to the bit, for any number of problems, rows and features."""
    rng = np.random.default_rng(2)
    Z, y = rng.normal(size=shape), rng.integers(0, 2, shape[:2]).astype(float)
    l2 = 10.0 ** rng.uniform(-4, 1, shape[0])
    together = _solve(Z, y, l2)
    order = rng.permutation(shape[0])
    for a, b in zip(_solve(Z[order], y[order], l2[order]), together):
        assert np.array_equal(a, b[order])
    alone = [_solve(Z[i : i + 1], y[i : i + 1], l2[i : i + 1]) for i in range(shape[0])]
    for one, all_ in zip(zip(*alone), together):
        assert np.array_equal(np.concatenate(one), all_)


def test_rows_that_are_no_numbers_spoil_their_own_problem_only():
    rng = np.random.default_rng(3)
    Z, y, l2 = rng.normal(size=(12, 8, 3)), np.tile([0.0, 1.0], (12, 4)), np.full(12, 0.1)
    clean = _solve(Z, y, l2)
    Z[5, 2, 1], Z[7, 0, 0] = np.nan, np.inf
    _, _, kkt, _ = spoilt = _solve(Z, y, l2)
    others = np.isin(np.arange(12), [5, 7], invert=True)
    assert not np.any(kkt[~others] <= 1e-10)
    for a, b in zip(spoilt, clean):
        assert np.array_equal(a[others], b[others])
