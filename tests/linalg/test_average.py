"""Laws of the averaged head: weights, leave-one-out, importances of rows, and when it is the paper's probe."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.linalg.average import average_head, temperature
from pro2.linalg.family import Member, PriorFamily
from pro2.linalg.labels import Labels, class_shift
from pro2.linalg.probes import fit_logistic
from tests.linalg.source import D, make_average, make_prior, make_source, make_target


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def problem(request):
    X, y = make_source(request.param)
    return make_prior(X, y), *make_target(request.param)


def two_frames(n_classes: int = 2):
    X, y = make_source(n_classes)
    return [make_prior(X, y, scale=scale) for scale in ("standard", "global")]


def logits(head, X):
    return X @ head.coef.T + head.intercept


def close(a, b, tol=1e-4):
    """Modes are found to five digits of the scores."""
    np.testing.assert_allclose(a.coef, b.coef, atol=tol * np.abs(b.coef).max())
    np.testing.assert_allclose(a.intercept, b.intercept, atol=tol * max(1.0, np.abs(b.intercept).max()))


def test_weights_of_all_members_of_all_frames_sum_to_one():
    priors = two_frames()
    head = make_average(priors, *make_target())
    assert head.converged
    assert head.members == [
        (p.name, m) for p in priors for k in p.family.covariances for m in p.family.members() if m.covariance == k
    ]
    assert head.weights.sum() == pytest.approx(1.0)
    assert len(head.weights) == len(head.loo) == len(head.members)


@pytest.mark.parametrize("n_rows", [20, 400], ids=["all priors", "screened"])
def test_rows_that_are_left_out_have_no_say_in_the_best_priors(n_rows):
    Z, t = make_target(M=n_rows)
    t = np.where(np.arange(n_rows) % 4 < 2, t, 1 - t)  # half of the rows contradict the source
    standing = make_average(two_frames(), Z, t).standing
    assert len(standing.members) == 2 * len(PriorFamily().members())
    agrees = standing.number % 4 < 2
    # those that agree want the source head large, the others as small as it may be
    assert {member.size for _, member in standing.best(standing.number[agrees], 2)} == {4.0}
    assert max(member.size for _, member in standing.best(standing.number[~agrees], 2)) <= 0.25


@pytest.mark.parametrize("n_rows", [20, 400], ids=["all priors", "screened"])
def test_labels_of_no_weight_have_no_say(n_rows):
    Z, t = make_target(M=n_rows)
    standing = make_average(two_frames(), Z, t, np.full(n_rows, 1e-12)).standing
    np.testing.assert_allclose(standing.score, standing.trust, atol=1e-6)


def test_the_temperature_follows_the_labels_without_a_jump():
    """Its search once ended on points half a per cent apart, so that rounding alone moved all logits by as much."""
    rng = np.random.default_rng(0)
    scores, Y, c = 3.0 * rng.normal(size=(16, 1)), (np.arange(16)[:, None] % 2).astype(float), np.ones(16)
    found = [temperature(scores, Y, c + step * np.eye(16)[3]) for step in np.linspace(0.0, 1.0, 1001)]
    steps = np.diff(found)
    assert np.all(steps > 0) or np.all(steps < 0)
    assert np.abs(steps).max() < 3 * np.abs(steps).mean()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_second_label_of_a_class_comes_gradually(n_classes):
    """The only label of a class judges its priors in another way: a second one of no weight once changed that."""
    prior = make_prior(*make_source(n_classes))
    Z, t = make_target(n_classes, M=2 * n_classes)
    one = make_average(prior, Z[:-1], t[:-1])
    c = np.r_[np.ones(2 * n_classes - 1), 1e-7]
    close(make_average(prior, Z, t, c), one)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_average_is_the_weighted_sum_of_single_heads(n_classes):
    priors, (Z, t) = two_frames(n_classes), make_target(n_classes)
    some = [priors[0].family.members()[::7], priors[1].family.members()[3::9]]
    both = make_average(priors, Z, t, members=some)
    each = [([[m], []] if k == 0 else [[], [m]]) for k in (0, 1) for m in sorted(some[k], key=lambda m: m.covariance)]
    single = [make_average(priors, Z, t, members=one) for one in each]
    assert [h.members[0] for h in single] == both.members
    coef = sum(w * h.coef / h.temperature for w, h in zip(both.weights, single))
    np.testing.assert_allclose(both.coef / both.temperature, coef, atol=1e-8)
    trust = priors[0].family.trust * np.array(
        [priors[0 if n == "standard" else 1].log_accuracy(m) for n, m in both.members]
    )
    score = len(t) * both.loo + trust
    np.testing.assert_allclose(both.weights, np.exp(score - score.max()) / np.exp(score - score.max()).sum(), atol=1e-8)


def test_sharpness_picks_the_best_and_trust_the_source():
    X, y = make_source()
    Z, t = make_target()
    best = make_average(make_prior(X, y, PriorFamily(sharpness=np.inf)), Z, t)
    assert sorted(best.weights)[-1] == 1.0
    believer = make_average(make_prior(X, y, PriorFamily(trust=1e6)), Z, t)
    centred = [w for w, (_, m) in zip(believer.weights, believer.members) if m.size > 0]
    assert sum(centred) == pytest.approx(1.0)


def test_an_edge_instead_of_a_slope_is_the_papers_probe():
    """All variance on the first d features, equal there, no centre, an intercept that is as good as free."""
    d, reach = 4, 0.7
    family = PriorFamily(
        covariances=("ranked",),
        ranked=1.0,
        decay=0.0,
        n_ranked=d,
        sizes=(0.0,),
        reaches=(reach,),
        intercept=1e5,
        tolerance=1e9,
    )
    prior = make_prior(*make_source(), family)
    Z, t = make_target(M=16)
    head = make_average(prior, Z, t)
    features = prior.rows(Z, np.ones(D)) @ prior.ranked.directions.T
    precision = prior.precision(Member("ranked", reach, 0.0, np.inf))
    probe = fit_logistic(features, t, precision / prior.ranked.along[0] / len(t))
    scores = (logits(head, Z) / head.temperature)[:, 0]
    np.testing.assert_allclose(scores, features @ probe.coef + probe.intercept, atol=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rotating_everything_rotates_the_head(n_classes):
    X, y = make_source(n_classes)
    Z, t = make_target(n_classes)
    Q, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(D, D)))
    # damping goes feature by feature, so it is no rotation's friend
    family = PriorFamily(tolerance=1e9)
    plain = make_average(make_prior(X, y, family, "global"), Z, t)
    turned = make_average(make_prior(X @ Q, y, family, "global"), Z @ Q, t)
    np.testing.assert_allclose(turned.coef, plain.coef @ Q, atol=1e-4)
    np.testing.assert_allclose(turned.intercept, plain.intercept, atol=1e-4)


def test_order_of_rows_does_not_matter(problem):
    prior, Z, t = problem
    order = np.random.default_rng(0).permutation(len(t))
    close(make_average(prior, Z[order], t[order]), make_average(prior, Z, t))


def test_swapping_the_two_classes_flips_the_head():
    X, y = make_source()
    Z, t = make_target()
    a, b = make_average(make_prior(X, y), Z, t), make_average(make_prior(X, 1 - y), Z, 1 - t)
    np.testing.assert_allclose(a.coef, -b.coef, atol=1e-5)
    np.testing.assert_allclose(a.intercept, -b.intercept, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_leave_one_out_of_the_average_is_what_refitting_without_the_row_gives(n_classes):
    prior = make_prior(*make_source(n_classes))
    rng = np.random.default_rng(8)
    Z, t = make_target(n_classes, M=6 * n_classes)
    Z = Z + 2.0 * rng.normal(size=Z.shape)  # rows that are not all easy
    labels = Labels.of(Z, t)
    shift = class_shift(labels, np.full(n_classes, 1 / n_classes), prior.family, "auto")
    head = average_head([prior], labels, shift)
    exact = []
    for i in range(len(t)):
        one = average_head([prior], labels.take(np.flatnonzero(np.arange(len(t)) != i)), shift)
        exact.append((Z[i] @ one.coef.T + one.intercept) / one.temperature)
    exact, told = np.array(exact), head.loo_scores / head.temperature
    if n_classes > 2:
        exact, told = exact - exact.mean(axis=1, keepdims=True), told - told.mean(axis=1, keepdims=True)
    assert np.corrcoef(told.ravel(), exact.ravel())[0, 1] > 0.97
    right = [(F[:, 0] > 0) == t if n_classes == 2 else F.argmax(axis=1) == t for F in (told, exact)]
    assert abs(np.mean(right[0]) - np.mean(right[1])) <= 1 / len(t)


class TestWeights:
    """Weights are importances."""

    def test_equal_rows_with_equal_labels_become_one(self):
        X = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 2.0]])
        labels = Labels.of(X, np.array([0, 1, 0, 1]), np.array([0.25, 1.0, 0.5, 2.0]))
        np.testing.assert_array_equal(labels.X, X[[0, 1, 3]])
        np.testing.assert_array_equal(labels.y, [0, 1, 1])
        np.testing.assert_array_equal(labels.c, [0.75, 1.0, 2.0])

    def test_minus_zero_is_zero(self):
        labels = Labels.of(np.array([[0.0], [-0.0]]), np.array([1, 1]))
        np.testing.assert_array_equal(labels.c, [2.0])

    @pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
    def test_a_weight_is_a_repetition_whole_or_in_parts(self, problem, share):
        prior, Z, t = problem
        once = make_average(prior, Z, t, np.r_[3 * share, np.full(len(t) - 1, 1.0)])
        rows = np.r_[0, 0, np.arange(len(t))]
        parts = make_average(prior, Z[rows], t[rows], np.r_[np.full(3, share), np.ones(len(t) - 1)])
        close(parts, once, 1e-9)
        assert parts.loo_scores.shape == once.loo_scores.shape

    def test_a_row_of_weight_zero_is_absent(self, problem):
        prior, Z, t = problem
        weight = np.r_[1.0, 0.0, np.ones(len(t) - 2)]
        keep = weight > 0
        close(make_average(prior, Z, t, weight), make_average(prior, Z[keep], t[keep]), 1e-12)
        one = make_average(prior, Z, t, np.r_[1.0, np.zeros(len(t) - 1)])
        close(one, make_average(prior, Z[:1], t[:1]), 1e-12)

    def test_a_hardly_weighted_row_hardly_counts(self, problem):
        prior, Z, t = problem
        almost = make_average(prior, Z, t, np.r_[1e-9, np.ones(len(t) - 1)], sampling="by_class")
        close(almost, make_average(prior, Z[1:], t[1:], sampling="by_class"), 1e-3)

    def test_scaling_all_weights_is_that_many_labels(self, problem):
        """More evidence moves further from the prior; the leave-one-out loss of a small unit stays sane."""
        prior, Z, t = problem
        sizes = (1 / 16, 1.0, 16.0)
        heads = [make_average(prior, Z, t, np.full(len(t), size)) for size in sizes]
        for size, head in zip(sizes, heads):
            np.testing.assert_allclose(head.labels.c.sum(), size * len(t))
            assert np.all(head.loo > -3.0)
        entropy = [-np.sum(h.weights * np.log(h.weights + 1e-300)) for h in heads]
        assert entropy[0] > entropy[2]


def test_folds_deal_every_class_evenly():
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3])
    labels = Labels.of(np.arange(len(y))[:, None].astype(float), y)
    fold = labels.folds(4)
    for k in range(4):
        assert np.bincount(fold[y == k], minlength=4).max() == 1
    single = Labels.of(np.arange(4)[:, None].astype(float), np.arange(4)).folds(4)
    assert len(set(single)) == 4


class TestClassShift:
    """How labels were drawn is a parameter."""

    shares = np.array([0.9, 0.1])

    def shift(self, counts, sampling="auto", shares=None):
        t = np.repeat(np.arange(len(counts)), [int(np.ceil(c)) for c in counts])
        weight = np.repeat(np.array(counts) / np.ceil(counts), [int(np.ceil(c)) for c in counts])
        labels = Labels.of(np.arange(len(t))[:, None].astype(float), t, weight)
        return class_shift(labels, self.shares if shares is None else shares, PriorFamily(), sampling)

    def test_labels_drawn_at_random_tell_the_shares(self):
        asked = self.shift([1, 1], "by_class").shares  # is worth two labels per class
        np.testing.assert_allclose(self.shift([3, 9], "random").shares, (np.array([3, 9]) + 4 * asked) / 16)
        np.testing.assert_allclose(self.shift([3000, 9000], "random").shares, [0.25, 0.75], atol=1e-3)

    @pytest.mark.parametrize("sampling", ["by_class", "suggested"])
    def test_labels_asked_for_tell_nothing(self, sampling):
        expected = np.sqrt(self.shares) / np.sqrt(self.shares).sum()
        for counts in ([8, 8], [3, 9]):
            np.testing.assert_allclose(self.shift(counts, sampling).shares, expected)

    def test_auto_goes_by_how_equal_counts_are(self):
        np.testing.assert_allclose(self.shift([8, 8]).shares, self.shift([8, 8], "by_class").shares)
        np.testing.assert_allclose(self.shift([90, 900]).shares, self.shift([90, 900], "random").shares, atol=0.02)

    def test_auto_believes_the_shares_of_many_labels_more_than_those_of_few(self):
        asked, few, many = (self.shift(*a).shares[0] for a in (([5, 5], "by_class"), ([1, 8],), ([40, 320],)))
        assert 1 / 9 < many < few < asked

    def test_shares_of_more_classes_need_more_labels(self):
        found = self.shift([3, 9, 6], "random", np.full(3, 1 / 3)).shares
        np.testing.assert_allclose(found, (np.array([3, 9, 6]) + 2) / (18 + 6))

    def test_auto_is_continuous_in_the_weights(self):
        a, b = self.shift([8, 8]), self.shift([8, 8 * (1 + 1e-6)])
        assert abs(float(b.assumed[0] - a.assumed[0])) < 1e-4
        for count in np.linspace(4, 24, 200):
            step = self.shift([8, count + 0.01]).assumed - self.shift([8, count]).assumed
            assert abs(float(step[0])) < 0.02

    def test_one_more_label_changes_little(self):
        assert abs(self.shift([8, 8]).shares[1] - self.shift([8, 9]).shares[1]) < 0.05

    def test_shares_move_the_intercept_alone(self, problem):
        prior, Z, t = problem
        K = prior.n_classes
        unequal = np.arange(1.0, K + 1) / np.arange(1.0, K + 1).sum()
        equal, moved = (make_average(prior, Z, t, shares=s) for s in (None, unequal))
        np.testing.assert_array_equal(moved.coef, equal.coef)
        expected = 0.5 * np.log(unequal)
        expected = expected[1:] - expected[:1] if K == 2 else expected - expected.mean()
        np.testing.assert_allclose(moved.intercept - equal.intercept, expected, atol=1e-9)


@pytest.mark.parametrize(("scores", "expected"), [(-100.0, -2.5), (1e-3, 2.5)])
def test_the_temperature_stays_within_its_range(scores, expected):
    """Sure and wrong, or right but hardly so, whatever the number of labels."""
    Y = np.tile([[0.0], [1.0]], (5000, 1))
    assert np.log(temperature(scores * (2 * Y - 1), Y, np.full(10000, 10.0))) == pytest.approx(expected)
