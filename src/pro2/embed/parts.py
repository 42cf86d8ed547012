"""Unfinished work beside the output file: rows on disk, one marker for each finished shard, one lock.

`table.arrow` grows in `table.arrow.parts/`: `rows.raw` holds every row at its final place; `shard-00007.json` appears
after the rows of shard 7 are safely on disk and carries their digest, so a kill at any moment loses at most the
shards in flight, and a torn or altered row is never taken for a finished one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from pro2.atomic import FULL, atomic_write, lock

_CHUNK = 4096
_FILES = ("kept.raw", "rows.raw", "job.json")
RULES = frozenset({"on_error", "max_pixels"})  # which images may be left out; the others' rows do not depend on it
# what a marker knows about its own shard: a change costs that shard alone
PER_SHARD = RULES | {"image_files", "n_rows"}


def changed_entries(one: dict[str, Any], other: dict[str, Any], but: frozenset[str]) -> list[str]:
    """Entries in which two jobs differ, those in `but` aside."""
    return sorted(key for key in {*one, *other} - but if one.get(key) != other.get(key))


@dataclasses.dataclass(frozen=True)
class Shard:
    """Finished rows: `start` to `start + len(embeddings)`; skipped rows are zero and have a reason."""

    index: int
    start: int
    embeddings: np.ndarray
    skipped: dict[int, str]


class Parts:
    """The folder of unfinished work; use it inside `locked`."""

    def __init__(self, folder: Path, job: dict[str, Any], dtype: str, n_rows: int) -> None:
        self.folder, self.job, self.dtype, self.n_rows = folder, job, np.dtype(dtype), n_rows

    def begin(self, force: bool) -> None:
        """Adopt earlier work of the same job; refuse other work, or discard it with `force`."""
        earlier = self._earlier_job()
        changed = [] if earlier is None else changed_entries(earlier, self.job, PER_SHARD)
        if changed and not force:
            raise ValueError(
                f"{self.folder} holds unfinished work of a different run (changed: {', '.join(changed)}); its rows "
                "cannot be used here: repeat the earlier call to finish it, or discard it with force=True"
            )
        if changed:
            self._discard()
        content = {**self.job, "n_rows": self.n_rows}
        _write_file(self.folder / "job.json", json.dumps(content, sort_keys=True, indent=1).encode())

    def finished(self) -> dict[int, dict[str, Any]]:
        """Markers of shards whose rows are on disk as they were written; damaged ones are dropped and done again."""
        found = {}
        for path in sorted(self.folder.glob("shard-*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError):
                marker = json.loads(path.read_text(encoding="utf-8"))
                rows = self._rows(marker["start"], marker["stop"], marker["width"])
                if hashlib.sha256(rows).hexdigest() == marker["digest"]:
                    found[int(marker["index"])] = marker
        return found

    def put(self, shard: Shard, facts: dict[str, Any]) -> dict[str, Any]:
        """Write a shard's rows, then its marker with `facts` about its input; returns the marker."""
        rows = np.ascontiguousarray(shard.embeddings, dtype=self.dtype)
        width = rows.shape[1]
        try:
            with self._raw() as stream:
                stream.seek(shard.start * width * self.dtype.itemsize)
                stream.write(rows.tobytes())
                stream.flush()
                os.fsync(stream.fileno())
            marker = {
                "index": shard.index,
                "start": shard.start,
                "stop": shard.start + len(rows),
                "width": width,
                "digest": hashlib.sha256(rows.tobytes()).hexdigest(),
                "skipped": {str(row): reason for row, reason in shard.skipped.items()},
                **facts,
            }
            _write_file(self.folder / f"shard-{shard.index:06d}.json", json.dumps(marker, sort_keys=True).encode())
        except OSError as error:
            raise self.explained(error) from error
        return marker

    def matrix(self, width: int, kept: np.ndarray) -> np.ndarray:
        """The kept rows, memory-mapped and read-only; never all in memory."""
        with self._raw() as stream:  # rows at the end that were all skipped were never written
            stream.truncate(self.n_rows * width * self.dtype.itemsize)
        rows = np.memmap(self.folder / "rows.raw", dtype=self.dtype, mode="r", shape=(self.n_rows, width))
        if kept.all():
            return rows
        path = self.folder / "kept.raw"
        with path.open("wb") as stream:
            for start in range(0, self.n_rows, _CHUNK):
                stream.write(rows[start : start + _CHUNK][kept[start : start + _CHUNK]].tobytes())
        return np.memmap(path, dtype=self.dtype, mode="r", shape=(int(kept.sum()), width))

    def explained(self, error: OSError) -> OSError:
        """A full disk in words that say what to do; any other error as it is."""
        if error.errno not in FULL:
            return error
        return OSError(
            f"no space left to write {self.folder} ({os.strerror(error.errno or 0)}); finished shards are kept: free "
            "some space (or raise the quota) and run the same command again"
        )

    def remove(self) -> None:
        """All of it is in the finished table now; the lock file goes last."""
        self._discard()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _discard(self) -> None:
        # markers first: rows without a marker are only unfinished, a marker without rows would be a lie
        for path in [*self.folder.glob("shard-*.json"), *(self.folder / name for name in _FILES)]:
            path.unlink(missing_ok=True)

    def _earlier_job(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads((self.folder / "job.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # no JSON, or none of an object
            return {}

    def _raw(self) -> IO[bytes]:
        path = self.folder / "rows.raw"
        path.touch()
        return path.open("r+b")

    def _rows(self, start: int, stop: int, width: int) -> bytes:
        size = width * self.dtype.itemsize
        with (self.folder / "rows.raw").open("rb") as stream:
            stream.seek(start * size)
            return stream.read((stop - start) * size)


def describe_parts(folder: Path) -> dict[str, Any]:
    """What an unfinished run has done, after comparing its rows with their digests; nothing is changed."""
    job = Parts(folder, {}, "float32", 0)._earlier_job()
    if not job or not isinstance(job.get("n_rows"), int):
        raise ValueError(f"{folder} is damaged (job.json); delete the folder and run the command again")
    finished = Parts(folder, job, job["dtype"], job["n_rows"]).finished().values()
    return {
        "output": str(folder.with_suffix("")),
        "backbone": job["backbone"].get("name"),
        "rows": job["n_rows"],
        "finished": sum(each["stop"] - each["start"] for each in finished),
        "left_out": sum(len(each["skipped"]) for each in finished),
        "state": "at work" if _is_locked(folder) else "interrupted; run the same command again to go on",
        "intact": len(list(finished)) == len(list(folder.glob("shard-*.json"))),
    }


def _is_locked(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), (folder / "lock").open("rb") as stream:
        return lock(stream.fileno()) is False
    return False


def _write_file(path: Path, content: bytes) -> None:
    atomic_write(path, lambda file: file.write(content), force=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; a second process is refused. The lock dies with its process, however that ends."""
    path = folder / "lock"
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+b")
        if lock(stream.fileno()) is False:
            holder = _holder(path)
            stream.close()
            raise ValueError(
                f"another process{holder} is writing {folder}; wait until it has finished, or stop it and run again"
            )
        if _same_file(stream, path):
            break
        stream.close()  # the process before us finished and removed the folder between our two steps
    with stream:
        stream.truncate(0)
        stream.write(str(os.getpid()).encode())
        stream.flush()
        yield


def _same_file(stream: IO[bytes], path: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    return False


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        number = path.read_text(encoding="utf-8", errors="replace").strip()
        return f" ({number})" if number.isdigit() else ""
    return ""
