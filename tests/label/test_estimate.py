"""The figures: an interval that covers, a slope that is found again, sentences for every situation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from pro2.label.estimate import TYPICAL_SLOPE, Accuracy, Growth, Outcome, accuracy, advice, agreement, basis, growth


def outcomes(right: list[bool]) -> list[Outcome]:
    return [Outcome(each, 10, each, 10) for each in right]


def test_no_outcomes_no_accuracy_and_a_few_right_ones_no_certainty():
    assert accuracy([]) is None
    for n in range(1, 60):
        for right in range(n + 1):
            found = accuracy(outcomes([True] * right + [False] * (n - right)))
            assert found.low <= found.value <= found.high
            assert 0 < found.value < 1


@pytest.mark.parametrize("share", [0.1, 0.55, 0.8, 0.86, 0.95, 0.99])
@pytest.mark.parametrize("n", [4, 8, 17, 34, 100])
def test_the_interval_holds_the_truth_19_times_in_20(share: float, n: int):
    """Exactly, for independent random rows; on sessions with real data see docs/results/label.md."""
    inside = 0.0
    for right in range(n + 1):
        found = accuracy(outcomes([True] * right + [False] * (n - right)))
        inside += binom.pmf(right, n, share) * (found.low <= share <= found.high)
    assert inside >= 0.95


def test_growth_finds_a_slope_that_many_rows_show():
    """Rows whose first verdict came at n labels, with error floor + slope / sqrt(n + K), judged again at 400."""
    rng, slope, n_classes = np.random.default_rng(0), 1.5, 4
    first = rng.integers(0, 200, 4000)
    error = lambda n: 0.05 + slope / np.sqrt(n + n_classes)  # noqa: E731
    u = rng.random(len(first))  # a row that a good model gets wrong is wrong for a worse one
    found = growth(
        [Outcome(bool(u_i > error(400)), 400, bool(u_i > error(n)), int(n)) for u_i, n in zip(u, first)], n_classes
    )
    assert found.slope == pytest.approx(slope, rel=0.15)


def test_without_rows_the_typical_slope_is_expected_and_a_few_rows_barely_move_it():
    assert growth([], 3).slope == TYPICAL_SLOPE
    assert growth(outcomes([True] * 3), 3).slope == pytest.approx(TYPICAL_SLOPE, abs=0.05)


def test_gain_and_the_labels_for_it_are_inverse():
    rise = Growth(0.6, 0.2, 5)
    more = rise.labels_for(40, 0.01)
    gain, low, high = rise.gain(40, round(more))
    assert gain == pytest.approx(0.01, rel=0.03)
    assert 0 <= low <= gain <= high
    assert rise.labels_for(40, 0.5) == math.inf


RISING, FLAT = Growth(0.5, 0.1, 2), Growth(0.0, 0.1, 2)
EARLY, WIDE = Accuracy(0.6, 0.3, 0.9, 5, 3), Accuracy(0.9, 0.6, 0.98, 10, 9)
GOOD, POOR = Accuracy(0.93, 0.88, 0.96, 120, 112), Accuracy(0.55, 0.5, 0.6, 400, 220)
MORE = Accuracy(0.8, 0.6, 0.9, 10, 8)


class TestWords:
    @pytest.mark.parametrize(
        ("now", "rise", "n", "doubtful", "left", "level", "text"),
        [
            (None, RISING, 0, None, math.inf, "early", "Too early to estimate accuracy. Label 32 more."),
            # what is there already is counted
            (Accuracy(0.7, 0.2, 0.9, 2, 1), RISING, 9, None, 99, "early", "estimate accuracy. Label 24 more."),
            (Accuracy(0.7, 0.2, 0.9, 5, 4), RISING, 9, None, 99, "early", "rely on the estimate. Label 12 more."),
            (MORE, RISING, 20, "fox", 99, "more", " should add about one point. The model is least certain of fox."),
            # no more items are asked for than there are
            (WIDE, FLAT, 40, None, 3, "more", "Label 3 more to narrow the interval."),
            (WIDE, RISING, 20, None, 3, "more", "Label 3 more to narrow the interval."),
            (None, RISING, 20, None, 0, "early", "Too few items to estimate accuracy."),
            (EARLY, RISING, 20, None, 0, "early", "Too few items to rely on the estimate."),
            (GOOD, FLAT, 480, None, 99, "good", "Ready to use: accuracy is 93% (88 to 96)."),
            (POOR, FLAT, 1600, None, 99, "flat", "and more labels of this kind change little."),
        ],
    )  # fmt: skip
    def test_advice(self, now, rise, n, doubtful, left, level, text):
        found = advice(now, rise, n, 0.25, doubtful, left)
        assert found["level"] == level
        assert found["text"].endswith(text)

    def test_without_random_items_nothing_is_claimed(self):
        assert "cannot be measured" in advice(None, RISING, 50, 0.0, None)["text"]

    def test_the_page_explains_what_the_figure_is_based_on(self):
        text = basis(Accuracy(0.9, 0.8, 0.95, 34, 31), 0.25, 2)
        assert text.startswith("Accuracy is measured on a random sample only; one item in 4 is drawn for it.")
        assert "31 of 34 predictions were right, each by a model without that label" in text
        assert "one right prediction and one wrong" in text
        assert "2 more were skipped" in text


class TestAgreement:
    # ten items, fourteen people, five classes: the example with which Fleiss' kappa is often explained
    COUNTS = ((0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1), (7, 7, 0, 0, 0),
              (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7))  # fmt: skip

    def test_the_textbook(self):
        found = agreement([[k for k, n in enumerate(counts) for _ in range(n)] for counts in self.COUNTS])
        assert found.kappa == pytest.approx(0.210, abs=5e-4)
        assert found.low < found.kappa < found.high

    def test_a_few_items_that_agree_prove_little(self):
        few, many = (agreement([["a", "a"], ["b", "b"]] * n) for n in (2, 50))
        assert few.kappa == many.kappa == 1.0
        assert few.low < 0
        assert many.low > 0.9

    def test_without_a_second_class_there_is_nothing_beyond_chance(self):
        assert agreement([["a", "a"]]).kappa is None
        assert agreement([]).kappa is None

    def test_the_interval_covers(self):
        """Two people who agree on nine items in ten, of two classes that are equally common."""
        rng, covered = np.random.default_rng(0), 0
        for _ in range(300):
            y = rng.integers(0, 2, 40)
            found = agreement(np.column_stack([y, np.where(rng.random(40) < 0.1, 1 - y, y)]).tolist())
            covered += found.low <= 0.8 <= found.high
        assert covered >= 0.93 * 300
