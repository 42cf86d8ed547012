"""A small real table on disk and a plan over it: what most tests of the sweep need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.lab.experiments.plan import Plan, parse_plan
from pro2.lab.experiments.run import run_sweep
from pro2.lab.experiments.store import read_view

Rows = list[dict[str, Any]]
Sweep = Callable[..., Rows]


@pytest.fixture
def table_folder(tmp_path: Path) -> Path:
    """A folder with `birds.npz`: 12 features, label y, a shortcut `place`, split 0 (source) and 2 (target)."""
    write_birds(tmp_path / "birds.npz")
    return tmp_path


def write_birds(path: Path, n: int = 600, width: int = 12, seed: int = 0, **changes: Any) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    split = np.where(np.arange(n) < n // 2, 0, 2)
    follows = rng.random(n) < np.where(split == 0, 0.9, 0.5)
    place = np.where(follows, y, 1 - y)
    X = rng.normal(size=(n, width)).astype(np.float32)
    X[:, 0] += 1.2 * y
    X[:, 1] += 2.5 * place
    arrays = {"embeddings": X, "y": y, "place": place, "split": split, "id": np.array([f"r{i}" for i in range(n)])}
    np.savez(path, **{**arrays, **changes})


@pytest.fixture
def plan_values() -> dict[str, Any]:
    """A plan as plain values; tests change it before parsing."""
    return {
        "name": "small",
        "shots": [2, 4],
        "seeds": 3,
        "n_features": [1, 3, 12],
        "l2": [0.1, 0.01],
        "validation": 5,
        "selection": "validation",
        "methods": [{"method": "pro2"}, {"method": "random"}, {"method": "linear-probe"}],
        "data": [
            {"name": "birds", "table": "birds.npz", "source": "split == 0", "pool": "split == 2", "group": "place"}
        ],
    }


def many_cells(values: dict[str, Any], n_methods: int, n_shots: int) -> dict[str, Any]:
    """A plan that takes long enough to be stopped in the middle."""
    methods = [{"method": "pro2", "name": f"pro2-{i}", "params": {"ridge": 0.1 * i}} for i in range(n_methods)]
    return {**values, "methods": [*methods, {"method": "random"}], "shots": list(range(1, n_shots + 1))}


@pytest.fixture
def make_plan(plan_values: dict[str, Any]) -> Callable[..., Plan]:
    """The small plan with some of its keys changed."""

    def make(**changes: Any) -> Plan:
        plan = parse_plan({**plan_values, **changes})
        assert isinstance(plan, Plan)
        return plan

    return make


@pytest.fixture
def sweep(table_folder: Path, make_plan: Callable[..., Plan]) -> Sweep:
    """Run the small plan with some of its keys changed into a folder, without a failure; returns its rows."""

    def run(out: str = "out", n_workers: int | None = None, **changes: Any) -> Rows:
        state = run_sweep(make_plan(**changes), table_folder / out, data=table_folder, n_workers=n_workers)
        assert state.n_failed == 0
        return read_view(table_folder / out).to_pylist()

    return run
