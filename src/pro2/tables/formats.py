"""File formats of the embedding table: one reader and one writer a suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pro2.atomic import atomic_write
from pro2.tables import arrays, arrow, npy_csv
from pro2.tables.content import Content, to_json

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

READERS: dict[str, Callable[[Path, str | None], Content]] = {
    ".arrow": arrow.read_arrow,
    ".feather": arrow.read_arrow,
    ".parquet": arrow.read_parquet,
    ".npz": arrays.read_npz,
    ".safetensors": arrays.read_safetensors,
}
WRITERS: dict[str, Callable[..., None]] = {
    ".arrow": arrow.write_arrow,
    ".feather": arrow.write_arrow,
    ".parquet": arrow.write_parquet,
    ".npz": arrays.write_npz,
    ".npy": npy_csv.write_npy,
    ".safetensors": arrays.write_safetensors,
}


def read(path: Path, embedding: str | None, columns: Mapping[str, Any] | str | PathLike[str] | None) -> Content:
    """Open a table file; the suffix says how."""
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        raise ValueError(f"cannot open {path}: suffix {path.suffix!r}; expected one of {', '.join(sorted(WRITERS))}")
    if not path.is_file():
        raise FileNotFoundError(f"no embedding table at {path}; make one with `pro2 embed IMAGES --out {path.name}`")
    if suffix == ".npy":
        return npy_csv.read_npy(path, columns)
    if columns is not None:
        raise ValueError(f"columns is only for .npy files; {path.name} brings its own columns")
    return READERS[suffix](path, embedding)


def write(
    path: Path, table: EmbeddingTable, provenance: Mapping[str, Any], digest: str, seal: str, force: bool
) -> Path:
    """Write a table file in one step: either the whole new file is there, or what was there before."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ValueError(f"cannot write {path}: suffix {path.suffix!r}; expected one of {', '.join(sorted(WRITERS))}")
    meta = {"provenance": to_json(dict(provenance)), "digest": digest, "seal": seal}
    if writer is npy_csv.write_npy:
        # The columns first: a .npy that is there then always has its CSV beside it.
        atomic_write(path.with_suffix(".csv"), partial(npy_csv.write_csv, table), force)
    return atomic_write(path, partial(writer, table, meta), force)
