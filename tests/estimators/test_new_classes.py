"""Classes of the target that the source does not have."""

from __future__ import annotations

import numpy as np
import pytest

from pro2 import ProjectAndProbe

MEANS = np.random.default_rng(7).normal(size=(5, 12)) * 1.5
NAMES = np.array(["ant", "bee", "cat", "dog", "eel"])


def rows(classes, n, seed=0):
    rng = np.random.default_rng(seed)
    y = np.array(classes)[np.arange(n) % len(classes)]
    return MEANS[y] + rng.normal(size=(n, 12)), NAMES[y]


@pytest.fixture(scope="module", params=[[1, 3], [0, 2, 4]], ids=["two", "three"])
def case(request):
    """A source of some classes, and a target of all of them and one between them."""
    known = request.param
    model = ProjectAndProbe().fit(*rows(known, 300))
    every = sorted({*known, 2 if 2 not in known else 1})
    return model, rows(every, 8 * len(every), seed=1), rows(every, 600, seed=2)


def test_a_new_class_is_learned_and_the_model_is_not_changed(case):
    model, few, test = case
    before = model.classes_.copy()
    adapted = model.adapt(*few, new_classes="allow")
    assert adapted.classes_.tolist() == sorted(set(few[1]))
    assert adapted.score(*test) > 0.9
    assert model.classes_.tolist() == before.tolist()
    assert model.priors_[0].n_classes == len(before)


def test_without_asking_it_is_an_error(case):
    model, few, _ = case
    with pytest.raises(ValueError, match="new_classes='allow'"):
        model.adapt(*few)
    with pytest.raises(ValueError, match="new_classes must be one of"):
        model.adapt(*few, new_classes="maybe")


def test_allowed_but_absent_changes_nothing(case):
    model, (X, y), _ = case
    known = np.isin(y, model.classes_)
    asked, plain = model.adapt(X[known], y[known], new_classes="allow"), model.adapt(X[known], y[known])
    np.testing.assert_array_equal(asked.coef_, plain.coef_)
    assert asked.classes_.tolist() == plain.classes_.tolist()


def test_unlabeled_rows_validation_rows_and_the_paper_s_probe_know_them(case):
    model, few, test = case
    informed = model.adapt(*few, X_unlabeled=test[0], new_classes="allow")
    assert informed.score(*test) > 0.9
    assert informed.transductive_proba_.shape == (len(test[0]), len(informed.classes_))
    by_accuracy = model.adapt(*few, X_val=test[0], y_val=test[1], new_classes="allow")
    assert by_accuracy.score(*test) > 0.9


def test_the_report_counts_them_and_the_source_head_never_names_them(case):
    model, few, _ = case
    report = model.adapt(*few, new_classes="allow").report_
    assert report.counts == [8] * len(set(few[1]))
    source_right = np.mean(model.predict(few[0]) == few[1])
    assert report.source_accuracy == pytest.approx(source_right)
    assert report.accuracy > report.source_accuracy


def test_text_and_numbers_do_not_mix(case):
    model, (X, y), _ = case
    with pytest.raises(ValueError, match="both as text, or both as numbers"):
        model.adapt(X, np.arange(len(y)) % 2, new_classes="allow")
