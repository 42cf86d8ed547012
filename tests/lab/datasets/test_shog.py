"""Shifted Gaussians: closed forms against sampling, and the shape of the paper's figure."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from pro2.lab.datasets.shog import Shog, make_shog
from pro2.lab.theory import nullspace_norm
from pro2.lab.theory.bounds import gaussian_kl
from pro2.linalg.bases import krylov_basis


@pytest.fixture(scope="module")
def shog():
    return make_shog(random_state=0)


def nullspace(shog, domain):
    rows = krylov_basis(shog.moments(), shog.n_features).components
    w = shog.head(domain)[0]
    left = [w - rows[:k].T @ (rows[:k] @ w) for k in range(1, len(rows) + 1)]
    return np.linalg.norm(left, axis=1) / np.linalg.norm(w)


def best_accuracy(shog, domain):
    return shog.accuracy(domain, *shog.head(domain))


def test_domains_and_shapes(shog):
    assert shog.targets == ("id", "near", "far")
    assert shog.means.shape == (2, 20)
    for name in ("source", *shog.targets):
        values = np.linalg.eigvalsh(shog.covariance(name))
        assert values[0] > 0
        assert values[-1] / values[0] > 2, "every covariance is anisotropic"
    assert np.allclose(shog.covariance("id"), shog.covariance("source"))


def test_best_accuracy_is_the_same_in_every_domain(shog):
    for name in shog.targets:
        assert best_accuracy(shog, name) == pytest.approx(norm.cdf(2.0), abs=1e-10)


@pytest.mark.parametrize("domain", ["id", "near", "far"])
def test_sampling_agrees_with_closed_forms(shog, domain):
    X, y = shog.sample(domain, 200_000, random_state=1)
    for k in (0, 1):
        assert np.abs(X[y == k].mean(axis=0) - shog.means[k]).max() < 0.02
        assert np.abs(np.cov(X[y == k].T) - shog.covariance(domain)).max() < 0.02 * shog.covariance(domain).max() + 0.01
    coef, intercept = shog.head("source")
    measured = np.mean((X @ coef + intercept > 0) == y)
    assert measured == pytest.approx(shog.accuracy(domain, coef, intercept), abs=0.004)


def test_the_head_is_the_exact_posterior(shog):
    X = shog.sample("near", 4, random_state=3)[0]
    coef, intercept = shog.head("near")
    inverse = np.linalg.inv(shog.covariance("near"))
    logp = [-0.5 * np.einsum("ij,jk,ik->i", X - m, inverse, X - m) for m in shog.means]
    assert np.allclose(X @ coef + intercept, logp[1] - logp[0])


def test_no_head_beats_the_optimal_one(shog):
    rng = np.random.default_rng(0)
    coef, intercept = shog.head("far")
    for _ in range(20):
        nearby = coef + 0.2 * np.linalg.norm(coef) * rng.standard_normal(20) / np.sqrt(20)
        assert shog.accuracy("far", nearby, intercept) < best_accuracy(shog, "far")


def test_kl_is_zero_in_distribution_and_grows_with_the_shift(shog):
    assert shog.kl("id") == pytest.approx(0.0, abs=1e-10)
    assert 1 < shog.kl("near") < shog.kl("far") / 3


def test_kl_agrees_with_a_monte_carlo_estimate(shog):
    X, y = shog.sample("source", 200_000, random_state=2)
    Z = X - shog.means[y]

    def log_density(cov):
        return -0.5 * (np.einsum("ij,ij->i", Z, np.linalg.solve(cov, Z.T).T) + np.linalg.slogdet(cov)[1])

    ratio = log_density(shog.covariance("source")) - log_density(shog.covariance("near"))
    assert ratio.mean() == pytest.approx(shog.kl("near"), abs=5 * ratio.std() / np.sqrt(len(ratio)))


def test_kl_counts_a_mean_shift():
    eye = np.eye(3)
    assert gaussian_kl(np.zeros(3), eye, np.array([3.0, 0, 0]), eye) == pytest.approx(4.5)


def test_kl_refuses_a_singular_covariance():
    with pytest.raises(ValueError, match="covariance_q is not positive definite"):
        gaussian_kl(np.zeros(2), np.eye(2), np.zeros(2), np.diag([1.0, -1.0]))


def test_nullspace_norm_has_the_shape_of_the_figure(shog):
    same, near, far = (nullspace(shog, d) for d in shog.targets)
    assert same.max() < 1e-6
    assert near[0] > 0.3, "one feature is not enough near"
    assert near[3] < 0.25, "a few are"
    assert far[3] > 0.75, "far out a few are not"
    assert np.all(far[:15] >= near[:15])
    assert far[-1] < 1e-6
    for curve in (near, far):
        assert np.all(np.diff(curve) <= 1e-9)


def test_low_dimensional_bias_far_out_of_distribution(shog):
    rows = krylov_basis(shog.moments(), 20).components
    far, bases = shog.covariance("far"), (rows[:d] for d in (1, 4, 8, 20))
    spans = [Shog(shog.means @ basis.T, {"far": basis @ far @ basis.T}) for basis in bases]
    loss = [best_accuracy(shog, "far") - best_accuracy(span, "far") for span in spans]
    assert loss[0] > 0.3, "the paper reports a bias of up to 40 points"
    assert loss == sorted(loss, reverse=True)
    assert loss[-1] == pytest.approx(0.0, abs=1e-9)


def test_orientation_changes_nothing_but_the_axes():
    a, b = make_shog(random_state=0), make_shog(random_state=5)
    assert not np.allclose(a.covariance("source"), b.covariance("source"))
    assert a.kl("far") == pytest.approx(b.kl("far"))
    assert np.allclose(nullspace(a, "far"), nullspace(b, "far"), atol=1e-6)


def test_the_same_seed_gives_the_same_rows():
    a, b = make_shog(random_state=7), make_shog(random_state=7)
    assert np.array_equal(a.sample("near", 6, 1)[0], b.sample("near", 6, 1)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_shog(1), "n_features must be at least 2"),
        (lambda: make_shog(condition=1.0), "condition must be"),
        (lambda: make_shog(separation=np.inf), "separation must be"),
        (lambda: make_shog().sample("mars", 2), "domain='mars' is unknown"),
        (lambda: make_shog().sample("id", 0), "n_samples must be at least 1"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_whole_powers_are_reached_exactly_and_others_only_approached() -> None:
    """What docs/method.md says: the head S^-p mu lies in span{S^-1 mu, ..., S^-d mu} for d = p, and for no other p."""
    shog = make_shog(random_state=0)
    rows = krylov_basis(shog.moments(), 8).components
    S, step = shog.covariance("source"), shog.means[1] - shog.means[0]
    values, axes = np.linalg.eigh(S)
    norms = {p: nullspace_norm(rows, axes @ (values**-p * (axes.T @ step))) for p in (1.0, 2.0, 3.0, 0.25, -1.0)}
    for p in (1, 2, 3):
        assert norms[p][p - 1] < 1e-6
        assert p == 1 or norms[p][p - 2] > 1e-3
    assert norms[0.25][-1] > 1e-3
    assert np.all(norms[-1.0] > norms[0.25])
