"""The atomic write: either the whole new file is there, or what was there before.

Tables, models, moments, exports and reports are all written by it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of a full disk, or a full quota
_LONGEST = 60  # characters of the output's name in a temporary one: with four bytes each it still fits into 255


def atomic_write(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], object], force: bool = False) -> Path:
    """Write a temporary file in the same folder, flush it to disk, then move it into place.

    Without `force` an existing file wins, also against a writer that started at the same moment. With it, a regular
    file is replaced and its permissions stay; folders, pipes and devices never are. Through a symbolic link the file
    behind it is written. A killed process leaves the old file, and its temporary one (``.NAME.*.part``).

    Parameters
    ----------
    path : path
    fill : callable
        Writes the content into the file it is given; `file.name` is the temporary path, for libraries that want one.
    force : bool
    """
    mode = check_target(path, force)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:_LONGEST]}.{secrets.token_hex(4)}.part")
    # Private until it gets the permissions of what it replaces; a new file follows the umask, which the system applies.
    private = 0o666 if mode is None else 0o600
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, private)) as file:
            fill(file)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        _move(temporary, target, force)
    except OSError as error:
        if error.errno not in FULL:
            raise
        full = OSError(f"cannot write {path}: {error.strerror}; nothing was changed. Make room and try again")
        full.errno = error.errno
        raise full from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)
    return Path(path)


def atomic_folder(path: str | os.PathLike[str], fill: Callable[[Path], object], force: bool = False) -> Path:
    """Fill a temporary folder next to the target, then move it into place; with `force` it replaces one that exists."""
    target = Path(os.path.realpath(path))
    if not target.is_dir():
        check_target(path, force=False)
    elif not force:
        raise FileExistsError(f"{path} exists; choose another name or pass force=True")
    temporary = target.with_name(f".{target.name[:_LONGEST]}.{secrets.token_hex(4)}.part")
    old = temporary.with_suffix(".old")
    temporary.mkdir()
    try:
        fill(temporary)
        if target.exists():
            target.rename(old)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
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
        mode = target.stat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise FileNotFoundError(f"folder {target.parent} does not exist; create it first") from None
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionError(f"folder {target.parent} may not be written to; choose another") from None
        return None
    if not stat.S_ISREG(mode):
        raise FileExistsError(f"{path} is not a regular file and is never replaced; give another file name")
    if not force:
        raise FileExistsError(f"{path} exists; choose another name or pass force=True")
    return stat.S_IMODE(mode)


def _move(temporary: Path, target: Path, force: bool) -> None:
    if not force:
        try:
            os.link(temporary, target)  # unlike a rename, a link refuses to replace
            return
        except FileExistsError:
            raise FileExistsError(f"{target} was written by someone else meanwhile; it was kept") from None
        except OSError:
            if target.exists():
                raise  # else a file system without hard links
    temporary.replace(target)


def sync_folder(folder: Path) -> None:
    """A name is safe only when its folder is on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not every file system can
            raise
    finally:
        os.close(descriptor)
