"""The atomic write: old or new, never half, whatever happens between two system calls."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pro2.atomic import atomic_write, check_target

OLD, NEW = b"old content", b"new content, " * 1000
CALLS = ("open", "close", "fsync", "link", "replace", "unlink", "fchmod", "stat")


def write(path: Path, content: bytes = NEW, force: bool = False) -> Path:
    return atomic_write(path, lambda file: file.write(content), force)


def temporaries(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.name.endswith(".part"))


@pytest.fixture(params=[True, False], ids=["replaces", "is new"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "out.bin"
    if request.param:
        path.write_bytes(OLD)
    return path


# A crash between any two system calls: first of the process, then of the machine


@contextlib.contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, before: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    """Every system call of a write is announced to `before`."""
    with monkeypatch.context() as patch:
        for name in CALLS:
            real = getattr(os, name)

            def call(*args: Any, _name: str = name, _real: Any = real, **kwargs: Any) -> Any:
                before(_name, args)
                return _real(*args, **kwargs)

            patch.setattr(os, name, call)
        yield


def count_calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    seen: list[str] = []
    with watched(monkeypatch, lambda name, args: seen.append(name)):
        write(path, force=True)
    assert {"open", "fsync", "close"} <= set(seen)
    return len(seen)


WAYS = pytest.mark.parametrize(("existed", "force"), [(True, True), (False, True), (False, False)])


@WAYS
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child does nothing but write and die
def test_a_process_that_dies_before_any_call_leaves_old_or_new(
    tmp_path: Path, existed: bool, force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.bin"
    for victim in range(count_calls(target.with_name("other"), monkeypatch) + 3):
        target.unlink(missing_ok=True)
        if existed:
            target.write_bytes(OLD)
        child = os.fork()
        if child == 0:  # the process dies for real: no clean-up, no handler
            left = iter(range(victim))
            with watched(monkeypatch, lambda name, args, left=left: next(left, None) is None and os._exit(9)):
                write(target, force=force)
            os._exit(0)
        os.waitpid(child, 0)
        found = target.read_bytes() if target.exists() else None
        assert found in ((OLD, NEW) if existed else (None, NEW))
        assert len(temporaries(target.parent)) <= 1  # the one that the dead process had begun
        for name in temporaries(target.parent):
            (target.parent / name).unlink()
        assert write(target, force=True).read_bytes() == NEW
        assert temporaries(target.parent) == []


@WAYS
def test_a_machine_that_dies_at_any_moment_finds_old_or_new(
    tmp_path: Path, existed: bool, force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content is safe before it gets its name, and the name before the call returns; a disk may reorder all else."""
    target = tmp_path / "out.bin"
    if existed:
        target.write_bytes(OLD)
    log: list[tuple[str, str]] = []

    def seen(call: str, args: tuple[Any, ...]) -> None:
        if call == "fsync":
            log.append((call, Path(f"/proc/self/fd/{args[0]}").readlink().name))
        elif call in ("replace", "link"):
            assert Path(args[0]).stat().st_size == len(NEW)
            log.append((call, Path(args[0]).name))

    with watched(monkeypatch, seen):
        write(target, force=force)
    (temporary,) = {name for call, name in log if call in ("replace", "link")}
    moved = next(i for i, (call, _) in enumerate(log) if call in ("replace", "link"))
    assert log[:moved] == [("fsync", temporary)]
    assert log[-1] == ("fsync", tmp_path.name)


# What may be replaced, and how it looks afterwards


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(OLD)
    with pytest.raises(FileExistsError, match="out exists; choose another name or pass force=True"):
        write(path)
    assert path.read_bytes() == OLD
    assert write(path, force=True).read_bytes() == NEW


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_the_mode_of_a_replaced_file_stays(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(OLD)
    path.chmod(mode)
    write(path, force=True)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        assert stat.S_IMODE(write(tmp_path / "out").stat().st_mode) == 0o640
    finally:
        os.umask(before)


def test_devices_pipes_and_folders_are_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "folder", "link", "/dev/null"):
        with pytest.raises(FileExistsError, match=f"{name} is not a regular file and is never replaced"):
            write(tmp_path / name, force=True)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_link_keeps_pointing_to_the_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "real").write_bytes(OLD)
    (tmp_path / "link").symlink_to("store/real")
    assert write(tmp_path / "link", force=True) == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "store" / "real").read_bytes() == NEW


def test_long_and_odd_names_can_be_written(tmp_path: Path) -> None:
    for name in ("ü" * 127, "x" * 255, "[a] b\n*.bin", "-rf"):
        assert write(tmp_path / name).read_bytes() == NEW
    assert temporaries(tmp_path) == []


def test_two_writers_without_force_make_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def slow(file: Any) -> None:
        file.write(b"slow")
        write(path, b"fast")

    with pytest.raises(FileExistsError, match="someone else meanwhile"):
        atomic_write(path, slow)
    assert path.read_bytes() == b"fast"
    assert temporaries(tmp_path) == []


def test_a_full_disk_is_explained_and_changes_nothing(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = target.read_bytes() if target.exists() else None

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"^cannot write .*out.bin: No space left.*nothing was changed") as caught:
        write(target, force=True)
    assert caught.value.errno == errno.ENOSPC
    assert (target.read_bytes() if target.exists() else None) == before
    assert temporaries(target.parent) == []


def test_a_failing_writer_leaves_nothing(target: Path) -> None:
    before = sorted(each.name for each in target.parent.iterdir())

    def fails(file: Any) -> None:
        file.write(b"half")
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        atomic_write(target, fails, force=True)
    assert sorted(each.name for each in target.parent.iterdir()) == before


# Killed for real

KILLED = """
import sys
from pathlib import Path
from pro2.atomic import atomic_write

print("ready", flush=True)
for turn in range(10**9):
    letter = bytes([97 + turn % 26])
    atomic_write(Path(sys.argv[1]), lambda file: [file.write(letter * 50_000) for _ in range(4)], force=True)
"""


@pytest.mark.fuzz
@pytest.mark.slow
def test_killed_at_random_moments_a_file_is_always_whole(tmp_path: Path, fuzz_scale: int) -> None:
    path = tmp_path / "out.bin"
    for turn in range(10 * fuzz_scale):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.001 * (turn % 17))  # any moment will do: the assertion holds at all of them
            process.kill()
        if path.exists():
            content = path.read_bytes()
            assert len(content) == 200_000
            assert len(set(content)) == 1
    assert write(path, force=True).read_bytes() == NEW


def test_a_folder_that_may_not_be_written_to_is_named_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(PermissionError, match=rf"folder {re.escape(str(tmp_path))} may not be written to"):
        check_target(tmp_path / "out", force=False)
