"""Files of named arrays: `.npz`, `.safetensors` and the bare `.npy`. An array is read when it is asked for."""

from __future__ import annotations

import json
import math
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from pro2.tables.columns import bytes_text, filled, text_bytes, unfilled
from pro2.tables.content import Content, as_embeddings, ready
from pro2.tables.csv_files import read_columns
from pro2.tables.digest import stored, to_json
from pro2.tables.errors import TableError, check_size, damaged
from pro2.tables.layout import ID_NAMES, choose
from pro2.tables.rows import Rows

_META = "pro2"
_TEXT = np.dtype(object)  # stands for text until it is read
_FIXED_WIDTH = 1 << 26  # bytes of text that .npz stores as NumPy's own fixed-width text; more goes as UTF-8
_SAFETENSORS = {"BOOL": "?", "F16": "f2", "F32": "f4", "F64": "f8"} | {
    f"{kind}{8 * size}": f"{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)
}


class Entry(NamedTuple):
    """One array of a file, before it is read; `kind` is what the file calls its type when NumPy has none."""

    shape: tuple[int, ...]
    dtype: np.dtype | None
    load: Callable[[], np.ndarray]
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.dtype or self.kind}{list(self.shape)}"


def _content(entries: dict[str, Entry], meta: Mapping[str, Any], embedding: str | None, path: Path) -> Content:
    found = ", ".join(f"{name} {entry}" for name, entry in entries.items())
    matrices = [
        name for name, e in entries.items() if len(e.shape) == 2 and e.dtype is not None and e.dtype.kind == "f"
    ]
    if meta and embedding is None:
        embedding = "embeddings"
    (name,) = choose(matrices, {}, embedding, found, path)
    matrix = entries.pop(name)
    ids = next((entries.pop(key) for key in ID_NAMES if key in entries), None)
    columns, skipped = _columns(entries, matrix.shape[0], bool(meta))
    return Content(
        (matrix.shape[0], matrix.shape[1]),
        np.dtype(matrix.dtype).newbyteorder("="),
        lambda: [as_embeddings(matrix.load())],
        lambda: None if ids is None else ids.load(),
        columns,
        *stored(meta, path),
        skipped,
        str(path),
    )


def _columns(
    entries: dict[str, Entry], n_rows: int, ours: bool
) -> tuple[dict[str, Callable[[], np.ndarray]], dict[str, str]]:
    """One column per array of matching length; `attributes` with `attribute_names` becomes one column per name."""
    columns: dict[str, Callable[[], np.ndarray]] = {}
    skipped: dict[str, str] = {}
    naming = {} if ours else {name: key for name in entries if (key := _names_key(name, entries)) is not None}
    for name, entry in entries.items():
        if name in naming:
            names = entries[naming[name]].load().tolist()
            columns |= {str(each): partial(_nth, entry, i) for i, each in enumerate(names)}
        elif entry.dtype is None or entry.dtype.kind not in "biufUSO":
            skipped[name] = f"its type {entry.dtype or entry.kind} is not bool, integer, float or text"
        elif ours or (len(entry.shape) in (1, 2) and entry.shape[0] == n_rows and name not in naming.values()):
            columns[name] = entry.load
        else:
            skipped[name] = f"shape {entry.shape} is not one value for each of {n_rows} rows"
    return columns, skipped


def _nth(entry: Entry, i: int) -> np.ndarray:
    return entry.load()[:, i]


def _names_key(name: str, entries: Mapping[str, Entry]) -> str | None:
    for key in (f"{name}_names", f"{name.removesuffix('s')}_names"):
        names, shape = entries.get(key), entries[name].shape
        if names is not None and len(shape) == 2 and names.shape == shape[1:]:
            return key if len(set(map(str, names.load().tolist())) - set(entries)) == shape[1] else None
    return None


# ---- .npz


def read_npz(path: Path, embedding: str | None) -> Content:
    """Open an archive of arrays; sizes are compared with the file before anything is unpacked."""
    if not zipfile.is_zipfile(path):
        raise damaged(path, "it is not a complete .npz archive")
    archive = zipfile.ZipFile(path)
    members = archive.infolist()
    if len({info.filename for info in members}) < len(members):
        raise damaged(path, "two of its arrays have one name")
    arrays = [info for info in members if info.filename.endswith(".npy")]
    entries = {info.filename.removesuffix(".npy"): _npz_entry(archive, info, path) for info in arrays}
    meta = entries.pop(_META, None)
    return _content(_join_text(entries), json.loads(str(meta.load())) if meta else {}, embedding, path)


def _npz_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Entry:
    with archive.open(info) as member:
        shape, dtype = _npy_header(member)
        nbytes = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or (not dtype.hasobject and member.tell() + nbytes != info.file_size):
            raise damaged(path, f"{info.filename} does not have the size that it declares")

    def load() -> np.ndarray:
        if dtype.hasobject:
            raise TableError(
                f"{info.filename} in {path} holds Python objects, which are never loaded; "
                "save text as np.array(values, dtype=str)"
            )
        check_size(path, info.filename, nbytes)
        with archive.open(info) as member:
            array = np.lib.format.read_array(member, allow_pickle=False)
            member.read(1)  # the end of the member: only there its checksum is compared
        return array

    if dtype.hasobject and info.filename in ("id.npy", "ids.npy"):
        load()
    return Entry(shape, dtype if not dtype.hasobject else None, load, "Python objects")


def _npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a header that Python 2 wrote is read all the same
        shape, _, dtype = read(file)
    return shape, dtype


def write_npz(table: Rows, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write the archive by hand and not with np.savez: any column name is possible, equal tables are equal files."""
    arrays = {_META: np.array(to_json(dict(meta))), "embeddings": table.embeddings}
    for name, values in {"id": table.ids, **table.columns}.items():
        arrays |= _parts(name, values, _FIXED_WIDTH)
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)


# ---- .safetensors


def read_safetensors(path: Path, embedding: str | None) -> Content:
    """Open a safetensors file; it is mapped, and a tensor is copied out when it is asked for."""
    from safetensors import safe_open

    file = safe_open(path, framework="np")
    meta = json.loads((file.metadata() or {}).get(_META, "{}"))
    entries = _join_text({name: _tensor_entry(file, name) for name in file.keys()})  # noqa: SIM118 - not a mapping
    ordered = {name: entries[name] for name in meta.get("columns", []) if name in entries}
    return _content(ordered | entries, meta, embedding, path)  # safetensors sorts its tensors


def _tensor_entry(file: Any, name: str) -> Entry:
    part = file.get_slice(name)
    kind = part.get_dtype()
    dtype = np.dtype(_SAFETENSORS[kind]) if kind in _SAFETENSORS else None
    return Entry(tuple(part.get_shape()), dtype, partial(file.get_tensor, name), kind)


def write_safetensors(table: Rows, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write text as UTF-8 with offsets; one metadata entry, because several come in no fixed order."""
    from safetensors.numpy import save

    tensors: dict[str, np.ndarray] = {"embeddings": np.ascontiguousarray(table.embeddings)}
    for name, values in {"id": table.ids, **table.columns}.items():
        tensors |= {key: np.ascontiguousarray(part) for key, part in _parts(name, values).items()}
    file.write(save(tensors, metadata={_META: to_json({**meta, "columns": list(table.columns)})}))


# ---- text and missing values in files that know only arrays


def _parts(name: str, values: np.ndarray, fixed_width: int = -1) -> dict[str, np.ndarray]:
    """A column as plain arrays: `name`, or `name#offsets` and `name#utf8` for text; `name#missing` for its gaps."""
    values, missing = filled(values)
    gaps = {} if missing is None else {f"{name}#missing": missing}
    if values.dtype.kind != "O":
        return {name: values, **gaps}
    longest = max(map(len, values.tolist()), default=0)
    if 4 * len(values) * longest <= fixed_width and not any(text.endswith("\0") for text in values.tolist()):
        return {name: values.astype(str), **gaps}
    offsets, utf8 = text_bytes(values)
    return {f"{name}#offsets": offsets, f"{name}#utf8": utf8, **gaps}


def _join_text(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Inverse of `_parts` for all columns of a file, in their order."""
    texts = {name for key in entries if (name := key.removesuffix("#offsets")) != key and f"{name}#utf8" in entries}
    joined: dict[str, Entry] = {}
    for key, entry in entries.items():
        name, _, part = key.rpartition("#")
        if name not in texts or part not in ("offsets", "utf8"):
            joined[key] = entry
        elif part == "offsets":
            utf8 = entries[f"{name}#utf8"]
            joined[name] = Entry((math.prod(entry.shape) - 1,), _TEXT, partial(_text, entry, utf8))
    for name in [key.removesuffix("#missing") for key in entries if key.endswith("#missing")]:
        if name in joined:
            joined[name] = joined[name]._replace(load=partial(_gaps, joined[name], joined.pop(f"{name}#missing")))
    return joined


def _text(offsets: Entry, utf8: Entry) -> np.ndarray:
    return bytes_text(offsets.load(), utf8.load())


def _gaps(values: Entry, missing: Entry) -> np.ndarray:
    if values.shape != missing.shape:
        raise ValueError(f"gaps of shape {missing.shape} in a column of shape {values.shape}")
    return unfilled(values.load(), missing.load())


# ---- .npy, with its columns in a CSV file beside it


def read_npy(path: Path, columns: Mapping[str, Any] | str | PathLike[str] | None) -> Content:
    """Map the matrix; the columns are given, or in the CSV file of the same name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        X = np.lib.format.open_memmap(path, mode="r")
    if X.ndim != 2 or X.dtype.kind != "f":
        raise TableError(f"{path} holds {X.dtype}{list(X.shape)}; expected a floating (rows, width) matrix")
    if columns is None and path.with_suffix(".csv").is_file():
        columns = path.with_suffix(".csv")
    loaded = dict(columns) if isinstance(columns, Mapping) else read_columns(Path(columns)) if columns else {}
    for name, values in loaded.items():
        if len(values) != len(X):
            raise TableError(f"column {name!r} has {len(values)} rows, {path} has {len(X)}; they must be the same rows")
    ids = next((loaded.pop(key) for key in ID_NAMES if key in loaded), None)
    parts = {name: ready(values) for name, values in loaded.items()}
    matrix = np.asarray(X)
    return Content(matrix.shape, matrix.dtype, lambda: [as_embeddings(matrix)], lambda: ids, parts, origin=str(path))


def write_npy(table: Rows, meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write the bare matrix; the columns are another file."""
    np.save(file, table.embeddings, allow_pickle=False)
