"""A source table larger than memory: moments of a file on disk, against reading it and multiplying alone.

Each way is a process of its own and starts with no page of the file in memory; ways take turns, forwards and backwards.
On a busy machine processes do not get equal shares: the last row reads once and gives every block to both in turn.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import run

D, ROWS = 1024, 32_768
WAYS = ("read", "read + X'X", "moments")
BOTH = "moments / (read + X'X)"


def write(path: Path, gigabytes: float) -> int:
    """Rows of float32 noise around two class means; returns how many."""
    rng = np.random.default_rng(0)
    block = rng.standard_normal((ROWS, D), dtype=np.float32)
    n = int(gigabytes * 2**30 / (4 * D * ROWS)) * ROWS
    with path.open("wb") as file:
        for i in range(n // ROWS):
            block[:, i % D] += 1.0  # no two blocks alike
            file.write(block)
    return n


def forget(path: Path) -> None:
    """Drop the file from the page cache, so that the next way reads it from the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def blocks(path: Path) -> Iterator[np.ndarray]:
    """Blocks through one buffer, read without filling the page cache with what is never read again."""
    buffer = np.empty((ROWS, D), dtype=np.float32)
    with path.open("rb", buffering=0) as file:
        while (got := file.readinto(memoryview(buffer).cast("B"))) > 0:
            os.posix_fadvise(file.fileno(), 0, file.tell(), os.POSIX_FADV_DONTNEED)
            yield buffer[: got // (4 * D)]


def once(way: str, path: Path) -> None:
    """One way in this process; prints seconds, processor seconds and peak resident megabytes."""
    from pro2.estimators.moments import SourceMoments

    if way == BOTH:
        side_by_side(path)
        return
    labels = np.arange(ROWS) % 2
    start, cpu = time.perf_counter(), time.process_time()
    if way == "moments":
        SourceMoments.from_batches((X, labels[: len(X)]) for X in blocks(path))
    else:
        total = np.zeros((D, D))
        for X in blocks(path):
            total += X.T @ X if way != "read" else X[0, 0]
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    print(wall, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def side_by_side(path: Path) -> None:
    """Both ways on every block, first one and then the other first; prints like `once`, for each."""
    from pro2.estimators.moments import SourceMoments

    labels, total, moments = np.arange(ROWS) % 2, np.zeros((D, D)), None
    spent = np.zeros((3, 2))  # reading, product, moments: wall and processor seconds
    last = np.array([time.perf_counter(), time.process_time()])
    for i, X in enumerate(blocks(path)):
        now = np.array([time.perf_counter(), time.process_time()])
        spent[0] += now - last
        for way in (1, 2) if i % 2 == 0 else (2, 1):
            last = np.array([time.perf_counter(), time.process_time()])
            if way == 1:
                total += X.T @ X
            else:
                part = SourceMoments.from_arrays(X, labels[: len(X)])
                moments = part if moments is None else moments + part
            spent[way] += np.array([time.perf_counter(), time.process_time()]) - last
        last = np.array([time.perf_counter(), time.process_time()])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(*(spent[0] + spent[1]), *(spent[0] + spent[2]), peak)


def spawn(way: str, path: Path) -> tuple[float, ...]:
    forget(path)
    command = [sys.executable, __file__, "--once", way, "--file", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(way, done.stdout.strip(), flush=True)
    return tuple(map(float, done.stdout.split()))


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    runs: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
    try:
        size = 4e-9 * D * write(options.file, options.gigabytes)
        for turn in range(options.repeats):
            for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
                runs[way].append(spawn(way, options.file))
        both = spawn(BOTH, options.file)
    finally:
        options.file.unlink(missing_ok=True)
    rows = []
    for way, found in runs.items():
        seconds, cpu, _ = (statistics.median(column) for column in zip(*found))
        rows.append({"what": way, "GB": size, "seconds": seconds, "GB/s": size / seconds, "cpu seconds": cpu,
                     "peak resident MB": max(f[2] for f in found)})  # fmt: skip
    for row in rows:
        row["speed of read + X'X"] = rows[1]["seconds"] / row["seconds"]
        row["in cpu time"] = rows[1]["cpu seconds"] / row["cpu seconds"]
    product, product_cpu, seconds, cpu, peak = both
    rows.append({"what": BOTH, "GB": size, "seconds": seconds, "GB/s": size / seconds, "cpu seconds": cpu,
                 "peak resident MB": peak, "speed of read + X'X": product / seconds,
                 "in cpu time": product_cpu / cpu})  # fmt: skip
    return rows


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--file", type=Path, default=Path("/var/tmp/pro2_stream.f32"), help="written, then deleted")
    parser.add_argument("--once", choices=(*WAYS, BOTH), help=argparse.SUPPRESS)


if __name__ == "__main__":
    if "--once" in sys.argv:
        once(sys.argv[sys.argv.index("--once") + 1], Path(sys.argv[sys.argv.index("--file") + 1]))
    else:
        run("stream", "Stream: moments of a file larger than memory", work, _options)
