"""Every odd image has one defined fate."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from pro2.embed.images import ImageError, decode, pillow_guard

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


def colour(image: pil.Image, x: int, y: int) -> np.ndarray:
    return np.asarray(image.getpixel((x, y)), dtype=int)


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF", "JPEG"])
def test_common_formats_give_the_same_picture(form: str) -> None:
    options = {"lossless": True} if form == "WEBP" else {}
    found = decode(encoded(two_pixels(), form, **options))
    assert (found.mode, found.size) == ("RGB", (40, 20))
    assert np.abs(colour(found, 5, 10) - RED).max() <= 6
    assert np.abs(colour(found, 35, 10) - GREEN).max() <= 6


def test_grey_palette_alpha_and_cmyk_become_rgb() -> None:
    grey = decode(encoded(pil.new("L", (3, 3), 77)))
    assert colour(grey, 1, 1).tolist() == [77, 77, 77]
    palette = decode(encoded(two_pixels().quantize(8)))
    assert colour(palette, 35, 10).tolist() == list(GREEN)
    alpha = decode(encoded(pil.new("RGBA", (3, 3), (*RED, 0))))
    assert colour(alpha, 1, 1).tolist() == list(RED)
    cmyk = decode(encoded(two_pixels().convert("CMYK"), "JPEG", quality=95))
    assert np.abs(colour(cmyk, 35, 10) - GREEN).max() <= 12
    one_bit = decode(encoded(pil.new("1", (3, 3), 1)))
    assert colour(one_bit, 1, 1).tolist() == [255, 255, 255]


def test_palette_with_transparency_keeps_its_colours_without_a_warning() -> None:
    image = two_pixels().quantize(8)
    image.info["transparency"] = bytes([0, 255, 255, 255, 255, 255, 255, 255])
    found = decode(encoded(image, transparency=image.info["transparency"]))
    assert found.mode == "RGB"
    assert found.size == (40, 20)


def test_sixteen_bits_keep_their_upper_byte() -> None:
    values = np.array([[0, 255, 256], [32768, 65280, 65535]], dtype=np.uint16)
    found = np.asarray(decode(encoded(pil.fromarray(values))))
    assert found[:, :, 0].tolist() == [[0, 0, 1], [128, 255, 255]]
    assert (found == found[:, :, :1]).all()


def test_an_animation_gives_its_first_frame() -> None:
    frames = [pil.new("RGB", (8, 8), RED), pil.new("RGB", (8, 8), GREEN)]
    found = decode(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert np.abs(colour(found, 4, 4) - RED).max() <= 2


def test_exif_orientation_is_applied() -> None:
    exif = pil.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    found = decode(encoded(two_pixels(), "JPEG", exif=exif, quality=95))
    assert found.size == (20, 40)
    assert np.abs(colour(found, 10, 5) - RED).max() <= 6
    assert np.abs(colour(found, 10, 35) - GREEN).max() <= 6


def test_a_damaged_exif_block_does_not_lose_the_image() -> None:
    content = encoded(two_pixels(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff broken")
    assert decode(content).size == (40, 20)


def test_one_pixel_is_an_image() -> None:
    assert decode(encoded(pil.new("RGB", (1, 1), RED))).size == (1, 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"this is a text file, whatever its name says", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    ],
)
def test_what_is_no_image_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        decode(content)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_truncated_file_is_refused(form: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    content = encoded(pil.fromarray(pixels), form)
    with pytest.raises(ImageError, match="cannot be decoded"):
        decode(content[: len(content) // 2])


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


def test_floating_point_pixels_are_refused() -> None:
    with pytest.raises(ImageError, match="floating point"):
        decode(encoded(pil.fromarray(np.ones((3, 3), dtype=np.float32)), "TIFF"))


def bomb(width: int, height: int) -> bytes:
    """A PNG of one grey level whose header alone is read: kilobytes on disk, hundreds of megabytes decoded."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_a_decompression_bomb_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(ImageError, match=r"20000x20000 is 400000000 pixels.*max_pixels="):
        decode(bomb(20_000, 20_000))


def test_the_limit_is_the_callers() -> None:
    content = encoded(pil.new("RGB", (40, 20)))
    assert decode(content, max_pixels=800).size == (40, 20)
    with pytest.raises(ImageError, match="above the limit of 799"):
        decode(content, max_pixels=799)


def test_the_guard_gives_pillows_own_limit_back() -> None:
    inside = pil.MAX_IMAGE_PIXELS
    pil.MAX_IMAGE_PIXELS = 123
    with pillow_guard(), warnings.catch_warnings():
        assert pil.MAX_IMAGE_PIXELS is None
    assert pil.MAX_IMAGE_PIXELS == 123
    pil.MAX_IMAGE_PIXELS = inside
