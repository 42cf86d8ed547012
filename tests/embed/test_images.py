"""Every unusual image is decoded in one defined way or refused with a reason, and cropped as its whole would be."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from pro2.embed.images import ImageError, crop_square, decode, pillow_guard
from pro2.embed.spec import Preprocessing

pil = pytest.importorskip("PIL.Image")
RED, GREEN = (200, 30, 40), (20, 180, 60)


@pytest.fixture(autouse=True)
def _guard() -> Iterator[None]:
    with pillow_guard():
        yield


def encoded(image: pil.Image, form: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def two_pixels() -> pil.Image:
    """Red on the left, green on the right, 40 x 20."""
    image = pil.new("RGB", (40, 20), RED)
    image.paste(GREEN, (20, 0, 40, 20))
    return image


def noise(width: int, height: int) -> pil.Image:
    return pil.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


def colour(image: pil.Image, x: int, y: int) -> np.ndarray:
    return np.asarray(image.getpixel((x, y)), dtype=int)


RED_FRAME, GREEN_FRAME = pil.new("RGB", (40, 20), RED), pil.new("RGB", (40, 20), GREEN)
PICTURES = {
    **{form: (encoded(two_pixels(), form), GREEN) for form in ("PNG", "BMP", "TIFF", "PPM", "GIF", "JPEG")},
    "WEBP": (encoded(two_pixels(), "WEBP", lossless=True), GREEN),
    "grey": (encoded(pil.new("L", (40, 20), 77)), (77, 77, 77)),
    "palette": (encoded(two_pixels().quantize(8)), GREEN),
    "palette with transparency": (encoded(two_pixels().quantize(8), transparency=bytes([0, *[255] * 7])), GREEN),
    "alpha": (encoded(pil.new("RGBA", (40, 20), (*RED, 0))), RED),
    "cmyk": (encoded(two_pixels().convert("CMYK"), "JPEG", quality=95), GREEN),
    "one bit": (encoded(pil.new("1", (40, 20), 1)), (255, 255, 255)),
    "animation": (encoded(RED_FRAME, "GIF", save_all=True, append_images=[GREEN_FRAME]), RED),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_every_kind_of_picture_becomes_rgb(kind: str) -> None:
    content, expected = PICTURES[kind]
    found = decode(content)
    assert (found.mode, found.size) == ("RGB", (40, 20))
    lossy = {"JPEG": 6, "GIF": 6, "animation": 2, "cmyk": 12}
    assert np.abs(colour(found, 35, 10) - expected).max() <= lossy.get(kind, 0)


def test_sixteen_bits_keep_their_upper_byte() -> None:
    values = np.array([[0, 255, 256], [32768, 65280, 65535]], dtype=np.uint16)
    found = np.asarray(decode(encoded(pil.fromarray(values))))
    assert found[:, :, 0].tolist() == [[0, 0, 1], [128, 255, 255]]
    assert (found == found[:, :, :1]).all()


def test_exif_orientation_is_applied_and_a_damaged_block_ignored() -> None:
    exif = pil.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    found = decode(encoded(two_pixels(), "JPEG", exif=exif, quality=95))
    assert found.size == (20, 40)
    assert np.abs(colour(found, 10, 5) - RED).max() <= 6
    assert np.abs(colour(found, 10, 35) - GREEN).max() <= 6
    assert decode(encoded(two_pixels(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff broken")).size == (40, 20)


def bomb(width: int, height: int) -> bytes:
    """A PNG of one grey level whose header alone is read: kilobytes on disk, hundreds of megabytes decoded."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"this is a text file, whatever its name says", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (encoded(noise(64, 64), "JPEG")[:2000], "cannot be decoded"),
        (encoded(noise(64, 64), "PNG")[:6000], "cannot be decoded"),
        (encoded(pil.fromarray(np.ones((3, 3), dtype=np.float32)), "TIFF"), "floating point"),
        (bomb(20_000, 20_000), r"20000x20000 is 400000000 pixels.*max_pixels="),
    ],
    ids=["empty", "text", "postscript", "truncated jpeg", "truncated png", "floats", "bomb"],
)
def test_what_cannot_be_decoded_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        decode(content)


@pytest.mark.parametrize("seed", range(20))
def test_damage_anywhere_is_an_image_or_a_reason(seed: int) -> None:
    rng = np.random.default_rng(seed)
    content = bytearray(encoded(two_pixels(), ("JPEG", "PNG", "GIF", "TIFF", "WEBP")[seed % 5]))
    for place in rng.integers(0, len(content), 8):
        content[place] = rng.integers(0, 256)
    try:
        outcome = decode(bytes(content)).mode
    except ImageError as error:  # any other exception fails the test
        outcome = str(error)
    assert outcome == "RGB" or "cannot be decoded" in outcome or "pixels" in outcome or "not an image" in outcome


def test_the_limit_of_pixels_is_the_callers_and_pillow_keeps_its_own() -> None:
    content = encoded(pil.new("RGB", (40, 20)))
    assert decode(content, max_pixels=800).size == (40, 20)
    with pytest.raises(ImageError, match="above the limit of 799"):
        decode(content, max_pixels=799)
    inside, pil.MAX_IMAGE_PIXELS = pil.MAX_IMAGE_PIXELS, 123
    with pillow_guard(), warnings.catch_warnings():
        assert pil.MAX_IMAGE_PIXELS is None
    assert pil.MAX_IMAGE_PIXELS == 123
    pil.MAX_IMAGE_PIXELS = inside


@pytest.mark.parametrize("size", [(334, 500), (500, 333), (64, 48), (300, 300), (31, 90), (257, 256)])
@pytest.mark.parametrize("rounding", ["nearest", "torchvision"])
def test_a_crop_equals_resizing_the_whole_image_first(size: tuple[int, int], rounding: str) -> None:
    image, shorter = noise(*size), min(size)
    to = round if rounding == "nearest" else int
    width, height = (to(side * 128 / shorter) for side in size)
    begin = int if rounding == "nearest" else round
    left, top = begin((width - 112) / 2), begin((height - 112) / 2)
    whole = image.resize((width, image.height), pil.Resampling.BICUBIC).resize((width, height), pil.Resampling.BICUBIC)
    expected = np.asarray(whole.crop((left, top, left + 112, top + 112)), dtype=int)
    # Pillow keeps box corners in single precision: one level at a few pixels
    difference = np.abs(crop_square(image, Preprocessing(112, 128, rounding=rounding)).astype(int) - expected)
    assert difference.max() <= 2
    assert (difference > 0).mean() < 0.01


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 3)])
@pytest.mark.parametrize("rule", ["shorter", "squash"])
def test_any_shape_fills_the_square(size: tuple[int, int], rule: str) -> None:
    square = crop_square(pil.new("RGB", size, (9, 99, 199)), Preprocessing(32, 40, rule))
    assert square.shape == (32, 32, 3)
    assert (square == (9, 99, 199)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 9, "resize": 8}, "size <= resize"),
        ({"size": 4, "resize": 4, "rule": "stretch"}, "rule='stretch'"),
        ({"size": 4, "resize": 4, "interpolation": "magic"}, "bicubic"),
        ({"size": 4, "resize": 4, "rounding": "up"}, "rounding"),
        ({"size": 4, "resize": 4, "std": (1, 0, 1)}, "std must be three"),
    ],
)
def test_mistakes_in_a_preprocessing_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocessing(**options)
