"""Laws of the source moments: one pass equals any way of cutting it up."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from pro2.linalg.arrays import to_numpy
from pro2.linalg.moments import Moments

from .backends import BACKENDS, to


@pytest.fixture
def rows(rng):
    y = rng.integers(0, 3, 200)
    return rng.normal(size=(200, 7)) * np.logspace(-3, 3, 7) + y[:, None], y


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def close(a: Moments, b: Moments, rtol: float = 1e-10) -> bool:
    scale = np.abs(b.scatter).max()
    return bool(
        a.classes == b.classes
        and np.allclose(a.weight, b.weight)
        and np.allclose(a.mean, b.mean, rtol=rtol, atol=rtol)
        and np.abs(a.scatter - b.scatter).max() <= rtol * scale
    )


def test_covariance_is_numpy_covariance(rows):
    X, y = rows
    m = Moments.from_arrays(X, y)
    np.testing.assert_allclose(m.covariance(), np.cov(X.T, bias=True), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(m.total_mean(), X.mean(0), rtol=1e-12)


@pytest.mark.parametrize("n", [7, 40, 3000])
def test_features_that_are_constant_have_no_scatter(rng, n):
    X = np.column_stack([np.full(n, value) for value in rng.normal(size=5)] + [rng.normal(size=n)])
    for dtype in (np.float32, np.float64):
        scatter = Moments.from_arrays(X.astype(dtype), np.arange(n) % 2).scatter
        assert scatter[-1, -1] > 0
        scatter[-1, -1] = 0.0
        assert not scatter.any()


@pytest.mark.parametrize("cuts", [[1], [50], [3, 90, 150], list(range(20, 200, 20))])
def test_merging_equals_one_pass(rows, cuts):
    X, y = rows
    parts = [Moments.from_arrays(a, b) for a, b in zip(np.split(X, cuts), np.split(y, cuts))]
    whole = Moments.from_arrays(X, y)
    assert close(reduce(add, parts), whole)
    assert close(reduce(add, parts[::-1]), whole)


def test_weights_are_repetitions(rows, rng):
    X, y = rows
    w = rng.integers(0, 4, len(y))
    repeated = Moments.from_arrays(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert close(Moments.from_arrays(X, y, w.astype(float)), repeated)


def test_scaled_moments_are_moments_of_scaled_rows(rows):
    X, y = rows
    s = np.logspace(-2, 2, 7)
    assert close(Moments.from_arrays(X, y).scaled(s), Moments.from_arrays(X / s, y))


def test_blocks_do_not_change_the_result(rows, monkeypatch):
    X, y = np.tile(rows[0], (20, 1)), np.tile(rows[1], 20)
    whole = Moments.from_arrays(X, y)
    monkeypatch.setattr("pro2.linalg.moments.BLOCK_BYTES", 1)
    assert close(Moments.from_arrays(X, y), whole)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_agree(rows, backend):
    X, y = rows
    m = Moments.from_arrays(*to(backend, X, y))
    reference = Moments.from_arrays(X, y)
    np.testing.assert_allclose(to_numpy(m.covariance()), reference.covariance(), rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(to_numpy((m + m).covariance()), reference.covariance(), rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: Moments.from_arrays(X, y[:-1]), r"y has shape \(199,\) but X has 200 rows"),
        (lambda X, y: Moments.from_arrays(X[:, 0], y), "X must be 2-D"),
        (lambda X, y: Moments.from_arrays(X[:0], y[:0]), "X is empty"),
        (lambda X, y: Moments.from_arrays(X, y, classes=[0, 1]), r"labels \[2\]"),
        (lambda X, y: Moments.from_arrays(X, y) + Moments.from_arrays(X[:, :3], y), "3 features"),
    ],
)
def test_mistakes_are_explained(rows, call, message):
    with pytest.raises(ValueError, match=message):
        call(*rows)


@pytest.mark.parametrize("weighted", [False, True])
def test_few_rows_are_a_factor_and_many_a_matrix(weighted):
    """With fewer rows than features no D x D matrix is formed; what follows from the moments is the same."""
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(30, 12)) + 5.0, np.arange(30) % 3, rng.uniform(0.5, 2.0, 30)
    w[4] = 0.0
    few = [Moments.from_arrays(X[i : i + 5], y[i : i + 5], w[i : i + 5] if weighted else None) for i in range(0, 30, 5)]
    whole = Moments.from_arrays(X, y, w if weighted else None)
    assert few[0].factor.shape == (5, 12)
    assert whole.factor is None
    total = reduce(add, few)
    assert total.factor is None
    np.testing.assert_allclose(total.covariance(), whole.covariance(), atol=1e-10)
    one = few[0].scaled(np.linspace(1.0, 2.0, 12))
    np.testing.assert_allclose(np.diagonal(one.covariance()), one.feature_variance(), atol=1e-12)
    own = w[:5] if weighted else np.ones(5)
    expected = sum(
        own[i] * np.outer(d := X[i] - np.average(X[:5][y[:5] == y[i]], axis=0, weights=own[y[:5] == y[i]]), d)
        for i in range(5)
    )
    np.testing.assert_allclose(few[0].within_covariance() * few[0].total_weight, expected, atol=1e-10)
