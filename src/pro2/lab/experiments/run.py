"""Run a plan: the missing runs only, in batches, on an engine, into a folder that can be killed at any time."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pro2.cluster import available_cores
from pro2.extras import imported
from pro2.lab.experiments.engines import Engine, Outcome, make_engine
from pro2.lab.experiments.expand import expand, recipe
from pro2.lab.experiments.memory import Handout, batch_bytes, batch_limit, data_bytes, guess_seconds
from pro2.lab.experiments.methods import check_methods, find_method
from pro2.lab.experiments.plan import Plan
from pro2.lab.experiments.problems import Problem, load_problems
from pro2.lab.experiments.progress import Estimate, Progress, SweepSummary
from pro2.lab.experiments.results import Failure, ResultStore
from pro2.lab.experiments.runs import Batch, Skip, missing
from pro2.lab.experiments.view import FAILURES, SUMMARY, require_pyarrow, write_json, write_view
from pro2.linalg import kernels

DEFAULT_MEMORY = 4 * 2**30


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
    device: str | None = None,
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
    device : str, optional
        Where features that need gradient steps are trained, in PyTorch: "cuda", "cuda:N" or "cpu"; by default in NumPy.
    progress : callable, optional
        Called with a `Progress` after every batch.
    """
    require_pyarrow()
    start = time.perf_counter()
    batches, problems, skips = _expanded(plan, data, device)
    with ResultStore(out) as store:
        write_json(store.folder / "plan.json", plan.to_dict())
        torn, keys = len(store.torn()), _keys(batches)
        state = Progress(len(keys), len(keys & store.finished))

        def report(outcome: Outcome) -> None:
            state.note(outcome, time.perf_counter() - start)
            if progress is not None:
                progress(state)

        runner = make_engine(engine, problems, n_workers, address, compiled=_is_long(batches, problems))
        try:
            limit = batch_limit(batches, problems, runner.n_workers, memory)
            _run_all(store, batches, problems, runner, limit, retry, report)
        finally:
            runner.close()
        _write(store, batches)
        summary = SweepSummary(store.folder, state.n_runs, state.n_before, state.n_done, state.n_failed, skips,
                               time.perf_counter() - start, torn)  # fmt: skip
        write_json(store.folder / SUMMARY, _facts(plan, problems, store, summary))
        return summary


def estimate_sweep(
    plan: Plan, out: str | Path | None, data: str | Path = ".", n_workers: int | None = None
) -> Estimate:
    """What `run_sweep` would do, without doing it; nothing is written."""
    batches, problems, skips = _expanded(plan, data)
    done: set[str] = set()
    if out is not None and (Path(out) / "log").is_dir():
        with ResultStore(out) as store:
            done = set(store.finished)
    todo = [part for batch in batches for part in missing(batch, done)]
    workers = n_workers or available_cores()
    peak = data_bytes(problems) + workers * max((batch_bytes(b, problems[b.data]) for b in todo), default=0)
    seconds = guess_seconds(todo, problems) / workers
    return Estimate(len(_keys(batches)), sum(b.n_runs for b in todo), len(todo), skips, seconds, peak)


def _expanded(
    plan: Plan, data: str | Path, device: str | None = None
) -> tuple[list[Batch], dict[str, Problem], tuple[Skip, ...]]:
    """All batches of a checked plan, their data, and what had to be left out."""
    check_methods(plan.methods)
    problems, absent = load_problems(plan.data, data)
    device = _checked_device(device)
    problems = {name: replace(each, device=device) for name, each in problems.items()}
    batches, skips = expand(plan, problems)
    return batches, problems, (*absent, *skips)


def _keys(batches: list[Batch]) -> set[str]:
    return {key for batch in batches for key in batch.flat_keys}


def _checked_device(device: str | None) -> str | None:
    if device is None:
        return None
    torch = imported("torch", f"device {device!r} needs PyTorch: pip install 'pro2[torch]'")
    from pro2.embed.pytorch import choose_device

    chosen = choose_device(device)
    torch.linalg.qr(torch.ones((1, 1), device=chosen))  # PyTorch's linear algebra loads once, and not from two threads
    return chosen


def _is_long(batches: list[Batch], problems: dict[str, Problem]) -> bool:
    """Whether the plan as a whole pays for a compiled solver: a part of it that is left over is solved alike."""
    sizes = ((b.shots * problems[b.data].n_classes) ** 2 for b in batches)
    return sum(b.n_runs * size for b, size in zip(batches, sizes)) >= kernels.LONG


def _run_all(
    store: ResultStore,
    batches: list[Batch],
    problems: dict[str, Problem],
    engine: Engine,
    limit: int,
    retry: bool,
    report: Callable[[Outcome], None],
) -> None:
    """Go over the batches until each is done; those that another process has are looked at again."""
    given_up = set() if retry else set(store.failures)
    waiting = _trained_first(batches)
    while waiting:
        handout = Handout(store, waiting, problems, limit, given_up)
        for outcome in engine.outcomes(handout.pieces()):
            _keep(store, outcome)
            if outcome.columns is None:
                given_up.update(outcome.batch.flat_keys)
            report(outcome)
            handout.done(outcome.batch)
        waiting = handout.taken
        if waiting:
            time.sleep(0.2)
        store.refresh()


def _trained_first(batches: list[Batch]) -> list[Batch]:
    """Each batch once; of each data set first what is trained by gradient steps: batches after it fill the time."""
    first = {(b.measure, b.data): i for i, b in reversed(list(enumerate(batches)))}
    unique = {batch.id: batch for batch in batches}.values()  # two methods that differ in their rule share runs
    trained = {b.method.name: find_method(b.method).is_trained(b.method.params) for b in batches}
    return sorted(unique, key=lambda b: (first[b.measure, b.data], not trained[b.method.name]))


def _keep(store: ResultStore, outcome: Outcome) -> None:
    batch = outcome.batch
    if outcome.columns is not None:
        store.append(batch.id, outcome.columns, round(outcome.seconds, 4))
    else:
        store.append_failure(Failure(tuple(batch.flat_keys), batch.cell, outcome.error, outcome.traceback))


def _write(store: ResultStore, batches: list[Batch]) -> None:
    """What is finished and what failed, in files that anyone can open."""
    store.refresh()
    write_view(store, batches)
    failures = {f.keys: f for f in store.failures.values()}.values()
    write_json(store.folder / FAILURES, [f.__dict__ for f in failures])


def _facts(plan: Plan, problems: dict[str, Problem], store: ResultStore, summary: SweepSummary) -> dict[str, Any]:
    """What ``summary.json`` holds: how the results were made."""
    import numpy
    import scipy
    import sklearn

    import pro2

    return {
        "plan": plan.name,
        "recipe": recipe(),
        "selection": plan.selection,
        "device": next(iter(problems.values())).device,
        "versions": {"pro2": pro2.__version__, "python": platform.python_version(), "numpy": numpy.__version__,
                     "scipy": scipy.__version__, "scikit-learn": sklearn.__version__, "platform": platform.platform()},
        "data": {p.name: {"rows": len(p.X), "width": p.width, "source": len(p.source), "classes": len(p.classes),
                          "targets": {t: len(r) for t, r in p.targets.items()}, "digest": p.digest}
                 for p in problems.values()},
        "runs": summary.n_runs, "finished_before": summary.n_before, "done": summary.n_done,
        "failed": len(store.failures), "seconds": round(summary.seconds, 3),
        "batch_seconds": round(sum(store.seconds.values()), 3), "torn_records": summary.n_torn,
        "skips": [s.__dict__ for s in summary.skips],
    }  # fmt: skip
