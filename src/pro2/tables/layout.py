"""Which columns of a file hold the embedding: one column of lists, or one column per dimension."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pro2.tables.errors import TableError

ID_NAMES = ("id", "ids")
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)


def choose(
    matrices: Sequence[str], numbers: Mapping[str, bool], embedding: str | None, found: str, origin: object
) -> list[str]:
    """Names of the one column of lists that is the embedding, or of its columns in the order of their numbers.

    Parameters
    ----------
    matrices : names of columns or arrays with a row of floats per row
    numbers : names of columns with one number per row; True for those that hold floats
    embedding : str or None
        A name, a pattern (``e*``), a prefix (``e`` for ``e0``, ``e1``, ...) or a range (``e0:e1279``, both ends
        included). None: the only column of lists, or else the only numbered run of float columns.
    found : str
        What the file holds, for the message.
    """
    if embedding is None:
        return _guessed(matrices, numbers, found, origin)
    if embedding in matrices:
        return [embedding]
    names = sorted(_matching(embedding, numbers, origin), key=natural)
    if len(names) < 2:
        raise TableError(
            f"embedding={embedding!r} is neither a floating (rows, width) array nor a set of number columns in "
            f"{origin}; candidates: {_candidates(matrices, numbers)}; it holds {found}"
        )
    return names


def _guessed(matrices: Sequence[str], numbers: Mapping[str, bool], found: str, origin: object) -> list[str]:
    if len(matrices) == 1:
        return [matrices[0]]
    runs = _runs([name for name, floating in numbers.items() if floating])
    if not matrices and len(runs) == 1:
        return runs[0]
    n = len(matrices) + len(runs)
    what = f"{n} candidates ({_candidates(matrices, numbers)})" if n else "none"
    raise TableError(
        f"expected one floating (rows, width) embedding in {origin}, found {what}; name it with embedding=NAME, or "
        f"embedding='e*' for one column per dimension. The file holds {found}"
    )


def _matching(embedding: str, numbers: Mapping[str, bool], origin: object) -> list[str]:
    if ":" in embedding:
        first, _, last = embedding.partition(":")
        return _range(first, last, numbers, origin)
    if not re.search(r"[*?\[]", embedding):
        return [name for name in numbers if name.startswith(embedding) and name[len(embedding) :].isdecimal()]
    names = [name for name in numbers if fnmatchcase(name, embedding)]
    bare = [name for name in names if not _NUMBERED.fullmatch(name)]
    if bare and len(bare) < len(names):
        raise TableError(
            f"embedding={embedding!r} takes {bare[0]!r} of {origin} beside numbered columns; "
            f"be more precise: {', '.join(_spans([n for n in names if n not in bare]))}"
        )
    return names


def _range(first: str, last: str, numbers: Mapping[str, bool], origin: object) -> list[str]:
    ends = [_NUMBERED.fullmatch(name) for name in (first, last)]
    if ends[0] is None or ends[1] is None or ends[0][1] != ends[1][1]:
        raise TableError(f"embedding='{first}:{last}' is no range; expected two numbered names such as e0:e1279")
    prefix, low, high = ends[0][1], int(ends[0][2]), int(ends[1][2])
    numbered = {name: _NUMBERED.fullmatch(name) for name in numbers}
    names = [name for name, m in numbered.items() if m and m[1] == prefix and low <= int(m[2]) <= high]
    if len(names) != high - low + 1:
        raise TableError(
            f"embedding='{first}:{last}' names {high - low + 1} columns, {origin} has {len(names)} of them with numbers"
        )
    return names


def _runs(names: Sequence[str]) -> list[list[str]]:
    """Columns that count from 0 or 1 under one prefix: e0, e1, e2, ..."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if numbered := _NUMBERED.fullmatch(name):
            groups.setdefault(numbered[1], []).append(name)
    runs = []
    for prefix, members in groups.items():
        for start in (0, 1):
            expected = [f"{prefix}{i}" for i in range(start, start + len(members))]
            if len(members) > 1 and set(members) == set(expected):
                runs.append(expected)
    return runs


def _spans(names: Sequence[str]) -> list[str]:
    return [f"{run[0]}:{run[-1]}" for run in _runs(names)]


def _candidates(matrices: Sequence[str], numbers: Mapping[str, bool]) -> str:
    spans = _spans([name for name, floating in numbers.items() if floating])
    return ", ".join([*matrices, *spans]) or "none"


def natural(name: str) -> list[Any]:
    """Sort key under which e2 comes before e10, whatever the order in the file."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name))]


def wide_names(width: int, taken: Sequence[str]) -> list[str]:
    """Names for one column per dimension: e0, e1, ..."""
    names = [f"e{i}" for i in range(width)]
    clash = sorted(set(names) & set(taken))
    if clash:
        raise TableError(f"column {clash[0]!r} has the name of a dimension of the embedding; rename it first")
    return names
