"""Laws of the prior family and of the averaged head."""

from dataclasses import replace

import numpy as np
import pytest

from pro2.linalg.averaging import average_head, fit_candidates
from pro2.linalg.laplace import log_likelihood
from pro2.linalg.moments import Moments, host
from pro2.linalg.priors import CANDIDATES, KERNELS, RIDGES, SHARPNESS, TRUST, Candidate, SourcePrior
from tests.linalg.backends import BACKENDS, to


def _source(n_classes=2, D=12, N=600, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % n_classes
    scale = np.linspace(0.5, 3.0, D)
    mean = rng.normal(size=(n_classes, D)) * 2
    return mean[y] + scale * rng.normal(size=(N, D)), y


def _target(n_classes=2, M=12, D=12, seed=1):
    X, y = _source(n_classes, D, 600)
    rows = np.random.default_rng(seed).permutation(600)[: 10 * M]
    rows = np.concatenate([rows[y[rows] == k][: M // n_classes] for k in range(n_classes)])
    return X[rows] + 0.3, y[rows]


def _prior(n_classes=2):
    return SourcePrior.from_moments(Moments.from_arrays(*_source(n_classes)))


def _one(f, n_classes):
    return f[:, 0] if n_classes == 2 else f


@pytest.mark.parametrize("n_classes", [2, 4])
def test_norms_are_means_over_source_rows(n_classes):
    X, _ = _source(n_classes)
    prior = _prior(n_classes)
    grams = prior.grams(X)
    for k in KERNELS:
        assert np.mean(np.diag(grams[k])) == pytest.approx(1.03, rel=1e-6)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_heads_have_the_stated_margin(n_classes):
    X, y = _source(n_classes)
    prior = _prior(n_classes)
    for r in range(len(RIDGES)):
        s = prior.scores(X)[:, r, :]
        if n_classes == 2:
            margin = s[:, 0] * (2 * y - 1)
        else:
            own = s[np.arange(len(y)), y]
            margin = own - (s.sum(axis=1) - own) / (n_classes - 1)
        # moments pool the covariance of the classes: exact for two, close for more
        assert np.sqrt(np.mean(margin**2)) == pytest.approx(prior.unit**2, rel=1e-6 if n_classes == 2 else 0.01)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("candidate", CANDIDATES[::4])
def test_head_of_one_prior_reproduces_its_scores(n_classes, candidate):
    prior = _prior(n_classes)
    Z, y = _target(n_classes)
    head = average_head(prior, Z, y, candidates=(candidate,))
    (mode,) = fit_candidates(prior, Z, y, np.ones(len(y)), (candidate,))
    f = Z @ head.coef.T + head.intercept
    np.testing.assert_allclose(f.reshape(len(y), -1), head.temperature * mode.scores, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_average_is_the_weighted_sum_of_single_heads(n_classes):
    prior, (Z, y) = _prior(n_classes), _target(n_classes)
    some = CANDIDATES[::7]
    both = average_head(prior, Z, y, candidates=some)
    single = [average_head(prior, Z, y, candidates=(k,)) for k in some]
    coef = sum(w * h.coef / h.temperature for w, h in zip(both.weights, single))
    np.testing.assert_allclose(both.coef / both.temperature, coef, atol=1e-9)
    score = SHARPNESS * (len(y) * both.loo + TRUST * np.array([prior.log_accuracy(k) for k in some]))
    np.testing.assert_allclose(both.weights, np.exp(score) / np.exp(score).sum(), atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_drawn_class_by_class_do_not_make_classes_equally_common(n_classes):
    """Many labels, as many of each class: the head is that of equal classes, moved halfway to the source's shares."""
    X, y = _source(n_classes, N=1200)
    some = np.concatenate([np.flatnonzero(y == k)[:: 1 + k] for k in range(n_classes)])
    unequal = SourcePrior.from_moments(Moments.from_arrays(X[some], y[some]))
    equal = replace(unequal, shares=(1.0 / n_classes,) * n_classes)
    Z, t = _target(n_classes, M=300)
    Z = Z + np.random.default_rng(4).normal(size=Z.shape) * 5  # classes overlap: the intercept is well determined
    candidate = (Candidate(None, "euclidean", 1e4),)
    moved, still = (average_head(p, Z, t, candidates=candidate) for p in (unequal, equal))
    expected = 0.5 * np.log(np.array(unequal.shares))
    change = moved.intercept - still.intercept
    if n_classes == 2:
        assert change == pytest.approx(expected[1] - expected[0], rel=0.01)
    else:
        np.testing.assert_allclose(change, expected - expected.mean(), rtol=0.02)
    np.testing.assert_allclose(moved.shares, unequal.shares ** np.array(0.5) / np.sum(np.sqrt(unequal.shares)))


def test_leave_one_out_of_the_average_is_what_refitting_without_the_row_gives():
    prior, (Z, y) = _prior(), _target(M=40)
    few = np.r_[0:4, 36:40]
    Z, y = Z[few], y[few]
    exact = []
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        head = average_head(prior, Z[keep], y[keep])
        exact.append((Z[i] @ head.coef + head.intercept) / head.temperature)
    head = average_head(prior, Z, y)
    told = head.loo_scores / head.temperature
    np.testing.assert_array_equal(told > 0, np.array(exact) > 0)
    assert np.corrcoef(told, exact)[0, 1] > 0.98


def test_unequal_labels_are_taken_as_they_are():
    X, y = _source(N=1200)
    some = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[::4]]
    prior = SourcePrior.from_moments(Moments.from_arrays(X[some], y[some]))
    Z, t = _target()
    a, b = (average_head(p, Z[1:], t[1:]) for p in (prior, replace(prior, shares=(0.5, 0.5))))
    assert a.intercept == b.intercept
    np.testing.assert_allclose(a.shares, (np.bincount(t[1:]) + 0.5) / (len(t) - 1 + 1))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rotating_everything_rotates_the_head(n_classes):
    X, y = _source(n_classes)
    Z, t = _target(n_classes)
    Q, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(12, 12)))
    plain = average_head(SourcePrior.from_moments(Moments.from_arrays(X, y)), Z, t)
    turned = average_head(SourcePrior.from_moments(Moments.from_arrays(X @ Q, y)), Z @ Q, t)
    np.testing.assert_allclose(turned.coef, plain.coef @ Q, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_natural_size_is_the_calibrated_one(n_classes):
    """The scale of each head that makes source labels most likely, on a source that is Gaussian."""
    rng = np.random.default_rng(0)
    y = np.arange(20_000) % n_classes
    X = rng.normal(size=(n_classes, 6))[y] + rng.normal(size=(len(y), 6)) * np.linspace(0.5, 3.0, 6)
    prior = SourcePrior.from_moments(Moments.from_arrays(X, y))
    scale = np.exp(np.linspace(-3, 3, 301))
    for r, natural in enumerate(prior.natural):
        f = prior.scores(X)[:, r, :]
        best = max(scale, key=lambda t: float(np.sum(log_likelihood(_one(t * f, n_classes), y, n_classes))))
        # several classes share one scale: the sum over pairs is not quite the likelihood
        assert natural == pytest.approx(best, rel=0.05 if n_classes == 2 else 0.15)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_order_of_rows_does_not_matter(n_classes):
    prior, (Z, y) = _prior(n_classes), _target(n_classes)
    order = np.random.default_rng(0).permutation(len(y))
    np.testing.assert_allclose(average_head(prior, Z[order], y[order]).coef, average_head(prior, Z, y).coef, atol=1e-6)


def test_swapping_the_two_classes_flips_the_head():
    X, y = _source()
    Z, t = _target()
    a = average_head(SourcePrior.from_moments(Moments.from_arrays(X, y)), Z, t)
    b = average_head(SourcePrior.from_moments(Moments.from_arrays(X, 1 - y)), Z, 1 - t)
    np.testing.assert_allclose(a.coef, -b.coef, atol=1e-8)
    assert a.intercept == pytest.approx(-b.intercept, abs=1e-8)


def test_a_class_without_target_rows_keeps_a_defined_score():
    prior, (Z, y) = _prior(3), _target(3)
    keep = y < 2
    head = average_head(prior, Z[keep], y[keep])
    assert head.coef.shape == (3, 12)
    assert np.all(np.isfinite(head.coef))


def test_one_labelled_row_is_enough():
    prior, (Z, y) = _prior(), _target()
    head = average_head(prior, Z[:1], y[:1])
    assert np.all(np.isfinite(head.coef))
    assert (Z[0] @ head.coef + head.intercept > 0) == y[0]


def test_many_rows_are_weighed_on_some_and_fitted_on_all():
    X, y = _source(N=600)
    prior = _prior()
    head = average_head(prior, X, y)
    assert len(head.candidates) < len(CANDIDATES)
    assert head.loo_scores.shape == (600,)
    assert np.mean((X @ head.coef + head.intercept > 0) == y) > 0.9


def test_source_wins_where_it_holds_and_yields_where_it_does_not():
    """SHOG-like: labels follow the source head, or a direction orthogonal to it."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(4000, 20)), np.arange(4000) % 2
    X[:, 0] += 2.0 * (2 * y - 1)
    prior = SourcePrior.from_moments(Moments.from_arrays(X, y))
    test = rng.normal(size=(2000, 20))
    for axis, shots, floor in ((0, 2, 0.9), (1, 64, 0.85)):
        t = np.arange(2000) % 2
        Z = test.copy()
        Z[:, axis] += 2.0 * (2 * t - 1)
        head = average_head(prior, Z[: 2 * shots], t[: 2 * shots])
        assert np.mean((Z[2 * shots :] @ head.coef + head.intercept > 0) == t[2 * shots :]) > floor


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_agree(backend):
    X, y = _source(3)
    Z, t = _target(3)
    reference = average_head(SourcePrior.from_moments(Moments.from_arrays(X, y)), Z, t)
    X, y, Z, t = to(backend, X, y, Z, t)
    ours = average_head(SourcePrior.from_moments(Moments.from_arrays(X, y)), Z, t)
    np.testing.assert_allclose(host(ours.coef), reference.coef, atol=1e-6)


def test_one_source_class_is_an_error():
    with pytest.raises(ValueError, match="at least two classes"):
        SourcePrior.from_moments(Moments.from_arrays(np.ones((4, 2)), np.zeros(4, int)))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_features_square_to_the_covariance(n_classes, kernel):
    prior, (Z, _) = _prior(n_classes), _target(n_classes)
    F = prior.features(Z, kernel)
    np.testing.assert_allclose(F @ F.T, prior.grams(Z)[kernel], atol=1e-10)
