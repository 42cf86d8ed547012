"""Images for the page: upright, small, kept, and broken ones with a reason that tells no path."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from pro2.embed.images import ImageError
from pro2.embed.sources import FileImages
from pro2.label.pictures import BrokenPicture, PictureShelf

image = pytest.importorskip("PIL.Image")


def encoded(width: int, height: int, orientation: int = 1, kind: str = "JPEG") -> bytes:
    """Left half red, right half blue."""
    picture = image.new("RGB", (width, height), (255, 0, 0))
    picture.paste((0, 0, 255), (width // 2, 0, width, height))
    exif = image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    picture.save(out, kind, exif=exif)
    return out.getvalue()


class Some:
    def __init__(self, *contents: bytes) -> None:
        self.contents, self.reads = contents, 0

    def read(self, row: int) -> bytes:
        self.reads += 1
        return self.contents[row]


def decoded(content: bytes) -> np.ndarray:
    return np.asarray(image.open(io.BytesIO(content)).convert("RGB"))


def test_large_images_shrink_and_small_ones_keep_every_pixel():
    shelf = PictureShelf(Some(encoded(3000, 1500), encoded(64, 32, kind="PNG")))
    large, kind = shelf.get(0, 1280)
    assert decoded(large).shape == (640, 1280, 3)
    assert kind == "image/jpeg"
    small, kind = shelf.get(1, 1280)
    assert kind == "image/png"
    np.testing.assert_array_equal(decoded(small), decoded(encoded(64, 32, kind="PNG")))


def test_exif_orientation_is_applied_and_no_exif_is_passed_on():
    content, _ = PictureShelf(Some(encoded(400, 200, orientation=6))).get(0, 1280)
    pixels = decoded(content)
    assert pixels.shape[:2] == (400, 200)
    assert pixels[10, 100, 0] > 200  # red was left, and is on top after a quarter turn
    assert pixels[390, 100, 2] > 200
    assert not image.open(io.BytesIO(content)).getexif()


def test_a_second_look_reads_nothing_and_memory_is_bounded():
    source = Some(*(encoded(600, 400) for _ in range(6)))
    shelf = PictureShelf(source, kept_bytes=3 * len(PictureShelf(source).get(0, 320)[0]))
    source.reads = 0
    for row in (0, 1, 0, 1):
        shelf.get(row, 320)
    assert source.reads == 2
    for row in range(6):
        shelf.get(row, 320)
    shelf.get(0, 320)
    assert source.reads == 7


@pytest.mark.parametrize("content", [b"", b"GIF89a nonsense", encoded(900, 900)[:2000]])
def test_a_broken_image_says_why(content):
    with pytest.raises(BrokenPicture, match=r"empty|not an image|cannot be decoded"):
        PictureShelf(Some(content)).get(0, 320)


def test_the_reason_never_tells_where_things_are(tmp_path: Path):
    class Outside:
        def read(self, row: int) -> bytes:
            raise ImageError(f"the entry leads out of the root folder {tmp_path}")

    with pytest.raises(BrokenPicture, match=r"^it cannot be read$"):
        PictureShelf(Outside()).get(0, 320)
    files = FileImages(tmp_path, ["gone.jpg", "../../etc/passwd"], np.array(["a", "b"]), {})
    for row in (0, 1):
        with pytest.raises(BrokenPicture) as caught:
            PictureShelf(files).get(row, 320)
        assert str(tmp_path) not in str(caught.value)
