"""Model files: one safetensors file with a JSON document in its metadata. docs/file-format.md describes it.

Never pickle: a file names one of the kinds in schema.py, and everything in it is a number, a text or a list of those.
The safetensors library validates and copies; here are the limits and checks that it does not have.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.estimators.schema import FormatError, check_object, from_document, to_document

KEY = "pro2.model"
FORMAT_VERSION = 2
CHANGED_IN_2 = ("ProjectAndProbe", "MultiLabelProjectAndProbe", "ProbeBank")  # version 1 held what is derived today
OLD_MOMENTS = "pro2-moments-1"  # what 0.1.0 wrote into the metadata of a moments file
BACKBONE_KEYS = ("backbone", "weights_digest", "layer", "preprocessing")
MAX_FILE = 8 << 30  # 8 GiB: two float64 matrices of 22,000 features, more than any backbone has
MAX_HEADER = 16 << 20  # a header holds names and shapes; class names of a million classes still fit
DTYPES = frozenset(map(np.dtype, "?bBhHiIqQefd"))

Tensors = dict[str, np.ndarray]


class FileMixin:
    """`save`, and where the estimator came from."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the training rows came from: what `save(provenance=...)` was given; empty when nothing was."""
        return MappingProxyType(self.__dict__.get("provenance_", {}))

    def save(
        self, path: str | PathLike[str], *, force: bool = False, provenance: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the fitted estimator to one file that `pro2.load` reads.

        Parameters
        ----------
        path : path
            Any name; `.safetensors` tells other tools what it is.
        force : bool
            Replace an existing file. The write is atomic either way.
        provenance : mapping of JSON values, optional
            Where the training rows came from; by default what the estimator was loaded with.
        """
        message = to_bytes(self, provenance)
        return atomic_write(path, lambda file: file.write(message), force)


def to_bytes(value: Any, provenance: Mapping[str, Any] | None = None) -> bytes:
    """A fitted estimator or moments as the bytes of a file."""
    import pro2

    tensors: Tensors = {}
    document = to_document(value, tensors)
    try:
        check_object(from_document(document, tensors))  # what cannot come back is not written
    except FormatError as error:
        raise ValueError(f"this {type(value).__name__} cannot be saved: {error}") from error
    content: dict[str, Any] = {
        "format": "pro2",
        "version": FORMAT_VERSION,
        "pro2_version": pro2.__version__,
        "object": document,
        "provenance": _as_json(dict(value.provenance if provenance is None else provenance)),
    }
    content["digest"] = _digest(content, tensors)
    return pack(tensors, {KEY: json.dumps(content, sort_keys=True, allow_nan=False)})


def load(path: str | PathLike[str]) -> Any:
    """Read what `save` wrote: a model, an adapted classifier, a projection, a probe, a bank or moments.

    Safe for files from strangers: nothing in a file is run. Arrays come back as NumPy arrays.

    Raises
    ------
    ValueError
        When the file is something else, was cut off or altered, or comes from a newer version.
    """
    return from_bytes(_read(Path(path)), str(path))


def from_bytes(message: bytes, name: str = "message") -> Any:
    """Inverse of `to_bytes`; a ValueError that starts with `name` for anything else."""
    return _opened(message, name)[0]


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """What a model file holds, after checking that it is intact.

    Returns
    -------
    dict
        kind, source_kind (of models), format_version, pro2_version, params, classes (or labels, where there are several
        yes-or-no ones), n_features_in, provenance, digest, tensors (name to shape).
    """
    found, document, tensors = _opened(_read(Path(path)), str(path))
    facts: dict[str, Any] = {"kind": type(found).__name__}
    if hasattr(found, "source_moments_"):
        # what a model was made from, in words; a model of several labels is made from rows only
        n, kind = f"{found.source_moments_.total_weight:,.10g}", getattr(found, "source_kind_", "source rows")
        words = {"moments": f"moments of {n} source rows", "head": f"a head and {n} unlabelled rows"}
        facts["source_kind"] = words.get(kind, f"{n} {kind}")
    facts |= {"format_version": document["version"], "pro2_version": document["pro2_version"]}
    if hasattr(found, "scatter"):
        facts |= {"params": {}, "classes": list(found.classes), "n_features_in": int(found.width)}
    else:
        several = hasattr(found, "labels_")
        names = {"labels": found.labels_.tolist()} if several else {"classes": found.classes_.tolist()}
        facts |= {"params": found.get_params(), **names, "n_features_in": int(found.n_features_in_)}
    shapes = {name: list(values.shape) for name, values in sorted(tensors.items())}
    return {**facts, "provenance": document["provenance"], "digest": document["digest"], "tensors": shapes}


def is_model_file(path: Path) -> bool:
    """Whether the file says that it is one of ours; nothing else is checked."""
    try:
        return path.is_file() and _is_ours(read_metadata(path))
    except FormatError:
        return False


def check_backbone(estimator: Any, provenance: Mapping[str, Any], table: str = "the table") -> None:
    """Refuse embeddings of another backbone than the estimator learned from.

    Compares what both sides recorded (`backbone`, `weights_digest`, `layer`, `preprocessing`); silent where one side
    recorded nothing.
    """
    learned = estimator.provenance.get("source", {})
    for key in BACKBONE_KEYS:
        if key in learned and key in provenance and _as_json(learned[key]) != _as_json(provenance[key]):
            raise ValueError(
                f"{table} was embedded with another {key} ({provenance[key]!r}) than the model's source "
                f"({learned[key]!r}): embed it again with the model's"
            )


# ---- what a message says


def _read(path: Path) -> bytes:
    if not path.is_file():
        names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
        advice = f"did you mean {path.parent / close[0]}?" if close else "make one with `pro2 fit`"
        raise FileNotFoundError(f"no model file at {path}; {advice}")
    try:
        ours = _is_ours(read_metadata(path))
    except FormatError as error:
        raise _damaged(path, error) from error
    if not ours:  # said before the rest is read, however large it is
        raise ValueError(f"{path} is a safetensors file, but not a pro2 model; make one with `pro2 fit`")
    return path.read_bytes()


def _is_ours(metadata: Mapping[str, str]) -> bool:
    return KEY in metadata or metadata.get("format") == OLD_MOMENTS


def _opened(message: bytes, name: str) -> tuple[Any, dict[str, Any], Tensors]:
    """The object with the description and the arrays it was made from: nothing is made before the digest holds."""
    try:
        metadata, tensors = unpack(message)
        if metadata.get("format") == OLD_MOMENTS:
            document = _description_of_old_moments(metadata)
        elif KEY not in metadata:
            raise FormatError("it has no description")
        else:
            document = parse_json(metadata[KEY], "description")
            _check_description(document, name)
            if document["digest"] != _digest(document, tensors):
                raise FormatError("its content does not match its digest")
        found = from_document(document["object"], tensors)
        check_object(found)
    except (FormatError, RecursionError) as error:
        raise _damaged(name, error) from error
    if document["provenance"]:
        vars(found)["provenance_"] = document["provenance"]  # moments are frozen, but this says nothing of their rows
    return found, document, tensors


def _check_description(document: Any, name: str) -> None:
    if not isinstance(document, dict) or document.get("format") != "pro2" or type(document.get("version")) is not int:
        raise FormatError("its description is not that of a model")
    version, writer = document["version"], str(document.get("pro2_version"))[:20]
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{name} has format version {version}, written by pro2 {writer}; "
            f"this version reads up to {FORMAT_VERSION}: install a newer pro2"
        )
    missing = {"object", "provenance", "pro2_version", "digest"} - set(document)
    if missing or version < 1 or not isinstance(document["provenance"], dict):
        raise FormatError("its description is incomplete")
    kind = document["object"].get("kind") if isinstance(document["object"], dict) else None
    if version == 1 and kind in CHANGED_IN_2:
        raise ValueError(
            f"{name} holds a {kind} in format version 1, written by pro2 {writer}, "
            "which this version does not read: fit it again with `pro2 fit`"
        )
    try:
        _as_json(document["provenance"])
    except ValueError as error:  # Python reads 1e999 as infinity
        raise FormatError(str(error)) from error


def _description_of_old_moments(metadata: dict[str, str]) -> dict[str, Any]:
    """The description that a moments file of 0.1.0 would have today; it carries no digest."""
    fields = {"classes": {"$tuple": parse_json(metadata.get("classes", "[]"), "classes")}}
    arrays = {name: {"$array": name} for name in ("weight", "mean", "scatter")}
    content = {"$record": "SourceMoments", "fields": {**fields, **arrays}}
    return {"object": content, "provenance": {}, "version": 0, "pro2_version": "0.1.0", "digest": None}


def _as_json(value: Any) -> Any:
    """As it will come back from the file: lists for tuples, text for keys."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"provenance must hold JSON values (text, finite numbers, lists, mappings): {error}"
        ) from error


def _digest(document: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over the document and every array; finds accidents and edits, but is no signature."""
    content = {key: value for key, value in document.items() if key != "digest"}
    state = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, values in sorted(tensors.items()):
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        state.update(json.dumps([name, little.dtype.str, list(values.shape)]).encode())
        state.update(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)
    return "sha256:" + state.hexdigest()


def _damaged(name: object, reason: object) -> ValueError:
    return ValueError(
        f"{name} is damaged ({reason}); restore it from a copy, or make it again with `pro2 fit` or `pro2 adapt`"
    )


# ---- safetensors messages: 8 bytes of header length, JSON header, one flat buffer


def pack(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """Arrays and texts as one message; equal contents give equal bytes as long as there is one text."""
    from safetensors.numpy import save

    for name, values in tensors.items():
        if values.dtype.newbyteorder("=") not in DTYPES:
            raise ValueError(f"{name} has type {values.dtype}, which a file cannot hold; use integers or floats")
    # the library reads memory as it lies: what is not contiguous would be written in another order
    message = save({name: np.asarray(values, order="C") for name, values in tensors.items()}, dict(metadata))
    _check_limits(len(message), int.from_bytes(message[:8], "little"))
    return message


def unpack(message: bytes) -> tuple[dict[str, str], Tensors]:
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
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        _check_limits(path.stat().st_size, length)
        header = parse_json(file.read(length), "header")
    found = header.get("__metadata__") if isinstance(header, dict) else None
    return found if isinstance(found, dict) else {}


def parse_json(raw: bytes | str, what: str) -> Any:
    """JSON without doubled keys and without Python's own NaN, however hostile the text."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise FormatError("a name occurs twice")
        return found

    def no_constant(name: str) -> Any:
        raise FormatError(f"{name} is not JSON")

    try:
        return json.loads(raw, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"unreadable {what}: {str(error)[:100]}") from error


def _check_limits(size: int, header: int) -> None:
    if size > MAX_FILE:
        raise FormatError(f"it has {size:,} bytes, more than the limit of {MAX_FILE:,}")
    if header > size - 8:
        raise FormatError("it is not a safetensors file, or was cut off")
    if header > MAX_HEADER:
        raise FormatError(f"its header claims {header:,} bytes, more than the limit of {MAX_HEADER:,}")
