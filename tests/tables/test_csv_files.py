"""CSV: text that is not surely a number stays text, and nothing is taken for a formula."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro2.tables.csv_files import read_columns, typed, write_columns, write_rows
from pro2.tables.embeddings import MAX_NUMBERS, EmbeddingTable
from tests.tables.samples import make_table


def texts(cells: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells, pa.string())])


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "0", "-7"], [1, 0, -7]),
        (["0.5", "-2.25", "3"], [0.5, -2.25, 3.0]),
        (["1e-05", "1e+20"], [1e-05, 1e20]),
        (["True", "False"], [True, False]),
        (["1", "", "0"], [1, None, 0]),
        (["True", ""], [True, None]),
        (["9223372036854775807"], [2**63 - 1]),
        (["9007199254740993", ""], [2**53 + 1, None]),
    ],
)
def test_cells_that_round_trip_are_numbers(cells: list[str], expected: list[Any]) -> None:
    assert typed(texts(cells)).to_pylist() == expected


@pytest.mark.parametrize(
    "cells",
    [
        ["1.10", "1.1"], ["1.10"], ["007"], ["1e5"], ["+1"], [" 1"], ["1_000"], ["-0"], ["0x1"], ["١"], ["NaN"],
        ["12345678901234567890"], ["9223372036854775808"], ["1.0", "1"], ["9007199254740993", "0.5"], ["1", "a"],
        ["0.1000000000000000055"], ["true"], ["", ""], ["inf", "Infinity"], ["0.5", "nan", ""], ["1" * 5000],
    ],
)  # fmt: skip
def test_cells_that_do_not_stay_text(cells: list[str]) -> None:
    assert typed(texts(cells)).to_pylist() == cells


@given(st.lists(st.text() | st.integers().map(str) | st.floats().map(repr), min_size=1))
def test_distinct_cells_stay_distinct(cells: list[str]) -> None:
    """Reading never makes one value of two; a quote before a formula is the one thing that is taken away."""
    clean = [cell for cell in cells if not cell.startswith("'")]
    values = ["" if value is None else value if value == value else "nan" for value in typed(texts(clean)).to_pylist()]
    assert len(set(map(repr, values))) == len(set(clean))


CELLS = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["=1", "+1", "-1", "@a", "'=1", "''@", "\t", "\r", "a\rb"]
)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1))
def test_what_is_written_is_plain_csv_that_no_spreadsheet_runs(rows: list[tuple[str, str]]) -> None:
    file = io.BytesIO()
    write_rows(file, ["id", "label"], rows)
    header, *read = list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))
    assert header == ["id", "label"]
    assert len(read) == len(rows)
    for cells, found in zip(rows, read):
        assert all(cell[:1] not in ("=", "+", "-", "@", "\t", "\r") for cell in found)
        assert all(seen in (cell, f"'{cell}") for cell, seen in zip(cells, found))


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.none()


@given(st.lists(st.tuples(CELLS | st.none(), NUMBERS, st.floats(allow_nan=False) | st.none()), min_size=1))
def test_columns_are_written_as_rows_are(rows: list[tuple[Any, Any, Any]]) -> None:
    by_row, by_column, names = io.BytesIO(), io.BytesIO(), ["id", "n", "x"]
    write_rows(by_row, names, rows)
    kinds = [pa.string(), pa.int64(), pa.float64()]
    write_columns(by_column, pa.table([pa.array(v, kind) for v, kind in zip(zip(*rows), kinds)], names=names))
    assert by_column.getvalue() == by_row.getvalue()


def test_numbers_are_no_formulas_and_the_quote_is_optional() -> None:
    for spreadsheet, text in ((True, "'-a"), (False, "-a")):
        file = io.BytesIO()
        write_rows(file, ["x"], [[-1], [-0.5], ["-a"], [None], [float("nan")]], spreadsheet)
        assert file.getvalue().decode() == f'x\n-1\n-0.5\n{text}\n""\n""\n'


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_semicolons_tabs_blank_lines_and_a_pandas_index(tmp_path: Path, separator: str) -> None:
    lines = [
        ["", "e0", "e1", "site"],
        ["r1", "0.5", "1", "a,b;c" if separator == "\t" else "x"],
        ["r2", "2", "-1.5", "y"],
    ]
    path = tmp_path / ("t.tsv" if separator == "\t" else "t.csv")
    path.write_text("\ufeff" + "\r\n".join(separator.join(line) for line in lines) + "\r\n\r\n", encoding="utf-8")
    table = EmbeddingTable.open(path)
    assert table.ids.tolist() == ["r1", "r2"]
    assert table.embeddings.tolist() == [[0.5, 1.0], [2.0, -1.5]]
    assert list(table.columns) == ["site"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty .* needs a header line"),
        ("b,a,a\n0,1,2\n", "more than one column 'a'"),
        ("id;e0;e1\na;0,5;1,5\n", r"'e0' has decimal commas \(0,5\): write numbers with a point"),
        (f"id,{','.join(f'e{i}' for i in range(60))}\n", r"e48, \.\.\. \(61 columns\)"),
        ("id,e0,e1\na,0.5,1.5\nb,1\n", "row 1 of .* has 2 fields, the header has 3"),
        ('id,e0,e1\n"a,0.5,1.5\n', "row 0 of .* has 1 fields"),
        ("id,e0,e1\n" + "".join(f"{i},0.5,1.5\n" for i in range(2500)) + "x,0.5,oops\n",
         "'e1' of row 2500 in .* is 'oops'; expected a number"),
        ("id,e0,e1\na,0.5,1.5\na,1.5,0.5\n", "repeats 1 id"),
        ('id,e0,e1,t\na,0.5,1.5,"x\nb,1.5,2.5,y\n', "damaged .*quote that opens its last cell"),
        ("id,y\na,1\n", "found none"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_with_the_name_of_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        EmbeddingTable.open(path)
    assert "odd.csv" in str(caught.value)


def test_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("id,label\nä,x\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"t\.csv is not UTF-8 text \(byte 0xe4 at 9\); save it as UTF-8"):
        read_columns(tmp_path / "t.csv")


def test_large_tables_and_wide_columns_are_not_written(tmp_path: Path) -> None:
    wide = EmbeddingTable(np.zeros((2, 2), dtype=np.float32), None, {"box": np.zeros((2, 4))})
    with pytest.raises(ValueError, match="'box' holds several numbers per row"):
        wide.save(tmp_path / "t.csv")
    large = EmbeddingTable(np.broadcast_to(np.float32(0), (MAX_NUMBERS // 1000 + 1, 1000)))
    with pytest.raises(ValueError, match="than the 10,000,000 that"):
        large.save(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="'e1' has the name of a dimension"):
        EmbeddingTable(np.zeros((2, 2)), None, {"e1": [1, 2]}).save(tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_double_only_where_that_keeps_something(tmp_path: Path) -> None:
    double = EmbeddingTable(make_table().embeddings.astype(np.float64) + 1e-12)
    for i, table in enumerate((make_table(), double)):
        opened = EmbeddingTable.open(table.save(tmp_path / f"{i}.csv"))
        assert opened.dtype == table.dtype
        np.testing.assert_array_equal(opened.embeddings, table.embeddings)
