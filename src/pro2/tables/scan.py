"""One pass over the rows of a table, here or on a Ray cluster, from which something small is kept.

Rows are cut into parts of at most 65,536, none of which crosses the border of a file, and parts into batches. Batches
do not depend on where they are computed or on what is already done, so that the results have the same bits.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from threadpoolctl import threadpool_limits

from pro2 import cluster
from pro2.atomic import FULL, atomic_write
from pro2.tables import TableError
from pro2.tables.arrow import BATCH, Source
from pro2.tables.columns import to_json
from pro2.tables.embeddings import PART_ROWS, EmbeddingTable
from pro2.tables.sources import is_address, read

NUMBERS = 1 << 22  # in a batch: 16 MiB in single precision
BLOCK = 1 << 16  # numbers that are converted at a time: they stay in the cache
THREADS = 8  # more would not read faster, and each holds a batch
Work = Callable[..., Mapping[str, Any]]
Results = Iterator[tuple[int, pa.Table]]


@dataclass(frozen=True)
class Part:
    """Some rows of a table without a gap, and the file that they are in: its path in the folder, or its name."""

    file: str
    rows: slice

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    def batches(self, width: int) -> list[slice]:
        """The rows of each batch: a power of two, which divides those of a part."""
        size = 1 << min(max(1, NUMBERS // width), PART_ROWS).bit_length() - 1
        return [slice(i, min(i + size, self.rows.stop)) for i in range(self.rows.start, self.rows.stop, size)]


def parts(table: EmbeddingTable) -> list[Part]:
    """The parts of a table whose rows are in the order of their file."""
    source = table._source
    if (np.diff(table.rows) <= 0).any():
        raise TableError(f"the rows of a scan must be in the order of {source.origin}: take them in increasing order")
    files = source.parts or [source]
    ends = np.searchsorted(table.rows, np.cumsum([file.n_rows for file in files])).tolist()
    folder = source.origin if source.parts else str(Path(source.origin).parent)
    names = [file.origin.removeprefix(folder).lstrip("/") for file in files]
    return [
        Part(name, slice(i, min(i + PART_ROWS, end)))
        for name, start, end in zip(names, [0, *ends], ends)
        for i in range(start, end, PART_ROWS)
    ]


def scan(
    table: EmbeddingTable, work: Work, *along: np.ndarray, ray: str | None = None, wanted: Sequence[int] | None = None
) -> Results:
    """Apply `work` to all rows of a table, a batch at a time; yield the numbers of parts and their results.

    In this process, threads compute while the next batch is read. On a cluster, each worker opens the table by its path
    and reads the rows of its part. Parts come in order, each of them once, also if a worker dies.

    Parameters
    ----------
    table : EmbeddingTable
        Rows in the order of their file.
    work : callable
        ``work(X, *values)`` gets rows (n, width), which it must not keep, and returns columns of n results.
    *along : arrays (n_rows, ...)
        Values of which `work` gets those of its rows.
    ray : str, optional
        Address of a cluster, ``"auto"`` for the one that this machine belongs to, ``"local"`` for a new one.
    wanted : sequence of int, optional
        Numbers of the parts to compute; all by default.
    """
    every = parts(table)
    numbers = [*range(len(every))] if wanted is None else [*wanted]
    if not numbers:
        return
    if ray is not None:
        yield from _on_ray(table, work, along, [(i, every[i]) for i in numbers], ray)
        return
    chosen = table.rows if len(numbers) == len(every) else np.concatenate([table.rows[every[i].rows] for i in numbers])
    batches = [(i, span) for i in numbers for span in every[i].batches(table.width)]
    threads = min(cluster.available_cores(), THREADS)
    for number, found in groupby(_compute(table._source, chosen, batches, work, along, threads), lambda each: each[0]):
        yield number, pa.concat_tables([result for _, result in found])


def _compute(
    source: Source, rows: np.ndarray, batches: Sequence[tuple[int, slice]], work: Work,
    along: Sequence[np.ndarray], threads: int,
) -> Results:  # fmt: skip
    """The results of all batches of some rows of a file, in order; few are on their way at a time."""
    # one BLAS thread: several would share out a product differently on each machine, and so change last digits
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        waiting: deque[tuple[int, Future[pa.Table]]] = deque()
        call = _Call(work)
        try:
            lengths = [span.stop - span.start for _, span in batches]
            size = max(*lengths, BATCH)  # where few rows are wanted, the blocks that they are in are larger
            for (number, span), X in zip(batches, _recut(source.blocks(size, rows), lengths)):
                waiting.append((number, pool.submit(call, X, *(values[span] for values in along))))
                if len(waiting) > threads:
                    number, future = waiting.popleft()
                    yield number, future.result()
            yield from ((number, future.result()) for number, future in waiting)
        finally:
            pool.shutdown(cancel_futures=True)


class _Call:
    """`work` as Arrow, on rows in single precision; each thread converts float16 into a buffer of its own."""

    def __init__(self, work: Work) -> None:
        self.work, self.own = work, threading.local()

    def __call__(self, X: np.ndarray, *values: np.ndarray) -> pa.Table:
        if X.dtype == np.float16:
            if getattr(self.own, "buffer", X[:0]).size < X.size:
                self.own.buffer = np.empty(X.size, np.float32)
            X = to_single(X, self.own.buffer[: X.size])
        return pa.table(dict(self.work(X, *values)))


def to_single(X: np.ndarray, out: np.ndarray) -> np.ndarray:
    """float16 rows in single precision, in the memory of `out`: exactly NumPy's conversion, in a third of the time.

    Sign, exponent and digits are shifted into place; a product then adds the difference of the two exponents' offsets.
    """
    half, bits = X.reshape(-1).view(np.int16), out.view(np.int32)
    for start in range(0, X.size, BLOCK):
        some = slice(start, start + BLOCK)
        bits[some] = half[some]
        bits[some] <<= 13
        bits[some] &= np.int32(-0x70002000)  # the sign had filled all bits to its right
        out[some] *= np.float32(2.0**112)
        if max(out[some].max(), -out[some].min()) > np.finfo(np.float16).max:  # NaN or infinity
            out[some] = X.reshape(-1)[some]
    return out.reshape(X.shape)


def _recut(blocks: Iterator[np.ndarray], lengths: Sequence[int]) -> Iterator[np.ndarray]:
    """The same rows in arrays of these lengths, however a file is cut."""
    rest = next(blocks)
    for n in lengths:
        found: list[np.ndarray] = []
        while (missing := n - sum(map(len, found))) > 0:
            rest = rest if len(rest) else next(blocks)
            found.append(rest[:missing])
            rest = rest[missing:]
        yield found[0] if len(found) == 1 else np.concatenate(found)


def read_rows(table: EmbeddingTable, ray: str | None = None) -> np.ndarray:
    """The embedding of few rows of a large table, (n, width), read as in `scan`."""
    found = [part["row"].combine_chunks() for _, part in scan(table, _copied, ray=ray)]
    return np.concatenate([np.asarray(rows.flatten()).reshape(-1, table.width) for rows in found])


def _copied(X: np.ndarray) -> dict[str, pa.Array]:
    return {"row": pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1).copy()), X.shape[1])}


# ---- on a cluster


def _on_ray(
    table: EmbeddingTable, work: Work, along: Sequence[np.ndarray], wanted: list[tuple[int, Part]], address: str
) -> Results:
    if table._source.opened is None:
        raise TableError("the workers of a cluster open the table by its path: save it where all nodes can read it")
    path, embedding = table._source.opened
    opened = path if is_address(path) else str(Path(path).resolve()), embedding
    ray = cluster.join(address)
    given = {str(i): values for i, values in enumerate([table.rows, *along])}
    items = [
        {"number": number, "given": to_ipc({name: values[part.rows] for name, values in given.items()})}
        for number, part in wanted
    ]
    count = min(len(items), max(1, int(ray.cluster_resources().get("CPU", 1))))
    with cluster.quiet(ray), cluster.failures(ray, "run the same command again"):
        dataset = ray.data.from_items(items, override_num_blocks=len(items))
        dataset.context.execution_options.preserve_order = True
        results = dataset.map_batches(
            _RayWorker,
            fn_constructor_args=(opened, work),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=count),
            num_cpus=1,
        )
        for result in results.iter_rows():
            if result["error"]:
                raise ValueError(result["error"])
            yield result["number"], from_ipc(result["result"])


class _RayWorker:
    """One process with the table; called with the rows of one part at a time."""

    def __init__(self, opened: tuple[str, str | None], work: Work) -> None:
        self.source, self.work = read(*opened), work

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[Any]]:
        given = from_ipc(batch["given"][0])
        rows, *along = (column.to_numpy() for column in given.columns)
        spans = Part("", slice(0, len(rows))).batches(self.source.matrix_type[0])
        try:
            found = _compute(self.source, rows, [(0, span) for span in spans], self.work, along, 1)
            result, error = to_ipc(pa.concat_tables([each for _, each in found])), ""
        except ValueError as wrong:  # the driver raises it as one line
            result, error = b"", str(wrong)
        return {"number": batch["number"].tolist(), "result": [result], "error": [error]}


def to_ipc(columns: Mapping[str, Any] | pa.Table) -> bytes:
    """A table for the way between two processes, or for a file."""
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_ipc(content: bytes) -> pa.Table:
    """Inverse of `to_ipc`."""
    return pa.ipc.open_file(content).read_all()


# ---- parts that outlive an interruption


def keep_parts(
    folder: Path, depends_on: Sequence[Any], every: Sequence[Part], results: Callable[[list[int]], Results],
    progress: Callable[[int], object],
) -> list[Path]:  # fmt: skip
    """The results of a scan as Arrow files in a folder, so that the same scan continues where it was interrupted.

    Each file is written atomically and named by a digest of all that its content depends on; those of another scan go.
    `results` is called with the numbers of the missing parts, `progress` with the number of rows that are done.
    """
    key = hashlib.sha256(to_json(list(depends_on)).encode()).hexdigest()[:40]
    files = [folder / f"part-{number:06d}-{key}.arrow" for number in range(len(every))]
    for stale in {*folder.glob("part-*"), *folder.glob(".part-*")} - {*files}:
        stale.unlink()
    missing = [number for number, file in enumerate(files) if not file.exists()]
    done = sum(map(len, every)) - sum(len(every[number]) for number in missing)
    progress(done)
    for number, result in results(missing):
        content = to_ipc(result)
        atomic_write(files[number], lambda file, content=content: file.write(content))  # type: ignore[misc]
        done += len(every[number])
        progress(done)
    return files


@contextlib.contextmanager
def working_in(path: Path) -> Iterator[Path]:
    """The folder of unfinished work on an output: locked until its process ends; a full disk is explained.

    The folder goes when the work is done, or when nothing of it is worth keeping.
    """
    folder = path.with_name(path.name + ".parts")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "lock", timeout=0):
            for stale in path.parent.glob(f".{glob.escape(path.name)}.*.part"):  # of a run that was killed at its end
                stale.unlink() if stale.is_file() else shutil.rmtree(stale, ignore_errors=True)
            try:
                yield folder
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                if not any(folder.glob("*.arrow")):
                    shutil.rmtree(folder, ignore_errors=True)
    except Timeout:
        raise ValueError(
            f"another process is writing {folder}; wait until it has finished, or stop it and run again"
        ) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(
            f"no space left to write {folder} ({os.strerror(error.errno)}); finished parts are kept: free some space "
            "(or raise the quota) and run the same command again"
        ) from error
