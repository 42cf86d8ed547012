"""Optional compiled twins of `pro2.linalg.mode` for many small two-class problems: numba on the host, Triton on CUDA.

A kernel keeps a problem in the cache or in registers from its first iteration to its last. Functions return None where
their kernel does not apply (of paths, `serves_paths` tells); what a kernel leaves above the tolerance, the plain solver
finishes. Which one works depends on the sizes and on what is installed, never on what happens to be loaded: equal work
rounds alike.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array, is_torch_array

from pro2.linalg.kernels.threads import host_pieces, in_threads
from pro2.linalg.moments import Array

MANY = 1 << 22  # numbers in a batch of problems: below, the plain path ends before a kernel has been loaded
LONG = 1 << 28  # paths times M^2: below, compiling the path kernel (once an installation) takes longer than the work
WIDEST = 64  # features: beyond, LAPACK on single matrices is as fast
LARGEST = 1 << 15  # numbers of one problem: beyond, four of them leave the second-level cache
MOST_ROWS = 512  # of a path: beyond, its Gram matrix leaves the cache
SPLIT = 1 << 20  # paths times M^2 of one thread, at least

_asked: ContextVar[bool | None] = ContextVar("compiled", default=None)


@contextmanager
def using(compiled: bool) -> Iterator[None]:
    """Use the path kernel for all work inside, or for none, whatever its size: for many small calls."""
    token = _asked.set(compiled and available("numba"))
    try:
        yield
    finally:
        _asked.reset(token)


def available(module: str) -> bool:
    """Whether kernels may use this compiler: it is installed, and PRO2_FUSED=0 does not switch them off."""
    return _has(module) and os.environ.get("PRO2_FUSED") != "0"


@cache
def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def solve_penalties(
    Z: Array, y: Array, c: Array, offset: Array, l2: Array, hard: Array | None, tol: float, max_iter: int
) -> tuple[Array, Array, Array, int, Array | None] | None:
    """theta (T, L, p), b and residual (T, L), iterations, leave-one-out losses (T, L) of Z (T, M, p), l2 (T, L).

    y, c and offset are (T, M); y may be soft. Losses are weighted means for labels `hard` (T, M), 0 and 1, if given.
    """
    L = l2.shape[-1]
    if Z.shape[-1] > WIDEST or math.prod(Z.shape) * L < MANY:
        return None
    single = is_torch_array(Z) and Z.device.type == "cuda" and "float32" in str(Z.dtype)
    if single and hard is None and L == 1 and available("triton"):
        from pro2.linalg.kernels import triton_newton

        theta, b, kkt, n_iter = triton_newton.solve_batch(Z, y, c, offset, l2[:, 0], tol, max_iter)
        return theta[:, None, :], b[:, None], kkt[:, None], n_iter, None
    if not is_numpy_array(Z) or Z.shape[-1] * Z.shape[-2] > LARGEST or not available("numba"):
        return None
    return _lanes(Z, y, c, offset, l2, hard, tol, max_iter)


def _lanes(
    Z: Array, y: Array, c: Array, offset: Array, l2: Array, hard: Array | None, tol: float, max_iter: int
) -> tuple[Array, Array, Array, int, Array | None]:
    """Penalties are taken from the strongest on, each solution the start of the next."""
    from pro2.linalg.kernels.lanes_loo import loo_range
    from pro2.linalg.kernels.lanes_newton import solve_range

    newton: Any = solve_range
    leave_out: Any = loo_range
    (T, M, p), L = Z.shape, l2.shape[-1]
    y, c, offset = (np.broadcast_to(v, (T, M)) for v in (y, c, offset))
    theta, b, kkt, n_iter = np.zeros((L, T, p)), np.zeros((L, T)), np.empty((L, T)), np.zeros((L, T), np.int64)
    loss = None if hard is None else np.empty((L, T))

    def walk(part: slice) -> None:
        rows, before = [v[part] for v in (y, c, offset)], None
        for i in np.argsort(-l2.sum(axis=0)):
            penalty, found = np.ascontiguousarray(l2[part, i]), (theta[i, part], b[i, part])
            if before is not None:
                theta[i, part], b[i, part] = before
            newton(Z[part], *rows, penalty, tol, max_iter, *found, kkt[i, part], n_iter[i, part])
            if loss is not None and hard is not None:
                leave_out(Z[part], hard[part], *rows, penalty, *found, loss[i, part])
            before = found

    in_threads(walk, host_pieces(c, (T,), M * p) or [slice(0, T)])
    theta, b, kkt = np.moveaxis(theta, 0, 1), b.T, kkt.T
    return theta, b, kkt, int(n_iter.max(initial=0)), None if loss is None else loss.T


def serves_paths(like: Array, M: int, n_problems: int) -> bool:
    """Whether there is a path kernel for so many problems of M rows, in arrays of this kind."""
    if not is_numpy_array(like) or not 1 <= M <= MOST_ROWS or not available("numba"):
        return False
    asked = _asked.get()
    return n_problems * M * M >= LONG if asked is None else asked


def solve_paths(
    K: Array, y: Array, c: Array, offset: Array, l2: Array, tol: float, max_iter: int
) -> tuple[Array, Array, Array, int]:
    """Row-space solutions a (T, J, M) with intercepts, residuals (T, J), of Gram matrices K (T, M, M), l2 (J,)."""
    from pro2.linalg.kernels import path_newton

    (T, M, _), J = K.shape, len(l2)
    penalties = np.ascontiguousarray(np.broadcast_to(l2, (T, J)))
    order = np.argsort(-penalties, axis=1)
    a, b, kkt, n_iter = np.empty((T, J, M)), np.empty((T, J)), np.empty((T, J)), np.zeros((T, J), np.int64)
    kernel: Any = path_newton.solve_paths

    def part(at: slice) -> None:
        kernel(*(v[at] for v in (K, y, c, offset, penalties, order)), tol, max_iter, a[at], b[at], kkt[at], n_iter[at])

    _spread(part, T, J * M * M)
    return a, b, kkt, int(n_iter.max(initial=0))


def path_variances(K: Array, h: Array, l2: Array) -> Array | None:
    """Variance of each row's score (T, J, M): K (T, M, M), curvatures h (T, J, M), l2 (J,); None for large K."""
    from pro2.linalg.kernels import path_newton

    if K.shape[-1] > path_newton.DENSE:
        return None
    penalties = np.ascontiguousarray(np.broadcast_to(l2, h.shape[:2]))
    V = np.empty(h.shape)
    kernel: Any = path_newton.leverages
    _spread(lambda at: kernel(K[at], h[at], penalties[at], V[at]), len(K), h.shape[1] * h.shape[2] ** 2)
    return None if np.isnan(V).any() else V


def _spread(part: Any, T: int, each: int) -> None:
    """Run `part` on slices of T items, on threads where each gets enough to do."""
    n = max(1, min(T, (T * each) // SPLIT, 16))
    if n == 1:
        part(slice(0, T))
    else:
        in_threads(part, [slice(i * T // n, (i + 1) * T // n) for i in range(n)])
