"""One batch becomes columns: fit all its probes together, evaluate them with one matrix product.

Pure functions of arrays: nothing here reads or writes a file, and the same batch gives the same rows anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pro2.lab.experiments.bounds import measure_bound
from pro2.lab.experiments.evaluate import draw_all
from pro2.lab.experiments.methods import PreparedKey, find_method, prepared_keys
from pro2.lab.experiments.picture import describe
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch


def run_batch(problem: Problem, batch: Batch, prepared: Mapping[PreparedKey, Any]) -> dict[str, list[Any]]:
    """What a batch measures, as columns: ``key`` and one value per run for each measure."""
    if batch.measure == "accuracy":
        return _columns(batch, **find_method(batch.method).measure(problem, batch, draw_all(problem, batch), prepared))
    features = [prepared[key] for key in prepared_keys(batch)]
    if batch.measure == "bound":
        return _columns(batch, **measure_bound(problem, batch, features))
    if batch.measure == "nullspace":
        head, sizes = problem.best_direction(batch.target), [s.n_features or 0 for s in batch.settings]
        return _columns(batch, nullspace_norm=np.stack([f.nullspace_norms(head, sizes) for f in features]))
    return _columns(batch, detail=[[describe(problem, batch.target, f)] * len(batch.settings) for f in features])


def _columns(batch: Batch, **values: Any) -> dict[str, list[Any]]:
    """Flat columns in the order seeds x settings; NaN becomes null, and one row of values serves all seeds."""
    shape = (len(batch.seeds), len(batch.settings))
    out: dict[str, list[Any]] = {"key": batch.flat_keys}
    for name, array in values.items():
        flat = np.broadcast_to(np.asarray(array), shape).reshape(-1).tolist()
        out[name] = [None if isinstance(v, float) and v != v else v for v in flat]
    return out
