"""Image processors of transformers, split where it pays: pixels here in threads, arithmetic in the network.

Most processors resize, crop, scale and normalise. The first two are done with the very same Pillow calls; the last two
move into the network, so that threads hand over bytes instead of floats and the interpreter lock is free. A processor
that does anything else is called as it is; which of the two it is, a trial on real shapes decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pro2.embed.images import ImageError
from pro2.embed.preprocess import normalise
from pro2.embed.spec import Image, Preprocessing

_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
_LONGEST = 100  # a processor resizes the whole image before it crops: 1 x 20000 pixels would become 3 GB
_TRIALS = ((97, 61), (50, 131), (64, 64), (333, 500))


def split(processor: Any) -> tuple[Callable[[Image], np.ndarray], Preprocessing | None]:
    """How to prepare one image, and the normalisation that is left for the network (None: nothing is)."""
    recipe = _translated(processor.to_dict())
    if recipe is not None and all(_agree(processor, recipe, size) for size in _TRIALS):
        return partial(_pixels, recipe), recipe
    return partial(_whole, processor), None


def _translated(found: dict[str, Any]) -> Preprocessing | None:
    """The processor's settings as a `Preprocessing`, when they can be written as one."""
    size, crop = found.get("size") or {}, found.get("crop_size") or {}
    steps = found.get("do_resize") and found.get("do_rescale") and found.get("do_normalize")
    if not steps or abs(found.get("rescale_factor", 0) * 255 - 1) > 1e-6:
        return None
    if "shortest_edge" in size:
        resize = int(size["shortest_edge"])
        if found.get("crop_pct"):
            resize, side = int(resize / found["crop_pct"]), resize
        elif found.get("do_center_crop") and crop.get("height") == crop.get("width"):
            side = int(crop["height"])
        else:
            return None
        rule = "shorter"
    elif size.get("height") and size.get("height") == size.get("width") and not found.get("do_center_crop"):
        resize, side, rule = int(size["height"]), int(size["height"]), "squash"
    else:
        return None
    mean, std = ([255.0 * value for value in found[key]] for key in ("image_mean", "image_std"))
    try:
        return Preprocessing(side, resize, rule, _FILTERS[int(found["resample"])], tuple(mean), tuple(std))
    except (ValueError, IndexError, KeyError):
        return None


def _pixels(recipe: Preprocessing, image: Image) -> np.ndarray:
    """Resize the whole image, then crop its centre: corners rounded down, as transformers does."""
    from PIL import Image as pil

    _check_shape(image)
    width, height = recipe.resize, recipe.resize
    if recipe.rule == "shorter":
        shorter = min(image.size)
        width, height = (int(recipe.resize * side / shorter) for side in image.size)
    resized = image.resize((width, height), pil.Resampling[recipe.interpolation.upper()])
    left, top = (width - recipe.size) // 2, (height - recipe.size) // 2
    return np.asarray(resized.crop((left, top, left + recipe.size, top + recipe.size)), dtype=np.uint8)


def _whole(processor: Any, image: Image) -> np.ndarray:
    _check_shape(image)
    return np.asarray(processor(images=image, return_tensors="np")["pixel_values"][0], dtype=np.float32)


def _check_shape(image: Image) -> None:
    if max(image.size) > _LONGEST * min(image.size):
        raise ImageError(f"{image.width}x{image.height} is longer than {_LONGEST} times its width; crop it first")


def _agree(processor: Any, recipe: Preprocessing, size: tuple[int, int]) -> bool:
    """The same numbers from noise of this shape, to the rounding of floats."""
    from PIL import Image as pil

    width, height = size
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = pil.fromarray(noise)
    theirs = _whole(processor, image)
    ours = normalise(_pixels(recipe, image), recipe).transpose(2, 0, 1)
    return theirs.shape == ours.shape and bool(np.allclose(theirs, ours, atol=1e-4))
