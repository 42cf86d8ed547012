"""A refit: models of the labels at hand, verdicts without cheating, suggestions among free rows."""

from __future__ import annotations

import numpy as np
import pytest

from pro2 import ProjectAndProbe
from pro2.label.fitting import FOLDS, QUEUE, Fitted, Labelled, refit
from pro2.label.start import start_model


def labelled_of(rows: list[int], truth: list[str], n_random: int, n_rows: int) -> Labelled:
    free, held = np.setdiff1d(np.arange(n_rows), rows), np.empty(0, np.intp)
    return Labelled(np.array(rows, dtype=np.intp), [truth[row] for row in rows], rows[:n_random], free, held)


@pytest.fixture(scope="module")
def steps(pool, model, truth):
    labelled = labelled_of(list(range(0, 60, 2)), truth, 11, len(pool))
    return labelled, list(refit(pool, start_model(model, pool), labelled, Fitted()))


def test_the_first_step_is_a_whole_model(steps, pool):
    labelled, found = steps
    first = found[0]
    assert first.n == len(labelled.rows)
    np.testing.assert_allclose(
        first.sure, first.classifier.predict_proba(pool.take(np.arange(len(pool)))).max(axis=1), atol=1e-4
    )
    said = first.classifier.predict(pool.take(np.arange(len(pool))))
    assert [first.guess(row)[0] for row in range(len(pool))] == said.tolist()


def test_every_random_row_is_judged_in_both_steps(steps):
    labelled, found = steps
    sizes = {row: len(labelled.random[i::FOLDS]) for i in range(FOLDS) for row in labelled.random[i::FOLDS]}
    for step in found:
        assert {row: guess.n for row, guess in step.judged.items()} == {
            row: len(labelled.rows) - size for row, size in sizes.items()
        }


def test_verdicts_agree_with_refits_by_hand(steps, pool, model, truth):
    labelled, found = steps
    row, fold = labelled.random[0], set(labelled.random[::FOLDS])
    kept = [each for each in labelled.rows.tolist() if each not in fold]
    by_hand = model.adapt(pool.take(np.array(kept)), np.array(truth)[kept]).predict(pool.take(np.array([row])))
    assert found[-1].judged[row].label == by_hand[0]


def test_a_row_is_judged_without_its_own_label(pool, model, truth):
    labelled = labelled_of(list(range(0, 60, 2)), truth, 11, len(pool))
    other = list(labelled.labels)
    for at in range(0, len(labelled.random), FOLDS):  # the rows of the first fold are labelled wrongly
        other[at] = next(name for name in model.classes_.tolist() if name != other[at])
    lied = Labelled(labelled.rows, other, labelled.random, labelled.free, labelled.held)
    start = start_model(model, pool)
    right, wrong = (next(iter(refit(pool, start, each, Fitted()))) for each in (labelled, lied))
    for row in labelled.random[::FOLDS]:
        assert right.judged[row] == wrong.judged[row]


def test_suggestions_are_free_distinct_rows(steps):
    labelled, found = steps
    queue = found[-1].queue
    assert len(queue) == len(set(queue)) == QUEUE
    assert set(queue) <= set(labelled.free.tolist())


def test_before_any_label_the_source_speaks(pool, model):
    labelled = labelled_of([], [], 0, len(pool))
    found = list(refit(pool, start_model(model, pool), labelled, Fitted()))[-1]
    assert found.n == 0
    assert found.classifier is model.source_head_
    assert found.judged == {}


def test_without_a_model_labels_alone_make_one(pool, truth):
    start = start_model(None, pool, ["cat", "dog", "fox"])
    nothing = list(refit(pool, start, labelled_of([], [], 0, len(pool)), Fitted()))[-1]
    assert nothing.classifier is None
    assert nothing.guess(0) is None
    assert len(nothing.queue) == QUEUE
    one = list(refit(pool, start, labelled_of([3], truth, 1, len(pool)), Fitted()))[-1]
    assert one.guess(0)[0] == truth[3]
    found = list(refit(pool, start, labelled_of(list(range(60)), truth, 15, len(pool)), Fitted()))[-1]
    rest = np.arange(60, len(pool))
    assert np.mean(np.array(found.names)[found.top[rest]] == np.array(truth)[rest]) > 0.6


def test_a_class_that_the_source_does_not_have(pool, model, truth):
    labels = ["wolf" if i % 7 == 0 else label for i, label in enumerate(truth)]
    labelled = labelled_of(list(range(40)), labels, 10, len(pool))
    found = list(refit(pool, start_model(model, pool), labelled, Fitted()))[-1]
    assert "wolf" in found.names


def test_a_new_class_beside_numbers_makes_all_of_them_text(pool, model, truth):
    codes = {name: i for i, name in enumerate(model.classes_.tolist())}
    numbered = ProjectAndProbe.from_unlabeled(pool.take(np.arange(len(pool))), list(codes.values()))
    start = start_model(numbered, pool)
    labels = [str(codes[label]) for label in truth[:40]]
    X = pool.take(np.arange(40))
    assert start.adapt(X, labels).classes_.dtype.kind == "i"
    assert start.adapt(X, ["wolf", *labels[1:]]).classes_.tolist() == [*start.classes, "wolf"]
