"""Many yes-or-no labels at once: each as if it were alone."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, get_scorer, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.utils import get_tags

import pro2
from pro2 import ProjectAndProbe
from pro2.estimators.evaluation import average_precision, evaluate_labels
from pro2.estimators.files import describe
from pro2.estimators.multilabel import MultiLabelProjectAndProbe


def rows(n, seed, T=4, D=12):
    rng = np.random.default_rng(seed)
    W = np.random.default_rng(5).normal(size=(D, T))
    X = rng.normal(size=(n, D)) * np.linspace(0.5, 2.0, D) + 3.0
    return X, (rng.normal(size=(n, T)) + (X - 3.0) @ W > [0.0, 1.0, -1.0, 2.0][:T]).astype(int)


@pytest.fixture(scope="module")
def model():
    return MultiLabelProjectAndProbe().fit(*rows(500, 0))


def test_each_label_is_learned_and_adapted_to_as_if_it_were_alone(model):
    X, Y = rows(500, 0)
    few, test = rows(24, 1), rows(300, 2)
    adapted = model.adapt(*few)
    for t in range(4):
        alone = ProjectAndProbe().fit(X, Y[:, t])
        for shared, own in zip(model.label_priors(t), alone.priors_):
            np.testing.assert_allclose(shared.coef, own.coef, atol=1e-8)
            np.testing.assert_allclose(shared.calibrated_size, own.calibrated_size, rtol=1e-8)
            Z = own.rows(few[0])
            for name in ("ranked", "whitened"):
                A, B = (prior.features(Z, name) for prior in (shared, own))  # equal inner products are equal priors
                np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-8)
                np.testing.assert_allclose(shared.penalties(name), own.penalties(name), rtol=1e-8)
        np.testing.assert_allclose(model.estimators_[t].coef_, alone.source_head_.coef_, atol=1e-8)
        expected = alone.adapt(few[0], few[1][:, t]).predict_proba(test[0])
        np.testing.assert_allclose(adapted.predict_proba(test[0])[t], expected, atol=1e-8)


@pytest.mark.parametrize("n_known", [4, 12, 60])
def test_a_label_that_few_source_rows_have_points_the_right_way(n_known):
    """Its means differ by more than all rows vary: what lies within classes must not become negative."""
    X, Y = rows(500, 0, T=2, D=40)
    gaps = Y.astype(float)
    yes, no = np.flatnonzero(Y[:, 1] == 1), np.flatnonzero(Y[:, 1] == 0)
    gaps[np.setdiff1d(np.arange(500), [*yes[: n_known // 2], *no[: n_known // 2]]), 1] = np.nan
    known = ~np.isnan(gaps[:, 1])
    model = MultiLabelProjectAndProbe().fit(X, gaps)
    assert model.known_.tolist() == [1.0, n_known / 500]
    assert np.mean(model.predict(X)[known, 1] == Y[known, 1]) > 0.8
    step = np.diff(model.means_[1], axis=0)[0]
    for prior in model.label_priors(1):
        assert np.diff(prior.coef[0] @ (step / prior.scale)) > 0
        assert np.isfinite(prior.calibrated_size)


def test_scikit_learn_takes_it_for_a_multi_label_classifier(model):
    few, test, source = rows(60, 1), rows(200, 2), rows(500, 0)
    other, chain = (kind(LogisticRegression()).fit(*source) for kind in (MultiOutputClassifier, ClassifierChain))
    for ours in (model, model.adapt(*few)):
        assert [p.shape for p in ours.predict_proba(test[0])] == [p.shape for p in other.predict_proba(test[0])]
        assert ours.predict(test[0]).shape == other.predict(test[0]).shape
        np.testing.assert_array_equal(ours.predict(test[0]), np.stack(ours.predict_proba(test[0]))[..., 1].T > 0.5)
        assert ours.score(*test) == np.mean(np.all(ours.predict(test[0]) == test[1], axis=1))
        assert ours.decision_function(test[0]).shape == chain.decision_function(test[0]).shape
        assert ours.predict(test[0]).dtype.kind == "i"
        assert get_tags(ours).classifier_tags.multi_label
        assert get_tags(ours).target_tags.multi_output
        proba = np.stack(ours.predict_proba(test[0]))[..., 1].T
        for name, metric in (("average_precision", average_precision_score), ("roc_auc", roc_auc_score)):
            assert get_scorer(name)(ours, *test) == pytest.approx(metric(test[1], proba))
    np.testing.assert_array_equal(model.classes_, other.classes_)
    for weight in (np.zeros(200), np.ones(3)):
        with pytest.raises(ValueError, match="sample_weight"):
            model.score(*test, sample_weight=weight)
    assert cross_val_score(MultiLabelProjectAndProbe(), *rows(200, 3), scoring="f1_macro", cv=3).min() > 0.6


def test_a_source_that_ranks_no_direction_has_a_report():
    X, Y = rows(60, 0)
    adapted = MultiLabelProjectAndProbe().fit(np.ones_like(X), Y).adapt(X[:24], Y[:24])
    assert [each.effective_features for each in adapted.report_.reports.values()] == [0.0] * 4


def test_missing_labels_are_left_out(model):
    X, Y = rows(24, 1)
    gaps = Y.astype(float)
    gaps[::3, 0] = np.nan
    gaps[:, 1] = np.nan
    adapted, some = model.adapt(X, gaps), np.arange(24) % 3 > 0
    without = model.adapt(X[some], Y[some])
    np.testing.assert_array_equal(adapted.estimators_[0].coef_, without.estimators_[0].coef_)
    assert adapted.estimators_[1] is model.estimators_[1]
    np.testing.assert_array_equal(adapted.estimators_[2].coef_, model.adapt(X, Y).estimators_[2].coef_)
    assert adapted.estimators_[0].report_.n_labels == 16
    assert adapted.report_.to_dict()["0"]["n_labels"] == 16
    assert adapted.report_.to_dict()["1"] is None


@pytest.mark.parametrize(
    ("y", "found"),
    [
        (np.zeros(30), "one column per label"),
        (np.full((30, 2), 2.0), "the value 2"),
        (np.zeros((30, 2)), "column 0 of y has one value only"),
        (np.full((30, 2), "cat"), "y cannot be used"),
    ],
)
def test_mistakes_are_explained(y, found):
    with pytest.raises(ValueError, match=found):
        MultiLabelProjectAndProbe().fit(np.random.default_rng(0).normal(size=(30, 4)), y)


class TestFiles:
    def test_what_is_saved_comes_back(self, model, tmp_path):
        few, X = rows(24, 1), rows(30, 2)[0]
        gaps = few[1].astype(float)
        gaps[:, 1] = np.nan
        adapted = model.adapt(few[0], gaps)
        for before in (model, adapted):
            after = pro2.load(before.save(tmp_path / type(before).__name__))
            assert type(after) is type(before)
            np.testing.assert_array_equal(after.decision_function(X), before.decision_function(X))
            np.testing.assert_array_equal(after.labels_, before.labels_)
        assert str(after.report_) == str(adapted.report_)
        again = pro2.load(tmp_path / "MultiLabelProjectAndProbe").adapt(few[0], gaps)
        np.testing.assert_array_equal(again.decision_function(X), adapted.decision_function(X))

    def test_a_file_holds_no_priors(self, model, tmp_path):
        """They are the largest part of a model by far, and made from the rest, as its source heads are."""
        model.adapt(*rows(24, 1))
        tensors = describe(model.save(tmp_path / "m"))["tensors"]
        assert {name.split(".")[0] for name in tensors} == {"labels_", "source_moments_", "means_", "shares_", "known_"}
        assert describe(tmp_path / "m")["labels"] == [0, 1, 2, 3]
        assert describe(tmp_path / "m")["source_kind"] == "500 source rows"
        assert "_made" not in pickle.loads(pickle.dumps(model)).__dict__

    @pytest.mark.parametrize(
        ("forge", "found"),
        [
            (lambda m: setattr(m, "labels_", m.labels_[:3]), "T|agree|instead"),
            (lambda m: setattr(m, "shares_", m.shares_ + 1.0), "do not agree"),
            (lambda m: setattr(m, "known_", m.known_ + 1.0), "do not agree"),
            (lambda m: setattr(m, "means_", m.means_[:, :1]), "means_ has shape"),
            (lambda m: setattr(m, "extra_", 1), "cannot have 'extra_'"),
        ],
    )
    def test_what_does_not_fit_is_not_saved(self, forge, found, tmp_path):
        model = MultiLabelProjectAndProbe().fit(*rows(100, 0))
        forge(model)
        with pytest.raises(ValueError, match=found):
            model.save(tmp_path / "m")


def test_frames_name_the_labels(model, tmp_path):
    names = ["wet", "old", "red", "far"]
    X, Y = rows(60, 0)
    frame = pd.DataFrame(Y, columns=names).astype("Int64")
    frame.iloc[3, 2] = pd.NA
    named = MultiLabelProjectAndProbe().fit(X, frame)
    assert named.labels_.tolist() == names
    assert pro2.load(named.save(tmp_path / "m")).labels_.tolist() == names
    adapted = named.adapt(X[:9], frame[:9])
    assert adapted.report_["red"].n_labels == 8
    with pytest.raises(ValueError, match="same order"):
        named.adapt(X[:9], frame[names[::-1]][:9])
    with pytest.raises(ValueError, match="column 'old' of y has one value only"):
        MultiLabelProjectAndProbe().fit(X, frame.assign(old=1))


class TestEvaluation:
    def test_average_precision_is_scikit_learns(self):
        rng = np.random.default_rng(0)
        for _ in range(20):
            yes, weight = rng.random(50) < 0.3, rng.integers(0, 3, (4, 50))
            yes[:2] = True, False
            weight[:, :2] = 1
            score = np.round(rng.normal(size=50), 1)  # with ties
            found = average_precision(yes, score, weight)
            expected = [average_precision_score(yes, score, sample_weight=w) for w in weight]
            np.testing.assert_allclose(found, expected)

    def test_gaps_are_left_out_and_labels_of_one_value_have_no_precision(self):
        Y = np.array([[1, 0, np.nan], [0, 0, np.nan], [1, np.nan, np.nan], [0, 0, np.nan]])
        scores = np.array([[2.0, -1, 0], [1, -1, 0], [0.5, -1, 0], [-3, 1, 0]])
        found = evaluate_labels(Y, scores, ["a", "b", "c"])
        assert found.labels["a"].average_precision.value == pytest.approx((1 + 2 / 3) / 2)
        assert found.mean_average_precision.value == found.labels["a"].average_precision.value
        assert (found.labels["b"].n, found.labels["b"].n_yes, found.labels["b"].average_precision) == (3, 0, None)
        assert found.labels["b"].accuracy.value == pytest.approx(2 / 3)
        assert found.labels["c"].accuracy is None
        assert evaluate_labels(Y[:, 1:], scores[:, 1:], ["b", "c"]).mean_average_precision is None

    def test_mistakes_are_explained(self):
        with pytest.raises(ValueError, match="must agree"):
            evaluate_labels(np.zeros((3, 2)), np.zeros((3, 3)), ["a", "b"])
        with pytest.raises(ValueError, match="Y has values other than 0, 1 and NaN"):
            evaluate_labels(np.full((3, 1), 2), np.zeros((3, 1)), ["a"])
        with pytest.raises(ValueError, match="scores has NaN"):
            evaluate_labels(np.zeros((3, 1)), np.full((3, 1), np.nan), ["a"])
