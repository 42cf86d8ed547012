"""Where batches run: threads of this machine, or tasks of a Ray cluster. Both give the same rows.

An engine takes pieces of work as they are needed and yields outcomes as they come; an exception inside a piece is
an outcome, not the end of the sweep.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

from pro2.lab.experiments.batches import run_batch
from pro2.lab.experiments.methods import prepare_method, prepared_keys
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch
from pro2.linalg import kernels

_KEPT = 32  # fits on source, beyond those of the batch at hand
_AHEAD = 64  # batches put aside while the fit that they need is being made; they count as taken


@dataclass(frozen=True)
class Outcome:
    """What became of one batch: its columns, or the error."""

    batch: Batch
    columns: dict[str, list[Any]] | None
    seconds: float
    error: str = ""
    traceback: str = ""


class Engine(Protocol):
    """Runs batches; `outcomes` pulls from `batches` only as workers become free."""

    n_workers: int

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[Outcome]: ...

    def close(self) -> None: ...


def execute(
    batch: Batch, problem: Problem, prepared: Callable[[], Mapping[Any, Any]], compiled: bool = False
) -> Outcome:  # fmt: skip
    """Run one batch and catch what it raises; `compiled` says which solver, so that every worker rounds alike."""
    start = time.perf_counter()
    try:
        with kernels.using(compiled):
            columns = run_batch(problem, batch, prepared())
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return Outcome(batch, None, time.perf_counter() - start, message, traceback.format_exc())
    return Outcome(batch, columns, time.perf_counter() - start)


def available_cores() -> int:
    """Cores that this process may use; a container or `taskset` can give fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Threads of this process; the arrays are shared and the linear algebra runs outside Python's lock.

    Each thread computes on one core, so that results do not depend on how many there are.
    """

    def __init__(
        self, problems: Mapping[str, Problem], n_workers: int | None = None, compiled: bool = False
    ) -> None:  # fmt: skip
        self.n_workers = n_workers or available_cores()
        self._compiled = compiled and kernels.available("numba")
        self._problems = problems
        self._prepared: OrderedDict[Any, Future[Any]] = OrderedDict()

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[Outcome]:
        from threadpoolctl import threadpool_limits

        source, waiting = iter(batches), deque[Batch]()
        with threadpool_limits(1), ThreadPoolExecutor(self.n_workers) as pool:
            running: set[Future[Outcome]] = set()
            try:
                while True:
                    while len(running) <= self.n_workers and (batch := self._next(waiting, source)) is not None:
                        args = (batch, self._problems[batch.data], self._reserve(batch), self._compiled)
                        running.add(pool.submit(execute, *args))
                    if not running:
                        return
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            finally:
                for future in running:
                    future.cancel()

    def _next(self, waiting: deque[Batch], source: Iterator[Batch]) -> Batch | None:
        """The first batch whose fits on source no other batch is making just now; those that must wait, wait here."""
        for i, batch in enumerate(waiting):
            if self._is_free(batch):
                del waiting[i]
                return batch
        for batch in islice(source, _AHEAD - len(waiting)):
            if self._is_free(batch):
                return batch
            waiting.append(batch)
        return None

    def _is_free(self, batch: Batch) -> bool:
        found = (self._prepared.get((batch.data, key)) for key in prepared_keys(batch))
        return all(future is None or future.done() for future in found)

    def _reserve(self, batch: Batch) -> Callable[[], dict[Any, Any]]:
        """What gives the batch its fits on source; those that nobody has made yet are this batch's to make."""
        mine, futures = [], {}
        for key in prepared_keys(batch):
            if (batch.data, key) not in self._prepared:
                self._prepared[batch.data, key] = Future()
                mine.append(key)
            futures[key] = self._prepared[batch.data, key]
        ended = [key for key, future in self._prepared.items() if future.done()]
        for old in ended[: max(0, len(self._prepared) - max(_KEPT, 2 * len(futures)))]:
            del self._prepared[old]  # batches come method by method: the oldest is not needed again
        return partial(self._fulfil, batch.data, mine, futures)

    def _fulfil(self, data: str, mine: list[Any], futures: dict[Any, Future[Any]]) -> dict[Any, Any]:
        try:
            for key in mine:
                futures[key].set_result(prepare_method(self._problems[data], key))
        finally:
            for key in mine:
                if not futures[key].done():  # a failure is not kept: the next batch tries again
                    self._prepared.pop((data, key), None)
        return {key: future.result() for key, future in futures.items()}

    def close(self) -> None:
        self._prepared.clear()


def make_engine(
    name: str, problems: Mapping[str, Problem], n_workers: int | None = None, address: str | None = None,
    compiled: bool = False,
) -> Engine:  # fmt: skip
    """The engine called `name`: ``local`` or ``ray`` (`address` joins a running cluster).

    With `compiled` every worker loads the compiled solver first, where numba is installed.
    """
    if name == "local":
        if address is not None:
            raise ValueError(
                f"address {address!r} is only for engine 'ray'; choose that engine or leave the address out"
            )
        return LocalEngine(problems, n_workers, compiled)
    if name == "ray":
        from pro2.lab.experiments.ray_engine import RayEngine

        return RayEngine(problems, n_workers, address, compiled)
    raise ValueError(f"engine {name!r} is not known; expected 'local' or 'ray'")
