"""The sentences beside the item, in plain English."""

from __future__ import annotations

import math

from pro2.label.estimate import Accuracy, Growth

FEWEST = 4  # random rows before an accuracy is shown
ENOUGH = 8  # random rows before an accuracy is worth a sentence
NARROW = 0.24  # width of an interval that one can act on: 30 random rows, nine in ten of them right
WORTH = 0.01  # a rise of the accuracy that is worth labelling for
NEAR = 30  # labels that one may be asked for to gain it
FAR = 60  # labels that nobody wants to be asked for at once
POOR = 0.7  # lower end of an interval below which nobody should be told to trust


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
