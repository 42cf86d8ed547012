"""Averaged Pro2: the ranked features carry it, labels weigh it, and nothing the caller gives is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pro2 import ProjectAndProbe, Projection
from pro2.lab.datasets.shifts import group_targets
from pro2.linalg.logistic import fit_path
from pro2.linalg.prior import PriorFamily, ranked_variance
from pro2.tables.draws import draw


def make_data(n_classes=2, N=900, D=16, seed=0, labels=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, N)
    mean = np.random.default_rng(7).normal(size=(n_classes, D)) * 0.5
    X = mean[y] + rng.normal(size=(N, D)) * np.linspace(0.5, 2.0, D)
    return X, (y if labels is None else np.asarray(labels)[y])


@pytest.fixture(scope="module")
def binary():
    X, y = make_data()
    return ProjectAndProbe().fit(X[:600], y[:600]), X[600:], y[600:]


@pytest.fixture(scope="module")
def three():
    X, y = make_data(3, labels=["cat", "dog", "owl"])
    return ProjectAndProbe().fit(X[:600], y[:600]), X[600:], y[600:]


def balanced(y, n):
    return np.concatenate([np.flatnonzero(y == k)[:n] for k in np.unique(y)])


@pytest.mark.parametrize("sampling", ["by_class", "auto"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_adapting_to_the_source_itself_keeps_its_accuracy(n_classes, sampling):
    X, y = make_data(n_classes, N=2600)
    model = ProjectAndProbe(label_sampling=sampling).fit(X[:600], y[:600])
    rest, shortfall = np.arange(1000, 2600), []
    for start in range(600, 840, 6):
        few = np.arange(start, start + 6)
        shortfall.append(model.score(X[rest], y[rest]) - model.adapt(X[few], y[few]).score(X[rest], y[rest]))
    assert np.mean(shortfall) < 0.03


class TestRankedFeatures:
    """The ranked directions matter."""

    def ranked_problem(self, seed):
        """Four of 400 directions tell the classes apart; on the target two of them mean the opposite."""
        rng, D = np.random.default_rng(seed), 400
        turn = np.linalg.qr(rng.normal(size=(D, D)))[0]
        deviation = np.r_[np.geomspace(1 / 3, 3, 4) ** 0.5, np.ones(D - 4)]

        def rows(n, signs):
            y = np.arange(n) % 2
            means = np.r_[signs, np.zeros(D - 4)] * 0.6 * deviation
            return (rng.normal(size=(n, D)) * deviation + (2 * y[:, None] - 1) * means) @ turn, y

        return rows(6000, np.ones(4)), rows(24, [-1, 1, -1, 1]), rows(3000, [-1, 1, -1, 1])

    def test_random_orthonormal_components_lose_accuracy(self):
        """Averaged Pro2, the same prior mean and labels: what is lost is what the ranking knew."""
        lost = []
        for seed in range(4):
            source, few, test = self.ranked_problem(seed)
            family = PriorFamily(covariances=("ranked",), ranked_share=0.9)
            model = ProjectAndProbe(priors=family, scale="global").fit(*source)
            ours, rng = model.adapt(*few).score(*test), np.random.default_rng(seed)
            (prior,) = model.priors_
            basis = np.linalg.qr(rng.normal(size=prior.directions.T.shape))[0].T
            C = prior.second_moments
            along, traces = ranked_variance(basis, C.product(basis), C, family.ranked_share)
            random = replace(prior, directions=basis, along=along, traces=prior.traces | {"ranked": traces})
            model._derived["priors"] = (random,)
            lost.append(ours - model.adapt(*few).score(*test))
        assert min(lost) > 0
        assert np.mean(lost) > 0.04

    def test_leave_one_out_may_choose_all_features(self):
        """As in the paper, whose grid ends at 1,024 features."""
        X, y = make_data(D=200, N=600)
        model = ProjectAndProbe().fit(X, y)
        assert model.projection_.components_.shape == (128, 200)
        for options in ({"n_features": "loo", "l2": "loo"}, {"n_features": "auto", "l2": 0.01}):
            assert model.set_params(**options).projection_.components_.shape == (200, 200)
            assert ProjectAndProbe(**options).fit(X, y).projection_.components_.shape == (200, 200)


@pytest.mark.parametrize(
    "change", [{"source_bonus": 0.0}, {"mean_sizes": (0.0,)}, {"prior_scales": (100.0,)}, {"covariances": ("flat",)}]
)
def test_another_family_gives_another_head(binary, change):
    model, X, y = binary
    source, t = make_data()
    other = ProjectAndProbe(priors=PriorFamily(**change)).fit(source[:600], t[:600])
    assert np.abs(other.adapt(X[:12], y[:12]).coef_ - model.adapt(X[:12], y[:12]).coef_).max() > 1e-5


def test_a_family_must_be_one():
    with pytest.raises(TypeError, match="priors must be a PriorFamily, got dict"):
        ProjectAndProbe(priors={"ridge": 1.0}).fit(*make_data())


def test_one_class_of_labels_and_missing_classes_stay_defined(three):
    model, X, y = three
    only = np.flatnonzero(y == "cat")[:4]
    P = model.adapt(X[only], y[only]).predict_proba(X)
    assert np.all(np.isfinite(P))
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert P[:, 1:].max() > 0


@settings(max_examples=16)
@given(st.sampled_from([24, 120]), st.integers(2, 4), st.integers(2, 60), st.integers(1, 40), st.integers(0, 999))
def test_names_order_units_and_precision_change_nothing(N, K, D, M, seed):
    """Nor does a rotation, with one scale for all features and none shrunk by itself."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(N) % K, rng.integers(0, K, M)])
    X = rng.normal(size=(N + M, D)) * np.linspace(0.5, 2.0, D) + rng.normal(size=(K, D))[y]
    family, turn = PriorFamily(tolerance=1e9), np.linalg.qr(rng.normal(size=(D, D)))[0]
    names, order, few = rng.permutation(K), rng.permutation(N), rng.permutation(M) + N

    def scores(rows, labels, source=slice(0, N), target=slice(N, None)):
        model = ProjectAndProbe(scale="global", priors=family).fit(rows[source], labels[source])
        return np.log(model.adapt(rows[target], labels[target]).predict_proba(rows))

    plain = scores(X, y)
    np.testing.assert_allclose(scores(X, y, order, few), plain, atol=1e-8)
    np.testing.assert_allclose(scores(X, names[y])[:, names], plain, atol=1e-8)
    np.testing.assert_allclose(scores(1e-3 * X, y), plain, atol=1e-7)
    np.testing.assert_allclose(scores(X @ turn, y), plain, atol=1e-7)
    np.testing.assert_allclose(np.exp(scores(X.astype(np.float32), y)), np.exp(plain), atol=1e-4)


class TestWeights:
    """Importances: repetition, absence, and continuity."""

    @pytest.mark.parametrize("options", [{}, {"l2": 0.1, "n_features": 4}, {"l2": "loo", "n_features": "loo"}])
    @pytest.mark.parametrize("case", ["both classes", "one class", "one class and validation rows"])
    def test_a_weight_is_a_repetition_also_in_parts_and_zero_is_absence(self, options, case):
        source, t = make_data()
        rows = 600 + (np.arange(10) if case == "both classes" else np.flatnonzero(t[600:] == 1)[:10])
        val = {"X_val": source[700:], "y_val": t[700:]} if "validation" in case else {}
        model = ProjectAndProbe(**options).fit(source[:600], t[:600])

        def adapted(at, weight=None):
            return model.adapt(source[rows[at]], t[rows[at]], weight, **val)

        once = adapted(np.arange(8), np.r_[2.0, np.ones(7)])
        twice = adapted(np.r_[0, np.arange(8)])
        parts = adapted(np.r_[0, np.arange(8)], np.r_[1.75, 0.25, np.ones(7)])
        absent = adapted(np.arange(10), np.r_[2.0, np.ones(7), 0.0, 0.0])
        for other in (twice, parts, absent):
            np.testing.assert_allclose(other.coef_, once.coef_, atol=1e-7)
            np.testing.assert_allclose(other.intercept_, once.intercept_, atol=1e-7)

    def test_the_intercept_is_continuous_in_the_weights(self):
        """With 16 balanced rows a weight of 1 + 1e-6 once moved it from -1.65 to -0.28."""
        X, y = make_data()
        rare = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:40]])
        model = ProjectAndProbe().fit(X[rare], y[rare])
        few = balanced(y, 8)
        plain = model.adapt(X[few], y[few])
        nudged = model.adapt(X[few], y[few], np.r_[1 + 1e-6, np.ones(15)])
        assert abs(float(nudged.intercept_[0] - plain.intercept_[0])) < 1e-4


class TestLabelSampling:
    """How labels were drawn is said, not guessed by a jump."""

    def adapted(self, sampling, n=8):
        X, y = make_data()
        rare = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:40]])
        few = balanced(y, n)
        return ProjectAndProbe(label_sampling=sampling).fit(X[rare], y[rare]).adapt(X[few], y[few])

    def test_equal_counts_asked_for_or_drawn_mean_another_intercept(self):
        by_class, random = self.adapted("by_class"), self.adapted("random")
        np.testing.assert_array_equal(by_class.coef_, random.coef_)
        assert by_class.intercept_[0] < random.intercept_[0]
        np.testing.assert_allclose(self.adapted("auto").intercept_, by_class.intercept_)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_labels_are_unlabelled_rows(binary, missing):
    model, X, y = binary
    some = np.array([*y[:10].tolist(), *[missing] * 40], dtype=object)
    mixed, apart = model.adapt(X[:50], some), model.adapt(X[:10], y[:10], X_unlabeled=X[10:50])
    np.testing.assert_allclose(mixed.coef_, apart.coef_, atol=1e-9)
    np.testing.assert_allclose(mixed.intercept_, apart.intercept_, atol=1e-9)


def test_real_embeddings_reach_the_bar(real_data):
    """Waterbirds, 2 labels per class: no worse than the source head, mean of targets."""
    z = np.load(real_data / "waterbirds.npz")
    X, y, place, split = z["embeddings"].astype(np.float32), z["y"].astype(int), z["place"].astype(int), z["split"]
    model = ProjectAndProbe().fit(X[split == 0], y[split == 0])
    test = np.flatnonzero(split == 2)
    gains, accuracy = [], []
    for rows in (test[y[test] == place[test]], test[y[test] != place[test]]):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            few = np.concatenate([rng.permutation(rows[y[rows] == c])[:2] for c in (0, 1)])
            rest = np.setdiff1d(rows, few)
            accuracy.append(model.adapt(X[few], y[few]).score(X[rest], y[rest]))
            gains.append(accuracy[-1] - model.score(X[rest], y[rest]))
    assert np.mean(gains) > -0.005
    assert np.mean(accuracy) > 0.85


def best_accuracy(F, y, rows, prefixes):
    """Of the probe on 2 labels per class, in percent, at the best number of features and penalty; mean of ten draws."""
    draws = [draw(y, rows, 2, seed) for seed in range(10)]
    few = np.stack([d.few for d in draws])
    Z = F[few].astype(float)
    unit = np.mean(np.sum((Z - Z.mean(1, keepdims=True)) ** 2, -1))
    fit = fit_path(Z, y[few], prefixes, list(10.0 ** np.arange(-4, 2.5, 0.5) * unit), tol=1e-6)
    scores = [np.tensordot(F[d.rest], fit.coef[s], (1, 2)) + fit.intercept[s] for s, d in enumerate(draws)]
    hits = [((f > 0) == y[d.rest][:, None, None]).mean(0) for f, d in zip(scores, draws)]
    return float(100 * np.mean(hits, axis=0).max())


@pytest.mark.parametrize(("target", "least"), [("spurious", 0), ("balanced", 0), ("mnist", 97)])
def test_the_papers_promise_on_real_embeddings(real_data, target, least):
    """Two labels per class: ranked features are twelve points better than a linear probe."""
    z = np.load(real_data / ("collages.npz" if target == "mnist" else "waterbirds.npz"))
    X, y, split = z["embeddings"].astype(np.float32), z["y"].astype(int), z["split"]
    if target == "mnist":
        source, rows = split == "source", np.flatnonzero(split == "mnist")
    else:
        source = split == 0
        rows = group_targets(y, z["place"], split == 2, source)[target]
    projection = Projection().fit(X[source], y[source])
    scaled = ((X - projection.mean_) / projection.scale_).astype(np.float32)
    ours = best_accuracy(projection.transform(X), y, rows, [1, 4, 16, 64, 256])
    assert ours >= max(least, best_accuracy(scaled, y, rows, [scaled.shape[1]]) + 12)


@pytest.mark.parametrize("options", [{}, {"l2": 0.1, "n_features": 4}])
@pytest.mark.parametrize("case", [2, 3])
def test_without_is_adapting_to_the_others(options, case):
    X, y = make_data(case)
    # the variances of all rows decide what is shrunk: without that the two are the same
    model = ProjectAndProbe(priors=PriorFamily(tolerance=1e9), **options).fit(X[:600], y[:600])
    few = np.arange(600, 624)
    adapted = model.adapt(X[few], y[few])
    for rows in ([3], [0, 7, 11], list(range(12))):
        left = np.delete(few, rows)
        expected = model.adapt(X[left], y[left])
        found = adapted.without(rows)
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-9)
        np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=1e-9)


class TestClassShares:
    def test_known_shares_move_the_intercept_only(self, three):
        model, X, y = three
        plain = model.adapt(X[:24], y[:24])
        known = model.adapt(X[:24], y[:24], class_shares={"cat": 0.7, "dog": 0.2, "owl": 0.1})
        np.testing.assert_array_equal(known.coef_, plain.coef_)
        as_array = model.adapt(X[:24], y[:24], class_shares=[0.7, 0.2, 0.1])
        np.testing.assert_array_equal(as_array.intercept_, known.intercept_)
        assert known.report_.shares == pytest.approx([0.7, 0.2, 0.1])
        assert known.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean()

    @pytest.mark.parametrize(
        ("shares", "found"),
        [
            ({"cat": 0.5, "dog": 0.5}, "a share for each"),
            ({"cat": 0.5, "dog": 0.3, "owl": 0.1, "ant": 0.1}, "a share for each"),
            ([0.5, 0.5], "one number for each of 3"),
            ([0.5, 0.5, 0.5], "sum is 1"),
            ([1.5, -0.5, 0.0], "at least 0"),
        ],
    )
    def test_mistakes_are_explained(self, three, shares, found):
        model, X, y = three
        with pytest.raises(ValueError, match=found):
            model.adapt(X[:24], y[:24], class_shares=shares)
