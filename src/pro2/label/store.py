"""The journal of a session: events in SQLite, only ever added. Labels, assignments and undo are views over them.

A committed transaction is on disk: write-ahead log, every commit flushed (`synchronous=FULL`). A killed process or a
power failure therefore loses nothing that was acknowledged. One process at a time holds the lock, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pro2.label.pool import Pool

RANDOM, SUGGESTED, SECOND = "random", "suggested", "second"  # why a row was assigned to somebody
SELECTED, IMPORTED = "selected", "imported"  # nobody was asked: a person looked for the row, or its label was there
NONE = ""  # the label of an item that is none of the classes
VERSION = 3
_APPLICATION = 0x70726F32  # "pro2": tells our files from other SQLite files

_TABLE = """
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL, annotator TEXT NOT NULL,
    id TEXT, label TEXT, info TEXT NOT NULL, key TEXT NOT NULL DEFAULT '', undone INTEGER NOT NULL DEFAULT 0);
CREATE INDEX by_key ON events (key);
CREATE INDEX by_id ON events (id);
CREATE INDEX by_annotator ON events (annotator, kind);
"""
# Version 2 had other names for two kinds of events, and no flag for what was undone.
_UPGRADE = """
ALTER TABLE events ADD COLUMN undone INTEGER NOT NULL DEFAULT 0;
UPDATE events SET kind = CASE kind WHEN 'give' THEN 'assign' ELSE 'adjudicate' END WHERE kind IN ('give', 'settle');
UPDATE events SET undone = 1 WHERE key IN (SELECT json_extract(info, '$.of') FROM events WHERE kind = 'undo');
CREATE INDEX by_id ON events (id);
CREATE INDEX by_annotator ON events (annotator, kind);
"""
# Temporary views belong to the connection: a better definition needs no new version of the file. A column that is not
# grouped by has the value of the row with the maximum or minimum, which SQLite guarantees for a single one.
_VIEWS = """
CREATE TEMP VIEW actions AS -- what people did and have not undone
SELECT * FROM events WHERE kind IN ('label', 'adjudicate', 'skip', 'class', 'note') AND NOT undone;

CREATE TEMP VIEW answers AS -- each person's last answer for a row, and the last adjudication; a skip has no label
SELECT id, kind = 'adjudicate' AS final, annotator, label, time, json_extract(info, '$.draw') AS draw, max(seq) AS seq
FROM actions WHERE id IS NOT NULL AND kind != 'note'
GROUP BY id, kind = 'adjudicate', CASE kind WHEN 'adjudicate' THEN '' ELSE annotator END;

CREATE TEMP VIEW assigned AS -- rows whose last event for a person is an assignment; undo brings one back to its place
SELECT id, annotator, info, time, max(seq) AS seq, kind FROM (
    SELECT * FROM events WHERE kind = 'assign'
    UNION ALL SELECT * FROM actions WHERE id IS NOT NULL AND kind != 'note')
GROUP BY id, annotator HAVING kind = 'assign';

CREATE TEMP VIEW drawn AS -- the first time that a row was assigned to anybody
SELECT id, annotator, info, time, min(seq) AS seq FROM events WHERE kind = 'assign' GROUP BY id;

CREATE TEMP VIEW notes AS -- the newest text about each row
SELECT id, label, max(seq) AS seq FROM actions WHERE kind = 'note' GROUP BY id;
"""
_ASSIGNMENT = "json_extract(info, '$.draw'), json_extract(info, '$.guess'), json_extract(info, '$.n'), time, seq"
_COLUMNS = "kind, annotator, id, label, info, key, time, seq"
_DISK_FULL = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_FSYNC")


class JournalError(OSError):
    """An action could not be written, for instance to a full disk; nothing of it was kept."""


class PoolChanged(ValueError):
    """Labelled rows are missing from the pool, or have other embeddings now."""


@dataclass(frozen=True)
class Event:
    """One line of the journal.

    Kinds: "start" (settings), "assign" (a row goes to somebody), "label", "adjudicate" (a label that overrules all
    others of its row), "skip", "note" (a text about a row, in place of a label), "class" (a new class), "undo" and
    "figure" (the accuracy shown). Events of one action share its key, so they are undone together, and an action that
    is sent twice is kept once.
    """

    kind: str
    annotator: str = ""  # empty when one person works alone
    id: str | None = None  # the row by its id in the pool: row numbers change when a pool grows
    label: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    time: float = 0.0  # seconds since 1970; 0 stands for now
    seq: int = 0  # place in the journal, 0 until it is there


@dataclass(frozen=True)
class Assignment:
    """A row assigned to somebody: why it was drawn, and what the model of `n` labels predicted."""

    draw: str
    guess: str | None
    n: int
    time: float
    seq: int


@dataclass(frozen=True)
class Answer:
    """A label or, without one, a skip; `final` overrules all others, `draw` is "selected" if the row was looked for."""

    final: int
    annotator: str
    label: str | None
    time: float
    draw: str | None


class Store:
    """The events of one session and what they add up to. One connection for all threads: its owner holds a lock.

    Parameters
    ----------
    path : Path or None
        Created if missing, readable by its owner alone because it holds the token of the page. None keeps the session
        in memory, for scripts.
    row_of : mapping of str to int
        Row numbers by id. Events of rows that the pool does not have are passed over.
    """

    def __init__(self, path: Path | None, row_of: Mapping[str, int]) -> None:
        self._row_of = row_of
        # what counts for each row: the adjudication, else the majority, in a tie the label that was first
        self.labels: dict[int, Answer] = {}
        self.annotations: dict[int, dict[str, str]] = {}  # each person's label of each row, without adjudications
        self.adjudicated: dict[int, None] = {}
        self.none: dict[int, Answer] = {}  # rows that are none of the classes
        self.skipped: dict[int, None] = {}  # rows that somebody skipped and nobody labelled
        self.notes: dict[int, str] = {}
        self.assigned: dict[str, dict[int, Assignment]] = {}  # what each person is to answer, in this order
        self.drawn: dict[int, Assignment] = {}  # the first assignment of each row
        if path is not None:
            if not path.parent.is_dir():
                raise FileNotFoundError(f"folder {path.parent} does not exist; create it first")
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._db = sqlite3.connect(path or ":memory:", timeout=0.2, isolation_level=None, check_same_thread=False)
        try:
            self._open(path)
            self._load()
        except BaseException:
            self._db.close()
            raise

    def _open(self, path: Path | None) -> None:
        try:
            for setting in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
                self._db.execute(f"PRAGMA {setting}")
            self._db.execute("BEGIN IMMEDIATE")  # takes the lock now, not at the first label
            self._check_version(path)
            self._db.execute("COMMIT")
            self._db.executescript(_VIEWS)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                message = f"{path} is in use by another `pro2 label`: continue there, or end it first"
                raise ValueError(message) from error
            raise JournalError(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path} is not a journal of `pro2 label`: move it away to start anew") from error

    def _check_version(self, path: Path | None) -> None:
        application, version, n_tables = (
            self._db.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if n_tables and application != _APPLICATION:
            raise ValueError(f"{path} is a database of another program: move it away to start anew")
        if n_tables and version not in (2, VERSION):
            raise ValueError(
                f"{path} has journal version {version}, this pro2 reads versions 2 and {VERSION}: "
                "use the pro2 that wrote it, or move it away to start anew"
            )
        script = _TABLE if not n_tables else _UPGRADE if version == 2 else ""
        # one by one: executescript would commit the transaction first
        for statement in filter(str.strip, script.split(";")):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA application_id={_APPLICATION}")
        self._db.execute(f"PRAGMA user_version={VERSION}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all that is appended inside, or nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:  # SQLite itself has rolled back when a disk is full
                self._db.execute("ROLLBACK")
            self._load()
            if isinstance(error, sqlite3.OperationalError):
                full = error.sqlite_errorname in _DISK_FULL
                reason = "the disk is full" if full else f"the journal cannot be written ({error})"
                raise JournalError(f"{reason}: the last action was not saved, earlier ones were") from error
            raise

    def append(self, events: Iterable[Event]) -> None:
        """Add events; only inside `transaction`."""
        assert self._db.in_transaction
        insert = "INSERT INTO events (time, kind, annotator, id, label, info, key) VALUES (?, ?, ?, ?, ?, ?, ?)"
        changed = set()
        for event in events:
            values = event.kind, event.annotator, event.id, event.label, json.dumps(event.info), event.key
            self._db.execute(insert, (event.time or time.time(), *values))
            changed.add(event.id)
            if event.kind == "undo":
                key = (event.info["of"],)
                self._db.execute("UPDATE events SET undone = 1 WHERE key = ?", key)
                changed.update(name for (name,) in self._db.execute("SELECT id FROM events WHERE key = ?", key))
        self._load([name for name in changed if name is not None])

    def _load(self, ids: Sequence[str] | None = None) -> None:
        """Read the state of some rows, or of all."""
        states = self.labels, self.annotations, self.adjudicated, self.none, self.skipped, self.notes, self.drawn
        every: list[dict[int, Any]] = [*states, *self.assigned.values()]
        for state in every:
            if ids is None:
                state.clear()
            for name in ids or ():
                state.pop(self._row_of.get(name, -1), None)
        which = ("" if ids is None else f"WHERE id IN ({', '.join('?' * len(ids))}) ") + "ORDER BY seq"
        answers: dict[int, list[Answer]] = {}
        for row, *answer in self._rows(f"SELECT id, final, annotator, label, time, draw FROM answers {which}", ids):
            answers.setdefault(row, []).append(Answer(*answer))
        for row, given in answers.items():
            self._decide(row, given)
        self.notes.update((row, text) for row, text in self._rows(f"SELECT id, label FROM notes {which}", ids) if text)
        for table in ("drawn", "assigned"):
            for row, who, *values in self._rows(f"SELECT id, annotator, {_ASSIGNMENT} FROM {table} {which}", ids):
                state = self.drawn if table == "drawn" else self.assigned.setdefault(who, {})
                state[row] = Assignment(*values)
        in_order = {who: sorted(rows.items(), key=lambda item: item[1].seq) for who, rows in self.assigned.items()}
        self.assigned = {who: dict(rows) for who, rows in in_order.items() if rows}

    def _rows(self, query: str, ids: Sequence[str] | None) -> Iterator[Any]:
        """Results of a query whose first column is an id, with the row number instead."""
        for name, *values in self._db.execute(query, ids or ()):
            if name in self._row_of:
                yield self._row_of[name], *values

    def _decide(self, row: int, answers: Sequence[Answer]) -> None:
        final = [each for each in answers if each.final]
        votes = [each for each in answers if not each.final and each.label is not None]
        if votes:
            self.annotations[row] = {each.annotator: str(each.label) for each in votes}
        if final:
            self.adjudicated[row] = None
        if final or votes:
            # `Counter` keeps the order of the first vote among equals
            (label, _), *_ = Counter(each.label for each in final or votes).most_common(1)
            winner = next(each for each in final or votes if each.label == label)
            # a label that is corrected later belongs to a row that somebody looked for all the same
            answer = replace(winner, draw=next((each.draw for each in answers if each.draw), None))
            (self.none if label == NONE else self.labels)[row] = answer
        else:
            self.skipped[row] = None

    def draw_of(self, row: int) -> str:
        """Why a row was labelled; what a grid of one class showed counts as suggested."""
        assigned = self.drawn.get(row)
        return (self.labels.get(row) or self.none[row]).draw or (assigned.draw if assigned else SUGGESTED)

    def classes(self) -> list[str]:
        """Classes that people made or used, in the order in which they came up."""
        query = "SELECT label FROM actions WHERE kind != 'note' AND label != '' GROUP BY label ORDER BY min(seq)"
        return [label for (label,) in self._db.execute(query)]

    def n_assigned(self, annotator: str) -> int:
        """How many assignments this person has had."""
        query = "SELECT count(*) FROM events WHERE kind = 'assign' AND annotator = ?"
        return int(self._db.execute(query, (annotator,)).fetchone()[0])

    def last_action(self, annotator: str) -> list[Event]:
        """The events that this person's next undo takes back; empty when there are none."""
        own = f"annotator = ? AND json_extract(info, '$.draw') IS NOT '{IMPORTED}'"
        newest = f"SELECT key FROM actions WHERE {own} ORDER BY seq DESC LIMIT 1"
        return self._events(f"SELECT {_COLUMNS} FROM actions WHERE key = ({newest}) ORDER BY seq", annotator)

    def knows(self, key: str) -> bool:
        """Whether an action of that key was kept before."""
        return self._db.execute("SELECT 1 FROM events WHERE key = ? LIMIT 1", (key,)).fetchone() is not None

    def events(self, kind: str | None = None) -> list[Event]:
        """All events, or those of one kind, oldest first."""
        return self._events(f"SELECT {_COLUMNS} FROM events WHERE ?1 IS NULL OR kind = ?1 ORDER BY seq", kind)

    def _events(self, query: str, value: str | None) -> list[Event]:
        return [
            Event(kind, annotator, id_, label, json.loads(info), *rest)
            for kind, annotator, id_, label, info, *rest in self._db.execute(query, (value,))
        ]

    def close(self) -> None:
        """Fold the log into the file and release the lock."""
        self._db.close()


def check_pool(store: Store, pool: Pool, by_id: bool, where: str) -> str:
    """What is different from when the labels were given, in words; empty if nothing is.

    Refuses labelled rows that are missing or have other embeddings, unless the caller wants labels matched `by_id`.
    """
    events = [*store.events("label"), *store.events("adjudicate")]
    labelled = {event.id: event.info.get("mark") for event in events if event.id is not None}
    missing = [name for name in labelled if name not in pool.row_of]
    row_of = {name: row for name, row in pool.row_of.items() if labelled.get(name) is not None}
    altered = [name for name, row in row_of.items() if labelled[name] != pool.mark(row)]
    found = []
    for names, what in ((missing, "no longer there"), (altered, "embedded differently")):
        if names:
            shown = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
            rows = "1 labelled row is" if len(names) == 1 else f"{len(names)} labelled rows are"
            found.append(f"{rows} {what} ({shown})")
    before = next((event.info["rows"] for event in reversed(store.events("start")) if "rows" in event.info), len(pool))
    if before != len(pool):
        found.append(f"{len(pool)} rows where there were {before}")
    changes = "; ".join(found)
    if (missing or altered) and not by_id:
        raise PoolChanged(f"the pool has changed since it was labelled in {where}: {changes}")
    return changes
