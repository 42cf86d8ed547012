"""A refit: a classifier of the labels at hand, out-of-fold predictions, suggestions among free rows, in a thread."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from pro2 import ProjectAndProbe
from pro2.label.model import FOLDS, QUEUE, Fitted, Labelled, Refitter, abstention, refit, start_from

CLASSES = ["cat", "dog", "fox"]


def labelled_of(rows: list[int], truth: list[str], n_random: int, n_rows: int) -> Labelled:
    free, assigned = np.setdiff1d(np.arange(n_rows), rows), np.empty(0, np.intp)
    return Labelled(np.array(rows, dtype=np.intp), [truth[row] for row in rows], rows[:n_random], free, assigned)


def last(pool, start, labelled: Labelled) -> Fitted:
    return list(refit(pool, start, labelled, Fitted()))[-1]


@pytest.fixture(scope="module")
def steps(pool, model, truth):
    labelled = labelled_of(list(range(0, 60, 2)), truth, 11, len(pool))
    return labelled, list(refit(pool, start_from(model, pool), labelled, Fitted()))


def test_the_first_step_predicts_the_whole_pool(steps, pool):
    labelled, (first, _) = steps
    X = pool.take(np.arange(len(pool)))
    assert first.n == len(labelled.rows)
    np.testing.assert_allclose(first.probability, first.classifier.predict_proba(X).max(axis=1), atol=1e-4)
    assert [first.guess(row)[0] for row in range(len(pool))] == first.classifier.predict(X).tolist()


def test_every_random_row_is_predicted_out_of_fold_in_both_steps(steps, pool, model, truth):
    labelled, found = steps
    sizes = {row: len(labelled.random[i::FOLDS]) for i in range(FOLDS) for row in labelled.random[i::FOLDS]}
    for step in found:
        n = {row: prediction.n for row, prediction in step.out_of_fold.items()}
        assert n == {row: len(labelled.rows) - size for row, size in sizes.items()}
    row, fold = labelled.random[0], set(labelled.random[::FOLDS])
    kept = [each for each in labelled.rows.tolist() if each not in fold]
    by_hand = model.adapt(pool.take(np.array(kept)), np.array(truth)[kept]).predict(pool.take(np.array([row])))
    assert found[-1].out_of_fold[row].label == by_hand[0]


def test_a_row_is_predicted_without_its_own_label(pool, model, truth):
    labelled = labelled_of(list(range(0, 60, 2)), truth, 11, len(pool))
    other = list(labelled.labels)
    for at in range(0, len(labelled.random), FOLDS):  # the rows of the first fold are labelled wrongly
        other[at] = next(name for name in model.classes_.tolist() if name != other[at])
    start = start_from(model, pool)
    right, wrong = (last(pool, start, each) for each in (labelled, replace(labelled, labels=other)))
    for row in labelled.random[::FOLDS]:
        assert right.out_of_fold[row] == wrong.out_of_fold[row]


def test_suggestions_are_free_distinct_rows(steps):
    labelled, found = steps
    queue = found[-1].queue
    assert len(queue) == len(set(queue)) == QUEUE
    assert set(queue) <= set(labelled.free.tolist())


def test_before_any_label_the_source_predicts(pool, model):
    found = last(pool, start_from(model, pool), labelled_of([], [], 0, len(pool)))
    assert (found.n, found.out_of_fold) == (0, {})
    assert found.classifier is model.source_head_


def test_without_a_model_labels_alone_make_one(pool, truth):
    start = start_from(None, pool, ["cat", "dog", "fox"])
    nothing = last(pool, start, labelled_of([], [], 0, len(pool)))
    assert (nothing.classifier, nothing.guess(0), len(nothing.queue)) == (None, None, QUEUE)
    assert last(pool, start, labelled_of([3], truth, 1, len(pool))).guess(0)[0] == truth[3]
    found, rest = last(pool, start, labelled_of(list(range(60)), truth, 15, len(pool))), np.arange(60, len(pool))
    assert np.mean(np.array(found.names)[found.top[rest]] == np.array(truth)[rest]) > 0.6


def test_a_class_that_the_source_does_not_have(pool, model, truth):
    labels = ["wolf" if i % 7 == 0 else label for i, label in enumerate(truth)]
    assert "wolf" in last(pool, start_from(model, pool), labelled_of(list(range(40)), labels, 10, len(pool))).names


def test_a_new_class_next_to_numbers_makes_all_of_them_text(pool, model, truth):
    codes = {name: i for i, name in enumerate(model.classes_.tolist())}
    numbered = ProjectAndProbe.from_unlabeled(pool.take(np.arange(len(pool))), list(codes.values()))
    start = start_from(numbered, pool)
    labels = [str(codes[label]) for label in truth[:40]]
    X = pool.take(np.arange(40))
    assert start.adapt(X, labels).classes_.dtype.kind == "i"
    assert start.adapt(X, ["wolf", *labels[1:]]).classes_.tolist() == [*start.classes, "wolf"]


@pytest.mark.parametrize(("n", "has_sets", "has_outliers"), [(6, False, False), (16, True, False), (60, True, True)])
def test_label_sets_and_outliers_need_some_labels(pool, model, truth, n, has_sets, has_outliers):
    rows = list(range(n))
    classifier = start_from(model, pool).adapt(pool.take(rows), [truth[row] for row in rows])
    (*_, found), X = abstention(pool, Fitted(n, classifier, CLASSES)), pool.take(np.arange(len(pool)))
    by_hand = [[str(name) for name in classifier.classes_[each]] for each in classifier.predict_set(X, 0.9)]
    assert [found.label_set(row) for row in range(len(pool))] == by_hand
    assert any(len(each) < 3 for each in by_hand) == has_sets
    np.testing.assert_allclose(found.outlier_score, classifier.outlier_score(X), rtol=1e-6)
    assert any(found.is_unlike(row) for row in range(len(pool))) == has_outliers


@pytest.mark.parametrize("labels", [[], ["cat"] * 30], ids=["no label", "labels of one class"])
def test_there_are_no_sets_without_labels_of_two_classes(pool, model, labels):
    classifier = start_from(model, pool).adapt(pool.take(np.arange(len(labels))), labels)
    assert list(abstention(pool, Fitted(len(labels), classifier, CLASSES))) == [None]


class TestRefitter:
    def test_requests_during_a_refit_make_one_further_refit(self):
        state, seen, begun, go_on = {"labels": 0}, [], threading.Event(), threading.Event()

        def steps():
            labels = state["labels"]
            yield "model", labels
            begun.set()
            if labels == 0:
                go_on.wait(120)
            yield "rows", labels

        refitter = Refitter(steps, seen.append)
        refitter.request()
        begun.wait(120)
        for n in range(1, 30):
            state["labels"] = n
            refitter.request()
        assert not refitter.wait(0.01)
        go_on.set()
        assert refitter.wait(120)
        refitter.stop()
        assert seen == [("model", 0), ("rows", 0), ("model", 29), ("rows", 29)]

    def test_a_refit_that_fails_is_logged_and_the_next_one_runs(self, caplog):
        calls, seen = [], []

        def steps():
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("singular")
            yield "fine"

        refitter = Refitter(steps, seen.append)
        for _ in range(2):
            refitter.request()
            assert refitter.wait(120)
        refitter.stop()
        refitter.request()  # a late label after the end
        assert seen == ["fine"]
        assert "the refit failed" in caplog.text
