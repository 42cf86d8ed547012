"""The figures: an interval that covers, a slope that is found again, sentences for every situation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from pro2.label.estimate import TYPICAL_SLOPE, Accuracy, Growth, Verdict, accuracy, advice, basis, growth


def verdicts(right: list[bool]) -> list[Verdict]:
    return [Verdict(each, 10, each, 10) for each in right]


def test_no_verdicts_no_accuracy_and_a_few_right_ones_no_certainty():
    assert accuracy([]) is None
    for n in range(1, 60):
        for right in range(n + 1):
            found = accuracy(verdicts([True] * right + [False] * (n - right)))
            assert found.low <= found.value <= found.high
            assert 0 < found.value < 1


@pytest.mark.parametrize("share", [0.1, 0.55, 0.8, 0.86, 0.95, 0.99])
@pytest.mark.parametrize("n", [4, 8, 17, 34, 100])
def test_the_interval_holds_the_truth_19_times_in_20(share: float, n: int):
    """Exactly, for independent random rows; on sessions with real data see docs/results/label.md."""
    inside = 0.0
    for right in range(n + 1):
        found = accuracy(verdicts([True] * right + [False] * (n - right)))
        inside += binom.pmf(right, n, share) * (found.low <= share <= found.high)
    assert inside >= 0.95


def test_growth_finds_a_slope_that_many_rows_show():
    """Rows whose first verdict came at n labels, with error floor + slope / sqrt(n + K), judged again at 400."""
    rng, slope, n_classes = np.random.default_rng(0), 1.5, 4
    first = rng.integers(0, 200, 4000)
    error = lambda n: 0.05 + slope / np.sqrt(n + n_classes)  # noqa: E731
    u = rng.random(len(first))  # a row that a good model gets wrong is wrong for a worse one
    found = growth(
        [Verdict(bool(u_i > error(400)), 400, bool(u_i > error(n)), int(n)) for u_i, n in zip(u, first)], n_classes
    )
    assert found.slope == pytest.approx(slope, rel=0.15)


def test_without_rows_the_typical_slope_is_expected_and_a_few_rows_barely_move_it():
    assert growth([], 3).slope == TYPICAL_SLOPE
    assert growth(verdicts([True] * 3), 3).slope == pytest.approx(TYPICAL_SLOPE, abs=0.05)


def test_gain_and_the_labels_for_it_are_inverse():
    rise = Growth(0.6, 0.2, 5)
    more = rise.labels_for(40, 0.01)
    gain, low, high = rise.gain(40, round(more))
    assert gain == pytest.approx(0.01, rel=0.03)
    assert 0 <= low <= gain <= high
    assert rise.labels_for(40, 0.5) == math.inf


class TestWords:
    rise = Growth(0.5, 0.1, 2)
    flat = Growth(0.0, 0.1, 2)

    def test_early(self):
        said = advice(None, self.rise, 0, 0.25, None)
        assert said == {"mood": "early", "text": "Too early to say how good it is. Label 32 more."}

    @pytest.mark.parametrize(
        ("n", "text"), [(2, "say how good it is. Label 24"), (5, "rely on its accuracy. Label 12")]
    )
    def test_what_is_there_already_is_counted(self, n, text):
        assert (
            advice(Accuracy(0.7, 0.2, 0.9, n, n - 1), self.rise, 9, 0.25, None)["text"] == f"Too early to {text} more."
        )

    def test_more_labels_pay(self):
        now = Accuracy(0.8, 0.6, 0.9, 10, 8)
        said = advice(now, self.rise, 20, 0.25, "fox")
        assert said["mood"] == "more"
        assert "gain about a point. It is least sure of fox." in said["text"]

    def test_nobody_is_asked_for_more_items_than_there_are(self):
        wide, early = Accuracy(0.9, 0.6, 0.98, 10, 9), Accuracy(0.6, 0.3, 0.9, 5, 3)
        assert "Label 3 more to know" in advice(wide, self.flat, 40, 0.25, None, 3)["text"]
        assert "gain" not in advice(wide, self.rise, 20, 0.25, None, 3)["text"]
        for now in (None, early, wide):
            assert "Label" not in advice(now, self.rise, 20, 0.25, None, 0)["text"]

    def test_trust(self):
        now = Accuracy(0.93, 0.88, 0.96, 120, 112)
        assert advice(now, self.flat, 480, 0.25, None)["text"] == "Trust it: 93% (88 to 96)."

    def test_a_wide_interval_asks_for_more_rows_to_measure_on(self):
        said = advice(Accuracy(0.9, 0.6, 0.98, 10, 9), self.flat, 40, 0.25, None)
        assert "to know its accuracy more closely" in said["text"]

    def test_nobody_is_told_to_trust_a_poor_model(self):
        said = advice(Accuracy(0.55, 0.5, 0.6, 400, 220), self.flat, 1600, 0.25, None)
        assert said["mood"] == "flat"
        assert "Trust" not in said["text"]

    def test_without_random_items_nothing_is_claimed(self):
        assert "cannot be measured" in advice(None, self.rise, 50, 0.0, None)["text"]

    def test_the_page_says_what_the_figure_stands_on(self):
        text = basis(Accuracy(0.9, 0.8, 0.95, 34, 31), 0.25, 2)
        assert text.startswith("Accuracy is measured on a random sample alone; one item in 4 is drawn for it.")
        assert "31 of 34 were guessed right, each by a model that had not seen its label" in text
        assert "one right guess and one wrong" in text
        assert "2 more were skipped" in text
