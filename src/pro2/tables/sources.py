"""Where the columns of a table come from: files of six formats, folders, object stores, frames; and how it is written.

Our files have a text column `id`, a fixed-size-list column `embedding` and the typed columns. The schema metadata key
`pro2` holds provenance and digest. Uncompressed Arrow files stay in the memory map: their embedding is not copied.

Files are read one after the other by their own readers, and not by a scan of `pyarrow.dataset`: that holds a whole row
group of Parquet in memory, 2 GB where the batches of `ParquetFile` need 90 MB, and does not read Arrow streams.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

from pro2.extras import imported, one_line
from pro2.tables import TableError, check_size, damaged, reading
from pro2.tables.arrays import read_npy, read_npz, read_safetensors
from pro2.tables.arrow import META, Source, is_list, kind_of, to_arrow
from pro2.tables.columns import to_json
from pro2.tables.csv_files import read_table

Opener = Callable[[str], pa.NativeFile]
PART_SUFFIXES = (".parquet", ".arrow", ".feather")
_READERS = {".npz": read_npz, ".safetensors": read_safetensors, ".csv": read_table, ".tsv": read_table}
_OPEN = 32  # files of a folder that stay open; a single file does, so that another one in its place changes nothing
_ADDRESS = re.compile(r"([a-z][a-z0-9+]+):/+")  # a pathlib.Path makes s3:/bucket of s3://bucket


def is_address(path: str | PathLike[str]) -> bool:
    """Whether it is an address such as s3://bucket/folder, and not a path of this machine."""
    return _ADDRESS.match(str(path)) is not None


def is_saved_dataset(folder: Path) -> bool:
    """Whether Hugging Face's `save_to_disk` wrote the folder."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def is_table_folder(folder: Path) -> bool:
    """Whether a folder of this machine holds a table, and not images or anything else."""
    files = (name for _, _, names in os.walk(folder) for name in names)
    is_known = folder.suffix == ".lance" or is_saved_dataset(folder)
    return is_known or any(name.lower().endswith(PART_SUFFIXES) for name in files)


def read(path: str | PathLike[str], embedding: str | None = None, columns: Any = None) -> Source:
    """A file, a folder of files, a saved data set of Hugging Face, or a Lance data set, here or in an object store."""
    filesystem, inside, origin = locate(path)
    suffix = PurePosixPath(inside).suffix.lower()
    suffixes = PART_SUFFIXES if is_address(path) else (*PART_SUFFIXES, *_READERS, ".npy")
    if columns is not None and suffix != ".npy":
        raise TableError(f"columns is only for .npy files; {PurePosixPath(inside).name} brings its own columns")
    open_file = lru_cache(_OPEN)(lambda name: filesystem.open_input_file(name))
    with reading(origin):
        kind = filesystem.get_file_info(inside).type
        is_folder = kind == pa.fs.FileType.Directory
        if is_folder and suffix == ".lance":
            lance = imported("lance", "Lance data sets need pylance; run: pip install pylance")
            return read_dataset(lance.dataset(origin), origin).choose(embedding)
        if is_folder and is_saved_dataset(Path(inside)):
            return read_saved(Path(inside)).choose(embedding)
        if is_folder:
            return read_folder(filesystem, open_file, inside, origin, embedding)
        if kind == pa.fs.FileType.NotFound and suffix in {"", *suffixes}:
            raise FileNotFoundError(f"no embedding table at {origin}; make one with `pro2 embed`")
        if suffix not in suffixes:
            raise TableError(f"cannot open {origin}: suffix {suffix!r}; expected one of {', '.join(sorted(suffixes))}")
        if suffix == ".npy":
            return read_npy(Path(inside), columns)
        if suffix in _READERS:
            source = _READERS[suffix](Path(inside), embedding)
        else:
            source = read_file(open_file, inside, origin).choose(embedding)
        if source.recorded[1] is None and not is_address(path) and _carries_digest(Path(inside)):
            raise damaged(origin, "the digest in it is out of place")
        return source


def locate(path: str | PathLike[str]) -> tuple[pa.fs.FileSystem, str, str]:
    """The file system of a path or an address, the path in it, and what messages call it."""
    found = _ADDRESS.match(str(path))
    if found is None:
        return pa.fs.LocalFileSystem(use_mmap=True), str(path), str(path)
    address = f"{found[1]}://{str(path)[found.end() :]}"
    origin = re.sub(r"//[^/]*@", "//", address.partition("?")[0])  # without a password
    with reading(origin):
        filesystem, inside = pa.fs.FileSystem.from_uri(address)
    return filesystem, inside, origin


def fingerprint(path: str | PathLike[str]) -> list[list[Any]]:
    """Name, size and time of every file of a table: what changes when someone writes it again."""
    filesystem, inside, _ = locate(path)
    found = filesystem.get_file_info(inside)
    if found.type == pa.fs.FileType.Directory:
        files = filesystem.get_file_info(pa.fs.FileSelector(inside, recursive=True))
    else:
        files = [found]
    return sorted([info.path.removeprefix(inside), info.size, info.mtime_ns] for info in files if info.is_file)


def _carries_digest(path: Path) -> bool:
    """Whether either end of a file holds our description, also where damage keeps a reader from finding it."""
    with path.open("rb") as file:
        ends = file.read(1 << 20)
        file.seek(max(0, path.stat().st_size - (1 << 20)))
        ends += file.read()
    # .npz has four bytes per character, and .safetensors JSON within JSON
    plain = ends.replace(b"\0", b"").replace(b"\\", b"")
    return any(mark in plain for mark in (b'"digest":"sha256:', b'","seal":"'))


# ---- Arrow and Parquet


def read_file(open_file: Opener, inside: str, origin: str) -> Source:
    """Columns of one Arrow or Parquet file."""
    with reading(origin):
        return (_parquet if inside.lower().endswith(".parquet") else _ipc)(lambda: open_file(inside), origin)


def read_list(path: Path) -> Source:
    """All columns of a Parquet file or of a saved data set; none of them need be an embedding."""
    with reading(path):
        return read_saved(path) if path.is_dir() else read_file(lru_cache(pa.memory_map), str(path), str(path))


def _ipc(opened: Callable[[], pa.NativeFile], origin: str) -> Source:
    """Columns of an Arrow file or stream; those that are not compressed stay in the memory map, if there is one."""
    file = opened()
    file.seek(0)
    start, size = file.read_buffer(6), file.size()
    is_file = start.to_pybytes() == b"ARROW1"

    def batches(fields: list[int] | None) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        if is_file:
            reader = pa.ipc.open_file(opened(), options=options)
            return map(reader.get_batch, range(reader.num_record_batches))
        whole = opened()
        whole.seek(0)
        return iter(pa.ipc.open_stream(whole.read_buffer(), options=options))

    def load(names: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        # with a choice of fields only these are unpacked, but what is mapped would be copied
        return batches([schema.get_field_index(name) for name in names])

    file.seek(0)
    schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(file).schema
    if "://" not in origin:  # from a store, the first batch may be the whole file
        columns = [column for batch in islice(batches(None), 1) for column in batch.columns]
        buffers = [each for column in columns for each in column.buffers() if each]
        if all(start.address <= each.address < start.address + size for each in buffers):
            return Source.of(pa.Table.from_batches(batches(None), schema), origin)
    return Source(schema, sum(map(len, load(schema.names[:1], None))), load, origin)


def _parquet(opened: Callable[[], pa.NativeFile], origin: str) -> Source:
    """Columns of a Parquet file, unpacked when they are read; the embedding in batches where that is enough."""
    metadata = pa.parquet.read_metadata(opened())
    schema, size = metadata.schema.to_arrow_schema(), opened().size()
    # Repeated text stays one text: a caption in a million rows is stored once, and unpacked it would fill the memory.
    texts = [field.name for field in schema if kind_of(field.type) == "text"]
    options = {"read_dictionary": texts, "page_checksum_verification": True, "metadata": metadata}

    def load(names: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        kinds = [schema.field(name).type for name in names]
        fixed = [kind for kind in kinds if pa.types.is_fixed_size_list(kind)]
        row_bytes = 8 * len(kinds) + sum(kind.list_size * max(8, kind.value_type.bit_width) // 8 for kind in fixed)
        check_size(origin, size, names[0], metadata.num_rows * row_bytes)
        lists = sum(map(is_list, kinds)) - len(fixed)
        # 1 MiB at a time: without it, all pages of a row group are in memory
        file = pa.parquet.ParquetFile(opened(), buffer_size=1 << 20, **options)
        if rows is None and not lists:
            yield from file.read(columns=names).to_batches()
            return
        unpacked = 0
        for batch in file.iter_batches(columns=names, batch_size=rows or 1 << 16):
            unpacked += batch.nbytes if lists else 0  # how much such a column unpacks to shows only on the way
            check_size(origin, size, names[0], unpacked)
            yield batch

    return Source(pa.parquet.ParquetFile(opened(), **options).schema_arrow, metadata.num_rows, load, origin)


def read_folder(
    filesystem: pa.fs.FileSystem, open_file: Opener, folder: str, origin: str, embedding: str | None
) -> Source:
    """The files of a folder, in the order of their names; folders called NAME=VALUE are a column."""
    listed = filesystem.get_file_info(pa.fs.FileSelector(folder, recursive=True))
    base = folder.rstrip("/")
    inside = {info.path[len(base) + 1 :]: info for info in listed}
    shown = {name: info for name, info in sorted(inside.items()) if not re.search(r"(^|/)[._]", name)}
    files = [name for name in shown if name.lower().endswith(PART_SUFFIXES)]
    parents = {parent.as_posix() for name in shown for parent in PurePosixPath(name).parents}
    for name, info in shown.items():
        if info.type == pa.fs.FileType.Directory and "=" in name and name not in parents:
            raise TableError(f"{origin}/{name} is an empty partition; remove the folder, or write its part again")
        if re.search(r"\.(parquet|arrow|feather)[.~-]", name.lower()):
            raise TableError(f"{origin}/{name} is a part that was not finished; remove it, or write it again")
    if not files:
        raise TableError(
            f"{origin} is a folder, not an embedding table: no file in it ends in {', '.join(PART_SUFFIXES)}; "
            f"`pro2 embed {origin}` makes a table of its images"
        )
    parts = [read_file(open_file, f"{base}/{name}", f"{origin.rstrip('/')}/{name}") for name in files]
    for part in parts:
        part.choose(embedding)
        _check_part(part, parts[0])
    keys = _partition_columns(files, origin)
    clash = sorted(set(keys) & set(parts[0].schema.names))
    if clash:
        raise TableError(
            f"{parts[0].origin} has a column {clash[0]!r}, and so have the names of the folders; rename one"
        )
    schema = parts[0].schema.remove_metadata()
    for part in parts:  # a column without any value in the first part may have some in another
        for i, field in enumerate(part.schema.field(name) for name in schema.names):
            schema = schema.set(i, field) if pa.types.is_null(schema.field(i).type) else schema
    for name, values in keys.items():
        schema = schema.append(pa.field(name, values.type))

    def load(names: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        kinds = pa.schema([schema.field(name) for name in names])
        stored = [name for name in names if name not in keys]
        for i, part in enumerate(parts):
            for batch in part.batches(stored or parts[0].schema.names[:1], rows):
                columns = [pa.repeat(keys[n][i], len(batch)) if n in keys else batch.column(n) for n in names]
                # without any value in one part, a column has no type there
                columns = [c if c.type == field.type else c.cast(field.type) for c, field in zip(columns, kinds)]
                yield pa.record_batch(columns, schema=kinds)

    n_rows, mapped = sum(part.n_rows for part in parts), all(part.mapped for part in parts)
    return Source(schema, n_rows, load, origin, mapped=mapped, parts=parts, embedding=parts[0].embedding)


def _check_part(part: Source, first: Source) -> None:
    """Refuse a part that has no rows, or other columns than the first one; embeddings must be of one width and type."""
    if part.n_rows == 0:
        raise TableError(f"{part.origin} has no rows; remove it, or write it again")
    kinds, expected = ({field.name: kind_of(field.type) for field in each.schema} for each in (part, first))
    for name in sorted({*kinds, *expected}):
        found, before = kinds.get(name, "missing"), expected.get(name, "missing")
        if found != before and "null" not in (found, before):
            raise TableError(f"column {name!r} is {found} in {part.origin} and {before} in {first.origin}")
    if part.matrix_type != first.matrix_type:
        (width, dtype), (first_width, first_dtype) = part.matrix_type, first.matrix_type
        raise TableError(
            f"{part.origin} has embeddings of width {width} and type {dtype}, but {first.origin} has {first_width} and "
            f"{first_dtype}; embed it again with the backbone of the others"
        )


def _partition_columns(files: Sequence[str], origin: str) -> dict[str, pa.Array]:
    """Columns of one value per file, from folders called NAME=VALUE."""
    pairs = [dict(part.split("=", 1) for part in PurePosixPath(f).parts[:-1] if "=" in part) for f in files]
    for name, found in zip(files, pairs):
        if list(found) != list(pairs[0]):
            raise TableError(f"{origin}/{name} is in other partitions than {files[0]}; parts need the same")
    columns = {}
    for key in pairs[0]:
        texts = [unquote(pair[key]) for pair in pairs]
        values = [None if text == "__HIVE_DEFAULT_PARTITION__" else text for text in texts]
        column = pa.array(values, pa.string())
        whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value) for value in values if value is not None)
        columns[key] = column.cast(pa.int64()) if whole else column
    return columns


def read_dataset(dataset: Any, origin: str) -> Source:
    """Columns of any data set of `pyarrow.dataset`, such as Lance's, in the batches that it gives."""

    def load(names: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        return iter(dataset.to_batches(columns=names, batch_size=rows or 1 << 16))

    return Source(dataset.schema, dataset.count_rows(), load, origin)


# ---- objects and folders of other libraries


def read_object(data: Any, embedding: str | None) -> Source:
    """Columns of anything that gives an Arrow stream: polars, pandas, pyarrow, duckdb, Hugging Face."""
    origin = f"this {type(data).__name__}"
    if isinstance(data, pa.dataset.Dataset):
        return read_dataset(data, origin).choose(embedding)
    if hasattr(data, "with_format") and hasattr(data, "features"):
        data = data.with_format("arrow")[:]  # a Hugging Face data set: its rows in its own order, after any selection
    if not hasattr(data, "__arrow_c_stream__"):
        raise TableError(
            f"{origin} gives no Arrow stream; expected a data frame of pandas or polars, a pyarrow table, a duckdb "
            "relation or a Hugging Face data set"
        )
    with reading(origin):
        try:
            table = pa.table(data).combine_chunks()
        except (ValueError, TypeError) as error:  # Arrow's own errors are both
            raise TableError(f"{origin} cannot be converted to Arrow: {one_line(error)}") from error
        return Source.of(table, origin).choose(embedding)


def read_saved(folder: Path) -> Source:
    """Columns of a data set, or a dictionary of splits, written by Hugging Face `save_to_disk`; splits are a column."""
    is_dictionary = (folder / "dataset_dict.json").is_file()
    tables: list[pa.Table] = []
    classes: dict[str, list[str]] = {}
    for split in _json(folder / "dataset_dict.json")["splits"] if is_dictionary else [""]:
        part = folder / _plain_name(split, folder)
        for entry in _json(part / "state.json")["_data_files"]:
            source = read_list(part / _plain_name(entry["filename"], folder))
            table = source.table(source.schema.names)
            tables.append(table.append_column("split", pa.repeat(split, len(table))) if split else table)
        features = _json(part / "dataset_info.json").get("features") or {}
        coded = {name: kind for name, kind in features.items() if isinstance(kind, dict) and "names" in kind}
        classes |= {name: kind["names"] for name, kind in coded.items()}
    if not tables:
        raise TableError(f"{folder} lists no files; save the data set again")
    if any(not table.schema.equals(tables[0].schema) for table in tables):
        raise TableError(f"the parts of {folder} do not have the same columns")
    whole = pa.concat_tables(tables)
    for name in set(classes) & set(whole.schema.names):
        codes = whole.column(name)
        known = pc.if_else(pc.less(codes, 0), None, codes)  # -1 is how data sets write that a row has no label
        whole = whole.append_column(f"{name}_name", pc.take(pa.array(classes[name], pa.string()), known))
    return Source.of(whole, str(folder))


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _plain_name(name: str, folder: Path) -> str:
    if Path(name).name != name:
        raise TableError(f"{folder} lists {name!r}, which leaves the folder")
    return name


# ---- writing


def to_table(columns: Mapping[str, np.ndarray], meta: Mapping[str, str] = {}) -> pa.Table:
    """Columns with ids and the embedding, each in one piece; a memory-mapped embedding is not loaded."""
    arrays = [to_arrow(name, values, len(values)) for name, values in columns.items()]
    fields = [pa.field(name, array.type, nullable=array.null_count > 0) for name, array in zip(columns, arrays)]
    return pa.table(arrays, schema=pa.schema(fields, metadata={META: to_json(dict(meta))} if meta else None))


def write_arrow(table: pa.Table, file: IO[bytes]) -> None:
    """Write one record batch, which keeps the matrix in one piece; its values may be more than 2^31."""
    with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(allow_64bit=True)) as writer:
        writer.write_table(table)
