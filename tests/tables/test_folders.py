"""Folders of parts, partitions and object stores are one table; a bad part is named, and nothing is half read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest

from pro2.cli.common import open_table
from pro2.cli.inspect import _describe
from pro2.label.pool import session_folder
from pro2.tables import arrow, embeddings, sources
from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import assert_same, make_table

FORMATS = [".arrow", ".parquet"]


def write_parts(folder: Path, table: EmbeddingTable, suffix: str = ".parquet", n: int = 3) -> list[Path]:
    """The rows of a table in `n` files, each one of ours."""
    folder.mkdir()
    cuts = np.array_split(np.arange(len(table)), n)
    columns = [{name: values[rows] for name, values in table.columns.items()} for rows in cuts]
    parts = [
        EmbeddingTable(table.embeddings[rows], table.ids[rows], some, dict(table.provenance))
        for rows, some in zip(cuts, columns)
    ]
    return [part.save(folder / f"part-{i}{suffix}") for i, part in enumerate(parts)]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_folder_is_the_table_of_its_parts(tmp_path: Path, suffix: str) -> None:
    table = make_table(25)
    write_parts(tmp_path / "t", table, suffix)
    (tmp_path / "t" / "_SUCCESS").touch()
    opened = EmbeddingTable.open(tmp_path / "t")
    assert_same(table, opened)
    assert opened.provenance["backbone"] == "toy"
    assert opened.digest == opened.verify() == EmbeddingTable.open(tmp_path / "t").digest
    np.testing.assert_array_equal(opened.take([24, 0, 9, 8]).embeddings, table.embeddings[[24, 0, 9, 8]])
    np.testing.assert_array_equal(opened.where("y == 1").embeddings, table.where("y == 1").embeddings)
    assert EmbeddingTable.open(opened.save(tmp_path / "one.arrow")).verify() == table.digest


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_folder_is_written_in_parts_and_as_a_whole(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "PART_ROWS", 10)
    table = make_table(25)
    table.save(tmp_path / "t")
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == [f"part-0000{i}.arrow" for i in range(3)]
    assert_same(table, EmbeddingTable.open(tmp_path / "t"))
    with pytest.raises(FileExistsError, match="exists"):
        make_table(5).save(tmp_path / "t")
    make_table(5).save(tmp_path / "t", force=True)
    assert len(EmbeddingTable.open(tmp_path / "t")) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["t"]  # nothing is left of either


@pytest.mark.parametrize("format", ["parquet", "ipc"])
def test_partitions_are_columns(tmp_path: Path, format: str) -> None:
    table = pa.table(make_table(24)).replace_schema_metadata(None)
    site = pa.array([["a b", "c", None][i % 3] for i in range(24)])
    flavour = pa.dataset.partitioning(pa.schema([("site", pa.string()), ("place", pa.int16())]), flavor="hive")
    pa.dataset.write_dataset(table.append_column("site", site), tmp_path, format=format, partitioning=flavour)
    if format == "ipc":  # the name that pyarrow gives them
        for path in [*tmp_path.rglob("*.ipc")]:
            path.rename(path.with_suffix(".arrow"))
    opened = EmbeddingTable.open(tmp_path)
    row_of = {name: row for row, name in enumerate(make_table(24).ids.tolist())}
    rows = [row_of[name] for name in opened.ids.tolist()]
    assert sorted(rows) == list(range(24))
    assert opened.column("site").tolist() == [site[row].as_py() for row in rows]
    np.testing.assert_array_equal(opened.column("place"), make_table(24).column("place")[rows])
    np.testing.assert_array_equal(opened.embeddings, make_table(24).embeddings[rows])
    assert len(opened.where("site == 'c' and place == 1").ids) == 4
    labels = opened.align(["dir/003.jpg", "dir/020.jpg"], ["cat", "dog"])  # by id, whatever the order
    assert labels[rows.index(3)] == "cat"
    assert labels[rows.index(20)] == "dog"


def test_a_column_without_any_value_in_one_part_is_missing_there(tmp_path: Path) -> None:
    for i, label in enumerate([pa.nulls(2), pa.array(["a", "b"])]):
        part = pa.table({"id": [f"{i}0", f"{i}1"], "embedding": [[0.5, 1.0]] * 2, "label": label})
        pa.parquet.write_table(part, tmp_path / f"{i}.parquet")
    assert EmbeddingTable.open(tmp_path).column("label").tolist() == [None, None, "a", "b"]


def test_any_arrow_data_set_is_a_table(tmp_path: Path) -> None:
    write_parts(tmp_path / "t", make_table(25))
    opened = EmbeddingTable.from_arrow(pa.dataset.dataset(tmp_path / "t"))
    assert_same(make_table(25), opened)
    assert [len(X) for X, _ in opened.iter_batches(4)][:2] == [4, 4]


def test_larger_than_memory_a_selection_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(50)
    write_parts(tmp_path / "t", table)
    monkeypatch.setattr(arrow, "KEPT", 0)
    opened = EmbeddingTable.open(tmp_path / "t")
    for rows in ([3, 17, 18, 49], [49, 3, 18, 3], []):
        batches = [X for X, _ in opened.take(rows).iter_batches(7)]
        np.testing.assert_array_equal(np.concatenate([np.empty((0, 5)), *batches]), table.embeddings[rows])
        np.testing.assert_array_equal(opened.take(rows).embeddings, table.embeddings[rows])
    assert "whole" not in opened._source.__dict__


def rewrite(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], object]:
    """Write a part again with other content, as another program would."""
    return lambda path: pa.parquet.write_table(change(pa.parquet.read_table(path)).replace_schema_metadata(None), path)


def other_width(table: pa.Table) -> pa.Table:
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(7 * len(table), np.float32)), 7)
    return table.set_column(1, "embedding", wide)


def rest(path: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Everything of a part but its provenance."""
    part = EmbeddingTable.open(path)
    return part.embeddings, part.ids, dict(part.columns)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "width": (rewrite(other_width), "has embeddings of width 7 and type float32, but .*part-0.parquet has 5"),
    "type": (
        rewrite(lambda t: t.set_column(1, "embedding", t["embedding"].cast(pa.list_(pa.float64(), 5)))),
        "width 5 and type float64",
    ),
    "column type": (rewrite(lambda t: t.set_column(2, "y", t["y"].cast(pa.string()))), "column 'y' is text in .* int"),
    "column": (rewrite(lambda t: t.drop_columns("weight")), "column 'weight' is missing in .* and float in"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[:-300]), "is damaged"),
    "unfinished": (lambda path: path.rename(path.with_name("part-1.parquet.tmp")), "a part that was not finished"),
    "twice": (rewrite(lambda t: t.set_column(0, "id", pa.array(["dir/000.jpg", *t["id"].to_pylist()[1:]]))), "repeats"),
    "empty": (rewrite(lambda t: t.slice(0, 0)), "has no rows"),
    "partition": (lambda path: (path.unlink(), (path.parent / "part-1.parquet=3").mkdir()), "is an empty partition"),
    "backbone": (
        lambda path: EmbeddingTable(*rest(path), {"backbone": "other"}).save(path, force=True),
        "embedded with backbone 'other'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_part_is_named(tmp_path: Path, what: str) -> None:
    parts = write_parts(tmp_path / "t", make_table(25))
    change, message = BAD[what]
    change(parts[1])
    with pytest.raises(ValueError, match=message) as caught:
        EmbeddingTable.open(tmp_path / "t").verify()
    assert "part-1.parquet" in str(caught.value)


def test_an_altered_part_is_named(tmp_path: Path) -> None:
    parts = write_parts(tmp_path / "t", make_table(25), ".arrow")
    whole = bytearray(parts[2].read_bytes())
    whole[whole.index(make_table(25).embeddings[20].tobytes()) + 1] ^= 1
    parts[2].write_bytes(whole)
    with pytest.raises(ValueError, match=r"part-2\.arrow is damaged .*digest"):
        EmbeddingTable.open(tmp_path / "t").verify()


def test_a_part_that_goes_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pro2.tables.sources._OPEN", 1)
    parts = write_parts(tmp_path / "t", make_table(25))
    opened = EmbeddingTable.open(tmp_path / "t")
    parts[0].unlink()
    with pytest.raises((ValueError, OSError), match=r"part-0\.parquet"):
        opened.verify()


# ---- object stores and Lance


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[Any, str]]:
    """An object store on this machine, and the address that a user would give its client."""
    server = pytest.importorskip("moto.server", reason="needs moto and flask").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    address = ":".join(map(str, server.get_host_and_port()))
    with pytest.MonkeyPatch.context() as patch:
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true"}
        for name, value in {**keys, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{address}"}.items():
            patch.setenv(name, value)
        client = pa.fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
        client.create_dir("bucket")
        yield server, address
    server.stop()


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_object_store_is_read_like_a_folder(tmp_path: Path, store: tuple[Any, str], suffix: str) -> None:
    table = make_table(25)
    part = write_parts(tmp_path / "t", table, suffix)[1]
    pa.fs.copy_files(str(tmp_path / "t"), f"s3://bucket/t{suffix}")
    opened = EmbeddingTable.open(f"s3://bucket/t{suffix}")
    assert_same(table, opened)
    assert opened.provenance["backbone"] == "toy"
    assert opened.verify() == EmbeddingTable.open(tmp_path / "t").digest
    np.testing.assert_array_equal(opened.where("y == 1").embeddings, table.where("y == 1").embeddings)
    path = Path(f"s3://bucket/t{suffix}")  # as the command line has it
    assert open_table(path, "y == 1").ids.tolist() == table.where("y == 1").ids.tolist()
    assert _describe(path, None)["rows"] == 25
    assert session_folder(path) == Path(f"t{suffix}-labels").resolve()
    one = f"s3://me:secret@bucket/t{suffix}/{part.name}?endpoint_override={store[1]}&scheme=http"
    assert_same(EmbeddingTable.open(part), EmbeddingTable.open(one))
    with pytest.raises(ValueError, match="no column 'x' in s3://bucket/t") as caught:
        EmbeddingTable.open(one).column("x")
    assert "secret" not in str(caught.value)


def test_what_is_wrong_in_a_store_is_named(tmp_path: Path, store: tuple[Any, str]) -> None:
    for path in ("s3://bucket/none", "s3://bucket/none.parquet", "s3://nobody/t"):
        with pytest.raises(FileNotFoundError, match=f"no embedding table at {path}"):
            EmbeddingTable.open(path)
    parts = write_parts(tmp_path / "t", make_table(25))
    pa.fs.copy_files(str(tmp_path / "t"), "s3://bucket/whole")
    parts[1].write_bytes(parts[1].read_bytes()[:-300])
    pa.fs.copy_files(str(tmp_path / "t"), "s3://bucket/bad")
    with pytest.raises(ValueError, match=r"^s3://bucket/bad/part-1\.parquet is damaged"):
        EmbeddingTable.open("s3://bucket/bad")
    opened = EmbeddingTable.open("s3://bucket/whole")
    store[0].stop()
    with pytest.raises(ValueError, match=r"s3://bucket/whole/part-0\.parquet cannot be read .*store can be reached"):
        opened.verify()
    store[0].start()


@pytest.mark.parametrize("suffix", FORMATS)
def test_of_a_file_in_a_store_only_what_is_used_is_fetched(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = EmbeddingTable(np.random.default_rng(0).random((5000, 64)), None, {"y": np.arange(5000) % 2})
    path, fetched = str(table.save(tmp_path / f"t{suffix}")), []

    class Counted(io.BytesIO):
        def read(self, n: int = -1) -> bytes:
            fetched.append(content := super().read(n))
            return content

    class Store:
        get_file_info = staticmethod(pa.fs.LocalFileSystem().get_file_info)
        open_input_file = staticmethod(lambda name: pa.PythonFile(Counted(Path(name).read_bytes()), mode="r"))

    monkeypatch.setattr(sources, "locate", lambda address: (Store(), path, address))
    opened = EmbeddingTable.open(f"s3://bucket/t{suffix}")
    assert len(opened.where("y == 1")) == 2500
    assert sum(map(len, fetched)) < table.embeddings.nbytes / 4
    np.testing.assert_array_equal(opened.embeddings, table.embeddings)
    assert sum(map(len, fetched)) > table.embeddings.nbytes / 2


def test_a_lance_data_set_is_a_table(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance", reason="needs pylance")
    lance.write_dataset(pa.table(make_table(25)), tmp_path / "t.lance", max_rows_per_file=10)
    opened = open_table(tmp_path / "t.lance")
    assert_same(make_table(25), opened)
    assert opened.verify() == make_table(25).digest
    assert [len(X) for X, _ in opened.iter_batches(4)][:2] == [4, 4]
