"""Columns as NumPy arrays: missing values, labels, row numbers, and which columns are the embedding.

A missing value is NaN among numbers and None elsewhere. Text is never made fixed-width, because one long caption would
make every row as long. Integers with missing values are floats as long as that is exact, as in pandas; larger ones, and
booleans with missing values, are objects.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import count, takewhile
from typing import Any

import numpy as np

from pro2.tables import TableError

ID_NAMES = ("id", "ids")
RESERVED = ("embedding", "embeddings", "pro2")  # with "id", the names with a meaning in the files
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written; the array it came from keeps its own flags."""
    view = array.view()
    view.setflags(write=False)
    return view


def objects(values: Sequence[Any]) -> np.ndarray:
    """A list as an object array of one dimension, whatever its items are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def column_name(name: str) -> str:
    """A foreign file may hold two embeddings; the one not chosen must not replace the other when saved."""
    return f"{name}_column" if name in RESERVED else name


def to_json(value: Any) -> str:
    """JSON with sorted keys: equal contents give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def row_numbers(rows: Any, n_rows: int) -> np.ndarray:
    """Row numbers, or a mask over all rows, as row numbers that exist."""
    index = np.asarray(rows)
    if index.dtype.kind == "b" and index.shape == (n_rows,):
        return np.flatnonzero(index)
    if index.size == 0:
        index = index.astype(np.intp)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise TableError(f"rows must be a list of row numbers or a mask of {n_rows}, found {index.dtype} {index.shape}")
    if index.size and (index.min() < 0 or index.max() >= n_rows):
        raise TableError(f"rows go from {index.min()} to {index.max()}; there are rows 0 to {n_rows - 1}")
    return index


def check_unique(ids: Iterable[str], origin: str) -> None:
    """Ids name rows: two rows with the same name cannot be distinguished."""
    repeated = {name: n for name, n in Counter(ids).items() if n > 1}
    if repeated:
        raise TableError(
            f"{origin} repeats {len(repeated)} id(s), e.g. {str(min(repeated))!r} {max(repeated.values())} times; "
            "ids must be unique: give each row its own in a column called id, or drop the repeated rows"
        )


# ---- missing values and labels


def filled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """A column with something in place of None, and the mask of those rows; no mask when there are none."""
    if values.dtype.kind != "O":
        return values, None
    items = values.tolist()
    missing = np.fromiter((item is None for item in items), bool, len(items))
    first = next((item for item in items if item is not None), "")
    if not isinstance(first, str):
        return np.array([type(first)() if item is None else item for item in items], dtype=type(first)), missing
    if missing.any():
        return objects(["" if item is None else item for item in items]), missing
    return values, None


def labelled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels of the labelled rows, and the mask of those rows; None, NaN and empty text mean that a row has no label.

    Integers that had become floats because of missing ones are integers again.
    """
    full, missing = filled(values)
    mask = np.ones(len(values), dtype=bool) if missing is None else ~missing
    if full.dtype.kind == "O":
        mask &= full != ""
    elif full.dtype.kind == "f":
        mask &= ~np.isnan(full)
    labels = full[mask]
    if labels.dtype.kind == "f" and not mask.all() and all(label.is_integer() for label in labels.tolist()):
        labels = labels.astype(np.int64)
    return labels, mask


def like_classes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels in the type of a model's classes: a text file cannot tell the text "1" from the number."""
    by_text, found = {str(label): label for label in classes.tolist()}, set(labels.tolist())
    if found <= set(by_text.values()) or not {str(label) for label in found} <= set(by_text):
        return labels
    return np.array([by_text[str(label)] for label in labels.tolist()], dtype=classes.dtype)


# ---- which columns are the embedding


def choose(kinds: Mapping[str, str], embedding: str | None, contents: str, origin: object) -> list[str]:
    """Names of the one column of lists that is the embedding, or of one column per dimension in numerical order.

    `kinds` says of each column whether it is a "list" of floats per row, "float", "int", or anything else. `embedding`
    is a name or a pattern such as ``e*``; without it, the only column of lists is taken, or else the only run of float
    columns that are numbered from 0 or 1. Numbered columns of other kinds are among them: a dimension with a word in
    one cell must be an error, which the caller raises, and not a narrower embedding. `contents` is for messages.
    """
    lists = [name for name, kind in kinds.items() if kind == "list"]
    runs = _runs(kinds)
    candidates = ", ".join([*lists, *(f"{run[0]} to {run[-1]}" for run in runs)]) or "none"
    if embedding is not None:
        names = [embedding] if embedding in lists else _matching(kinds, embedding, origin)
        if embedding not in lists and len(names) < 2:
            raise TableError(
                f"embedding={embedding!r} is neither a floating (rows, width) array nor a pattern of number columns, "
                f"such as 'e*', in {origin}; candidates: {candidates}; it holds {contents}"
            )
        return names
    if len(lists) == 1:
        return lists
    if not lists and len(runs) == 1:
        return runs[0]
    n = len(lists) + len(runs)
    found = f"{n} candidates ({candidates})" if n else "none"
    raise TableError(
        f"expected one floating (rows, width) embedding in {origin}, found {found}; name it with embedding=NAME, or "
        f"embedding='e*' for one column per dimension. The file holds {contents}"
    )


def _matching(kinds: Mapping[str, str], pattern: str, origin: object) -> list[str]:
    if not re.search(r"[*?\[]", pattern):
        return []
    names = [name for name, kind in kinds.items() if kind != "list" and fnmatchcase(name, pattern)]
    numbered = sorted((name for name in names if _NUMBERED.fullmatch(name)), key=natural)
    others = [name for name in names if kinds[name] in ("float", "int") and name not in set(numbered)]
    if numbered and others:
        raise TableError(
            f"embedding={pattern!r} also takes {others[0]!r} of {origin}, which is not numbered as {numbered[0]!r} to "
            f"{numbered[-1]!r} are; use a narrower pattern, such as {numbered[0][:-1] + '[0-9]*'!r}"
        )
    return (numbered or others) if any(kinds[name] in ("float", "int") for name in names) else []


def _runs(kinds: Mapping[str, str]) -> list[list[str]]:
    """Columns that count from 0 or 1 after one prefix, e0, e1, e2, ..., with all float columns of that prefix."""
    floats: dict[str, set[str]] = {}
    for name, kind in kinds.items():
        if kind == "float" and (numbered := _NUMBERED.fullmatch(name)):
            floats.setdefault(numbered[1], set()).add(name)
    runs = {}
    for prefix, members in floats.items():
        start = 0 if f"{prefix}0" in kinds else 1
        run = list(takewhile(lambda name: kinds.get(name, "list") != "list", (f"{prefix}{i}" for i in count(start))))
        if len(run) > 1 and members <= set(run):
            runs[prefix] = run
    # One float among other columns is an embedding with a damaged dimension only if nothing better is there.
    return [run for prefix, run in runs.items() if len(floats[prefix]) > 1] or list(runs.values())


def natural(name: str) -> list[Any]:
    """Sort key for which e2 comes before e10, whatever the order in the file."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name))]


def dimension_names(width: int, taken: Sequence[str]) -> list[str]:
    """Names for one column per dimension: e0, e1, ..."""
    names = [f"e{i}" for i in range(width)]
    clash = sorted(set(names) & set(taken))
    if clash:
        raise TableError(f"column {clash[0]!r} has the name of a dimension of the embedding; rename it first")
    return names
