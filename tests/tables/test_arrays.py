"""Files of named arrays: .npz, .safetensors and .npy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.tables.embeddings import EmbeddingTable
from tests.tables.samples import EXACT


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
    with pytest.raises(ValueError, match=r"row 2 .* has 1 fields"):
        EmbeddingTable.open(tmp_path / "t.npy")
