"""Thousands of damaged model and moments files, in a child process with little memory: see tests/mutators.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pro2
from tests.mutators import attack

HERE = "tests/estimators/damage.py"
# each is tried in two ways
N = {"model": 42, "adapted": 42, "names": 42, "bank": 42, "labels": 42, "labels adapted": 42, "moments": 125}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One small file of each kind."""
    folder, rng = tmp_path_factory.mktemp("whole"), np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.standard_normal((60, 5)) + 2 * y[:, None]
    names = np.array(["Möwe", "owl", ""])[np.arange(60) % 3]
    model = pro2.ProjectAndProbe(n_components=3).fit(X, y)
    several = pro2.MultiLabelProjectAndProbe().fit(X, np.stack([y, y[::-1]], axis=1))
    made: dict[str, Any] = {
        "model": model,
        "adapted": model.adapt(X[:12], y[:12]),
        "names": pro2.ProjectAndProbe().fit(X, names).adapt(X[:9], names[:9]),
        "bank": pro2.ProbeBank(model).fit(X, y, target=np.repeat(["north", "south"], 30)),
        "labels": several,
        "labels adapted": several.adapt(X[:12], np.stack([y, y[::-1]], axis=1)[:12]),
        "moments": pro2.SourceMoments.from_arrays(X, names),
    }
    provenance = {"source": {"backbone": "toy", "digest": "sha256:0", "rows": 60}}
    return {name: value.save(folder / name, provenance=provenance) for name, value in made.items()}


@pytest.mark.fuzz
@pytest.mark.slow
@pytest.mark.parametrize("kind", N)
def test_damage_is_refused_by_name_or_harmless(files: dict[str, Path], kind: str, fuzz_scale: int) -> None:
    counts = attack(f"{HERE}:loads_the_same", files[kind], n=N[kind] * fuzz_scale, seed=0)
    assert counts["refused"] > 0.9 * counts.total()


@pytest.mark.fuzz
@pytest.mark.slow
def test_a_forged_file_is_refused_or_works(files: dict[str, Path], fuzz_scale: int) -> None:
    """What passes is counted over all kinds: of some it is 3 cases in 100, so that of 42 cases there may be none."""
    tried = [attack(f"{HERE}:works_if_it_loads", files[kind], n=N[kind] * fuzz_scale, seed=1) for kind in N]
    assert all(counts["refused"] > 0.02 * counts.total() for counts in tried), "the forger is too careful"
    every = sum(tried, Counter())
    assert every["passed"] > 0.02 * every.total(), "the forger is too wild"
