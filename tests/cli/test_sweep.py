"""`pro2 sweep`, `pro2 report` and `pro2 plans` as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pro2.cli.main import app
from pro2.lab.experiments import list_presets, preset_text

PLAN = """
name = "tiny"
shots = [2, 4]
seeds = 2
n_features = [1, 4]
l2 = [0.1]
validation = 3
selection = "validation"
methods = [{ method = "pro2" }, { method = "linear-probe" }]
baseline = "linear-probe"
[[data]]
name = "t"
table = "t.npz"
source = "part == 0"
pool = "part == 1"
group = "place"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    y, place = rng.integers(0, 2, (2, 400))
    X = rng.normal(size=(400, 4)).astype(np.float32)
    X[:, 0] += 3 * y
    np.savez(tmp_path / "t.npz", embeddings=X, y=y, place=place, part=np.arange(400) // 200)
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path


def _run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_from_plan_to_page(folder: Path) -> None:
    out = folder / "out"
    assert "36 runs, 36 missing" in _run("sweep", folder / "plan.toml", "--out", out, "--dry-run")
    assert not out.exists()
    assert "36 runs in" in _run("sweep", folder / "plan.toml", "--out", out, "--quiet")
    assert "0 runs in" in _run("sweep", folder / "plan.toml", "--out", out, "--quiet")
    found = json.loads(_run("inspect", out, "--json"))
    assert (found["what"], found["runs"], found["failed"], found["intact"]) == ("results of a sweep", 36, 0, True)
    page = Path(_run("report", out).strip().splitlines()[-1])
    assert page == out / "report" / "index.html"
    assert "by held-out target labels" in page.read_text()


def test_inspect_ends_with_status_1_when_results_are_damaged(folder: Path) -> None:
    _run("sweep", folder / "plan.toml", "--out", folder / "out", "--quiet")
    path = folder / "out" / "results.sqlite"
    path.write_bytes(path.read_bytes().replace(b"accuracy", b"acc\xffracy"))
    result = CliRunner().invoke(app, ["inspect", str(folder / "out")])
    assert isinstance(result.exception, ValueError)
    assert "results.sqlite is damaged" in str(result.exception)


def test_json_lines_are_for_machines(folder: Path) -> None:
    output = _run("sweep", folder / "plan.toml", "--out", folder / "out", "--json", "--seeds", 1, "--shots", "2")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert events[-1]["event"] == "summary"
    assert events[-1]["n_done"] == 3 * 3
    assert events[0]["event"] == "progress"
    estimate = json.loads(_run("sweep", folder / "plan.toml", "--out", folder / "out", "--dry-run", "--json"))
    assert estimate["n_missing"] == 36 - 9


def test_a_preset_on_one_s_own_table(folder: Path) -> None:
    output = _run("sweep", "dimension", "--table", folder / "t.npz", "--source", "part == 0", "--pool", "part == 1",
                  "--group", "place", "--out", folder / "out", "--seeds", 2, "--shots", "2", "--quiet")  # fmt: skip
    # d = 1 and 4 of six feature counts fit a table of width 4; 2 methods, 3 penalties, 2 seeds, 3 targets
    assert "72 runs in" in output


def test_a_table_may_be_called_anything(folder: Path) -> None:
    odd = folder / "Größe (neu) 1.npz"
    (folder / "t.npz").rename(odd)
    output = _run("sweep", "dimension", "--table", odd, "--source", "part == 0", "--pool", "part == 1", "--group",
                  "place", "--out", folder / "out", "--seeds", 1, "--shots", "2", "--quiet")  # fmt: skip
    assert "36 runs in" in output


def test_a_suite_runs_each_plan_into_a_folder_of_its_own(folder: Path) -> None:
    (folder / "other.toml").write_text(PLAN.replace("tiny", "other"))
    (folder / "suite.toml").write_text('name = "both"\ntitle = "Both"\nplans = ["plan.toml", "other.toml"]\n')
    command = ("sweep", folder / "suite.toml", "--out", folder / "out", "--seeds", 1)
    assert "tiny: 18 runs" in _run(*command, "--dry-run")
    assert not (folder / "out").exists()
    assert _run(*command, "--quiet").count("18 runs in") == 2
    assert (folder / "out" / "tiny" / "results.parquet").is_file()
    assert (folder / "out" / "other" / "results.parquet").is_file()
    assert json.loads((folder / "out" / "suite.json").read_text())["plans"] == ["tiny", "other"]


def test_plans_are_listed_and_shown() -> None:
    listing = _run("plans")
    assert all(name in listing for name in list_presets())
    assert _run("plans", "show", "shog") == preset_text("shog")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "mian", "--out", "x"], "did you mean 'main'"),
        (["sweep", "main", "--out", "x", "--data", "nowhere"], "does not exist; say in which folder"),
        (["sweep", "shog", "--out", "x", "--engine", "slurm"], "expected 'local' or 'ray'"),
        (["sweep", "shog", "--out", "x", "--selection", "best"], "selection is 'best'"),
        (["report", "nowhere"], "no classifier or folder of results"),
        (["sweep", "yours", "--table", "t.arrow", "--out", "s"], "--source ROWS, and --domain COLUMN"),
        (["plans", "show", "shgo"], "did you mean 'shog'"),
    ],
)
def test_mistakes_end_in_one_line(arguments: list[str], message: str, tmp_path: Path, failing: Any) -> None:
    assert message in failing(*arguments, cwd=tmp_path)
    assert not (tmp_path / "x" / "results.parquet").exists()


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys, pro2.cli.main; "
        "print(sorted({'numpy', 'torch', 'ray', 'matplotlib', 'pyarrow', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
