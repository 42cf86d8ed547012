"""A reader of safetensors files that trusts nothing: every length is checked against the file before it is used.

Only the file's own size bounds what is read; nothing in a header can cause an allocation. See
https://huggingface.co/docs/safetensors for the layout: 8 bytes of header length, JSON header, one flat buffer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

MAX_HEADER = 16 << 20  # a header holds names and shapes; class names of a million classes still fit
_MAX_AXES = 8
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


class FormatError(ValueError):
    """What is wrong with the bytes, in a few words; callers add the file's name and what to do."""


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and memory-mapped, read-only arrays of a safetensors file.

    Raises
    ------
    FormatError
        For anything that is not a complete, well-formed file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        header, start = _read_header(file, size)
    metadata = _metadata(header.pop("__metadata__", {}))
    spans = {name: _span(name, entry, size - start) for name, entry in header.items()}
    _check_cover([span[2:] for span in spans.values()], size - start)
    buffer = np.memmap(path, dtype=np.uint8, mode="r", offset=0)
    return metadata, {name: _view(buffer, start, *span) for name, span in spans.items()}


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata alone; empty when the file is not safetensors at all."""
    try:
        with path.open("rb") as file:
            header, _ = _read_header(file, path.stat().st_size)
        return _metadata(header.get("__metadata__", {}))
    except FormatError:
        return {}


def write_tensors(file: IO[bytes], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write arrays in name order; equal contents give equal bytes."""
    names = {np.dtype(code): name for name, code in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    # widest types first: every array then starts at a multiple of its own item size
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    arrays = [np.ascontiguousarray(tensors[name]).astype(_little(tensors[name].dtype), copy=False) for name in order]
    end = 0
    for name, array in zip(order, arrays):
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    file.write(len(raw).to_bytes(8, "little") + raw)
    for array in arrays:
        file.write(array.reshape(-1).view(np.uint8).data)


def parse_json(raw: bytes | str, what: str) -> Any:
    """JSON without doubled keys, however hostile the text."""
    try:
        return json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"unreadable {what}: {str(error)[:100]}") from error


def _little(dtype: np.dtype) -> np.dtype:
    little = dtype.newbyteorder("<")
    if little not in {np.dtype(code) for code in _DTYPES.values()}:
        raise ValueError(f"arrays of type {dtype} cannot be stored; use booleans, integers or floats")
    return little


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise FormatError("a name occurs twice")
    return found


def _read_header(file: IO[bytes], size: int) -> tuple[dict[str, Any], int]:
    if size < 8:
        raise FormatError(f"{size} bytes are too few for a safetensors file")
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        raise FormatError("it is not a safetensors file, or was cut off")
    if length > MAX_HEADER:
        raise FormatError(f"its header claims {length} bytes, more than {MAX_HEADER}")
    header = parse_json(file.read(length), "header")
    if not isinstance(header, dict):
        raise FormatError("its header is not a mapping")
    return header, 8 + length


def _metadata(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise FormatError("its metadata is not a mapping of texts")
    return value


def _span(name: str, entry: Any, available: int) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, begin and end of one tensor, all consistent with each other and with the file."""
    try:
        code, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the entry of tensor {name[:60]!r} is malformed") from error
    sizes = [begin, end, *shape] if isinstance(shape, list) and len(shape) <= _MAX_AXES else [None]
    if not all(type(value) is int and 0 <= value <= available for value in sizes):
        raise FormatError(f"tensor {name[:60]!r} reaches beyond the file")
    if end - begin != math.prod(shape) * np.dtype(code).itemsize:
        raise FormatError(f"tensor {name[:60]!r} has {end - begin} bytes, which is not its shape {shape}")
    return code, tuple(shape), begin, end


def _check_cover(spans: list[tuple[int, int]], available: int) -> None:
    """Tensors lie side by side and fill the buffer: nothing hidden, nothing shared, nothing missing."""
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            raise FormatError("its tensors overlap or leave gaps")
        at = end
    if at != available:
        raise FormatError(f"its tensors take {at} bytes, the file has {available}: cut off or extended")


def _view(buffer: np.ndarray, start: int, code: str, shape: tuple[int, ...], begin: int, end: int) -> np.ndarray:
    raw = np.asarray(buffer)[start + begin : start + end]
    return raw.view(np.dtype(code)).reshape(shape)
