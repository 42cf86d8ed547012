"""Many yes-or-no labels at once: each as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

from pro2 import ProjectAndProbe
from pro2.estimators.multilabel import MultiLabelProjectAndProbe
from pro2.linalg.priors import PriorFamily


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
        alone = ProjectAndProbe(n_components=12).fit(X, Y[:, t])
        for shared, own in zip(model.priors_[t], alone.priors_):
            np.testing.assert_allclose(shared.heads, own.heads, atol=1e-8)
            np.testing.assert_allclose(shared.natural, own.natural, rtol=1e-8)
            np.testing.assert_allclose(shared.accuracy, own.accuracy, rtol=1e-8)
            np.testing.assert_allclose((shared.dims, shared.unit), (own.dims, own.unit), rtol=1e-8)
        np.testing.assert_allclose(model.estimators_[t].coef_, alone.source_head_.coef_, atol=1e-8)
        expected = alone.adapt(few[0], few[1][:, t]).predict_proba(test[0])
        np.testing.assert_allclose(adapted.predict_proba(test[0])[t], expected, atol=1e-5)


def test_answers_have_the_shapes_of_scikit_learn(model):
    few, test = rows(24, 1), rows(50, 2)
    other = MultiOutputClassifier(LogisticRegression()).fit(*rows(500, 0))
    for ours in (model, model.adapt(*few)):
        assert [p.shape for p in ours.predict_proba(test[0])] == [p.shape for p in other.predict_proba(test[0])]
        assert ours.predict(test[0]).shape == other.predict(test[0]).shape
        np.testing.assert_array_equal(ours.predict(test[0]), np.stack(ours.predict_proba(test[0]))[..., 1].T > 0.5)
        assert ours.score(*test) == np.mean(np.all(ours.predict(test[0]) == test[1], axis=1))
    np.testing.assert_array_equal(model.classes_, other.classes_)


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


def test_a_source_with_gaps_learns_from_the_rest():
    X, Y = rows(900, 0)
    gaps = np.where(np.random.default_rng(0).random(Y.shape) < 0.5, np.nan, Y)
    whole, half = MultiLabelProjectAndProbe().fit(X, Y), MultiLabelProjectAndProbe().fit(X, gaps)
    test = rows(400, 2)
    assert np.mean(half.predict(test[0]) == test[1]) > np.mean(whole.predict(test[0]) == test[1]) - 0.03


def test_ranked_directions_are_those_of_each_label_alone():
    """Where the label is not exhausted; a full basis would hide what they are."""
    X, Y = rows(500, 0)
    few = PriorFamily(n_ranked=3)
    shared = MultiLabelProjectAndProbe(priors=few).fit(X, Y)
    for t in range(4):
        for own, prior in zip(ProjectAndProbe(priors=few).fit(X, Y[:, t]).priors_, shared.priors_[t]):
            np.testing.assert_allclose(
                prior.components.T @ prior.components, own.components.T @ own.components, atol=1e-8
            )
            assert prior.ranked_variance == pytest.approx(own.ranked_variance)


@pytest.mark.parametrize(
    ("y", "found"),
    [
        (np.zeros(30), "one column per label"),
        (np.full((30, 2), 2.0), "the value 2"),
        (np.zeros((30, 2)), "column 0 of y has one value only"),
    ],
)
def test_mistakes_are_explained(y, found):
    with pytest.raises(ValueError, match=found):
        MultiLabelProjectAndProbe().fit(np.random.default_rng(0).normal(size=(30, 4)), y)
