"""Where batches run: threads of this machine, or tasks of a Ray cluster. Both give the same rows.

An engine takes pieces of work as they are needed and yields outcomes as they come; an exception inside a piece is
an outcome, not the end of the sweep.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pro2.experiments.batches import prepare_method, run_batch
from pro2.experiments.expand import Batch
from pro2.experiments.methods import prepared_keys
from pro2.experiments.problems import Problem
from pro2.linalg import paths

_KEPT = 32


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
        with paths.using(compiled):
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
        self._compiled = compiled and paths.load()
        self._problems = problems
        self._prepared: OrderedDict[Any, Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[Outcome]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1), ThreadPoolExecutor(self.n_workers) as pool:
            running: set[Future[Outcome]] = set()
            try:
                for batch in batches:
                    problem = self._problems[batch.data]
                    prepared = partial(self._prepare, batch)
                    running.add(pool.submit(execute, batch, problem, prepared, self._compiled))
                    if len(running) > self.n_workers:
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        yield from (future.result() for future in done)
                while running:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            finally:
                for future in running:
                    future.cancel()

    def _prepare(self, batch: Batch) -> dict[Any, Any]:
        """What the batch needs, made once whichever thread comes first; a failure is not kept."""
        problem, keys = self._problems[batch.data], prepared_keys(batch)
        keep = max(_KEPT, 2 * len(keys))
        return {key: self._once((batch.data, key), partial(prepare_method, problem, key), keep) for key in keys}

    def _once(self, key: Any, make: Callable[[], Any], keep: int) -> Any:
        with self._lock:
            mine = key not in self._prepared
            future = self._prepared.setdefault(key, Future())
            while len(self._prepared) > keep:  # batches come method by method: the oldest is not needed again
                self._prepared.popitem(last=False)
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._prepared.pop(key, None)
                future.set_exception(error)
        return future.result()

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
            raise ValueError(f"address {address!r} is only for engine 'ray'; add --engine ray or leave the address out")
        return LocalEngine(problems, n_workers, compiled)
    if name == "ray":
        from pro2.experiments.ray_engine import RayEngine

        return RayEngine(problems, n_workers, address, compiled)
    raise ValueError(f"engine {name!r} is not known; expected 'local' or 'ray'")
