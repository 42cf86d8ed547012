"""Where images come from: folders, lists (CSV, TSV, Parquet), and Hugging Face data sets on disk."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pro2.embed.images import ImageError
from pro2.embed.sources import FileImages, Images, open_folder, text_array
from pro2.tables.arrow import open_ipc
from pro2.tables.columns import check_unique, objects
from pro2.tables.csv_files import read_columns
from pro2.tables.frames import saved_files

PATH_COLUMNS = ("path", "image", "file", "filename", "file_name", "filepath", "image_path", "img_filename", "img")


def open_images(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    path_column: str | None = None,
    follow_links: bool = False,
) -> Images:
    """Open whatever holds images.

    Parameters
    ----------
    source : path
        A folder (class sub-folders become the column `label`; train/val/test folders above them the column `split`),
        a `.csv`, `.tsv` or `.parquet` list, or a Hugging Face data set saved with `save_to_disk`.
    root : path, optional
        The folder that a list's paths are relative to; by default the list's own.
    path_column : str, optional
        The list's column with paths or the data set's column with images, when it has an unusual name.
    follow_links : bool
        Accept symbolic links that lead out of the root.
    """
    path = Path(source)
    if not path.exists():
        raise ValueError(f"{path} does not exist; expected a folder of images or a .csv, .tsv or .parquet list")
    if path.is_file():
        return open_list(path, root, path_column, follow_links)
    if root is not None:
        raise ValueError("root= goes with a list; a folder of images is its own root")
    if (path / "dataset_dict.json").exists() or (path / "dataset_info.json").exists():
        return open_saved_dataset(path, path_column)
    return open_folder(path, follow_links)


def open_list(
    path: Path, root: str | os.PathLike[str] | None, path_column: str | None, follow_links: bool = False
) -> Images:
    """A list of paths, or a Parquet file whose image column holds the encoded bytes (`{bytes, path}`)."""
    if path.suffix.lower() == ".parquet":
        schema = _read_parquet(path).schema
        column = _find_column(schema.names, path_column, path)
        if _holds_bytes(schema.field(column).type):
            return ArrowImages(((str(path), ""),), column)
    columns = list_columns(path)
    entries = _texts(columns.pop(_find_column(list(columns), path_column, path)))
    ids = unique_ids(_texts(columns.pop("id")) if "id" in columns else entries, path)
    folder = Path(root) if root is not None else path.parent
    if not folder.is_dir():
        raise ValueError(f"root {folder} is not a folder; give the folder that the paths in {path} are relative to")
    return FileImages(folder, entries, ids, {**columns, "path": text_array(entries)}, follow_links)


def list_columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a `.csv`, `.tsv` or `.parquet` list, typed; ids in text files stay as written."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".tsv", ".parquet"):
        raise ValueError(f"{path} is not a list; expected a .csv, .tsv or .parquet file")
    if suffix == ".parquet":
        return _columns(_read_parquet(path), set())
    return {name: values for name, values in read_columns(path).items() if name != "embedding"}


def _texts(values: np.ndarray) -> list[str]:
    return ["" if value is None else str(value) for value in values.tolist()]


def open_saved_dataset(folder: Path, image_column: str | None = None) -> Images:
    """A data set or a dictionary of splits written by Hugging Face `save_to_disk`."""
    files, names = saved_files(folder)
    schema = open_ipc(files[0][0]).schema
    found = [field.name for field in schema if _holds_bytes(field.type)]
    column = image_column or (found[0] if len(found) == 1 else None)
    if column not in found:
        raise ValueError(f"{folder} has image columns {found}; name one with path_column=")
    return ArrowImages(tuple((str(path), split) for path, split in files), str(column), names)


@dataclasses.dataclass(frozen=True)
class ArrowImages:
    """Images whose bytes lie inside Arrow or Parquet files; opened again in every process that reads them."""

    files: tuple[tuple[str, str], ...]
    column: str
    class_names: Mapping[str, list[str]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @cached_property
    def _table(self) -> Any:
        import pyarrow as pa

        return pa.concat_tables([_read_any(Path(name)) for name, _ in self.files])

    @cached_property
    def ids(self) -> np.ndarray:
        """The column `id` when there is one; split and row number otherwise."""
        if "id" in self._table.column_names:
            return unique_ids(self._table.column("id").to_pylist(), Path(self.files[0][0]))
        splits = self.columns.get("split", np.full(len(self), ""))
        return text_array([f"{split}/{row}" if split else str(row) for row, split in enumerate(splits.tolist())])

    @cached_property
    def columns(self) -> Mapping[str, np.ndarray]:
        """All plain columns; class numbers get their names beside them in `<column>_name`."""
        columns = _columns(self._table, {self.column, "id"})
        for name, classes in self.class_names.items():
            if name in columns and columns[name].dtype.kind == "i":
                columns[f"{name}_name"] = text_array([classes[i] if i >= 0 else "" for i in columns[name].tolist()])
        if any(split for _, split in self.files):
            rows = [split for name, split in self.files for _ in range(_read_any(Path(name)).num_rows)]
            columns["split"] = text_array(rows)
        return columns

    def read(self, row: int) -> bytes:
        """The bytes in the table; a row that only names a file elsewhere is refused."""
        value = self._table.column(self.column)[row].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if not content:
            raise ImageError("the row holds no image bytes (save the data set with its images embedded)")
        return bytes(content)

    def stamp(self, row: int) -> str:
        """The stamp of all files together."""
        return self._stamp

    @cached_property
    def _stamp(self) -> str:
        found = [Path(name).stat() for name, _ in self.files]
        return ",".join(f"{one.st_size}:{one.st_mtime_ns}" for one in found)

    def place(self, row: int) -> str:
        """Row number, for messages."""
        return f"row {row} of {Path(self.files[0][0]).parent.name}"


def _read_any(path: Path) -> Any:
    if path.suffix == ".parquet":
        return _read_parquet(path)
    source = open_ipc(path)
    return source.table(source.schema.names)


def _read_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path, memory_map=True).read()
    except pa.ArrowException as error:
        raise ValueError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from error


def _find_column(names: list[str], wanted: str | None, path: Path) -> str:
    if wanted is not None:
        if wanted not in names:
            raise ValueError(f"path_column={wanted!r} is not in {path}; it has {', '.join(names)}")
        return wanted
    for name in PATH_COLUMNS:
        if name in names:
            return name
    advice = f"name one of {', '.join(names)} with path_column=, or with text= if it holds texts"
    raise ValueError(f"{path} has no path column; {advice}")


def _holds_bytes(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def unique_ids(names: list[str], path: Path) -> np.ndarray:
    """Ids as an array; repeated ones are refused, with the first of them."""
    ids = text_array(names)
    check_unique(ids, str(path))
    return ids


def _columns(table: Any, leave_out: set[str]) -> dict[str, np.ndarray]:
    """Numbers, flags and text; None for missing text, NaN for missing numbers; nested columns are left out."""
    import pyarrow as pa

    columns = {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name in leave_out or name == "embedding" or pa.types.is_nested(kind) or _holds_bytes(kind):
            continue
        values = table.column(name)
        if pa.types.is_boolean(kind) and values.null_count == 0:
            columns[name] = np.asarray(values.to_pylist(), dtype=bool)
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            columns[name] = values.to_numpy()
        else:
            columns[name] = objects([None if value is None else str(value) for value in values.to_pylist()])
    return columns
