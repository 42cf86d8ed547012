"""Images of the pool by row number: upright, small enough for a screen, kept for the next look."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict

from pro2.embed.images import ImageError, decode
from pro2.label.pool import Pictures

SIZES = (320, 1280, 2560)  # longest side: a tile of the grid, a screen, a large screen
KEPT_BYTES = 256 << 20
_LOSSLESS = 512  # pixels; JPEG would blur the few that a small picture has
_AT_ONCE = threading.Semaphore(2)  # large photographs take hundreds of megabytes while they are decoded


class BrokenPicture(ValueError):
    """An image that cannot be shown; the message is the reason, without any path."""


class PictureShelf:
    """Rendered images, the least recently used ones dropped first.

    Parameters
    ----------
    pictures : Pictures
    kept_bytes : int
        How much to keep in memory.
    """

    def __init__(self, pictures: Pictures, kept_bytes: int = KEPT_BYTES) -> None:
        self._pictures, self._limit = pictures, kept_bytes
        self._kept: OrderedDict[tuple[int, int], tuple[bytes, str]] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def get(self, row: int, size: int) -> tuple[bytes, str]:
        """Encoded image whose longer side is at most `size`, and its media type."""
        key = row, size
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        with _AT_ONCE:
            made = self._render(row, size)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._used += len(made[0])
            while self._used > self._limit and len(self._kept) > 1:
                _, (dropped, _) = self._kept.popitem(last=False)
                self._used -= len(dropped)
        return made

    def _render(self, row: int, size: int) -> tuple[bytes, str]:
        try:
            image = decode(self._pictures.read(row))
        except ImageError as error:
            reason = str(error)
            raise BrokenPicture("it cannot be read" if "/" in reason or "\\" in reason else reason) from error
        image.thumbnail((size, size), reducing_gap=2.0)
        out = io.BytesIO()
        if max(image.size) <= _LOSSLESS:
            image.save(out, "PNG", compress_level=3)
            return out.getvalue(), "image/png"
        image.save(out, "JPEG", quality=88)
        return out.getvalue(), "image/jpeg"
