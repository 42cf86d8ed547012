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
from collections.abc import Iterator, Sequence
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

Solution = tuple[Array, Array, Array, int]
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


def solve_batch(Z: Array, y: Array, c: Array, offset: Array, l2: Array, tol: float, max_iter: int) -> Solution | None:
    """theta (T, p), b (T,), residual (T,) and iterations of T problems Z (T, M, p); y, c, offset (T, M), l2 (T,)."""
    if Z.ndim != 3 or Z.shape[-1] > WIDEST or math.prod(Z.shape) < MANY:
        return None
    if is_torch_array(Z) and Z.device.type == "cuda" and "float32" in str(Z.dtype) and available("triton"):
        from pro2.linalg.kernels import triton_newton

        return triton_newton.solve_batch(Z, y, c, offset, l2, tol, max_iter)
    return _lanes(Z, y, c, offset, l2, tol, max_iter) if _fits_lanes(Z) else None


def _fits_lanes(Z: Array) -> bool:
    return bool(is_numpy_array(Z) and Z.shape[-1] * Z.shape[-2] <= LARGEST and available("numba"))


def _lanes(Z: Array, y: Array, c: Array, offset: Array, l2: Array, tol: float, max_iter: int) -> Solution:
    from pro2.linalg.kernels.lanes_newton import solve_range

    kernel: Any = solve_range
    T, M, p = Z.shape
    y, c, offset = (np.broadcast_to(a, (T, M)) for a in (y, c, offset))
    l2 = np.broadcast_to(l2, (T,))
    theta, b, kkt = (np.empty(s, Z.dtype) for s in ((T, p), (T,), (T,)))
    n_iter = np.zeros(T, np.int64)

    def solve(part: slice) -> None:
        data, results = ([a[part] for a in group] for group in ((Z, y, c, offset, l2), (theta, b, kkt, n_iter)))
        kernel(*data, tol, max_iter, False, *results)

    in_threads(solve, host_pieces(c, (T,), M * p) or [slice(0, T)])
    return theta, b, kkt, int(n_iter.max())


def solve_penalties(
    Z: Array, y: Array, soft: Array, c: Array, offset: Array, l2: Sequence[float], tol: float, max_iter: int
) -> tuple[Array, Array, Array, Array] | None:
    """theta (T, L, p), b and weighted leave-one-out losses (T, L), and whether a target is open (T,).

    y are labels 0 and 1, `soft` what is fitted to; both (T, M) like c. Penalties are taken from the strongest on, each
    solution the start of the next.
    """
    if Z.shape[-1] > WIDEST or math.prod(Z.shape) * len(l2) < MANY or not _fits_lanes(Z):
        return None
    from pro2.linalg.kernels.lanes_loo import loo_range
    from pro2.linalg.kernels.lanes_newton import solve_range

    newton: Any = solve_range
    leave_out: Any = loo_range
    (T, M, p), L = Z.shape, len(l2)
    theta, b, loss, open_ = np.empty((T, L, p)), np.empty((T, L)), np.empty((T, L)), np.zeros(T, bool)

    def walk(part: slice) -> None:
        here = [a[part] for a in (Z, soft, c, offset)]
        n = len(here[0])
        v, intercept, value, kkt = np.zeros((n, p)), np.zeros(n), np.empty(n), np.empty(n)
        for i in np.argsort(l2)[::-1]:
            penalty = np.full(n, float(l2[i]))
            newton(*here, penalty, tol, max_iter, True, v, intercept, kkt, np.empty(n, np.int64))
            leave_out(here[0], y[part], *here[1:], penalty, v, intercept, value)
            theta[part, i], b[part, i], loss[part, i] = v, intercept, value
            open_[part] |= ~(kkt <= tol)

    in_threads(walk, host_pieces(c, (T,), M * p) or [slice(0, T)])
    return theta, b, loss, open_


def serves_paths(like: Array, M: int, n_problems: int) -> bool:
    """Whether there is a path kernel for so many problems of M rows, in arrays of this kind."""
    if not is_numpy_array(like) or not 1 <= M <= MOST_ROWS or not available("numba"):
        return False
    asked = _asked.get()
    return n_problems * M * M >= LONG if asked is None else asked


def solve_paths(K: Array, y: Array, c: Array, offset: Array, l2: Array, tol: float, max_iter: int) -> Solution:
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
