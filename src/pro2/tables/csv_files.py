"""CSV files: the columns of a table, whole tables with one column per dimension, and labels in files of their own.

A cell is read as a number only if that number, written again, gives the same characters: `1.10`, `007` and codes of
twenty digits stay text. Limits: a cell has at most 131,072 characters (Python's own limit), and a table of more than
ten million numbers is not written.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np

from pro2.tables.columns import check_unique, objects
from pro2.tables.content import Content, ready
from pro2.tables.errors import TableError, reading
from pro2.tables.labels import labelled
from pro2.tables.layout import ID_NAMES, choose, wide_names
from pro2.tables.rows import Rows

MAX_NUMBERS = 10**7
_CHUNK = 1024  # rows that are text at one time
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
# What a spreadsheet takes for a formula. A quote before it makes it text; one that has a quote already gets another, so
# that reading takes away exactly what writing added.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_SPECIAL = re.compile(r"[\",\r\n]|^\s|\s$")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


# ---- reading


def read_table(path: Path, embedding: str | None) -> Content:
    """A table with one column per dimension, and any other columns."""
    rows = _rows(path)
    header = next(rows)
    first = list(islice(rows, _CHUNK))
    numbers = _number_columns(header, first)
    chosen = choose([], numbers, embedding, _held(header, first), path)
    pick = itemgetter(*(header.index(name) for name in chosen))
    kept = [i for i, name in enumerate(header) if name not in set(chosen)]
    cells: list[list[str]] = [[] for _ in kept]
    blocks: list[np.ndarray] = []
    for chunk in chain([first], iter(lambda: list(islice(rows, _CHUNK)), [])):
        blocks.append(_floats(pick, chunk, chosen, path, _CHUNK * len(blocks)))
        for column, i in zip(cells, kept):
            column.extend(row[i] for row in chunk)
    X = np.concatenate(blocks)
    narrow = X.astype(np.float32)
    # float32 where that loses nothing: what was written from float32 is float32 again
    X = narrow if np.array_equal(narrow, X, equal_nan=True) else X
    columns = _typed_columns([header[i] for i in kept], cells)
    ids = next((columns.pop(name) for name in (*ID_NAMES, "") if name in columns), None)
    parts = {name: ready(values) for name, values in columns.items()}
    return Content(X.shape, X.dtype, lambda: [X], lambda: ids, parts, origin=str(path))


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """All columns of a CSV file, typed."""
    if not path.is_file():
        raise FileNotFoundError(f"no CSV file at {path}")
    with reading(path):
        header, *rows = _rows(path)
        return _typed_columns(header, [[row[i] for row in rows] for i in range(len(header))])


def _rows(path: Path) -> Iterator[list[str]]:
    """The header, then rows of the same length; separated by comma, semicolon or tab, whichever the header has most."""
    with path.open(newline="", encoding="utf-8-sig") as file, _as_utf8(path):
        start = file.readline(1 << 20)
        file.seek(0)
        lines = csv.reader(file, delimiter=max(",;\t", key=start.count), strict=True)
        header = list(map(_unquoted, next(lines, [])))
        if not header:
            raise TableError(f"{path} is empty or begins with an empty line; it needs a header line with column names")
        twice = [name for name, n in Counter(header).items() if n > 1]
        if twice:
            raise TableError(f"{path} has more than one column {twice[0]!r}; rename all but one in its header line")
        yield header
        for row in lines:
            if len(row) == len(header):
                yield row
            elif row:
                raise TableError(f"line {lines.line_num} of {path} has {len(row)} fields, the header has {len(header)}")


@contextlib.contextmanager
def _as_utf8(path: Path) -> Iterator[None]:
    """A spreadsheet's own encoding is no damage: it has to be saved otherwise."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x} at {error.start}); "
            "save it as UTF-8, in a spreadsheet as 'CSV UTF-8'"
        ) from error


def _held(header: list[str], rows: list[list[str]]) -> str:
    """What a file holds, for the message that no embedding was found."""
    names = ", ".join(header[:50]) + (f", ... ({len(header)} columns)" if len(header) > 50 else "")
    for row in rows[:1]:
        comma = next((i for i, cell in enumerate(row) if _DECIMAL_COMMA.fullmatch(cell)), None)
        if comma is not None:
            names += f"; {header[comma]!r} has decimal commas ({row[comma]}): write numbers with a point"
    return names


def _number_columns(header: list[str], rows: list[list[str]]) -> dict[str, bool]:
    """Columns whose first cells are numbers; True where one has a fraction."""
    numbers = {}
    for i, name in enumerate(header):
        cells = [row[i] for row in rows if row[i]]
        if cells and name not in ID_NAMES and all(_is_number(cell) for cell in cells):
            numbers[name] = not all(_INTEGER.fullmatch(cell) for cell in cells)
    return numbers


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _floats(pick: Callable[..., Any], rows: list[list[str]], names: list[str], path: Path, start: int) -> np.ndarray:
    """Cells of the embedding; an empty one is NaN, which verification names by its id."""
    try:
        block = [[float(cell or "nan") for cell in pick(row)] for row in rows]
    except ValueError:
        for number, row in enumerate(rows, start + 1):
            for name, cell in zip(names, pick(row)):
                if cell and not _is_number(cell):
                    raise TableError(
                        f"{name!r} of row {number} in {path} is {cell[:40]!r}; expected a number"
                    ) from None
        raise
    return np.array(block, dtype=np.float64).reshape(len(rows), len(names))


def _typed_columns(header: Sequence[str], columns: Iterable[list[str]]) -> dict[str, np.ndarray]:
    """Ids stay text whatever they look like."""
    return {
        name: objects(list(map(_unquoted, cells))) if name in ID_NAMES else typed(cells)
        for name, cells in zip(header, columns)
    }


def typed(cells: Sequence[str]) -> np.ndarray:
    """Flags, integers or floats where every cell is exactly one, and text otherwise; an empty cell is missing."""
    distinct = set(cells) - {""}
    if distinct and distinct <= {"True", "False"}:
        return _with_gaps(cells, lambda cell: cell == "True", bool)
    if distinct and all(map(_is_integer, distinct)):
        return _with_gaps(cells, int, np.int64)
    if distinct and _are_floats(distinct) and not {"", "nan"} <= set(cells):
        return np.array([float(cell or "nan") for cell in cells])
    return objects(list(map(_unquoted, cells)))


def _is_integer(cell: str) -> bool:
    return bool(_INTEGER.fullmatch(cell)) and -(2**63) <= int(cell) < 2**63


def _are_floats(distinct: set[str]) -> bool:
    """Every cell is written as Python writes its number, and no two cells are one number."""
    exact = (_is_number(c) and (repr(float(c)) == c or (_is_integer(c) and abs(int(c)) <= 2**53)) for c in distinct)
    return all(exact) and len({float(cell) for cell in distinct}) == len(distinct)


def _with_gaps(cells: Sequence[str], read: Callable[[str], Any], dtype: Any) -> np.ndarray:
    values = [read(cell) if cell else None for cell in cells]
    return objects(values) if None in values else np.array(values, dtype=dtype)


def _unquoted(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def read_labels(paths: Sequence[Path], label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and labels of the labelled lines of CSV files with a column `id` and one of labels.

    Parameters
    ----------
    paths : sequence of Path
        One file per round of labelling, say; an id may have a label in one of them only.
    label : str, optional
        Name of the label column. By default ``label``, or the only column beside the ids.
    """
    parts = [_read_one(path, label) for path in paths]
    ids, labels = (np.concatenate(each) for each in zip(*parts))
    check_unique(ids, " and ".join(map(str, paths)))
    return ids, labels


def _read_one(path: Path, label: str | None) -> tuple[np.ndarray, np.ndarray]:
    columns = read_columns(path)
    id_name = next((name for name in ID_NAMES if name in columns), None)
    if id_name is None:
        raise TableError(f"{path} has no column 'id'; its columns are {', '.join(columns)}")
    ids = columns.pop(id_name)
    check_unique(ids, str(path))
    name = label or (next(iter(columns)) if len(columns) == 1 else "label")
    if name not in columns:
        raise TableError(f"{path} has no label column {name!r}; beside the ids it has {', '.join(columns) or 'none'}")
    labels, mask = labelled(columns[name])
    return ids[mask], labels


# ---- writing


def write_rows(file: IO[bytes], header: Sequence[str], rows: Iterable[Sequence[Any]], spreadsheet: bool = True) -> None:
    """Write lines of CSV; with `spreadsheet`, text that a spreadsheet would take for a formula gets a quote before it.

    Parameters
    ----------
    rows : iterable of sequences
        Text, numbers, flags, or None for an empty cell.
    """
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    for row in chain([header], rows):
        line = ",".join([_cell(value, spreadsheet) for value in row])
        text.write((line or '""') + "\n")
    text.detach()


def _cell(value: Any, spreadsheet: bool) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return "" if value != value else repr(value)
    if spreadsheet and _FORMULA.match(value):
        value = f"'{value}"
    # Python's csv writer leaves a lone carriage return bare, and no reader takes that file back.
    return '"' + value.replace('"', '""') + '"' if _SPECIAL.search(value) else value


def write_columns(table: Rows, file: IO[bytes], spreadsheet: bool = True) -> None:
    """Write ids and columns, without the embedding."""
    columns = _flat_columns(table)
    write_rows(file, list(columns), zip(*columns.values()), spreadsheet)


def write_table(table: Rows, meta: Mapping[str, str], file: IO[bytes], spreadsheet: bool = True) -> None:
    """Write ids, columns and one column per dimension; a CSV file has no place for provenance and digest."""
    if table.n_rows * table.width > MAX_NUMBERS:
        raise TableError(
            f"{table.n_rows} rows of width {table.width} are more than the {MAX_NUMBERS:,} numbers that are written "
            "as CSV; save as .arrow or .parquet"
        )
    columns = _flat_columns(table)
    names = [*columns, *wide_names(table.width, list(columns))]
    rows = zip(zip(*columns.values()), table.embeddings.astype(np.float64))
    write_rows(file, names, ([*cells, *x.tolist()] for cells, x in rows), spreadsheet)


def _flat_columns(table: Rows) -> dict[str, list[Any]]:
    wide = [name for name, values in table.columns.items() if values.ndim > 1]
    if wide:
        raise TableError(f"column {wide[0]!r} holds several numbers per row, which a CSV file cannot; save as .arrow")
    return {"id": table.ids.tolist(), **{name: values.tolist() for name, values in table.columns.items()}}
