"""A scan gives the same results however a file is cut, and whatever was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

import pro2
from pro2 import EmbeddingTable
from pro2.cli import predict
from pro2.tables import scan
from tests.cli.commands import ended, refused, run, run_json

WIDTH = 6


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Parts of 16 rows, and batches of 4; results depend on them, so that every test here has the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scan, "PART_ROWS", 16)
    monkeypatch.setattr(scan, "NUMBERS", 5 * WIDTH)


def make_table(n: int = 100, dtype: str = "f2") -> EmbeddingTable:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = (rng.normal(size=(n, WIDTH)) + 3 * np.eye(WIDTH)[y]).astype(dtype)
    return EmbeddingTable(
        X, [f"={i}" for i in range(n)], {"y": np.array(["a", "b,", "c"])[y], "site": np.arange(n) % 7}
    )


def cut(table: EmbeddingTable, name: str, *ends: int) -> EmbeddingTable:
    """The same rows as a file of several pieces."""
    whole = pa.table(table)
    pieces = [whole.slice(start, end - start) for start, end in zip((0, *ends), (*ends, len(table)))]
    if name.endswith(".parquet"):
        with pq.ParquetWriter(name, whole.schema) as writer:
            for piece in pieces:
                writer.write_table(piece)
    else:
        with pa.ipc.new_file(name, whole.schema) as writer:
            for piece in pieces:
                writer.write_table(piece)
    return EmbeddingTable.open(name)


def summed(X: np.ndarray, *values: np.ndarray) -> dict[str, np.ndarray]:
    assert X.dtype == np.float32
    return {"sum": X @ np.arange(WIDTH, dtype=np.float32), "n": np.full(len(X), len(X)), "value": values[0]}


@pytest.mark.parametrize("name", ["t.arrow", "t.parquet"])
def test_batches_do_not_depend_on_how_a_file_is_cut(name: str) -> None:
    whole = make_table()
    for rows in (whole, whole.where("site > 2")):
        expected = [*scan.scan(rows, summed, rows.rows)]
        assert [number for number, _ in expected] == [*range(-(-len(rows) // 16))]
        assert sorted({n for _, found in expected for n in found["n"].to_pylist()}) == sorted({4, len(rows) % 4} - {0})
        np.testing.assert_array_equal(np.concatenate([found["value"] for _, found in expected]), rows.rows)
        np.testing.assert_array_equal(
            np.concatenate([found["sum"] for _, found in expected]),
            np.concatenate([summed(rows.embeddings[i : i + 4].astype("f4"), 0)["sum"] for i in range(0, len(rows), 4)]),
        )
        other = cut(whole, name, 3, 33, 34, 90)
        found = [*scan.scan(other if rows is whole else other.where("site > 2"), summed, rows.rows)]
        assert found == expected
        some = [*scan.scan(other.take(rows.rows), summed, rows.rows, wanted=[1, 3])]
        assert some == [expected[1], expected[3]]


def test_float16_is_converted_exactly() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 256)
    with np.errstate(over="ignore", invalid="ignore"):
        found = scan.to_single(every, np.empty(every.size, np.float32))
        np.testing.assert_array_equal(found.view(np.int32), every.astype(np.float32).view(np.int32))
        finite = every[np.isfinite(every).all(axis=1)]  # the others take another way
        found = scan.to_single(finite, np.empty(finite.size, np.float32))
    np.testing.assert_array_equal(found.view(np.int32), finite.astype(np.float32).view(np.int32))


def test_no_part_crosses_the_border_of_a_file() -> None:
    for i, n in enumerate((20, 16, 3)):
        table = make_table(n)
        EmbeddingTable(table.embeddings, [f"{i}-{j}" for j in range(n)]).save(f"t/site={i}/p.arrow".replace("/", "-"))
        Path(f"t/site={i}").mkdir(parents=True)
        Path(f"t-site={i}-p.arrow").rename(f"t/site={i}/p.arrow")
    table = EmbeddingTable.open("t")
    found = [(part.file, part.rows.start, part.rows.stop) for part in scan.parts(table)]
    names = [f"site={i}/p.arrow" for i in range(3)]
    assert found == [(names[0], 0, 16), (names[0], 16, 20), (names[1], 20, 36), (names[2], 36, 39)]
    assert [part.file for part in scan.parts(table.where("site == 2"))] == [names[2]]
    with pytest.raises(ValueError, match="increasing order"):
        scan.parts(table.take([3, 1]))


def test_what_work_raises_is_raised_and_a_cluster_needs_a_file() -> None:
    def work(X: np.ndarray) -> dict[str, np.ndarray]:
        raise ValueError("no")

    with pytest.raises(ValueError, match=r"^no$"):
        [*scan.scan(make_table(), work)]
    with pytest.raises(ValueError, match="save it where all nodes can read it"):
        [*scan.scan(make_table(), work, ray="local")]


# ---- pro2 predict


@pytest.fixture
def adapted() -> Any:
    """A table and a classifier, in files."""
    table = make_table(100, "f4")
    table.save("t.arrow")
    model = pro2.ProjectAndProbe().fit(table.embeddings, table.column("y"))
    found = model.adapt(table.embeddings[:30], table.column("y")[:30])
    found.save("a")
    return found


def interrupted(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """`predict` is interrupted after some batches; once."""
    compute, n = predict.Predictions.__call__, iter(range(100))

    def call(self: Any, X: np.ndarray) -> Any:
        if next(n) == calls:
            monkeypatch.setattr(predict.Predictions, "__call__", compute)
            raise KeyboardInterrupt
        return compute(self, X)

    monkeypatch.setattr(predict.Predictions, "__call__", call)


OUTS = ["p.csv", "p.parquet", "p"]


def content(path: str) -> dict[str, bytes]:
    files = [file for file in [Path(path), *Path(path).rglob("*")] if file.is_file()]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


@pytest.mark.parametrize("out", OUTS)
def test_an_interrupted_run_continues_with_the_same_bytes(
    out: str, adapted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "predict a t.arrow --proba --sets 0.8 --reject 0.1"
    run(f"{line} -o whole{out[1:]}")
    monkeypatch.setattr("pro2.cluster.available_cores", lambda: 1)
    interrupted(monkeypatch, 10)
    assert "32 of 100 rows are predicted and kept in " in ended(f"{line} -o {out}")[2]
    kept = {file.name: file.stat().st_mtime_ns for file in Path(f"{out}.parts").glob("part-*")}
    assert len(kept) == 2
    computed: list[int] = []
    results = scan.scan
    monkeypatch.setattr(scan, "scan", lambda *a, **k: computed.extend(k["wanted"]) or results(*a, **k))
    run(f"{line} -o {out}")
    assert computed == [2, 3, 4, 5, 6]
    assert content(out) == content(f"whole{out[1:]}") != {}
    assert not Path(f"{out}.parts").exists()


@pytest.mark.parametrize("change", ["table", "classifier", "option"])
def test_other_inputs_start_anew(change: str, adapted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pro2.cluster.available_cores", lambda: 1)
    interrupted(monkeypatch, 10)
    ended("predict a t.arrow -o p.csv --no-verify")
    if change == "table":
        table = make_table(100, "f4")
        EmbeddingTable(-table.embeddings, table.ids).save("t.arrow", force=True)
    elif change == "classifier":
        adapted.coef_ = -adapted.coef_
        adapted.save("a", force=True)
    line = "predict a t.arrow --no-verify" + " --proba" * (change == "option")
    run(f"{line} -o p.csv")
    run(f"{line} -o q.csv")
    assert content("p.csv") == content("q.csv")


def rounded(value: Any) -> Any:
    """Without the last digits, in which products of other batches may differ."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return round(value, 6) if isinstance(value, float) else value


@pytest.mark.parametrize(
    "line", ["evaluate a t.arrow -y y --source m -g site -g y", "suggest m t.arrow -n 9 -w 'site > 1'"]
)
def test_other_commands_do_not_depend_on_parts(line: str, adapted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pro2.ProjectAndProbe().fit(make_table(100, "f4").embeddings, make_table(100).column("y")).save("m")
    found = run_json(line)
    monkeypatch.setattr(scan, "PART_ROWS", 1 << 16)
    monkeypatch.setattr(scan, "NUMBERS", 1 << 22)
    assert rounded(found) == rounded(run_json(line))
    assert found.get("rows") == 100 or len(found["ids"]) == 9


def test_two_processes_do_not_write_the_same_parts(adapted: Any) -> None:
    Path("p.csv.parts").mkdir()
    with FileLock("p.csv.parts/lock"):
        assert "another process is writing p.csv.parts" in refused("predict a t.arrow -o p.csv")
    assert run_json("predict a t.arrow -o p.csv")["rows"] == 100


def test_a_run_that_fails_at_once_leaves_nothing(adapted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, X: np.ndarray) -> Any:
        raise ValueError("wrong")

    monkeypatch.setattr(predict.Predictions, "__call__", wrong)
    assert ended("predict a t.arrow -o p.csv")[2].endswith("error: wrong\n")
    assert sorted(file.name for file in Path().iterdir()) == ["a", "t.arrow"]
