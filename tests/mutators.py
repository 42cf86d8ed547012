"""Damage for files of any format, and the campaign that looks what a reader makes of it.

Mutations are seeded: a failure names the number of the case, and the same number makes the same bytes again. A reader
is tried in a child process, so that a crash, a hang or an allocation beyond reason is a finding and not the end of the
tests. In a test::

    attack("tests/tables/damage.py:opens_the_same", whole, n=200, seed=0)
"""

from __future__ import annotations

import json
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ALLOWANCE = 1 << 30  # bytes that one case may allocate beyond what the undamaged file needed
SECONDS = 10  # of processor time for one case: a loaded machine is no hang
ASLEEP = 120  # of wall-clock time, for what waits without computing
_LENGTHS = (0, 1, 2, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40)
_MARKS = [bytes([c]) for c in b"\"'\\,;:{}[]()<>=+-@#\n\r\t\0"] + [b"\xff", b"nan", b"1e999", b"-1", b"\xc3\x28"]


class Case(NamedTuple):
    """One damaged file: what was done to it, and its bytes."""

    what: str
    data: bytes


def damage(whole: bytes, seed: int, number: int) -> Case:
    """Case `number` of a campaign over one file; never the file itself."""
    rng = random.Random(f"{seed}:{number}")
    while True:
        change = rng.choice(CHANGES)
        data = change(whole, rng)
        if data != whole:
            return Case(change.__name__.lstrip("_"), data)


def _flip_bit(whole: bytes, rng: random.Random) -> bytes:
    return _flipped(whole, rng, 1)


def _flip_bits(whole: bytes, rng: random.Random) -> bytes:
    return _flipped(whole, rng, rng.randint(2, 64))


def _flipped(whole: bytes, rng: random.Random, n: int) -> bytes:
    data = bytearray(whole)
    for _ in range(n if data else 0):
        data[_place(whole, rng)] ^= 1 << rng.randrange(8)
    return bytes(data)


def _truncate(whole: bytes, rng: random.Random) -> bytes:
    return whole[: _place(whole, rng)]


def _lose_head(whole: bytes, rng: random.Random) -> bytes:
    return whole[rng.randint(1, 64) :]


def _append(whole: bytes, rng: random.Random) -> bytes:
    return whole + rng.choice([rng.randbytes(rng.randint(1, 64)), whole[-64:], bytes(8), whole])


def _splice(whole: bytes, rng: random.Random) -> bytes:
    """A piece of the file over another place of it, or between."""
    start, at, size = _place(whole, rng), _place(whole, rng), rng.randint(1, 256)
    return whole[:at] + whole[start : start + size] + whole[at + rng.choice([0, size]) :]


def _cut_out(whole: bytes, rng: random.Random) -> bytes:
    at = _place(whole, rng)
    return whole[:at] + whole[at + rng.randint(1, 64) :]


def _blank(whole: bytes, rng: random.Random) -> bytes:
    """A block of zeros or ones, as a bad sector leaves it."""
    at, size = _place(whole, rng), rng.choice([8, 64, 512])
    return whole[:at] + rng.choice([b"\0", b"\xff"]) * len(whole[at : at + size]) + whole[at + size :]


def _edit_length(whole: bytes, rng: random.Random) -> bytes:
    """Another integer where a header may keep a length or an offset: aligned, 1 to 8 bytes, near either end."""
    size = rng.choice([1, 2, 4, 8])
    at = _place(whole, rng) // size * size
    value = rng.choice([*_LENGTHS, len(whole), len(whole) + 1, rng.getrandbits(64)])
    value = -value if rng.random() < 0.2 else value
    return whole[:at] + (value % (1 << 8 * size)).to_bytes(size, "little") + whole[at + size :]


def _edit_digit(whole: bytes, rng: random.Random) -> bytes:
    """Another digit in a header of text, or one more."""
    digits = [i for i, c in enumerate(whole[:65536]) if c in b"0123456789"]
    if not digits:
        return whole
    at = rng.choice(digits)
    return whole[:at] + str(rng.randrange(10**3)).encode() + whole[at + rng.choice([0, 1]) :]


def _edit_mark(whole: bytes, rng: random.Random) -> bytes:
    """A character that means something to a parser of text, over another or between."""
    at = _place(whole, rng)
    return whole[:at] + rng.choice(_MARKS) * rng.choice([1, 1, 1, 3000]) + whole[at + rng.choice([0, 1]) :]


CHANGES: list[Callable[[bytes, random.Random], bytes]] = [
    _flip_bit, _flip_bit, _flip_bits, _truncate, _lose_head, _append, _splice, _cut_out, _blank, _edit_length,
    _edit_length, _edit_digit, _edit_mark,
]  # fmt: skip


def _place(whole: bytes, rng: random.Random) -> int:
    """Anywhere, and half of the time in the first or last 2 KiB: headers and footers are where the meaning is."""
    end = max(1, len(whole))
    near = rng.randrange(min(end, 2048))
    return rng.choice([rng.randrange(end), rng.randrange(end), near, end - 1 - near])


# ---- the campaign


def attack(check: str, whole: Path, n: int, seed: int = 0) -> Counter[str]:
    """Try a reader on `n` damaged copies of a file, in a child process.

    Parameters
    ----------
    check : str
        ``path/of/file.py:function``, seen from the root of the repository. The function gets (damaged path, undamaged
        path). It raises ValueError or OSError that names the damaged file, or returns because all that it read is
        right; it asserts when something differs.

    Returns
    -------
    Counter
        How often the reader refused, and how often it returned.
    """
    counts, findings = campaign(check, whole, n, seed)
    what = f"{len(findings)} of {n} cases of {check} on {whole.name}, seed {seed}"
    assert not findings, "\n".join([what, *findings[:5]])
    return counts


def campaign(check: str, whole: Path, n: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Counts and findings; goes on after a crash with the next case."""
    counts: Counter[str] = Counter()
    findings: list[str] = []
    start = 0
    while start < n:
        done = subprocess.run(
            [sys.executable, __file__, check, *map(str, (whole, n, seed, start))],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},  # its own pools reserve a GiB at a time
        )
        for line in done.stdout.splitlines():
            start, outcome, what = json.loads(line)
            counts[outcome] += 1
            if outcome == "finding":
                findings.append(f"case {start} ({what[:2000]})")
        if done.returncode == 0:
            break
        start += bool(done.stdout)  # the case after the last one that was answered
        death = signal.Signals(-done.returncode).name if done.returncode < 0 else done.stderr[-2000:]
        findings.append(f"case {start} ({damage(whole.read_bytes(), seed, start).what}): the reader died, {death}")
        start += 1
    return counts, findings


def _child(check: str, whole: Path, numbers: range, seed: int) -> None:
    """One line of JSON on stdout for each case: number, outcome, and what went wrong."""
    file, _, name = check.rpartition(":")
    function = runpy.run_path(str(ROOT / file))[name]
    content = whole.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{whole.suffix}"
        path.write_bytes(content)
        function(path, whole)  # the undamaged file must pass; and what it needs is loaded before memory is limited
        for number in numbers:
            case = damage(content, seed, number)
            path.unlink()  # never over a file that is still mapped
            path.write_bytes(case.data)
            _limit_memory()
            outcome, what = _outcome(function, path, whole)
            print(json.dumps([number, outcome, f"{case.what}: {what}"]), flush=True)


def _outcome(function: Callable[[Path, Path], None], path: Path, whole: Path) -> tuple[str, str]:
    # The default action of both signals ends the process, also inside C code where no exception could be raised.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, ASLEEP)
    try:
        function(path, whole)
        return "passed", ""
    except (ValueError, OSError) as error:
        if path.name in str(error):
            return "refused", ""
        return "finding", f"{type(error).__name__} does not name the file: {error}"
    except Exception:
        return "finding", traceback.format_exc(limit=-4)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit_memory() -> None:
    if sys.platform != "linux":
        return
    import resource

    status = Path("/proc/self/status").read_text(encoding="utf-8")
    used = int(status.split("VmData:")[1].split()[0]) * 1024
    # The soft limit, anew for each case: allocators keep what an earlier case has given back.
    resource.setrlimit(resource.RLIMIT_DATA, (used + ALLOWANCE, resource.getrlimit(resource.RLIMIT_DATA)[1]))


if __name__ == "__main__":
    check, whole, n, seed, start = sys.argv[1:]
    _child(check, Path(whole), range(int(start), int(n)), int(seed))
