"""Data frames and data sets of other libraries, in memory and on disk: in and out without loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import assert_same, make_table

datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")


def wide_frame(n: int = 6, **more: Any) -> pd.DataFrame:
    X = np.random.default_rng(0).standard_normal((n, 3)).astype(np.float32)
    return pd.DataFrame({"id": [f"r{i}" for i in range(n)], **more, **{f"e{j}": X[:, j] for j in range(3)}})


# ---- in memory


LIBRARIES: dict[str, Callable[[EmbeddingTable], Any]] = {
    "pyarrow": pa.table,
    "polars": pl.DataFrame,
    "lists": lambda table: pl.DataFrame(table).with_columns(pl.col("embedding").cast(pl.List(pl.Float32))),
    "duckdb": lambda table: duckdb.from_arrow(pa.table(table)),
    "pandas": pd.DataFrame.from_arrow,
    "datasets": lambda table: datasets.Dataset(pa.table(table).replace_schema_metadata(None)),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_takes_and_gives_a_table(library: str) -> None:
    table = make_table()
    assert_same(table, EmbeddingTable.from_arrow(LIBRARIES[library](table)))
    some = table.where("y == 1")
    assert_same(some, EmbeddingTable.from_arrow(LIBRARIES[library](some)))
    if library == "datasets":
        chosen = LIBRARIES[library](table).select([7, 2, 11])
        assert EmbeddingTable.from_arrow(chosen).ids.tolist() == table.ids[[7, 2, 11]].tolist()


def test_pandas_wide_and_back() -> None:
    frame = wide_frame(y=[0, 1, 0, 1, 0, 1], name=["a", "b", None, "d", "", "f"], part=pd.Categorical(list("uvuvuv")))
    table = EmbeddingTable.from_pandas(frame)
    np.testing.assert_array_equal(table.embeddings, frame[["e0", "e1", "e2"]].to_numpy())
    assert table.column("name").tolist() == ["a", "b", None, "d", "", "f"]
    assert table.column("part").tolist() == list("uvuvuv")
    again = EmbeddingTable.from_pandas(table.to_pandas())
    assert_same(table, again)
    assert list(table.to_pandas().columns) == ["id", "y", "name", "part", "e0", "e1", "e2"]
    assert "index" not in table.columns


def test_the_index_names_rows_when_it_has_names() -> None:
    frame = wide_frame().drop(columns="id")
    assert EmbeddingTable.from_pandas(frame).ids.tolist() == [str(i) for i in range(6)]
    assert EmbeddingTable.from_pandas(frame[frame.index > 2]).ids.tolist() == ["0", "1", "2"]
    frame.index = pd.Index(list("uvwxyz"))
    assert EmbeddingTable.from_pandas(frame).ids.tolist() == list("uvwxyz")
    frame.index.name = "file"
    named = EmbeddingTable.from_pandas(frame)
    assert named.column("file").tolist() == list("uvwxyz")
    frame.index.name = "id"
    assert EmbeddingTable.from_pandas(frame).ids.tolist() == list("uvwxyz")
    assert frame.index.name == "id"  # the frame is as it was
    assert list(frame.columns) == ["e0", "e1", "e2"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (wide_frame(n=2, y=[{"a": 1}, "b"]), "this DataFrame cannot be converted to Arrow"),
        (pd.concat([wide_frame(), wide_frame()]), "repeats 6 id"),
        (pd.DataFrame([[1.5, 2.5, 1]], columns=["e0", "e1", "e0"]), "Duplicate column"),
        (pd.DataFrame({"y": [1, 2]}), "found none"),
        (np.zeros((3, 2)), "gives no Arrow stream"),
    ],
)
def test_frames_that_cannot_be_used_are_named(data: Any, message: str) -> None:
    read = EmbeddingTable.from_pandas if isinstance(data, pd.DataFrame) else EmbeddingTable.from_arrow
    with pytest.raises(ValueError, match=message):
        read(data)


# ---- folders of Hugging Face


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


def test_a_saved_data_set_opens_as_a_table(tmp_path: Path) -> None:
    table = make_table()
    features = datasets.Features(
        {
            "id": datasets.Value("string"),
            "embedding": datasets.List(datasets.Value("float32")),
            "species": datasets.ClassLabel(names=["cat", "dog"]),
        }
    )
    species = [-1 if i == 3 else i % 2 for i in range(len(table))]
    data = {"id": table.ids.tolist(), "embedding": table.embeddings.tolist(), "species": species}
    one = datasets.Dataset.from_dict(data, features=features)
    one.save_to_disk(tmp_path / "one", num_shards=3)
    opened = EmbeddingTable.open(tmp_path / "one")
    np.testing.assert_array_equal(opened.embeddings, table.embeddings)
    assert opened.ids.tolist() == table.ids.tolist()
    assert opened.column("species_name").tolist()[:5] == ["cat", "dog", "cat", None, "cat"]
    datasets.DatasetDict({"train": one.select(range(8)), "test": one.select(range(8, 12))}).save_to_disk(
        tmp_path / "two"
    )
    both = EmbeddingTable.open(tmp_path / "two")
    assert both.where("split == 'test'").ids.tolist() == table.ids[8:].tolist()
    np.testing.assert_array_equal(both.embeddings, table.embeddings)


def test_a_folder_that_is_no_data_set_or_leads_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder, not an embedding table"):
        EmbeddingTable.open(tmp_path)
    (tmp_path / "dataset_info.json").write_text("{}", encoding="utf-8")
    for name, message in (("../secret.arrow", "leaves the folder"), ("gone.arrow", "gone.arrow")):
        (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}), encoding="utf-8")
        with pytest.raises((ValueError, OSError), match=message):
            EmbeddingTable.open(tmp_path)
    for text in ("[" * 100_000, "{}", "null", "{"):
        (tmp_path / "state.json").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match="is damaged"):
            EmbeddingTable.open(tmp_path)


# ---- other programs read our files, and we read theirs


def test_pandas_polars_duckdb_and_datasets_read_the_file(tmp_path: Path) -> None:
    table = make_table()
    path = table.save(tmp_path / "t.arrow")
    frame = pd.read_feather(path)
    np.testing.assert_array_equal(np.stack(frame["embedding"]), table.embeddings)
    assert frame["name"].tolist() == table.column("name").tolist()
    lazy = pl.read_ipc(path)
    np.testing.assert_array_equal(lazy["embedding"].to_numpy(), table.embeddings)
    assert lazy["y"].to_list() == table.column("y").tolist()
    parquet = table.save(tmp_path / "t.parquet")
    first = duckdb.sql(f"select embedding from '{parquet}' where id = 'dir/004.jpg'").fetchall()[0][0]
    np.testing.assert_array_equal(np.float32(first), table.embeddings[4])
    loaded = datasets.load_dataset("arrow", data_files=str(path), cache_dir=str(tmp_path / "cache"), split="train")
    assert loaded["id"][:] == table.ids.tolist()
