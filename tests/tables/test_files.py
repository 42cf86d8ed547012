"""Files of every format: what goes in comes out, read when it is asked for, and what cannot be used is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pro2
from pro2.tables.columns import objects
from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import EXACT, PROVENANCE, SUFFIXES, assert_same, make_table, write_foreign

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_returns_what_was_saved(tmp_path: Path, suffix: str, dtype: str) -> None:
    table = make_table(dtype=dtype)
    path = table.save(tmp_path / f"t{suffix}")
    opened = EmbeddingTable.open(path)
    assert_same(table, opened, exact=suffix != ".csv")
    assert opened.verify() == opened.digest == opened.origin_digest  # also where the file stores none
    if suffix in EXACT:
        assert opened.digest == table.digest
        assert opened.provenance == {**PROVENANCE, "pro2_version": pro2.__version__}
        kinds = [{name: values.dtype.kind for name, values in each.columns.items()} for each in (opened, table)]
        assert kinds[0] == kinds[1]
        assert opened.save(tmp_path / f"again{suffix}").read_bytes() == path.read_bytes()


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
@settings(max_examples=60)
def test_any_content_survives_every_typed_format(
    tmp_path_factory: pytest.TempPathFactory, table: EmbeddingTable
) -> None:
    folder, opened = tmp_path_factory.mktemp("t"), table
    for suffix in [*EXACT, EXACT[0]]:  # each is written from what the one before it gave
        opened = EmbeddingTable.open(opened.save(folder / f"t{suffix}", force=True))
        assert_same(table, opened)
        assert opened.verify() == table.digest


@given(table=tables(), spreadsheet=st.booleans())
@settings(max_examples=60)
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


def test_an_open_table_can_be_saved_over_its_own_file(tmp_path: Path) -> None:
    path = make_table().save(tmp_path / "t.arrow")
    opened = EmbeddingTable.open(path)
    opened.where("y == 1").save(path, force=True)
    assert len(EmbeddingTable.open(path)) == 6
    assert opened.verify() == make_table().digest  # the old map still holds the old file


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
def test_repeated_ids_are_refused_at_opening(tmp_path: Path, suffix: str) -> None:
    """Files from elsewhere; in ours they cannot be."""
    path = tmp_path / f"t{suffix}"
    if suffix == ".npz":
        np.savez(path, id=np.array(["a", "b", "a"]), X=np.ones((3, 2)))
    else:
        write_foreign(pa.table({"id": ["a", "b", "a"], "e0": [0.5, 1.5, 2.5], "e1": [0.5, 0.25, 0.125]}), path)
    with pytest.raises(ValueError, match=rf"t\{suffix} repeats 1 id\(s\), e\.g\. 'a' 2 times"):
        EmbeddingTable.open(path)


# ---- Arrow and Parquet


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_arrow_is_mapped_read_when_asked_for_and_read_only(tmp_path: Path, dtype: str) -> None:
    path = make_table(n=1000, dtype=dtype).save(tmp_path / "t.arrow")
    before = pa.total_allocated_bytes()
    opened = EmbeddingTable.open(path)
    assert (opened.n_rows, opened.width) == (1000, 5)
    assert not {"embeddings", "ids", "rows"} & set(opened.__dict__)
    assert not {"ids", "whole"} & set(opened._source.__dict__)
    opened.column("y")
    assert list(opened._source.read_columns) == ["y"]
    X = opened.embeddings
    assert not X.flags.owndata
    assert pa.total_allocated_bytes() - before < X.nbytes  # the rows stayed in the memory map
    assert np.shares_memory(X, opened.head(3).embeddings)
    for array in (X, opened.ids, opened.column("y"), opened.column("name"), opened.where("y == 1").embeddings):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


def test_batches_cover_all_rows_in_order_across_record_batches(tmp_path: Path) -> None:
    table = make_table(n=25)
    whole = pa.ipc.open_file(pa.memory_map(str(table.save(tmp_path / "one.arrow")))).read_all()
    with pa.OSFile(str(tmp_path / "many.arrow"), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=7)
    many = EmbeddingTable.open(tmp_path / "many.arrow")
    seen = list(many.iter_batches(5))
    assert all(len(X) <= 5 for X, _ in seen)
    assert [row for _, span in seen for row in range(span.start, span.stop)] == list(range(25))
    np.testing.assert_array_equal(np.concatenate([X for X, _ in seen]), table.embeddings)
    assert "whole" not in many._source.__dict__  # streaming never joined the blocks
    rows = [24, 0, 7, 6, 13, 7]
    np.testing.assert_array_equal(many.take(rows).embeddings, table.embeddings[rows])
    assert many.verify() == table.digest
    assert_same(table, many)


def test_foreign_arrow_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "vector": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32())),
            "ids": pa.array([7, 8]),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "count": pa.array([1, None], pa.int32()),
            "flag": pa.array([True, False]),
            "image": pa.array([{"path": "x"}, {"path": "y"}]),
        }
    )
    for stream in (pa.ipc.new_file, pa.ipc.new_stream):
        with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, stream(sink, table.schema) as writer:
            writer.write_table(table)
        opened = EmbeddingTable.open(tmp_path / "t.arrow")
        assert opened.embeddings.tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert opened.ids.tolist() == ["7", "8"]
        assert opened.column("kind").tolist() == ["a", "b"]
        assert np.isnan(opened.column("count")[1])
        assert opened.column("flag").tolist() == [True, False]
        assert list(opened.columns) == ["kind", "count", "flag"]
        with pytest.raises(ValueError, match="struct"):
            opened.column("image")
        assert opened.verify() == opened.digest


def test_parquet_streams_in_batches_and_is_kept_only_as_a_whole(tmp_path: Path) -> None:
    table = make_table(n=25)
    wide = pa.table({"id": table.ids, **{f"e{j}": table.embeddings[:, j] for j in range(5)}})
    pyarrow.parquet.write_table(wide, tmp_path / "wide.parquet", row_group_size=9)
    for path in (table.save(tmp_path / "t.parquet"), tmp_path / "wide.parquet"):
        opened = EmbeddingTable.open(path)
        batches = [X for X, _ in opened.iter_batches(4)]
        assert max(map(len, batches)) <= 4
        np.testing.assert_array_equal(np.concatenate(batches), table.embeddings)
        opened.verify()
        assert "whole" not in opened._source.__dict__
        np.testing.assert_array_equal(opened.embeddings, table.embeddings)


def test_missing_or_ragged_embeddings_are_refused(tmp_path: Path) -> None:
    for rows, message in (
        ([[1.0], None], "'e' has no value in row 1"),
        ([[1.0], [1.0, 2.0]], "2 values in row 1, 1 in"),
    ):
        pyarrow.parquet.write_table(pa.table({"e": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=message):
            EmbeddingTable.open(tmp_path / "t.parquet").verify()


# ---- files of named arrays


@pytest.mark.parametrize("suffix", EXACT)
def test_two_candidates_need_a_name_and_the_other_one_is_a_column(tmp_path: Path, suffix: str) -> None:
    np.savez(tmp_path / "t.npz", embedding=np.ones((3, 2)), embeddings=np.zeros((3, 4)), y=np.arange(3))
    with pytest.raises(ValueError, match=r"2 candidates \(embedding, embeddings\).*embedding=NAME"):
        EmbeddingTable.open(tmp_path / "t.npz")
    with pytest.raises(ValueError, match="candidates: embedding, embeddings"):
        EmbeddingTable.open(tmp_path / "t.npz", embedding="c")
    table = EmbeddingTable.open(tmp_path / "t.npz", embedding="embeddings")
    opened = EmbeddingTable.open(table.save(tmp_path / f"again{suffix}"))
    assert opened.width == 4
    assert list(opened.columns) == ["embedding_column", "y"]
    assert opened.column("embedding_column").tolist() == np.ones((3, 2)).tolist()
    assert opened.verify() == table.digest


def test_named_attributes_become_columns(tmp_path: Path) -> None:
    attributes = np.array([[0, 1], [1, 1], [1, 0]], dtype=np.int8)
    names = np.array(["Male", "5_o_Clock_Shadow"])
    np.savez(tmp_path / "t.npz", embeddings=np.ones((3, 2)), attributes=attributes, attribute_names=names)
    table = EmbeddingTable.open(tmp_path / "t.npz")
    assert list(table.columns) == ["Male", "5_o_Clock_Shadow"]
    assert table.where("Male == 1 and `5_o_Clock_Shadow` == 1").rows.tolist() == [1]
    with pytest.raises(ValueError, match="not one value for each of 3 rows"):
        table.column("attribute_names")


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", embeddings=np.ones((1, 2)), id=np.array(["a"], dtype=object))
    with pytest.raises(ValueError, match="never loaded"):
        EmbeddingTable.open(tmp_path / "t.npz")


def test_npy_with_csv_or_given_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.eye(3, dtype=np.float32))
    assert EmbeddingTable.open(tmp_path / "t.npy").ids.tolist() == ["0", "1", "2"]
    (tmp_path / "t.csv").write_text("\ufeffid,y,code,p\n007,1,01,0.5\n008,0,02,nan\n9,1,03,1000.0\n", encoding="utf-8")
    table = EmbeddingTable.open(tmp_path / "t.npy")
    assert table.ids.tolist() == ["007", "008", "9"]
    assert table.column("y").tolist() == [1, 0, 1]
    assert table.column("code").tolist() == ["01", "02", "03"]
    assert table.column("p").dtype == np.float64
    assert EmbeddingTable.open(tmp_path / "t.npy", columns={"z": [3, 2, 1]}).column("z").tolist() == [3, 2, 1]
    with pytest.raises(ValueError, match="has 2 rows"):
        EmbeddingTable.open(tmp_path / "t.npy", columns={"z": [3, 2]})
    (tmp_path / "t.csv").write_text("id,y\na,1\nb\n")
    with pytest.raises(ValueError, match=r"row 1 .* has 1 fields"):
        EmbeddingTable.open(tmp_path / "t.npy")
