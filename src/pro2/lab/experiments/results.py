"""The result log: appended, never rewritten; it survives kill -9, a full disk and a second writer.

Every process appends to a segment file of its own, so writers never meet. A record is a header (magic, length,
CRC-32) and a compressed JSON payload; a record that was cut off fails its length or checksum and is dropped, which
costs the one batch that was in flight.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pro2.atomic import FULL, sync_folder

_MAGIC = b"PRO2"
_HEADER = struct.Struct("<4sII")
_LARGEST = 256 << 20  # bytes of a record when unpacked: thousands of times what a batch writes

Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Failure:
    """Runs that raised: their keys, where they belong, the message and the traceback."""

    keys: tuple[str, ...]
    cell: dict[str, Any]
    error: str
    traceback: str


@dataclass(frozen=True)
class TornRecord:
    """Bytes at the end of a segment that are no whole record."""

    segment: str
    offset: int
    n_bytes: int


class ResultStore:
    """Results and failures of one sweep folder.

    Parameters
    ----------
    folder : path
        Made when missing. Segments live in ``folder/log``.

    Attributes
    ----------
    finished : set of str
        Keys of runs with a result, as of the last `refresh`.
    failures : dict of key to Failure
        Runs that failed and have not succeeded since.
    seconds : dict of batch id to float
        How long each finished batch took.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"out {str(self.folder)!r} is a file; expected a folder for the results")
        self._log = self.folder / "log"
        self._log.mkdir(parents=True, exist_ok=True)
        self._offsets: dict[str, int] = {}
        self._chunks: list[Columns] = []
        self._segment: int | None = None
        self._claims: int | None = None
        self.finished: set[str] = set()
        self.failures: dict[str, Failure] = {}
        self.seconds: dict[str, float] = {}
        self.refresh()

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; a claim ends with them."""
        for fd in (self._segment, self._claims):
            if fd is not None:
                os.close(fd)
        self._segment = self._claims = None

    def append(self, batch: str, columns: Columns, seconds: float) -> None:
        """Add the rows of one batch (columns of equal length, one of them ``key``) and wait until they are on disk."""
        self._write({"type": "rows", "batch": batch, "seconds": seconds, "columns": dict(columns)})

    def append_failure(self, failure: Failure) -> None:
        """Keep a failure beside the results."""
        self._write({"type": "failure", **failure.__dict__})

    def _write(self, record: dict[str, Any]) -> None:
        payload = zlib.compress(json.dumps(record, separators=(",", ":")).encode(), 1)
        data = memoryview(_HEADER.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload)
        try:
            fd = self._open_segment()
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def _open_segment(self) -> int:
        if self._segment is None:
            # The time orders segments, process and random part keep two writers apart.
            name = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}.seg"
            self._segment = os.open(self._log / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
            sync_folder(self._log)
        return self._segment

    def refresh(self) -> None:
        """Read what was appended since the last call, by this process or by others."""
        for path in sorted(self._log.glob("*.seg")):
            start = self._offsets.get(path.name, 0)
            for payload, end in _payloads(path, start):
                try:
                    self._take(_unpacked(payload))
                except (KeyError, TypeError, AttributeError, ValueError, RecursionError, zlib.error) as error:
                    raise ValueError(
                        f"{path} holds a record before byte {end} that no sweep wrote ({error!r}); move that file away "
                        "and run the sweep again: it does only what is missing"
                    ) from error
                self._offsets[path.name] = end

    def _take(self, record: dict[str, Any]) -> None:
        if record["type"] == "rows":
            keys = _checked_keys(record)
            self._chunks.append(record["columns"])
            self.finished.update(keys)
            self.seconds[record["batch"]] = record["seconds"]
            for key in keys:
                self.failures.pop(key, None)
        elif record["type"] == "failure":
            failure = Failure(tuple(record["keys"]), record["cell"], record["error"], record["traceback"])
            self.failures.update({k: failure for k in failure.keys if k not in self.finished})

    def rows(self, keys: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
        """Rows as mappings, each key once; in the order of `keys` when given (keys without a result left out)."""
        where: dict[str, tuple[Columns, int]] = {}
        for columns in self._chunks:
            for i, key in enumerate(columns["key"]):
                where.setdefault(key, (columns, i))
        for key in where if keys is None else keys:
            if key in where:
                columns, i = where[key]
                yield {name: values[i] for name, values in columns.items()}

    def torn(self) -> list[TornRecord]:
        """What was cut off, one entry a segment; those batches simply run again."""
        found = []
        for path in sorted(self._log.glob("*.seg")):
            offset = self._offsets.get(path.name, 0)
            if path.stat().st_size > offset:
                found.append(TornRecord(path.name, offset, path.stat().st_size - offset))
        return found

    def claim(self, batch: str) -> bool:
        """Take a batch for this process; False while another live process has it. A dead process's claims end."""
        try:
            import fcntl
        except ImportError:  # No record locks on this system: two processes may do a batch twice, never wrongly.
            return True
        try:
            fcntl.lockf(self._open_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(batch))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def release(self, batch: str) -> None:
        """Give a claimed batch back."""
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.lockf(self._open_claims(), fcntl.LOCK_UN, 1, _place(batch))

    def _open_claims(self) -> int:
        if self._claims is None:
            self._claims = os.open(self.folder / "claims.lock", os.O_RDWR | os.O_CREAT, 0o644)
        return self._claims


def _payloads(path: Path, start: int) -> Iterator[tuple[bytes, int]]:
    """Contents of whole records from `start`, each with the offset after it; stops at the first that is not whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(start)
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            magic, length, checksum = _HEADER.unpack(header)
            # the length is believed only as far as the file goes: a damaged one must not cost memory
            if magic != _MAGIC or length > size - file.tell():
                return
            payload = file.read(length)
            if zlib.crc32(payload) != checksum:
                return
            yield payload, file.tell()


def _unpacked(payload: bytes) -> Any:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(payload, _LARGEST)
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {_LARGEST:,} bytes")
    return json.loads(content)


def _checked_keys(record: dict[str, Any]) -> list[str]:
    """The keys of a record of rows; ValueError unless every column is a list with one value per key."""
    columns, keys = record["columns"], record["columns"]["key"]
    if not isinstance(record["batch"], str) or not isinstance(record["seconds"], int | float):
        raise ValueError("a batch without name or time")
    if not all(isinstance(values, list) and len(values) == len(keys) for values in columns.values()):
        raise ValueError("columns of different lengths")
    if not all(isinstance(key, str) for key in keys):
        raise ValueError("a key that is no text")
    return list(keys)


def _place(batch: str) -> int:
    """One byte of the claims file stands for one batch."""
    return int.from_bytes(hashlib.sha256(batch.encode()).digest()[:6], "little")


def _unwritable(folder: Path, error: OSError) -> OSError:
    full = error.errno in FULL
    reason = "the disk is full" if full else (error.strerror or str(error))
    return OSError(
        f"cannot write results to {folder}: {reason}; everything finished before is kept. "
        "Make room (or choose another folder), then start the same command again: it does only what is missing"
    )
