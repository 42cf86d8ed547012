"""Shifted Gaussians and digit collages: closed forms against sampling, and what a target keeps of its source."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from pro2 import Projection
from pro2.lab.datasets.digits import PAIRS, make_digit_collages
from pro2.lab.datasets.shog import Shog, make_shog
from pro2.lab.theory import nullspace_norm


@pytest.fixture(scope="module")
def shog():
    return make_shog(random_state=0)


def ranked(shog, n):
    return Projection(n, scale=None, ridge=0.0).fit_moments(shog.moments()).components_


def test_every_domain_has_an_anisotropic_covariance_and_the_same_best_accuracy(shog):
    assert shog.targets == ("id", "near", "far")
    for name in ("source", *shog.targets):
        values = np.linalg.eigvalsh(shog.covariance(name))
        assert values[0] > 0
        assert values[-1] / values[0] > 2
        assert shog.accuracy(name, *shog.head(name)) == pytest.approx(norm.cdf(2.0), abs=1e-10)
    assert np.allclose(shog.covariance("id"), shog.covariance("source"))


@pytest.mark.parametrize("domain", ["id", "near", "far"])
def test_sampling_agrees_with_closed_forms(shog, domain):
    X, y = shog.sample(domain, 200_000, random_state=1)
    S = shog.covariance(domain)
    for k in (0, 1):
        assert np.abs(X[y == k].mean(axis=0) - shog.means[k]).max() < 0.02
        assert np.abs(np.cov(X[y == k].T) - S).max() < 0.02 * S.max() + 0.01
    coef, intercept = shog.head("source")
    assert np.mean((X @ coef + intercept > 0) == y) == pytest.approx(shog.accuracy(domain, coef, intercept), abs=0.004)


def test_the_head_is_the_exact_posterior_and_no_other_is_better(shog):
    X, (coef, intercept) = shog.sample("near", 4, random_state=3)[0], shog.head("near")
    inverse = np.linalg.inv(shog.covariance("near"))
    logp = [-0.5 * np.einsum("ij,jk,ik->i", X - m, inverse, X - m) for m in shog.means]
    assert np.allclose(X @ coef + intercept, logp[1] - logp[0])
    rng = np.random.default_rng(0)
    for _ in range(20):
        nearby = coef + 0.2 * np.linalg.norm(coef) * rng.standard_normal(20) / np.sqrt(20)
        assert shog.accuracy("near", nearby, intercept) < shog.accuracy("near", coef, intercept)


def test_kl_is_zero_in_distribution_grows_with_the_shift_and_agrees_with_monte_carlo(shog):
    assert 0 <= shog.kl("id") < 1e-10  # the bound refuses a negative one
    assert 1 < shog.kl("near") < shog.kl("far") / 3
    X, y = shog.sample("source", 200_000, random_state=2)
    Z = X - shog.means[y]

    def log_density(cov):
        return -0.5 * (np.einsum("ij,ij->i", Z, np.linalg.solve(cov, Z.T).T) + np.linalg.slogdet(cov)[1])

    ratio = log_density(shog.covariance("source")) - log_density(shog.covariance("near"))
    assert ratio.mean() == pytest.approx(shog.kl("near"), abs=5 * ratio.std() / np.sqrt(len(ratio)))


def test_low_dimensional_bias_far_out_of_distribution(shog):
    rows, far = ranked(shog, 20), shog.covariance("far")
    spans = [Shog(shog.means @ rows[:d].T, {"far": rows[:d] @ far @ rows[:d].T}) for d in (1, 4, 8, 20)]
    best = shog.accuracy("far", *shog.head("far"))
    loss = [best - span.accuracy("far", *span.head("far")) for span in spans]
    assert loss[0] > 0.3, "the paper reports a bias of up to 40 points"
    assert loss == sorted(loss, reverse=True)
    assert loss[-1] == pytest.approx(0.0, abs=1e-9)


def test_the_seed_decides_the_orientation_and_nothing_else(shog):
    other = make_shog(random_state=5)
    assert not np.allclose(shog.covariance("source"), other.covariance("source"))
    assert shog.kl("far") == pytest.approx(other.kl("far"))
    curves = [nullspace_norm(ranked(s, 20), s.head("far")[0]) for s in (shog, other)]
    assert np.allclose(*curves, atol=1e-6)
    assert np.array_equal(make_shog(random_state=0).sample("near", 6, 1)[0], shog.sample("near", 6, 1)[0])


def test_whole_powers_are_reached_exactly_and_others_only_approached(shog):
    """What docs/method.md says: the head S^-p mu lies in span{S^-1 mu, ..., S^-d mu} for d = p, and for no other p."""
    rows, step = ranked(shog, 8), shog.means[1] - shog.means[0]
    values, axes = np.linalg.eigh(shog.covariance("source"))
    norms = {p: nullspace_norm(rows, axes @ (values**-p * (axes.T @ step))) for p in (1.0, 2.0, 3.0, 0.25, -1.0)}
    for p in (1, 2, 3):
        assert norms[p][p - 1] < 1e-6
        assert p == 1 or norms[p][p - 2] > 1e-3
    assert norms[0.25][-1] > 1e-3
    assert np.all(norms[-1.0] > norms[0.25])


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


def test_digit_collages_share_no_image_between_source_and_targets():
    table = make_digit_collages(300, 100)
    X, y, split = table.embeddings, table.column("y"), table.column("split")
    assert sorted(set(split.tolist())) == sorted(["source", *(f"{a}/{b}" for a, b in PAIRS)])
    assert np.abs(np.bincount(y[split == "source"]) - 150).max() == 0
    blocks = X.reshape(-1, 2, 8, 2, 8).transpose(0, 1, 3, 2, 4).reshape(len(X), 4, 64)
    source = {block.tobytes() for row in blocks[split == "source"] for block in row}
    assert not source & {block.tobytes() for row in blocks[split != "source"] for block in row}
