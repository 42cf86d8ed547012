"""One batch becomes rows: fit all its probes together, evaluate them with one matrix product.

Pure functions of arrays: nothing here reads or writes a file, and the same batch gives the same rows anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from pro2.lab.experiments.expand import Batch
from pro2.lab.experiments.heads import Draws, evaluate
from pro2.lab.experiments.methods import PreparedKey, find_method, prepared_keys
from pro2.lab.experiments.problems import Problem
from pro2.tables.shifts import draw


def prepare_method(problem: Problem, key: PreparedKey) -> Any:
    """Fit the source side of a method."""
    return find_method(key).prepare(problem, key)


def run_batch(problem: Problem, batch: Batch, prepared: Mapping[PreparedKey, Any]) -> dict[str, list[Any]]:
    """What a batch measures, as columns: ``key`` and one value a run for each measure."""
    if batch.measure == "nullspace":
        return _columns(batch, nullspace_norm=_nullspace(problem, batch, prepared))
    if batch.measure == "picture":
        from pro2.lab.experiments.picture import describe

        return _columns(batch, detail=describe(problem, batch, prepared))
    draws = draw_all(problem, batch)
    heads = find_method(batch.method).heads(problem, batch, draws, prepared)
    return _columns(batch, **evaluate(problem, batch.target, draws, heads))


def draw_all(problem: Problem, batch: Batch) -> Draws:
    """The same rows for every method: draws depend on target, shots and seed only."""
    cells = [(batch.target, batch.shots, seed, batch.n_val) for seed in batch.seeds]
    drawn = [problem.once(("draw", *cell), partial(_draw, problem, *cell)) for cell in cells]
    return Draws(*(np.stack(parts) for parts in zip(*drawn)))


def _draw(problem: Problem, target: str, shots: int, seed: int, n_val: int) -> tuple[np.ndarray, ...]:
    """One seed's entries of `Draws`."""
    rows = problem.targets[target]
    d = draw(problem.y, rows, shots, seed, n_val=n_val)
    place = np.zeros(len(problem.y), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    masks = np.zeros((2, len(rows)), dtype=bool)
    masks[0, place[d.rest]] = masks[1, place[d.val]] = True
    return d.few, place[d.few], masks[0], masks[1]


def _nullspace(problem: Problem, batch: Batch, prepared: Mapping[PreparedKey, Any]) -> np.ndarray:
    """Norm of the target's best direction outside the span of the first d features, (S, G)."""
    head = problem.best_direction(batch.target)
    sizes = [s.n_features or 0 for s in batch.settings]
    norms = [prepared[key].nullspace_norms(head, sizes) for key in prepared_keys(batch)]
    return np.broadcast_to(np.stack(norms), (len(batch.seeds), len(sizes)))


def _columns(batch: Batch, **values: Any) -> dict[str, list[Any]]:
    """Flat columns in the order seeds x settings; NaN becomes null."""
    out: dict[str, list[Any]] = {"key": batch.flat_keys}
    for name, array in values.items():
        flat = np.asarray(array).reshape(-1).tolist()
        out[name] = [None if isinstance(v, float) and v != v else v for v in flat]
    return out
