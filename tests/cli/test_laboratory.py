"""The laboratory as a user types it: `pro2 sweep`, `pro2 report`, `pro2 plans` and `pro2 datasets`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pro2.cli.main import app
from pro2.lab.datasets import list_datasets
from pro2.lab.datasets.digits import make_digit_collages
from pro2.lab.experiments import ResultStore, list_presets, preset_text
from tests.cli.commands import refused, run, run_json

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


def test_from_plan_to_page(folder: Path) -> None:
    out = folder / "out"
    assert "36 runs, 36 missing" in run("sweep", folder / "plan.toml", "--out", out, "--dry-run")
    assert not out.exists()
    assert "36 runs in" in run("sweep", folder / "plan.toml", "--out", out, "--quiet")
    assert "0 runs in" in run("sweep", folder / "plan.toml", "--out", out, "--quiet")
    found = run_json("inspect", out)
    assert (found["what"], found["runs"], found["failed"], found["intact"]) == ("results of a sweep", 36, 0, True)
    page = Path(run("report", out).strip().splitlines()[-1])
    assert page == out / "report" / "index.html"
    assert "by held-out target labels" in page.read_text()


def test_inspect_ends_with_status_1_when_results_are_damaged(folder: Path) -> None:
    run("sweep", folder / "plan.toml", "--out", folder / "out", "--quiet")
    path = folder / "out" / "results.sqlite"
    path.write_bytes(path.read_bytes().replace(b"accuracy", b"acc\xffracy"))
    assert "results.sqlite is damaged" in refused("inspect", folder / "out")


def test_json_lines_are_for_machines(folder: Path) -> None:
    output = run("sweep", folder / "plan.toml", "--out", folder / "out", "--json", "--seeds", 1, "--shots", "2")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert events[-1]["event"] == "summary"
    assert events[-1]["n_done"] == 3 * 3
    assert events[0]["event"] == "progress"
    estimate = json.loads(run("sweep", folder / "plan.toml", "--out", folder / "out", "--dry-run", "--json"))
    assert estimate["n_missing"] == 36 - 9


def test_a_preset_on_one_s_own_table_called_anything(folder: Path) -> None:
    table = (folder / "t.npz").rename(folder / "Größe (neu) 1.npz")
    output = run("sweep", "dimension", "--table", table, "--source", "part == 0", "--pool", "part == 1",
                  "--group", "place", "--out", folder / "out", "--seeds", 2, "--shots", "2", "--quiet")  # fmt: skip
    # d = 1 and 4 of six feature counts fit a table of width 4; 2 methods, 3 penalties, 2 seeds, 3 targets
    assert "72 runs in" in output


def test_a_suite_runs_each_plan_into_a_folder_of_its_own(folder: Path) -> None:
    (folder / "other.toml").write_text(PLAN.replace("tiny", "other"))
    (folder / "suite.toml").write_text('name = "both"\ntitle = "Both"\nplans = ["plan.toml", "other.toml"]\n')
    command = ("sweep", folder / "suite.toml", "--out", folder / "out", "--seeds", 1)
    assert "tiny: 18 runs" in run(*command, "--dry-run")
    assert not (folder / "out").exists()
    assert run(*command, "--quiet").count("18 runs in") == 2
    assert (folder / "out" / "tiny" / "results.parquet").is_file()
    assert (folder / "out" / "other" / "results.parquet").is_file()
    assert json.loads((folder / "out" / "suite.json").read_text())["plans"] == ["tiny", "other"]


def test_five_ways_are_compared_by_the_few_labels_alone(tmp_path: Path) -> None:
    """The guide's comparison on a user's table: a label, a domain, and nothing else."""
    make_digit_collages(300, 80).save(tmp_path / "mine.npz")
    where = ["--label", "y", "--source", "split == 'source'", "--domain", "split", "--seeds", "1", "--shots", "2"]
    said = run("sweep", "yours", "--table", tmp_path / "mine.npz", *where, "--out", tmp_path / "out", "--json")
    assert json.loads(said.splitlines()[-1])["n_failed"] == 0
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["selection"] == "support"
    assert [m["name"] for m in plan["methods"]] == ["source-only", "ridge", "linear-probe", "pro2", "averaged"]
    with ResultStore(tmp_path / "out") as store:
        assert len(store.finished()) > 4 * 5  # four targets, five methods, and their fits on source
    page = run_json("report", tmp_path / "out")["page"]
    assert "Averaged Pro2" in Path(page).read_text(encoding="utf-8")


def test_plans_are_listed_and_shown() -> None:
    listing = run("plans")
    assert all(name in listing for name in list_presets())
    assert run("plans show shog") == preset_text("shog")
    assert run_json("plans")["yours"]["data"] == "yours.arrow"
    shown = run_json("plans show yours")
    assert shown["file"] == preset_text("yours")
    assert {"averaged", "linear-probe"} <= {method["name"] for method in shown["plan"]["methods"]}
    assert "main" in run_json("plans show claims")["plan"]["plans"]


@pytest.fixture
def waterbirds(tmp_path: Path) -> Path:
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for i in range(24):
        (tmp_path / "bird").mkdir(exist_ok=True)
        (tmp_path / "bird" / f"{i}.jpg").write_bytes(b"")
        lines.append(f"{i},bird/{i}.jpg,{i % 2},{(i // 4) % 3},{(i // 2) % 2},x.jpg")
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    return tmp_path


def test_data_sets_are_listed_and_shown() -> None:
    listed = [line.split(" ")[0] for line in run("datasets").splitlines()]
    assert listed[: listed.index("")] == list_datasets()
    shown = run("datasets show camelyon17")
    assert all(text in shown for text in ("CC0", "metadata.csv", "split test: 85,054"))


def test_a_complete_folder_is_measured_and_an_incomplete_one_has_status_1(waterbirds: Path) -> None:
    said = run("datasets", "check", "waterbirds", waterbirds)
    for text in ("complete: 24 images", "note: split 0: 8 rows, the official release has 4,795"):
        assert text in said
    (waterbirds / "bird" / "7.jpg").unlink()
    missing = {
        "waterbirds": f"missing: 1 of 24 images in {waterbirds / 'bird'}, first: 7.jpg",
        "fmow": "rgb_metadata.csv, country_code_mapping.csv",
    }
    for name, text in missing.items():
        done = CliRunner().invoke(app, ["datasets", "check", name, str(waterbirds)])
        assert done.exit_code == 1
        assert text in done.stdout
