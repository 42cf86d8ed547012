"""Cropping before interpolating gives what resizing the whole image and cropping gives."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.embed.images import crop_square, normalise
from pro2.embed.spec import Preprocessing

pil = pytest.importorskip("PIL.Image")


def noise(width: int, height: int) -> pil.Image:
    return pil.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("size", [(334, 500), (500, 333), (64, 48), (300, 300), (31, 90), (257, 256)])
@pytest.mark.parametrize("rounding", ["nearest", "torchvision"])
def test_equals_resizing_the_whole_image_horizontally_then_vertically(size: tuple[int, int], rounding: str) -> None:
    recipe = Preprocessing(112, 128, rounding=rounding)
    image, shorter = noise(*size), min(size)
    to = round if rounding == "nearest" else int
    width, height = (to(side * 128 / shorter) for side in size)
    begin = int if rounding == "nearest" else round
    left, top = begin((width - 112) / 2), begin((height - 112) / 2)
    whole = image.resize((width, image.height), pil.Resampling.BICUBIC).resize((width, height), pil.Resampling.BICUBIC)
    expected = np.asarray(whole.crop((left, top, left + 112, top + 112)), dtype=int)
    # Pillow keeps box corners in single precision: one level at a few pixels
    difference = np.abs(crop_square(image, recipe).astype(int) - expected)
    assert difference.max() <= 2
    assert (difference > 0).mean() < 0.01


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 3)])
def test_any_shape_fills_the_square(size: tuple[int, int]) -> None:
    for rule in ("shorter", "squash"):
        square = crop_square(pil.new("RGB", size, (9, 99, 199)), Preprocessing(32, 40, rule))
        assert square.shape == (32, 32, 3)
        assert (square == (9, 99, 199)).all()


def test_channel_order_and_normalisation() -> None:
    image = pil.new("RGB", (10, 10), (10, 20, 30))
    recipe = Preprocessing(4, 4, channels="bgr", mean=(1, 2, 3), std=(2, 4, 8))
    found = normalise(crop_square(image, recipe), recipe)
    assert found.dtype == np.float32
    assert found[0, 0].tolist() == [(30 - 1) / 2, (20 - 2) / 4, (10 - 3) / 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 9, "resize": 8}, "size <= resize"),
        ({"size": 4, "resize": 4, "rule": "stretch"}, "rule='stretch'"),
        ({"size": 4, "resize": 4, "interpolation": "magic"}, "bicubic"),
        ({"size": 4, "resize": 4, "channels": "cmyk"}, "channels"),
        ({"size": 4, "resize": 4, "rounding": "up"}, "rounding"),
        ({"size": 4, "resize": 4, "std": (1, 0, 1)}, "std must be three"),
    ],
)
def test_mistakes_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocessing(**options)
