"""The demo from images: the same pictures every time, a verified table, rows that were measured."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from pro2.lab import images_demo as demo
from pro2.tables.embeddings import EmbeddingTable
from tests.tiny_net import installed

pytest.importorskip("PIL")


@pytest.fixture
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from installed(tmp_path_factory.mktemp("tiny"))


def test_images_are_the_same_every_time(tmp_path: Path) -> None:
    first, again = demo.make_images(tmp_path / "a"), demo.make_images(tmp_path / "b")
    assert first.read_bytes() == again.read_bytes()
    files = sorted(path.name for path in first.parent.glob("*.png"))
    assert len(files) == demo.N_SOURCE + demo.N_TARGET
    assert all((first.parent / name).read_bytes() == (again.parent / name).read_bytes() for name in files[::50])
    with first.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    source = [(row["y"] == "0") == (row["photo"] == "palace") for row in rows if row["split"] == "source"]
    target = [(row["y"] == "0") == (row["photo"] == "palace") for row in rows if row["split"] == "target"]
    assert sum(source) / len(source) > 0.9
    assert sum(target) * 2 == len(target)


def test_the_demo_runs_from_images_to_accuracies(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SEEDS", range(2))
    monkeypatch.setattr(demo, "SHOTS", (2, 8))
    lines: list[str] = []
    rows = demo.images_demo(tmp_path, lines.append, tiny)
    assert len(rows) == 3 * 5 * 2 * 2  # targets, methods, draws, shots
    assert all(0 <= row["accuracy"] <= 1 for row in rows)
    table = EmbeddingTable.open(tmp_path / "images.arrow")
    assert table.n_rows == demo.N_SOURCE + demo.N_TARGET
    assert "verified" in lines[-1]
    with (tmp_path / "images.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(rows)
