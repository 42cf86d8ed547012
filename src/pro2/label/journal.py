"""The journal: one append-only table of events in SQLite. What `append` has returned is on disk.

Write-ahead log, every commit flushed (`synchronous=FULL`): a killed process, and a machine that loses power, keep all
that was acknowledged. One process at a time: the lock goes with the process, however it ends.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pro2.label.events import Event

VERSION = 2
_APPLICATION = 0x70726F32  # "pro2": tells our files from other SQLite files
_TABLE = """
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL, annotator TEXT NOT NULL,
    id TEXT, label TEXT, info TEXT NOT NULL, key TEXT NOT NULL DEFAULT '')
"""
_INDEX = "CREATE INDEX by_key ON events (key)"
# What makes a journal of a version one of the next. Version 1 had no keys: each of its events was an action of its own.
_UPGRADES = {
    1: (
        "ALTER TABLE events ADD COLUMN key TEXT NOT NULL DEFAULT ''",
        "UPDATE events SET key = 'event-' || seq WHERE kind IN ('label', 'settle', 'skip', 'class')",
        _INDEX,
    )
}
_INSERT = "INSERT INTO events (time, kind, annotator, id, label, info, key) VALUES (?, ?, ?, ?, ?, ?, ?)"
_FULL = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_FSYNC")


class JournalError(OSError):
    """An action could not be written; nothing of it was kept."""


class JournalFull(JournalError):
    """The disk took no more."""


class Journal:
    """The events of one session.

    Parameters
    ----------
    path : Path
        Made when it is not there. Readable by its owner alone: it holds the token of the page.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.parent.is_dir():
            raise FileNotFoundError(f"folder {path.parent} does not exist; create it first")
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        # one connection for all threads; its owner keeps them apart with a lock of its own
        self._db = sqlite3.connect(path, timeout=0.2, isolation_level=None, check_same_thread=False)
        try:
            self._open()
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("BEGIN IMMEDIATE")  # takes the lock now, not at the first label
            self._upgrade()
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise self._refusal(error) from error
            raise ValueError(
                f"{self.path} is in use by another `pro2 label`: go on in its page, or end that process first"
            ) from error
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} is not a journal of `pro2 label`: move it away to start anew") from error

    def _upgrade(self) -> None:
        (application,), (version,) = (
            self._db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        tables = [name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if not tables:
            self._db.execute(_TABLE)
            self._db.execute(_INDEX)
        elif application != _APPLICATION:
            raise ValueError(f"{self.path} is a database of another program: move it away to start anew")
        elif version > VERSION:
            raise ValueError(
                f"{self.path} has journal version {version}, this pro2 reads up to {VERSION}: "
                "pip install --upgrade pro2"
            )
        else:
            for statement in (each for step in range(version, VERSION) for each in _UPGRADES[step]):
                self._db.execute(statement)
        self._db.execute(f"PRAGMA application_id={_APPLICATION}")
        self._db.execute(f"PRAGMA user_version={VERSION}")

    def append(self, events: Iterable[Event]) -> list[Event]:
        """Write events in one transaction, all or none; returns them with their place in the journal."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            kept = [self._insert(event) for event in events]
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._refusal(error) from error
            raise
        return kept

    def _insert(self, event: Event) -> Event:
        event = replace(event, time=event.time or time.time())
        row = (event.time, event.kind, event.annotator, event.id, event.label, json.dumps(dict(event.info)), event.key)
        return replace(event, seq=int(self._db.execute(_INSERT, row).lastrowid or 0))

    def _refusal(self, error: sqlite3.Error) -> JournalError:
        if error.sqlite_errorname in _FULL:
            return JournalFull("the disk is full: the last action was not saved, everything before it was")
        return JournalError(f"the journal cannot be written ({error}): the last action was not saved")

    def events(self) -> list[Event]:
        """All events, oldest first."""
        rows = self._db.execute("SELECT kind, annotator, id, label, info, key, time, seq FROM events ORDER BY seq")
        return [
            Event(kind, who, id_, label, json.loads(info), key, when, seq)
            for kind, who, id_, label, info, key, when, seq in rows
        ]

    def knows(self, key: str) -> bool:
        """Whether an action of that key was kept before."""
        return self._db.execute("SELECT 1 FROM events WHERE key = ? LIMIT 1", (key,)).fetchone() is not None

    def close(self) -> None:
        """Fold the log into the file and let go of the lock."""
        self._db.close()
