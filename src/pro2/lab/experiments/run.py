"""Run a plan: the missing runs only, in batches, on an engine, into a folder that can be killed at any time."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pro2.lab.experiments.engines import Engine, Outcome, available_cores, make_engine
from pro2.lab.experiments.expand import RECIPE, Batch, Skip, expand, missing
from pro2.lab.experiments.memory import batch_bytes, data_bytes, needed_bytes, split
from pro2.lab.experiments.methods import check_methods, find_method
from pro2.lab.experiments.plan import Plan
from pro2.lab.experiments.problems import Problem, load_problems
from pro2.lab.experiments.results import Failure, ResultStore
from pro2.lab.experiments.view import FAILURES, SUMMARY, require_pyarrow, write_json, write_view
from pro2.linalg import kernels

DEFAULT_MEMORY = 4 * 2**30


@dataclass
class Progress:
    """Where a sweep stands; handed to the `progress` callback after every batch."""

    n_runs: int
    n_before: int
    n_done: int = 0
    n_failed: int = 0
    seconds: float = 0.0
    best: dict[str, float] = field(default_factory=dict)

    @property
    def n_missing(self) -> int:
        return self.n_runs - self.n_before - self.n_done - self.n_failed

    @property
    def rate(self) -> float:
        """Runs a second since this start."""
        return self.n_done / self.seconds if self.seconds > 0 else 0.0

    def note(self, outcome: Outcome, seconds: float) -> None:
        """Count one batch; `best` is the best mean accuracy over seeds that any setting of a method reached."""
        self.seconds = seconds
        if outcome.columns is None:
            self.n_failed += outcome.batch.n_runs
            return
        self.n_done += outcome.batch.n_runs
        accuracy = [a for a in outcome.columns.get("accuracy", []) if a is not None]
        if accuracy:
            G = len(outcome.batch.settings)
            means = [sum(accuracy[j::G]) / len(accuracy[j::G]) for j in range(G)]
            name = outcome.batch.method.name
            self.best[name] = max(self.best.get(name, 0.0), max(means))


@dataclass(frozen=True)
class SweepSummary:
    """What a sweep did."""

    folder: Path
    n_runs: int
    n_before: int
    n_done: int
    n_failed: int
    skips: tuple[Skip, ...]
    seconds: float
    n_torn: int


@dataclass(frozen=True)
class Estimate:
    """What a sweep would do: runs in all and missing, and what they take."""

    n_runs: int
    n_missing: int
    n_batches: int
    skips: tuple[Skip, ...]
    seconds: float
    memory: int


def run_sweep(
    plan: Plan,
    out: str | Path,
    *,
    data: str | Path = ".",
    engine: str = "local",
    address: str | None = None,
    n_workers: int | None = None,
    memory: int = DEFAULT_MEMORY,
    retry: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> SweepSummary:
    """Do every run of a plan that `out` does not hold yet, then write the finished view.

    Parameters
    ----------
    plan : Plan
    out : path
        Result folder; the same command again goes on where the last one stopped.
    data : path
        Folder that the table paths of the plan are relative to.
    engine : {"local", "ray"}
        Threads of this machine, or a Ray cluster (`address`).
    n_workers : int, optional
        Batches at a time; by default one a core.
    memory : int
        Bytes that data and running batches may take together; batches are split to fit.
    retry : bool
        Run failed runs again.
    progress : callable, optional
        Called with a `Progress` after every batch.
    """
    require_pyarrow()
    check_methods(plan.methods)
    start = time.perf_counter()
    problems = load_problems(plan.data, data)
    batches, skips = expand(plan, problems)
    with ResultStore(out) as store:
        write_json(store.folder / "plan.json", plan.to_dict())
        torn = len(store.torn())
        runner = make_engine(engine, problems, n_workers, address, compiled=_is_long(batches, problems))
        try:
            limit = _limit(batches, problems, runner.n_workers, memory)
            state = _progress(batches, store)
            _run_all(store, batches, problems, runner, limit, retry, _Reporter(state, start, progress))
        finally:
            runner.close()
        return _finish(store, plan, batches, problems, skips, state, start, torn)


def estimate_sweep(
    plan: Plan, out: str | Path | None, data: str | Path = ".", n_workers: int | None = None
) -> Estimate:
    """What `run_sweep` would do, without doing it; nothing is written."""
    check_methods(plan.methods)
    problems = load_problems(plan.data, data)
    batches, skips = expand(plan, problems)
    done: set[str] = set()
    if out is not None and (Path(out) / "log").is_dir():
        with ResultStore(out) as store:
            done = set(store.finished)
    todo = [part for batch in batches for part in missing(batch, done)]
    workers = n_workers or available_cores()
    peak = data_bytes(problems) + workers * max((batch_bytes(b, problems[b.data]) for b in todo), default=0)
    seconds = _guess_seconds(todo, problems) / workers
    keys = {key for batch in batches for key in batch.flat_keys}
    return Estimate(len(keys), sum(b.n_runs for b in todo), len(todo), tuple(skips), seconds, peak)


def _is_long(batches: list[Batch], problems: dict[str, Problem]) -> bool:
    """Whether the plan as a whole pays for a compiled solver: a part of it that is left over is solved alike."""
    sizes = ((b.shots * problems[b.data].n_classes) ** 2 for b in batches)
    return sum(b.n_runs * size for b, size in zip(batches, sizes)) >= paths.LONG


def _limit(batches: list[Batch], problems: dict[str, Problem], n_workers: int, memory: int) -> int:
    """Bytes that one batch may take."""
    needed = needed_bytes(batches, problems, n_workers)
    if needed > memory:
        raise ValueError(
            f"memory of {memory / 2**20:.0f} MiB is too little: data and one seed on each of {n_workers} workers need "
            f"{needed / 2**20:.0f} MiB; give more with --memory or fewer workers with --workers"
        )
    return (memory - data_bytes(problems)) // n_workers


def _progress(batches: list[Batch], store: ResultStore) -> Progress:
    keys = {key for batch in batches for key in batch.flat_keys}
    return Progress(len(keys), len(keys & store.finished))


@dataclass
class _Reporter:
    state: Progress
    start: float
    callback: Callable[[Progress], None] | None

    def __call__(self, outcome: Outcome) -> None:
        self.state.note(outcome, time.perf_counter() - self.start)
        if self.callback is not None:
            self.callback(self.state)


def _run_all(
    store: ResultStore,
    batches: list[Batch],
    problems: dict[str, Problem],
    engine: Engine,
    limit: int,
    retry: bool,
    report: _Reporter,
) -> None:
    """Go over the batches until each is done; those that another process has are looked at again."""
    given_up = set() if retry else set(store.failures)
    waiting = _joint_first(batches)
    while waiting:
        claims = _Claims(store, waiting, problems, limit, given_up)
        for outcome in engine.outcomes(claims.pieces()):
            _keep(store, outcome)
            if outcome.columns is None:
                given_up.update(outcome.batch.flat_keys)
            report(outcome)
            claims.done(outcome.batch)
        waiting = claims.taken
        if waiting:
            time.sleep(0.2)
        store.refresh()


def _joint_first(batches: list[Batch]) -> list[Batch]:
    """Of each data set first what trains its basis as a whole: it takes longest, and batches after it fill the time."""
    first = {(b.measure, b.data): i for i, b in reversed(list(enumerate(batches)))}
    return sorted(batches, key=lambda b: (first[b.measure, b.data], find_method(b.method).joint is None))


class _Claims:
    """Hands out the missing parts of batches, one claim a batch, so that two processes share the work."""

    def __init__(
        self, store: ResultStore, batches: list[Batch], problems: dict[str, Problem], limit: int, given_up: set[str]
    ) -> None:
        self.store, self.batches, self.problems, self.limit, self.given_up = store, batches, problems, limit, given_up
        self.taken: list[Batch] = []
        self._open: dict[str, set[str]] = {}

    def pieces(self) -> Iterator[Batch]:
        for batch in self.batches:
            if not self._missing(batch):
                continue
            if not self.store.claim(batch.id):
                self.taken.append(batch)
                continue
            self.store.refresh()  # another process may have finished it just before the claim
            parts = [p for part in self._missing(batch) for p in split(part, self.problems[part.data], self.limit)]
            self._open[batch.id] = {p.id for p in parts}
            if not parts:
                self.store.release(batch.id)
            yield from parts

    def _missing(self, batch: Batch) -> list[Batch]:
        done = self.store.finished
        return list(missing(batch, done | self.given_up if self.given_up else done))

    def done(self, part: Batch) -> None:
        """Release the claim when its last part is on disk."""
        for claimed, parts in list(self._open.items()):
            parts.discard(part.id)
            if not parts:
                self.store.release(claimed)
                del self._open[claimed]


def _keep(store: ResultStore, outcome: Outcome) -> None:
    batch = outcome.batch
    if outcome.columns is not None:
        store.append(batch.id, outcome.columns, round(outcome.seconds, 4))
    else:
        store.append_failure(Failure(tuple(batch.flat_keys), batch.cell, outcome.error, outcome.traceback))


def _finish(
    store: ResultStore,
    plan: Plan,
    batches: list[Batch],
    problems: dict[str, Problem],
    skips: list[Skip],
    state: Progress,
    start: float,
    torn: int,
) -> SweepSummary:
    store.refresh()
    write_view(store, batches)
    failures = {f.keys: f for key, f in store.failures.items()}.values()
    write_json(store.folder / FAILURES, [f.__dict__ for f in failures])
    seconds = time.perf_counter() - start
    write_json(store.folder / SUMMARY, _summary(plan, problems, store, skips, state, seconds, torn))
    done, failed = state.n_done, state.n_failed
    return SweepSummary(store.folder, state.n_runs, state.n_before, done, failed, tuple(skips), seconds, torn)


def _summary(
    plan: Plan,
    problems: dict[str, Problem],
    store: ResultStore,
    skips: list[Skip],
    state: Progress,
    seconds: float,
    torn: int,
) -> dict[str, Any]:
    import numpy
    import scipy
    import sklearn

    import pro2

    return {
        "plan": plan.name,
        "recipe": RECIPE,
        "selection": plan.selection,
        "versions": {"pro2": pro2.__version__, "python": platform.python_version(), "numpy": numpy.__version__,
                     "scipy": scipy.__version__, "scikit-learn": sklearn.__version__, "platform": platform.platform()},
        "data": {p.name: {"rows": len(p.X), "width": p.width, "source": len(p.source), "classes": len(p.classes),
                          "targets": {t: len(r) for t, r in p.targets.items()}, "digest": p.digest}
                 for p in problems.values()},
        "runs": state.n_runs, "finished_before": state.n_before, "done": state.n_done, "failed": len(store.failures),
        "seconds": round(seconds, 3), "batch_seconds": round(sum(store.seconds.values()), 3), "torn_records": torn,
        "skips": [s.__dict__ for s in skips],
    }  # fmt: skip


def _guess_seconds(batches: list[Batch], problems: dict[str, Problem]) -> float:
    """Arithmetic of the batches over what a core usually does; good to a factor of a few."""
    total = 0.0
    for batch in batches:
        problem = problems[batch.data]
        M, n = batch.shots * problem.n_classes, len(problem.targets[batch.target])
        K = 1 if problem.n_classes == 2 else problem.n_classes
        newton = 40.0 * M**3 * max(1, K / 4)
        evaluation = 2.0 * n * problem.width * K
        total += batch.n_runs * (newton + evaluation) / 2e10 + 2e-5 * batch.n_runs + 5e-3
    bases = {(b.data, b.method.name) for b in batches}
    return total + sum(
        8.0 * problems[d].width ** 3 / 1e10 + len(problems[d].source) * problems[d].width ** 2 / 1e10 for d, _ in bases
    )
