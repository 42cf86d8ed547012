"""Damaged files: refused by name, or as good as new."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import EXACT, assert_same, make_table


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
