"""Files of named arrays: `.npz` and `.safetensors`."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from pro2.tables.content import Content, as_embeddings, bytes_text, text_bytes, to_json
from pro2.tables.files import ID_NAMES, choose, damaged, stored

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

_META = "pro2"


def _from_arrays(arrays: dict[str, np.ndarray], embedding: str | None, path: Path, meta: Mapping[str, str]) -> Content:
    found = ", ".join(f"{name} {values.dtype}{list(values.shape)}" for name, values in arrays.items())
    candidates = [name for name, values in arrays.items() if values.ndim == 2 and values.dtype.kind == "f"]
    if meta and embedding is None:
        embedding = "embeddings"
    name = choose(candidates, embedding, found, path)
    X = as_embeddings(arrays.pop(name))
    ids = next((arrays.pop(key) for key in ID_NAMES if key in arrays), None)
    columns, skipped = (arrays, {}) if meta else _columns_of(arrays, len(X))
    provenance, digest, validate = stored(meta, path)
    return Content(
        X.shape,
        X.dtype,
        blocks=lambda: [X],
        ids=lambda: ids,
        columns={key: partial(np.asarray, values) for key, values in columns.items()},
        provenance=provenance,
        digest=digest,
        validate=validate,
        skipped=skipped,
        origin=str(path),
    )


def _columns_of(arrays: dict[str, np.ndarray], n_rows: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """One column an array of matching length; `attributes` with `attribute_names` becomes one column a name."""
    columns: dict[str, np.ndarray] = {}
    skipped: dict[str, str] = {}
    naming = {key for name in arrays if (key := _names_key(name, arrays)) is not None}
    for name, values in arrays.items():
        names = arrays.get(_names_key(name, arrays) or "")
        if names is not None:
            columns.update({str(each): values[:, i] for i, each in enumerate(names)})
        elif values.ndim in (1, 2) and len(values) == n_rows and name not in naming:
            columns[name] = values
        else:
            skipped[name] = f"shape {values.shape} is not one value for each of {n_rows} rows"
    return columns, skipped


def _names_key(name: str, arrays: Mapping[str, np.ndarray]) -> str | None:
    for key in (f"{name}_names", f"{name.removesuffix('s')}_names"):
        names = arrays.get(key)
        if arrays[name].ndim == 2 and names is not None and names.shape == (arrays[name].shape[1],):
            return key if len(set(names.tolist()) - set(arrays)) == len(names) else None
    return None


def read_npz(path: Path, embedding: str | None) -> Content:
    if not zipfile.is_zipfile(path):
        raise damaged(path, "it is not a complete .npz archive")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise damaged(path, error) from error
    except ValueError as error:
        raise ValueError(
            f"{path} holds Python objects or a broken array ({error}); pickled objects are never loaded: "
            "save text as np.array(values, dtype=str)"
        ) from error
    meta = arrays.pop(_META, None)
    return _from_arrays(arrays, embedding, path, json.loads(str(meta)) if meta is not None else {})


def write_npz(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    arrays = {_META: np.array(to_json(dict(meta))), "embeddings": table.embeddings, "id": table.ids, **table.columns}
    # By hand and not with np.savez: any column name is possible, and a fixed date keeps equal tables equal files.
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)


def read_safetensors(path: Path, embedding: str | None) -> Content:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            meta = json.loads((file.metadata() or {}).get(_META, "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise damaged(path, error) from error
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{path} holds a tensor that NumPy has no type for ({error}); save it as float32") from error
    arrays = _join_text(arrays)
    order = meta.get("columns", [])
    arrays = {
        name: arrays[name] for name in [*(n for n in order if n in arrays), *(n for n in arrays if n not in order)]
    }
    return _from_arrays(arrays, embedding, path, meta)


def _position(name: str, order: list[str]) -> tuple[int, str]:
    """safetensors sorts its tensors; this restores the order of the columns."""
    return (order.index(name), name) if name in order else (len(order), name)


def _join_text(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Text travels as two tensors, `name#offsets` and `name#utf8`."""
    texts = [name.removesuffix("#offsets") for name in arrays if name.endswith("#offsets")]
    for name in texts:
        if f"{name}#utf8" in arrays:
            arrays[name] = bytes_text(arrays.pop(f"{name}#offsets"), arrays.pop(f"{name}#utf8"))
    return arrays


def write_safetensors(table: EmbeddingTable, meta: Mapping[str, str], file: IO[bytes]) -> None:
    from safetensors.numpy import save

    tensors: dict[str, np.ndarray] = {"embeddings": np.ascontiguousarray(table.embeddings)}
    for name, values in {"id": table.ids, **table.columns}.items():
        if values.dtype.kind == "U":
            tensors[f"{name}#offsets"], tensors[f"{name}#utf8"] = text_bytes(values)
        else:
            tensors[name] = np.ascontiguousarray(values)
    # One metadata entry: safetensors writes several in no fixed order.
    file.write(save(tensors, metadata={_META: to_json({**meta, "columns": list(table.columns)})}))
