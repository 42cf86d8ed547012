"""Where batches run: threads of this machine, or tasks of a Ray cluster. Both give the same rows.

An engine takes pieces of work only as workers become free and yields outcomes as they come; an exception inside a
piece is an outcome, not the end of the sweep.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from threadpoolctl import threadpool_limits

from pro2.cluster import available_cores
from pro2.extras import imported
from pro2.lab.experiments.batches import run_batch
from pro2.lab.experiments.methods import PreparedKey, prepare_method, prepared_keys
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch
from pro2.linalg import kernels

_KEPT = 32  # fits on source, beyond those of the batch at hand
_KEPT_REFERENCES = 64  # to fits in a cluster's store; older ones leave it
_AHEAD = 64  # batches put aside while the fit that they need is being made; they count as taken


@dataclass(frozen=True)
class Outcome:
    """What became of one batch: its columns, or the error."""

    batch: Batch
    columns: dict[str, list[Any]] | None
    seconds: float
    error: str = ""
    traceback: str = ""


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
        self._prepared: dict[Any, Any] = {}

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[Outcome]:
        source, waiting = iter(batches), deque[Batch]()
        with threadpool_limits(1), ThreadPoolExecutor(self.n_workers) as pool:
            running: dict[Future[Outcome], set[Any]] = {}  # and the fits on source that each has to make first
            try:
                while True:
                    while len(running) <= self.n_workers and (batch := _next(waiting, source, running)) is not None:
                        args = (batch, self._problems[batch.data], partial(self._fits, batch), self._compiled)
                        # asked one by one: workers add to the fits meanwhile, and nobody may walk over them
                        missing = {place for place in _places(batch) if place not in self._prepared}
                        running[pool.submit(execute, *args)] = missing
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        del running[future]
                        yield future.result()
            finally:
                for future in running:
                    future.cancel()

    def _fits(self, batch: Batch) -> dict[Any, Any]:
        """The fits on source of a batch; those that nobody has made yet are made here, and by nobody else meanwhile."""
        found = {}
        for key in prepared_keys(batch):
            fit = self._prepared.get((batch.data, key))
            found[key] = prepare_method(self._problems[batch.data], key) if fit is None else fit
            self._prepared[batch.data, key] = found[key]
        # batches come method by method: the oldest is not needed again
        for old in list(self._prepared)[: -max(_KEPT, 2 * len(found))]:
            self._prepared.pop(old, None)
        return found

    def close(self) -> None:
        self._prepared.clear()


def _places(batch: Batch) -> set[Any]:
    """What a batch needs: fits on source, each with the name of its data."""
    return {(batch.data, key) for key in prepared_keys(batch)}


def _next(waiting: deque[Batch], source: Iterator[Batch], running: Mapping[Any, set[Any]]) -> Batch | None:
    """The first batch that needs no fit which is being made just now; those that do wait here."""
    making = set().union(*running.values())
    for i, batch in enumerate(waiting):
        if making.isdisjoint(_places(batch)):
            del waiting[i]
            return batch
    for batch in islice(source, _AHEAD - len(waiting)):
        if making.isdisjoint(_places(batch)):
            return batch
        waiting.append(batch)
    return None


class RayEngine:
    """Tasks of one core each on a Ray cluster.

    Every problem and every basis is one object in Ray's store: a node fetches it once and its workers read it in
    place. A task whose node dies runs again elsewhere, and objects that died with it are made again.

    Parameters
    ----------
    problems : mapping of name to Problem
    n_workers : int, optional
        Tasks in flight; by default two for every core of the cluster.
    address : str, optional
        A running cluster. Without it, an initialised Ray is used, else one is started on this machine.
    """

    def __init__(
        self, problems: Mapping[str, Problem], n_workers: int | None = None, address: str | None = None,
        compiled: bool = False,
    ) -> None:  # fmt: skip
        self._ray = imported("ray", "engine 'ray' needs Ray: pip install 'pro2[ray]'", "exceptions")
        self._compiled = compiled
        self._owned = not self._ray.is_initialized()
        if self._owned:
            self._ray.init(address=address, log_to_driver=False, include_dashboard=None if address else False)
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        self.n_workers = n_workers or cores
        self._problems = {name: self._ray.put(problem) for name, problem in problems.items()}
        options = {"num_cpus": 1, "max_retries": -1}
        self._prepare_task = self._ray.remote(**options)(_prepare)
        self._run_task = self._ray.remote(**options)(_run)
        self._prepared: dict[tuple[str, PreparedKey], Any] = {}

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[Outcome]:
        """Keep every core busy with one task waiting behind it; yield outcomes as they come."""
        running: dict[Any, Batch] = {}
        for batch in batches:
            running[self._submit(batch)] = batch
            if len(running) >= 2 * self.n_workers:
                yield self._next(running)
        while running:
            yield self._next(running)

    def _submit(self, batch: Batch) -> Any:
        keys = prepared_keys(batch)
        prepared = (self._ref(batch.data, key) for key in keys)
        return self._run_task.remote(batch, self._problems[batch.data], self._compiled, keys, *prepared)

    def _ref(self, data: str, key: PreparedKey) -> Any:
        if (data, key) not in self._prepared:
            while len(self._prepared) >= _KEPT_REFERENCES:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[data, key] = self._prepare_task.remote(self._problems[data], key, self._compiled)
        return self._prepared[data, key]

    def _next(self, running: dict[Any, Batch]) -> Outcome:
        (ref,), _ = self._ray.wait(list(running), num_returns=1)
        batch = running.pop(ref)
        try:
            outcome: Outcome = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:  # a basis that could not be fitted, or a lost cluster
            cause = getattr(error, "cause", None) or error
            return Outcome(batch, None, 0.0, f"{type(cause).__name__}: {cause}", str(error))
        return outcome

    def close(self) -> None:
        """Let go of the objects; a Ray that was started here ends."""
        self._prepared.clear()
        self._problems.clear()
        if self._owned:
            self._ray.shutdown()


def _prepare(problem: Problem, key: PreparedKey, compiled: bool) -> Any:
    with threadpool_limits(1), kernels.using(compiled and kernels.available("numba")):
        return prepare_method(problem, key)


def _run(batch: Batch, problem: Problem, compiled: bool, keys: list[PreparedKey], *prepared: Any) -> Outcome:
    with threadpool_limits(1):
        return execute(batch, problem, lambda: dict(zip(keys, prepared)), compiled and kernels.available("numba"))


Engine = LocalEngine | RayEngine


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
        return RayEngine(problems, n_workers, address, compiled)
    raise ValueError(f"engine {name!r} is not known; expected 'local' or 'ray'")
