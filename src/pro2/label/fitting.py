"""From labels to a model, its guesses, its verdicts on random rows and the next rows: one refit, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pro2.label.pool import Pool
from pro2.label.start import Start

FOLDS = 5  # random rows are judged by models without a fifth of the random rows
QUEUE = 24  # rows chosen ahead
LOOK = 1024  # rows among which they are chosen: a quarter of a second


@dataclass(frozen=True)
class Labelled:
    """The labels at one moment.

    Attributes
    ----------
    rows, labels
        Row numbers and class names, in the same order.
    random : sequence of int
        The labelled rows that are a random sample of the pool, in random order.
    free : array of int
        Rows that may be suggested.
    held : array of int
        Rows that are in somebody's hands: they will be labelled soon.
    """

    rows: np.ndarray
    labels: Sequence[str]
    random: Sequence[int]
    free: np.ndarray
    held: np.ndarray


@dataclass(frozen=True)
class Guess:
    """What a model said about a row from `n` labels, none of them the row's own."""

    label: str | None
    n: int


@dataclass(frozen=True)
class Fitted:
    """A model and everything the page shows of it.

    Attributes
    ----------
    n : int
        Labels it has learned from.
    classifier : LinearClassifier or None
    names : list of str
        Its classes, in its own order.
    top, sure : arrays (n_rows,)
        Code and probability of the most probable class of each row.
    judged : dict of int to Guess
        Guesses about random rows, each of a model without the row.
    queue : list of int
        Rows to label next, best first.
    """

    n: int = 0
    classifier: Any = None
    names: list[str] = field(default_factory=list)
    top: np.ndarray = field(default_factory=lambda: np.empty(0, np.int16))
    sure: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    judged: dict[int, Guess] = field(default_factory=dict)
    queue: list[int] = field(default_factory=list)

    def guess(self, row: int) -> tuple[str, float] | None:
        """The most probable class of a row and its probability."""
        return None if not self.names else (self.names[int(self.top[row])], float(self.sure[row]))


def refit(pool: Pool, start: Start, labelled: Labelled, before: Fitted) -> Iterator[Fitted]:
    """The model of these labels with its guesses and verdicts; then the same with the next rows."""
    now = _model(pool, start, labelled, before.queue)
    now = replace(now, judged=_judged(pool, start, labelled, now))
    yield now
    yield replace(now, queue=_choose(pool, start, labelled, now))


def _model(pool: Pool, start: Start, labelled: Labelled, queue: list[int]) -> Fitted:
    classifier = start.adapt(pool.take(labelled.rows), labelled.labels)
    if classifier is None:
        return Fitted(queue=queue)
    names = [str(name) for name in classifier.classes_.tolist()]
    top, sure = _certainty(pool.logits(classifier.coef_, classifier.intercept_, classifier.unit_rows_), len(names))
    return Fitted(len(labelled.rows), classifier, names, top, sure, queue=queue)


def _certainty(logits: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Most probable class of each row and its probability, from (n, 1) or (n, K) logits."""
    if n_classes == 1:
        return np.zeros(len(logits), np.int16), np.ones(len(logits), np.float32)
    if n_classes == 2:
        f = logits[:, 0]
        return (f > 0).astype(np.int16), 1.0 / (1.0 + np.exp(-np.abs(f)))
    top = logits.argmax(axis=1)
    best = np.take_along_axis(logits, top[:, None], axis=1)
    return top.astype(np.int16), 1.0 / np.exp(logits - best).sum(axis=1)


def _judged(pool: Pool, start: Start, labelled: Labelled, now: Fitted) -> dict[int, Guess]:
    """Guesses about the random rows, a fold at a time, from models that have learned from all labels but theirs."""
    judged: dict[int, Guess] = {}
    for i in range(min(FOLDS, len(labelled.random))):
        fold = labelled.random[i::FOLDS]
        classifier, n = _without(pool, start, labelled, now, fold), len(labelled.rows) - len(fold)
        said = [None] * len(fold) if classifier is None else classifier.predict(pool.take(np.array(fold))).tolist()
        judged |= {row: Guess(None if label is None else str(label), n) for row, label in zip(fold, said)}
    return judged


def _without(pool: Pool, start: Start, labelled: Labelled, now: Fitted, fold: Sequence[int]) -> Any:
    """The model without a fold."""
    out = np.isin(labelled.rows, fold)
    if not out.all() and len(set(labelled.labels)) > 1:
        return now.classifier.without(np.flatnonzero(out).tolist())
    # nothing, or one class, is all that is known
    labels = [label for label, left_out in zip(labelled.labels, out) if not left_out]
    return start.adapt(pool.take(labelled.rows[~out]), labels)


def _choose(pool: Pool, start: Start, labelled: Labelled, now: Fitted) -> list[int]:
    free = labelled.free
    if len(free) > LOOK:
        free = np.sort(np.random.default_rng(now.n).choice(free, LOOK, replace=False))
    if not len(free):
        return []
    # rows in somebody's hands count as labelled: the next ones should teach something else
    known = pool.take(np.concatenate([labelled.rows, labelled.held]))
    adapted = now.classifier if len(labelled.rows) else None
    return free[start.suggest(pool.take(free), min(QUEUE, len(free)), adapted, known)].tolist()
