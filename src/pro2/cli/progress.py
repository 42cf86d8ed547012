"""One progress display for all commands: a live bar on a terminal, a few lines in a log, or nothing."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

LOG_INTERVAL = 60.0  # seconds; a log gets a line per tenth of the work, and one a minute if that is longer

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Control characters of labels, ids and file names as escapes: they must not reach the terminal."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


class Progress:
    """How much of a command is done, on standard error; `update` may be passed on as a callback.

    >>> with Progress("images") as progress:
    ...     progress.update(32, 1000)
    """

    def __init__(self, unit: str, quiet: bool = False) -> None:
        self.unit, self.quiet = unit, quiet
        self.done, self.total = 0, 0
        self._bar: Any = None
        self._start: tuple[int, float] | None = None  # what was done at the first call, and when that was
        self._logged = (-1, 0.0)  # tenth and time of the last line

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            # labels and file names may look like markup, so the note is plain text
            note = TextColumn("{task.fields[note]}", markup=False)
            self._bar = Bar(
                BarColumn(), MofNCompleteColumn(), note, TimeRemainingColumn(), console=Console(stderr=True)
            )
            self._task = self._bar.add_task(self.unit, total=None, note="")
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` units are finished, with the rate since the first call and a note."""
        now = time.monotonic()
        self.done, self.total = done, total
        self._start = self._start or (done, now)
        if self.quiet:
            return
        elapsed, gained = now - self._start[1], done - self._start[0]
        rate = gained / elapsed if gained > 0 and elapsed > 0 else 0.0
        parts = [f"{rate:.3g} {self.unit}/s"] if rate else []
        parts += [visible(note)] if note else []
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, note=", ".join(parts))
            return
        tenth = done * 10 // total if total else 10
        if tenth > self._logged[0] or now - self._logged[1] >= LOG_INTERVAL:
            self._logged = (tenth, now)
            parts += [f"{(total - done) / rate:.0f} s left"] if rate and done < total else []
            print(", ".join([f"{done}/{total} {self.unit}", *parts]), file=sys.stderr, flush=True)


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """Show on a terminal what is being done; logs and pipes get nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(text))):
        yield
