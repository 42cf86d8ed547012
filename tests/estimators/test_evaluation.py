"""Evaluation: equal to scikit-learn where it has the number, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, log_loss

from pro2.estimators import evaluation
from pro2.estimators.evaluation import EvaluationSums, evaluate, row_scores, wilson


def problem(n: int = 300, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    classes = np.array(["ant", "bee", "cat", "dog"])[:n_classes]
    codes = rng.integers(0, n_classes, n)
    logits = rng.standard_normal((n, n_classes)) + 1.5 * np.eye(n_classes)[codes]
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return classes[codes], proba, classes


@pytest.mark.parametrize("n_classes", [2, 4])
def test_numbers_are_those_of_scikit_learn(n_classes: int) -> None:
    y, proba, classes = problem(n_classes=n_classes)
    predicted = classes[proba.argmax(axis=1)]
    found = evaluate(y, proba, classes)
    assert found.accuracy.value == pytest.approx(accuracy_score(y, predicted))
    assert found.balanced_accuracy.value == pytest.approx(balanced_accuracy_score(y, predicted))
    assert found.log_loss.value == pytest.approx(log_loss(y, proba, labels=classes))
    assert found.confusion == confusion_matrix(y, predicted, labels=classes).tolist()
    assert found.worst_group is None


def test_groups_sum_up_and_the_worst_is_the_lowest() -> None:
    y, proba, classes = problem()
    group = np.arange(len(y)) % 3
    found = evaluate(y, proba, classes, group)
    parts = list(found.group_accuracy.values())
    assert sum(each.value * each.n for each in parts) == pytest.approx(found.accuracy.value * len(y))
    assert found.group_accuracy[found.worst_group or ""].value == min(each.value for each in parts)


def test_the_calibration_error_is_the_gap() -> None:
    y = np.array([0] * 70 + [1] * 30)
    right, sure = np.tile([0.7, 0.3], (100, 1)), np.tile([0.99, 0.01], (100, 1))
    assert evaluate(y, right, [0, 1]).ece.value == pytest.approx(0, abs=1e-12)
    assert evaluate(y, sure, [0, 1]).ece.value == pytest.approx(0.29)


def test_every_interval_holds_its_value_and_more_rows_make_it_narrower() -> None:
    small, large = (evaluate(*problem(n)).to_dict() for n in (100, 3000))
    for name in ("accuracy", "balanced_accuracy", "log_loss"):
        assert small[name]["low"] <= small[name]["value"] <= small[name]["high"]
        assert large[name]["high"] - large[name]["low"] < 0.5 * (small[name]["high"] - small[name]["low"])


def test_balanced_and_log_loss_intervals_cover_the_truth() -> None:
    y, proba, classes = problem(100_000, seed=99)
    truth = {
        "balanced_accuracy": balanced_accuracy_score(y, classes[proba.argmax(axis=1)]),
        "log_loss": log_loss(y, proba, labels=classes),
    }
    hits = {"balanced_accuracy": 0, "log_loss": 0}
    for seed in range(40):
        found = evaluate(*problem(200, seed=seed))
        for name in hits:
            each = getattr(found, name)
            hits[name] += each.low <= truth[name] <= each.high
    assert all(34 <= n <= 40 for n in hits.values()), hits  # 38 expected, 3 standard deviations of 1.4 below


@given(n=st.integers(1, 200), share=st.floats(0, 1))
def test_wilson_s_interval_is_that_of_scipy(n: int, share: float) -> None:
    hits = round(share * n)
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    found = wilson(hits, n)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-8)


def test_wrong_arguments_are_named() -> None:
    y, proba, classes = problem(20)
    with pytest.raises(ValueError, match=r"\['wolf'\].*check the label column"):
        evaluate(np.append(y[:-1], "wolf"), proba, classes)
    with pytest.raises(ValueError, match="proba has shape"):
        evaluate(y[:-1], proba, classes)
    for bad in (np.nan * proba, proba - 1.0, 2.0 * proba):
        with pytest.raises(ValueError, match=r"proba has values outside 0\.\.1"):
            evaluate(y, bad, classes)
    with pytest.raises(TypeError, match="group mixes texts"):
        evaluate(y, proba, classes, np.array(["a", None] * len(y), dtype=object)[: len(y)])
    with pytest.raises(ValueError, match="group has 3 entries"):
        evaluate(y, proba, classes, [1, 2, 3])
    with pytest.raises(ValueError, match="empty"):
        evaluate([], np.empty((0, 3)), classes)


@pytest.mark.parametrize("n", [300, 30_000])  # fewer rows than are resampled, and more
def test_blocks_are_the_whole(n: int) -> None:
    y, proba, classes = problem(n)
    codes, group = np.searchsorted(classes, y), np.where(np.arange(n) < n // 2, "early", y)
    sums = EvaluationSums(classes)
    for rows in np.array_split(np.arange(n), 7):
        sums.add(codes[rows], **row_scores(proba[rows], codes[rows]), group=group[rows])
    assert sums.result() == evaluate(y, proba, classes, group)
    assert sum(block.nbytes for block in sums._rows) == (24 * n if n == 300 else 0)


@pytest.mark.parametrize("sharpness", [1.0, 2.5])  # calibrated, and too sure of itself
def test_intervals_of_many_rows_are_those_of_the_bootstrap(sharpness: float, monkeypatch: pytest.MonkeyPatch) -> None:
    y, proba, classes = problem(100_000)
    proba = proba**sharpness / (proba**sharpness).sum(axis=1, keepdims=True)
    limit = evaluate(y, proba, classes)
    monkeypatch.setattr(evaluation, "MAX_RESAMPLED", 100_000 * evaluation.N_BOOTSTRAP)
    rows = evaluate(y, proba, classes)
    for found, expected in ((limit.ece, rows.ece), (limit.log_loss, rows.log_loss)):
        assert found.value == pytest.approx(expected.value, abs=1e-6)
        # a quantile of 1,000 draws has a standard error of 4% of the width, and each side has its own draws
        width = expected.high - expected.low
        assert [found.low, found.high] == pytest.approx([expected.low, expected.high], abs=0.15 * width)
