"""The store keeps what was finished, whatever happens to the process or the disk, and gives views of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pro2.lab.experiments.store import STORE, ResultStore, read_view
from tests.mutators import attack


def _columns(n: int = 2) -> dict[str, list[object]]:
    return {"accuracy": [0.1 + 0.2] * n, "n_test": [3] * n, "detail": ["x"] * n}


def test_what_is_put_is_read_back_exactly(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.put("a", {**_columns(), "worst_group": [float("nan"), 0.5]}, 0.5)
    with ResultStore(tmp_path) as again:
        assert again.finished() == {"a": 0.5}
        assert dict(again.results()) == {"a": {**_columns(), "worst_group": [None, 0.5]}}
        assert again.damaged() == []
    assert {path.name for path in tmp_path.iterdir()} == {STORE}  # no lock or journal stays behind


def test_two_stores_share_a_folder(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as first, ResultStore(tmp_path) as second:
        for i in range(20):
            (first if i % 2 else second).put(f"k{i}", _columns(), 0)
        assert set(first.finished()) == set(second.finished()) == {f"k{i}" for i in range(20)}


def test_a_failure_lasts_until_a_result_comes_or_it_is_forgotten(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        for key in ("a", "b"):
            store.put_failure(key, "ValueError: no", "trace")
        assert store.failures() == dict.fromkeys(("a", "b"), ("ValueError: no", "trace"))
        assert store.claim(["a", "c"]) == ["c"]
        store.put("a", _columns(), 0)
        assert set(store.failures()) == {"b"}
        store.forget(["b"])
        assert store.claim(["b"]) == ["b"]


def test_a_claim_is_for_one_store_and_ends_with_it(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        with ResultStore(tmp_path) as other:
            assert other.claim(["a"]) == ["a"]
            assert other.claim(["a"]) == []
            other.put("b", _columns(), 0)
            store.release_dead()
            assert store.claim(["a"]) == []
        assert store.claim(["a", "b"]) == ["a"]  # b is done


_HOLD = """
import sys
from pro2.lab.experiments.store import ResultStore
store = ResultStore(sys.argv[1])
print(store.claim(["a"]), flush=True)
sys.stdin.read()
"""


def test_a_claim_holds_until_its_process_dies(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        with subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdin=-1, stdout=-1, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "['a']\n"
            store.release_dead()
            assert store.claim(["a"]) == []
            other.kill()
            other.wait()
        store.release_dead()
        assert store.claim(["a"]) == ["a"]
    assert {path.name for path in tmp_path.iterdir()} == {STORE}


_FILL = """
import random, resource, sys
from pro2.lab.experiments.store import ResultStore
store = ResultStore(sys.argv[1])
store.put("a", {"detail": ["x"]}, 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))
try:
    store.put("b", {"detail": [random.Random(0).randbytes(100000).hex()]}, 0)
except OSError as error:
    print(error)
"""


def test_a_full_disk_is_named_and_leaves_a_resumable_folder(tmp_path: Path) -> None:
    # A limit on the file size makes the write stop half way, as a full disk does.
    done = subprocess.run([sys.executable, "-c", _FILL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert f"cannot write results to {tmp_path / STORE}" in done.stdout
    assert "start the same command again" in done.stdout
    with ResultStore(tmp_path) as store:
        assert set(store.finished()) == {"a"}
        store.put("b", _columns(), 0)
        assert set(store.finished()) == {"a", "b"}


def test_what_is_not_a_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        ResultStore(tmp_path / "out")
    (tmp_path / STORE).write_bytes(b"not a database" * 100)
    with pytest.raises(ValueError, match=rf"{STORE} is damaged .*move it away and run the sweep again"):
        ResultStore(tmp_path)


@pytest.mark.parametrize(
    "content", [b"plain text", b"\xff", b"[]", b'{"accuracy": 3}', b'{"accuracy": [[]]}', b"[" * 100_000]
)
def test_content_that_no_sweep_wrote_is_named(tmp_path: Path, content: bytes) -> None:
    with ResultStore(tmp_path) as store:
        store._execute("INSERT INTO cells (key, columns) VALUES ('forged', ?)", content)
        with pytest.raises(ValueError, match=rf"{STORE} is damaged"):
            list(store.results())


@pytest.mark.fuzz
@pytest.mark.slow
def test_a_damaged_store_gives_right_rows_or_none(tmp_path: Path, fuzz_scale: int) -> None:
    with ResultStore(tmp_path) as store:
        for i in range(40):
            store.put(f"b{i}", {"accuracy": [0.25 * i, None], "detail": ["y" * 50] * 2}, 0.5)
        store.put_failure("m", "ValueError: no", "Traceback")
    check = "tests/lab/experiments/damage.py:reads_only_what_was_written"
    counts = attack(check, tmp_path / STORE, n=100 * fuzz_scale, seed=0)
    assert counts["passed"] > 0


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no results\.parquet: run a sweep"):
        read_view(tmp_path)
    (tmp_path / "results.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ValueError, match=r"results\.parquet is damaged or not a results file"):
        read_view(tmp_path)
