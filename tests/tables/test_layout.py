"""Which columns are the embedding: named, matched by a pattern or guessed, in numerical order in every format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro2.tables.columns import choose, natural
from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import write_foreign

X = (np.random.default_rng(0).integers(-99, 99, (5, 12)) + 0.0625).astype(np.float32)  # exact in decimal, too
SUFFIXES = [".csv", ".parquet", ".feather", ".arrow"]


def wide(prefix: str = "e", start: int = 0, **more: list) -> pa.Table:
    """One column per dimension in the order e0, e1, e10, e11, e2, ..., as a program that sorts names leaves them."""
    dimensions = {f"{prefix}{i + start}": X[:, i] for i in sorted(range(12), key=str)}
    return pa.table({"id": list("abcde"), "y": [0, 1, 0, 1, 1], **dimensions, **more})


@pytest.mark.parametrize("embedding", [None, "e*", "e[0-9]*", "e?*"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_wide_tables_open_in_the_order_of_their_numbers(tmp_path: Path, suffix: str, embedding: str | None) -> None:
    table = EmbeddingTable.open(write_foreign(wide(), tmp_path / f"t{suffix}"), embedding)
    np.testing.assert_array_equal(table.embeddings, X)
    assert table.dtype == np.float32
    assert list(table.columns) == ["y"]
    assert table.ids.tolist() == list("abcde")
    assert EmbeddingTable.open(table.save(tmp_path / "again.npz")).verify() == table.digest


@pytest.mark.parametrize(("prefix", "start"), [("", 0), ("emb_", 0), ("V", 1), ("dim.", 0)])
def test_columns_may_count_from_one_or_be_plain_numbers(tmp_path: Path, prefix: str, start: int) -> None:
    table = EmbeddingTable.open(write_foreign(wide(prefix, start), tmp_path / "t.parquet"))
    np.testing.assert_array_equal(table.embeddings, X)


def test_integers_are_an_embedding_only_when_someone_says_so(tmp_path: Path) -> None:
    counts = pa.table({f"c{i}": pa.array([i, i + 1], pa.int16()) for i in range(3)})
    path = write_foreign(counts, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="found none"):
        EmbeddingTable.open(path)
    table = EmbeddingTable.open(path, "c*")
    assert table.dtype == np.float32
    assert table.embeddings.tolist() == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("more", "embedding", "message"),
    [
        ({"f0": [0.5] * 5, "f1": [1.5] * 5}, None, r"2 candidates \(e0 to e11, f0 to f1\).*embedding='e\*'"),
        ({"extra": [1.5] * 5}, "e*", "also takes 'extra' .*narrower pattern, such as 'e\\[0-9\\]\\*'"),
        ({}, "f*", "neither a floating .*candidates: e0 to e11"),
        ({}, "y", "neither a floating"),
        ({}, "e", r"nor a pattern of number columns, such as 'e\*'"),
        ({"e12": ["1.5", "", "0.5", "oops", "x"]}, "e*", "'e12' of row 3 in .*t.* is 'oops'; expected a number"),
        ({"e12": ["1.5", "", "0.5", "oops", "x"]}, None, "'e12' of row 3 in .*t.* is 'oops'; expected a number"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_is_not_clear_is_asked(
    tmp_path: Path, suffix: str, more: dict[str, list], embedding: str | None, message: str
) -> None:
    """A dimension with a word in it is an error with row, column and value, never an embedding without it."""
    with pytest.raises(ValueError, match=message):
        EmbeddingTable.open(write_foreign(wide(**more), tmp_path / f"t{suffix}"), embedding)


def test_one_column_of_lists_wins_over_numbered_columns(tmp_path: Path) -> None:
    table = pa.table({"vector": list(X), "e0": [0.5] * 5, "e1": [0.5] * 5})
    path = write_foreign(table, tmp_path / "t.parquet")
    opened = EmbeddingTable.open(path)
    assert opened.width == 12
    assert list(opened.columns) == ["e0", "e1"]
    assert EmbeddingTable.open(path, "e*").width == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_gap_in_a_dimension_is_named_by_its_id(tmp_path: Path, suffix: str) -> None:
    whole = wide()
    gap = whole.set_column(whole.column_names.index("e3"), "e3", pa.array([0.5, None, 0.5, 0.5, 0.5]))
    table = EmbeddingTable.open(write_foreign(gap, tmp_path / f"t{suffix}"))
    for use in (EmbeddingTable.verify, lambda table: table.X_y("y")):
        with pytest.raises(ValueError, match=r"row 1 \(id 'b'\) .*not finite"):
            use(table)
    table.where("id != 'b'").verify()


@given(st.permutations(range(30)), st.sampled_from(["", "e", "dim_", "a1b"]))
def test_the_order_in_the_file_never_matters(order: list[int], prefix: str) -> None:
    names = {f"{prefix}{i}": "float" for i in order}
    expected = [f"{prefix}{i}" for i in range(30)]
    assert sorted(names, key=natural) == expected
    for embedding in (None, f"{prefix}*"):
        assert choose(names, embedding, "", "t") == expected
