"""Run a plan: cells with stable keys, the missing ones only, on threads or a Ray cluster, into a folder of results.

A key is a hash of everything that changes a result (content of the data, rows, method, parameters, grid, seed, source
code of the numerical packages) and of nothing else: names, file paths, the selection rule and the order of the plan are
not in it. Results of changed code are never mixed with old ones, and nobody has to remember a version number.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import platform
import time
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import pro2
from pro2.cluster import available_cores
from pro2.extras import imported
from pro2.lab.experiments import methods
from pro2.lab.experiments.methods import FitKey, fits_of
from pro2.lab.experiments.plan import Cell, DataSpec, MethodSpec, Plan, Setting, Skip
from pro2.lab.experiments.problems import Problem, load_problems
from pro2.lab.experiments.store import FAILURES, STORE, SUMMARY, ResultStore, write_json, write_view

MOST_RUNS = 2_000_000  # larger plans are mistakes more often than not
# what computes: the numerical packages, draws of few labels and generated data
HASHED = ("linalg/*.py", "estimators/*.py", "lab/baselines/*.py", "lab/theory.py", "lab/experiments/*.py",
          "tables/draws.py", "lab/datasets/shog.py")  # fmt: skip
# modules in them that cannot change a number: how models, plans and results are kept in files
_NOT_HASHED = ("estimators/files.py", "lab/experiments/store.py", "lab/experiments/plan.py")
_CHUNK = 32  # cells claimed together: few enough that a second process finds some left
Share = Callable[[Any], Any]
Run = Callable[[Iterable[tuple[Any, ...]]], Iterator["Outcome"]]


@dataclass
class SweepState:
    """How far a sweep is, or what it did; `at` names what was finished last. Counts are runs, but for `n_cells`."""

    n_runs: int
    n_before: int
    n_cells: int
    skips: tuple[Skip, ...]
    n_done: int = 0
    n_failed: int = 0
    n_damaged: int = 0
    seconds: float = 0.0
    at: str = ""

    @property
    def n_missing(self) -> int:
        return self.n_runs - self.n_before - self.n_done - self.n_failed


def run_sweep(
    plan: Plan, out: str | Path, *, data: str | Path = ".", engine: str = "local", address: str | None = None,
    n_workers: int | None = None, retry: bool = False, device: str | None = None,
    progress: Callable[[SweepState], None] = lambda state: None,
) -> SweepState:  # fmt: skip
    """Do every run of a plan that `out` does not hold yet, then write the finished view.

    Parameters
    ----------
    plan : Plan
    out : path
        Result folder; the same command again continues where the last one stopped.
    data : path
        Folder that the table paths of the plan are relative to.
    engine : {"local", "ray"}
        Threads of this machine, or a Ray cluster (`address`).
    n_workers : int, optional
        Cells at a time; by default one per core.
    retry : bool
        Run failed cells again.
    device : str, optional
        Where features that need gradient steps are trained, in PyTorch: "cuda", "cuda:N" or "cpu"; by default in NumPy.
    progress : callable, optional
        Called with the state after every cell.
    """
    start = time.perf_counter()
    cells, problems, skips = _expand(plan, data, device)
    with ResultStore(out) as store, _engine(engine, address, n_workers) as (share, run):
        write_json(store.folder / "plan.json", plan.to_dict())
        damaged = store.damaged()
        store.forget([*damaged, *(store.failures() if retry else ())])
        todo, state = _missing(cells, skips, store.finished())
        state.n_damaged = len(damaged)
        while todo:
            store.release_dead()
            for cell, outcome in _outcomes(todo, problems, store, share, run):
                if outcome.error:
                    store.put_failure(cell.key, outcome.error, outcome.traceback)
                    state.n_failed += len(cell.settings)
                else:
                    store.put(cell.key, outcome.value, outcome.seconds)
                    state.n_done += len(cell.settings)
                state.seconds, state.at = time.perf_counter() - start, f"{cell.data}, {cell.method.name}"
                progress(state)
            # what is left is claimed by another process: wait for it, or for its end
            ended = {*store.finished(), *store.failures()}
            todo = [cell for cell in todo if cell.key not in ended]
            time.sleep(0.2 if todo else 0.0)
        state.seconds = time.perf_counter() - start
        write_view(store, cells)
        _write_facts(plan, cells, problems, store, state)
        return state


def estimate_sweep(plan: Plan, out: str | Path, data: str | Path = ".") -> SweepState:
    """What `run_sweep` would do, without doing it; nothing is written."""
    cells, _, skips = _expand(plan, data)
    with ResultStore(out) if (Path(out) / STORE).is_file() else contextlib.nullcontext() as store:
        return _missing(cells, skips, store.finished() if store else ())[1]


def _missing(cells: list[Cell], skips: tuple[Skip, ...], done: Container[str]) -> tuple[list[Cell], SweepState]:
    """The cells that have no results yet, each once: methods that differ in their selection rule share cells."""
    unique = {cell.key: cell for cell in cells}
    todo = [cell for key, cell in unique.items() if key not in done]
    n_runs, n_missing = (sum(len(cell.settings) for cell in some) for some in (unique.values(), todo))
    return todo, SweepState(n_runs, n_runs - n_missing, len(todo), skips)


# ---- from a plan to cells


def _expand(
    plan: Plan, data: str | Path, device: str | None = None
) -> tuple[list[Cell], dict[str, Problem], tuple[Skip, ...]]:
    """All cells of a checked plan, their data, and what had to be left out."""
    methods.check_methods(plan.methods)
    problems, absent = load_problems(plan.data, data)
    if device is not None:
        torch = imported("torch", f"device {device!r} needs PyTorch: pip install 'pro2[torch]'")
        from pro2.embed.pytorch import choose_device

        device = choose_device(device)
        # PyTorch's linear algebra must not be loaded by two threads at once
        torch.linalg.qr(torch.ones((1, 1), device=device))
        problems = {name: replace(problem, device=device) for name, problem in problems.items()}
    cells, skips = expand(plan, problems)
    return cells, problems, (*absent, *skips)


def expand(plan: Plan, problems: Mapping[str, Problem]) -> tuple[list[Cell], list[Skip]]:
    """All cells of a plan in its order, and what this data cannot give."""
    cells: list[Cell] = []
    skips: list[Skip] = []
    for measure, spec, method in itertools.product(plan.measures, plan.data, plan.methods):
        if spec.name not in problems:
            continue
        problem = problems[spec.name]
        settings, left_out = _settings(plan, method, problem)
        skips += left_out if measure == plan.measures[0] else []
        if measure != "accuracy":  # a property of the basis alone has no penalty
            sizes = sorted({s.n_features for s in settings if s.n_features is not None})
            settings = tuple(Setting(d, None) for d in sizes)
        for cell in _draws(plan, measure, spec, problem, method) if settings else ():
            if isinstance(cell, Skip):
                skips += [cell] if method == plan.methods[0] else []
            else:
                cells.append(replace(cell, settings=settings))
    n_runs = sum(len(cell.settings) for cell in cells)
    if n_runs > MOST_RUNS:
        raise ValueError(f"plan {plan.name} asks for {n_runs} runs, at most {MOST_RUNS} are done: split it")
    return [replace(cell, key=_key(cell, problems[cell.data])) for cell in cells], skips


def _draws(plan: Plan, measure: str, spec: DataSpec, problem: Problem, method: MethodSpec) -> Iterator[Cell | Skip]:
    """One cell for each draw, still without settings, or why a target is too small for it."""
    n_val, min_test = plan.n_validation(spec), spec.min_test or plan.min_test
    for target in problem.targets:
        if measure in ("nullspace", "picture"):  # properties of the basis: they depend on a random start, not on labels
            seeds = plan.seeds if method.method == "random" or method.starts > 1 else plan.seeds[:1]
            yield from (Cell(measure, problem.name, target, method, 0, seed) for seed in seeds)
            continue
        label, n = problem.smallest_label(target)
        for shots in plan.shots:
            place, need = (measure, problem.name, target, method, shots), shots + n_val + min_test
            if measure != "accuracy":
                yield from (Cell(*place, seed) for seed in plan.seeds)
            elif n < need and plan.short == "skip":
                parts = f"{shots} shots + {n_val} validation + {min_test} test rows"
                reason = f"label {label} has {n} rows; {parts} = {need} are needed"
                yield Skip(problem.name, target, shots, None, reason)
            else:
                keep = min_test if plan.short == "take" else None
                yield from (Cell(*place, seed, n_val, keep, plan.support) for seed in plan.seeds)


def _settings(plan: Plan, spec: MethodSpec, problem: Problem) -> tuple[tuple[Setting, ...], list[Skip]]:
    """The grid of a method on this data, and the numbers of features that are too many for it."""
    grid, lists = methods.estimator_of(spec.method, spec.untuned)[1], dict(sorted(spec.grid.items()))
    points = [tuple(zip(lists, values)) for values in itertools.product(*lists.values())]
    if not grid:
        return tuple(Setting(None, None, point) for point in points), []
    wanted = (spec.n_features or plan.n_features) if "n_features" in grid else ("all",)
    sizes = sorted({problem.width if d == "all" else int(d) for d in wanted})
    fitting = [d for d in sizes if d <= problem.width]
    skips = []
    if len(fitting) < len(sizes):
        reason = f"n_features {sizes[len(fitting) :]} are above the {problem.width} there can be"
        skips.append(Skip(problem.name, "*", None, spec.name, reason))
    # a learner other than the linear probe has no penalty
    linear = methods.parameters(spec).get("probe") in ("newton", "adamw")
    penalties: tuple[float | None, ...] = (spec.l2 or plan.l2) if linear else (None,)
    return tuple(itertools.starmap(Setting, itertools.product(fitting, penalties, points))), skips


def _key(cell: Cell, problem: Problem) -> str:
    what = {name: getattr(cell, name) for name in ("measure", "shots", "seed", "n_val", "min_test", "support")}
    method = {name: getattr(cell.method, name) for name in ("method", "untuned", "starts")}
    rows = {"data": problem.digest, "target": problem.target_digest(cell.target)}
    settings = [[s.n_features, s.l2, s.params] for s in cell.settings]
    return _digest({**what, **method, **rows, "params": methods.parameters(cell.method), "settings": settings})


def _fit_id(problem: Problem, key: FitKey) -> str:
    return _digest({"fit": key, "data": problem.digest, "device": problem.device})


def _digest(value: Any) -> str:
    text = json.dumps([value, code_hash()], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def code_hash() -> str:
    """Sixteen hexadecimal digits; the same for the same source code of the numerical packages."""
    state = hashlib.sha256()
    for name, path in sorted(hashed_files().items()):
        state.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def hashed_files() -> dict[str, Path]:
    """The files that compute, by their place in the package: all of the numerical packages, whoever imports them."""
    root = Path(pro2.__file__).parent
    names = {file.relative_to(root).as_posix(): file for pattern in HASHED for file in root.glob(pattern)}
    return {name: file for name, file in names.items() if name not in _NOT_HASHED}


# ---- from cells to outcomes


class Outcome(NamedTuple):
    """What became of one piece of work: its value and processor seconds, or the error."""

    name: Any  # a cell, or the key of a fit
    value: Any
    seconds: float = 0.0
    error: str = ""
    traceback: str = ""


def _attempt(name: Any, work: Callable[..., Any], *args: Any) -> Outcome:
    """Do one piece of work; an exception in it is an outcome, not the end of the sweep."""
    start = time.thread_time()
    try:
        return Outcome(name, work(*args), time.thread_time() - start)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return Outcome(name, None, time.thread_time() - start, message, traceback.format_exc())


def _outcomes(
    cells: list[Cell], problems: Mapping[str, Problem], store: ResultStore, share: Share, run: Run
) -> Iterator[tuple[Cell, Outcome]]:
    """Claim cells, make the fits on source that they need, each once, and measure them."""
    for (data, *_), group in itertools.groupby(cells, key=lambda c: (c.data, c.measure, c.method.name)):
        problem, fits = share(problems[data]), dict[FitKey, Outcome]()
        while chunk := list(itertools.islice(group, _CHUNK)):
            taken = set(store.claim(cell.key for cell in chunk))
            claimed = [cell for cell in chunk if cell.key in taken]
            needs = {cell.key: list(dict.fromkeys(key for key, *_ in fits_of(cell))) for cell in claimed}
            new = dict.fromkeys(key for keys in needs.values() for key in keys if key not in fits)
            for fit in run((key, methods.fit_source, problem, key) for key in new):
                fits[fit.name] = fit if fit.error else fit._replace(value=share(fit.value))
                if not fit.error:
                    store.put(_fit_id(problems[data], fit.name), {}, fit.seconds)
            failed = {cell.key: fits[key] for cell in claimed for key in needs[cell.key] if fits[key].error}
            yield from ((cell, failed[cell.key]) for cell in claimed if cell.key in failed)
            tasks = ((cell, _measure, problem, cell, needs[cell.key], *(fits[key].value for key in needs[cell.key]))
                     for cell in claimed if cell.key not in failed)  # fmt: skip
            yield from ((outcome.name, outcome) for outcome in run(tasks))


def _measure(problem: Problem, cell: Cell, keys: list[FitKey], *fits: Any) -> dict[str, list[Any]]:
    return methods.measure_cell(problem, cell, dict(zip(keys, fits)))


@contextlib.contextmanager
def _engine(name: str, address: str | None, n_workers: int | None) -> Iterator[tuple[Share, Run]]:
    """Functions that make a value available to all workers, and that run tasks and yield outcomes as they come."""
    if name not in ("local", "ray"):
        raise ValueError(f"engine {name!r} is not known; expected 'local' or 'ray'")
    if name == "local" and address is not None:
        raise ValueError(f"address {address!r} is only for engine 'ray'; choose that engine or leave the address out")
    if name == "local":
        with threadpool_limits(1):  # a thread each, so that results do not depend on how many cores there are
            threads = Parallel(n_workers or available_cores(), backend="threading", return_as="generator_unordered")
            yield lambda value: value, lambda tasks: threads(delayed(_attempt)(*task) for task in tasks)
        return
    ray = imported("ray", "engine 'ray' needs Ray: pip install 'pro2[ray]'", "exceptions")
    owned = not ray.is_initialized()
    if owned:
        ray.init(address=address, log_to_driver=False, include_dashboard=None if address else False)
    try:
        yield ray.put, _on_ray(ray, n_workers)
    finally:
        if owned:
            ray.shutdown()


def _on_ray(ray: Any, n_workers: int | None) -> Run:
    """Tasks of one core each on a Ray cluster.

    Problems and fits are objects in Ray's store: a node fetches each once and its workers read it in place. A task
    whose node dies runs again elsewhere. (joblib's backend for Ray does neither, nor does it yield results early.)
    """
    at_once = 2 * (n_workers or int(ray.cluster_resources().get("CPU", 1)))  # one task waits for each core
    remote = ray.remote(num_cpus=1, max_retries=-1)(_ray_task)

    def run(tasks: Iterable[tuple[Any, ...]]) -> Iterator[Outcome]:
        running: dict[Any, Any] = {}
        tasks = iter(tasks)
        while True:
            running.update((remote.remote(*task), task[0]) for task in itertools.islice(tasks, at_once - len(running)))
            if not running:
                return
            (ref,), _ = ray.wait(list(running), num_returns=1)
            name = running.pop(ref)
            try:
                yield ray.get(ref)._replace(name=name)
            except ray.exceptions.RayError as error:
                yield Outcome(name, None, 0.0, f"{type(error).__name__}: {error}", str(error))

    return run


def _ray_task(*task: Any) -> Outcome:
    with threadpool_limits(1):
        return _attempt(*task)


# ---- how the results were made


def _write_facts(
    plan: Plan, cells: list[Cell], problems: dict[str, Problem], store: ResultStore, state: SweepState
) -> None:
    """``failures.json``, and ``summary.json``: how the results were made, and what each method took."""
    seconds, failures, by_method = store.finished(), store.failures(), {}
    failed = {cell.key: cell for cell in cells if cell.key in failures}
    names = ("measure", "data", "target", "shots", "seed")
    write_json(store.folder / FAILURES, [
        {"method": cell.method.name, **{name: getattr(cell, name) for name in names},
         "n_runs": len(cell.settings), **dict(zip(("error", "traceback"), failures[key]))}
        for key, cell in failed.items()
    ])  # fmt: skip
    for spec in plan.methods:
        done = [cell for cell in cells if cell.method.name == spec.name and cell.key in seconds]
        fits = {_fit_id(problems[cell.data], key) for cell in done for key, *_ in fits_of(cell)}
        in_fits = sum(seconds.get(fit, 0.0) for fit in fits)
        total = in_fits + sum(seconds[cell.key] for cell in done)
        n_runs = sum(len(cell.settings) for cell in done)
        by_method[spec.name] = {"runs": n_runs, "seconds": round(total, 3), "fit_seconds": round(in_fits, 3)}
    versions = {"pro2": pro2.__version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    write_json(store.folder / SUMMARY, {
        "plan": plan.name, "code_hash": code_hash(), "selection": plan.selection,
        "device": next(iter(problems.values())).device, "versions": {**versions, "platform": platform.platform()},
        "data": {p.name: {"rows": len(p.X), "width": p.width, "source": len(p.source), "classes": len(p.classes),
                          "targets": {t: len(r) for t, r in p.targets.items()}, "digest": p.digest}
                 for p in problems.values()},
        "runs": state.n_runs, "finished_before": state.n_before, "done": state.n_done,
        "failed": sum(len(cell.settings) for cell in failed.values()), "damaged_cells": state.n_damaged,
        "seconds": round(state.seconds, 3), "processor_seconds": round(sum(seconds.values()), 3), "methods": by_method,
        "skips": [skip.__dict__ for skip in state.skips],
    })  # fmt: skip
