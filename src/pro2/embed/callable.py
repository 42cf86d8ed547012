"""Any Python function as a backbone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pro2.embed.images import crop_square, normalise
from pro2.embed.spec import Image, Preprocessing, Spec


class CallableBackbone:
    """Wrap a function that maps a float32 batch (n, 3, height, width) to embeddings (n, width).

    Parameters
    ----------
    function : callable
        Takes and returns an array; a PyTorch module's output is accepted too.
    preprocessing : Preprocessing
        What happens to an image before.
    name : str
        Goes into the table's provenance.
    weights : str
        Identifies the function's parameters. Give another value whenever they change: resuming and "already
        complete" rely on it, because a function cannot be looked into.
    width : int
        Number of features, if known.
    """

    engine = "callable"

    def __init__(
        self,
        function: Callable[[np.ndarray], Any],
        preprocessing: Preprocessing,
        name: str,
        weights: str,
        width: int = 0,
        licence: str = "unknown",
    ) -> None:
        if not callable(function):
            raise ValueError(f"function must be callable, found {type(function).__name__}")
        if not weights:
            raise ValueError("weights must name the function's parameters, e.g. a digest or a version; found nothing")
        self.spec = Spec(name, "output", width, preprocessing, "none", licence, "a Python function")
        self.weights = "named:" + hashlib.sha256(weights.encode()).hexdigest()
        self._function = function
        self._preprocessing = preprocessing

    def prepare(self, image: Image) -> np.ndarray:
        """One image to uint8 pixels (size, size, 3)."""
        return crop_square(image, self._preprocessing)

    def embed(self, batch: np.ndarray) -> np.ndarray:
        """Normalise, reorder to channels first, call the function."""
        values = normalise(batch, self._preprocessing).transpose(0, 3, 1, 2)
        features = np.asarray(self._function(np.ascontiguousarray(values)), dtype=np.float32)
        return features.reshape(len(features), -1)
