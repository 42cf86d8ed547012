"""How good the current model is, from rows that chance chose, what more labels would bring, and how to say it.

Rows that were chosen because they teach most say nothing about accuracy; a share of the rows is therefore drawn by
lot, and those make a random sample of the pool. Each of them is judged twice by models that had not learned from it:
when it was handed out, by the model of that moment (as in prequential evaluation, Dawid 1984), and now, by a model
fitted to all labels but those of its fold. The second verdict stands for the model on the page, so the accuracy is
theirs; the difference between the two shows how fast the model improves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

# error(n) = floor + slope / sqrt(n + K) with n labels and K classes. On the tables of docs/results/label.md the slope
# is near one half; the few random rows of a session correct that expectation slowly.
TYPICAL_SLOPE, SLOPE_SPREAD = 0.5, 0.5
OUTSIDE = 0.05  # chance that the truth is outside the interval
FEWEST = 4  # random rows before an accuracy is shown
ENOUGH = 8  # random rows before an accuracy is worth a sentence
NARROW = 0.24  # width of an interval that one can act on: 30 random rows, nine in ten of them right
WORTH = 0.01  # a rise of the accuracy that is worth labelling for
NEAR = 30  # labels that one may be asked for to gain it
FAR = 60  # labels that nobody wants to be asked for at once
POOR = 0.7  # lower end of an interval below which nobody should be told to trust


@dataclass(frozen=True)
class Verdict:
    """One random row: was the model right that had `n` labels, none of them this row's? And when it was handed out?"""

    right: bool
    n: int
    first_right: bool | None
    first_n: int


@dataclass(frozen=True)
class Accuracy:
    """What `right` of `n` verdicts on random rows say.

    `value` is (right + 1) / (n + 2), Laplace's rule: four right out of four do not make 100%. `low` and `high` are
    the exact 95% interval of Clopper and Pearson (1934), which holds at every n: people look after every label.
    """

    value: float
    low: float
    high: float
    n: int
    right: int


@dataclass(frozen=True)
class Growth:
    """How the error falls: floor + slope / sqrt(n + n_classes); `spread` is the standard deviation of the slope."""

    slope: float
    spread: float
    n_classes: int

    def gain(self, n: int, more: int) -> tuple[float, float, float]:
        """Expected rise of the accuracy from `more` labels after n, and a range that is right about 9 times in 10."""
        step = 1 / math.sqrt(n + self.n_classes) - 1 / math.sqrt(n + more + self.n_classes)
        ends = (self.slope + z * self.spread for z in (0.0, -1.64, 1.64))
        middle, low, high = (max(0.0, end * step) for end in ends)
        return middle, low, high

    def labels_for(self, n: int, rise: float) -> float:
        """How many more labels raise the accuracy by `rise`; infinite when the curve does not go that far."""
        left = self.slope / math.sqrt(n + self.n_classes) - rise
        return math.inf if left <= 0 else (self.slope / left) ** 2 - n - self.n_classes


def accuracy(verdicts: Sequence[Verdict]) -> Accuracy | None:
    """What the current verdicts add up to; None without any."""
    if not verdicts:
        return None
    n, right = len(verdicts), sum(each.right for each in verdicts)
    low = 0.0 if right == 0 else float(betaincinv(right, n - right + 1, OUTSIDE / 2))
    high = 1.0 if right == n else float(betaincinv(right + 1, n - right, 1 - OUTSIDE / 2))
    return Accuracy((right + 1) / (n + 2), low, high, n, right)


def growth(verdicts: Sequence[Verdict], n_classes: int) -> Growth:
    """The slope at which verdicts on the same rows improved between their draw and now.

    Row i contributes d = right - first_right, whose expectation is slope * x with x = 1/sqrt(first_n + K) -
    1/sqrt(n + K). Least squares through the origin, combined with the typical slope as a Gaussian prior.
    """
    twice = [v for v in verdicts if v.first_right is not None]
    x = np.array([(v.first_n + n_classes) ** -0.5 - (v.n + n_classes) ** -0.5 for v in twice])
    d = np.array([float(v.right) - float(v.first_right or 0) for v in twice])
    # two changes more than were seen: a handful of rows without any change must not look like certainty
    noise = (np.count_nonzero(d) + 2.0) / (len(d) + 2.0)
    precision = float(x @ x) / noise + SLOPE_SPREAD**-2
    slope = (float(x @ d) / noise + TYPICAL_SLOPE * SLOPE_SPREAD**-2) / precision
    return Growth(max(0.0, slope), precision**-0.5, n_classes)


def advice(
    now: Accuracy | None, rise: Growth, n: int, random: float, doubtful: str | None, left: float = math.inf
) -> dict[str, str]:
    """One plain sentence after n labels, with `left` to give, and its mood: "early", "more", "trust" or "flat"."""
    if random <= 0:
        return _said("early", "Nothing is drawn at random, so accuracy cannot be measured.")
    if now is None or now.n < ENOUGH:
        so_far = 0 if now is None else now.n
        what = "say how good it is" if so_far < FEWEST else "rely on its accuracy"
        missing = min(math.ceil((ENOUGH - so_far) / random), left)
        return _said("early", f"Too early to {what}. Label {missing} more." if left else f"Too few items to {what}.")
    least = f" It is least sure of {doubtful}." if doubtful else ""
    more = rise.labels_for(n, WORTH)
    if more <= min(NEAR, left):
        return _said("more", f"Label {math.ceil(more)} more and gain about a point.{least}")
    if left and now.high - now.low > NARROW:
        # random rows that make an interval so narrow
        wanted = (2 * 1.96 / NARROW) ** 2 * max(now.value * (1 - now.value), 0.05)
        missing = math.ceil((wanted - now.n) / random)
        return _said("more", f"Label {min(FAR, max(4, missing), left)} more to know its accuracy more closely.{least}")
    known = f"{100 * now.value:.0f}% ({100 * now.low:.0f} to {100 * now.high:.0f})"
    if now.low < POOR:
        return _said("flat", f"It is right {known} of the time, and more labels of this kind change little.")
    return _said("trust", f"Trust it: {known}.")


def _said(mood: str, text: str) -> dict[str, str]:
    return {"mood": mood, "text": text}


def basis(now: Accuracy | None, random: float, n_passed: int) -> str:
    """What the accuracy stands on."""
    if random <= 0:
        return "Start again with a random share above 0 to measure accuracy."
    drawn = "every item" if random >= 1 else f"one item in {1 / random:.3g}"
    text = f"Accuracy is measured on a random sample alone; {drawn} is drawn for it."
    if now is None:
        return text
    text += f" So far {now.right} of {now.n} were guessed right, each by a model that had not seen its label."
    text += " The figure adds one right guess and one wrong, so that a few cannot look perfect."
    if n_passed:
        were = "1 more was" if n_passed == 1 else f"{n_passed} more were"
        text += f" {were} skipped, so the truth may be a little lower."
    return text
