"""Packages that only an extra brings: imported on first use, so that `import pro2` stays light; and their errors."""

from __future__ import annotations

import importlib
from typing import Any


def imported(package: str, otherwise: str, *parts: str) -> Any:
    """A package that need not be installed, and parts of it; where it is not, `otherwise` says how to get it."""
    try:
        for part in parts:
            importlib.import_module(f"{package}.{part}")
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(otherwise) from error


def one_line(error: BaseException, length: int = 200) -> str:
    """What went wrong, on one line, without the pages of context that some libraries add."""
    return " ".join(str(error).split())[:length] or type(error).__name__
