"""The recipes of docs/howto/databases.md, run on databases of this machine that hold the rows of one table."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pro2.tables.embeddings import EmbeddingTable

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "databases.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^## (\w+).*?^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
X = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
LABELS = [None if i % 3 else "crow" for i in range(30)]


def check(name: str) -> None:
    """Run a recipe with small batches, and compare what it gives, in whatever order."""
    namespace: dict[str, EmbeddingTable] = {}
    exec(dict(RECIPES)[name].replace("10_000", "7"), namespace)
    table = namespace["table"]
    rows = np.array([int(name) for name in table.ids])
    assert sorted(rows.tolist()) == list(range(30))
    np.testing.assert_allclose(table.embeddings / np.linalg.norm(table.embeddings, axis=1)[:, None], UNIT[rows], 1e-5)
    assert table.column("label").tolist() == [LABELS[row] for row in rows]


def test_qdrant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="needs qdrant-client")
    monkeypatch.chdir(tmp_path)
    client = qdrant.QdrantClient(path="birds.qdrant")
    distance = qdrant.models.VectorParams(size=8, distance=qdrant.models.Distance.COSINE)
    client.create_collection("birds", vectors_config=distance)
    points = [
        qdrant.models.PointStruct(id=i, vector=X[i].tolist(), payload={"label": label})
        for i, label in enumerate(LABELS)
    ]
    client.upsert("birds", points)
    client.close()
    check("Qdrant")


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server on a socket in a folder of its own, which may not be run by root."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("needs PostgreSQL")
    folder = Path(tempfile.mkdtemp())
    user = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "nobody")
    quiet = {"check": True, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*user, "initdb", "-D", folder / "data", "-U", "me", "-A", "trust"], **quiet)
    options = f"-k {folder} -c listen_addresses=''"
    subprocess.run(
        [*user, "pg_ctl", "-D", folder / "data", "-o", options, "-l", folder / "log", "-w", "start"], **quiet
    )
    monkeypatch.setenv("PGHOST", str(folder))
    monkeypatch.setenv("PGUSER", "me")
    yield
    subprocess.run([*user, "pg_ctl", "-D", folder / "data", "-m", "immediate", "-w", "stop"], **quiet)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_postgresql(postgres: None) -> None:
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg")
    with psycopg.connect("dbname=postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE birds")
    with psycopg.connect("dbname=birds") as connection:
        connection.execute("CREATE TABLE birds (id integer PRIMARY KEY, embedding real[], label text)")
        rows = [(i, X[i].tolist(), label) for i, label in enumerate(LABELS)]
        connection.cursor().executemany("INSERT INTO birds VALUES (%s, %s, %s)", rows)
    check("PostgreSQL")


def test_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="needs Hugging Face datasets")
    datasets.disable_progress_bars()
    monkeypatch.chdir(tmp_path)
    table = pa.table({"id": [str(i) for i in range(30)], "embedding": list(X), "label": LABELS})
    datasets.Dataset(table).save_to_disk("birds")
    check("Hugging")
