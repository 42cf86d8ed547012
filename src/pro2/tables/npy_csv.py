"""A bare `.npy` matrix with its ids and columns in a CSV file beside it."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pro2.tables.content import Content, as_embeddings
from pro2.tables.files import ID_NAMES, damaged

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable


def read_npy(path: Path, columns: Mapping[str, Any] | str | PathLike[str] | None) -> Content:
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise damaged(path, error) from error
    if X.ndim != 2 or X.dtype.kind != "f":
        raise ValueError(f"{path} holds {X.dtype}{list(X.shape)}; expected a floating (rows, width) matrix")
    if columns is None and path.with_suffix(".csv").is_file():
        columns = path.with_suffix(".csv")
    loaded = dict(columns) if isinstance(columns, Mapping) else read_csv(Path(columns)) if columns else {}
    for name, values in loaded.items():
        if len(values) != len(X):
            raise ValueError(f"column {name!r} has {len(values)} rows, {path} has {len(X)}; they must be the same rows")
    ids = next((loaded.pop(key) for key in ID_NAMES if key in loaded), None)
    parts = {name: partial(np.asarray, values) for name, values in loaded.items()}
    matrix = np.asarray(X)
    return Content(matrix.shape, matrix.dtype, lambda: [as_embeddings(matrix)], lambda: ids, parts, origin=str(path))


def read_csv(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(f"no CSV file at {path}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    if not rows or len(set(rows[0])) < len(rows[0]):
        raise ValueError(f"{path} needs a header line with one distinct name a column")
    uneven = next((i for i, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if uneven is not None:
        raise ValueError(f"line {uneven + 1} of {path} has {len(rows[uneven])} fields, the header has {len(rows[0])}")
    return {name: np.array(values, dtype=str) if name in ID_NAMES else typed(values) for name, *values in zip(*rows)}


def typed(values: list[str]) -> np.ndarray:
    """Integers, floats and booleans where every value reads as one; text that only looks like a number stays text."""
    text = np.array(values, dtype=str)
    if values and set(values) <= {"True", "False"}:
        return text == "True"
    for kind in (np.int64, np.float64):
        with contextlib.suppress(ValueError, OverflowError):
            numbers = text.astype(kind)
            if kind is np.float64 or np.array_equal(numbers.astype(str), text):  # "007" is a name, not seven
                return numbers if values and not _zero_padded(values) else text
    return text


def _zero_padded(values: list[str]) -> bool:
    return any(len(value) > 1 and value[0] == "0" and value[1].isdigit() for value in values)


def write_npy(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    np.save(file, table.embeddings, allow_pickle=False)


def write_csv(table: EmbeddingTable, file: IO[bytes]) -> None:
    wide = [name for name, values in table.columns.items() if values.ndim > 1]
    if wide:
        raise ValueError(f"column {wide[0]!r} holds several numbers a row, which a CSV file cannot; save as .arrow")
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["id", *table.columns])
    lines.writerows(zip(table.ids.tolist(), *(values.tolist() for values in table.columns.values())))
    text.detach()
