"""Files of named arrays: `.npz`, `.safetensors` and the bare `.npy`. An array is read when it is asked for."""

import json
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pro2.tables import TableError, check_size, damaged
from pro2.tables.arrow import META, Source, in_memory, to_arrow
from pro2.tables.columns import choose, column_name, filled, to_json
from pro2.tables.csv_files import read_columns

_FIXED_WIDTH = 1 << 26  # bytes of text that .npz stores as NumPy's own fixed-width text; more goes as UTF-8
_SAFETENSORS = {"BOOL": "?", "F16": "f2", "F32": "f4", "F64": "f8"} | {
    f"{kind}{8 * size}": f"{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)
}


class Entry(NamedTuple):
    """One array of a file, before it is read; no dtype where NumPy has no such type."""

    shape: tuple[int, ...]
    dtype: np.dtype | None
    load: Callable[[], Any]
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.dtype or self.kind}{list(self.shape)}"


def _source(entries: dict[str, Entry], meta: Mapping[str, Any], embedding: str | None, path: Path) -> Source:
    """The columns of a table: the embedding, and every array with a value for each of its rows."""
    contents = ", ".join(f"{name} {entry}" for name, entry in entries.items())
    lists = [name for name, e in entries.items() if len(e.shape) == 2 and e.dtype is not None and e.dtype.kind == "f"]
    if meta and embedding is None:
        embedding = "embeddings"
    matrix = entries.pop(choose(dict.fromkeys(lists, "list"), embedding, contents, path)[0])
    n_rows, columns, skipped = matrix.shape[0], {"embedding": matrix}, {}
    for name, entry in (_joined(entries) if meta else _attributes(entries)).items():
        if entry.dtype is None or entry.dtype.kind not in "biufUSO" or entry.dtype == np.longdouble:
            skipped[name] = f"its type {entry.dtype or entry.kind} is not bool, integer, float or text"
        elif meta or (len(entry.shape) in (1, 2) and entry.shape[0] == n_rows):
            columns[column_name(name)] = entry
        else:
            skipped[name] = f"shape {entry.shape} is not one value for each of {n_rows} rows"

    def load(names: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        arrays = [to_arrow(name, columns[name].load(), n_rows) for name in names]
        yield pa.record_batch(arrays, names=names)

    fields = []
    for name, (shape, dtype, *_) in columns.items():
        kind = pa.string() if dtype is None or dtype.kind in "USO" else pa.from_numpy_dtype(dtype.newbyteorder("="))
        fields.append((name, pa.list_(kind, shape[1]) if len(shape) == 2 else kind))
    schema = pa.schema(fields, {META: to_json(meta)} if meta else None)
    return Source(schema, n_rows, load, str(path), keep=True, unusable=skipped)


def _attributes(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Arrays of a foreign file; `attributes` (n, k) with `attribute_names` (k,) are k columns with those names."""
    found: dict[str, Entry] = {}
    for name, entry in entries.items():
        listed = entries.get(f"{name}_names", entries.get(f"{name.removesuffix('s')}_names"))
        names = []
        if listed is not None and len(entry.shape) == 2 and listed.shape == entry.shape[1:]:
            names = [str(each) for each in listed.load().tolist()]
        if names and len(set(names) - set(entries)) == len(names):
            load = [partial(lambda entry, i: entry.load()[:, i], entry, i) for i in range(len(names))]
            found |= {each: Entry(entry.shape[:1], entry.dtype, load[i]) for i, each in enumerate(names)}
        else:
            found[name] = entry
    return found


def _joined(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Columns of our own files: `name#offsets` and `name#utf8` are one of text, `name#missing` marks what it lacks."""
    joined = {}
    for key, (shape, dtype, *_) in entries.items():
        name = key.removesuffix("#offsets")
        if name != key:
            shape, dtype = (shape[0] - 1,), np.dtype(object)
        if not key.endswith(("#utf8", "#missing")):
            joined[name] = Entry(shape, dtype, partial(_load, entries, name, shape[0]))
    return joined


def _load(entries: dict[str, Entry], name: str, n_rows: int) -> pa.Array:
    """A column of one of our own files."""
    if f"{name}#utf8" in entries:
        starts = np.ascontiguousarray(entries[f"{name}#offsets"].load(), dtype=np.int64)
        content = np.ascontiguousarray(entries[f"{name}#utf8"].load(), dtype=np.uint8)
        column = pa.LargeStringArray.from_buffers(n_rows, pa.py_buffer(starts), pa.py_buffer(content))
        column.validate(full=True)
    else:
        column = to_arrow(name, entries[name].load(), n_rows)
    missing = entries.get(f"{name}#missing")
    return pc.if_else(pa.array(missing.load()), pa.scalar(None, column.type), column) if missing else column


# ---- .npz


def read_npz(path: Path, embedding: str | None) -> Source:
    """Columns of an archive of arrays; sizes are compared with the file before anything is unpacked."""
    if not zipfile.is_zipfile(path):
        raise damaged(path, "it is not a complete .npz archive")
    with ExitStack() as unless_read:  # it stays open where its arrays are read on demand
        archive = unless_read.enter_context(zipfile.ZipFile(path))
        members = archive.infolist()
        if len({info.filename for info in members}) < len(members):
            raise damaged(path, "two of its arrays have one name")
        arrays = [info for info in members if info.filename.endswith(".npy")]
        entries = {info.filename.removesuffix(".npy"): _npz_entry(archive, info, path) for info in arrays}
        meta = entries.pop(META.decode(), None)
        source = _source(entries, json.loads(str(meta.load())) if meta else {}, embedding, path)
        unless_read.pop_all()
    return source


def _npz_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Entry:
    with archive.open(info) as member, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a header that Python 2 wrote is read all the same
        version = np.lib.format.read_magic(member)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = read(member)
        nbytes = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or (not dtype.hasobject and member.tell() + nbytes != info.file_size):
            raise damaged(path, f"{info.filename} does not have the size that it declares")
    if dtype.hasobject and info.filename in ("id.npy", "ids.npy"):
        raise TableError(
            f"{info.filename} in {path} holds Python objects, which are never loaded; "
            "save text as np.array(values, dtype=str)"
        )

    def load() -> np.ndarray:
        check_size(path, path.stat().st_size, info.filename, nbytes)
        with archive.open(info) as member:
            array = np.lib.format.read_array(member, allow_pickle=False)
            member.read(1)  # the end of the member: only there its checksum is compared
        return array

    return Entry(shape, None if dtype.hasobject else dtype, load, "Python objects")


def write_npz(columns: Mapping[str, np.ndarray], meta: Mapping[str, str], file: IO[bytes]) -> None:
    """Write the archive by hand and not with np.savez: any column name is possible, equal tables are equal files."""
    arrays = {META.decode(): np.array(to_json(dict(meta)))}
    for name, values in columns.items():
        full, missing = filled(values)
        longest = max(map(len, full.tolist()), default=0) if full.dtype.kind == "O" else 0
        if full.dtype.kind != "O":
            arrays[name] = full
        elif 4 * len(full) * longest <= _FIXED_WIDTH and not any(text.endswith("\0") for text in full.tolist()):
            arrays[name] = full.astype(str)
        else:
            _, offsets, utf8 = pa.array(full, pa.large_string()).buffers()
            arrays[f"{name}#offsets"] = np.frombuffer(offsets, np.int64)[: len(full) + 1]
            arrays[f"{name}#utf8"] = np.frombuffer(utf8, np.uint8)
        arrays |= {} if missing is None else {f"{name}#missing": missing}
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)


# ---- .safetensors


def read_safetensors(path: Path, embedding: str | None) -> Source:
    """Columns of a safetensors file; it is mapped, and a tensor is copied out when it is asked for."""
    from safetensors import safe_open

    file = safe_open(path, framework="np")
    meta = json.loads((file.metadata() or {}).get(META.decode(), "{}"))
    entries = {}
    for name in file.keys():  # noqa: SIM118 - not a mapping
        part = file.get_slice(name)
        kind = part.get_dtype()
        dtype = np.dtype(_SAFETENSORS[kind]) if kind in _SAFETENSORS else None
        entries[name] = Entry(tuple(part.get_shape()), dtype, partial(file.get_tensor, name), kind)
    # safetensors sorts its tensors; our description has the order of the columns
    order = {name: i for i, name in enumerate(meta.get("columns", []))}
    names = sorted(entries, key=lambda name: order.get(name.partition("#")[0], -1))
    return _source({name: entries[name] for name in names}, meta, embedding, path)


# ---- .npy, with its columns in a CSV file of the same name


def read_npy(path: Path, columns: Mapping[str, Any] | str | PathLike[str] | None) -> Source:
    """The mapped matrix; its columns are given, or in the CSV file of the same name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        X = np.asarray(np.lib.format.open_memmap(path, mode="r"))
    if X.ndim != 2 or X.dtype.kind != "f":
        raise TableError(f"{path} holds {X.dtype}{list(X.shape)}; expected a floating (rows, width) matrix")
    if columns is None and path.with_suffix(".csv").is_file():
        columns = path.with_suffix(".csv")
    loaded = dict(columns) if isinstance(columns, Mapping) else read_columns(Path(columns)) if columns else {}
    return in_memory(X, loaded, str(path))
