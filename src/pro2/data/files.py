"""What all file formats share: the atomic write, the message for damaged files, the choice of the embedding."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from pro2.data.content import seal_of

ID_NAMES = ("id", "ids")


def damaged(origin: str | Path, reason: object) -> ValueError:
    """The one message for a file that cannot be trusted."""
    return ValueError(
        f"{origin} is damaged ({reason}); restore it from a copy or make it again: `pro2 embed` with the same "
        "arguments and --force, or the script that wrote it"
    )


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
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101 - mkstemp makes private files, a table is an ordinary one
        _move(Path(name), path, force)
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


def choose(candidates: list[str], embedding: str | None, found: str, origin: object) -> str:
    """Which of the candidate names holds the embedding."""
    if embedding is not None and embedding not in candidates:
        raise ValueError(
            f"embedding={embedding!r} is not a floating (rows, width) array in {origin}; "
            f"candidates: {', '.join(candidates) or 'none'}; it holds {found}"
        )
    if embedding is None and len(candidates) != 1:
        what = f"{len(candidates)} candidates ({', '.join(candidates)})" if candidates else "none"
        raise ValueError(
            f"expected one floating (rows, width) embedding in {origin}, found {what}; "
            f"name it with embedding=NAME. The file holds {found}"
        )
    return embedding or candidates[0]


def stored(meta: Mapping[str, str], path: Path) -> tuple[dict[str, Any], str | None, Callable[[], None]]:
    """Provenance, digest and the check that nobody edited them."""
    if not meta:
        return {}, None, lambda: None
    try:
        provenance = json.loads(meta["provenance"])
        digest, seal = meta["digest"], meta["seal"]
    except (KeyError, ValueError) as error:
        raise damaged(path, f"unreadable metadata: {error}") from error

    def validate() -> None:
        if seal_of(digest, provenance) != seal:
            raise damaged(path, "its provenance was edited after it was written")

    return provenance, digest, validate
