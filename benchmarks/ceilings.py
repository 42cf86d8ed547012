"""What the machine can do at most: a large matrix product and a large copy, with the BLAS threads allowed now."""

from __future__ import annotations

import numpy as np
from harness import measure


def product_gflops(dtype: type = np.float64, n: int = 2048) -> float:
    """Billion operations a second of an n x n matrix product."""
    A = np.random.default_rng(0).standard_normal((n, n)).astype(dtype)
    out = np.empty_like(A)
    return 2e-9 * n**3 / measure({"product": lambda: np.matmul(A, A, out=out)}, 5)["product"]


def copy_gigabytes(size: float = 0.4) -> float:
    """Gigabytes a second read and written by a copy much larger than the caches, on one thread."""
    source = np.ones(int(size * 1e9 / 8))
    target = np.empty_like(source)
    return 2e-9 * source.nbytes / measure({"copy": lambda: np.copyto(target, source)}, 5)["copy"]
