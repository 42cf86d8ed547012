"""Frozen runs: one batch holds the runs that share work, and knows the key of each."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pro2.lab.experiments.plan import MethodSpec


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
    loss on the few labelled rows, which costs about as much as the fits. `size` is that of a basis that is trained as
    a whole, `min_test` the test rows that a label keeps where it is too short for all shots.
    """

    measure: str
    data: str
    target: str
    method: MethodSpec
    shots: int
    n_val: int
    min_test: int
    seeds: tuple[int, ...]
    settings: tuple[Setting, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    support: bool = False
    size: int = 0

    @property
    def id(self) -> str:
        """Stable name of this piece of work."""
        return hashlib.sha256("".join(self.flat_keys).encode()).hexdigest()[:16]

    @property
    def n_runs(self) -> int:
        return len(self.seeds) * len(self.settings)

    @property
    def flat_keys(self) -> list[str]:
        return list(itertools.chain(*self.keys))

    @property
    def cell(self) -> dict[str, Any]:
        """Where the runs belong, for people."""
        names = {"measure": self.measure, "data": self.data, "target": self.target, "method": self.method.name}
        return {**names, "shots": self.shots, "seeds": list(self.seeds), "n_runs": self.n_runs}


@dataclass(frozen=True)
class Skip:
    """Part of a plan that this data cannot give, and why."""

    data: str
    target: str
    shots: int | None
    method: str | None
    reason: str


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
