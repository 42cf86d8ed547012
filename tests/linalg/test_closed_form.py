"""The averaged fit in closed form: exact without rows and blocks, weights are repetitions, invariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pro2.linalg.closed_form import (
    Group,
    Sums,
    average,
    fit_columns,
    only_of_their_class,
    rows_that_decide,
    temperature,
)
from pro2.linalg.labelled import Labelled, class_shares, drawn_by_class, log_shares
from pro2.linalg.moments import Moments
from pro2.linalg.prior import PriorFamily, SourcePrior

FAMILY = PriorFamily(covariances=("ranked", "whitened", "flat"))


def source(K=2, D=8, N=200, seed=0, scale=1.0, family=FAMILY):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % K
    X = rng.normal(size=(N, D)) * np.linspace(0.5, 2.0, D) + rng.normal(size=(K, D))[y]
    return SourcePrior.from_moments(Moments.from_arrays(scale * X, y), np.full(D, scale), family)


def target(K, D, M, seed=1):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K), np.arange(K), rng.integers(0, K, max(0, M - 2 * K))])[:M]
    return rng.normal(size=(M, D)) + rng.normal(size=(K, D))[y], y, rng.uniform(0.3, 3.0, M)


def group_of(prior, covariance, Z, y, c, sums=None):
    return Group.fitted(prior, covariance, 0.0, np.sqrt(c)[..., None] * Z, *fit_columns(prior, Z, y, c), sums)


def fitted(prior, X, y, c):
    fit = average([prior], X, y, c)
    return fit, *fit.head()


problems = st.tuples(
    st.integers(2, 4), st.integers(2, 12), st.integers(8, 16), st.integers(0, 1000)
)  # classes, features, labels, seed: more labels than features, and fewer


@settings(max_examples=40)
@given(problems, st.data())
def test_without_a_block_is_the_fit_to_the_others(problem, data):
    K, D, M, seed = problem
    prior, (X, y, c) = source(K, D, seed=seed), target(K, D, M, seed)
    block = np.array(sorted(data.draw(st.sets(st.integers(0, M - 1), min_size=1, max_size=M // 2))))
    rest = np.setdiff1d(np.arange(M), block)
    fit = average([prior], X, y, c)
    left, scores = fit.without(block)
    again = average([prior], X[rest], y[rest], c[rest])
    coef, intercept = again.head()
    np.testing.assert_allclose(left.weights, again.weights, atol=1e-9)
    np.testing.assert_allclose(left.head()[0], coef, atol=1e-9)
    np.testing.assert_allclose(left.head()[1], intercept, atol=1e-9)
    counts = np.log(np.bincount(y[rest], c[rest], K) + 0.5)
    expected = X[block] @ coef.T + intercept + counts - counts.mean()
    np.testing.assert_allclose(scores, expected, atol=1e-9)


@settings(max_examples=25)
@given(problems)
def test_left_out_scores_of_every_member_are_those_of_a_refit_without_the_row(problem):
    K, D, M, seed = problem
    prior, (X, y, c) = source(K, D, seed=seed), target(K, D, M, seed)
    offset = np.zeros(K)
    Z = prior.rows(X)
    for covariance in FAMILY.covariances:
        group = group_of(prior, covariance, Z, y, c)
        left_out = group.left_out(offset, np.sqrt(c))
        for i in range(0, M, 3):
            rest = np.delete(np.arange(M), i)
            other = group_of(prior, covariance, Z[rest], y[rest], c[rest])
            for r in range(len(FAMILY.prior_scales)):
                for s in range(len(prior.means)):
                    one = np.zeros((len(FAMILY.prior_scales), len(prior.means)))
                    one[r, s] = 1.0
                    coef, intercept = other.head(one, offset)
                    np.testing.assert_allclose(left_out[r, s, i], X[i] @ coef.T + intercept, atol=1e-9)


@settings(max_examples=25)
@given(problems)
def test_weights_are_repetitions_also_in_parts(problem):
    K, D, M, seed = problem
    prior, (X, y, c) = source(K, D, seed=seed), target(K, D, M, seed)
    parts = Labelled.of(np.concatenate([X, X[:3]]), np.r_[y, y[:3]], np.r_[0.25 * c[:3], c[3:], 0.75 * c[:3]])
    _, coef, intercept = fitted(prior, X, y, c)
    _, other, offset = fitted(prior, parts.X, parts.y, parts.c)
    np.testing.assert_allclose(other, coef, atol=1e-9)
    np.testing.assert_allclose(offset, intercept, atol=1e-9)


@settings(max_examples=25)
@given(
    st.sampled_from(FAMILY.covariances), st.integers(2, 4), st.integers(2, 8), st.integers(12, 20), st.integers(0, 99)
)
def test_features_and_rows_give_the_same_fit(covariance, K, D, M, seed):
    """More labels than features go through A'A, fewer through A A'; both hold at one size."""
    prior, (X, y, c) = source(K, D, seed=seed), target(K, D, M, seed)
    rng = np.random.default_rng(seed)
    Z, offset, weights = prior.rows(X), rng.normal(size=K), rng.dirichlet(np.ones(len(prior.means)), 3)
    primal = group_of(prior, covariance, Z, y, c)
    dual = group_of(prior, covariance, Z[None], y[None], c[None])  # with a leading axis always dual
    many = group_of(prior, covariance, Z[::2], y[::2], c[::2], Sums.of(prior, Z, y, c))
    assert primal.primal
    assert not dual.primal
    for other in (dual.head(weights[None], offset[None]), many.head(weights, offset)):
        for ours, theirs in zip(primal.head(weights, offset), other):
            np.testing.assert_allclose(np.squeeze(theirs), ours, atol=1e-9)
    root = np.sqrt(c)
    left_out = primal.left_out(offset, root)
    np.testing.assert_allclose(dual.left_out(offset[None], root[None])[0], left_out, atol=1e-8)
    np.testing.assert_allclose(many.left_out(offset, root[::2]), left_out[:, :, ::2], atol=1e-8)


def test_classes_without_labels_keep_their_prior_mean():
    prior, (X, y, c) = source(4, 6), target(4, 6, 12, 0)
    some = y < 2
    fit = average([prior], X[some], y[some], c[some])
    V, b = fit.head()
    mean = np.zeros(prior.coef.shape[0])
    for group, weights in zip(fit.groups, fit._weights_by_group()):
        mean += (weights @ group.prior.means).sum(axis=0)
    shrunk = fit.groups[0].prior
    for k in (2, 3):
        expected = shrunk.to_input(np.tensordot(mean, shrunk.coef, 1), np.tensordot(mean, shrunk.intercept, 1))
        np.testing.assert_allclose(V[k], expected[0][k], atol=1e-9)
        np.testing.assert_allclose(b[k], expected[1][k], atol=1e-9)
    assert np.abs(V[:2] - expected[0][:2]).max() > 0.01


@settings(max_examples=25)
@given(problems)
def test_one_logit_is_the_difference_of_two(problem):
    """The squared loss of two centred scores is that of their difference towards plus and minus the margin."""
    _, D, M, seed = problem
    family = PriorFamily(covariances=("flat",), mean_sizes=(0.0,), prior_scales=(4.0,), intercept=0.1)
    prior, (X, y, c) = source(2, D, seed=seed, family=family), target(2, D, M, seed)
    _, coef, intercept = fitted(prior, X, y, c)
    Z = prior.rows(X)
    A = np.hstack([Z / np.sqrt(prior.second_moments.trace), np.full((M, 1), np.sqrt(0.1))])
    offset = np.diff(np.log(np.bincount(y, c, 2) + 0.5))[0]
    t = family.margin * prior.unit * (2 * y - 1)
    theta = np.linalg.solve((A.T * c) @ A + prior.penalties("flat")[0] * np.eye(D + 1), (A.T * c) @ (t - offset))
    V, b = prior.to_input(theta[None, :-1] / np.sqrt(prior.second_moments.trace), np.sqrt(0.1) * theta[-1:])
    np.testing.assert_allclose(coef[1] - coef[0], V[0], atol=1e-9)
    np.testing.assert_allclose(intercept[1] - intercept[0], b[0], atol=1e-9)


def test_the_average_is_the_weighted_sum_of_single_members():
    prior, (X, y, c) = source(3, 6), target(3, 6, 15)
    fit, coef, intercept = fitted(prior, X, y, c)
    total, offset = np.zeros_like(coef), np.zeros_like(intercept)
    for member in fit.members():
        one = replace(
            prior.family, covariances=(member["covariance"],), prior_scales=(member["prior_scale"],),
            mean_sizes=(member["mean_size"],),
        )  # fmt: skip
        at = slice(member["head"], member["head"] + 1)
        alone = replace(prior, family=one, coef=prior.coef[at], intercept=prior.intercept[at])
        w, b = average([alone], X, y, c).head()
        total, offset = total + member["weight"] * w, offset + member["weight"] * b
    np.testing.assert_allclose(total, coef, atol=1e-9)
    np.testing.assert_allclose(offset, intercept, atol=1e-9)
    assert fit.weights.sum() == pytest.approx(1.0)


def test_sharpness_and_the_bonus_of_a_source_head_move_the_weights():
    X, y, c = target(2, 8, 10)
    flat, picked, bonus = (
        average([source(family=replace(FAMILY, **change))], X, y, c)
        for change in ({"sharpness": 0.0}, {"sharpness": np.inf}, {"source_bonus": 1e6})
    )
    np.testing.assert_allclose(flat.weights, 1 / len(flat.weights))
    assert sorted(picked.weights)[-1] == 1.0
    assert sum(member["weight"] for member in bonus.members() if member["mean_size"] == 0) == pytest.approx(0.0)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_only_labels_are_judged_by_prior_means(n_classes):
    """Of all scores where all classes have labels; of their own class where others have none either."""
    prior = source(n_classes, 6)
    X, y, c = target(n_classes, 6, 3)[0], np.arange(3), np.ones(3)
    assert only_of_their_class(y, n_classes).all()
    fit = average([prior], X, y, c)
    group, offset = fit.groups[0], log_shares(np.bincount(y, minlength=n_classes))
    own = group.prior.scores(group.prior.rows(X))
    left_out = group.left_out(offset, c, None if n_classes == 3 else np.arange(n_classes) < 3)
    found = iter(fit.members())
    for r in range(len(FAMILY.prior_scales)):
        for s, mean in enumerate(group.prior.means):
            F = np.tensordot(mean, own, axes=(0, 1)) + offset
            if n_classes == 5:
                judged = left_out[r, s].copy()
                judged[y, y] = F[y, y]
                F = judged
            expected = np.mean(F[y, y] - np.log(np.exp(F).sum(axis=1)))
            assert next(found)["log_likelihood"] == pytest.approx(expected)


def test_very_many_labels_are_weighed_on_part_of_them(monkeypatch):
    prior, (X, y, c) = source(3, 5, N=300), target(3, 5, 400)
    whole = average([prior], X, y, c)
    monkeypatch.setattr("pro2.linalg.closed_form.LEAST_ROWS", 60)
    monkeypatch.setattr("pro2.linalg.closed_form.MOST_SCORES", 60)
    at = rows_that_decide(prior, X, y)
    assert len(at) == 60
    assert np.bincount(y[at]).min() >= 15
    order = np.random.default_rng(0).permutation(400)
    assert set(order[rows_that_decide(prior, X[order], y[order])]) == set(at)
    part = average([prior], X, y, c)
    P, Q = (np.exp(X @ w.T + b) for w, b in (whole.head(), part.head()))
    assert np.abs(P / P.sum(1, keepdims=True) - Q / Q.sum(1, keepdims=True)).mean() < 0.02


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_the_temperature_is_the_root_of_its_slope(size):
    rng = np.random.default_rng(0)
    F, y, c = size * rng.normal(size=(4, 20, 3)), rng.integers(0, 3, (4, 20)), rng.uniform(0.5, 2.0, (4, 20))
    t = temperature(F, y, c)
    P = np.exp(t[:, None, None] * F)
    P /= P.sum(axis=-1, keepdims=True)
    # one label's worth of an even distribution in all
    n = c.sum(axis=-1, keepdims=True)[..., None]
    Q = (n * np.eye(3)[y] + 1.0 / 3.0) / (n + 1.0)
    weight = c * (n[..., 0] + 1.0) / n[..., 0]
    slope = (weight * t[:, None] * ((P - Q) * F).sum(axis=-1)).sum(axis=-1) + np.log(t) / 0.25**2
    inside = (t > np.exp(-2.5) * 1.001) & (t < np.exp(2.5) / 1.001)
    assert np.abs(slope[inside]).max(initial=0.0) < 1e-6 * max(1.0, size)
    np.testing.assert_allclose(temperature(F[1], y[1], c[1]), t[1], rtol=1e-9)


# ---- labelled rows: merged by equality, dealt into blocks; and what they say about class shares


def test_equal_rows_with_equal_labels_become_one():
    X = np.array([[1.0, 0.0], [2.0, 3.0], [1.0, -0.0], [1.0, 0.0], [2.0, 3.0]])
    rows = Labelled.of(X, np.array([0, 1, 0, 1, 1]), np.array([1.0, 1.0, 0.5, 1.0, 0.0]))
    assert rows.number.tolist() == [0, 1, 3]
    assert rows.first.tolist() == [0, 1, 0, 3, -1]
    assert rows.c.tolist() == [1.5, 1.0, 1.0]
    assert rows.y.tolist() == [0, 1, 1]
    assert rows.counts(3).tolist() == [1.5, 2.0, 0.0]


def test_rows_that_differ_in_one_place_are_two_rows():
    X = np.zeros((40, 300))
    X[np.arange(40), np.arange(40) * 7] = 1.0
    assert len(Labelled.of(X, np.zeros(40, dtype=int)).y) == 40


def test_blocks_deal_every_class_evenly_and_the_only_ones_apart():
    rows = Labelled.of(np.arange(17.0)[:, None], np.r_[np.zeros(6), np.ones(5), np.arange(2, 8)].astype(int))
    block = rows.blocks(3, np.random.default_rng(0), by_class=True)
    assert np.bincount(block[rows.y == 0]).tolist() == [2, 2, 2]
    assert sorted(np.bincount(block[rows.y == 1])) == [1, 2, 2]
    assert len(np.unique(block[rows.y > 1])) == 3
    assert sorted(np.bincount(rows.blocks(4, np.random.default_rng(0), by_class=False))) == [4, 4, 4, 5]


@pytest.mark.parametrize(("sampling", "expected"), [("by_class", 1.0), ("suggested", 1.0), ("random", 0.0)])
def test_what_is_said_of_the_sampling_holds(sampling, expected):
    assert drawn_by_class(np.array([3.0, 9.0]), sampling) == expected


def test_the_more_equal_the_counts_the_more_they_were_asked_for():
    found = drawn_by_class(np.array([[8.0, 8.0], [7.0, 9.0], [2.0, 14.0]]), "auto")
    assert found[0] == 1.0
    assert found[0] > found[1] > found[2]
    assert found[2] < 1e-3


def test_assumed_shares_lie_between_equal_ones_and_the_sources():
    source = np.array([0.9, 0.1])
    asked = class_shares(np.array([8.0, 8.0]), source, 0.5, "by_class")
    assert 0.5 < asked.shares[0] < 0.9
    drawn = class_shares(np.array([800.0, 200.0]), source, 0.5, "random")
    assert drawn.shares[0] == pytest.approx(0.8, abs=0.01)
    np.testing.assert_allclose(np.exp(asked.assumed) / np.exp(asked.assumed).sum(), asked.shares)
    assert asked.assumed.sum() == pytest.approx(0.0)
