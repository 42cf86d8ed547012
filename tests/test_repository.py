"""What a release needs agrees with itself: versions, the citation, the workflows and the package target."""

from __future__ import annotations

import re
import subprocess
import sys
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


# ---- what is imported, and what is not: commands must start quickly, and most users have only some of the extras

RUNTIMES = {"torch", "onnxruntime", "transformers", "ray", "matplotlib", "PIL"}
FILES = {"pyarrow", "msgspec", "jinja2", "filelock"}
NUMERICAL = {"numpy", "pandas", "scipy", "sklearn", "onnx", "starlette", "uvicorn", "sqlite3"}
WITHOUT_PANDAS = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
"""
LIGHT = {
    "the package": ("import pro2", RUNTIMES | FILES),
    "choosing rows": ("from pro2 import suggest_labels", RUNTIMES),
    "the help of a command": ("from pro2.cli.main import app", RUNTIMES | FILES | NUMERICAL),
    "names of backbones": (
        "import pro2.embed; pro2.embed.list_backbones(); pro2.embed.register_backbone; pro2.embed.open_images",
        RUNTIMES,
    ),
    "the demo": (f"{WITHOUT_PANDAS}import pro2.lab.demo", {"matplotlib"}),
}


@pytest.mark.parametrize(("code", "heavy"), LIGHT.values(), ids=LIGHT)
def test_what_is_light_imports_nothing_heavy(code: str, heavy: set[str]) -> None:
    code = f"import sys\n{code}\nprint(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_there() -> None:
    assert {"ProjectAndProbe", "Projection", "Probe", "SourceMoments", "EmbeddingTable"} <= set(dir(pro2))
