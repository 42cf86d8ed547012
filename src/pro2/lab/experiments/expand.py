"""A plan becomes batches of frozen runs with stable keys.

A key is a hash of everything that changes a result (content of the data, rows, method, parameters, seed, the code that
runs) and of nothing else: names, file paths, the selection rule and the order of the plan are not in it. The code is in
it as its recipe, a hash of the source of every module in the rooms that compute: a changed solver never meets the
results of the old one, and nobody has to remember to say so.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pro2
from pro2.lab.experiments.methods import all_parameters, find_method
from pro2.lab.experiments.plan import MethodSpec, Plan
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch, Setting, Skip

MOST_RUNS = 2_000_000  # their keys alone take a few hundred megabytes
ROOMS = ("linalg", "estimators", "lab/baselines", "lab/theory", "lab/experiments")
ALSO = ("tables/shifts.py", "lab/datasets/shog.py")  # draws and made data
# Modules that cannot change a number: how models and results are kept in files.
APART = ("pro2.estimators.files", "pro2.estimators.state", "pro2.estimators.tensors", "pro2.lab.experiments.results",
         "pro2.lab.experiments.view", "pro2.lab.experiments.presets.__init__")  # fmt: skip


def expand(plan: Plan, problems: Mapping[str, Problem]) -> tuple[list[Batch], list[Skip]]:
    """All batches of a plan, whole (nothing is split or finished yet), and what had to be left out."""
    cells: list[tuple[Batch, tuple[Setting, ...]]] = []
    skips: list[Skip] = []
    for measure, spec, method in itertools.product(plan.measures, plan.data, plan.methods):
        problem = problems.get(spec.name)
        if problem is None:
            continue
        settings, skipped = _settings(plan, method, problem)
        settings = settings if measure == "accuracy" else _curve(settings)
        if measure == plan.measures[0]:
            skips += skipped
        for cell in _cells(plan, measure, problem, method, plan.n_validation(spec)):
            if isinstance(cell, Skip):
                skips += [cell] if method == plan.methods[0] else []
            elif settings:
                cells.append((cell, settings))
    n_runs = sum(len(cell.seeds) * len(settings) for cell, settings in cells)
    if n_runs > MOST_RUNS:
        raise ValueError(f"plan {plan.name} asks for {n_runs} runs, at most {MOST_RUNS} are done: split it")
    return [_with_keys(cell, settings, problems[cell.data]) for cell, settings in cells], skips


def _cells(plan: Plan, measure: str, problem: Problem, spec: MethodSpec, n_val: int) -> Iterator[Batch | Skip]:
    base = Batch(measure, problem.name, "", spec, 0, 0, 0, plan.seeds)
    ranked = "n_features" in find_method(spec).grid
    for target in problem.targets:
        here = replace(base, target=target)
        if measure in ("nullspace", "picture"):  # properties of the basis: they depend on no labels
            yield from ([replace(here, seeds=plan.seeds if _by_chance(spec) else plan.seeds[:1])] if ranked else [])
        elif measure == "bound":
            yield from (replace(here, shots=shots) for shots in plan.shots if ranked)
        else:
            here = replace(here, n_val=n_val, support=plan.support)
            here = replace(here, min_test=plan.min_test if plan.short == "take" else 0)
            yield from (_cell(plan, problem, replace(here, shots=shots)) for shots in plan.shots)


def _by_chance(spec: MethodSpec) -> bool:
    return spec.method == "random" or spec.starts > 1


def _cell(plan: Plan, problem: Problem, batch: Batch) -> Batch | Skip:
    """The batch, or why its target is too small for it."""
    need = batch.shots + batch.n_val + plan.min_test
    label, n = min(problem.label_counts(batch.target).items(), key=lambda e: e[1])
    if n >= need or plan.short == "take":
        return batch
    why = (
        f"label {label} has {n} rows; {batch.shots} shots + {batch.n_val} validation + {plan.min_test} test rows = "
        f"{need} are needed"
    )
    return Skip(problem.name, batch.target, batch.shots, None, why)


def _settings(plan: Plan, spec: MethodSpec, problem: Problem) -> tuple[tuple[Setting, ...], list[Skip]]:
    grid = find_method(spec).grid
    names, values = [k for k, _ in spec.grid], [v for _, v in spec.grid]
    points = [tuple(zip(names, combination)) for combination in itertools.product(*values)]
    if not grid:
        return tuple(Setting(None, None, point) for point in points), []
    asked = (spec.n_features or plan.n_features) if "n_features" in grid else ("all",)
    sizes = sorted({problem.width if d == "all" else int(d) for d in asked})
    fitting = [d for d in sizes if d <= problem.width]
    skips = []
    if len(fitting) < len(sizes):
        why = f"n_features {sizes[len(fitting) :]} are above the {problem.width} there can be"
        skips.append(Skip(problem.name, "*", None, spec.name, why))
    # a learner other than the linear probe has no penalty
    penalties: tuple[float | None, ...] = spec.l2 or plan.l2
    if all_parameters(spec).get("probe") not in ("newton", "adamw"):
        penalties = (None,)
    return tuple(Setting(d, v, point) for d in fitting for v in penalties for point in points), skips


def _curve(settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """A property of the basis alone has no penalty."""
    return tuple(Setting(d, None) for d in sorted({s.n_features for s in settings if s.n_features is not None}))


def _with_keys(batch: Batch, settings: tuple[Setting, ...], problem: Problem) -> Batch:
    trained = find_method(batch.method).is_trained(batch.method.params)
    size = max((s.n_features or 0 for s in settings), default=0) if trained else 0
    cell = {name: getattr(batch, name) for name in ("measure", "shots", "n_val", "min_test", "support")}
    method = {name: getattr(batch.method, name) for name in ("method", "untuned", "starts")}
    rows = {"data": problem.digest, "target": problem.target_digest(batch.target)}
    more = {"recipe": recipe(), "size": size, "params": all_parameters(batch.method)}
    base = _canonical({**cell, **method, **rows, **more})
    heads = [base + b"seed %d " % seed for seed in batch.seeds]
    tails = [_canonical([s.n_features, s.l2, s.params]) for s in settings]
    keys = tuple(tuple(hashlib.sha256(head + tail).hexdigest()[:32] for tail in tails) for head in heads)
    return replace(batch, settings=settings, keys=keys, size=size)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


@cache
def recipe() -> str:
    """Sixteen hexadecimal digits; the same for the same code."""
    state = hashlib.sha256()
    for name, path in sorted(modules().items()):
        state.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def modules() -> dict[str, Path]:
    """Names and files of the modules that compute: all of the numerical rooms, whoever imports them."""
    home = Path(pro2.__file__).parent
    files = [file for room in ROOMS for file in (home / room).rglob("*.py")] + [home / name for name in ALSO]
    names = {".".join(("pro2", *file.relative_to(home).with_suffix("").parts)): file for file in files}
    return {name.removesuffix(".__init__"): file for name, file in names.items() if name not in APART}
