"""One digest over rows, ids and columns: the same for every file format and every cut into blocks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pro2.tables.columns import filled, text_bytes
from pro2.tables.errors import damaged

_ENDS = 1 << 20
# Two places of our description: damage that hides one of them leaves the other.
_DESCRIPTION = re.compile(
    rb'digest\\*":\\*"sha256:[0-9a-f]{64}\\*",\\*"provenance|\\*",\\*"seal\\*":\\*"[0-9a-f]{16}\\*"\}'
)


class Digest:
    """SHA-256 that is fed block by block."""

    def __init__(self, shape: Sequence[int], dtype: np.dtype) -> None:
        self._state = hashlib.sha256()
        # A table without rows never showed its type to the digest; files of 0.1.0 hold it that way.
        self._header("embedding", dtype if shape[0] else np.dtype(np.float32), shape)

    def rows(self, block: np.ndarray) -> None:
        """The next rows of the embedding."""
        self._state.update(_raw(block))

    def columns(self, names: Iterable[str], column: Callable[[str], np.ndarray]) -> str:
        """Ids and columns, read one at a time; then the digest."""
        # Sorted, because not every format keeps the order of its columns.
        for name in ["id", *sorted(names)]:
            values, missing = filled(column(name))
            parts = text_bytes(values) if values.dtype.kind == "O" else (values,)
            self._header(name, values.dtype, values.shape)
            for part in parts:
                self._state.update(_raw(part))
            if missing is not None:
                self._header(f"{name}#missing", missing.dtype, missing.shape)
                self._state.update(_raw(missing))
        return "sha256:" + self._state.hexdigest()

    def _header(self, name: str, dtype: np.dtype, shape: Sequence[int]) -> None:
        kind = "U" if dtype.kind == "O" else dtype.newbyteorder("<").str
        self._state.update(to_json([name, kind, list(shape)]).encode())


def stored(meta: Mapping[str, Any], path: object) -> tuple[dict[str, Any], str | None]:
    """Provenance and digest as a file has them, after the check that nobody edited them."""
    if not meta:
        return {}, None
    provenance, digest, seal = json.loads(meta["provenance"]), meta["digest"], meta["seal"]
    if not isinstance(provenance, dict) or seal_of(digest, provenance) != seal:
        raise damaged(path, "its provenance was edited after it was written")
    return provenance, digest


def carries_digest(path: Path) -> bool:
    """Whether our description lies at either end of a file, also where damage keeps a reader from finding it."""
    with path.open("rb") as file:
        head = file.read(_ENDS)
        file.seek(max(0, path.stat().st_size - _ENDS))
        ends = head + file.read(_ENDS)
    return bool(_DESCRIPTION.search(ends.replace(b"\0", b"")))  # .npz has four bytes per character


def seal_of(digest: str, provenance: Mapping[str, Any]) -> str:
    """A short checksum over the digest and the provenance, so that edited metadata is noticed too."""
    return hashlib.sha256(f"{digest}\n{to_json(provenance)}".encode()).hexdigest()[:16]


def to_json(value: Any) -> str:
    """JSON with sorted keys: equal contents give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _raw(array: np.ndarray) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
