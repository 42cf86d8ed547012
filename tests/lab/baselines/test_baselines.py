"""Every baseline: scikit-learn's checks, the contract of fit and adapt, and what sets each apart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.utils.estimator_checks import parametrize_with_checks

from pro2.estimators.linear import LinearClassifier
from pro2.lab.baselines import BASELINES, create_baseline, list_baselines
from pro2.lab.baselines.resampling import sparse_head
from pro2.lab.datasets.shog import make_shog

SEEDED = {"dfr", "random", "pro2-nc", "teney", "mixpro"}


def build(name, **params):
    return create_baseline(name, **({"random_state": 0} if name in SEEDED else {}), **params)


def quick(name, n_classes, **params):
    """With the penalty fixed for many classes: choosing it is tested elsewhere and takes most of the time."""
    fixed = n_classes > 2 and "l2" in create_baseline(name).get_params()
    return build(name, **({"l2": 0.1} if fixed else {}), **params)


def shifted(n_classes=2, n=300, D=8, seed=0):
    """Source and target with the same classes; the target is moved and one axis changes sides."""
    rng = np.random.default_rng(seed)
    centres = 2.5 * np.eye(n_classes, D)
    y, y_target = np.arange(n) % n_classes, np.arange(90) % n_classes
    X = centres[y] + rng.standard_normal((n, D)) * np.linspace(0.5, 1.5, D)
    X_target = centres[::-1][y_target] + 1.0 + 0.5 * rng.standard_normal((90, D))
    return X, y, X_target, y_target


def shortcut(n=300, seed=0):
    """Two axes tell the class in the source; in the target the stronger one is loud noise."""
    rng = np.random.default_rng(seed)
    y, y_target = np.arange(n) % 2, np.arange(400) % 2
    X, X_target = 0.5 * rng.standard_normal((n, 8)), 0.5 * rng.standard_normal((400, 8))
    for Z, side in ((X, 2 * y - 1), (X_target, 2 * y_target - 1)):
        Z[:, 0] += 1.5 * side
        Z[:, 1] += 0.8 * side
    X_target[:, 0] = 4 * rng.standard_normal(400)
    return X, y, X_target, y_target


@parametrize_with_checks([build(name) for name in BASELINES])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_sklearn_checks(estimator, check):
    check(estimator)  # raises what it finds


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", BASELINES)
class TestContract:
    def test_adapt_gives_one_affine_map_and_leaves_the_model_alone(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        model = build(name).fit(X, y)
        before = model.predict_proba(X_target)
        adapted = model.adapt(X_target[:30], y_target[:30])
        rows = 1 if n_classes == 2 else n_classes
        assert isinstance(adapted, LinearClassifier)
        assert adapted.coef_.shape == (rows, 8)
        assert adapted.intercept_.shape == (rows,)
        assert np.array_equal(model.predict_proba(X_target), before)
        P = adapted.predict_proba(X_target)
        assert P.shape == (90, n_classes)
        assert np.allclose(P.sum(axis=1), 1)
        assert np.array_equal(adapted.classes_[P.argmax(axis=1)], adapted.predict(X_target))

    def test_one_call_equals_two(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        model = quick(name, n_classes).fit(X, y)
        adapted = model.adapt(X_target[:30], y_target[:30])
        both = quick(name, n_classes).fit(
            np.concatenate([X, X_target[:30]]),
            np.concatenate([y, y_target[:30]]),
            sample_domain=np.repeat([1, -2], [len(y), 30]),
        )
        assert np.allclose(both.coef_, adapted.coef_, atol=1e-8)
        assert np.allclose(both.intercept_, adapted.intercept_, atol=1e-8)

    def test_source_alone_is_a_usable_classifier(self, name, n_classes):
        X, y, _, _ = shifted(n_classes)
        assert quick(name, n_classes).fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.85

    def test_labels_stay_the_callers(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        names = np.array(["owl", "auk", "emu"])
        adapted = quick(name, n_classes).fit(X, names[y]).adapt(X_target, names[y_target])
        assert set(adapted.predict(X_target)) <= set(names[:n_classes])

    def test_a_class_missing_in_the_target_keeps_a_probability(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        rows = np.flatnonzero(y_target != 0)[:12]
        adapted = quick(name, n_classes).fit(X, y).adapt(X_target[rows], y_target[rows])
        P = adapted.predict_proba(X_target)
        assert P.shape == (90, n_classes)
        assert np.all(np.isfinite(P))

    def test_unknown_classes_and_widths_are_named(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        model = quick(name, n_classes).fit(X, y)
        with pytest.raises(ValueError, match="y_target has classes"):
            model.adapt(X_target, y_target + 1)
        with pytest.raises(ValueError, match="X_target has 7 features"):
            model.adapt(X_target[:, :7], y_target)

    def test_every_scale_works(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        for scale in (None, "global", "unit"):
            adapted = quick(name, n_classes, scale=scale).fit(X, y).adapt(X_target, y_target)
            assert np.all(np.isfinite(adapted.coef_))
        with pytest.raises(ValueError, match="scale must be one of"):
            quick(name, n_classes, scale="loud").fit(X, y)

    @pytest.mark.parametrize("place", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
    def test_torch_gives_the_same_and_stays_on_its_device(self, name, n_classes, place):
        X, y, X_target, y_target = shifted(n_classes)
        adapted = quick(name, n_classes).fit(X, y).adapt(X_target[:30], y_target[:30])
        there = [torch.asarray(A, device=place) for A in (X, X_target[:30])]
        result = quick(name, n_classes).fit(there[0], y).adapt(there[1], y_target[:30])
        assert isinstance(result.coef_, torch.Tensor)
        assert result.coef_.device == there[0].device
        assert np.allclose(result.coef_.cpu().numpy(), adapted.coef_, atol=1e-5)


# lda keeps one feature of two classes, the shortcut here: the very reason for more than one
@pytest.mark.parametrize("name", sorted(set(BASELINES) - {"source-only", "lda"}))
def test_adaptation_improves_on_the_source_head(name):
    X, y, X_target, y_target = shortcut()
    model = build(name).fit(X, y)
    adapted = model.adapt(X_target[:40], y_target[:40])
    assert adapted.score(X_target[40:], y_target[40:]) > model.score(X_target[40:], y_target[40:]) + 0.1


def test_source_only_is_the_source_head_before_and_after():
    X, y, X_target, y_target = shifted(3)
    model = build("source-only").fit(X, y)
    adapted = model.adapt(X_target, y_target)
    assert np.allclose(adapted.coef_, model.coef_)
    assert np.allclose(adapted.intercept_, model.intercept_)


def test_linear_probe_is_scikit_learns_logistic_regression():
    X, y, X_target, y_target = shifted()
    adapted = build("linear-probe", l2=0.1, scale=None).fit(X, y).adapt(X_target, y_target)
    theirs = LogisticRegression(C=1 / (0.1 * 90), tol=1e-10, max_iter=10_000).fit(X_target, y_target)
    assert np.allclose(adapted.coef_, theirs.coef_, atol=1e-6)
    assert np.allclose(adapted.intercept_, theirs.intercept_, atol=1e-6)


def test_linear_probe_chooses_by_validation_rows():
    X, y, X_target, y_target = shifted()
    model = build("linear-probe").fit(X, y)
    adapted = model.adapt(X_target[:4], y_target[:4], X_val=X_target[4:50], y_val=y_target[4:50])
    assert adapted.score(X_target[50:], y_target[50:]) > 0.8
    with pytest.raises(ValueError, match="X_val and y_val go together"):
        model.adapt(X_target, y_target, X_val=X_target)


def test_centered_penalty_ends_at_the_source_direction():
    X, y, X_target, y_target = shifted()
    model = build("source-centered", l2=1e8).fit(X, y)
    assert np.allclose(model.adapt(X_target, y_target).coef_, model.coef_, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_interpolation_ends(n_classes):
    X, y, X_target, y_target = shifted(n_classes)
    ends = [build("interpolation", mix=m, l2=0.3).fit(X, y).adapt(X_target, y_target) for m in (0.0, 0.5, 1.0)]
    source = build("source-only").fit(X, y)
    target = build("linear-probe", l2=0.3).fit(X, y).adapt(X_target, y_target)
    assert np.allclose(ends[0].coef_, source.coef_)
    assert np.allclose(ends[2].coef_, target.coef_)
    assert np.allclose(ends[1].intercept_, (source.intercept_ + target.intercept_) / 2)


def test_interpolation_keeps_the_source_head_where_nothing_shifts():
    shog = make_shog(random_state=0)
    model = build("interpolation").fit(*shog.sample("source", 2000, 0))
    few = shog.sample("id", 8, 1)
    adapted, probe = model.adapt(*few), build("linear-probe").fit(*shog.sample("source", 2000, 0)).adapt(*few)
    accuracy = [shog.accuracy("id", m.coef_[0], m.intercept_[0]) for m in (adapted, probe)]
    assert accuracy[0] > accuracy[1] + 0.02


def test_source_logit_lets_the_source_head_through_a_strong_penalty():
    X, y, _, _ = shifted()
    rows = np.r_[0:6]
    few = {n: build(n, l2=3.0).fit(X, y).adapt(X[rows], y[rows]).score(X, y) for n in ("source-logit", "linear-probe")}
    assert few["source-logit"] > few["linear-probe"]


def test_joint_training_is_one_weighted_fit():
    X, y, X_target, y_target = shifted()
    adapted = build("joint", target_share=0.25, l2=0.1, scale=None).fit(X, y).adapt(X_target, y_target)
    weight = np.concatenate([np.full(300, 0.75 / 300), np.full(90, 0.25 / 90)])
    theirs = LogisticRegression(C=10.0, tol=1e-10, max_iter=10_000).fit(
        np.concatenate([X, X_target]), np.concatenate([y, y_target]), sample_weight=weight
    )
    assert np.allclose(adapted.coef_, theirs.coef_, atol=1e-5)


def test_mixpro_mixes_within_classes_only():
    X, y, _, y_target = shifted(3)
    model = build("mixpro", n_mixtures=500).fit(X, y)
    source, target = model._pairs(y, y_target[y_target != 1])
    assert len(source) == len(target) == 500
    assert np.array_equal(y[source], y_target[y_target != 1][target])
    assert 1 not in y[source]


def test_mixpro_with_all_target_is_a_probe_on_target_rows():
    X, y, X_target, y_target = shifted()
    adapted = build("mixpro", mix=1.0, l2=0.3).fit(X, y).adapt(X_target[:2], y_target[:2])
    probe = build("linear-probe", l2=0.3).fit(X, y).adapt(X_target[:2], y_target[:2])
    assert np.allclose(adapted.coef_, probe.coef_, atol=1e-6)


@pytest.mark.parametrize("name", ["joint", "mixpro"])
def test_automatic_penalty_of_mixed_rows_needs_validation(name):
    X, y, X_target, y_target = shortcut()
    model = build(name, l2="auto").fit(X, y)
    with pytest.raises(ValueError, match="needs X_val and y_val"):
        model.adapt(X_target, y_target)
    few, val, test = slice(0, 20), slice(20, 60), slice(60, 400)
    adapted = model.adapt(X_target[few], y_target[few], X_val=X_target[val], y_val=y_target[val])
    assert adapted.score(X_target[test], y_target[test]) > model.score(X_target[test], y_target[test])


class TestDFR:
    def test_weights_are_sparse(self):
        X, y, X_target, y_target = shifted()
        adapted = build("dfr", l1=0.1).fit(X, y).adapt(X_target, y_target)
        assert 0 < np.sum(adapted.coef_ != 0) < 8

    def test_balanced_groups_ignore_a_shortcut_that_the_rows_show(self):
        rng = np.random.default_rng(0)
        y = np.arange(400) % 2
        shortcut = np.where(rng.random(400) < 0.9, y, 1 - y)
        X = rng.standard_normal((400, 4))
        X[:, 0] += 1.5 * (2 * y - 1)
        X[:, 1] += 3 * (2 * shortcut - 1)
        model = build("dfr", l1=0.01).fit(X, y)
        plain = model.adapt(X, y).coef_[0]
        fair = model.adapt(X, y, groups=2 * y + shortcut).coef_[0]
        assert abs(fair[1] / fair[0]) < 0.3 * abs(plain[1] / plain[0])

    def test_subsets_hold_every_group_equally(self):
        groups = np.array(["a"] * 7 + ["b"] * 3)
        subsets = build("dfr", n_refits=4)._subsets(groups)
        assert subsets.shape == (4, 6)
        assert all(np.sum(groups[s] == "b") == 3 for s in subsets)

    def test_groups_must_match_the_rows(self):
        X, y, X_target, y_target = shifted()
        with pytest.raises(ValueError, match="groups has 2 entries for 90 rows"):
            build("dfr").fit(X, y).adapt(X_target, y_target, groups=[0, 1])


def test_sparse_heads_of_threads_do_not_disturb_each_other():
    """liblinear keeps one random generator for the whole process."""
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(120, 60)), rng.integers(0, 2, 120)

    def head(_: int) -> bytes:
        return sparse_head(Z, y, np.ones(120), 0.003, 2)[0].tobytes()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(head, range(64)))) == 1


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("l1", [0.01, 0.1])
def test_sparse_heads_are_optimal(n_classes, l1):
    """The slope of the mean loss is within the penalty, and at the penalty where a weight is not zero."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % n_classes
    Z = rng.standard_normal((80, 15)) + 1.5 * np.eye(n_classes, 15)[y]
    coef, intercept = sparse_head(Z, y, np.ones(80), l1, n_classes)
    for k, (w, b) in enumerate(zip(np.atleast_2d(coef), np.atleast_1d(intercept))):
        p = 1 / (1 + np.exp(-(Z @ w + b)))
        error = p - (y == (1 if n_classes == 2 else k))
        slope, on = Z.T @ error / 80, w != 0
        assert np.abs(slope).max() <= l1 * 1.001
        assert abs(error.mean()) < 0.02 * l1
        assert 0 < on.sum() < len(on)
        assert np.allclose(slope[on], -l1 * np.sign(w[on]), atol=0.001 * l1)


def test_sparse_heads_count_weights_as_repetitions():
    X, y, _, _ = shifted(3, n=60)
    w = np.arange(60) % 4
    one = sparse_head(X, y, w.astype(float), 0.05, 3)
    many = sparse_head(np.repeat(X, w, axis=0), np.repeat(y, w), np.ones(w.sum()), 0.05, 3)
    assert np.allclose(one[0], many[0], atol=1e-4)


def test_a_strong_penalty_leaves_the_intercept_alone():
    Z = np.random.default_rng(0).standard_normal((80, 5))
    coef, intercept = sparse_head(Z, np.where(np.arange(80) < 20, 1, 0), np.ones(80), 1.0, 2)
    assert np.all(coef == 0)
    assert np.exp(intercept) == pytest.approx(20 / 60, rel=0.06)


class TestWithoutGroupLabels:
    """AFR and SELF: the rows that the source head gets wrong decide, and nobody said which group they are in."""

    def rows(self, n=200, seed=0):
        """The source head leans on the loud second axis, which the target has turned round for a quarter of rows."""
        rng = np.random.default_rng(seed)
        y = np.arange(n) % 2
        turned = rng.random(n) < 0.25
        X = 0.5 * rng.standard_normal((n, 6))
        X[:, 0] += 0.8 * (2 * y - 1)
        X[:, 1] += 1.5 * (2 * np.where(turned, 1 - y, y) - 1)
        return X, y, turned

    @pytest.mark.parametrize(("name", "params"), [("afr", {"gamma": 8.0}), ("self", {"share": 0.3})])
    def test_the_worst_group_gains_on_a_plain_fit_from_the_same_head(self, name, params):
        rng = np.random.default_rng(1)
        y = np.arange(400) % 2
        X = 0.5 * rng.standard_normal((400, 6))
        X[:, 0] += 0.8 * (2 * y - 1)
        X[:, 1] += 1.5 * (2 * y - 1)
        few, test = self.rows(), self.rows(2000, 3)
        plain = build("source-centered", l2=0.3).fit(X, y).adapt(*few[:2])
        fair = build(name, l2=0.3, **params).fit(X, y).adapt(*few[:2])
        turned = test[2]
        worst = [np.mean(m.predict(test[0])[turned] == test[1][turned]) for m in (plain, fair)]
        assert worst[1] > worst[0] + 0.05

    def test_without_gamma_rows_of_a_class_weigh_alike(self):
        X, y, X_target, y_target = shifted()
        own = build("afr", gamma=0.0, l2=0.1).fit(X, y).adapt(X_target, y_target)
        centred = build("source-centered", l2=0.1).fit(X, y).adapt(X_target, y_target)
        assert np.allclose(own.coef_, centred.coef_, atol=1e-6)

    def test_all_rows_where_all_are_asked_for(self):
        X, y, X_target, y_target = shifted(3)
        own = build("self", share=1.0, l2=0.1).fit(X, y).adapt(X_target, y_target)
        centred = build("source-centered", l2=0.1).fit(X, y).adapt(X_target, y_target)
        assert np.allclose(own.coef_, centred.coef_, atol=1e-6)

    def test_equally_many_of_each_class_those_that_are_least_right(self):
        model = build("self", share=0.5)
        at = model._least_right(np.array([0.9, 0.1, 0.5, 0.4, 0.3, 0.7]), np.array([0, 0, 0, 0, 1, 1]))
        assert at.tolist() == [1, 4]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_nearest_class_mean_is_scikit_learns(n_classes):
    X, y, X_target, y_target = shifted(n_classes)
    adapted = build("class-mean", scale=None).fit(X, y).adapt(X_target[:30], y_target[:30])
    theirs = NearestCentroid().fit(X_target[:30], y_target[:30])
    assert np.array_equal(adapted.predict(X), theirs.predict(X))


def test_shrunk_lda_uses_the_covariance_of_both_domains():
    X, y, X_target, y_target = shifted()
    adapted = build("shrunk-lda", ridge=0.0, scale=None).fit(X, y).adapt(X_target, y_target)
    centred = np.concatenate([A[v == k] - A[v == k].mean(0) for A, v in ((X, y), (X_target, y_target)) for k in (0, 1)])
    step = X_target[y_target == 1].mean(0) - X_target[y_target == 0].mean(0)
    expected = np.linalg.solve(centred.T @ centred / len(centred), step)
    assert np.allclose(adapted.coef_[0], expected, rtol=1e-6)


def test_lda_probe_has_one_feature_fewer_than_classes():
    X, y, X_target, y_target = shifted(3)
    model = build("lda", ridge=0.0, scale=None).fit(X, y)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, :2]
    Q = np.linalg.qr(theirs)[0].T
    rows = model.components_
    assert rows.shape == (2, 8)
    assert np.allclose(rows.T @ rows, Q.T @ Q, atol=1e-6)
    assert model.adapt(X_target, y_target).score(X_target, y_target) > 0.8


def test_unranked_features_of_the_trained_baselines_repeat_or_spread():
    shog = make_shog(random_state=0)
    X, y = shog.sample("source", 1000, 0)
    spread = {}
    for name, params in (("pro2-nc", {}), ("teney", {"alignment": 30.0})):
        rows = build(name, n_components=8, **params).fit(X, y).components_
        assert np.allclose(np.linalg.norm(rows, axis=1), 1)
        spread[name] = np.mean(rows @ rows.T)
    assert spread["teney"] < spread["pro2-nc"]


@pytest.mark.parametrize("name", sorted(SEEDED))
def test_seeds_decide(name):
    X, y, X_target, y_target = shifted(n=301)
    rows = np.r_[0:11]  # one class has a row more: there is something to draw
    fits = [
        clone(build(name)).set_params(random_state=s).fit(X, y).adapt(X_target[rows], y_target[rows]).coef_
        for s in (0, 0, 1)
    ]
    assert np.array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("interpolation", {"mix": 2.0}, "mix must be a number in"),
        ("mixpro", {"mix": "half"}, "mix must be a number in"),
        ("mixpro", {"n_mixtures": 0}, "n_mixtures must be at least 1"),
        ("joint", {"target_share": -0.1}, "target_share must be a number in"),
        ("dfr", {"n_refits": 0}, "n_refits must be at least 1"),
        ("dfr", {"l1": np.inf}, "l1 must be a positive finite number"),
        ("linear-probe", {"l2": 0.0}, "l2 must be"),
        ("afr", {"gamma": -1.0}, "gamma must be a finite number"),
        ("self", {"share": 2.0}, "share must be a number in"),
        ("source-only", {"ridge": -1.0}, "ridge must be a finite number"),
        ("teney", {"alignment": np.nan}, "alignment must be"),
        ("clap", {"strength": 0.0}, "strength must be a positive number"),
        ("lp++", {"n_steps": -1}, "n_steps must be a whole number"),
        ("pca", {"n_components": 9}, "n_components=9 must be an integer in 1..8"),
    ],
)
def test_mistakes_are_named(name, params, message):
    X, y, X_target, y_target = shifted()
    with pytest.raises(ValueError, match=message):
        build(name, **params).fit(X, y).adapt(X_target, y_target)


def test_names_are_listed_and_unknown_ones_explained():
    assert len(list_baselines()) == 21
    with pytest.raises(ValueError, match="baseline 'magic' is not known; there are source-only"):
        create_baseline("magic")


@pytest.mark.parametrize("name", ["random", "pca", "lda", "pls", "pro2-nc", "teney"])
def test_a_basis_baseline_uses_its_own_features_and_not_the_default_of_pro2(name):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = rng.normal(size=(80, 6)) + y[:, None]
    model = create_baseline(name).fit(X[:60], y[:60])
    adapted = model.adapt(X[60:], y[60:])
    span = model.components_[: adapted.n_features_]
    head = adapted.coef_[0] * model.scale_
    inside = span.T @ np.linalg.lstsq(span.T, head, rcond=None)[0]  # not every baseline has orthonormal features
    np.testing.assert_allclose(inside, head, atol=1e-7)
