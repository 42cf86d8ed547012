"""What is imported, and what is not: most users have only some of the extras, and commands must start quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pro2

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
