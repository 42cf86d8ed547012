"""What images are to the pipeline: rows with an id, a place to read bytes from, and columns; and folders of them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pro2.embed.images import SUFFIXES, ImageError
from pro2.tables.embeddings import EmbeddingTable

_SPLITS = frozenset({"train", "val", "valid", "validation", "test"})


class Images(Protocol):
    """Rows of images: `ids`, `columns`, and `read(row)` for the encoded bytes of one."""

    @property
    def ids(self) -> np.ndarray:
        """One unique name per row."""

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Typed columns that go into the table."""

    def __len__(self) -> int: ...

    def read(self, row: int) -> bytes:
        """The encoded image, or `ImageError` with the reason."""

    def stamp(self, row: int) -> str:
        """Changes when the image's file does; cheap."""

    def place(self, row: int) -> str:
        """Where the image is, for messages."""


@dataclasses.dataclass(frozen=True)
class FileImages:
    """Images that are files under one root folder.

    Parameters
    ----------
    root : Path
        No entry may lead out of it.
    paths : list of str
        Relative to `root`; absolute ones are accepted when they lie inside.
    ids : ndarray of str
    columns : mapping of name to ndarray
    follow_links : bool
        Accept symbolic links inside the root that point out of it.
    """

    root: Path
    paths: list[str]
    ids: np.ndarray
    columns: Mapping[str, np.ndarray]
    follow_links: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, row: int) -> str:
        """The entry as it was given."""
        return self.paths[row]

    def read(self, row: int) -> bytes:
        """The file's bytes; what is missing, unreadable, not a file or outside the root is an `ImageError`."""
        path = self._inside(self.paths[row])
        try:
            # a pipe or a device would block or never end
            if not stat.S_ISREG(path.stat().st_mode):
                raise ImageError("not a regular file")
            return path.read_bytes()
        except FileNotFoundError:
            target = "a symbolic link to nothing" if path.is_symlink() else "no such file"
            raise ImageError(target) from None
        except OSError as error:
            raise ImageError(f"it cannot be read ({error.strerror or error})") from None

    def stamp(self, row: int) -> str:
        """Size and time of the last change."""
        try:
            found = os.stat(self.root / self.paths[row])  # noqa: PTH116 - called once for every image of a large list
            return f"{found.st_size}:{found.st_mtime_ns}"
        except (OSError, ValueError):
            return "none"

    def _inside(self, entry: str) -> Path:
        if "\0" in entry:
            raise ImageError("the path contains a zero byte")
        root = Path(os.path.abspath(self.root))  # noqa: PTH100 - lexical: links are looked at below
        path = Path(os.path.normpath(root / entry))
        if not path.is_relative_to(root) and not path.is_relative_to(_real(root)):
            raise ImageError(f"the entry leads out of the root folder {self.root}")
        if not self.follow_links and not _real(path).is_relative_to(_real(root)):
            raise ImageError("a symbolic link that leads out of the root folder (follow_links=True accepts it)")
        return path


def table_images(table: EmbeddingTable, folder: Path) -> FileImages:
    """The pictures of a table's rows under a folder: by the column `path`, else by id."""
    if not folder.is_dir():
        raise ValueError(f"images={str(folder)!r} is not a folder")
    paths = table.column("path") if "path" in table.columns else table.ids
    return FileImages(folder, [str(each) for each in paths.tolist()], table.ids, {})


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike Path.resolve, it does not fail on a loop of links


def list_digest(images: Images, rows: range | None = None, stamps: bool = False) -> str:
    """Digest of ids and places, of all rows or of some; with `stamps` also of the files' sizes and times."""
    digest = hashlib.sha256()
    rows = range(len(images)) if rows is None else rows
    for row, name in zip(rows, images.ids[rows.start : rows.stop].tolist()):
        parts = [name, images.place(row), images.stamp(row) if stamps else ""]
        digest.update("\0".join(parts).encode("utf-8", "surrogateescape") + b"\n")
    return "sha256:" + digest.hexdigest()


def open_folder(folder: Path, follow_links: bool) -> FileImages:
    """All images in a folder and below it."""
    paths = sorted(_walk(folder))
    if not paths:
        kinds = ", ".join(sorted(SUFFIXES)[:8])
        raise ValueError(f"no images under {folder}; looked for files ending in {kinds}, ... in it and below")
    return FileImages(folder, paths, text_array([_readable(p) for p in paths]), _folder_columns(paths), follow_links)


def _walk(folder: Path) -> Iterator[str]:
    """Relative paths of image files; linked folders are not entered, so that a loop of links cannot trap us."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                yield (Path(parent) / name).relative_to(folder).as_posix()


def _folder_columns(paths: list[str]) -> dict[str, np.ndarray]:
    """Class folders as labels, and split folders above them; nothing when some image lies in no folder."""
    parts = [path.split("/") for path in paths]
    columns: dict[str, np.ndarray] = {}
    if all(len(part) >= 3 and part[0].lower() in _SPLITS for part in parts):
        columns["split"] = text_array([part[0] for part in parts])
        parts = [part[1:] for part in parts]
    if all(len(part) >= 2 for part in parts):
        columns["label"] = text_array([_readable(part[0]) for part in parts])
    return columns


def text_array(values: Any) -> np.ndarray:
    """A NumPy array of text."""
    return np.asarray([str(value) for value in values], dtype=str)


def _readable(path: str) -> str:
    """File names may hold bytes that are no text; ids may not."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
