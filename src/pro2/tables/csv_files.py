"""CSV files: tables with one column per dimension, and labels in files of their own.

A cell is read as a number only if that number, written again, gives the same characters: `1.10`, `007` and codes of
twenty digits stay text.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pro2.tables import TableError, damaged, reading
from pro2.tables.arrow import Source, in_memory, not_a_number, to_numpy
from pro2.tables.columns import ID_NAMES, check_unique, choose, column_name, dimension_names, labelled

_LONGEST_ROW = 1 << 24  # bytes
# What a spreadsheet takes for a formula. A quote before it makes it text; one that has a quote already gets another, so
# that reading removes exactly what writing added.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_SPECIAL = re.compile(r"[\",\r\n]|^[ \t]|[ \t]$")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


# ---- reading


def read_table(path: Path, embedding: str | None) -> Source:
    """A table with one column per dimension, and any other columns."""
    cells = _cells(path)
    kinds = {name: _kind(cells.column(name)) for name in cells.schema.names if name not in ID_NAMES}
    names = choose(kinds, embedding, _contents(cells), path)
    X = np.empty((len(cells), len(names)))
    try:
        for j, name in enumerate(names):  # an empty cell is NaN, which verification names by its id
            X[:, j] = to_numpy(_with_nulls(cells.column(name)).cast(pa.float64()), name)
    except pa.ArrowInvalid:
        raise not_a_number(cells, names, str(path)) from None
    with np.errstate(over="ignore"):
        narrow = X.astype(np.float32)
    # float32 where that loses nothing: what was written from float32 is float32 again
    exact = np.array_equal(narrow, X, equal_nan=True)
    return in_memory(narrow if exact else X, _typed_columns(cells.drop_columns(names)), str(path))


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """All columns of a CSV file, typed."""
    if not path.is_file():
        raise FileNotFoundError(f"no CSV file at {path}")
    with reading(path):
        return {name: to_numpy(column, name) for name, column in _typed_columns(_cells(path)).items()}


def _cells(path: Path) -> pa.Table:
    """All cells as text, separated by comma, semicolon or tab, whichever the header has most."""
    odd: list[Any] = []
    with path.open("rb") as file:
        start = file.readline(1 << 20)
    parse = pa.csv.ParseOptions(
        delimiter=max(",;\t", key=lambda mark: start.count(mark.encode())),
        newlines_in_values=True,
        invalid_row_handler=lambda row: odd.append(row) or "error",  # type: ignore[func-returns-value]
    )
    read = pa.csv.ReadOptions(block_size=_LONGEST_ROW, use_threads=False)  # threads do not count rows
    try:
        names = pa.csv.open_csv(path, read, parse).schema.names
        text = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        cells = pa.csv.read_csv(path, read, parse, text)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if odd:
            found = f"row {odd[0].number - 2} of {path} ({odd[0].text[:40]!r}) has {odd[0].actual_columns} fields"
            raise TableError(f"{found}, the header has {odd[0].expected_columns}") from None
        if "Empty CSV" in str(error):
            raise TableError(f"{path} is empty and needs a header line with column names") from None
        try:  # a spreadsheet's own encoding is not damage: the file has to be saved in another way
            path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as wrong:
            raise TableError(
                f"{path} is not UTF-8 text (byte {wrong.object[wrong.start]:#04x} at {wrong.start}); "
                "save it as UTF-8, in a spreadsheet as 'CSV UTF-8'"
            ) from None
        raise
    if repeated := [name for name, n in Counter(names).items() if n > 1]:
        raise TableError(f"{path} has more than one column {repeated[0]!r}; rename all but one in its header line")
    # The parser ends an open quote at the end of the file, and so would take all rows after it for one cell.
    if len(cells) and "\n" in cells.column(len(names) - 1)[-1].as_py() and path.read_bytes().count(b'"') % 2:
        raise damaged(path, "the quote that opens its last cell is never closed")
    return cells


def _with_nulls(cells: pa.ChunkedArray, gaps: Sequence[str] = ("", "NA")) -> pa.ChunkedArray:
    return pc.if_else(pc.is_in(cells, value_set=pa.array(gaps)), pa.scalar(None, pa.string()), cells)


def _kind(cells: pa.ChunkedArray) -> str:
    """Whether the first cells of a column are integers, numbers or something else, as `columns.choose` asks."""
    head = _with_nulls(cells[:1024])
    if pc.all(pc.match_substring_regex(head, "^-?[0-9]+$")).as_py() is not False:  # None: there is no value
        return "int"
    try:
        head.cast(pa.float64())
    except pa.ArrowInvalid:
        return "other"
    return "float"


def _contents(cells: pa.Table) -> str:
    """What a file holds, for the message that no embedding was found."""
    names = cells.schema.names
    listed = ", ".join(names[:50]) + (f", ... ({len(names)} columns)" if len(names) > 50 else "")
    for name, column in zip(names, cells.columns):
        if len(column) and _DECIMAL_COMMA.fullmatch(column[0].as_py()):
            return f"{listed}; {name!r} has decimal commas ({column[0].as_py()}): write numbers with a point"
    return listed


def _typed_columns(cells: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Columns in the types that their texts allow; ids stay text whatever they look like."""
    names = [name[1:] if name.startswith("'") and _FORMULA.match(name) else name for name in cells.schema.names]
    if "" in names and not set(names) & set(ID_NAMES):
        names[names.index("")] = "id"  # the index of a pandas frame
    return {column_name(name): typed(column, name in ID_NAMES) for name, column in zip(names, cells.columns)}


def typed(cells: pa.ChunkedArray, is_id: bool = False) -> pa.ChunkedArray:
    """Booleans, integers or floats where every cell is exactly one, and text otherwise; an empty cell is missing."""
    distinct = [] if is_id else cells.unique().to_pylist()
    values = [text for text in distinct if text != ""]
    kind = None
    if values and set(values) <= {"True", "False"}:
        kind = pa.bool_()
    elif values and _round_trip(values, pa.int64()):
        kind = pa.int64()
    elif values and _round_trip(values, pa.float64()) and not {"", "nan"} <= set(distinct):
        kind = pa.float64()
    if kind is not None:
        return _with_nulls(cells, [""]).cast(kind)
    # without the quote that keeps a spreadsheet from running a text
    return pc.replace_substring_regex(cells, r"^'('*[=+\-@\t\r])", r"\1")


def _round_trip(cells: list[str], kind: pa.DataType) -> bool:
    """Whether every cell is written as Python writes its number, and no two cells are one number."""
    try:
        numbers = pa.array(cells).cast(kind).to_pylist()
    except pa.ArrowInvalid:
        return False
    exact = (repr(x) == cell or (abs(x) <= 2**53 and str(int(x)) == cell) for cell, x in zip(cells, numbers))
    return all(exact) and len(set(numbers)) == len(cells)


def read_labels(paths: Sequence[Path], label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and labels of the labelled lines of CSV files with a column `id` and one of labels.

    An id may have a label in one file only. The labels are in the column `label`, by default ``label`` or the only one
    besides the ids.
    """
    parts = []
    for path in paths:
        columns = read_columns(path)
        ids = next((columns.pop(name) for name in ID_NAMES if name in columns), None)
        if ids is None:
            raise TableError(f"{path} has no column 'id'; its columns are {', '.join(columns)}")
        check_unique(ids, str(path))
        name = label or (next(iter(columns)) if len(columns) == 1 else "label")
        if name not in columns:
            others = ", ".join(columns) or "none"
            raise TableError(f"{path} has no label column {name!r}; besides the ids it has {others}")
        labels, mask = labelled(columns[name])
        parts.append((ids[mask], labels))
    ids, labels = (np.concatenate(column) for column in zip(*parts))
    check_unique(ids, " and ".join(map(str, paths)))
    return ids, labels


# ---- writing


def write_rows(file: IO[bytes], header: Sequence[str], rows: Iterable[Sequence[Any]], spreadsheet: bool = True) -> None:
    """Write lines of text, numbers, booleans, or None for an empty cell.

    With `spreadsheet`, text that a spreadsheet would take for a formula gets a quote before it.
    """
    # a file name may hold bytes that are not text
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
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


def write_columns(file: IO[bytes], table: pa.Table, header: bool = True) -> None:
    """What `write_rows` writes, of columns of text, integers and numbers; missing values are empty cells."""
    if header:
        write_rows(file, table.column_names, [])
    comma, end, nothing = (pa.scalar(text, pa.large_string()) for text in (",", "\n", ""))
    for batch in table.to_batches():
        line = pc.binary_join_element_wise(*(_texts(column).fill_null("") for column in batch.columns), comma)
        lines = pc.binary_join_element_wise(line, nothing, end)
        file.write(lines.buffers()[2])


def _texts(column: pa.Array) -> pa.Array:
    """What `_cell` makes of each value; of almost all of them Arrow makes the same."""
    texts, is_number = column.cast(pa.large_string()), pa.types.is_floating(column.type)
    if pa.types.is_integer(column.type):
        return texts
    if is_number:
        size = pc.abs(column)
        # Arrow writes 1 and 0.00001 where Python, and our reader, have 1.0 and 1e-05
        odd = pc.or_(pc.less(size, 1e-4), pc.or_(pc.greater_equal(size, 1e9), pc.equal(size, pc.trunc(size))))
    else:
        odd = pc.match_substring_regex(texts, f"{_SPECIAL.pattern}|^{_FORMULA.pattern}")
    cells = [_cell(float(text) if is_number else text, spreadsheet=True) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd.fill_null(False), pa.array(cells, pa.large_string()))


def write_table(columns: Mapping[str, np.ndarray], X: np.ndarray | None, spreadsheet: bool, file: IO[bytes]) -> None:
    """Write ids, columns and one column per dimension; a CSV file has no place for provenance and digest."""
    wide = [name for name, values in columns.items() if values.ndim > 1]
    if wide:
        raise TableError(f"column {wide[0]!r} holds several numbers per row, which a CSV file cannot; save as .arrow")
    names = list(columns)
    rows: Iterable[Sequence[Any]] = zip(*(values.tolist() for values in columns.values()))
    if X is not None:
        names += dimension_names(X.shape[1], names)
        rows = ([*cells, *x.tolist()] for cells, x in zip(rows, X.astype(np.float64)))
    write_rows(file, names, rows, spreadsheet)
