"""Which results may be mixed: those that the same code made.

The recipe is a hash of the source of every module that a run executes, found by following imports. It is part of each
run's key, so a changed solver never meets the results of the old one, and nobody has to remember to say so.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

START = "pro2.lab.experiments.batches"
# Modules that a run imports but that cannot change its numbers: how models and tables are kept in files.
APART = ("pro2.atomic", "pro2.tables.", "pro2.estimators.files", "pro2.estimators.state", "pro2.estimators.tensors")
NEEDED = ("pro2.tables.shifts",)


@cache
def recipe() -> str:
    """Sixteen hexadecimal digits; the same for the same code."""
    state = hashlib.sha256()
    for name, path in sorted(modules(START).items()):
        state.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def modules(start: str) -> dict[str, Path]:
    """Names and files of all modules of this package that `start` imports, itself included, at whatever depth."""
    found: dict[str, Path] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in found or (name.startswith(APART) and name not in NEEDED):
            continue
        path = _file_of(name)
        if path is not None:
            found[name] = path
            waiting += _imports(path)
    return found


def _imports(path: Path) -> Iterator[str]:
    """Names that a file imports, also inside functions; a name may be a module or something in one."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("pro2."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pro2"):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(name: str) -> Path | None:
    parent = name.rpartition(".")[0]
    folder = importlib.util.find_spec(parent) if parent else None
    if parent and (folder is None or folder.submodule_search_locations is None):
        return None  # a name inside a module
    spec = importlib.util.find_spec(name)
    return Path(spec.origin) if spec is not None and spec.origin else None
