"""Decode any image file to RGB, or say why not, and cut the square of pixels that a network sees.

What happens to unusual files is decided here, once: animations give their first frame, EXIF orientation is applied,
alpha is dropped, grey and palette and CMYK become RGB, 16-bit grey keeps its upper 8 bits; files that are truncated,
corrupt, not an image, floating point or larger than `max_pixels` are refused with the reason.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Iterator

import numpy as np

from pro2.embed.spec import Image, Preprocessing, RowError

# Formats Pillow decodes by itself; leaves out EPS, PDF and others that start outside programs or are not pixels.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000", "MPO", "ICO", "TGA", "PCX", "DIB")
_ENDINGS = "jpg jpeg jpe jfif png gif bmp dib tif tiff webp ppm pgm pbm avif jp2 j2k ico tga pcx"
SUFFIXES = frozenset(f".{ending}" for ending in _ENDINGS.split(" "))
MAX_PIXELS = 178_956_970  # where Pillow itself stops: 0.5 GiB of RGB
_EXIF_ORIENTATION = 0x0112
_REACH = 4  # Lanczos, the widest filter, reaches three pixels; one more for rounding


class ImageError(RowError):
    """One image that cannot be embedded."""


@contextlib.contextmanager
def pillow_guard() -> Iterator[None]:
    """Hand Pillow's process-wide size limit over to `decode`'s own check, and give it back."""
    from PIL import Image as pil

    before, pil.MAX_IMAGE_PIXELS = pil.MAX_IMAGE_PIXELS, None
    try:
        with warnings.catch_warnings():
            # a damaged EXIF or TIFF tag is no event here: the pixels decide
            warnings.filterwarnings("ignore", module=r"PIL\.")
            yield
    finally:
        pil.MAX_IMAGE_PIXELS = before


def decode(content: bytes, max_pixels: int = MAX_PIXELS) -> Image:
    """Decode one image file's bytes to an upright RGB image.

    The format is found from the content, never from the file's name. Call it inside `pillow_guard` (once around a
    whole run) so that Pillow's own limit does not interfere.

    Raises
    ------
    ImageError
        With the reason, for everything that cannot be decoded.
    """
    from PIL import UnidentifiedImageError

    if not content:
        raise ImageError("the file is empty")
    try:
        return _decode(content, max_pixels)
    except ImageError:
        raise
    except MemoryError:
        raise ImageError("not enough memory to decode it") from None
    except UnidentifiedImageError as error:
        raise ImageError("not an image of a known format") from error
    except Exception as error:  # decoders raise whatever a damaged file leads them to
        text = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"it cannot be decoded ({text})") from error


def _decode(content: bytes, max_pixels: int) -> Image:
    from PIL import Image as pil

    pil.init()
    with pil.open(io.BytesIO(content), formats=[name for name in FORMATS if name in pil.OPEN]) as image:
        pixels = image.width * image.height
        if pixels > max_pixels:
            raise ImageError(
                f"{image.width}x{image.height} is {pixels} pixels, above the limit of {max_pixels} "
                "(raise max_pixels= if you trust the file)"
            )
        if pixels == 0:
            raise ImageError(f"it has no pixels ({image.width}x{image.height})")
        image.load()
        return _to_rgb(_upright(image))


def _upright(image: Image) -> Image:
    """Apply the EXIF orientation; a damaged EXIF block means no orientation, not a lost image."""
    from PIL import ImageOps

    try:
        rotated = image.getexif().get(_EXIF_ORIENTATION, 1) in range(2, 9)
        return ImageOps.exif_transpose(image) if rotated else image
    except Exception:
        return image


def _to_rgb(image: Image) -> Image:
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        return _from_integers(image)
    if image.mode == "F":
        raise ImageError("its pixels are floating point with no defined range; convert it to 8 or 16 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow's own advice for palettes with transparency
    return image.convert("RGB")


def _from_integers(image: Image) -> Image:
    """16-bit grey to 8 bits by dropping the lower byte; Pillow's own conversion would clip at 255."""
    from PIL import Image as pil

    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ImageError(f"its values run from {values.min()} to {values.max()}; expected 16 bits (0 to 65535)")
    return pil.fromarray((values >> 8).astype(np.uint8)).convert("RGB")


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
