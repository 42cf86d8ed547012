"""One finished sweep that all report tests read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.lab.experiments import parse_plan
from pro2.lab.experiments.run import run_sweep


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a small plan with every measure a report draws."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    X = rng.normal(size=(500, 8)).astype(np.float32)
    X[:, 0] += 2 * y
    np.savez(folder / "t.npz", embeddings=X, y=y, part=np.where(np.arange(500) < 200, "source", "later"))
    shog = {"name": "shog", "generator": "shog", "params": {"n_features": 6, "n_source": 500, "n_target": 300}}
    table = {"name": "own", "table": "t.npz", "source": "part == 'source'", "domain": "part"}
    values = {
        "name": "check", "title": "A <small> check", "description": "d", "shots": [2, 4, 8, 1000], "seeds": 4,
        "n_features": [1, 3, 6], "l2": [0.1, 0.01], "validation": 6, "selection": "support", "baseline": "linear-probe",
        "measures": ["accuracy", "nullspace"], "data": [shog, table],
        "methods": [{"method": "pro2", "title": "Pro2"}, {"method": "random", "title": "Random projection"},
                    {"method": "linear-probe", "title": "Linear probe"}],
    }  # fmt: skip
    run_sweep(parse_plan(values), folder / "out", data=folder)
    return folder / "out"
