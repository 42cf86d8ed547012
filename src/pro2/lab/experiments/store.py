"""The results of a sweep: an SQLite file that survives kill -9 and a second process, and the views written from it.

One row is one cell, the unit of work. A process claims a cell by inserting its row and completes the row when the cell
is done. A claim is worth as much as its process is alive, which a lock file shows: the system releases the lock however
the process ends. SQLite's journal (WAL) needs a local disk: on a cluster, only the driver writes.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from filelock import FileLock, Timeout

from pro2.atomic import atomic_write

if TYPE_CHECKING:
    from pro2.lab.experiments.plan import Cell

STORE = "results.sqlite"
RESULTS = "results.parquet"
FAILURES = "failures.json"
SUMMARY = "summary.json"

# One row per run. Nothing here depends on when, where or in which order a run was done.
COLUMNS = {
    **dict.fromkeys(("key", "measure", "data", "target", "method"), "string"),
    **dict.fromkeys(("shots", "seed", "n_features"), "int32"),
    "l2": "float64",
    "params": "string",
    **dict.fromkeys(("accuracy", "worst_group", "val_accuracy", "support_loss", "log_loss"), "float64"),
    "n_test": "int32",
    **dict.fromkeys(("nullspace_norm", "excess_risk", "bound_bias", "bound_variance", "zero_risk"), "float64"),
    "detail": "string",
}

Columns = dict[str, list[float | int | str | None]]

# what a full or read-only disk, missing rights or a lock of another program raise; the rest means a damaged file
_UNWRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
               sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PERM)  # fmt: skip

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cells (
    key TEXT PRIMARY KEY, owner TEXT, seconds REAL, columns BLOB, checksum INTEGER, error TEXT, traceback TEXT
) WITHOUT ROWID
"""


class ResultStore:
    """Results, failures and claims of one sweep folder, which is made when missing."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / STORE
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"out {str(self.folder)!r} is a file; expected a folder for the results")
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._named():
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        try:
            with self._named():
                # after a power failure the last cells may be missing, but the file is whole
                self._db.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; {_SCHEMA}")
        except BaseException:
            self._db.close()
            raise
        self._owner = secrets.token_hex(8)
        self._alive = self._lock_of(self._owner)
        self._alive.acquire()

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        """Give back what is claimed and not done, and close the file."""
        with contextlib.suppress(OSError, ValueError, sqlite3.Error):
            self._execute("DELETE FROM cells WHERE owner = ? AND columns IS NULL AND error IS NULL", self._owner)
        self._db.close()
        self._alive.release()
        Path(self._alive.lock_file).unlink(missing_ok=True)

    def claim(self, keys: Iterable[str]) -> list[str]:
        """Take cells for this process: those that are not done, have not failed, and that no other process has."""
        sql = "INSERT OR IGNORE INTO cells (key, owner) VALUES (?, ?)"
        self._execute("BEGIN IMMEDIATE")
        taken = [key for key in keys if self._execute(sql, key, self._owner) > 0]
        self._execute("COMMIT")
        return taken

    def release_dead(self) -> None:
        """Give back the claims of processes that ended before they were done."""
        sql = "SELECT DISTINCT owner FROM cells WHERE columns IS NULL AND error IS NULL AND owner != ?"
        for (owner,) in self._query(sql, self._owner):
            lock = self._lock_of(owner)
            with contextlib.suppress(Timeout), lock:
                self._execute("DELETE FROM cells WHERE owner = ? AND columns IS NULL AND error IS NULL", owner)
                Path(lock.lock_file).unlink(missing_ok=True)

    def put(self, key: str, columns: Mapping[str, Any], seconds: float) -> None:
        """Keep the results of a cell (columns of equal length) and how long it took; NaN becomes null."""
        content = msgspec.json.encode(columns)
        sql = "INSERT OR REPLACE INTO cells (key, owner, seconds, columns, checksum) VALUES (?, ?, ?, ?, ?)"
        self._execute(sql, key, self._owner, seconds, content, _checksum(key, content))

    def put_failure(self, key: str, error: str, traceback: str) -> None:
        """Keep why a cell failed; it is not claimed again until it is forgotten."""
        sql = "INSERT OR REPLACE INTO cells (key, owner, error, traceback) VALUES (?, ?, ?, ?)"
        self._execute(sql, key, self._owner, error, traceback)

    def forget(self, keys: Iterable[str]) -> None:
        """Let cells run again."""
        for key in list(keys):
            # the index of a damaged file may not know the key: then all rows are searched
            self._execute("DELETE FROM cells WHERE key = ?", key) or self._execute(
                "DELETE FROM cells WHERE +key = ?", key
            )

    def finished(self) -> dict[str, float]:
        """Keys of all cells that have results, of whichever process, with the seconds they took."""
        return dict(self._query("SELECT key, seconds FROM cells WHERE columns IS NOT NULL"))

    def failures(self) -> dict[str, tuple[str, str]]:
        """Message and traceback of each failed cell."""
        rows = self._query("SELECT key, error, traceback FROM cells WHERE error IS NOT NULL")
        return {key: (error, traceback) for key, error, traceback in rows}

    def results(self) -> Iterator[tuple[str, Columns]]:
        """The columns of each finished cell."""
        for key, content in self._query("SELECT key, columns FROM cells WHERE columns IS NOT NULL"):
            with self._named():
                columns = msgspec.json.decode(content, type=Columns)
            yield key, columns

    def damaged(self) -> list[str]:
        """Keys of cells whose results do not have the checksum that they were written with."""
        rows = self._query("SELECT key, columns, checksum FROM cells WHERE columns IS NOT NULL")
        return [key for key, content, checksum in rows if checksum != _checksum(key, content)]

    def _execute(self, sql: str, *values: Any) -> int:
        """Change rows; how many were changed."""
        with self._named():
            return self._db.execute(sql, values).rowcount

    def _query(self, sql: str, *values: Any) -> list[Any]:
        with self._named():
            return self._db.execute(sql, values).fetchall()

    def _lock_of(self, owner: str) -> FileLock:
        return FileLock(self.folder / f".{owner}.lock", timeout=0)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of SQLite in words that name the file and what to do."""
        try:
            yield
        except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _UNWRITABLE:
                raise ValueError(f"{self.path} is damaged ({error}); move it away and run the sweep again") from error
            raise OSError(
                f"cannot write results to {self.path}: {error}; every finished cell is kept. Make room or choose "
                "another folder, then start the same command again: it does only what is missing"
            ) from error


def _checksum(key: Any, content: Any) -> int | None:
    return zlib.crc32(str(key).encode() + content) if isinstance(content, bytes) else None


def write_view(store: ResultStore, cells: Iterable[Cell]) -> Path:
    """Write ``results.parquet`` with the finished runs of a plan, in the plan's order, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    results, rows = dict(store.results()), []
    for cell in cells:
        # what a run is comes from the plan (names are not in the key), what it measured from the store
        measured = results.get(cell.key, {})
        place = {"measure": cell.measure, "data": cell.data, "target": cell.target, "method": cell.method.name}
        for i, setting in enumerate(cell.settings if measured else ()):
            params = json.dumps(dict(setting.params), sort_keys=True) if setting.params else None
            point = {"n_features": setting.n_features, "l2": setting.l2, "params": params}
            values = {name: column[i] for name, column in measured.items()}
            rows.append({"key": f"{cell.key}-{i}", **place, "shots": cell.shots, "seed": cell.seed, **point, **values})
    table = pa.Table.from_pylist(rows, schema=pa.schema(COLUMNS))
    path = store.folder / RESULTS
    return atomic_write(path, lambda file: pq.write_table(table, file, compression="zstd"), force=True)


def read_view(folder: str | Path) -> Any:
    """The results of a sweep folder as a pyarrow Table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder) / RESULTS
    if not path.is_file():
        raise ValueError(f"{str(folder)!r} holds no {RESULTS}: run a sweep into it first")
    try:
        # a column that was not measured is null; one of another type is not a result of a sweep
        return pq.read_table(path, schema=pa.schema(COLUMNS))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or not a results file: {str(error)[:200]}") from error


def write_json(path: Path, value: Any) -> Path:
    """Write plain values atomically."""
    return write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> Path:
    """Write text atomically, over what is there."""
    return atomic_write(path, lambda file: file.write(text.encode("utf-8")), force=True)
