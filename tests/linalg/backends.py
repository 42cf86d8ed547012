"""The same arrays in every Array-API library that is installed, for tests that all must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

BACKENDS = ["numpy", "torch", "torch-cuda", "array_api_strict"]


def to(backend: str, *arrays: np.ndarray) -> tuple[Any, ...]:
    """The arrays in a backend; skips where it is not installed, or has no CUDA device."""
    if backend == "numpy":
        return arrays
    xp = pytest.importorskip(backend.removesuffix("-cuda"))
    if backend.endswith("-cuda"):
        if not xp.cuda.is_available():
            pytest.skip("no CUDA device here")
        return tuple(xp.asarray(np.ascontiguousarray(a), device="cuda") for a in arrays)
    return tuple(xp.asarray(np.ascontiguousarray(a)) for a in arrays)
