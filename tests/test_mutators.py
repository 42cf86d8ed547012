"""The campaign itself: damage repeats with its seed, and every way to fail is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutators import CHANGES, attack, campaign, damage

WHOLE = b'{"rows": 12, "width": 5}' + bytes(range(256)) * 20
READER = """
import os
import signal


def honest(path, whole):
    if path.read_bytes() != whole.read_bytes():
        raise ValueError(f"{path.name} is damaged")


def guarded(misbehave):
    def check(path, whole):
        if path.read_bytes() != whole.read_bytes():
            misbehave(path)

    return check


def fail(error):
    raise error


crashing = guarded(lambda path: os.kill(os.getpid(), signal.SIGSEGV))
greedy = guarded(lambda path: bytearray(3 << 30))
blind = guarded(lambda path: fail(AssertionError("other rows")))
mute = guarded(lambda path: fail(ValueError("something is wrong")))
raw = guarded(lambda path: fail(KeyError("rows")))
"""


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    (tmp_path / "reader.py").write_text(READER, encoding="utf-8")
    (tmp_path / "whole.bin").write_bytes(WHOLE)
    return tmp_path / "reader.py"


def test_damage_repeats_and_is_damage() -> None:
    for data in (WHOLE, b"x", b"no digit"):
        cases = [damage(data, 3, number) for number in range(300)]
        assert cases == [damage(data, 3, number) for number in range(300)]
        assert all(case.data != data for case in cases)
    assert {case.what for case in (damage(WHOLE, 0, i) for i in range(300))} == {
        change.__name__.lstrip("_") for change in CHANGES
    }
    assert damage(WHOLE, 1, 0) != damage(WHOLE, 2, 0)


def test_an_honest_reader_passes(reader: Path) -> None:
    assert attack(f"{reader}:honest", reader.with_name("whole.bin"), n=30) == {"refused": 30}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("crashing", "the reader died, SIGSEGV"),
        ("greedy", "MemoryError"),
        ("blind", "other rows"),
        ("mute", "does not name the file"),
        ("raw", "KeyError"),
    ],
)
def test_every_way_to_fail_is_found(reader: Path, name: str, message: str) -> None:
    _, findings = campaign(f"{reader}:{name}", reader.with_name("whole.bin"), 3, seed=0)
    assert len(findings) == 3
    assert all(message in each for each in findings)
    assert [each.split()[1] for each in findings] == ["0", "1", "2"]
    with pytest.raises(AssertionError, match="3 of 3 cases"):
        attack(f"{reader}:{name}", reader.with_name("whole.bin"), n=3)
