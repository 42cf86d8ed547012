"""What people read after the commonest mistakes: the argument, what was found, what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pro2 import EmbeddingTable, MultiLabelProjectAndProbe, ProjectAndProbe

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 80)
X = RNG.normal(size=(80, 5)) + 2 * Y[:, None]
NAMES = np.array(["A", "B"])[Y]


@pytest.fixture(scope="module")
def model() -> ProjectAndProbe:
    return ProjectAndProbe().fit(X, Y)


@pytest.fixture(scope="module")
def named_model() -> ProjectAndProbe:
    return ProjectAndProbe().fit(X, NAMES)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (Y[:8].astype(str), "is text but the classes are numbers; convert the labels"),
        ([str(float(label)) for label in Y[:8]], "is text but the classes are numbers; convert the labels"),
        (Y[:8] + 0.5, "is a fraction; labels are classes, not scores or probabilities"),
    ],
)
def test_labels_of_another_type_than_the_classes(model: ProjectAndProbe, labels: object, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        model.adapt(X[:8], labels)
    assert "y_target has classes" in str(error.value)
    assert "new_classes" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("A ", "'A ' differs from 'A' in spaces or capital letters only"),
        ("a", "'a' differs from 'A' in spaces or capital letters only"),
        (0, "0 is a number but the classes are text"),
    ],
)
def test_labels_spelled_differently(named_model: ProjectAndProbe, wrong: object, words: str) -> None:
    labels = np.full(8, wrong)
    with pytest.raises(ValueError, match=words) as error:
        named_model.adapt(X[:8], labels)
    assert "new_classes" not in str(error.value)


def test_a_class_that_is_really_new_names_new_classes(model: ProjectAndProbe, named_model: ProjectAndProbe) -> None:
    for fitted, label in ((model, 2), (named_model, "C")):
        with pytest.raises(ValueError, match="accept them with new_classes='allow'"):
            fitted.adapt(X[:8], np.full(8, label))


def test_whole_floats_are_the_classes(model: ProjectAndProbe) -> None:
    adapted = model.adapt(X[:8], Y[:8].astype(float))
    assert np.array_equal(adapted.coef_, model.adapt(X[:8], Y[:8]).coef_)


def test_two_columns_of_labels_name_the_estimator_for_them(model: ProjectAndProbe) -> None:
    both = np.stack([Y, 1 - Y], axis=1)
    message = r"has shape \(\d+, 2\).*MultiLabelProjectAndProbe"
    with pytest.raises(ValueError, match=f"^y {message}"):
        ProjectAndProbe().fit(X, both)
    with pytest.raises(ValueError, match=f"^y_target {message}"):
        model.adapt(X[:8], both[:8])
    assert MultiLabelProjectAndProbe().fit(X, both).predict(X[:3]).shape == (3, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_reads_the_same_everywhere(model: ProjectAndProbe, value: float) -> None:
    bad = X.copy()
    bad[3, 2] = value
    words = r"^row 3{} of {} is not finite \(NaN or infinity\); leave the row out or embed it again"
    with pytest.raises(ValueError, match=words.format("", "X")):
        ProjectAndProbe().fit(bad, Y)
    with pytest.raises(ValueError, match=words.format("", "X_target")):
        model.adapt(bad[:8], Y[:8])
    for kind in (np.asarray, torch.asarray):
        with pytest.raises(ValueError, match=words.format("", "X")):
            model.predict(kind(bad))
    table = EmbeddingTable(bad, [str(i) for i in range(80)], {"y": Y})
    with pytest.raises(ValueError, match=words.format(r" \(id '3'\)", ".*")):
        table.check()
