"""The sentences beside the item, in plain English."""

from __future__ import annotations

import math

from pro2.label.estimate import Accuracy, Growth

ENOUGH = 8  # random rows before an accuracy is worth a sentence
NARROW = 0.22  # width of an interval that one can act on: 30 random rows, nine in ten of them right
WORTH = 0.01  # a rise of the accuracy that is worth labelling for
FAR = 60  # labels that nobody wants to be asked for at once


def percent(share: float) -> str:
    """A share as whole per cent."""
    return f"{100 * share:.0f}"


def advice(now: Accuracy | None, rise: Growth, n: int, random: float, doubtful: str | None) -> dict[str, str]:
    """One plain sentence, and its mood: "early", "more", "trust" or "flat"."""
    if random <= 0:
        return _said("early", "No items are drawn at random, so accuracy cannot be measured.")
    if now is None or now.n < ENOUGH:
        missing = math.ceil((ENOUGH - (0 if now is None else now.n)) / random)
        return _said("early", f"Too early to say how good it is. Label {missing} more.")
    mostly = f", mostly {doubtful}" if doubtful else ""
    more = math.ceil(rise.labels_for(n, WORTH) / 2) * 2 if math.isfinite(rise.labels_for(n, WORTH)) else math.inf
    known = f"{percent(now.value)} % ({percent(now.low)} to {percent(now.high)})"
    if more <= FAR / 2:
        return _said("more", f"Label {more:.0f} more{mostly}: about one point better.")
    if now.high - now.low > NARROW:
        missing = math.ceil(_rows_for(now.value, NARROW) / random) - n
        return _said("more", f"Label {max(4, min(FAR, missing))} more{mostly}: then its accuracy is known more closely.")
    if now.low < 0.7:
        return _said("flat", f"It is right {known} of the time, and more labels of this kind change little.")
    return _said("trust", f"Trust it: {known}.")


def _rows_for(share: float, width: float, z: float = 1.96) -> float:
    """Random rows for an interval of that width."""
    return (2 * z / width) ** 2 * max(share * (1 - share), 0.05)


def _said(mood: str, text: str) -> dict[str, str]:
    return {"mood": mood, "text": text}


def basis(now: Accuracy | None, random: float, n_passed: int) -> str:
    """What the accuracy stands on."""
    if random <= 0:
        return "Start again with a random share above 0 to measure accuracy."
    drawn = f"One item in {1 / random:.0f}" if 1 / random > 1.5 else "Nearly every item"
    text = f"{drawn} is drawn at random. "
    if now is None:
        return text + "Accuracy is measured on those alone."
    items = "1 such item" if now.n == 1 else f"{now.n} such items"
    text += f"The figure rests on {items}, each judged by a model that had not seen its label."
    if n_passed:
        text += f" {n_passed} more {'was' if n_passed == 1 else 'were'} skipped, so the truth may be a little lower."
    return text
