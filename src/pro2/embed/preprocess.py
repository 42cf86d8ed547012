"""From an RGB image to the square of pixels a network sees."""

from __future__ import annotations

import math

import numpy as np

from pro2.embed.spec import Image, Preprocessing

_REACH = 4  # Lanczos, the widest filter, reaches three pixels; one more for rounding


def crop_square(image: Image, preprocessing: Preprocessing) -> np.ndarray:
    """Resize and centre-crop, interpolating only the pixels inside the crop.

    A filter sees the same neighbours as when the whole image is resized first, for about half the work, and an
    extreme aspect ratio cannot ask for a huge intermediate image. The horizontal pass always comes first: Pillow
    rounds to 8 bits between the passes, so their order is part of the result.

    Returns
    -------
    ndarray of shape (size, size, 3), uint8
    """
    from PIL import Image as pil

    filters = pil.Resampling[preprocessing.interpolation.upper()]
    side = preprocessing.size
    (left, right), (top, bottom) = (
        _span(length, resized, preprocessing)
        for length, resized in zip(image.size, _resized(image.size, preprocessing))
    )
    # rows that no filter of the second pass reaches need no first pass
    reach = _REACH * max(1.0, (bottom - top) / side)
    first, last = max(0, math.floor(top - reach)), min(image.height, math.ceil(bottom + reach))
    rows = image if last - first == image.height else image.crop((0, first, image.width, last))
    columns = rows.resize((side, rows.height), filters, box=(left, 0, right, rows.height))
    square = columns.resize((side, side), filters, box=(0, top - first, side, bottom - first))
    pixels = np.asarray(square, dtype=np.uint8)
    return np.ascontiguousarray(pixels[:, :, ::-1]) if preprocessing.channels == "bgr" else pixels


def _resized(size: tuple[int, int], preprocessing: Preprocessing) -> tuple[int, int]:
    """Size of the whole image after the resize rule."""
    resize, shorter = preprocessing.resize, min(size)
    if preprocessing.rule == "squash":
        return resize, resize
    if preprocessing.rounding == "torchvision":
        width, height = (side * resize // shorter for side in size)
    else:
        width, height = (round(side * resize / shorter) for side in size)
    return width, height


def _span(length: int, resized: int, preprocessing: Preprocessing) -> tuple[float, float]:
    """The part of a side of `length` pixels that the centre crop shows once the side is `resized` pixels long."""
    spare = resized - preprocessing.size
    begin = round(spare / 2) if preprocessing.rounding == "torchvision" else spare // 2
    scale = length / resized
    # rounding must not push the box over the image's edge
    return begin * scale, min((begin + preprocessing.size) * scale, length)


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Pixels (..., height, width, 3) to float32 `(pixel - mean) / std`, for runtimes that do not do it inside."""
    mean = np.asarray(preprocessing.mean, dtype=np.float32)
    std = np.asarray(preprocessing.std, dtype=np.float32)
    return (pixels.astype(np.float32) - mean) / std
