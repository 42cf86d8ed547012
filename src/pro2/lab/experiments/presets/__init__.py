"""Plans by name: those that ship with the package, one per table or figure of the paper, files, and suites of them."""

from __future__ import annotations

from dataclasses import asdict
from importlib import resources
from pathlib import Path

from pro2.lab.experiments.parsing import load_plan, suggest
from pro2.lab.experiments.plan import Plan, Suite
from pro2.lab.experiments.view import write_json

SUITE = "suite.json"


def list_presets() -> tuple[str, ...]:
    """Names of the plans that ship with the package."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def preset_text(name: str) -> str:
    """The plan file of a preset, as text to read or to copy."""
    return _preset_path(name).read_text(encoding="utf-8")


def find_plan(name_or_path: str) -> Plan | Suite:
    """A preset by name, or a plan file by path."""
    if name_or_path not in list_presets() and Path(name_or_path).is_file():
        return load_plan(name_or_path)
    return load_plan(_preset_path(name_or_path, "neither a file nor a preset"))


def _preset_path(name: str, otherwise: str = "no preset") -> Path:
    if name not in list_presets():
        hint = suggest(name, list_presets()) or f"; presets: {', '.join(list_presets())}"
        raise ValueError(f"plan {name!r} is {otherwise}{hint}")
    return Path(str(resources.files(__name__) / f"{name}.toml"))


def members(suite: Suite, root: str | Path = ".") -> dict[str, Plan]:
    """The plans of a suite by name; paths are relative to `root`."""
    found: dict[str, Plan] = {}
    for each in suite.plans:
        path = Path(root) / each
        plan = find_plan(str(path) if path.is_file() else each)
        if isinstance(plan, Suite):
            raise ValueError(f"suite {suite.name} lists {each!r}, which is a suite itself; list its plans instead")
        if plan.name in found:
            raise ValueError(f"suite {suite.name} has two plans called {plan.name!r}; each needs a folder of its own")
        found[plan.name] = plan
    return found


def note_suite(suite: Suite, out: str | Path, names: list[str]) -> Path:
    """Write ``suite.json`` into `out`: the folders beside it hold the results of the plans in it."""
    Path(out).mkdir(parents=True, exist_ok=True)
    return write_json(Path(out) / SUITE, {**asdict(suite), "plans": names})
