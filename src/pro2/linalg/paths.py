"""Chooses the compiled kernel for probes that share a Gram matrix: NumPy arrays on the host, numba installed.

It replaces `newton` for `Dual` problems and the leverages of `pro2.linalg.selection`, with the same results; what it
leaves open goes to the plain path. Loading numba takes longer than a few small paths, and compiling the kernel (once an
installation) much longer: it is used where the work pays for that, or where `load` or earlier work has loaded it
already. `using` decides otherwise.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array

from pro2.linalg import fused
from pro2.linalg.batches import in_threads
from pro2.linalg.moments import Array

MOST_ROWS = 512  # beyond, K leaves the cache
WORTHWHILE = 1 << 24  # problems times M^2: below, the plain path ends before a kernel has been loaded
LONG = 1 << 28  # the same, where it has to be compiled first, which takes most of a minute
SPLIT = 1 << 20  # the same of one thread, at least

_KERNEL = "pro2.linalg.path_numba"
_asked: ContextVar[bool | None] = ContextVar("compiled", default=None)


@contextmanager
def using(compiled: bool) -> Iterator[None]:
    """Decide for all work inside, whatever its size and whatever has been loaded: equal work then rounds alike."""
    token = _asked.set(compiled)
    try:
        yield
    finally:
        _asked.reset(token)


def load() -> bool:
    """Load the kernel now, for work in many small calls; False where numba is not installed or switched off."""
    if not fused.available("numba"):
        return False
    importlib.import_module(_KERNEL)
    return True


def serves(like: Array, M: int, n_problems: int) -> bool:
    """Whether `newton` would take so many problems of M rows, in arrays of this kind."""
    if not is_numpy_array(like) or not 1 <= M <= MOST_ROWS or not fused.available("numba"):
        return False
    asked = _asked.get()
    if asked is not None or _KERNEL in sys.modules:
        return asked is not False
    return n_problems * M * M >= (WORTHWHILE if _compiled_before() else LONG)


def newton(
    space: Any, y: Array, c: Array, offset: Array, shape: tuple[int, ...], tol: float, max_iter: int
) -> tuple[Array, Array, Array, int] | None:
    """Like `pro2.linalg.newton.newton` for a `Dual` space; None where no kernel applies."""
    if not serves(space.K, space.size, math.prod(shape)):
        return None
    from pro2.linalg import path_numba

    data = ((space.K, 2), (y, 1), (c, 1), (offset, 1))
    # the last axis is a path of penalties if nothing else changes along it
    alone = not shape or any(a.ndim > k and a.shape[-k - 1] != 1 for a, k in data)
    lead, J, M = (shape, 1, space.size) if alone else (shape[:-1], shape[-1], space.size)
    T = math.prod(lead)
    K, y, c, offset = (_flat(a, lead if alone else (*lead, 1), k) for a, k in data)
    l2 = _flat(space.l2, shape, 0).reshape(T, J)
    order = np.argsort(-l2, axis=1)
    theta, b, kkt = np.empty((T, J, M)), np.empty((T, J)), np.empty((T, J))
    n_iter = np.zeros((T, J), np.int64)
    solve: Any = path_numba.solve_paths

    def part(at: slice) -> None:
        data = (K[at], y[at], c[at], offset[at], l2[at], order[at])
        solve(*data, tol, max_iter, theta[at], b[at], kkt[at], n_iter[at])

    _spread(part, T, J * M * M)
    dtype = space.K.dtype
    theta, b, kkt = (a.reshape((*shape, *a.shape[2:])).astype(dtype, copy=False) for a in (theta, b, kkt))
    return theta, b, kkt, int(n_iter.max(initial=0))


def leverages(K: Array, h: Array, l2: Array) -> Array | None:
    """Variance of each row's score: K (..., 1, M, M), curvatures h (..., J, M), l2 (J,); None without a kernel."""
    from_shape, M = h.shape[:-1], K.shape[-1]
    if not serves(K, M, math.prod(from_shape)) or K.shape[-3] != 1:
        return None
    from pro2.linalg import path_numba

    if M > path_numba.DENSE:
        return None
    lead, J = from_shape[:-1], from_shape[-1]
    T = math.prod(lead)
    K, h, l2 = _flat(K, (*lead, 1), 2), _flat(h, from_shape, 1).reshape(T, J, M), _flat(l2, from_shape, 0).reshape(T, J)
    V = np.empty((T, J, M))
    kernel: Any = path_numba.leverages
    _spread(lambda at: kernel(K[at], h[at], l2[at], V[at]), T, J * M * M)
    return None if np.isnan(V).any() else V.reshape(*from_shape, M)


def _spread(part: Any, T: int, each: int) -> None:
    """Run `part` on slices of T items, on threads where each gets enough to do."""
    n = max(1, min(T, (T * each) // SPLIT, 16))
    if n == 1:
        part(slice(0, T))
    else:
        in_threads(part, [slice(i * T // n, (i + 1) * T // n) for i in range(n)])


def _flat(a: Any, lead: tuple[int, ...], k: int) -> Any:
    """Broadcast to `lead` and `k` axes of its own, one leading axis, float64, row-major and writable: one signature."""
    own = a.shape[a.ndim - k :]
    if a.dtype != np.float64 or not a.flags.carray or a.size != math.prod(lead) * math.prod(own):
        whole = np.empty((*lead, *own))
        whole[...] = a
        a = whole
    return a.reshape(-1, *own)


@cache
def _compiled_before() -> bool:
    """Whether numba has kept the kernel where it keeps it by default: beside the module."""
    return any((Path(__file__).parent / "__pycache__").glob("path_numba.solve_paths-*.nbi"))
