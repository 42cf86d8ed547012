"""Every baseline: scikit-learn's checks, the contract of fit and adapt, and what sets each apart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from pro2.estimators.linear import LinearClassifier
from pro2.lab.baselines import BASELINES, create_baseline, list_baselines
from pro2.lab.baselines.heads import RIDGE_PENALTIES, sparse_head
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
    """Two axes predict the class in the source; in the target the stronger one is strong noise."""
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
    def test_adapt_gives_one_affine_map_with_the_callers_labels_and_leaves_the_model_alone(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        names = np.array(["owl", "auk", "emu"])[:n_classes]
        model = build(name).fit(X, names[y])
        before = model.predict_proba(X_target)
        adapted = model.adapt(X_target[:30], names[y_target[:30]])
        rows = 1 if n_classes == 2 else n_classes
        assert isinstance(adapted, LinearClassifier)
        assert adapted.coef_.shape == (rows, 8)
        assert adapted.intercept_.shape == (rows,)
        assert np.array_equal(model.predict_proba(X_target), before)
        P = adapted.predict_proba(X_target)
        assert P.shape == (90, n_classes)
        assert np.allclose(P.sum(axis=1), 1)
        assert np.array_equal(np.sort(names)[P.argmax(axis=1)], adapted.predict(X_target))

    def test_one_call_equals_two_and_the_source_alone_is_a_classifier(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        model = quick(name, n_classes).fit(X, y)
        assert model.score(X, y) > 0.85
        adapted = model.adapt(X_target[:30], y_target[:30])
        both = quick(name, n_classes).fit(
            np.concatenate([X, X_target[:30]]),
            np.concatenate([y, y_target[:30]]),
            sample_domain=np.repeat([1, -2], [len(y), 30]),
        )
        assert np.allclose(both.coef_, adapted.coef_, atol=1e-8)
        assert np.allclose(both.intercept_, adapted.intercept_, atol=1e-8)

    def test_a_class_missing_in_the_target_keeps_a_probability(self, name, n_classes):
        X, y, X_target, y_target = shifted(n_classes)
        rows = np.flatnonzero(y_target != 0)[:12]
        P = quick(name, n_classes).fit(X, y).adapt(X_target[rows], y_target[rows]).predict_proba(X_target)
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


# lda keeps one feature of two classes, the shortcut here: the very reason for more than one
@pytest.mark.parametrize("name", sorted(set(BASELINES) - {"source-only", "lda"}))
def test_adaptation_improves_on_the_source_head(name):
    X, y, X_target, y_target = shortcut()
    model = build(name).fit(X, y)
    adapted = model.adapt(X_target[:40], y_target[:40])
    assert adapted.score(X_target[40:], y_target[40:]) > model.score(X_target[40:], y_target[40:]) + 0.1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_heads_have_the_ends_that_their_formulas_have(n_classes):
    X, y, X_target, y_target = shifted(n_classes)
    source = build("source-only").fit(X, y)
    assert np.allclose(source.adapt(X_target, y_target).coef_, source.coef_)
    target = build("linear-probe", l2=0.3).fit(X, y).adapt(X_target, y_target)
    mixed = [build("interpolation", mix=m, l2=0.3).fit(X, y).adapt(X_target, y_target) for m in (0.0, 0.5, 1.0)]
    assert np.allclose(mixed[0].coef_, source.coef_)
    assert np.allclose(mixed[1].intercept_, (source.intercept_ + target.intercept_) / 2)
    assert np.allclose(mixed[2].coef_, target.coef_)
    held = build("source-centered", l2=1e8).fit(X, y).adapt(X_target, y_target)
    assert np.allclose(held.coef_, source.coef_, atol=1e-5)
    few = X_target[:n_classes], y_target[:n_classes]
    pure = build("mixpro", mix=1.0, l2=0.3).fit(X, y).adapt(*few)
    assert np.allclose(pure.coef_, build("linear-probe", l2=0.3).fit(X, y).adapt(*few).coef_, atol=1e-6)


def test_linear_probe_and_joint_training_are_scikit_learns_logistic_regression():
    X, y, X_target, y_target = shifted()
    adapted = build("linear-probe", l2=0.1, scale=None).fit(X, y).adapt(X_target, y_target)
    theirs = LogisticRegression(C=1 / (0.1 * 90), tol=1e-10, max_iter=10_000).fit(X_target, y_target)
    assert np.allclose(adapted.coef_, theirs.coef_, atol=1e-6)
    assert np.allclose(adapted.intercept_, theirs.intercept_, atol=1e-6)
    joint = build("joint", target_share=0.25, l2=0.1, scale=None).fit(X, y).adapt(X_target, y_target)
    weight = np.concatenate([np.full(300, 0.75 / 300), np.full(90, 0.25 / 90)])
    theirs = LogisticRegression(C=10.0, tol=1e-10, max_iter=10_000).fit(
        np.concatenate([X, X_target]), np.concatenate([y, y_target]), sample_weight=weight
    )
    assert np.allclose(joint.coef_, theirs.coef_, atol=1e-5)


def test_ridge_is_scikit_learns_on_scaled_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 8)), rng.integers(0, 3, 120)
    X[:, 0] += 2 * y
    model = create_baseline("ridge", scale=None).fit(X, y)
    theirs = RidgeClassifierCV(RIDGE_PENALTIES).fit(X[:30], y[:30])
    np.testing.assert_array_equal(model.adapt(X[:30], y[:30]).predict(X), theirs.predict(X))


def test_interpolation_keeps_the_source_head_where_nothing_shifts():
    shog = make_shog(random_state=0)
    source, few = shog.sample("source", 2000, 0), shog.sample("id", 8, 1)
    adapted, probe = (build(name).fit(*source).adapt(*few) for name in ("interpolation", "linear-probe"))
    accuracy = [shog.accuracy("id", m.coef_[0], m.intercept_[0]) for m in (adapted, probe)]
    assert accuracy[0] > accuracy[1] + 0.02


def test_mixpro_mixes_within_classes_only():
    X, y, _, y_target = shifted(3)
    model = build("mixpro").fit(X, y)
    source, target = model._pairs(y, y_target[y_target != 1])
    assert len(source) == len(target) == 200
    assert np.array_equal(y[source], y_target[y_target != 1][target])
    assert 1 not in y[source]


class TestDFR:
    def test_balanced_groups_ignore_a_shortcut_that_the_rows_show(self):
        rng = np.random.default_rng(0)
        y = np.arange(400) % 2
        wrong = np.where(rng.random(400) < 0.9, y, 1 - y)
        X = rng.standard_normal((400, 4))
        X[:, 0] += 1.5 * (2 * y - 1)
        X[:, 1] += 3 * (2 * wrong - 1)
        model = build("dfr", l1=0.01).fit(X, y)
        plain = model.adapt(X, y).coef_[0]
        fair = model.adapt(X, y, groups=2 * y + wrong).coef_[0]
        assert abs(fair[1] / fair[0]) < 0.3 * abs(plain[1] / plain[0])
        with pytest.raises(ValueError, match="groups has 2 entries for 400 rows"):
            model.adapt(X, y, groups=[0, 1])

    def test_subsets_hold_every_group_equally(self):
        groups = np.array(["a"] * 7 + ["b"] * 3)
        subsets = build("dfr", n_refits=4)._subsets(groups)
        assert subsets.shape == (4, 6)
        assert all(np.sum(groups[s] == "b") == 3 for s in subsets)

    @pytest.mark.parametrize("n_classes", [2, 3])
    @pytest.mark.parametrize("l1", [0.01, 0.1])
    def test_sparse_heads_are_optimal(self, n_classes, l1):
        """The slope of the mean loss is within the penalty, and at the penalty where a weight is not zero."""
        rng = np.random.default_rng(0)
        y = np.arange(80) % n_classes
        Z = rng.standard_normal((80, 15)) + 1.5 * np.eye(n_classes, 15)[y]
        for k, (w, b) in enumerate(zip(*sparse_head(Z, y, l1, n_classes))):
            error = 1 / (1 + np.exp(-(Z @ w + b))) - (y == (1 if n_classes == 2 else k))
            slope, on = Z.T @ error / 80, w != 0
            assert np.abs(slope).max() <= l1 * 1.001
            assert abs(error.mean()) < 0.02 * l1
            assert 0 < on.sum() < len(on)
            assert np.allclose(slope[on], -l1 * np.sign(w[on]), atol=0.001 * l1)

    def test_a_strong_penalty_leaves_the_intercept_alone(self):
        Z = np.random.default_rng(0).standard_normal((80, 5))
        coef, intercept = sparse_head(Z, np.where(np.arange(80) < 20, 1, 0), 1.0, 2)
        assert np.all(coef == 0)
        assert np.exp(intercept[0]) == pytest.approx(20 / 60, rel=0.06)

    def test_threads_do_not_disturb_each_other(self):
        """liblinear keeps one random generator for the whole process."""
        rng = np.random.default_rng(0)
        Z, y = rng.normal(size=(120, 60)), rng.integers(0, 2, 120)
        with ThreadPoolExecutor(8) as pool:
            heads = pool.map(lambda _: sparse_head(Z, y, 0.003, 2)[0].tobytes(), range(64))
        assert len(set(heads)) == 1


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


@pytest.mark.parametrize("name", ["random", "pca", "lda", "pls", "pro2-nc", "teney"])
def test_a_basis_baseline_uses_its_own_features(name):
    X, y, X_target, y_target = shifted()
    model = build(name).fit(X, y)
    adapted = model.adapt(X_target[:20], y_target[:20])
    span, head = model.components_[: adapted.n_features_], adapted.coef_[0] * model.scale_
    inside = span.T @ np.linalg.lstsq(span.T, head, rcond=None)[0]  # not every baseline has orthonormal features
    np.testing.assert_allclose(inside, head, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("interpolation", {"mix": 2.0}, "mix must be a number in"),
        ("mixpro", {"mix": "half"}, "mix must be a number in"),
        ("mixpro", {"l2": "auto"}, "l2 must be a number"),
        ("joint", {"target_share": -0.1}, "target_share must be a number in"),
        ("dfr", {"n_refits": 0}, "n_refits must be at least 1"),
        ("dfr", {"l1": np.inf}, "l1 must be a positive finite number"),
        ("linear-probe", {"l2": 0.0}, "l2 must be"),
        ("source-only", {"ridge": -1.0}, "ridge must be a finite number"),
        ("teney", {"alignment": np.nan}, "alignment must be"),
        ("pca", {"n_components": 9}, "n_components=9 must be an integer in 1..8"),
    ],
)
def test_mistakes_are_named(name, params, message):
    X, y, X_target, y_target = shifted()
    with pytest.raises(ValueError, match=message):
        build(name, **params).fit(X, y).adapt(X_target, y_target)


def test_names_are_listed_and_unknown_ones_explained():
    assert len(list_baselines()) == 14
    with pytest.raises(ValueError, match="baseline 'magic' is not known; there are source-only"):
        create_baseline("magic")
