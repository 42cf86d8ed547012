"""Batches as Ray tasks: data placed once per node, results streamed back, dead nodes survived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pro2.extras import imported
from pro2.lab.experiments.engines import Outcome, execute
from pro2.lab.experiments.methods import PreparedKey, prepare_method, prepared_keys
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch
from pro2.linalg import kernels

# Prepared bases that the driver keeps a reference to; older ones leave the object store.
_KEPT = 64


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
            while len(self._prepared) >= _KEPT:
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
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), kernels.using(compiled and kernels.available("numba")):
        return prepare_method(problem, key)


def _run(batch: Batch, problem: Problem, compiled: bool, keys: list[PreparedKey], *prepared: Any) -> Outcome:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return execute(batch, problem, lambda: dict(zip(keys, prepared)), compiled and kernels.available("numba"))
