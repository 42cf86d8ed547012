"""A plan becomes frozen runs with stable keys; runs that share work become batches.

A key is a hash of everything that changes a result (content of the data, rows, method, parameters, seed, recipe
version) and of nothing else: names, file paths, the selection rule and the order of the plan are not in it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pro2.lab.experiments.methods import all_parameters, find_method
from pro2.lab.experiments.plan import MethodSpec, Plan, n_validation
from pro2.lab.experiments.problems import Problem

# Raise it when a change of the code changes results: every key changes with it and old results are not reused.
RECIPE = 3


@dataclass(frozen=True)
class Setting:
    """One point of a method's grid."""

    n_features: int | None
    l2: float | None
    params: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Batch:
    """Runs that share data, target, shots and method: `seeds` x `settings`, executed as one piece.

    ``keys[i][j]`` belongs to ``seeds[i]`` and ``settings[j]``. With `support`, every run also gets its leave-one-out
    loss on the few labelled rows, which costs about as much as the fits.
    """

    measure: str
    data: str
    target: str
    method: MethodSpec
    shots: int
    n_val: int
    seeds: tuple[int, ...]
    settings: tuple[Setting, ...]
    keys: tuple[tuple[str, ...], ...]
    support: bool = False

    @property
    def id(self) -> str:
        """Stable name of this piece of work."""
        return hashlib.sha256("".join(itertools.chain(*self.keys)).encode()).hexdigest()[:16]

    @property
    def n_runs(self) -> int:
        return len(self.seeds) * len(self.settings)

    @property
    def flat_keys(self) -> list[str]:
        return list(itertools.chain(*self.keys))

    @property
    def cell(self) -> dict[str, Any]:
        """Where the runs belong, for people."""
        return {
            "measure": self.measure,
            "data": self.data,
            "target": self.target,
            "method": self.method.name,
            "shots": self.shots,
            "seeds": list(self.seeds),
            "n_runs": self.n_runs,
        }


@dataclass(frozen=True)
class Skip:
    """Part of a plan that this data cannot give, and why."""

    data: str
    target: str
    shots: int | None
    method: str | None
    reason: str


def expand(plan: Plan, problems: Mapping[str, Problem]) -> tuple[list[Batch], list[Skip]]:
    """All batches of a plan, whole (nothing is split or finished yet), and what had to be left out."""
    batches: list[Batch] = []
    skips: list[Skip] = []
    for measure, spec, method in itertools.product(plan.measures, plan.data, plan.methods):
        problem = problems[spec.name]
        settings, skipped = _settings(plan, method, problem)
        if measure == plan.measures[0]:
            skips += skipped
        for cell in _cells(plan, measure, problem, method, n_validation(plan, spec)):
            if isinstance(cell, Skip):
                if method == plan.methods[0]:
                    skips.append(cell)
            elif settings:
                batches.append(_with_keys(cell, settings if measure == "accuracy" else _curve(settings), problem))
    return [b for b in batches if b.settings], skips


def _cells(plan: Plan, measure: str, problem: Problem, method: MethodSpec, n_val: int) -> Iterator[Batch | Skip]:
    ranked = find_method(method).ranked
    for target in problem.targets:
        if measure != "accuracy":
            if ranked:
                seeds = plan.seeds if find_method(method).seeded else plan.seeds[:1]
                yield Batch(measure, problem.name, target, method, 0, 0, seeds, (), ())
            continue
        counts = problem.label_counts(target)
        support = plan.selection == "support"
        for shots in plan.shots:
            need = shots + n_val + plan.min_test
            if min(counts.values()) < need:
                label, n = min(counts.items(), key=lambda e: e[1])
                why = (
                    f"label {label} has {n} rows; {shots} shots + {n_val} validation + "
                    f"{plan.min_test} test rows = {need} are needed"
                )
                yield Skip(problem.name, target, shots, None, why)
            else:
                yield Batch(measure, problem.name, target, method, shots, n_val, plan.seeds, (), (), support)


def _settings(plan: Plan, spec: MethodSpec, problem: Problem) -> tuple[tuple[Setting, ...], list[Skip]]:
    method = find_method(spec)
    combinations = [
        tuple(zip([k for k, _ in spec.grid], values)) for values in itertools.product(*(v for _, v in spec.grid))
    ]
    if not method.probed:
        return tuple(Setting(None, None, c) for c in combinations), []
    asked = ("all",) if not method.ranked else spec.n_features or plan.n_features
    sizes = sorted({problem.width if d == "all" else int(d) for d in asked})
    limit = method.max_features(problem, dict(spec.params))
    left_out = [d for d in sizes if d > limit]
    skips = (
        [Skip(problem.name, "*", None, spec.name, f"n_features {left_out} are above the {limit} there can be")]
        if left_out
        else []
    )
    l2 = spec.l2 or plan.l2
    return tuple(Setting(d, v, c) for d in sizes if d <= limit for v in l2 for c in combinations), skips


def _curve(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """A property of the basis alone has no penalty."""
    return tuple(Setting(d, None) for d in sorted({s.n_features for s in settings if s.n_features is not None}))


def _with_keys(batch: Batch, settings: tuple[Setting, ...], problem: Problem) -> Batch:
    what = {
        "recipe": RECIPE,
        "measure": batch.measure,
        "data": problem.digest,
        "target": problem.target_digest(batch.target),
        "shots": batch.shots,
        "n_val": batch.n_val,
        "support": batch.support,
        "method": batch.method.method,
        "params": all_parameters(batch.method),
    }
    base = hashlib.sha256(_canonical(what))
    tails = [_canonical([s.n_features, s.l2, s.params]) for s in settings]
    keys = []
    for seed in batch.seeds:
        per_seed = base.copy()
        per_seed.update(b"seed %d " % seed)
        keys.append(tuple(_finish(per_seed, tail) for tail in tails))
    return replace(batch, settings=settings, keys=tuple(keys))


def _finish(state: Any, tail: bytes) -> str:
    state = state.copy()
    state.update(tail)
    return str(state.hexdigest()[:32])


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


def missing(batch: Batch, done: set[str]) -> Iterator[Batch]:
    """The part of a batch that is not done, as full grids again (none when all is done)."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, keys in enumerate(batch.keys):
        todo = tuple(j for j, key in enumerate(keys) if key not in done)
        if todo:
            groups.setdefault(todo, []).append(i)
    for todo, seeds in groups.items():
        yield sub_batch(batch, seeds, todo)


def sub_batch(batch: Batch, seeds: Sequence[int], settings: Sequence[int]) -> Batch:
    """The runs at these positions of a batch."""
    return replace(
        batch,
        seeds=tuple(batch.seeds[i] for i in seeds),
        settings=tuple(batch.settings[j] for j in settings),
        keys=tuple(tuple(batch.keys[i][j] for j in settings) for i in seeds),
    )
