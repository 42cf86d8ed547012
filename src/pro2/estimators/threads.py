"""BLAS threads: as many as pay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

LARGE = 2e10  # multiplications from which on more than one BLAS thread pays: a third of a second


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def blas_threads_for(work: float) -> Iterator[None]:
    """One BLAS thread for few multiplications: several threads wait for each other on a busy machine.

    NumPy and SciPy bring a BLAS each, and the threads of one keep the cores from the other for a while.
    """
    if work >= LARGE:
        yield
        return
    with _blas().limit(limits=1, user_api="blas"):
        yield
