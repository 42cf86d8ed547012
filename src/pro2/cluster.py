"""Where work can run: the cores of this machine, and a Ray cluster, which is imported on first use."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

from pro2.extras import imported


def available_cores() -> int:
    """Cores that this process may use; a container or `taskset` can give fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def join(address: str | None = None) -> Any:
    """The `ray` module, connected: to the cluster already joined, to `address`, or to a new one on this machine."""
    ray = imported("ray", "work on a cluster needs Ray; run: pip install 'pro2[ray]'", "data")
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    return ray


@contextlib.contextmanager
def quiet(ray: Any) -> Iterator[None]:
    """Our own progress display is enough; Ray's warnings and errors still come through."""
    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    before = context.enable_progress_bars, logger.level
    context.enable_progress_bars = False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        logger.setLevel(before[1])


@contextlib.contextmanager
def failures(ray: Any, advice: str) -> Iterator[None]:
    """Turn what a cluster raises into one sentence; an error of our own on a worker is raised as itself."""
    try:
        yield
    except ray.exceptions.RayError as error:
        causes: list[BaseException] = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        text = "\n".join(str(cause).strip() or type(cause).__name__ for cause in causes)
        # what a task raised travels as text, its traceback around it
        ours = re.search(r"^(ValueError|TypeError): (.+)$", text, re.MULTILINE)
        if ours:
            raise (ValueError if ours[1] == "ValueError" else TypeError)(ours[2]) from error
        raise OSError(f"the Ray cluster failed: {text.splitlines()[-1]}; {advice}") from error
