"""How a sweep shows its progress: a live display, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pro2.lab.experiments.run import Progress

Show = Callable[["Progress"], None]

# Plain output goes to logs: one line every few seconds is enough.
_EVERY = 5.0


@contextmanager
def progress_display(mode: str = "auto") -> Iterator[Show | None]:
    """A callback for `run_sweep`; "auto" is a live display on a terminal and plain lines elsewhere."""
    if mode == "quiet":
        yield None
    elif mode == "json":
        yield _print_json
    elif not sys.stderr.isatty():
        yield _PlainLines()
    else:
        yield from _live()


def _print_json(state: Progress) -> None:
    counts = {"runs": state.n_runs, "before": state.n_before, "done": state.n_done, "failed": state.n_failed}
    print(
        json.dumps({"event": "progress", **counts, "seconds": round(state.seconds, 3), "best": state.best}), flush=True
    )


class _PlainLines:
    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, state: Progress) -> None:
        if time.monotonic() - self._last >= _EVERY or state.n_missing == 0:
            self._last = time.monotonic()
            print(_line(state), file=sys.stderr, flush=True)


def _line(state: Progress) -> str:
    left = f"{state.n_missing / state.rate:.0f} s left" if state.rate > 0 else "time left unknown"
    done = state.n_before + state.n_done
    failed = f", {state.n_failed} failed" if state.n_failed else ""
    return f"{done}/{state.n_runs} runs{failed}, {state.rate:.0f} per second, {left}"


def _live() -> Iterator[Show]:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    bar = Bar(
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn(), console=console
    )
    task = bar.add_task("runs", total=None, note="opening data")
    with Live(bar, console=console, refresh_per_second=8) as live:

        def show(state: Progress) -> None:
            note = f"{state.rate:.0f} runs/s" + (f", [red]{state.n_failed} failed[/]" if state.n_failed else "")
            bar.update(task, total=state.n_runs, completed=state.n_runs - state.n_missing, note=note)
            best = "   ".join(f"{name} [bold]{value:.1%}[/]" for name, value in state.best.items())
            live.update(Group(bar, f"best mean accuracy so far   {best}" if best else ""))

        yield show
