"""safetensors messages. The library validates and copies; here are the limits and checks that it does not have.

See https://huggingface.co/docs/safetensors for the layout: 8 bytes of header length, JSON header, one flat buffer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

MAX_FILE = 8 << 30  # 8 GiB: two float64 matrices of 22,000 features, more than any backbone has
MAX_HEADER = 16 << 20  # a header holds names and shapes; class names of a million classes still fit
_DTYPES = frozenset(map(np.dtype, "?bBhHiIqQefd"))


class FormatError(ValueError):
    """What is wrong with the bytes, in a few words; callers add the file's name and what to do."""


def pack(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """Arrays and texts as one message; equal contents give equal bytes as long as there is one text."""
    from safetensors.numpy import save

    for name, values in tensors.items():
        if values.dtype.newbyteorder("=") not in _DTYPES:
            raise ValueError(f"{name} has type {values.dtype}, which a file cannot hold; use integers or floats")
    # the library reads memory as it lies: what is not contiguous would be written in another order
    message = save({name: np.asarray(values, order="C") for name, values in tensors.items()}, dict(metadata))
    _check_limits(len(message), int.from_bytes(message[:8], "little"))
    return message


def unpack(message: bytes) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Texts and writable arrays of a message; FormatError for anything that is not complete and well-formed."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    length = int.from_bytes(message[:8], "little")
    _check_limits(len(message), length)
    header = parse_json(message[8 : 8 + length], "header")  # the library lets names occur twice
    try:
        arrays = load(message)
    except (SafetensorError, ValueError, KeyError) as error:  # KeyError: a type that NumPy does not have
        raise FormatError(f"not a complete safetensors file: {error}") from error
    return header.get("__metadata__") or {}, arrays


def read_metadata(path: Path) -> dict[str, str]:
    """The texts alone; nothing but the header is read. FormatError if there is none, or a limit is exceeded."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        _check_limits(size, length)
        header = parse_json(file.read(length), "header")
    found = header.get("__metadata__") if isinstance(header, dict) else None
    return found if isinstance(found, dict) else {}


def parse_json(raw: bytes | str, what: str) -> Any:
    """JSON without doubled keys and without Python's own NaN, however hostile the text."""
    try:
        return json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"unreadable {what}: {str(error)[:100]}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise FormatError("a name occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise FormatError(f"{name} is not JSON")


def _check_limits(size: int, header: int) -> None:
    if size > MAX_FILE:
        raise FormatError(f"it has {size:,} bytes, more than the limit of {MAX_FILE:,}")
    if header > size - 8:
        raise FormatError("it is not a safetensors file, or was cut off")
    if header > MAX_HEADER:
        raise FormatError(f"its header claims {header:,} bytes, more than the limit of {MAX_HEADER:,}")
