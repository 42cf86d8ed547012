"""Sets of classes that hold the true one as often as asked, and rows that are unlike the labelled ones."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest

import pro2
from pro2 import ProjectAndProbe

N_CLASSES, N_FEATURES = 5, 20


@pytest.fixture(scope="module")
def centres() -> np.ndarray:
    return 1.2 * np.random.default_rng(0).normal(size=(N_CLASSES + 1, N_FEATURES))


def drawn(centres: np.ndarray, classes: np.ndarray, seed: int) -> np.ndarray:
    return centres[classes] + np.random.default_rng(seed).normal(size=(len(classes), N_FEATURES))


@pytest.fixture(scope="module")
def model(centres: np.ndarray) -> ProjectAndProbe:
    y = np.arange(1000) % N_CLASSES
    return ProjectAndProbe().fit(drawn(centres, y, 1), y)


def target(centres: np.ndarray, labels_per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labelled rows of a target that lies elsewhere and whose classes are closer together."""
    y = np.arange(N_CLASSES * labels_per_class) % N_CLASSES
    return 0.6 * drawn(centres, y, seed) + 1.0, y


@pytest.mark.parametrize("labels_per_class", [3, 12])
def test_sets_hold_the_true_class_as_often_as_asked(model, centres, labels_per_class):
    X, y = target(centres, 200, 99)
    asked = np.array([0.5, 0.8, 0.9])
    adapted = [model.adapt(*target(centres, labels_per_class, seed)) for seed in range(10, 30)]
    sets = np.array([[each.predict_set(X, coverage) for coverage in asked] for each in adapted])
    assert (sets[:, :, np.arange(len(y)), y].mean(axis=(0, 2)) > asked - 0.03).all()
    assert (sets.sum(axis=3).mean(axis=(0, 2)) < N_CLASSES - 1).all()


def test_larger_sets_hold_smaller_ones_and_the_most_probable_class(model, centres):
    X, _ = target(centres, 40, 5)
    adapted = model.adapt(*target(centres, 8, 6))
    sets = [adapted.predict_set(X, coverage) for coverage in (0.3, 0.6, 0.9, 0.99)]
    for small, large in pairwise(sets):
        assert (small <= large).all()
    assert sets[0][np.arange(len(X)), adapted.predict(X)].all()
    assert sets[-1].all()  # 40 labels cannot promise 99 of 100


def test_a_share_of_rows_like_the_labelled_ones_scores_above(model, centres):
    X, _ = target(centres, 200, 99)
    above = [np.mean(model.adapt(*target(centres, 10, seed)).outlier_score(X) > 0.9) for seed in range(10, 30)]
    assert 0.03 < np.mean(above) < 0.15


def test_rows_of_another_kind_and_of_another_class_score_higher(model, centres):
    adapted = model.adapt(*target(centres, 10, 6))
    known = adapted.outlier_score(target(centres, 40, 7)[0])
    far = adapted.outlier_score(10.0 * target(centres, 40, 8)[0])
    new_class = adapted.outlier_score(0.6 * drawn(centres, np.full(200, N_CLASSES), 9) + 1.0)
    assert far.min() > 0.95
    assert np.mean(new_class) > np.mean(known) + 0.15
    assert known.max() <= 1 - 1 / 51


@pytest.mark.parametrize("scale", ["auto", "unit"])
def test_files_and_copies_abstain_alike(centres, scale, tmp_path):
    y = np.arange(500) % N_CLASSES
    adapted = ProjectAndProbe(scale=scale).fit(drawn(centres, y, 1), y).adapt(*target(centres, 6, 2))
    X, _ = target(centres, 20, 3)
    for other in (pro2.load(adapted.save(tmp_path / "m")), pickle.loads(pickle.dumps(adapted))):
        np.testing.assert_array_equal(other.predict_set(X, 0.8), adapted.predict_set(X, 0.8))
        np.testing.assert_array_equal(other.outlier_score(X), adapted.outlier_score(X))


def test_what_cannot_be_promised_is_refused(model, centres):
    X, y = target(centres, 4, 2)
    adapted = model.adapt(X, y)
    for bad in (0.0, 1.0, "0.9", True, float("nan")):
        with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
            adapted.predict_set(X, bad)
    suggested = ProjectAndProbe(label_sampling="suggested").fit(drawn(centres, y, 1), y).adapt(X, y)
    with pytest.raises(ValueError, match="predict_set cannot say how often it is right: the labelled rows were sugg"):
        suggested.predict_set(X)
    with pytest.raises(AttributeError, match="outlier_score needs an adaptation by averaged Pro2"):
        model.source_head_.outlier_score(X)


@pytest.mark.parametrize("options", [{}, {"n_features": 3, "l2": 0.1}, {"scale": "unit"}])
def test_labelled_rows_are_known_again(centres, options, tmp_path):
    y = np.arange(500) % N_CLASSES
    X, labels = target(centres, 6, 2)
    new = target(centres, 20, 3)[0]
    X[5, 0] = 0.0
    adapted = ProjectAndProbe(**options).fit(drawn(centres, y, 1), y).adapt(X, labels, np.r_[0.0, np.ones(29)])
    rows = np.concatenate([new[:10], X, new[10:]])
    expected = np.isin(np.arange(len(rows)), np.arange(11, 40))  # row 10 had no weight
    for each in (adapted, pro2.load(adapted.save(tmp_path / "m"))):
        np.testing.assert_array_equal(each.was_labelled(rows), expected)
        np.testing.assert_array_equal(each.was_labelled(rows.astype(np.float32)), expected)
        assert each.was_labelled(np.where(X[5:6] == 0.0, -0.0, X[5:6])).all()
