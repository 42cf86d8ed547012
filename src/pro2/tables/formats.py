"""File formats of the embedding table: one reader and one writer per suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from pro2.atomic import atomic_write
from pro2.tables import arrays, arrow, csv_files, frames
from pro2.tables.content import Content
from pro2.tables.digest import carries_digest, to_json
from pro2.tables.errors import TableError, damaged, reading
from pro2.tables.rows import Rows

READERS: dict[str, Callable[[Path, str | None], Content]] = {
    ".arrow": arrow.read_arrow,
    ".feather": arrow.read_arrow,
    ".parquet": arrow.read_parquet,
    ".npz": arrays.read_npz,
    ".safetensors": arrays.read_safetensors,
    ".csv": csv_files.read_table,
    ".tsv": csv_files.read_table,
}
WRITERS: dict[str, Callable[..., None]] = {
    ".arrow": arrow.write_arrow,
    ".feather": arrow.write_arrow,
    ".parquet": arrow.write_parquet,
    ".npz": arrays.write_npz,
    ".npy": arrays.write_npy,
    ".safetensors": arrays.write_safetensors,
    ".csv": csv_files.write_table,
}
SUFFIXES = {*READERS, *WRITERS}


def read(path: Path, embedding: str | None, columns: Mapping[str, Any] | str | PathLike[str] | None) -> Content:
    """Open a table; the suffix says how, a folder is a Hugging Face data set."""
    suffix = path.suffix.lower()
    if path.is_dir():
        with reading(path):
            content = frames.read_folder(path, embedding)
            content.check_ids()
            return content
    if suffix not in SUFFIXES:
        raise TableError(f"cannot open {path}: suffix {path.suffix!r}; expected one of {', '.join(sorted(SUFFIXES))}")
    if not path.is_file():
        raise FileNotFoundError(f"no embedding table at {path}; make one with `pro2 embed`")
    if columns is not None and suffix != ".npy":
        raise TableError(f"columns is only for .npy files; {path.name} brings its own columns")
    with reading(path):
        content = arrays.read_npy(path, columns) if suffix == ".npy" else READERS[suffix](path, embedding)
        if content.stored is None:
            if carries_digest(path):
                raise damaged(path, "the digest in it is out of place")
            content.check_ids()  # of our own files this was done when they were written
        return content


def write(path: Path, table: Rows, meta: Mapping[str, Any], force: bool, spreadsheet: bool) -> Path:
    """Write a table file in one step: either the whole new file is there, or what was there before."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise TableError(f"cannot write {path}: suffix {path.suffix!r}; expected one of {', '.join(sorted(WRITERS))}")
    fill = partial(writer, table, {**meta, "provenance": to_json(meta["provenance"])})
    if writer is csv_files.write_table:
        fill = partial(fill, spreadsheet=spreadsheet)
    if writer is arrays.write_npy:
        # The columns first: a .npy that is there then always has its CSV beside it.
        columns = partial(csv_files.write_columns, table, spreadsheet=spreadsheet)
        atomic_write(path.with_suffix(".csv"), columns, force)
    return atomic_write(path, fill, force)
