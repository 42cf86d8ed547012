"""Small real inputs: folders of images, and a network that runs in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pro2.embed import create_backbone
from pro2.embed.spec import Backbone
from tests.tiny_net import installed


@pytest.fixture(scope="session", autouse=True)
def _closed_world(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reaches a hub or the user's cache; workers of one run share exported networks."""
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.getbasetemp().parent / "pro2-cache"
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("HF_HOME", str(cache / "huggingface"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name of a network that runs in milliseconds, also in processes that a test starts."""
    yield from installed(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def backbone(tiny: str) -> Backbone:
    return create_backbone(tiny)


@pytest.fixture
def make_images(tmp_path: Path) -> Callable[..., Path]:
    """A folder with `n` different images in two class sub-folders."""
    from PIL import Image

    def make(n: int, name: str = "images", side: int = 24) -> Path:
        folder = tmp_path / name
        rng = np.random.default_rng(n)
        for i in range(n):
            kind = folder / ("cat", "dog")[i % 2]
            kind.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (side, side + i % 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(kind / f"{i:04d}.{('png', 'jpg')[i % 2]}")
        return folder

    return make
