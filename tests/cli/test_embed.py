"""`pro2 embed` as a user runs it: real processes, killed, stopped, starved and started again."""

from __future__ import annotations

import csv
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.tables.embeddings import EmbeddingTable
from tests.tiny_net import HALT_AFTER, installed

pil = pytest.importorskip("PIL.Image")
PRO2 = [sys.executable, "-c", "from pro2.cli.main import main; main()"]
LIMIT = 120.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from installed(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """160 images in two folders: twenty shards of eight."""
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(5)
    for i in range(160):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        pil.fromarray(pixels).save(folder / "ab"[i % 2] / f"{i:03d}.jpg", quality=95)
    return folder


def start(*arguments: object, limit: int | None = None, halt_after: int = sys.maxsize) -> subprocess.Popen[str]:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit or 0, limit or 0))

    return subprocess.Popen(
        [*PRO2, "embed", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", HALT_AFTER: str(halt_after)},
        preexec_fn=small_files if limit else None,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=LIMIT)
    assert "Traceback" not in err
    return process.returncode, out, err


def embed(*arguments: object, limit: int | None = None) -> tuple[int, str, str]:
    return finish(start(*arguments, limit=limit))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, f"it ended before we could interrupt it: {process.communicate()}"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def shards(out: Path) -> int:
    return len(list(out.with_name(out.name + ".parts").glob("shard-*.arrow")))


@pytest.fixture(scope="module")
def calm(tiny: str, many: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What an undisturbed run writes."""
    out = tmp_path_factory.mktemp("calm") / "t.arrow"
    code, said, log = embed(many, "--backbone", tiny, "--out", out, "--batch-size", 1)
    assert code == 0, log
    assert "160 rows" in said
    assert "160/160 images" in log  # a plain log where there is no terminal
    assert "\x1b[" not in log
    return out.read_bytes()


@pytest.mark.slow
def test_what_was_finished_is_kept_and_the_result_is_byte_identical(
    tiny: str, many: Path, calm: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "t.arrow"
    arguments = (many, "--backbone", tiny, "--out", out, "--batch-size", 1)
    for reached, number in ((1, signal.SIGKILL), (5, signal.SIGKILL), (9, signal.SIGINT)):
        process = start(*arguments, halt_after=8 * reached + 4)
        wait_for(lambda reached=reached: shards(out) >= reached, process)
        process.send_signal(number)
        code, _, log = finish(process)
        assert code == (130 if number == signal.SIGINT else -number), log
        assert not out.exists()
    assert re.search(rf"interrupted; \d+ of 160 images are embedded and kept in {out}.parts. Run the same command", log)
    code, _, log = embed(*arguments, limit=4000)  # the system refuses to let any file grow beyond this
    assert code == 1
    assert "no space left to write" in log
    assert "run the same command again" in log
    (tmp_path / ".t.arrow.0123abcd.part").write_bytes(bytes(100))  # as a killed writer of the table leaves it
    code, said, log = embed(*arguments)
    assert code == 0, log
    assert "from an earlier run" in log
    assert out.read_bytes() == calm
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.arrow"]
    table = EmbeddingTable.open(out)
    assert table.verify()
    assert table.column("label").tolist() == ["a"] * 80 + ["b"] * 80  # the names of the folders
    code, said, _ = embed(*arguments)
    assert (code, "already complete" in said) == (0, True)


def test_lists_columns_skipping_and_options(tiny: str, many: Path, tmp_path: Path) -> None:
    names = sorted(path.relative_to(many).as_posix() for path in many.rglob("*.jpg"))[:6]
    listing, out = tmp_path / "list.csv", tmp_path / "t.arrow"
    rows = [
        *((name, i % 2, f"u{i}") for i, name in enumerate(names)),
        ("../secret.jpg", 0, "bad"),
        ("gone.jpg", 1, "no"),
    ]
    with listing.open("w", newline="") as stream:
        csv.writer(stream).writerows([("photo", "y", "id"), *rows])
    arguments: list[Any] = [listing, "--root", many, "--path-column", "photo", "--backbone", tiny, "--out", out]
    code, _, log = embed(*arguments)
    assert code == 1
    assert "../secret.jpg: the entry leads out of the root folder" in log
    code, said, log = embed(*arguments, "--on-error", "skip", "--dtype", "float16", "--force")
    assert code == 0, log
    assert "2 images were left out" in said
    table = EmbeddingTable.open(out)
    assert table.ids.tolist() == [f"u{i}" for i in range(6)]
    assert table.column("y").tolist() == [0, 1] * 3
    assert table.dtype == np.float16
    reasons = (tmp_path / "t.arrow.skipped.csv").read_text()
    assert "leads out of the root" in reasons
    assert "no such file" in reasons
