"""Processes that a test started, however deep: what it may kill."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def descendants(title: str) -> list[int]:
    """Numbers of the processes below this one whose title holds a word; Linux alone."""
    parents: dict[int, int] = {}
    titles: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            number = int(folder.name)
            # after the name in brackets, which may hold anything: state and parent
            parents[number] = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            titles[number] = (folder / "cmdline").read_text(errors="replace")
    return [number for number in titles if title in titles[number] and _is_below(number, parents)]


def _is_below(number: int, parents: dict[int, int]) -> bool:
    while number in parents:
        number = parents[number]
        if number == os.getpid():
            return True
    return False
