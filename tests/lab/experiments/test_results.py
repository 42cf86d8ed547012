"""The log keeps what was finished, whatever happens to the process or the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest

from pro2.lab.experiments.results import _HEADER, _MAGIC, Failure, ResultStore
from pro2.lab.experiments.view import read_view
from pro2.lab.report import write_report
from tests.mutators import attack


def _columns(*keys: str) -> dict[str, list[object]]:
    return {"key": list(keys), "accuracy": [0.1 + 0.2] * len(keys)}


def test_what_is_appended_is_read_back_exactly(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append("b", _columns("k1", "k2"), 0.5)
    again = ResultStore(tmp_path)
    assert again.finished == {"k1", "k2"}
    assert list(again.rows(["k2", "nothing"])) == [{"key": "k2", "accuracy": 0.1 + 0.2}]
    assert again.seconds == {"b": 0.5}
    assert again.torn() == []


@pytest.mark.parametrize("lost", [1, 5, 11, 12, 13, 40])
def test_a_torn_last_record_is_dropped_and_the_rest_kept(tmp_path: Path, lost: int) -> None:
    with ResultStore(tmp_path) as store:
        store.append("a", _columns("k1"), 0)
        size = next((tmp_path / "log").iterdir()).stat().st_size
        store.append("b", _columns("k2"), 0)
    segment = next((tmp_path / "log").iterdir())
    segment.write_bytes(segment.read_bytes()[:-lost])
    again = ResultStore(tmp_path)
    assert again.finished == {"k1"}
    assert [(t.offset, t.n_bytes) for t in again.torn()] == [(size, segment.stat().st_size - size)]
    again.append("b", _columns("k2"), 0)
    assert ResultStore(tmp_path).finished == {"k1", "k2"}


def test_a_flipped_bit_is_no_result(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append("a", _columns("k1"), 0)
    segment = next((tmp_path / "log").iterdir())
    data = bytearray(segment.read_bytes())
    data[-3] ^= 4
    segment.write_bytes(bytes(data))
    assert ResultStore(tmp_path).finished == set()
    assert len(ResultStore(tmp_path).torn()) == 1


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    first, second = ResultStore(tmp_path), ResultStore(tmp_path)
    for i in range(20):
        (first if i % 2 else second).append(f"b{i}", _columns(f"k{i}"), 0)
    first.refresh()
    assert first.finished == {f"k{i}" for i in range(20)}
    assert len(list((tmp_path / "log").iterdir())) == 2


def test_a_failure_lasts_until_a_result_comes(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.append_failure(Failure(("k1", "k2"), {"data": "d"}, "ValueError: no", "trace"))
    store.refresh()
    assert set(store.failures) == {"k1", "k2"}
    assert store.failures["k1"].traceback == "trace"
    store.append("b", _columns("k1"), 0)
    assert set(ResultStore(tmp_path).failures) == {"k2"}


_HOLD = """
import sys
from pro2.lab.experiments.results import ResultStore
store = ResultStore(sys.argv[1])
print(store.claim("batch"), flush=True)
sys.stdin.read()
"""


def test_a_claim_holds_until_its_process_dies(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert store.claim("batch") is False
        assert store.claim("another") is True
        other.kill()
        other.wait()
    assert store.claim("batch") is True


_FILL = """
import resource, sys
from pro2.lab.experiments.results import ResultStore
store = ResultStore(sys.argv[1])
store.append("a", {"key": ["k1"], "detail": ["x"]}, 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
import random
try:
    store.append("b", {"key": ["k2"], "detail": [random.Random(0).randbytes(10000).hex()]}, 0)
except OSError as error:
    print(error)
"""


def test_a_full_disk_is_told_and_leaves_a_resumable_folder(tmp_path: Path) -> None:
    # A limit on the file size makes the write stop half way, as a full disk does.
    done = subprocess.run([sys.executable, "-c", _FILL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "the disk is full" in done.stdout
    assert "start the same command again" in done.stdout
    store = ResultStore(tmp_path)
    assert store.finished == {"k1"}
    assert sum(t.n_bytes for t in store.torn()) > 0
    store.append("b", _columns("k2"), 0)
    assert ResultStore(tmp_path).finished == {"k1", "k2"}


def test_a_full_device_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    store = ResultStore(tmp_path)
    monkeypatch.setattr(store, "_segment", os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(OSError, match="the disk is full"):
        store.append("a", _columns("k1"), 0)
    store.close()


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        ResultStore(tmp_path / "out")


def _forge(folder: Path, payload: bytes, length: int | None = None) -> Path:
    """A segment with one record that has a right checksum."""
    (folder / "log").mkdir(parents=True, exist_ok=True)
    path = folder / "log" / "forged.seg"
    header = _HEADER.pack(_MAGIC, len(payload) if length is None else length, zlib.crc32(payload))
    path.write_bytes(header + payload)
    return path


FORGED = {
    "not packed": b"plain text",
    "not JSON": zlib.compress(b"plain text"),
    "a list": zlib.compress(b"[]"),
    "no type": zlib.compress(b"{}"),
    "no columns": zlib.compress(b'{"type": "rows"}'),
    "columns of different lengths": zlib.compress(
        b'{"type": "rows", "batch": "b", "seconds": 1, "columns": {"key": ["k"], "accuracy": []}}'
    ),
    "a key that is no text": zlib.compress(b'{"type": "rows", "batch": "b", "seconds": 1, "columns": {"key": [[]]}}'),
    "deep": zlib.compress(b"[" * 1_000_000),
    "bomb": zlib.compress(bytes(300 << 20)),
    "failure without keys": zlib.compress(b'{"type": "failure"}'),
}


@pytest.mark.parametrize("payload", FORGED.values(), ids=FORGED)
def test_a_record_that_no_sweep_wrote_is_named(tmp_path: Path, payload: bytes) -> None:
    _forge(tmp_path, payload)
    with pytest.raises(ValueError, match=r"forged\.seg holds a record before byte \d+ that no sweep wrote"):
        ResultStore(tmp_path)


def test_a_length_beyond_the_file_is_not_believed(tmp_path: Path) -> None:
    _forge(tmp_path, b"short", length=2**32 - 1)
    tracemalloc.start()
    try:
        store = ResultStore(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    assert (store.finished, len(store.torn())) == (set(), 1)


@pytest.mark.fuzz
@pytest.mark.slow
def test_a_damaged_log_gives_right_rows_or_none(tmp_path: Path, fuzz_scale: int) -> None:
    with ResultStore(tmp_path) as store:
        for i in range(6):
            store.append(f"b{i}", {"key": [f"k{i}", f"l{i}"], "accuracy": [0.25 * i, None]}, 0.5)
        store.append_failure(Failure(("m",), {"data": "d"}, "ValueError: no", "Traceback"))
    (segment,) = (tmp_path / "log").iterdir()
    counts = attack("tests/lab/experiments/damage.py:reads_only_what_was_written", segment, n=150 * fuzz_scale, seed=0)
    assert counts["passed"] > 0


def test_results_of_the_first_version_open(tmp_path: Path) -> None:
    golden = Path(__file__).parents[2] / "golden" / "results-v1"
    shutil.copytree(golden, tmp_path / "old")
    with ResultStore(tmp_path / "old") as store:
        assert len(store.finished) == 138
        assert store.torn() == []
    rows = read_view(golden).to_pylist()
    assert len(rows) == 138
    assert {row["worst_group"] for row in rows} == {None}
    assert write_report(golden, tmp_path / "report", markdown=tmp_path / "docs").is_file()
    assert "Settings chosen by held-out target labels" in (tmp_path / "docs" / "small.md").read_text()
