"""Decode image files to RGB and cut the square of pixels that a network sees.

Of animations the first frame is used; EXIF orientation is applied, alpha is dropped; grey, palette and CMYK become RGB,
and 16-bit grey keeps its upper 8 bits. Files that are truncated, corrupt, not an image, floating point or larger than
`max_pixels` are refused with the reason.
"""

import contextlib
import io
import warnings
from collections.abc import Iterator

import numpy as np

from pro2.embed.spec import Image, Preprocessing, RowError
from pro2.extras import one_line

# Formats that Pillow decodes by itself; EPS, PDF and others start external programs or are not pixels.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000", "MPO", "ICO", "TGA", "PCX", "DIB")
_ENDINGS = "jpg jpeg jpe jfif png gif bmp dib tif tiff webp ppm pgm pbm avif jp2 j2k ico tga pcx"
SUFFIXES = frozenset(f".{ending}" for ending in _ENDINGS.split(" "))
MAX_PIXELS = 178_956_970  # Pillow's own limit: 0.5 GiB of RGB


class ImageError(RowError):
    """One image that cannot be embedded."""


@contextlib.contextmanager
def pillow_guard() -> Iterator[None]:
    """Suspend Pillow's process-wide size limit in favour of the one that `decode` checks for each image."""
    from PIL import Image as pil

    before, pil.MAX_IMAGE_PIXELS = pil.MAX_IMAGE_PIXELS, None
    try:
        with warnings.catch_warnings():
            # Pillow warns about damaged EXIF and TIFF tags, which do not affect the pixels.
            warnings.filterwarnings("ignore", module=r"PIL\.")
            yield
    finally:
        pil.MAX_IMAGE_PIXELS = before


def decode(content: bytes, max_pixels: int = MAX_PIXELS) -> Image:
    """Decode the bytes of one image file to an upright RGB image.

    The format is detected from the content, never from the file's name. Call it inside `pillow_guard` (once around a
    whole run). Everything that cannot be decoded is an `ImageError` with the reason.
    """
    from PIL import Image as pil
    from PIL import UnidentifiedImageError

    if not content:
        raise ImageError("the file is empty")
    try:
        pil.init()
        with pil.open(io.BytesIO(content), formats=[name for name in FORMATS if name in pil.OPEN]) as image:
            size, pixels = f"{image.width}x{image.height}", image.width * image.height
            if pixels > max_pixels:
                limit = f"above the limit of {max_pixels} (raise max_pixels= if you know the file)"
                raise ImageError(f"{size} is {pixels} pixels, {limit}")
            if pixels == 0:
                raise ImageError(f"it has no pixels ({size})")
            image.load()
            return _to_rgb(image)
    except ImageError:
        raise
    except MemoryError:
        raise ImageError("not enough memory to decode it") from None
    except UnidentifiedImageError as error:
        raise ImageError("not an image of a known format") from error
    except Exception as error:  # decoders raise many kinds of errors for a damaged file
        raise ImageError(f"it cannot be decoded ({one_line(error)})") from error


def _to_rgb(image: Image) -> Image:
    """Turn a decoded image upright and convert its pixels to RGB."""
    from PIL import Image as pil
    from PIL import ImageOps

    with contextlib.suppress(Exception):  # with a damaged EXIF block the image is used as it is
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "F":
        raise ImageError("its pixels are floating point without a defined range; convert it to 8 or 16 bits")
    if image.mode.startswith("I"):
        # Drop the lower of 16 bits: Pillow's own conversion would clip at 255.
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ImageError(f"its values run from {values.min()} to {values.max()}; expected 16 bits (0 to 65535)")
        image = pil.fromarray((values >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # what Pillow recommends for palettes with transparency
    return image if image.mode == "RGB" else image.convert("RGB")


def crop_square(image: Image, preprocessing: Preprocessing) -> np.ndarray:
    """Resize and centre-crop to uint8 pixels (size, size, 3).

    Pillow resizes only the box that becomes the crop, with the neighbouring pixels that its filter needs. The result is
    that of resizing the whole image, without the huge intermediate image of an extreme aspect ratio.
    """
    from PIL import Image as pil

    side, resize, rounding = preprocessing.size, preprocessing.resize, preprocessing.rounding
    corners = []
    for length in image.size:
        resized = resize * length / min(image.size) if preprocessing.rule == "shorter" else resize
        resized = int(resized) if rounding == "torchvision" else round(resized)
        spare = resized - side
        begin = round(spare / 2) if rounding == "torchvision" else spare // 2
        # Rounding must not move the box over the edge of the image.
        corners.append((begin * length / resized, min((begin + side) * length / resized, length)))
    (left, right), (top, bottom) = corners
    filters = pil.Resampling[preprocessing.interpolation.upper()]
    # Pillow rounds to 8 bits between the passes: in two calls their order does not depend on its version.
    columns = image.resize((side, image.height), filters, box=(left, 0, right, image.height))
    return np.asarray(columns.resize((side, side), filters, box=(0, top, side, bottom)), dtype=np.uint8)


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Map pixels (..., height, width, 3) to float32 `(pixel - mean) / std`."""
    mean = np.asarray(preprocessing.mean, dtype=np.float32)
    std = np.asarray(preprocessing.std, dtype=np.float32)
    return (pixels.astype(np.float32) - mean) / std
