"""Every format: what goes in comes out, written in one step or not at all."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pro2
from pro2.tables.columns import objects
from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import EXACT, PROVENANCE, SUFFIXES, assert_same, make_table


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_returns_what_was_saved(tmp_path: Path, suffix: str, dtype: str) -> None:
    table = make_table(dtype=dtype)
    opened = EmbeddingTable.open(table.save(tmp_path / f"t{suffix}"))
    assert_same(table, opened, exact=suffix != ".csv")
    assert opened.verify() == opened.digest == opened.origin_digest  # also where the file stores none


@pytest.mark.parametrize("suffix", EXACT)
def test_typed_formats_keep_digest_and_provenance(tmp_path: Path, suffix: str) -> None:
    table = make_table()
    opened = EmbeddingTable.open(table.save(tmp_path / f"t{suffix}"))
    assert opened.digest == table.digest == opened.verify()
    assert opened.provenance == {**PROVENANCE, "pro2_version": pro2.__version__}
    assert {name: values.dtype.kind for name, values in opened.columns.items()} == {
        name: values.dtype.kind for name, values in table.columns.items()
    }


def test_conversion_between_formats_loses_nothing(tmp_path: Path) -> None:
    table = make_table()
    for first, last in itertools.permutations(EXACT, 2):
        middle = EmbeddingTable.open(table.save(tmp_path / f"a{first}", force=True))
        end = EmbeddingTable.open(middle.save(tmp_path / f"b{last}", force=True))
        assert end.verify() == table.digest
        assert end.provenance == middle.provenance


# What a column may hold: the law below is that every format returns it.
ODD = ["1.10", "1.1", "007", "12345678901234567890", "nan", "NaN", "1e5", "True", "=1+1", "'=x", "-5", "@"]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from([*ODD, "a\rb", "\r\n", " ", ""])
COLUMNS = st.sampled_from([
    TEXTS,
    TEXTS | st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1) | st.none(),
    st.floats(allow_nan=True),
    st.booleans(),
    st.booleans() | st.none(),
])  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> EmbeddingTable:
    n, width = draw(st.integers(0, 12)), draw(st.integers(2, 5))
    X = np.random.default_rng(n).standard_normal((n, width)).astype(draw(st.sampled_from(["f2", "f4", "f8"])))
    ids = draw(st.lists(TEXTS, min_size=n, max_size=n, unique=True))
    columns = [draw(st.lists(draw(COLUMNS), min_size=n, max_size=n)) for _ in range(2)]
    names = ["a", draw(st.sampled_from(["b", "odd name", "größe", "=x", "missing"]))]
    return EmbeddingTable(X, ids, {name: objects(values) for name, values in zip(names, columns)})


@given(table=tables())
@settings(max_examples=60, deadline=None)
def test_any_content_survives_every_typed_format(
    tmp_path_factory: pytest.TempPathFactory, table: EmbeddingTable
) -> None:
    folder = tmp_path_factory.mktemp("t")
    for suffix in EXACT:
        opened = EmbeddingTable.open(table.save(folder / f"t{suffix}"))
        assert_same(table, opened)
        assert opened.verify() == table.digest


@given(table=tables(), spreadsheet=st.booleans())
@settings(max_examples=60, deadline=None)
def test_text_files_keep_every_text(
    tmp_path_factory: pytest.TempPathFactory, table: EmbeddingTable, spreadsheet: bool
) -> None:
    """A text comes back as it was, or as a number that is written the same; only missing and empty are one."""
    folder = tmp_path_factory.mktemp("t")
    for suffix in (".csv", ".npy") if len(table) else (".npy",):
        opened = EmbeddingTable.open(table.save(folder / f"{suffix[1:]}{suffix}", spreadsheet=spreadsheet))
        np.testing.assert_array_equal(opened.embeddings, table.embeddings)
        if not spreadsheet and any(str(v).startswith("'") for c in [table.ids, *table.columns.values()] for v in c):
            continue  # written as it is, a quote before a formula is taken for the spreadsheet's
        assert opened.ids.tolist() == table.ids.tolist()
        for name, values in table.columns.items():
            assert [_written(v) for v in opened.column(name).tolist()] == [_written(v) for v in values.tolist()]


def _written(value: Any) -> str:
    """How a cell of CSV would show it; whole floats like the integers that they may have been."""
    if value is None or value != value or value == "nan":
        return ""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for suffix in EXACT:
        a, b = (make_table().save(tmp_path / f"{name}{suffix}") for name in "ab")
        assert a.read_bytes() == b.read_bytes(), suffix


# ---- writing


def test_an_open_table_can_be_saved_over_its_own_file(tmp_path: Path) -> None:
    path = make_table().save(tmp_path / "t.arrow")
    opened = EmbeddingTable.open(path)
    opened.where("y == 1").save(path, force=True)
    assert len(EmbeddingTable.open(path)) == 6
    assert opened.verify() == make_table().digest  # the old map still holds the old file


GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("suffix", [".arrow", ".parquet", ".npz", ".npy", ".safetensors"])
def test_files_of_the_first_version_open(suffix: str) -> None:
    expected = json.loads((GOLDEN / "expected-table-v1.json").read_text(encoding="utf-8"))
    table = EmbeddingTable.open(GOLDEN / f"table-v1{suffix}")
    assert table.ids.tolist() == expected["ids"]
    np.testing.assert_array_equal(table.embeddings, np.float32(expected["embeddings"]))
    for name, values in table.columns.items():
        assert values.tolist() == expected["columns"][name]
    if suffix != ".npy":
        assert table.verify() == expected["digest"]
        assert list(table.columns) == list(expected["columns"])
        assert table.provenance["backbone"] == "toy"


def test_unknown_suffix_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"suffix '\.pkl'"):
        EmbeddingTable.open(tmp_path / "t.pkl")
    with pytest.raises(ValueError, match=r"suffix '\.tsv'"):
        make_table().save(tmp_path / "t.tsv")
    with pytest.raises(FileNotFoundError, match="pro2 embed"):
        EmbeddingTable.open(tmp_path / "t.arrow")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        make_table().save(tmp_path / "no" / "t.arrow")


@pytest.mark.parametrize("suffix", [".arrow", ".parquet", ".npz", ".csv"])
def test_repeated_ids_are_refused_at_the_door(tmp_path: Path, suffix: str) -> None:
    """Files from elsewhere; in ours they cannot be."""
    path = tmp_path / f"t{suffix}"
    twice = pa.table({"id": ["a", "b", "a"], "e0": [0.5, 1.5, 2.5], "e1": [0.5, 0.25, 0.125]})
    if suffix == ".npz":
        np.savez(path, id=np.array(["a", "b", "a"]), X=np.ones((3, 2)))
    elif suffix == ".csv":
        path.write_text("id,e0,e1\na,0.5,1.5\nb,1.5,2.5\na,2.5,0.5\n", encoding="utf-8")
    else:
        pyarrow.feather.write_feather(twice, path) if suffix == ".arrow" else pyarrow.parquet.write_table(twice, path)
    with pytest.raises(ValueError, match=rf"t\{suffix} repeats 1 id\(s\), e\.g\. 'a' 2 times"):
        EmbeddingTable.open(path)
