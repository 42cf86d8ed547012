"""The same arrays in every Array-API library that is installed, for tests that all must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

BACKENDS = ["numpy", "torch", "array_api_strict"]


def to(backend: str, *arrays: np.ndarray) -> tuple[Any, ...]:
    if backend == "numpy":
        return arrays
    xp = pytest.importorskip(backend)
    return tuple(xp.asarray(np.ascontiguousarray(a)) for a in arrays)
