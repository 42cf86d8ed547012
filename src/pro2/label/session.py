"""A labelling session behind one lock: actions of the page in; items, figures and lists out."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from pro2.label.estimate import FEWEST, Accuracy, Outcome, accuracy, advice, agreement, basis, growth
from pro2.label.inputs import Given
from pro2.label.model import Fitted, Labelled, Neighbours, Prediction, Refitter, Start, abstention, refit
from pro2.label.pool import Pool
from pro2.label.store import IMPORTED, NONE, RANDOM, SECOND, SELECTED, SUGGESTED, Event, JournalError, Store
from pro2.tables import TableError
from pro2.tables.where import parse

PER_PERSON = 3  # assigned rows: the one on screen and two that are loading
LEASE = 900.0  # seconds after which an assigned row may go to somebody else
MORE = 10  # the page shows what this many further labels would bring
MORE_LABELS = 1.3  # times as many labels make new label sets worth their time
GRID = 24  # items of a grid: what one looks over at a glance
LIST = 60  # rows of a list before "Show more"
MAX_NAME = 80  # characters of a class
MAX_NOTE = 2000  # and of a note
RECENT = 600.0  # seconds of which the labels per minute are the mean
_CONFLICT = 2.0  # sorts before every probability


class Refused(ValueError):
    """A request that makes no sense here; the message is for the person at the page."""


Rows = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=GRID)]


class Action(msgspec.Struct, frozen=True):
    """What the page sends. An action whose key was received before changes nothing.

    `wrong` are rows of a grid that are not what it shows: they are assigned to the person, to come up one by one.
    An adjudication without a label says that a row is none of the classes; `label` is the text of a note.
    `selected` rows are some that the person looked for: they say nothing about how common or how difficult a class is.
    """

    kind: Literal["label", "none", "adjudicate", "skip", "note", "class", "undo"]
    key: Annotated[str, msgspec.Meta(min_length=8, max_length=64)]
    rows: Rows = []
    label: str = ""
    wrong: Rows = []
    selected: bool = False


@dataclass(frozen=True)
class Settings:
    """How items are assigned."""

    random: float = 0.25  # share of the items drawn at random: accuracy is measured on them
    overlap: float = 0.0  # share of the items that go to a second person, to see whether people agree
    annotators: tuple[str, ...] = ("",)  # a single empty name when one person works alone
    seed: int = 0  # of the random draws


DEFAULTS = Settings()


class Session:
    """The labels of a pool, the model that `start` makes of them, and what comes next. Methods are thread-safe."""

    def __init__(self, pool: Pool, start: Start, store: Store, settings: Settings = DEFAULTS) -> None:
        self.pool, self.start, self.store, self.settings = pool, start, store, settings
        self.lock = threading.RLock()
        self.fitted = Fitted()
        self.history: dict[int, Accuracy] = {}
        self._unsaved: Event | None = None  # the newest figure, written together with the next action
        for event in store.events("figure"):
            self._remember(event.info["labels"], Accuracy(*(event.info[each.name] for each in fields(Accuracy))))
        self._subscribers: list[Callable[[], object]] = []
        self.version = int(1000 * time.time())  # differs from that of an earlier server that a page may remember
        self.refitter = Refitter(self._steps, self.set_model)

    @contextlib.contextmanager
    def subscribed(self, callback: Callable[[], object]) -> Iterator[None]:
        """Have `callback` called, from any thread, after every change."""
        self._subscribers.append(callback)
        try:
            yield
        finally:
            self._subscribers.remove(callback)

    def notify(self) -> None:
        """Wake everybody who waits for a change."""
        with self.lock:  # two threads that count at once would make one change of two
            self.version += 1
        for callback in list(self._subscribers):
            callback()

    def fit(self) -> None:
        """Fit the present labels and choose the next rows, in this thread; label sets come with the next refit."""
        for fitted in islice(self._steps(), 2):
            self.set_model(fitted)

    def _steps(self) -> Iterator[Fitted]:
        with self.lock:
            labelled, before = self.labelled(), self.fitted
        for fitted in refit(self.pool, self.start, labelled, before):
            yield fitted
        known = before.abstention
        if known is not None and known.names == fitted.names and known.n <= fitted.n < MORE_LABELS * known.n:
            return  # sets of fewer labels are right as often; they may be larger
        for found in abstention(self.pool, fitted):
            if self.refitter.is_behind:  # takes longer than the rest: only in a pause, so that no figure waits for it
                return
        yield replace(fitted, abstention=found)

    def set_model(self, fitted: Fitted) -> None:
        """Show a newer model."""
        with self.lock:
            self.fitted = fitted
            now = accuracy(self.outcomes())
            if now is not None and self.history.get(fitted.n) != now:
                self._remember(fitted.n, now)
                self._unsaved = Event("figure", info={**asdict(now), "labels": fitted.n})
        self.notify()

    def _remember(self, n: int, figure: Accuracy) -> None:
        # figures of more labels than there are now belong to labels that were undone
        self.history = {before: each for before, each in self.history.items() if before < n} | {n: figure}

    # actions

    def act(self, annotator: str, action: Action) -> dict[str, Any]:
        """Write an action and the assignments it leads to in one transaction, then answer."""
        undone: list[Event] = []
        with self.lock:
            if not self.store.knows(action.key):
                events, undone = self._events(annotator, action)
                with self.store.transaction():
                    self.store.append([self._unsaved, *events] if self._unsaved else events)
                    self._assign(annotator)
                self._unsaved = None
            answer = {"saved": action.key, "assigned": self._items(annotator), "labels": len(self.store.labels)}
        if undone:
            rows = [self.pool.row_of[event.id] for event in undone if event.id is not None]
            answer["undone"] = {"kind": undone[0].kind, "label": undone[0].label, "rows": rows}
        self.refitter.request()
        self.notify()
        return answer | {"version": self.version}

    def _events(self, annotator: str, action: Action) -> tuple[list[Event], list[Event]]:
        """Events of an action, and those that it undoes."""
        kind, key = action.kind, action.key
        if kind == "undo":
            last = self.store.last_action(annotator)
            if not last:
                raise Refused("There is nothing to undo.")
            return [Event("undo", annotator, info={"of": last[0].key}, key=key)], last
        if kind == "class":
            return [Event("class", annotator, label=self._new_class(action.label), key=key)], []
        allowed = [*self.classes, NONE] if kind == "adjudicate" else self.classes
        if kind in ("label", "adjudicate") and action.label not in allowed:
            raise Refused("There is no class of that name.")
        if kind == "note" and len(action.label) > MAX_NOTE:
            raise Refused(f"A note has at most {MAX_NOTE} characters.")
        if not (action.rows or action.wrong):
            raise Refused("The action names no item.")
        if max(*action.rows, *action.wrong, 0) >= len(self.pool):
            raise Refused("These rows are not in the pool.")
        label = {"skip": None, "none": NONE}.get(kind, action.label)
        kind, ids = "label" if kind == "none" else kind, self.pool.ids
        events = [self._assignment(annotator, row, SUGGESTED, key) for row in dict.fromkeys(action.wrong)]
        draw = {"draw": SELECTED} if action.selected else {}
        for row in dict.fromkeys(action.rows):
            events.append(Event(kind, annotator, ids[row], label, {"mark": self.pool.mark(row), **draw}, key))
        return events, []

    def _new_class(self, name: str) -> str:
        name = " ".join(name.split())
        if not 0 < len(name) <= MAX_NAME:
            raise Refused(f"A class needs a name of 1 to {MAX_NAME} characters.")
        if name.casefold() in (each.casefold() for each in self.classes):
            raise Refused(f"There is already a class “{name}”.")
        return name

    def add_labels(self, given: Iterable[tuple[int, Given]]) -> int:
        """Add labels from elsewhere to rows, all of them or none; how many were not there already."""
        known, ids = {name.casefold(): name for name in self.classes}, self.pool.ids
        alone = len(self.settings.annotators) == 1
        events = []
        for row, (_, label, who) in given:
            name = " ".join(label.split())
            if not 0 < len(name) <= MAX_NAME:
                raise ValueError(f"item {ids[row]!r} has the label {label!r}: a class has 1 to {MAX_NAME} characters")
            name, who = known.setdefault(name.casefold(), name), who or ("" if alone else IMPORTED)
            digest = hashlib.blake2b(repr((ids[row], name, who)).encode(), digest_size=16).hexdigest()
            info = {"mark": self.pool.mark(row), "draw": IMPORTED}
            events.append(Event("label", who, ids[row], name, info, f"import-{digest}"))
        with self.lock, self.store.transaction():
            new = [event for event in events if not self.store.knows(event.key)]
            for first in range(0, len(new), 1000):  # SQLite takes so many ids at once
                self.store.append(new[first : first + 1000])
        return len(new)

    # what comes next

    @property
    def classes(self) -> list[str]:
        """Classes in the order of their keys: those of the start, then those that people added."""
        return list(dict.fromkeys([*self.start.classes, *self.store.classes()]))

    @cached_property
    def random_rank(self) -> np.ndarray:
        """A number per row, drawn from the seed and the row's id: rows are drawn at random in this order.

        A pool that grows keeps the ranks of its rows, so what was a random sample of it stays one.
        """
        key = self.settings.seed.to_bytes(8, "big")
        digests = (hashlib.blake2b(name.encode(), key=key, digest_size=8).digest() for name in self.pool.ids)
        return np.frombuffer(b"".join(digests), dtype=np.uint64)

    @cached_property
    def neighbours(self) -> Neighbours:
        """Which rows are alike."""
        return Neighbours(self.pool, self.start.model)

    def assigned(self, annotator: str) -> list[dict[str, Any]]:
        """The items that this person is to answer, filled up."""
        with self.lock:
            # a full disk is reported by the next action; what was saved a moment ago must not look lost
            with contextlib.suppress(JournalError), self.store.transaction():
                self._assign(annotator)
            return self._items(annotator)

    def _items(self, annotator: str) -> list[dict[str, Any]]:
        return [self.item(row) for row in self.store.assigned.get(annotator, {})]

    def item(self, row: int) -> dict[str, Any]:
        """A row as the page shows it, with the model's prediction."""
        return self.pool.describe(row) | self._prediction(row) | {"note": self.store.notes.get(row, "")}

    def _prediction(self, row: int) -> dict[str, Any]:
        """What the page shows of the model's view of a row: its label set only where that is a choice of some."""
        guess, abstained = self.fitted.guess(row), self.fitted.abstention
        name, probability = guess or (None, 0.0)
        possible = [] if abstained is None else abstained.label_set(row)
        shows_set = abstained is not None and 1 < len(possible) < len(abstained.names)
        return {
            "guess": name,
            "probability": round(probability, 4) if guess and self.fitted.n else None,
            # the set may be older than the prediction, which is always in it
            "set": list(dict.fromkeys([name, *possible])) if guess and shows_set else [],
            "unlike": abstained is not None and abstained.is_unlike(row),
        }

    def _assign(self, annotator: str) -> None:
        """Bring this person's assigned rows up to `PER_PERSON`, as long as there are any."""
        rows = set(self.store.assigned.get(annotator, {}))
        number = self.store.n_assigned(annotator)
        events: list[Event] = []
        while len(rows) < PER_PERSON and (found := self._next(annotator, number + len(events), rows)):
            rows.add(found[0])
            events.append(self._assignment(annotator, *found))
        if events:
            self.store.append(events)

    def _assignment(self, annotator: str, row: int, draw: str, key: str = "") -> Event:
        guess = self.fitted.guess(row)
        info = {"draw": draw, "n": self.fitted.n, "guess": guess and guess[0]}
        return Event("assign", annotator, self.pool.ids[row], info=info, key=key)

    def _next(self, annotator: str, number: int, taken: set[int]) -> tuple[int, str] | None:
        """The row that becomes this person's item `number`, and why."""
        if _is_due(number, self.settings.overlap):
            for row in self._for_second_label(annotator):
                if row not in taken:
                    return row, SECOND
        free = self._free()
        free[list(taken)] = False
        if not _is_due(number, self.settings.random):
            for row in self.fitted.queue:
                if free[row]:
                    return row, SUGGESTED
        # rows drawn at random also fill in while no suggestions are ready: they are as good for measuring as any other
        rows = np.flatnonzero(free)
        return (int(rows[self.random_rank[rows].argmin()]), RANDOM) if len(rows) else None

    def _free(self) -> np.ndarray:
        """Mask of rows that nobody has labelled, skipped or on screen."""
        free, now = np.ones(len(self.pool), dtype=bool), time.time()
        free[[*self.store.labels, *self.store.none, *self.store.skipped]] = False
        for rows in self.store.assigned.values():
            free[[row for row, assignment in rows.items() if now - assignment.time < LEASE]] = False
        return free

    def _for_second_label(self, annotator: str) -> list[int]:
        """Rows that exactly one other person has labelled, the oldest first."""
        elsewhere = {row for who, rows in self.store.assigned.items() if who != annotator for row in rows}
        people = {row: who for row, who in self.store.annotations.items() if row not in elsewhere}
        return [row for row, who in people.items() if len(who) == 1 and annotator not in who]

    def labelled(self) -> Labelled:
        """Input of a refit, as it is at this moment."""
        assigned = {row for rows in self.store.assigned.values() for row in rows if row not in self.store.labels}
        return Labelled(
            np.fromiter(self.store.labels, dtype=np.intp),
            [str(answer.label) for answer in self.store.labels.values()],
            self.sample(),
            np.flatnonzero(self._free()),
            np.array(sorted(assigned), dtype=np.intp),
            [answer.draw is not None for answer in self.store.labels.values()],
        )

    # how good it is

    def sample(self) -> list[int]:
        """Labelled rows that are a random sample of the whole pool, in random order.

        Rows drawn at random, and all others up to the highest rank of those that have a label anyway: without the
        latter the sample would lack what suggestions find hard and what a grid shows to be easy. Rows that somebody
        looked for or that came with a label are never among them.
        """
        labels = self.store.labels
        rows = np.array([row for row in labels if labels[row].draw is None], dtype=np.intp)
        at_random = [row for row in rows.tolist() if self.store.draw_of(row) == RANDOM]
        if not at_random:
            return []
        rows = rows[self.random_rank[rows] <= self.random_rank[at_random].max()]
        return rows[np.argsort(self.random_rank[rows])].tolist()

    def outcomes(self) -> list[Outcome]:
        """Whether predictions for the sample are right: the newest of each row, and the one it was assigned with."""
        found = []
        for row in self.sample():
            truth, given = self.store.labels[row].label, self.store.drawn.get(row)
            first = None if given is None or given.guess is None else Prediction(given.guess, given.n)
            last = self.fitted.out_of_fold.get(row) or first
            if last is not None:
                before = (None, 0) if first is None else (first.label == truth, first.n)
                found.append(Outcome(last.label == truth, last.n, *before))
        return found

    def figures(self, annotator: str) -> dict[str, Any]:
        """The figures of the panel, and new predictions for this person's items."""
        with self.lock:
            assigned = list(self.store.assigned.get(annotator, {}))
            guesses = {str(row): self._prediction(row) for row in assigned}
            rest = {"assigned": assigned, "guesses": guesses, "classes": self.classes, "version": self.version}
            return self.summary() | rest

    def summary(self) -> dict[str, Any]:
        """Accuracy, growth, class shares, agreement and one sentence of advice."""
        outcomes, store, random = self.outcomes(), self.store, self.settings.random
        measured, n_labels = accuracy(outcomes), len(store.labels)
        shown = measured if len(outcomes) >= FEWEST else None
        rise = growth(outcomes, max(2, len(self.classes)))
        passed = [*store.skipped, *store.none]
        left = len(self.pool) - n_labels - len(passed)
        n_passed = sum(row in store.drawn and store.drawn[row].draw == RANDOM for row in passed)
        double = {row: list(people.values()) for row, people in store.annotations.items() if len(people) > 1}
        conflicts = [row for row, labels in double.items() if len(set(labels)) > 1]
        return {
            "labels": n_labels,
            "items": len(self.pool),
            "answered": n_labels + len(passed),
            "per_minute": self._per_minute(),
            "learned": self.fitted.n,
            "accuracy": shown and asdict(shown),
            "history": [{"labels": n, **asdict(each)} for n, each in sorted(self.history.items())],
            "gain": shown and dict(zip(("points", "low", "high"), rise.gain(n_labels, MORE))),
            "shares": self._shares(),
            "agreement": {
                "conflicts": len(conflicts),
                "undecided": sum(row not in store.adjudicated for row in conflicts),
                **asdict(agreement(list(double.values()))),
            },
            "advice": advice(measured, rise, n_labels, random, self._doubtful_class(), left),
            "basis": basis(shown, random, n_passed),
        }

    def _per_minute(self) -> float | None:
        """Labels per minute, of late; None where there are too few to say."""
        answers = [*self.store.labels.values(), *self.store.none.values()]
        times = np.array([answer.time for answer in answers if answer.draw != IMPORTED])
        times = times[times > times.max(initial=0.0) - RECENT]
        seconds = float(np.ptp(times)) if len(times) >= FEWEST else 0.0
        return 60 * (len(times) - 1) / seconds if seconds > 1 else None

    def _shares(self) -> list[dict[str, Any]]:
        """For each class its share of the predictions for unlabelled rows, and how many labels it has."""
        labels = Counter(answer.label for answer in self.store.labels.values())
        rest, names = self.unlabelled(), self.fitted.names
        counts = np.bincount(self.fitted.top[rest] if names else [], minlength=len(names))
        share = dict(zip(names, (counts / max(1, len(rest))).tolist()))
        return [{"name": name, "share": share.get(name, 0.0), "labels": labels[name]} for name in self.classes]

    def unlabelled(self) -> np.ndarray:
        """Rows without a label that may have one."""
        without = np.ones(len(self.pool), dtype=bool)
        without[[*self.store.labels, *self.store.none]] = False
        return np.flatnonzero(without)

    def _doubtful_class(self) -> str | None:
        """The class whose predictions hold clearly more of the expected errors than the others'; None if none does."""
        names, rest = self.fitted.names, self.unlabelled()
        if not names:
            return None
        errors = np.bincount(self.fitted.top[rest], 1.0 - self.fitted.probability[rest], len(names))
        worst = int(errors.argmax())
        return names[worst] if errors[worst] > 1.5 * errors.sum() / len(errors) else None

    # the other two views

    def grid(
        self, annotator: str, label: str, order: str, query: str = "", like: int | None = None
    ) -> dict[str, Any]:  # fmt: skip
        """Unlabelled items: those most like an item, those that a search finds, or those predicted to be of one class.

        The latter two come with the least certain, the most certain or the most unlike the labelled items first.
        Assigned items are left out, as they come up one by one. Several people have a part of the pool each, so that no
        two of them look at the same grid.
        """
        # before the lock: a pass over all embeddings
        if like is not None and like >= len(self.pool):
            raise Refused("This row is not in the pool.")
        similarity = None if like is None else self.neighbours.similarity(like)
        with self.lock:
            rest, people = self.unlabelled(), self.settings.annotators
            rest = rest[rest % len(people) == people.index(annotator)]
            rest = rest[~np.isin(rest, [row for rows in self.store.assigned.values() for row in rows])]
            if similarity is not None:
                score = -similarity
            else:
                try:
                    rest = rest[self.search(query)[rest] if query.strip() else self._predicted()[rest] == label]
                except TableError as error:  # half a comparison, as it is typed, is no mistake
                    return {"items": [], "total": 0, "problem": str(error).removeprefix("where: ")}
                score = self._order(order)
            rows = rest[np.argsort(score[rest], kind="stable")[:GRID]]
            return {"items": [self.item(int(row)) for row in rows], "total": len(rest)}

    def search(self, query: str) -> np.ndarray:
        """Mask of the rows whose name or text has all words of a query, or that satisfy a comparison.

        A comparison, such as `site == "B" and doubt > 0.5`, is over columns of the table, `predicted`, `doubt` and
        `outlier_score`.
        """
        if not re.search(r"[=<>]|\bin *\[", query):
            words = query.casefold().split()
            return np.array([all(word in text for word in words) for text in self.pool.all_words], dtype=bool)
        table = self.pool.table
        made = {"predicted": self._predicted(), "doubt": self._doubt(), "outlier_score": self._outlier_score()}
        mask = parse(query, [*made, "id", *self.pool.shown])
        return np.asarray(mask(lambda name: made[name] if name in made else table.column(name)))

    def _predicted(self) -> np.ndarray:
        """Name of the predicted class of each row, (n_rows,); empty as long as there is no model."""
        names = self.fitted.names
        return np.array(names)[self.fitted.top] if names else np.full(len(self.pool), "")

    def _doubt(self) -> np.ndarray:
        """How probable it is that the prediction for a row is wrong, (n_rows,)."""
        return 1.0 - np.asarray(self.fitted.probability) if self.fitted.names else np.ones(len(self.pool))

    def _outlier_score(self) -> np.ndarray:
        """How unlike the labelled rows each row is, (n_rows,); 0 as long as that is not known."""
        known = self.fitted.abstention
        return np.zeros(len(self.pool)) if known is None else known.outlier_score

    def _order(self, order: str) -> np.ndarray:
        """What a grid is sorted by, the smallest first, (n_rows,)."""
        if order == "unlike":
            return -self._outlier_score()
        return self._doubt() if order == "certain" else -self._doubt()

    def listing(self, query: str, offset: int) -> dict[str, Any]:
        """Labelled items: those that people disagree on, those where the model disagrees, then the newest."""
        with self.lock:
            words = query.casefold().strip()
            conflicts = {row: answer for row, answer in self.store.none.items() if self._is_conflict(row)}
            labels = self.store.labels | conflicts
            rows = [
                row
                for row, answer in labels.items()
                if words in f"{answer.label} {self.store.notes.get(row, '')} {self.pool.all_words[row]}".casefold()
            ]
            alternatives = [self._alternative(row) for row in rows]
            order = sorted(range(len(rows)), key=lambda i: (-alternatives[i][1], -i))
            passed = {
                "none": [row for row in self.store.none if row not in conflicts],
                "skipped": list(self.store.skipped),
            }
            first = not (words or offset)
            return {
                "items": [self._entry(rows[i], *alternatives[i]) for i in order[offset : offset + LIST]],
                "total": len(rows),
                "doubtful": sum(doubt > 0 for _, doubt in alternatives),
            } | {
                name: [self.item(row) | {"doubt": 0.0} for row in some[:LIST] if first] for name, some in passed.items()
            }

    def _alternative(self, row: int) -> tuple[str | None, float]:
        """What the model predicts instead of the label, and how probable it is; (None, 0) where it agrees."""
        if row in self.store.adjudicated:
            return None, 0.0
        if self._is_conflict(row):
            return None, _CONFLICT
        label = self.store.labels[row].label
        guess, out_of_fold = self.fitted.guess(row), self.fitted.out_of_fold.get(row)
        if guess is not None and guess[0] != label:
            return guess
        if out_of_fold is not None and out_of_fold.label not in (None, label):
            return out_of_fold.label, 0.01  # only the model without this label disagrees
        return None, 0.0

    def _is_conflict(self, row: int) -> bool:
        """Whether people disagree on a row, and nobody has decided."""
        return row not in self.store.adjudicated and len(set(self.store.annotations.get(row, {}).values())) > 1

    def _entry(self, row: int, alternative: str | None, doubt: float) -> dict[str, Any]:
        people = self.store.annotations.get(row, {})
        label = (self.store.labels.get(row) or self.store.none[row]).label
        answer = {"label": label, "annotations": people, "conflict": doubt == _CONFLICT}
        return self.item(row) | answer | {"alternative": alternative, "doubt": round(float(doubt), 4)}


def _is_due(number: int, share: float) -> bool:
    """Whether item `number` (from 0) belongs to a share that is spaced evenly over all items."""
    return int((number + 1) * share + 1e-9) > int(number * share + 1e-9)
