"""`pro2 datasets` as a user runs it: a real process, real folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pro2.cli.main import app
from pro2.lab.datasets import list_datasets


def pro2(*args: object) -> subprocess.CompletedProcess[str]:
    """A process of its own, as the installed command starts it."""
    command = [sys.executable, "-c", "from pro2.cli.main import main; main()", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(*args: object) -> Result:
    """The same command inside this process."""
    return CliRunner().invoke(app, ["datasets", *map(str, args)])


@pytest.fixture
def waterbirds(tmp_path: Path) -> Path:
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for i in range(24):
        (tmp_path / "bird").mkdir(exist_ok=True)
        (tmp_path / "bird" / f"{i}.jpg").write_bytes(b"")
        lines.append(f"{i},bird/{i}.jpg,{i % 2},{(i // 4) % 3},{(i // 2) % 2},x.jpg")
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    return tmp_path


def test_lists_every_data_set() -> None:
    answer = pro2("datasets")
    assert answer.returncode == 0
    listed = [line.split(" ")[0] for line in answer.stdout.splitlines()]
    assert listed[: listed.index("")] == list_datasets()


def test_shows_how_to_get_one() -> None:
    answer = run("show", "camelyon17")
    assert "CC0" in answer.stdout
    assert "metadata.csv" in answer.stdout
    assert "test: 85,054" in answer.stdout


def test_check_reports_sizes_of_a_complete_folder(waterbirds: Path) -> None:
    answer = run("check", "waterbirds", waterbirds)
    assert answer.exit_code == 0
    assert "complete: 24 images" in answer.stdout
    assert "source: 8 rows" in answer.stdout
    assert "target balanced: 8 rows" in answer.stdout
    assert "note: train: 8 rows, the official release has 4,795" in answer.stdout


def test_check_names_what_is_missing(waterbirds: Path) -> None:
    (waterbirds / "bird" / "7.jpg").unlink()
    answer = run("check", "waterbirds", waterbirds)
    assert answer.exit_code == 1
    assert f"missing: 1 of 24 images in {waterbirds / 'bird'}, first: 7.jpg" in answer.stdout
    answer = run("check", "fmow", waterbirds)
    assert answer.exit_code == 1
    assert "rgb_metadata.csv, country_code_mapping.csv" in answer.stdout


def test_an_unknown_name_is_one_line() -> None:
    answer = pro2("datasets", "check", "waterbird", ".")
    assert answer.returncode == 1
    assert "did you mean 'waterbirds'" in answer.stderr
    assert "Traceback" not in answer.stderr
