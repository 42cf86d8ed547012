"""A labelling session: events in, next items and figures out. No web, no files, no threads, no clock of its own."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from pro2.label.board import Board, Given
from pro2.label.estimate import FEWEST, Accuracy, Verdict, accuracy, advice, basis, growth
from pro2.label.events import CHOSEN, RANDOM, SECOND, Event
from pro2.label.fitting import Fitted, Guess, Labelled
from pro2.label.pool import Pool

LEASE = 900.0  # seconds after which a row in idle hands may go to somebody else
MORE = 10  # the page says what this many further labels would bring


@dataclass(frozen=True)
class Settings:
    """How items are handed out.

    Attributes
    ----------
    random : float
        Share of the items that chance chooses: accuracy is measured on them.
    overlap : float
        Share of the items that go to a second person, to see whether people agree.
    annotators : tuple of str
        Who may label; a single empty name when one person works alone.
    seed : int
        Of the random draws.
    """

    random: float = 0.25
    overlap: float = 0.0
    annotators: tuple[str, ...] = ("",)
    seed: int = 0


ALONE = Settings()


class Session:
    """The labels of a pool, the model they make, and what comes next.

    Parameters
    ----------
    pool : Pool
    classes : sequence of str
        Known at the start; more can be added.
    settings : Settings
    """

    def __init__(self, pool: Pool, classes: Sequence[str], settings: Settings = ALONE) -> None:
        self.pool, self.settings = pool, settings
        self.board = Board(pool.row_of, classes)
        self.fitted = Fitted()
        self.history: dict[int, Accuracy] = {}

    def apply(self, events: Iterable[Event]) -> None:
        """Take events into account, in their order."""
        for event in events:
            self.board.apply(event)
            if event.kind == "figure":
                n_labels, shown = event.info["labels"], [event.info[each.name] for each in fields(Accuracy)]
                # after an undo, what was shown for more labels than there are now is history that did not happen
                self.history = {n: each for n, each in self.history.items() if n < n_labels}
                self.history[n_labels] = Accuracy(*shown)

    @cached_property
    def lot(self) -> np.ndarray:
        """A number per row, drawn once from the seed and the row's id: the lowest are drawn first.

        A pool that grows keeps the lots of its rows, so what was a random sample of it stays one.
        """
        key = self.settings.seed.to_bytes(8, "big")
        digests = (hashlib.blake2b(name.encode(), key=key, digest_size=8).digest() for name in self.pool.ids)
        return np.frombuffer(b"".join(digests), dtype=np.uint64)

    def sample(self) -> list[int]:
        """Labelled rows that make a random sample of the whole pool, in the order of their lots.

        Rows that chance has put to somebody, and all others up to the last lot of those that have a label anyway:
        leaving the latter out would leave out what the suggestions find hard and what a grid shows to be easy.
        """
        drawn = [row for row, given in self.board.drawn.items() if given.draw == RANDOM and row in self.board.labels]
        if not drawn:
            return []
        rows = np.fromiter(self.board.labels, dtype=np.intp)
        rows = rows[self.lot[rows] <= self.lot[drawn].max()]
        return rows[np.argsort(self.lot[rows])].tolist()

    def labelled(self, now: float = 0.0) -> Labelled:
        """What a refit needs to know, as it is at this moment."""
        held = [row for rows in self.board.held.values() for row in rows if row not in self.board.labels]
        return Labelled(
            np.fromiter(self.board.labels, dtype=np.intp),
            list(self.board.labels.values()),
            self.sample(),
            np.flatnonzero(self._free(now)),
            np.array(sorted(set(held)), dtype=np.intp),
        )

    def give(self, annotator: str, n: int, now: float) -> list[Event]:
        """Events that bring this person's hands up to n rows; empty when they hold as many or nothing is left."""
        events: list[Event] = []
        taken = set(self.board.held.get(annotator, {}))
        while len(taken) < n:
            found = self._next(annotator, self.board.n_given[annotator] + len(events), taken, now)
            if found is None:
                break
            row, draw = found
            taken.add(row)
            events.append(self.given(annotator, row, draw, now))
        return events

    def given(self, annotator: str, row: int, draw: str, now: float) -> Event:
        """The event of handing a row to somebody, with what the model says before it learns from it."""
        guess = self.fitted.guess(row)
        info = {"draw": draw, "n": self.fitted.n, "guess": None if guess is None else guess[0]}
        return Event("give", annotator, self.pool.ids[row], info=info, time=now)

    def _next(self, annotator: str, number: int, taken: set[int], now: float) -> tuple[int, str] | None:
        """The row that this person's item `number` is, and why."""
        if _due(number, self.settings.overlap):
            open_rows = [row for row in self._for_second_opinion(annotator) if row not in taken]
            if open_rows:
                return open_rows[0], SECOND
        free = self._free(now)
        free[list(taken)] = False
        if not _due(number, self.settings.random):
            for row in self.fitted.queue:
                if free[row]:
                    return row, CHOSEN
        # chance also fills in while no suggestions are ready: such rows are as good for measuring as any others
        rows = np.flatnonzero(free)
        if not len(rows):
            return None
        return int(rows[self.lot[rows].argmin()]), RANDOM

    def _free(self, now: float) -> np.ndarray:
        """Rows that nobody has labelled, skipped or in their hands."""
        free = np.ones(len(self.pool), dtype=bool)
        free[list(self.board.labels)] = False
        free[self.board.skipped] = False
        for rows in self.board.held.values():
            free[[row for row, given in rows.items() if now - given.time < LEASE]] = False
        return free

    def _for_second_opinion(self, annotator: str) -> list[int]:
        """Rows that exactly one other person has labelled, the oldest first."""
        elsewhere = {row for who, rows in self.board.held.items() if who != annotator for row in rows}
        said = {row: self.board.opinions(row) for row in self.board.labels if row not in elsewhere}
        return [row for row, people in said.items() if len(people) == 1 and annotator not in people]

    def item(self, row: int) -> dict[str, Any]:
        """A row as the page shows it, with the model's guess."""
        guess = self.fitted.guess(row)
        found = self.pool.describe(row)
        found["guess"] = None if guess is None else guess[0]
        found["sure"] = None if guess is None or not self.fitted.n else round(guess[1], 4)
        return found

    def hands(self, annotator: str) -> list[Given]:
        """What this person holds, in the order in which it comes up."""
        return list(self.board.held.get(annotator, {}).values())

    def verdicts(self) -> list[Verdict]:
        """The newest verdict on every row of the sample that has any, and the first where there was one."""
        found = []
        for row in self.sample():
            truth, given, fresh = self.board.labels[row], self.board.drawn.get(row), self.fitted.judged.get(row)
            first = None if given is None or given.guess is None else Guess(given.guess, given.n)
            last = fresh or first
            if last is not None:
                before = (None, 0) if first is None else (first.label == truth, first.n)
                found.append(Verdict(last.label == truth, last.n, *before))
        return found

    def figure_event(self) -> Event | None:
        """What the page shows now, for the journal, when the number of labels has changed since the last one."""
        found = accuracy(self.verdicts())
        if found is None or self.history.get(self.fitted.n) == found:
            return None
        return Event("figure", info={**vars(found), "labels": self.fitted.n})

    def figures(self) -> dict[str, Any]:
        """Everything beside the item: accuracy, growth, shares, agreement, and one sentence."""
        verdicts, board = self.verdicts(), self.board
        found = accuracy(verdicts)
        now = found if len(verdicts) >= FEWEST else None
        rise = growth(verdicts, max(2, len(board.classes)))
        n_twice, disputed = board.twice()
        left = len(self.pool) - len(board.labels) - len(board.skipped)
        passed = [row for row in board.skipped if row in board.drawn and board.drawn[row].draw == RANDOM]
        return {
            "labels": len(board.labels),
            "learned": self.fitted.n,
            "accuracy": None if now is None else vars(now),
            "history": [{"labels": n, **vars(each)} for n, each in sorted(self.history.items())],
            "gain": None if now is None else dict(zip(("points", "low", "high"), rise.gain(len(board.labels), MORE))),
            "shares": self.shares(),
            "agreement": {"twice": n_twice, "disputed": len(disputed)},
            "advice": advice(found, rise, len(board.labels), self.settings.random, self.doubtful_class(), left),
            "basis": basis(now, self.settings.random, len(passed)),
        }

    def shares(self) -> list[dict[str, Any]]:
        """For each class its share of the guesses for unlabelled rows, and how many labels it has."""
        labels = Counter(self.board.labels.values())
        rest = self.rest()
        guessed = self.fitted.top[rest] if self.fitted.names else np.empty(0, np.int16)
        counts = np.bincount(guessed, minlength=len(self.fitted.names)).tolist()
        share = {name: n / max(1, len(rest)) for name, n in zip(self.fitted.names, counts)}
        return [{"name": name, "share": share.get(name, 0.0), "labels": labels[name]} for name in self.board.classes]

    def rest(self) -> np.ndarray:
        """Rows without a label."""
        left = np.ones(len(self.pool), dtype=bool)
        left[list(self.board.labels)] = False
        return np.flatnonzero(left)

    def doubtful_class(self) -> str | None:
        """The class whose guesses hold clearly more of the expected errors than the others'; None when none does."""
        if not self.fitted.names:
            return None
        rest, n_classes = self.rest(), len(self.fitted.names)
        doubt = np.bincount(self.fitted.top[rest], 1.0 - self.fitted.sure[rest], n_classes)
        worst = int(doubt.argmax())
        stands_out = doubt[worst] > 1.5 * doubt.sum() / len(doubt)
        return self.fitted.names[worst] if stands_out else None


def _due(number: int, share: float) -> bool:
    """Whether item `number` (from 0) belongs to a share that is spread evenly over all items."""
    return int((number + 1) * share + 1e-9) > int(number * share + 1e-9)
