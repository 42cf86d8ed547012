"""Laws of the prior family: what its numbers mean on the source that they come from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pro2.linalg import lapack, losses
from pro2.linalg.family import Member, PriorFamily
from pro2.linalg.moments import Moments, host
from pro2.linalg.priors import SourcePrior
from tests.linalg.backends import BACKENDS, to
from tests.linalg.source import D, make_prior, make_source, make_target


def scaled(prior: SourcePrior, X: np.ndarray) -> np.ndarray:
    return prior.rows(X, np.ones(D))


def test_a_family_is_every_combination_once():
    family = PriorFamily(sizes=(0.0, 1.0, 4.0), ridges=(0.1, 1.0), reaches=(0.3, 4.0), covariances=("flat", "ranked"))
    members = family.members()
    assert len(members) == len(set(members)) == 2 * 2 * (1 + 2 * 2)
    assert all(np.isinf(m.ridge) for m in members if m.size == 0)


@pytest.mark.parametrize("scale", ["standard", "global"])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    ("covariance", "options"),
    [("flat", {}), ("ranked", {}), ("ranked", {"ranked": 1.0}), ("whitened", {}), ("whitened", {"n_principal": 3})],
)
def test_a_typical_source_row_has_unit_prior_variance_and_the_share_of_the_intercept(
    n_classes, scale, covariance, options
):
    X, y = make_source(n_classes)
    prior = make_prior(X, y, PriorFamily(**options), scale=scale)
    A = prior.features(scaled(prior, X), covariance)
    assert A.shape == (600, D + 1)
    assert np.mean(np.sum(A * A, axis=1)) == pytest.approx(1.0 + prior.family.intercept, rel=1e-6)


def test_the_root_is_symmetric_and_falls_along_the_ranked_features():
    prior = make_prior(*make_source(), PriorFamily(decay=1.0, ranked=0.5))
    root, Q = prior.ranked.spread(np.eye(D)), prior.ranked.directions
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    along = np.diag(Q @ root @ root @ Q.T)
    assert np.all(np.diff(along) < 0)
    flat = 0.5 / np.sum(prior.variance)
    np.testing.assert_allclose((along - flat) * np.arange(1, D + 1), along[0] - flat, rtol=1e-9)


def test_beyond_the_ranked_features_the_prior_is_flat():
    prior = make_prior(*make_source(), PriorFamily(n_ranked=3, ranked=0.5))
    assert prior.ranked.directions.shape == (3, D)
    beyond = np.linalg.svd(prior.ranked.directions)[2][3:]
    root = prior.ranked.spread(beyond)
    np.testing.assert_allclose(root, beyond * np.sqrt(0.5 / np.sum(prior.variance)), atol=1e-12)


@pytest.mark.parametrize("scale", ["standard", "global"])
def test_whitened_is_the_inverse_of_the_shrunk_covariance(scale):
    X, y = make_source()
    prior = make_prior(X, y, PriorFamily(whitening=0.5), scale)
    C = np.cov(X.T, bias=True) / np.outer(prior.scale, prior.scale)
    expected = np.linalg.inv(C + 0.5 * np.mean(np.diag(C)) * np.eye(D))
    root = prior.whitened.spread(np.eye(D))
    found = root @ root.T
    np.testing.assert_allclose(found / np.trace(found), expected / np.trace(expected), atol=1e-10)


def test_beyond_the_principal_directions_whitened_is_flat():
    X, y = make_source()
    few, all_of_them = (make_prior(X, y, PriorFamily(n_principal=n)).whitened for n in (3, D))
    assert few.directions.shape == (3, D)
    np.testing.assert_allclose(np.abs(few.directions @ all_of_them.directions[:3].T), np.eye(3), atol=1e-9)
    beyond = np.linalg.svd(few.directions)[2][3:]
    np.testing.assert_allclose(few.spread(beyond), np.sqrt(few.beyond) * beyond, atol=1e-12)
    assert few.beyond > few.along.max()


@pytest.mark.parametrize("covariance", ["flat", "ranked", "whitened"])
def test_effective_dimensions_are_those_of_spread_rows(covariance):
    X, y = make_source()
    prior = make_prior(X, y)
    A = prior.features(scaled(prior, X), covariance)[:, :-1]
    values = np.linalg.eigvalsh(A.T @ A)
    assert prior.covariance(covariance).dims == pytest.approx(values.sum() ** 2 / np.sum(values**2), rel=1e-6)


@pytest.mark.parametrize("n", [1, 5, 12])
def test_leading_eigenpairs_are_those_of_the_whole_matrix(n):
    A = np.cov(np.random.default_rng(0).normal(size=(30, 12)).T)
    values, rows = lapack.leading_eigenpairs(A, n)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A)[::-1][:n], rtol=1e-10)
    np.testing.assert_allclose(A @ rows.T, rows.T * values, atol=1e-10)
    np.testing.assert_allclose(rows @ rows.T, np.eye(n), atol=1e-10)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"covariances": ()}, "covariances must be a tuple of at least one"),
        ({"covariances": ("flat", "round")}, "covariances must name some of"),
        ({"covariances": "flat"}, "covariances must be a tuple"),
        ({"whitening": 0.0}, "whitening must be in 1e-10"),
        ({"n_principal": 0}, "n_principal must be in 1"),
        ({"n_ranked": 1.5}, "n_ranked must be in 1"),
        ({"scales": ()}, "scales must be a tuple of at least one"),
        ({"ridges": 0.1}, "ridges must be a tuple"),
        ({"reaches": (4.0, 0.0)}, "reaches must be in"),
        ({"sizes": (np.nan,)}, "sizes must be in"),
        ({"ranked": 1.1}, "ranked must be in 0..1"),
        ({"trust": "16"}, "trust must be in"),
        ({"source_shares": np.nan}, "source_shares must be in 0..1"),
        ({"sharpness": True}, "sharpness must be in"),
    ],
)
def test_constants_that_make_no_prior_are_an_error(change, found):
    with pytest.raises(ValueError, match=found):
        PriorFamily(**change)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_heads_have_the_stated_margin(n_classes):
    X, y = make_source(n_classes)
    prior = make_prior(X, y)
    for r in range(len(prior.family.ridges)):
        s = prior.scores(scaled(prior, X))[:, r, :]
        if n_classes == 2:
            margin = s[:, 0] * (2 * y - 1)
        else:
            own = s[np.arange(len(y)), y]
            margin = own - (s.sum(axis=1) - own) / (n_classes - 1)
        # moments pool the covariance of the classes: exact for two, close for more
        assert np.sqrt(np.mean(margin**2)) == pytest.approx(prior.unit**2, rel=1e-6 if n_classes == 2 else 0.01)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_natural_size_is_the_calibrated_one_and_accuracy_is_that_of_the_head(n_classes):
    """The scale of each head that makes source labels most likely, on a source that is Gaussian."""
    rng = np.random.default_rng(0)
    y = np.arange(20_000) % n_classes
    X = rng.normal(size=(n_classes, D))[y] * 0.6 + rng.normal(size=(len(y), D)) * np.linspace(0.5, 3.0, D)
    prior = make_prior(X, y)
    F = prior.scores(scaled(prior, X))
    for r, natural in enumerate(prior.natural):
        f = F[:, r, :]
        Y = losses.one_hot(y, n_classes, f)
        best = min(np.exp(np.linspace(-3, 3, 301)), key=lambda t: float(losses.evaluate(t * f, Y)[0].sum()))
        # several classes share one scale: the sum over pairs is not quite the likelihood
        assert natural == pytest.approx(best, rel=0.05 if n_classes == 2 else 0.15)
        right = np.mean(losses.probabilities(f).argmax(axis=1) == y)
        # three classes: the sum of pairwise errors is a bound
        assert prior.accuracy[r] == pytest.approx(right, abs=0.01 if n_classes == 2 else 0.03)


def test_a_centre_is_never_surer_than_the_source_supports():
    prior = make_prior(*make_source())
    for r, natural in zip(prior.family.ridges, prior.natural):
        assert prior.centre_size(Member("flat", 1.0, 0.25 * natural, r)) == pytest.approx(0.25 * natural)
        assert prior.centre_size(Member("flat", 1.0, 1e3, r)) == natural
    assert prior.centre_size(Member("flat", 1.0, 0.0, np.inf)) == 0.0


def test_no_centre_counts_as_right_half_of_the_time():
    prior = replace(make_prior(*make_source(4)), accuracy=(0.3, 0.9, 0.8))
    ridges = prior.family.ridges
    assert prior.log_accuracy(Member("flat", 1.0, 0.0, np.inf)) == pytest.approx(np.log(0.5))
    assert prior.log_accuracy(Member("flat", 1.0, 1.0, ridges[0])) == pytest.approx(np.log(0.5))
    assert prior.log_accuracy(Member("flat", 1.0, 1.0, ridges[1])) == pytest.approx(np.log(0.9))


def test_a_head_on_scaled_rows_is_the_same_head_on_raw_ones():
    rng = np.random.default_rng(0)
    prior, (Z, _) = make_prior(*make_source(3)), make_target(3)
    coef, intercept, gain = rng.normal(size=(3, D)), rng.normal(size=3), rng.uniform(0.1, 1.0, D)
    raw, b = prior.to_input(coef, intercept, gain)
    np.testing.assert_allclose(Z @ raw.T + b, prior.rows(Z, gain) @ coef.T + intercept, atol=1e-10)


def test_the_unit_of_rows_plays_no_part():
    """Scores in units of the source: all rows times 1000 give the same prior covariance and the same centres."""
    X, y = make_source()
    for scale in ("standard", "global"):
        a, b = make_prior(X, y, scale=scale), make_prior(1000 * X, y, scale=scale)
        for covariance in ("flat", "ranked", "whitened"):
            left, right = (p.features(scaled(p, k * X[:9]), covariance) for p, k in ((a, 1), (b, 1000)))
            np.testing.assert_allclose(right @ right.T, left @ left.T, atol=1e-9)
        np.testing.assert_allclose(b.scores(scaled(b, 1000 * X)), a.scores(scaled(a, X)), atol=1e-8)


def test_gain_is_one_where_the_target_varies_like_the_source():
    X, y = make_source()
    prior = make_prior(X, y)
    np.testing.assert_array_equal(prior.gain(X, np.ones(len(X))), np.ones(D))
    np.testing.assert_array_equal(prior.gain(0.01 * X, np.ones(len(X))) <= 1.0, True)


def test_gain_damps_what_the_target_contradicts_to_the_variance_of_the_source():
    X, y = make_source()
    prior = make_prior(X, y)
    Z = X.copy()
    middle = prior.centre[4] * prior.scale[4]
    Z[:, 4] = middle + 20 * (Z[:, 4] - middle)
    gain = prior.gain(Z, np.ones(len(Z)))
    np.testing.assert_array_equal(np.delete(gain, 4), 1.0)
    damped = prior.rows(Z, gain)[:, 4]
    limit = 1 + prior.family.tolerance / np.sqrt(len(Z))
    assert np.mean(damped**2) == pytest.approx(limit * prior.variance[4], rel=1e-9)


def test_few_rows_say_less_about_variances_than_many():
    X, y = make_source()
    prior, Z = make_prior(X, y), 4.0 * X
    assert np.all(prior.gain(Z[:4], np.ones(4)) >= prior.gain(Z, np.ones(len(Z))).max())


def test_weights_of_the_gain_are_repetitions_and_zero_is_absence():
    prior = make_prior(*make_source())
    Z = 5.0 * make_target()[0]
    equal = np.full(len(Z), 0.25)
    np.testing.assert_allclose(prior.gain(Z, equal), prior.gain(Z, 4 * equal), rtol=1e-12)
    some = np.r_[np.ones(6), np.zeros(len(Z) - 6)]
    np.testing.assert_allclose(prior.gain(Z, some), prior.gain(Z[:6], np.ones(6)), rtol=1e-12)


@pytest.mark.parametrize("target", [0.0, 1e-9, 1.0, 1e9])
def test_a_feature_that_was_constant_on_the_source_divides_by_nothing(target):
    X, y = make_source()
    X[:, 5] = 2.0
    moments = Moments.from_arrays(X, y)
    prior = SourcePrior.from_moments(moments, np.ones(D), np.eye(D)[:4], PriorFamily(), "none")
    Z = make_target()[0]
    Z[:, 5] = 2.0 + target * np.linspace(-1, 1, len(Z))
    gain = prior.gain(Z, np.ones(len(Z)))
    assert np.all((gain > 0) & (gain <= 1))
    # it may be alive on the target, but moves no further than a tenth of a typical feature
    rows = prior.rows(Z, gain)[:, 5]
    assert np.isfinite(rows).all()
    limit = 1 + prior.family.tolerance / np.sqrt(len(Z))
    assert np.mean(rows**2) <= 1.000001 * limit * 0.01 * np.mean(prior.variance)


def test_one_source_class_is_an_error():
    moments = Moments.from_arrays(np.ones((4, 2)), np.zeros(4, int))
    with pytest.raises(ValueError, match="at least two classes"):
        SourcePrior.from_moments(moments, np.ones(2), np.eye(2), PriorFamily(), "none")


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_agree(backend):
    X, y = make_source(3)
    expected = make_prior(X, y)
    found = make_prior(*to(backend, X, y))
    np.testing.assert_allclose(host(found.heads), expected.heads, atol=1e-8)
    np.testing.assert_allclose(found.natural, expected.natural, rtol=1e-8)
    (Z,) = to(backend, X[:7])
    for covariance in ("flat", "ranked", "whitened"):
        ours = found.features(found.rows(Z, found.gain(Z, Z[:, 0] * 0.0 + 1.0)), covariance)
        plain = expected.features(expected.rows(X[:7], expected.gain(X[:7], np.ones(7))), covariance)
        np.testing.assert_allclose(host(ours), plain, atol=1e-7)


@pytest.mark.parametrize("size", [1e-140, 1e-9, 1e9, 1e120])
def test_covariances_know_rows_of_any_size(size):
    X, y = make_source()
    plain, other = (
        SourcePrior.from_moments(Moments.from_arrays(k * X, y), np.ones(D), np.eye(D)[:4], PriorFamily(), "none")
        for k in (1.0, size)
    )
    for name in ("flat", "ranked", "whitened"):
        ours, theirs = (p.features(k * X[:5], name) for p, k in ((plain, 1.0), (other, size)))
        np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-9)
        assert other.covariance(name).dims == pytest.approx(plain.covariance(name).dims)
