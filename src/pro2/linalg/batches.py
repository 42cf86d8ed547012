"""How a large batch of small problems is walked: pieces that fit the cache, threads, and leaving when finished."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from array_api_compat import array_namespace, device, is_numpy_array

from pro2.linalg.moments import Array

PIECE_BYTES = 2 << 20  # of features: with its temporaries a piece stays in the cache that cores share
LEAVE = 0.8  # problems are dropped from the batch once no more than this share goes on
SMALLEST = 4  # shorter batches are not worth the bookkeeping

T = TypeVar("T")
R = TypeVar("R")


def pick(a: Array, part: Any, ndim: int) -> Array:
    """a[part] along the leading batch axis, if `a` (of full rank `ndim`) has one that is not broadcast."""
    if a.ndim < ndim or a.shape[0] == 1:
        return a
    if isinstance(part, slice):
        return a[part, ...]
    return array_namespace(a).take(a, part, axis=0)


def host_pieces(like: Array, shape: tuple[int, ...], size: int) -> list[slice]:
    """Slices of the leading axis with about PIECE_BYTES of features each (`size` numbers a problem); NumPy only."""
    if not shape or not is_numpy_array(like):
        return []
    each = size * like.itemsize * math.prod(shape[1:])
    rows = max(1, PIECE_BYTES // max(each, 1))
    return [slice(i, min(i + rows, shape[0])) for i in range(0, shape[0], rows)] if shape[0] >= 2 * rows else []


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """[work(i) for i in items] on as many threads as BLAS was allowed, each with a BLAS of one thread.

    BLAS threads fight over matrices this small; whole pieces on threads do not. Limits set by the user
    (OMP_NUM_THREADS, threadpoolctl) hold here too.
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


class Finished:
    """Results of problems that left a batch early, and the way back to the order they came in."""

    def __init__(self, xp: Any, like: Array, shape: tuple[int, ...]):
        self.xp = xp
        self.index = xp.arange(shape[0], device=device(like)) if shape else None
        self.parts: list[tuple[Array, ...]] = []

    def leave(self, live: Array, results: tuple[Array, ...]) -> tuple[bool, Array | None]:
        """Whether any problem goes on, and the positions that stay if enough leave to be worth a copy."""
        xp = self.xp
        if self.index is None or live.shape[0] < SMALLEST:
            return bool(xp.any(live)), None
        alive = xp.any(live, axis=tuple(range(1, live.ndim))) if live.ndim > 1 else live
        count = int(xp.sum(xp.astype(alive, xp.int64)))
        if count == 0 or count > LEAVE * live.shape[0]:
            return count > 0, None
        (stay,), (go,) = xp.nonzero(alive), xp.nonzero(~alive)
        self.parts.append(tuple(xp.take(a, go, axis=0) for a in (self.index, *results)))
        self.index = xp.take(self.index, stay, axis=0)
        return True, stay

    def all(self, results: tuple[Array, ...]) -> tuple[Array, ...]:
        """The results of all problems, with those that are still in the batch, in the first order."""
        if not self.parts:
            return results
        xp = self.xp
        index, *columns = (xp.concat(list(a)) for a in zip(*self.parts, (self.index, *results)))
        back = xp.argsort(index)
        return tuple(xp.take(a, back, axis=0) for a in columns)
