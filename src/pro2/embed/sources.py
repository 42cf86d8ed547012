"""Rows to embed: images in folders, lists, Parquet files and saved data sets, and the texts of a list."""

import abc
import dataclasses
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pro2.embed.images import SUFFIXES, ImageError
from pro2.embed.spec import RowError
from pro2.tables.arrow import kind_of
from pro2.tables.columns import check_unique, objects
from pro2.tables.csv_files import read_columns
from pro2.tables.embeddings import EmbeddingTable
from pro2.tables.sources import read_list

PATH_COLUMNS = ("path", "image", "file", "filename", "file_name", "filepath", "image_path", "img_filename", "img")
_SPLITS = frozenset({"train", "val", "valid", "validation", "test"})


class Rows(abc.ABC):
    """Rows of images or texts: unique `ids`, and the typed `columns` that go into the table."""

    kind: ClassVar[str] = "images"
    ids: np.ndarray
    columns: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.ids)

    @abc.abstractmethod
    def read(self, row: int) -> bytes:
        """Return the encoded image or text, or raise `RowError` with the reason."""

    @abc.abstractmethod
    def location(self, row: int) -> str:
        """Return where the row comes from, for messages."""

    @abc.abstractmethod
    def fingerprint(self, row: int) -> str:
        """Return a text that changes with the content; for files size and time, because reading them is slow."""


@dataclasses.dataclass(frozen=True)
class FileImages(Rows):
    """Images that are files under one root folder; no path may lead out of it, nor a link unless `follow_links`."""

    root: Path
    paths: list[str]
    ids: np.ndarray
    columns: Mapping[str, np.ndarray]
    follow_links: bool = False

    def read(self, row: int) -> bytes:
        path = self._inside(self.paths[row])
        try:
            # Reading a pipe or a device could block or never end.
            if not stat.S_ISREG(path.stat().st_mode):
                raise ImageError("not a regular file")
            return path.read_bytes()
        except FileNotFoundError:
            reason = "a symbolic link to nothing" if path.is_symlink() else "no such file"
            raise ImageError(reason) from None
        except OSError as error:
            raise ImageError(f"it cannot be read ({error.strerror or error})") from None

    def _inside(self, entry: str) -> Path:
        if "\0" in entry:
            raise ImageError("the path contains a zero byte")
        root = os.path.abspath(self.root)  # noqa: PTH100 - purely lexical: links are resolved below
        real_root = os.path.realpath(root)  # unlike Path.resolve, it does not fail on a loop of links
        path = Path(os.path.normpath(Path(root) / entry))
        if not path.is_relative_to(root) and not path.is_relative_to(real_root):
            raise ImageError(f"the entry leads out of the root folder {self.root}")
        if not self.follow_links and not Path(os.path.realpath(path)).is_relative_to(real_root):
            raise ImageError("a symbolic link that leads out of the root folder (follow_links=True accepts it)")
        return path

    def location(self, row: int) -> str:
        return self.paths[row]

    def fingerprint(self, row: int) -> str:
        try:
            status = os.stat(self.root / self.paths[row])  # noqa: PTH116 - called once for every image of a large list
            return f"{status.st_size}:{status.st_mtime_ns}"
        except (OSError, ValueError):
            return "none"


@dataclasses.dataclass(frozen=True)
class ArrowImages(Rows):
    """Images whose bytes are in a Parquet file or a saved data set; every process that reads them opens it itself."""

    path: Path
    column: str
    ids: np.ndarray
    columns: Mapping[str, np.ndarray]

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @cached_property
    def _values(self) -> Any:
        return read_list(self.path).table([self.column]).column(0)

    @cached_property
    def _fingerprint(self) -> str:
        statuses = [path.stat() for path in (sorted(self.path.rglob("*.arrow")) or [self.path])]
        return ",".join(f"{status.st_size}:{status.st_mtime_ns}" for status in statuses)

    def read(self, row: int) -> bytes:
        value = self._values[row].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if not content:
            raise ImageError("the row holds no image bytes (save the data set with its images embedded)")
        return bytes(content)

    def location(self, row: int) -> str:
        return f"row {row} of {self.path.name}"

    def fingerprint(self, row: int) -> str:
        return self._fingerprint


@dataclasses.dataclass(frozen=True)
class TextRows(Rows):
    """Rows of text with the other columns of their list; a missing text is None."""

    kind: ClassVar[str] = "texts"
    file: str
    texts: np.ndarray
    ids: np.ndarray
    columns: Mapping[str, np.ndarray]

    def read(self, row: int) -> bytes:
        text = self.texts[row]
        if text is None or not str(text).strip():
            raise RowError(f"the text in {self.file} is empty")
        return str(text).encode("utf-8", "surrogatepass")

    def location(self, row: int) -> str:
        return f"row {row} (id {self.ids[row]})"  # without the file: a renamed list has the same rows

    def fingerprint(self, row: int) -> str:
        return hashlib.blake2b(str(self.texts[row]).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def open_images(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    path_column: str | None = None,
    follow_links: bool = False,
) -> FileImages | ArrowImages:
    """Open images in any of the supported places.

    Parameters
    ----------
    source : path
        A folder (sub-folders named by class become the column `label`; train/val/test folders above them the column
        `split`), a `.csv`, `.tsv` or `.parquet` list, or a Hugging Face data set saved with `save_to_disk`.
    root : path, optional
        The folder that the paths in a list are relative to; by default the folder of the list.
    path_column : str, optional
        The list's column with paths or the data set's column with images, when it has an unusual name.
    follow_links : bool
        Accept symbolic links that lead out of the root.
    """
    path = Path(source)
    if not path.exists():
        raise ValueError(f"{path} does not exist; expected a folder of images or a .csv, .tsv or .parquet list")
    is_list = path.is_file() or (path / "dataset_dict.json").exists() or (path / "dataset_info.json").exists()
    if is_list:
        return _open_list(path, Path(root) if root is not None else path.parent, path_column, follow_links)
    if root is not None:
        raise ValueError("root= goes with a list; a folder of images is its own root")
    return _open_folder(path, follow_links)


def open_texts(source: str | os.PathLike[str], column: str) -> TextRows:
    """Open one text column of a `.csv`, `.tsv` or `.parquet` list.

    A column `id` names the rows; without one they are numbered. All other columns are kept.
    """
    path = Path(source)
    columns, _ = _read_list(path)
    if column not in columns:
        raise ValueError(f"{path} has no column {column!r}; it has {', '.join(columns)}")
    texts = objects([None if text is None else str(text) for text in columns[column].tolist()])
    if len(texts) == 0:
        raise ValueError(f"{path} has no rows below its header; there is nothing to embed")
    return TextRows(path.name, texts, _unique_ids(columns.pop("id", np.arange(len(texts))), path), columns)


def table_images(table: EmbeddingTable, folder: Path) -> FileImages:
    """The images of a table's rows under a folder: by the column `path` if there is one, by id otherwise."""
    if not folder.is_dir():
        raise ValueError(f"images={str(folder)!r} is not a folder")
    paths = table.column("path") if "path" in table.columns else table.ids
    return FileImages(folder, [str(path) for path in paths.tolist()], table.ids, {})


def text_array(values: Iterable[Any]) -> np.ndarray:
    """A NumPy array of text."""
    return np.asarray([str(value) for value in values], dtype=str)


def _open_folder(folder: Path, follow_links: bool) -> FileImages:
    """All images in a folder and below it; folder names become columns unless some image lies in no sub-folder."""
    paths = []
    for parent, folders, files in os.walk(folder):  # not into linked folders: links can form a loop
        folders[:] = [name for name in folders if not name.startswith(".")]
        names = [name for name in files if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")]
        paths += [(Path(parent) / name).relative_to(folder).as_posix() for name in names]
    paths.sort()
    if not paths:
        suffixes = ", ".join(sorted(SUFFIXES)[:8])
        raise ValueError(f"no images under {folder}; looked for files ending in {suffixes}, ... in it and below")
    # File names may hold bytes that are not text; ids and labels may not.
    ids = [os.fsencode(path).decode("utf-8", "backslashreplace") for path in paths]
    parents = [name.split("/")[:-1] for name in ids]
    columns: dict[str, np.ndarray] = {}
    if all(len(names) >= 2 and names[0].lower() in _SPLITS for names in parents):
        columns["split"] = text_array(names.pop(0) for names in parents)
    if all(parents):
        columns["label"] = text_array(names[0] for names in parents)
    return FileImages(folder, paths, text_array(ids), columns, follow_links)


def _open_list(path: Path, root: Path, path_column: str | None, follow_links: bool) -> FileImages | ArrowImages:
    """Rows of a list: images whose bytes it holds, or paths of images under `root`."""
    columns, images = _read_list(path)
    names = [*images, *columns]
    if path_column is not None and path_column not in names:
        raise ValueError(f"path_column={path_column!r} is not in {path}; it has {', '.join(names)}")
    known = (name for name in PATH_COLUMNS if name in names)
    column = path_column or (images[0] if len(images) == 1 else next(known, None))
    if column is None:
        advice = f"name one of {', '.join(names)} with path_column=, or with text= if it holds texts"
        raise ValueError(f"{path} has no path column; {advice}")
    ids = columns.pop("id", None)
    if column in images:
        if ids is None:
            splits = columns.get("split", np.full(read_list(path).n_rows, ""))
            ids = text_array(f"{split}/{row}" if split else row for row, split in enumerate(splits.tolist()))
        return ArrowImages(path, column, _unique_ids(ids, path), columns)
    paths = text_array("" if value is None else value for value in columns.pop(column).tolist())
    if not root.is_dir():
        raise ValueError(f"root {root} is not a folder; give the folder that the paths in {path} are relative to")
    ids = _unique_ids(paths if ids is None else ids, path)
    return FileImages(root, paths.tolist(), ids, {**columns, "path": paths}, follow_links)


def _read_list(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """The typed columns of a list, and the names of those that hold encoded images; ids in text stay as written."""
    if path.suffix.lower() in (".csv", ".tsv"):
        return {name: values for name, values in read_columns(path).items() if name != "embedding"}, []
    if path.suffix.lower() != ".parquet" and not path.is_dir():
        raise ValueError(f"{path} is not a list; expected a .csv, .tsv or .parquet file")
    source = read_list(path)
    kinds = {field.name: field.type for field in source.schema if field.name != "embedding"}
    binary = pa.binary(), pa.large_binary()
    images = [n for n, k in kinds.items() if k in binary or (pa.types.is_struct(k) and k.get_field_index("bytes") >= 0)]
    plain = [name for name, kind in kinds.items() if kind_of(kind) in ("text", "float", "int", "bool")]
    return {name: source.column(name) for name in plain}, images


def _unique_ids(names: np.ndarray, path: Path) -> np.ndarray:
    """Ids as an array of text; repeated ones are an error."""
    ids = text_array("" if name is None else name for name in names.tolist())
    check_unique(ids, str(path))
    return ids
