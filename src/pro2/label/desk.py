"""Where requests, journal, session and refits meet: one lock, and nothing is true before it is on disk."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pro2.label import views
from pro2.label.events import CHOSEN, UNDOABLE, Event
from pro2.label.fitting import Fitted, refit
from pro2.label.journal import Journal, JournalError
from pro2.label.session import Session
from pro2.label.start import Start
from pro2.label.worker import Worker

HOLD = 3  # items in each person's hands: the one on screen and two that are loading
MAX_NAME = 80  # characters of a class


class Refused(ValueError):
    """An action that makes no sense here; the message is for the person at the page."""


class Desk:
    """Everything the page can ask for.

    Parameters
    ----------
    session : Session
    start : Start
        What labels adapt.
    journal : Journal
        Its events are applied to the session first: labelling goes on where it stopped.
    """

    def __init__(self, session: Session, start: Start, journal: Journal) -> None:
        self.session, self._start, self._journal = session, start, journal
        self._lock = threading.RLock()
        self._heard: list[Callable[[], object]] = []
        self.version = int(1000 * time.time())  # a page that outlived the last server sees another number than its own
        session.apply(journal.events())
        self.worker = Worker(self._steps, self._adopt)

    def open(self) -> None:
        """The first model and the first suggestions, before anybody looks; then refits follow labels."""
        for fitted in self._steps():
            self._adopt(fitted)
        self.worker.start()

    def close(self) -> None:
        """End refits and fold the journal."""
        self.worker.stop()
        with self._lock:
            self._journal.close()

    @contextlib.contextmanager
    def listening(self, hear: Callable[[], object]) -> Iterator[None]:
        """Have `hear` called, from any thread, after every change."""
        self._heard.append(hear)
        try:
            yield
        finally:
            self._heard.remove(hear)

    def _steps(self) -> Iterator[Fitted]:
        with self._lock:
            labelled, before = self.session.labelled(time.time()), self.session.fitted
        yield from refit(self.session.pool, self._start, labelled, before)

    def _adopt(self, fitted: Fitted) -> None:
        with self._lock:
            self.session.fitted = fitted
            shown_now = self.session.figure_event()
            # a curve with a gap is no reason to stop: the next label will say that the disk is full
            with contextlib.suppress(JournalError):
                self._commit([] if shown_now is None else [shown_now])
        self.tell()

    def tell(self) -> None:
        """Wake everybody who waits for a change."""
        self.version += 1
        for hear in list(self._heard):
            hear()

    def check_annotator(self, name: str) -> str:
        """The name of somebody who may label here."""
        if name not in self.session.settings.annotators:
            raise Refused("This name is not on the list of annotators.")
        return name

    def hands(self, annotator: str) -> list[dict[str, Any]]:
        """The items this person holds, filled up."""
        with self._lock:
            # a full disk is told by the next action; what was saved a moment ago must not look lost
            with contextlib.suppress(JournalError):
                self._commit(self.session.give(annotator, HOLD, time.time()))
            return [self.session.item(given.row) for given in self.session.hands(annotator)]

    def act(self, annotator: str, action: dict[str, Any]) -> dict[str, Any]:
        """Write one action of the page to the journal, then answer; an action that was sent before changes nothing.

        Parameters
        ----------
        annotator : str
        action : dict
            `kind` ("label", "settle", "skip", "class" or "undo"), `key`, and as the kind needs `rows`, `label` and
            `wrong` (rows that are not what a grid says: they come up one by one). "aside" has `wrong` alone.
        """
        with self._lock:
            undone: list[Event] = []
            if not self._journal.knows(action["key"]):
                events, undone = self._events(annotator, action)
                self._commit(events)
            answer = {"saved": action["key"], "hands": self.hands(annotator), "labels": len(self.session.board.labels)}
        if undone:
            rows = [self.session.pool.row_of[event.id] for event in undone if event.id is not None]
            answer["undone"] = {"kind": undone[0].kind, "label": undone[0].label, "rows": rows}
        self.worker.ask()
        self.tell()
        return answer | {"version": self.version}

    def _commit(self, events: list[Event]) -> None:
        if events:
            self.session.apply(self._journal.append(events))

    def _events(self, annotator: str, action: dict[str, Any]) -> tuple[list[Event], list[Event]]:
        kind, key, now = action["kind"], action["key"], time.time()
        if kind == "undo":
            last = self.session.board.last_action(annotator)
            if not last:
                raise Refused("There is nothing to undo.")
            return [Event("undo", annotator, info={"of": last[0].key}, key=key, time=now)], last
        if kind not in (*UNDOABLE, "aside"):
            raise Refused("This action is not known.")
        if kind == "class":
            return [Event("class", annotator, label=self._new_class(action.get("label")), key=key, time=now)], []
        events = [self.session.given(annotator, row, CHOSEN, now) for row in self._rows(action.get("wrong", []))]
        if kind != "aside":
            label = None if kind == "skip" else action.get("label")
            if kind != "skip" and label not in self.session.board.classes:
                raise Refused("There is no class of that name.")
            rows = self._rows(action.get("rows", []))
            if not rows:
                raise Refused("No item was named.")
            pool = self.session.pool
            events += [Event(kind, annotator, pool.ids[row], label, {"mark": pool.mark(row)}, key, now) for row in rows]
        return events, []

    def _new_class(self, name: Any) -> str:
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
            raise Refused(f"A class needs a name of 1 to {MAX_NAME} characters.")
        name = " ".join(name.split())
        if name.casefold() in (each.casefold() for each in self.session.board.classes):
            raise Refused(f"There is a class “{name}” already.")
        return name

    def _rows(self, rows: Any) -> list[int]:
        if not isinstance(rows, list) or len(rows) > views.GRID or not all(type(row) is int for row in rows):
            raise Refused("These are not rows.")
        if not all(0 <= row < len(self.session.pool) for row in rows):
            raise Refused("These rows are not in the pool.")
        return list(dict.fromkeys(rows))

    def figures(self, annotator: str) -> dict[str, Any]:
        """The figures beside the item, and fresh guesses for the items in this person's hands."""
        with self._lock:
            found = self.session.figures()
            found["hands"] = [given.row for given in self.session.hands(annotator)]
            guesses = {row: self.session.fitted.guess(row) for row in found["hands"]}
            found["guesses"] = {str(row): guess for row, guess in guesses.items() if guess is not None}
            found["classes"], found["version"] = list(self.session.board.classes), self.version
        return found

    def grid(self, annotator: str, label: str, order: str) -> dict[str, Any]:
        """See `views.grid`."""
        with self._lock:
            return views.grid(self.session, annotator, label, order)

    def labelled(self, query: str, offset: int) -> dict[str, Any]:
        """See `views.labelled`."""
        with self._lock:
            return views.labelled(self.session, query, offset)
