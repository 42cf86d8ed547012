"""The table: what goes in comes out, from every format, read-only, checked by id, and damage is noticed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pro2
from pro2.tables.embeddings import EmbeddingTable

SUFFIXES = [".arrow", ".feather", ".parquet", ".npz", ".npy", ".safetensors"]
EXACT = [suffix for suffix in SUFFIXES if suffix != ".npy"]  # a CSV file forgets integer widths and provenance
PROVENANCE = {"backbone": "toy", "layer": "penultimate", "preprocessing": {"size": 224}, "weights_digest": "sha256:0"}


def make_table(n: int = 12, width: int = 5, dtype: str = "float32", seed: int = 0) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    columns = {
        "y": np.arange(n, dtype=np.int8) % 2,
        "place": (np.arange(n, dtype=np.int16) // 2) % 2,
        "weight": rng.random(n),
        "name": np.array([f'Vögel, {i}\n"x"' for i in range(n)]),
        "held": np.arange(n) % 3 == 0,
    }
    X = rng.standard_normal((n, width)).astype(dtype)
    return EmbeddingTable(X, [f"dir/{i:03d}.jpg" for i in range(n)], columns, PROVENANCE)


def assert_same(a: EmbeddingTable, b: EmbeddingTable) -> None:
    np.testing.assert_array_equal(a.embeddings, b.embeddings)
    assert a.embeddings.dtype == b.embeddings.dtype
    np.testing.assert_array_equal(a.ids, b.ids)
    assert list(a.columns) == list(b.columns)
    for name, values in a.columns.items():
        np.testing.assert_array_equal(values, b.columns[name])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_returns_what_was_saved(tmp_path: Path, suffix: str, dtype: str) -> None:
    table = make_table(dtype=dtype)
    opened = EmbeddingTable.open(table.save(tmp_path / f"t{suffix}"))
    assert_same(table, opened)
    opened.verify()


@pytest.mark.parametrize("suffix", EXACT)
def test_typed_formats_keep_digest_and_provenance(tmp_path: Path, suffix: str) -> None:
    table = make_table()
    opened = EmbeddingTable.open(table.save(tmp_path / f"t{suffix}"))
    assert opened.digest == table.digest == opened.verify()
    assert opened.provenance == {**PROVENANCE, "pro2_version": pro2.__version__}
    assert {name: values.dtype.kind for name, values in opened.columns.items()} == {
        name: values.dtype.kind for name, values in table.columns.items()
    }


@pytest.mark.parametrize("last", EXACT)
@pytest.mark.parametrize("first", EXACT)
def test_conversion_between_formats_loses_nothing(tmp_path: Path, first: str, last: str) -> None:
    table = make_table()
    middle = EmbeddingTable.open(table.save(tmp_path / f"a{first}"))
    end = EmbeddingTable.open(middle.save(tmp_path / f"b{last}"))
    assert end.verify() == table.digest
    assert end.provenance == middle.provenance


@given(
    n=st.integers(0, 30),
    width=st.integers(1, 6),
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8), min_size=1, max_size=5
    ),
)
@settings(max_examples=25, deadline=None)
def test_any_content_survives_arrow_and_npz(
    tmp_path_factory: pytest.TempPathFactory, n: int, width: int, texts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    X = np.random.default_rng(n).standard_normal((n, width)).astype(np.float16)
    table = EmbeddingTable(X, None, {"t": np.array([texts[i % len(texts)] for i in range(n)], dtype=str)})
    for name in ("t.arrow", "t.npz"):
        opened = EmbeddingTable.open(table.save(folder / name))
        assert_same(table, opened)
        assert opened.verify() == table.digest


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for suffix in EXACT:
        a, b = (make_table().save(tmp_path / f"{name}{suffix}") for name in "ab")
        assert a.read_bytes() == b.read_bytes(), suffix


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_arrow_is_zero_copy_and_read_only(tmp_path: Path, dtype: str) -> None:
    path = make_table(dtype=dtype).save(tmp_path / "t.arrow")
    before = pa.total_allocated_bytes()
    opened = EmbeddingTable.open(path)
    X = opened.embeddings
    assert not X.flags.owndata
    assert pa.total_allocated_bytes() == before  # the rows stayed in the memory map
    assert np.shares_memory(X, opened.head(3).embeddings)
    for array in (X, opened.ids, opened.column("y"), opened.column("name"), opened.where("y == 1").embeddings):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


def test_opening_reads_neither_rows_nor_columns(tmp_path: Path) -> None:
    opened = EmbeddingTable.open(make_table(n=1000).save(tmp_path / "t.arrow"))
    assert (opened.n_rows, opened.width) == (1000, 5)
    assert not {"embeddings", "ids", "rows"} & set(opened.__dict__)
    assert not {"embeddings", "ids", "blocks"} & set(opened._content.__dict__)
    assert not opened._content._cache
    opened.column("y")
    assert list(opened._content._cache) == ["y"]


def test_inputs_are_neither_copied_nor_changed() -> None:
    X, y = np.zeros((3, 2), dtype=np.float32), np.arange(3)
    table = EmbeddingTable(X, list("abc"), {"y": y})
    assert np.shares_memory(X, table.embeddings)
    X[0] = 1
    y[0] = 5
    assert X.flags.writeable
    assert y.flags.writeable


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
    assert "embeddings" not in many._content.__dict__  # streaming never joined the blocks
    rows = [24, 0, 7, 6, 13, 7]
    np.testing.assert_array_equal(many.take(rows).embeddings, table.embeddings[rows])
    assert many.verify() == table.digest
    assert_same(table, many)


# ---- damage


@pytest.mark.parametrize("suffix", EXACT)
def test_truncated_files_are_detected(tmp_path: Path, suffix: str) -> None:
    path = make_table(n=200).save(tmp_path / f"t{suffix}")
    whole = path.read_bytes()
    for keep in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        with pytest.raises(ValueError, match=r"damaged .*make it again"):
            EmbeddingTable.open(path).verify()


@pytest.mark.parametrize("suffix", [".arrow", ".safetensors", ".npz"])
def test_an_altered_number_is_detected(tmp_path: Path, suffix: str) -> None:
    table = make_table(n=50)
    path = table.save(tmp_path / f"t{suffix}")
    whole = bytearray(path.read_bytes())
    at = whole.index(table.embeddings[20].tobytes())
    whole[at + 1] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="damaged"):
        EmbeddingTable.open(path).verify()


def test_altered_provenance_is_detected(tmp_path: Path) -> None:
    path = make_table().save(tmp_path / "t.arrow")
    path.write_bytes(path.read_bytes().replace(b"penultimate", b"PENULTIMATE"))
    with pytest.raises(ValueError, match="provenance was edited"):
        EmbeddingTable.open(path).verify()


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_byte_anywhere_is_noticed_or_harmless(tmp_path: Path, seed: int) -> None:
    table = make_table(n=20)
    path = table.save(tmp_path / "t.arrow")
    whole = bytearray(path.read_bytes())
    whole[np.random.default_rng(seed).integers(len(whole))] ^= 0xFF
    path.write_bytes(whole)
    try:
        opened = EmbeddingTable.open(path)
        opened.verify()
    except ValueError:
        return
    assert_same(table, opened)  # padding


def test_verify_names_the_row_that_is_not_finite() -> None:
    X = np.ones((5, 2), dtype=np.float32)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 3 \(id 'd'\).*not finite"):
        EmbeddingTable(X, list("abcde")).verify()


# ---- writing


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = make_table(seed=1).save(tmp_path / "t.arrow")
    with pytest.raises(FileExistsError, match="force=True"):
        make_table(seed=2).save(path)
    assert EmbeddingTable.open(path).digest == make_table(seed=1).digest
    make_table(seed=2).save(path, force=True)
    assert EmbeddingTable.open(path).verify() == make_table(seed=2).digest
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.arrow"]


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_table(seed=1).save(tmp_path / "t.arrow")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        make_table(seed=2).save(path, force=True)
    assert EmbeddingTable.open(path).verify() == make_table(seed=1).digest
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.arrow"]


def test_an_open_table_can_be_saved_over_its_own_file(tmp_path: Path) -> None:
    path = make_table().save(tmp_path / "t.arrow")
    opened = EmbeddingTable.open(path)
    opened.where("y == 1").save(path, force=True)
    assert len(EmbeddingTable.open(path)) == 6
    assert opened.verify() == make_table().digest  # the old map still holds the old file


def child(code: str) -> subprocess.Popen[bytes]:
    head = "import os, sys, time, signal\nimport numpy as np\nfrom pro2.tables.embeddings import EmbeddingTable\n"
    return subprocess.Popen([sys.executable, "-c", head + code], stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def test_of_two_writers_one_wins_and_the_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    code = "X = np.full((2000, 16), {0}, dtype='f4')\nsys.stdin.read()\nEmbeddingTable(X).save({1!r})\n"
    writers = [child(code.format(value, str(path))) for value in (1, 2)]
    for writer in writers:  # the end of stdin starts them together
        assert writer.stdin is not None
        writer.stdin.close()
        writer.stdin = None
    answers = [writer.communicate() for writer in writers]
    codes = [writer.returncode for writer in writers]
    assert sorted(codes) == [0, 1]
    assert b"FileExistsError" in answers[codes.index(1)][1]
    opened = EmbeddingTable.open(path)
    opened.verify()
    assert opened.embeddings[0, 0] == codes.index(0) + 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.arrow"]


def test_kill_9_while_writing_keeps_the_old_file(tmp_path: Path) -> None:
    path = make_table().save(tmp_path / "t.arrow")
    code = (
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"EmbeddingTable(np.zeros((50, 4), dtype='f4')).save({str(path)!r}, force=True)\n"
    )
    killed = child(code)
    killed.communicate()
    assert killed.returncode == -9
    assert EmbeddingTable.open(path).verify() == make_table().digest


# ---- choosing


def test_filters_are_lazy_and_keep_order() -> None:
    table = make_table()
    view = table.where("y == 1 and place == 0")
    assert "rows" not in view.__dict__
    assert view.rows.tolist() == [1, 5, 9]
    assert view.ids.tolist() == ["dir/001.jpg", "dir/005.jpg", "dir/009.jpg"]
    np.testing.assert_array_equal(view.embeddings, table.embeddings[[1, 5, 9]])
    assert view.head(2).rows.tolist() == [1, 5]
    assert view.take([2, 0]).rows.tolist() == [9, 1]
    assert view.provenance["selection"] == "where y == 1 and place == 0"
    assert view.provenance["backbone"] == "toy"


def test_split_is_a_partition() -> None:
    table = make_table()
    parts = table.split("place")
    assert list(parts) == [0, 1]
    assert sorted(np.concatenate([part.rows for part in parts.values()]).tolist()) == list(range(12))
    assert all((part.column("place") == value).all() for value, part in parts.items())


def test_a_saved_view_is_a_table_of_its_own(tmp_path: Path) -> None:
    view = make_table().where("held")
    opened = EmbeddingTable.open(view.save(tmp_path / "v.arrow"))
    assert opened.verify() == view.digest != make_table().digest
    assert opened.ids.tolist() == view.ids.tolist()


def test_align_goes_by_id_never_by_position() -> None:
    table = make_table()
    order = np.random.default_rng(0).permutation(12)
    values = np.arange(12) * 10
    aligned = table.align(np.append(table.ids[order], "other.jpg"), np.append(values[order], -1))
    np.testing.assert_array_equal(aligned, values)
    with pytest.raises(ValueError, match=r"no value for 2 of 12 rows, e\.g\. id 'dir/000\.jpg'"):
        table.align(table.ids[2:], values[2:])
    with pytest.raises(ValueError, match="repeats 1 id"):
        table.align(np.append(table.ids, table.ids[0]), np.append(values, 3))
    with pytest.raises(ValueError, match="no value for 12"):
        table.align([], [])


def test_digest_depends_on_every_part() -> None:
    table = make_table()
    X, ids, columns = table.embeddings, table.ids, dict(table.columns)
    changed = X.copy()
    changed[0, 0] += 1
    digests = {
        table.digest,
        EmbeddingTable(changed, ids, columns).digest,
        EmbeddingTable(X, ids[::-1], columns).digest,
        EmbeddingTable(X, ids, {**columns, "y": 1 - columns["y"]}).digest,
        EmbeddingTable(X, ids, {"z": columns["y"]}).digest,
        EmbeddingTable(X.astype(np.float64), ids, columns).digest,
    }
    assert len(digests) == 6
    assert EmbeddingTable(X, ids, dict(reversed(columns.items()))).digest == table.digest


# ---- mistakes


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"embeddings": np.ones(3)}, r"embeddings must be a \(rows, width\)"),
        ({"embeddings": np.ones((2, 2), dtype=int)}, "float16, float32 or float64"),
        ({"ids": ["a"]}, "ids has 1 entries, the embeddings have 2"),
        ({"ids": ["a", "a"]}, "repeats 1 id.*'a' 2 times"),
        ({"columns": {"y": [1]}}, "column 'y' has 1 rows"),
        ({"columns": {"id": [1, 2]}}, "cannot be called 'id'"),
        ({"columns": {"when": np.array(["2020", "2021"], dtype="M8[Y]")}}, "astype"),
        ({"columns": {"mixed": np.array(["a", None], dtype=object)}}, "None .*at row 1"),
        ({"provenance": {"x": {1, 2}}}, "JSON"),
    ],
)
def test_mistakes_are_named(kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EmbeddingTable(**{"embeddings": np.ones((2, 2)), **kwargs})


def test_an_unknown_column_is_answered_with_near_ones() -> None:
    with pytest.raises(ValueError, match="did you mean 'place'"):
        make_table().column("plaec")
    with pytest.raises(ValueError, match="rows 0 to 11"):
        make_table().take([12])


def test_unknown_suffix_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"suffix '\.pkl'"):
        EmbeddingTable.open(tmp_path / "t.pkl")
    with pytest.raises(ValueError, match=r"suffix '\.csv'"):
        make_table().save(tmp_path / "t.csv")
    with pytest.raises(FileNotFoundError, match="pro2 embed"):
        EmbeddingTable.open(tmp_path / "t.arrow")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        make_table().save(tmp_path / "no" / "t.arrow")


# ---- files from elsewhere


def test_two_candidates_need_a_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", a=np.ones((3, 2)), b=np.zeros((3, 4)), y=np.arange(3))
    with pytest.raises(ValueError, match=r"2 candidates \(a, b\).*embedding=NAME"):
        EmbeddingTable.open(tmp_path / "t.npz")
    with pytest.raises(ValueError, match="candidates: a, b"):
        EmbeddingTable.open(tmp_path / "t.npz", embedding="c")
    table = EmbeddingTable.open(tmp_path / "t.npz", embedding="b")
    assert table.width == 4
    assert list(table.columns) == ["a", "y"]
    assert EmbeddingTable.open(table.save(tmp_path / "t.arrow")).column("a").shape == (3, 2)


@pytest.mark.parametrize("suffix", EXACT)
def test_the_embedding_not_chosen_never_replaces_the_chosen_one(tmp_path: Path, suffix: str) -> None:
    np.savez(tmp_path / "t.npz", embedding=np.ones((3, 2)), embeddings=np.zeros((3, 4)), pro=np.arange(3))
    table = EmbeddingTable.open(tmp_path / "t.npz", embedding="embeddings")
    opened = EmbeddingTable.open(table.save(tmp_path / f"again{suffix}"))
    assert opened.width == 4
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
    (tmp_path / "t.csv").write_text("\ufeffid,y,code,p\n007,1,01,0.5\n008,0,02,nan\n9,1,03,1e3\n", encoding="utf-8")
    table = EmbeddingTable.open(tmp_path / "t.npy")
    assert table.ids.tolist() == ["007", "008", "9"]
    assert table.column("y").tolist() == [1, 0, 1]
    assert table.column("code").tolist() == ["01", "02", "03"]
    assert table.column("p").dtype == np.float64
    assert EmbeddingTable.open(tmp_path / "t.npy", columns={"z": [3, 2, 1]}).column("z").tolist() == [3, 2, 1]
    with pytest.raises(ValueError, match="has 2 rows"):
        EmbeddingTable.open(tmp_path / "t.npy", columns={"z": [3, 2]})
    (tmp_path / "t.csv").write_text("id,y\na,1\nb\n")
    with pytest.raises(ValueError, match=r"line 3 .* has 1 fields"):
        EmbeddingTable.open(tmp_path / "t.npy")


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


def test_missing_or_ragged_embeddings_are_refused(tmp_path: Path) -> None:
    for rows, message in (([[1.0], None], "1 rows of 'e'"), ([[1.0], [1.0, 2.0]], "1 to 2 values")):
        pyarrow.parquet.write_table(pa.table({"e": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=message):
            EmbeddingTable.open(tmp_path / "t.parquet")


# ---- other programs


def test_pandas_polars_and_duckdb_read_the_file(tmp_path: Path) -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    table = make_table()
    path = table.save(tmp_path / "t.arrow")
    frame = pd.read_feather(path)
    np.testing.assert_array_equal(np.stack(frame["embedding"]), table.embeddings)
    assert frame["name"].tolist() == table.column("name").tolist()
    lazy = pl.read_ipc(path)
    np.testing.assert_array_equal(lazy["embedding"].to_numpy(), table.embeddings)
    assert lazy["y"].to_list() == table.column("y").tolist()
    rows = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    assert duckdb.sql("select y, count(*) from rows group by y order by y").fetchall() == [(0, 6), (1, 6)]
    parquet = table.save(tmp_path / "t.parquet")
    first = duckdb.sql(f"select embedding from '{parquet}' where id = 'dir/004.jpg'").fetchall()[0][0]
    np.testing.assert_array_equal(np.float32(first), table.embeddings[4])
    assert rows.num_rows == 12


def test_files_written_by_pandas_and_polars_open(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    table = make_table()
    frame = pd.DataFrame({"id": table.ids, "embedding": list(table.embeddings), "y": table.column("y")})
    frame.to_feather(tmp_path / "pd.feather")
    frame.to_parquet(tmp_path / "pd.parquet")
    pl.from_pandas(frame).write_ipc(tmp_path / "pl.arrow")
    for name in ("pd.feather", "pd.parquet", "pl.arrow"):
        opened = EmbeddingTable.open(tmp_path / name)
        np.testing.assert_array_equal(opened.embeddings, table.embeddings)
        assert opened.ids.tolist() == table.ids.tolist()
        assert opened.column("y").tolist() == table.column("y").tolist()


def test_hugging_face_datasets_read_the_file(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    table = make_table()
    path = table.save(tmp_path / "t.arrow")
    loaded = datasets.load_dataset("arrow", data_files=str(path), cache_dir=str(tmp_path / "cache"), split="train")
    assert loaded["id"][:] == table.ids.tolist()
    np.testing.assert_array_equal(np.array(loaded["embedding"][:], dtype=np.float32), table.embeddings)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import numpy as np, pro2\n"
        "table = pro2.EmbeddingTable(np.ones((2, 2)))\n"
        f"assert len(pro2.EmbeddingTable.open(table.save(r'{tmp_path}/t.npz'))) == 2\n"
        f"try:\n    table.save(r'{tmp_path}/t.arrow')\n"
        "except ImportError as error:\n    print(error)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'pro2[table]'" in answer.stdout


# ---- real embeddings


@pytest.mark.real_data
def test_real_embeddings_open_and_convert(real_data: Path, tmp_path: Path) -> None:
    table = EmbeddingTable.open(real_data / "waterbirds.npz")
    groups = [len(table.where(f"split == 0 and y == {y} and place == {p}")) for y in (0, 1) for p in (0, 1)]
    assert groups == [3498, 184, 56, 1057]
    opened = EmbeddingTable.open(table.save(tmp_path / "t.arrow"))
    assert opened.verify() == table.digest
    assert opened.dtype == np.float16


@pytest.mark.real_data
def test_real_attributes_become_columns(real_data: Path) -> None:
    table = EmbeddingTable.open(real_data / "celeba10k.npz")
    assert len(table.columns) == 40
    assert len(table.where("Blond_Hair == 1 and Male == 1")) == 81
