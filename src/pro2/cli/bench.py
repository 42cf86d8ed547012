"""`pro2 bench NAME`: run a benchmark of the repository and print its table."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import typer

import pro2
from pro2.cli import options
from pro2.cli.completion import complete_benchmarks
from pro2.cli.journey import tell

# What they share and make.
NOT_BENCHMARKS = {"harness", "label_person", "ceilings", "real_tasks", "finetuning", "readme_table"}
FOLDER = Path(pro2.__file__).resolve().parents[2] / "benchmarks"


def list_benchmarks() -> list[str]:
    """Names of the scripts of a clone; an installed package has none."""
    return sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in NOT_BENCHMARKS)


def bench(
    context: typer.Context,
    name: str | None = typer.Argument(
        None, help="Which benchmark; without a name they are listed.", autocompletion=complete_benchmarks
    ),
    as_json: options.AsJson = False,
) -> None:
    """Measure speed and accuracy side by side with the alternatives; options after NAME go to the benchmark."""
    names = list_benchmarks()
    if not names:
        raise FileNotFoundError(
            f"no benchmarks at {FOLDER}: they are part of the repository, not of the installed package; "
            "clone it and install with `pip install -e .`"
        )
    if name is None:
        about = {each: _first_sentence(FOLDER / f"{each}.py") for each in names}
        width = max(map(len, names))
        return tell(about, [f"{each:<{width}}  {text}" for each, text in about.items()], as_json)
    if name not in names:
        raise ValueError(f"no benchmark {name!r}; there are {', '.join(names)}")
    asked = ["--json"] if as_json else []
    done = subprocess.run([sys.executable, str(FOLDER / f"{name}.py"), *context.args, *asked], check=False)
    raise typer.Exit(done.returncode)


def _first_sentence(path: Path) -> str:
    """What a benchmark measures, in the first line of its own description."""
    described = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return described.partition("\n")[0]
