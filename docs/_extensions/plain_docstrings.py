"""Docstrings are written to be read in a terminal; this keeps reStructuredText from misreading them.

`||w||` would be a substitution and `mean_` a link. Both are escaped, outside code and backticks.
"""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"(?<=[A-Za-z0-9])_(?=[^\w`]|$)")
_CODE = re.compile(r"\s*(>>>|\.\.\. |\.\. |:\w)")


def escape(text: str) -> str:
    """One line with bars and trailing underscores escaped, unless they stand between backticks."""
    parts = re.split(r"(`+[^`]*`+)", text)
    parts[::2] = [_LINK.sub(r"\\_", part).replace("|", r"\|") for part in parts[::2]]
    return "".join(parts)


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape in place; code examples end at a blank line, as doctest has it."""
    code = False
    for i, line in enumerate(lines):
        code = bool(line.strip()) and (code or bool(_CODE.match(line)))
        if not code:
            lines[i] = escape(line)


def setup(app: Any) -> dict[str, Any]:
    # after numpydoc, which would not know an escaped name
    app.connect("autodoc-process-docstring", process, priority=900)
    return {"parallel_read_safe": True}
