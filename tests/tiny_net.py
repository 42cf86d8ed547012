"""A backbone that runs in milliseconds, registered as an installed package would: for tests in other processes, too."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NAME = "tiny-net"
SIZE, WIDTH = 16, 8
HALT_AFTER = "TINY_NET_HALT_AFTER"  # so many calls; then it waits for the signal that ends its process


def load(name: Any, device: str = "auto", runtime: str = "auto") -> Any:
    """Pixels (n, 3, 16, 16) times a fixed random matrix: eight features."""
    from pro2.embed import CallableBackbone, Preprocessing

    matrix = np.random.default_rng(7).standard_normal((3 * SIZE * SIZE, WIDTH)).astype(np.float32)
    calls = itertools.count()

    def embed(pixels: np.ndarray) -> np.ndarray:
        if next(calls) >= int(os.environ.get(HALT_AFTER, sys.maxsize)):
            time.sleep(3600)
        return pixels.reshape(len(pixels), -1) @ matrix

    return CallableBackbone(embed, Preprocessing(SIZE, 18), NAME, "seed 7", width=WIDTH)


def installed(folder: Path) -> Iterator[str]:
    """Put a distribution with the entry point on the path of this process and of its children; yields the name."""
    info = folder / "tiny_net-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-net\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pro2.backbones]\n{NAME} = tests.tiny_net:load\n")
    root = Path(__file__).resolve().parents[1]
    with pytest.MonkeyPatch.context() as patch:
        inherited = os.environ.get("PYTHONPATH")
        paths = [str(folder), str(root), *([inherited] if inherited else [])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setattr(sys, "path", [*sys.path, str(folder), str(root)])
        yield NAME
