"""Plan files as plain values: TOML or YAML, within limits, so that no file can take the machine down."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pro2.extras import imported

# A plan is a page of text; these are far above any real one and far below what could hurt.
MOST_BYTES = 64 * 2**10
MOST_NESTED = 64  # parts of a key, or brackets inside each other: what is deeper is quadratic to read


def read_plain(path: str | Path) -> Any:
    """Plain values of a ``.toml``, ``.yaml`` or ``.yml`` file; anything too large or too deep is refused."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"plan {str(path)!r} is not a file; `pro2 plans` lists the presets that are ready to run")
    if path.suffix not in (".toml", ".yaml", ".yml"):
        raise ValueError(f"plan {path.name} ends in {path.suffix!r}; expected .toml, .yaml or .yml")
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"plan {path.name} has {size} bytes; at most {MOST_BYTES} are read")
    return _parse(path)


def _parse(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"plan {path.name} is not UTF-8 text: {error}") from error
    nested = _nesting(text)
    if nested > MOST_NESTED:
        raise ValueError(f"plan {path.name} is nested {nested} levels deep; at most {MOST_NESTED} are read")
    if path.suffix != ".toml":
        return _yaml(path, text)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"plan {path.name} is not valid TOML: {str(error)[:200]}") from error


def _nesting(text: str) -> int:
    """How deep a file may go, from its characters alone: dots of a key, dashes of a line, brackets."""
    lines = text.splitlines()
    dots = max((line.split("=")[0].count(".") for line in lines), default=0)
    dashes = max((len(re.match(r"[-?:\s]*", line)[0].split()) for line in lines), default=0)  # type: ignore[index]
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return max(dots, dashes, deepest)


def _yaml(path: Path, text: str) -> Any:
    yaml = imported("yaml", "a YAML plan needs PyYAML: pip install pyyaml (TOML plans need nothing)")
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError(f"plan {path.name} uses a YAML alias (*name); write the values out")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"plan {path.name} is not valid YAML: {str(error)[:200]}") from error
