"""Embedding tables: files of six formats, data frames, row filters and draws of few labels; and their one error.

Read `embeddings` (the table), `arrow` (its source, which reads columns when they are asked for), then `sources` (where
they come from); `arrays` and `csv_files` are the other formats.
"""

import contextlib
from collections.abc import Iterator

from pro2.extras import one_line

FREE = 1 << 30  # bytes that any array may take, however small its file
EXPANSION = 64  # beyond that, at most this many times the size of the file it is packed in


class TableError(ValueError):
    """A table, or a file of one, that cannot be used; the message names it and the way out."""


def damaged(origin: object, reason: object) -> TableError:
    """The one message for a file whose content is not what was written."""
    return TableError(f"{origin} is damaged ({reason}); restore it from a copy, or make it again with what wrote it")


@contextlib.contextmanager
def reading(origin: object) -> Iterator[None]:
    """Turn whatever a library raises on the bytes of a file into one error with the name of the file.

    Damaged bytes reach every corner of zipfile, NumPy, Arrow and JSON: no list of what they may raise is complete.
    """
    try:
        yield
    except (ImportError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except TableError as error:
        if str(origin) in str(error):
            raise
        raise TableError(f"{origin}: {error}") from error
    except MemoryError as error:
        raise TableError(
            f"{origin} asks for more memory than there is; it is damaged, or larger than this machine can read"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and "://" in str(origin):
            reason = f"{origin} cannot be read ({one_line(error)})"
            raise TableError(f"{reason}; check that its store can be reached, or restore it from a copy") from error
        raise damaged(origin, one_line(error)) from error


def check_size(origin: object, size: int, name: str, declared: int) -> None:
    """Refuse an array that a file of `size` bytes declares far larger than that, before anything is allocated."""
    limit = max(FREE, EXPANSION * size)
    if declared > limit:
        raise TableError(
            f"{name!r} in {origin} would unpack to {declared:,} bytes from a file of {size:,}; the limit "
            f"is {limit:,} ({EXPANSION} times the file, at least 1 GiB). If that is meant, save it without compression"
        )
