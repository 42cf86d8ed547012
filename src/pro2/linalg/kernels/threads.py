"""Work on threads: a large batch of small problems in pieces that fit the cache, or a few large pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from array_api_compat import is_numpy_array

from pro2.linalg.moments import Array

PIECE_BYTES = 2 << 20  # of features: with its temporaries a piece stays in the cache that cores share

T = TypeVar("T")
R = TypeVar("R")


def host_pieces(like: Array, shape: tuple[int, ...], size: int) -> list[slice]:
    """Slices of the leading axis with about PIECE_BYTES of features each (`size` numbers a problem); NumPy only."""
    if not shape or not is_numpy_array(like):
        return []
    each = size * like.itemsize * math.prod(shape[1:])
    rows = max(1, PIECE_BYTES // max(each, 1))
    return [slice(i, min(i + rows, shape[0])) for i in range(0, shape[0], rows)] if shape[0] >= 2 * rows else []


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """[work(i) for i in items] on as many threads as BLAS was allowed, each with a BLAS of one thread.

    BLAS threads fight over small matrices, and on a busy machine wait for each other over large ones; whole pieces on
    threads do neither. Limits set by the user (OMP_NUM_THREADS, threadpoolctl) hold here too.
    """
    blas = _blas()
    n = max((library["num_threads"] for library in blas.info()), default=1)
    with blas.limit(limits=1):
        if n == 1:
            return [work(i) for i in items]
        with ThreadPoolExecutor(min(n, len(items))) as pool:
            return list(pool.map(work, items))


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
