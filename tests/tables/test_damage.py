"""Damaged and hostile files: refused by name, or as good as new; never a crash, a traceback or a full memory."""

from __future__ import annotations

import contextlib
import json
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pro2.tables as errors
from pro2.tables.embeddings import EmbeddingTable
from tests.mutators import attack
from tests.tables.damage import write_targets
from tests.tables.samples import EXACT, make_table

CHECKS = {"verifies_the_same": 40, "opens": 20, "reads_labels": 50}  # cases per file in the suite; PRO2_FUZZ multiplies


@pytest.mark.fuzz
@pytest.mark.parametrize("check", CHECKS)
def test_damage_is_refused_by_name_or_harmless(tmp_path: Path, check: str, fuzz_scale: int) -> None:
    for path in write_targets(tmp_path)[check]:
        counts = attack(f"tests/tables/damage.py:{check}", path, n=CHECKS[check] * fuzz_scale, seed=fuzz_scale)
        assert counts["refused"] > 0


def test_statistics_of_parquet_are_not_asked_for(tmp_path: Path) -> None:
    """Asked for a damaged one, pyarrow ends the process: the second case of this seed is such a file."""
    write_targets(tmp_path)
    counts = attack("tests/tables/damage.py:opens", tmp_path / "lists.parquet", n=2, seed=303)
    assert counts.total() == 2  # both were answered, by one process


@pytest.mark.parametrize("suffix", [".arrow", ".npz"])
def test_an_altered_number_is_detected(tmp_path: Path, suffix: str) -> None:
    table = make_table(n=50)
    path = table.save(tmp_path / f"t{suffix}")
    whole = bytearray(path.read_bytes())
    at = whole.index(table.embeddings[20].tobytes())
    whole[at + 1] ^= 1
    path.write_bytes(whole)
    copy = tmp_path / f"copy{suffix}"
    for use in (EmbeddingTable.verify, lambda opened: opened.digest, lambda opened: opened.save(copy)):
        with pytest.raises(ValueError, match="damaged"):
            use(EmbeddingTable.open(path))
    assert not copy.exists()


def test_altered_provenance_is_detected(tmp_path: Path) -> None:
    path = make_table().save(tmp_path / "t.arrow")
    path.write_bytes(path.read_bytes().replace(b"penultimate", b"PENULTIMATE"))
    with pytest.raises(ValueError, match="provenance was edited"):
        EmbeddingTable.open(path)


@pytest.mark.parametrize("suffix", EXACT)
def test_a_digest_that_is_out_of_place_is_no_foreign_file(tmp_path: Path, suffix: str) -> None:
    """Without the key under which we look for it, a table would lose its provenance and its digest without a word."""
    path = make_table().save(tmp_path / f"t{suffix}")
    whole, provenance = path.read_bytes(), EmbeddingTable.open(path).provenance
    assert b"pro2" in whole
    for key in (b'"pro2"', b"pro2.npy", b"\x04pro2", b"\x04\0\0\0pro2"):
        path.write_bytes(whole.replace(key, key.replace(b"pro2", b"prn2")))
        if path.read_bytes() == whole:
            continue
        with contextlib.suppress(ValueError):
            assert EmbeddingTable.open(path).provenance == provenance  # Parquet keeps it twice


def peak(work: Callable[[], object]) -> int:
    """Most bytes that Python and NumPy held at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [*EXACT, ".npy"])
def test_one_long_caption_does_not_make_every_row_long(tmp_path: Path, suffix: str) -> None:
    n = 20_000  # as fixed-width text, the column would take 4 GB
    captions = ["x" * 50_000 if i == 7 else "short" for i in range(n)]
    path = EmbeddingTable(np.zeros((n, 2), dtype=np.float32), None, {"caption": captions}).save(tmp_path / f"t{suffix}")
    assert path.stat().st_size < 10_000_000
    found = EmbeddingTable.open(path)
    assert peak(lambda: found.column("caption")) < 50_000_000
    assert found.column("caption").tolist() == captions
    assert peak(EmbeddingTable.open(path).verify) < 50_000_000


def test_a_repeated_text_is_one_text(tmp_path: Path) -> None:
    n, caption = 100_000, "x" * 50_000  # 5 GB if it were copied for every row
    table = pa.table(
        {"e0": np.ones(n), "e1": np.ones(n), "t": pa.DictionaryArray.from_arrays(np.zeros(n, "i4"), [caption])}
    )
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for name in ("t.parquet", "t.arrow"):
        opened = EmbeddingTable.open(tmp_path / name)
        assert peak(lambda: opened.column("t")) < 50_000_000  # noqa: B023 - called at once
        assert opened.column("t")[-1] == caption


def test_an_array_nobody_asks_for_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = np.zeros((1000, 30_000))
    np.savez_compressed(tmp_path / "t.npz", X=np.ones((1000, 2), dtype=np.float32), big=big, y=np.arange(1000))
    opened = EmbeddingTable.open(tmp_path / "t.npz", "X")
    assert peak(lambda: (opened.embeddings, opened.column("y"), opened.where("y < 5").ids)) < 10_000_000
    monkeypatch.setattr(errors, "FREE", 1 << 20)
    with pytest.raises(ValueError, match=r"'big\.npy' in .*t\.npz would unpack to 240,000,000 bytes from a file of"):
        opened.column("big")


def test_parquet_that_unpacks_beyond_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (pa.list_(pa.float32(), 100), pa.list_(pa.float32())):
        zeros = pa.array([[0.0] * 100] * 20_000, kind)
        pyarrow.parquet.write_table(pa.table({"v": zeros}), tmp_path / "t.parquet")
        assert EmbeddingTable.open(tmp_path / "t.parquet").width == 100
        with monkeypatch.context() as patch:
            patch.setattr(errors, "FREE", 1 << 20)
            patch.setattr(errors, "EXPANSION", 2)
            with pytest.raises(ValueError, match=r"'v' in .* would unpack to [38],\d+,\d+ bytes"):
                EmbeddingTable.open(tmp_path / "t.parquet").verify()


def test_a_doubled_column_and_deep_json_are_refused_by_name(tmp_path: Path) -> None:
    twice = pa.table([[[0.5]], [1], [2]], names=["e", "y", "y"])
    deep = pa.table({"e": [[0.5]]}).replace_schema_metadata({"pro2": "[" * 200_000})
    for table, message in ((twice, "two columns called 'y'"), (deep, "damaged .*recursion")):
        with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(ValueError, match=rf"t\.arrow.*{message}"):
            EmbeddingTable.open(tmp_path / "t.arrow")
    from safetensors.numpy import save_file

    meta = json.dumps({"columns": 3, "digest": 1})
    save_file({"embeddings": np.ones((2, 2))}, tmp_path / "t.safetensors", {"pro2": meta})
    with pytest.raises(ValueError, match=r"t\.safetensors.*damaged"):
        EmbeddingTable.open(tmp_path / "t.safetensors")


def test_odd_archives_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, X=np.ones((3, 2)), y=np.arange(3))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README.txt", "a note is not an array")
    assert list(EmbeddingTable.open(path).columns) == ["y"]
    whole = path.read_bytes()
    for offset, value, message in ((8, 1, "encrypted"), (10, 99, "compression")):
        data = bytearray(whole)
        for match in re.finditer(rb"PK\x01\x02", whole):  # an entry of the archive's directory
            data[match.start() + offset] = value
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"t\.npz.*{message}"):
            EmbeddingTable.open(path)
    path.write_bytes(whole)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("y.npy", b"")
    with pytest.raises(ValueError, match=r"t\.npz.*two of its arrays have one name"):
        EmbeddingTable.open(path)
