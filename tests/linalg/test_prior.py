"""What is learned of a source: head, ranked directions, covariances, in matrix, row space and shared form alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from pro2.linalg.covariance import DenseCovariance, LowRankCovariance
from pro2.linalg.moments import Moments
from pro2.linalg.prior import NOISE, PriorFamily, SourcePrior, effective_dims, margin_unit

FAMILY = PriorFamily(covariances=("ranked", "whitened", "flat"))


def rows(K=3, D=10, N=300, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % K
    return rng.normal(size=(N, D)) * np.linspace(0.3, 3.0, D) + rng.normal(size=(K, D))[y], y


def prior_of(X, y, scale=1.0, family=FAMILY):
    return SourcePrior.from_moments(Moments.from_arrays(X, y), np.full(X.shape[1], scale), family)


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(1, 12), st.booleans(), st.integers(0, 1000))
def test_few_rows_or_a_shared_eigendecomposition_give_the_matrix_without_it(n, D, shared, seed):
    rng = np.random.default_rng(seed)
    R, Z, A = rng.normal(size=(n, D)) / np.sqrt(n), rng.normal(size=(7, D)), rng.normal(size=(3, D))
    T = np.cov(rng.normal(size=(D, 40))).reshape(D, D) if shared else np.zeros((D, D))
    dense = DenseCovariance(R.T @ R + T, 0.7)
    other = LowRankCovariance(R, 0.7, *(np.linalg.eigh(T) if shared else ()))
    B = R.T @ R + T + dense.shift * np.eye(D)
    for name in ("trace", "squares", "shift", "diagonal"):
        np.testing.assert_allclose(getattr(other, name), getattr(dense, name), rtol=1e-10)
    np.testing.assert_allclose(other.inverse_traces(), dense.inverse_traces(), rtol=1e-7, atol=1e-10)
    for each in (dense, other):
        np.testing.assert_allclose(each.product(Z), Z @ (R.T @ R + T), atol=1e-10)
        np.testing.assert_allclose(each.solve(Z), np.linalg.solve(B, Z.T).T, atol=1e-10)
        np.testing.assert_allclose(each.root(Z) @ each.root(Z).T, Z @ np.linalg.solve(B, Z.T), atol=1e-10)
        np.testing.assert_allclose(each.root(Z) @ A.T, Z @ each.root_adjoint(A).T, atol=1e-10)


@pytest.mark.parametrize("covariance", FAMILY.covariances)
def test_a_typical_source_row_has_variance_one_and_the_share_of_the_intercept(covariance):
    X, y = rows()
    prior = prior_of(X, y)
    Z = prior.rows(X)
    within = np.mean((prior.features(Z, covariance) ** 2).sum(axis=1)) - FAMILY.intercept
    assert within == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("covariance", FAMILY.covariances)
def test_features_have_the_covariance_and_their_scores_are_those_of_a_head_on_rows(covariance):
    X, y = rows()
    prior = prior_of(X, y)
    Z = prior.rows(X[:8])
    A, theta = prior.features(Z, covariance), np.random.default_rng(0).normal(size=(2, 11))
    Q, share = prior.directions, FAMILY.ranked_share
    forms = {
        "flat": Z,
        "ranked": (1.0 - share) * Z + ((Z @ Q.T) * prior.along) @ Q,
        "whitened": prior.second_moments.solve(Z),
    }
    expected = forms[covariance] @ Z.T / prior.traces[covariance][0] + FAMILY.intercept
    np.testing.assert_allclose(A @ A.T, expected, atol=1e-10)
    V, b = prior.head(theta, covariance)
    np.testing.assert_allclose(Z @ V.T + b, A @ theta.T, atol=1e-10)


@pytest.mark.parametrize("covariance", FAMILY.covariances)
def test_effective_dimensions_follow_from_the_eigenvalues(covariance):
    X, y = rows()
    prior = prior_of(X, y)
    Lambda = prior.root(prior.root(np.eye(10), covariance), covariance, adjoint=True)
    C = prior.second_moments.product(np.eye(10))
    e = np.linalg.eigvals(Lambda @ C).real
    expected = NOISE / (np.array(FAMILY.prior_scales) * prior.unit * np.sqrt(effective_dims(e.sum(), e @ e)))
    np.testing.assert_allclose(prior.penalties(covariance), expected, rtol=1e-8)


@pytest.mark.parametrize("K", [2, 3, 6])
def test_directions_are_orthonormal_and_span_the_krylov_space(K):
    X, y = rows(K, D=12)
    prior = prior_of(X, y, family=replace(FAMILY, n_ranked=K + 1))
    Q = prior.directions
    np.testing.assert_allclose(Q @ Q.T, np.eye(len(Q)), atol=1e-10)
    M = np.stack([prior.rows(X[y == k]).mean(axis=0) for k in range(K)])
    V = prior.second_moments.solve(M)
    np.testing.assert_allclose(V @ Q[: K - 1].T @ Q[: K - 1], V, atol=1e-8)


@pytest.mark.parametrize("K", [2, 3, 6])
def test_the_source_head_has_the_stated_margin(K):
    X, y = rows(K, N=600)
    prior = prior_of(X, y)
    for F in np.moveaxis(prior.scores(prior.rows(X)), 1, 0):
        own = F[np.arange(len(y)), y]
        margin = own - (F.sum(axis=1) - own) / (K - 1)
        assert np.sqrt(np.mean(margin**2)) == pytest.approx(margin_unit(K) ** 2, rel=0.01)
        np.testing.assert_allclose(F.sum(axis=1), 0.0, atol=1e-9)
        assert np.mean(F.argmax(axis=1) == y) > 1.5 / K


@pytest.mark.parametrize("K", [2, 3])
def test_the_second_head_has_a_tenth_of_the_ridge(K):
    """As far as the Krylov sequence reaches: here, all directions."""
    X, y = rows(K, D=9)
    prior, sharper = prior_of(X, y), prior_of(X, y, family=replace(FAMILY, ridge=0.1 * FAMILY.ridge))
    np.testing.assert_allclose(prior.coef[1], sharper.coef[0], atol=1e-3 * np.abs(sharper.coef[0]).max())


def test_more_classes_keep_the_head_and_give_new_ones_none():
    X, y = rows(3)
    prior = prior_of(X, y)
    wider = prior.with_classes([0, 2, 3], 5)
    grown = (margin_unit(5) / margin_unit(3)) ** 2
    np.testing.assert_allclose(wider.coef[:, [0, 2, 3]], grown * prior.coef)
    assert not wider.coef[:, [1, 4]].any()
    assert wider.calibrated_size * grown == pytest.approx(prior.calibrated_size)
    with pytest.raises(ValueError, match="places must name 3"):
        prior.with_classes([0, 1], 5)


class TestShrinkage:
    def test_a_feature_that_varies_more_is_brought_to_what_is_allowed(self):
        X, y = rows(N=900)
        prior = prior_of(X, y)
        X[:, 4] = prior.centre[4] + 10.0 * (X[:, 4] - prior.centre[4])
        shrunk = prior.shrunk(X, np.ones(len(X)))
        ratio = np.mean(shrunk.rows(X)[:, 4] ** 2) / prior.second_moments.diagonal[4]
        assert ratio == pytest.approx(1.0 + FAMILY.tolerance / 30.0)
        np.testing.assert_allclose(np.delete(shrunk.scale, 4), np.delete(prior.scale, 4))

    def test_weights_are_repetitions_and_targets_are_each_alone(self):
        X, y = rows()
        prior = prior_of(X, y)
        far = 5.0 * np.random.default_rng(0).normal(size=(2, 6, 10))
        c = np.array([[2.0, 1, 1, 1, 1, 1]] * 2)
        both = prior.shrunk(far, c)
        for t in range(2):
            np.testing.assert_allclose(both.scale[t, 0], prior.shrunk(far[t], c[t]).scale)

    def test_a_feature_that_was_constant_on_the_source_divides_by_nothing(self):
        X, y = rows()
        X[:, 2] = 7.0
        prior = prior_of(X, y)
        shrunk = prior.shrunk(X + np.random.default_rng(0).normal(size=X.shape), np.ones(len(X)))
        assert np.isfinite(shrunk.scale).all()
        assert (shrunk.scale > 0).all()


def test_a_source_that_never_moves_makes_a_prior_without_a_head():
    prior = prior_of(np.ones((20, 4)), np.arange(20) % 2)
    assert not prior.coef.any()
    assert len(prior.directions) == 0
    assert np.isfinite(prior.features(np.eye(4), "whitened")).all()


def test_one_class_is_an_error():
    with pytest.raises(ValueError, match="at least two classes"):
        prior_of(np.eye(4), np.zeros(4, dtype=int))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"covariances": ("odd",)}, "covariances must name some of"),
        ({"mean_sizes": ()}, "mean_sizes must be a tuple"),
        ({"prior_scales": (0.0,)}, "prior_scales must be in"),
        ({"n_ranked": 1.5}, "n_ranked must be in"),
        ({"intercept": True}, "intercept must be in"),
        ({"margin": float("nan")}, "margin must be in"),
    ],
)
def test_constants_that_make_no_prior_are_an_error(change, found):
    with pytest.raises(ValueError, match=found):
        PriorFamily(**change)


@pytest.mark.parametrize(
    ("n", "dim", "step", "K"),
    [(40, 200, 2.0, 2), (150, 200, 2.0, 2), (1000, 200, 2.0, 3), (60000, 6, 1.1, 2), (60000, 6, 1.1, 3)],
)
def test_the_source_head_is_calibrated_on_rows_it_was_not_fitted_to(n: int, dim: int, step: float, K: int) -> None:
    """With fewer rows than features, rows of the source lie where the head wants them, and new rows do not."""
    rng = np.random.default_rng(n)
    y = np.arange(n + 4000) % K
    X = rng.normal(size=(n + 4000, dim)) + (0.15 if dim > 6 else 1.0) * rng.normal(size=(K, dim))[y]
    prior = prior_of(X[:n], y[:n])
    scores = prior.scores(prior.rows(X[n:]))[:, 0]
    sizes = prior.calibrated_size * step ** np.arange(-4, 5)
    losses = [-np.mean(log_softmax(size * scores, axis=1)[np.arange(4000), y[n:]]) for size in sizes]
    assert abs(int(np.argmin(losses)) - 4) <= 1
    assert losses[4] < np.log(K)
