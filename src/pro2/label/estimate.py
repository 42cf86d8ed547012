"""How accurate the current model is, what more labels would bring, and one sentence of advice.

Rows that were chosen because they are informative say nothing about accuracy. A share of the rows is therefore drawn at
random, and those are a random sample of the pool. Each is predicted twice by models that had not learned from it: when
it was assigned, by the model of that moment (prequential evaluation, Dawid 1984), and now, by a model of all labels but
those of its fold. The second prediction represents the model on the page and gives its accuracy; the difference between
the two shows how fast the model improves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, binomtest

# error(n) = floor + slope / sqrt(n + K) with n labels and K classes. On the tables of docs/results/label.md the slope
# is near one half; the few random rows of a session correct that expectation slowly.
TYPICAL_SLOPE, SLOPE_SD = 0.5, 0.5
FEWEST = 4  # random rows before an accuracy is shown
ENOUGH = 8  # random rows before an accuracy is worth a sentence
POINT = 20  # random rows before the page shows a single number and not only its interval, as in panel.js
NARROW = 0.24  # width of an interval that one can act on: 30 random rows, nine in ten of them right
WORTHWHILE = 0.01  # a rise of the accuracy that is worth labelling for
NEAR = 30  # labels that one may be asked for to gain it
FAR = 60  # labels that nobody wants to be asked for at once
POOR = 0.7  # lower end of an interval below which a model is not recommended


@dataclass(frozen=True)
class Outcome:
    """One random row: was the model of `n` labels right that lacks its label? And the model when it was assigned?"""

    right: bool
    n: int
    first_right: bool | None
    first_n: int


@dataclass(frozen=True)
class Accuracy:
    """Accuracy after `right` of `n` random rows.

    `value` is (right + 1) / (n + 2), Laplace's rule: four of four do not make 100%. `low` and `high` are the exact 95%
    interval of Clopper and Pearson (1934), which holds at every n: people look after every label.
    """

    value: float
    low: float
    high: float
    n: int
    right: int


@dataclass(frozen=True)
class Agreement:
    """Fleiss' kappa of `n` items that several people labelled, with its 95% interval; None where there is one class."""

    kappa: float | None
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Growth:
    """How the error falls: floor + slope / sqrt(n + n_classes); `sd` is the standard deviation of the slope."""

    slope: float
    sd: float
    n_classes: int

    def gain(self, n: int, more: int) -> tuple[float, float, float]:
        """Expected rise of the accuracy from `more` labels after n, and its 90% interval."""
        step = 1 / math.sqrt(n + self.n_classes) - 1 / math.sqrt(n + more + self.n_classes)
        middle, low, high = (max(0.0, (self.slope + z * self.sd) * step) for z in (0.0, -1.64, 1.64))
        return middle, low, high

    def labels_for(self, n: int, rise: float) -> float:
        """How many more labels raise the accuracy by `rise`; infinite if the curve does not go that far."""
        left = self.slope / math.sqrt(n + self.n_classes) - rise
        return math.inf if left <= 0 else (self.slope / left) ** 2 - n - self.n_classes


def accuracy(outcomes: Sequence[Outcome]) -> Accuracy | None:
    """The accuracy that the outcomes show; None without any."""
    if not outcomes:
        return None
    n, right = len(outcomes), sum(each.right for each in outcomes)
    interval = binomtest(right, n).proportion_ci(0.95, method="exact")
    return Accuracy((right + 1) / (n + 2), float(interval.low), float(interval.high), n, right)


def agreement(answers: Sequence[Sequence[str]]) -> Agreement:
    """How far people agree beyond chance; `answers` are the labels of each item by at least two people.

    Observed agreement is the mean over items of the share of pairs that agree, chance the agreement of two labels drawn
    from all (Fleiss 1971). The interval is that of Clopper and Pearson for the observed share, at the same chance: it
    stays wide where a few items all agree.
    """
    counts = [Counter(each) for each in answers]
    pairs = [len(each) * (len(each) - 1) for each in answers]
    observed = sum(sum(m * (m - 1) for m in count.values()) / p for count, p in zip(counts, pairs))
    shares = np.array(list(sum(counts, Counter()).values()), dtype=float)
    chance, n = float(((shares / shares.sum()) ** 2).sum()) if len(shares) else 1.0, len(answers)
    if chance >= 1.0:
        return Agreement(None, 0.0, 1.0, n)
    low = beta.ppf(0.025, observed, n - observed + 1) if observed > 0 else 0.0
    high = beta.ppf(0.975, observed + 1, n - observed) if observed < n else 1.0
    kappa, low, high = ((float(share) - chance) / (1 - chance) for share in (observed / n, low, high))
    return Agreement(kappa, low, high, n)


def growth(outcomes: Sequence[Outcome], n_classes: int) -> Growth:
    """The slope at which predictions for the same rows improved between their assignment and now.

    Row i contributes d = right - first_right, whose expectation is slope * x with x = 1/sqrt(first_n + K) -
    1/sqrt(n + K). Least squares through the origin, combined with the typical slope as a Gaussian prior.
    """
    twice = [each for each in outcomes if each.first_right is not None]
    x = np.array([(each.first_n + n_classes) ** -0.5 - (each.n + n_classes) ** -0.5 for each in twice])
    d = np.array([float(each.right) - float(each.first_right or 0) for each in twice])
    # two changes more than were seen: a handful of rows without any change must not look like certainty
    noise = (np.count_nonzero(d) + 2.0) / (len(d) + 2.0)
    precision = float(x @ x) / noise + SLOPE_SD**-2
    slope = (float(x @ d) / noise + TYPICAL_SLOPE * SLOPE_SD**-2) / precision
    return Growth(max(0.0, slope), precision**-0.5, n_classes)


def advice(
    now: Accuracy | None, rise: Growth, n: int, random: float, doubtful: str | None, left: float = math.inf
) -> dict[str, str]:
    """One sentence after n labels, with `left` items to go, and its level: "early", "more", "good" or "flat"."""
    if random <= 0:
        return {"level": "early", "text": "No items are drawn at random, so accuracy cannot be measured."}
    if now is None or now.n < ENOUGH:
        so_far = 0 if now is None else now.n
        missing = min(math.ceil((ENOUGH - so_far) / random), left)
        what = "estimate accuracy" if so_far < FEWEST else "rely on the estimate"
        text = f"Too early to {what}. Label {missing} more." if left else f"Too few items to {what}."
        return {"level": "early", "text": text}
    least = f" The model is least certain of {doubtful}." if doubtful else ""
    more = rise.labels_for(n, WORTHWHILE)
    if more <= min(NEAR, left):
        return {"level": "more", "text": f"{math.ceil(more)} more labels should add about one point.{least}"}
    if left and now.high - now.low > NARROW:
        # random rows that make an interval so narrow
        wanted = (2 * 1.96 / NARROW) ** 2 * max(now.value * (1 - now.value), 0.05)
        missing = min(FAR, max(4, math.ceil((wanted - now.n) / random)), left)
        return {"level": "more", "text": f"Label {missing} more to narrow the interval.{least}"}
    estimate = f"{100 * now.value:.0f}% ({100 * now.low:.0f} to {100 * now.high:.0f})"
    if now.low < POOR:
        return {"level": "flat", "text": f"Accuracy is {estimate}, and more labels of this kind change little."}
    return {"level": "good", "text": f"Ready to use: accuracy is {estimate}."}


def basis(now: Accuracy | None, random: float, n_skipped: int) -> str:
    """What the accuracy is based on."""
    if random <= 0:
        return "Start again with a random share above 0 to measure accuracy."
    drawn = "every item" if random >= 1 else f"one item in {1 / random:.3g}"
    text = f"Accuracy is measured on a random sample only; {drawn} is drawn for it."
    if now is None:
        return text
    text += f" So far {now.right} of {now.n} predictions were right, each by a model without that label."
    if now.n >= POINT:
        text += " The figure adds one right prediction and one wrong, so that a few cannot look perfect."
    if n_skipped:
        were = "1 more was" if n_skipped == 1 else f"{n_skipped} more were"
        text += f" {were} skipped or none of the classes, so the true accuracy may be slightly lower."
    return text
