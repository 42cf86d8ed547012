"""How the tests are shared out among workers: what a file has made serves all of its tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("xdist")

# each test leaves an empty file that is named after its worker and itself
NOTES = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(6))
def test(number):
    Path(f"{os.environ['PYTEST_XDIST_WORKER']}.{Path(__file__).stem}.{number}.note").touch()
"""


def test_a_file_is_one_workers_work_and_so_are_all_clusters(tmp_path: Path) -> None:
    """Where the workers split files, all tests still pass and each worker makes everything anew: nothing else tells."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    for name in ("test_a", "test_b", "test_moments_ray", "test_ray"):
        (tmp_path / f"{name}.py").write_text(NOTES)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    workers, notes = defaultdict(set), [path.name.split(".") for path in tmp_path.glob("*.note")]
    for worker, file, *_ in notes:
        workers[file].add(worker)
    assert len(notes) == 4 * 6
    assert {file: len(found) for file, found in workers.items()} == dict.fromkeys(workers, 1)
    assert workers["test_ray"] == workers["test_moments_ray"]
    assert len(set().union(*workers.values())) == 2
