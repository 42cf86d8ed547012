"""The atomic write: either the whole new file is there, or what was there before.

Below all rooms, because tables, models and exports are written alike.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def atomic_write(path: Path, fill: Callable[[IO[bytes]], None], force: bool = False) -> Path:
    """Temporary file in the same folder, flushed to disk, then moved into place.

    Without `force` an existing file wins, also against a writer that started at the same moment.
    """
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; choose another name or pass force=True (--force)")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist; create it first")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101 - mkstemp makes private files, ours are ordinary ones
        _move(Path(name), path, force)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        message = f"cannot write {path}: {error.strerror}; nothing was changed. Make room and try again"
        raise OSError(error.errno, message) from error
    finally:
        Path(name).unlink(missing_ok=True)
    _sync_folder(path.parent)
    return path


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _move(temporary: Path, path: Path, force: bool) -> None:
    if not force:
        try:
            os.link(temporary, path)  # unlike a rename, a link refuses to replace
            return
        except FileExistsError:
            raise FileExistsError(f"{path} was written by someone else meanwhile; it was kept") from None
        except OSError:
            pass  # a file system without hard links
    temporary.replace(path)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every system lets a folder be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
