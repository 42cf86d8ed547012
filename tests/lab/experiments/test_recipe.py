"""Which results may be mixed follows from the code that makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pro2.lab.experiments import expand as module
from pro2.lab.experiments.expand import modules, recipe


def test_it_covers_what_a_run_executes_and_nothing_that_only_keeps_files() -> None:
    names = set(modules())
    assert {"pro2.lab.experiments.methods", "pro2.lab.experiments.evaluate", "pro2.lab.baselines.projections",
            "pro2.linalg.probes", "pro2.linalg.bases", "pro2.estimators.project_and_probe",
            "pro2.tables.shifts"} <= names  # fmt: skip
    kept_apart = ("pro2.cli", "pro2.lab.report", "pro2.embed", "pro2.estimators.files", "pro2.lab.experiments.results")
    assert not {name for name in names if name.startswith(kept_apart)}


def test_every_module_that_a_sweep_loads_from_the_numerical_rooms_is_covered() -> None:
    """Found by running, not by reading: what Python has loaded of linalg after a sweep is in the recipe."""
    import subprocess
    import sys

    code = (
        "import sys; from pro2.lab.experiments import parse_plan; from pro2.lab.experiments.run import run_sweep;"
        "run_sweep(parse_plan({'name': 'x', 'shots': [4], 'seeds': 1, 'n_features': [2], 'selection': 'support',"
        "'methods': ['pro2', 'teney', {'method': 'pro2', 'name': 'd', 'untuned': True}],"
        "'data': [{'name': 'g', 'generator': 'shog', 'params': {'n_source': 200, 'n_target': 100}}]}), sys.argv[1]);"
        "print('\\n'.join(n for n in sys.modules if n.startswith(('pro2.linalg.', 'pro2.lab.baselines.'))))"
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pro2.linalg.probes" in loaded
    assert loaded <= set(modules())


def test_changed_code_is_another_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = modules()
    copy = tmp_path / "logistic.py"
    copy.write_bytes(files["pro2.linalg.probes"].read_bytes())
    monkeypatch.setattr(module, "modules", lambda: {**files, "pro2.linalg.probes": copy})
    recipe.cache_clear()
    same = recipe()
    copy.write_text(copy.read_text() + "\nTOL = 1e-3\n")
    recipe.cache_clear()
    other = recipe()
    monkeypatch.undo()
    recipe.cache_clear()
    assert same == recipe()
    assert other != same
