"""A small pool of real image files, a model that fits it, and a page served to whoever asks."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2 import EmbeddingTable, ProjectAndProbe
from pro2.label.pool import Pool

CLASSES = ("cat", "dog", "fox")
COLOURS = ((196, 120, 60), (70, 110, 190), (90, 160, 90))
WIDTH = 12


def make_rows(n: int, seed: int, shift: float = 0.0, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Classes along the first axes; the target is moved."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, WIDTH)) + 2.2 * np.eye(WIDTH)[y] + shift * np.eye(WIDTH)[-1]
    return X.astype(np.float32), y


@pytest.fixture(scope="session")
def model() -> ProjectAndProbe:
    X, y = make_rows(300, 0)
    return ProjectAndProbe().fit(X, np.array(CLASSES)[y])


@pytest.fixture(scope="session")
def truth() -> list[str]:
    return np.array(CLASSES)[make_rows(120, 1, 0.5)[1]].tolist()


@pytest.fixture(scope="session")
def table() -> EmbeddingTable:
    X, _ = make_rows(120, 1, 0.5)
    return EmbeddingTable(X, [f"photo-{i:03d}.png" for i in range(len(X))], {"camera": np.arange(len(X)) % 3})


@pytest.fixture
def pool(table: EmbeddingTable) -> Pool:
    return Pool(table, title="pool")


class DrawnImages:
    """Images that are painted when asked for: the class is the colour."""

    def __init__(self, truth: list[str]) -> None:
        self.truth = truth

    def read(self, row: int) -> bytes:
        import io

        from PIL import Image

        out = io.BytesIO()
        Image.new("RGB", (160, 120), COLOURS[CLASSES.index(self.truth[row])]).save(out, "PNG")
        return out.getvalue()


@pytest.fixture
def picture_pool(table: EmbeddingTable, truth: list[str]) -> Pool:
    return Pool(table, DrawnImages(truth), title="pool")


Serve = Callable[..., contextlib.AbstractContextManager[Any]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """A page answering in a thread of this process; the same folder each time, so a second call continues."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from pro2.label.server import open_page

    @contextlib.contextmanager
    def served(pool: Pool, model: Any, folder: Path = tmp_path / "session", **options: Any) -> Iterator[Any]:
        folder.mkdir(exist_ok=True)
        with open_page(pool, model, folder, **options) as page:
            thread = threading.Thread(target=page.serve)
            thread.start()
            try:
                _answers(page.url)
                yield page
            finally:
                page.stop()
                thread.join()

    return served


def _answers(url: str) -> None:
    """Until the server answers, whatever it says."""
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"no answer at {url}")
