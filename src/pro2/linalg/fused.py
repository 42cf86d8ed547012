"""Chooses a compiled kernel for many small two-class problems: numba on the host, Triton on a CUDA device.

A kernel keeps one problem in the cache or in registers from its first iteration to its last. It is optional: `newton`
gives the same solutions without it, and takes over whatever a kernel does not bring below the tolerance.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from array_api_compat import is_numpy_array, is_torch_array

from pro2.linalg.batches import host_pieces, in_threads
from pro2.linalg.moments import Array

WORTHWHILE = 1 << 22  # numbers in the batch: below, the plain path ends before a kernel has been loaded
WIDEST = 64  # features: beyond, LAPACK on single matrices is as fast
LARGEST = 1 << 15  # numbers of one problem: beyond, four of them leave the second-level cache
MAX_ITER = 100  # of one penalty of a path


def newton(
    space: Any, y: Array, c: Array, offset: Array, shape: tuple[int, ...], tol: float, max_iter: int
) -> tuple[Array, Array, Array, int] | None:
    """Like `pro2.linalg.newton.newton` for a `Primal` space; None where no kernel applies."""
    Z = space.Z
    if len(shape) != 1 or Z.ndim != 3 or Z.shape[0] != shape[0] or Z.shape[-1] > WIDEST:
        return None
    if Z.shape[0] * Z.shape[1] * Z.shape[2] < WORTHWHILE:
        return None
    if _fits_lanes(Z):
        return _numba(space, y, c, offset, shape, tol, max_iter)
    if is_torch_array(Z) and Z.device.type == "cuda" and available("triton"):
        from pro2.linalg import fused_triton

        return fused_triton.newton(space, y, c, offset, shape, tol, max_iter)
    return None


def penalty_path(
    Z: Array, y: Array, targets: Array, w: Array, unit: Array, offset: Array, l2: Sequence[float], tol: float
) -> tuple[Array, Array, Array, Array] | None:
    """Slopes (T, L, p), intercepts, leave-one-out losses (T, L) and whether a target is open (T,); None as above."""
    if Z.shape[-1] > WIDEST or math.prod(Z.shape) * len(l2) < WORTHWHILE or not _fits_lanes(Z):
        return None
    import numpy as np

    from pro2.linalg.fused_numba import solve_range
    from pro2.linalg.loo_numba import loo_range

    solve, leave_out = cast(Any, solve_range), cast(Any, loo_range)
    (T, M, p), c, strongest_first = Z.shape, w * unit[:, None], np.argsort(l2)[::-1]
    theta, b, loss, open_ = np.empty((T, len(l2), p)), np.empty((T, len(l2))), np.empty((T, len(l2))), np.zeros(T, bool)

    def walk(part: slice) -> None:
        here = [a[part] for a in (Z, targets, c, offset)]
        n = len(here[0])
        v, intercept, value, kkt = np.zeros((n, p)), np.zeros(n), np.empty(n), np.empty(n)
        for i in strongest_first:
            penalty = np.full(n, float(l2[i]))
            solve(*here, penalty, tol, MAX_ITER, True, v, intercept, kkt, np.empty(n, np.int64))
            leave_out(here[0], y[part], c[part], offset[part], penalty, unit[part], v, intercept, value)
            theta[part, i], b[part, i], loss[part, i] = v, intercept, value
            open_[part] |= ~(kkt <= tol)

    in_threads(walk, host_pieces(c, (T,), M * p) or [slice(0, T)])
    return theta.astype(Z.dtype), b.astype(Z.dtype), loss.astype(Z.dtype), open_


def _fits_lanes(Z: Array) -> bool:
    return bool(is_numpy_array(Z) and Z.shape[-1] * Z.shape[-2] <= LARGEST and available("numba"))


def available(module: str) -> bool:
    """Whether kernels may use this compiler: it is installed, and PRO2_FUSED=0 does not switch them off."""
    return _has(module) and os.environ.get("PRO2_FUSED") != "0"


@cache
def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _numba(
    space: Any, y: Array, c: Array, offset: Array, shape: tuple[int, ...], tol: float, max_iter: int
) -> tuple[Array, Array, Array, int]:
    import numpy as np

    from pro2.linalg.fused_numba import solve_range

    kernel: Any = solve_range
    T, M, p = space.Z.shape
    y, c, offset = (np.broadcast_to(a, (T, M)) for a in (y, c, offset))
    l2 = np.broadcast_to(space.l2, (T,))
    theta, b, kkt = (np.empty(s, space.Z.dtype) for s in ((T, p), (T,), (T,)))
    n_iter = np.zeros(T, np.int64)

    def solve(part: slice) -> None:
        data, results = ([a[part] for a in group] for group in ((space.Z, y, c, offset, l2), (theta, b, kkt, n_iter)))
        kernel(*data, tol, max_iter, False, *results)

    in_threads(solve, host_pieces(c, shape, M * p) or [slice(0, T)])
    return theta, b, kkt, int(n_iter.max())
