"""The atomic write: either the whole new file is there, or what was there before.

Below all rooms, because tables, models, moments, exports and reports are written alike.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

_LONGEST = 60  # characters of the output's name in a temporary one: with four bytes each it still fits into 255
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a full disk, or a full quota, says
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def atomic_write(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], object], force: bool = False) -> Path:
    """Temporary file in the same folder, flushed to disk, then moved into place.

    Without `force` an existing file wins, also against a writer that started at the same moment. With it, a regular
    file is replaced and its permissions stay; folders, pipes and devices never are. Through a symbolic link the file
    behind it is written. What a killed writer of the same output left behind is removed first.

    Parameters
    ----------
    path : path
    fill : callable
        Writes the content into the file it is given; `file.name` is the temporary path, for libraries that want one.
    force : bool
    """
    mode = check_target(path, force)
    target = Path(os.path.realpath(path))
    discard_stale(target)
    try:
        with _temporary(target, mode) as file:
            fill(file)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # there, an open file cannot be moved
            _move(Path(file.name), target, force)
    except OSError as error:
        if error.errno not in FULL:
            raise
        full = OSError(f"cannot write {path}: {error.strerror}; nothing was changed. Make room and try again")
        full.errno = error.errno
        raise full from error
    sync_folder(target.parent)
    return Path(path)


def check_target(path: str | os.PathLike[str], force: bool) -> int | None:
    """Refuse what cannot be written, before the work that would be lost.

    Returns
    -------
    int or None
        Permissions of the file that will be replaced; None for a new one.
    """
    target = Path(os.path.realpath(path))
    try:
        found = target.stat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise FileNotFoundError(f"folder {target.parent} does not exist; create it first") from None
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionError(f"folder {target.parent} may not be written to; choose another") from None
        return None
    if not stat.S_ISREG(found):
        kind = _KINDS.get(stat.S_IFMT(found), "not a regular file")
        raise FileExistsError(f"{path} is {kind}, which is never replaced; give another file name")
    if not force:
        raise FileExistsError(f"{path} exists; choose another name or pass force=True")
    return stat.S_IMODE(found)


def discard_stale(path: Path) -> None:
    """Remove what killed writers of `path` left behind; a writer that is alive holds a lock on its file."""
    name = re.compile(rf"\.{re.escape(path.name[:_LONGEST])}\.[0-9a-f]{{8}}\.part")
    found: list[Path] = []
    with contextlib.suppress(PermissionError), os.scandir(path.parent) as entries:
        found = [Path(entry) for entry in entries if name.fullmatch(entry.name)]
    for each in found:
        with contextlib.suppress(OSError):
            descriptor = os.open(each, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            try:
                if lock(descriptor):
                    each.unlink()
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def _temporary(target: Path, mode: int | None) -> Iterator[IO[bytes]]:
    """A new file beside `target`, locked while it is written, and gone afterwards unless it was moved."""
    file = _create(target, private=mode is not None)
    while lock(file.fileno()) is False or not os.path.lexists(file.name):
        file.close()  # another writer took it for a dead one's in the moment before it was locked
        file = _create(target, private=mode is not None)
    try:
        with file:
            yield file
    finally:
        Path(file.name).unlink(missing_ok=True)


def _create(target: Path, private: bool) -> IO[bytes]:
    """A file that replaces another is private until it gets its permissions: what was secret must not be readable."""
    name = target.with_name(f".{target.name[:_LONGEST]}.{secrets.token_hex(4)}.part")
    mode = 0o600 if private else 0o666  # less the umask, which the system applies
    return open(name, "xb", opener=lambda each, flags: os.open(each, flags, mode))


def lock(descriptor: int) -> bool | None:
    """Take the file's lock, which ends with this process however that ends; None where there are no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _move(temporary: Path, target: Path, force: bool) -> None:
    try:
        if not force:
            os.link(temporary, target)  # unlike a rename, a link refuses to replace
            return
    except FileExistsError:
        raise FileExistsError(f"{target} was written by someone else meanwhile; it was kept") from None
    except OSError:
        if target.exists():
            raise
        # else a file system without hard links
    temporary.replace(target)


def sync_folder(folder: Path) -> None:
    """A name is safe only when its folder is on disk, too."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # not every system lets a folder be opened
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not every file system can
            raise
    finally:
        os.close(descriptor)
