"""What a release needs agrees with itself: versions, the citation, the workflows and the package target."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import pro2

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_yaml(path: Path) -> Any:
    return pytest.importorskip("yaml").safe_load(path.read_text(encoding="utf-8"))


def test_one_version_everywhere() -> None:
    assert PROJECT["version"] == pro2.__version__
    assert read_yaml(ROOT / "CITATION.cff")["version"] == pro2.__version__


def test_every_python_that_is_promised_is_tested_on_two_systems() -> None:
    matrix = read_yaml(ROOT / ".github/workflows/tests.yml")["jobs"]["test"]["strategy"]["matrix"]
    promised = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert matrix["python"] == promised
    assert len(matrix["system"]) == 2


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda p: p.name)
def test_workflows_call_targets_that_exist_and_may_write_nothing_by_default(path: Path) -> None:
    workflow = read_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {word for line in re.findall(r"run: make (.+)", path.read_text()) for word in line.split()}
    assert used <= targets
