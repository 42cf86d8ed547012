"""`pro2 bench` finds the repository's benchmarks, and each of them starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def _pro2(*args: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from pro2.cli.main import main; sys.argv[0] = 'pro2'; main()"
    return subprocess.run([sys.executable, "-c", code, "bench", *args], capture_output=True, text=True, check=False)


def test_without_a_name_lists_and_with_a_wrong_one_says_which():
    listed = _pro2()
    assert {"project", "probe_path", "bank", "stream", "imports"} <= set(listed.stdout.split())
    assert "harness" not in listed.stdout.split()
    wrong = _pro2("nothing")
    assert wrong.returncode == 1
    assert "no benchmark 'nothing'" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_the_shell_completes_names():
    from pro2.cli.completion import complete_benchmarks as complete

    assert complete("ban") == ["bank", "bank_gpu"]
    assert not complete("readme")


def test_a_small_bank_tells_its_rows():
    done = _pro2("bank", "--targets", "64", "--threads", "1", "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["threads"] == 1


def test_a_small_stream_cleans_up(tmp_path):
    done = _pro2("stream", "--gigabytes", "0.13", "--repeats", "1", "--file", str(tmp_path / "x"))
    assert done.returncode == 0, done.stderr
    assert "| what |" in done.stdout
    assert "peak resident MB" in done.stdout
    assert not list(tmp_path.iterdir())


def test_make_bench_names_benchmarks_that_exist():
    line = next(row for row in (REPOSITORY / "Makefile").read_text().splitlines() if "for name in" in row)
    for name in line.split("for name in ")[1].split(";")[0].split():
        if not (REPOSITORY / "benchmarks" / f"{name}.py").is_file():
            pytest.fail(f"make bench runs {name}, which is not in benchmarks/")
