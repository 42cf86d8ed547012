"""Decode any image file to RGB, or say why not.

What happens to unusual files is decided here, once: animations give their first frame, EXIF orientation is applied,
alpha is dropped, grey and palette and CMYK become RGB, 16-bit grey keeps its upper 8 bits; files that are truncated,
corrupt, not an image, floating point or larger than `max_pixels` are refused with the reason.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

import numpy as np

from pro2.embed.spec import Image, RowError

# Formats Pillow decodes by itself; leaves out EPS, PDF and others that start outside programs or are not pixels.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000", "MPO", "ICO", "TGA", "PCX", "DIB")
_ENDINGS = "jpg jpeg jpe jfif png gif bmp dib tif tiff webp ppm pgm pbm avif jp2 j2k ico tga pcx"
SUFFIXES = frozenset(f".{ending}" for ending in _ENDINGS.split(" "))
MAX_PIXELS = 178_956_970  # where Pillow itself stops: 0.5 GiB of RGB
_EXIF_ORIENTATION = 0x0112


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
