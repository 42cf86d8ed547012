"""Model files: one safetensors file with a JSON document in its metadata. docs/file-format.md describes it.

Never pickle: a file names one of the kinds in schema.py, and everything in it is a number, a text or a list of those.
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
from pro2.estimators.schema import check_object
from pro2.estimators.state import from_document, to_document
from pro2.estimators.tensors import FormatError, pack, parse_json, read_metadata, unpack

KEY = "pro2.model"
FORMAT_VERSION = 2
CHANGED_IN_2 = ("ProjectAndProbe", "MultiLabelProjectAndProbe", "ProbeBank")  # version 1 held what is derived today
OLD_MOMENTS = "pro2-moments-1"  # what 0.1.0 wrote into the metadata of a moments file
BACKBONE_KEYS = ("backbone", "weights_digest", "layer", "preprocessing")


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

    tensors: dict[str, np.ndarray] = {}
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
        "provenance": _plain(dict(value.provenance if provenance is None else provenance)),
    }
    content["digest"] = _digest(content, tensors)
    return pack(tensors, {KEY: json.dumps(content, sort_keys=True, allow_nan=False)})


def from_bytes(message: bytes, name: str = "message") -> Any:
    """Inverse of `to_bytes`; a ValueError that starts with `name` for anything else."""
    return _object(*_checked_message(message, name), name)


def load(path: str | PathLike[str]) -> Any:
    """Read what `save` wrote: a model, an adapted classifier, a projection, a probe, a bank or moments.

    Safe for files from strangers: nothing in a file is run. Arrays come back as NumPy arrays.

    Raises
    ------
    ValueError
        When the file is something else, was cut off or altered, or comes from a newer version.
    """
    return from_bytes(_read(Path(path)), str(path))


def _object(document: dict[str, Any], tensors: dict[str, np.ndarray], name: str) -> Any:
    kind = document["object"].get("kind") if isinstance(document["object"], dict) else None
    if document["version"] == 1 and kind in CHANGED_IN_2:
        raise ValueError(
            f"{name} holds a {kind} in format version 1, written by pro2 {str(document['pro2_version'])[:20]}, "
            "which this version does not read: fit it again with `pro2 fit`"
        )
    try:
        found = from_document(document["object"], tensors)
        check_object(found)
    except (FormatError, RecursionError) as error:
        raise _damaged(name, error) from error
    if document["provenance"]:
        vars(found)["provenance_"] = document["provenance"]  # moments are frozen, but this says nothing of their rows
    return found


def is_model_file(path: Path) -> bool:
    """Whether the file says that it is one of ours; nothing else is checked."""
    try:
        return path.is_file() and _is_ours(read_metadata(path))
    except FormatError:
        return False


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """What a model file holds, after checking that it is intact.

    Returns
    -------
    dict
        kind, source_kind (of models), format_version, pro2_version, params, classes (or labels, where there are several
        yes-or-no ones), n_features_in, provenance, digest, tensors (name to shape).
    """
    document, tensors = _checked_message(_read(Path(path)), str(path))
    found = _object(document, tensors, str(path))
    moments, several = hasattr(found, "scatter"), hasattr(found, "labels_")
    origin = {"source_kind": _origin(found)} if hasattr(found, "source_moments_") else {}
    return {
        "kind": type(found).__name__,
        **origin,
        "format_version": document["version"],
        "pro2_version": document["pro2_version"],
        "params": {} if moments else found.get_params(),
        **({"labels": found.labels_.tolist()} if several else {}),
        **({} if several else {"classes": list(found.classes if moments else found.classes_.tolist())}),
        "n_features_in": int(found.width if moments else found.n_features_in_),
        "provenance": document["provenance"],
        "digest": document["digest"],
        "tensors": {name: list(values.shape) for name, values in sorted(tensors.items())},
    }


def _origin(model: Any) -> str:
    """What a model was made from, in words; those of several labels know rows only."""
    n, source_kind = f"{model.source_moments_.total_weight:,.10g}", getattr(model, "source_kind_", "source rows")
    said = {"moments": f"moments of {n} source rows", "head": f"a head and {n} unlabelled rows"}
    return said.get(source_kind, f"{n} {source_kind}")


def check_backbone(estimator: Any, provenance: Mapping[str, Any], table: str = "the table") -> None:
    """Refuse embeddings of another backbone than the estimator learned from.

    Compares what both sides recorded (`backbone`, `weights_digest`, `layer`, `preprocessing`); silent where one side
    recorded nothing.
    """
    learned = estimator.provenance.get("source", {})
    for key in BACKBONE_KEYS:
        if key in learned and key in provenance and _plain(learned[key]) != _plain(provenance[key]):
            raise ValueError(
                f"{table} was embedded with another {key} ({provenance[key]!r}) than the model's source "
                f"({learned[key]!r}): embed it again with the model's"
            )


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"no model file at {path}; {_nearby(path)}")
    try:
        ours = _is_ours(read_metadata(path))
    except FormatError as error:
        raise _damaged(path, error) from error
    if not ours:  # said before the rest is read, however large it is
        raise ValueError(f"{path} is a safetensors file, but not a pro2 model; make one with `pro2 fit`")
    return path.read_bytes()


def _is_ours(metadata: Mapping[str, str]) -> bool:
    return KEY in metadata or metadata.get("format") == OLD_MOMENTS


def _checked_message(message: bytes, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON document and the arrays, once the digest holds."""
    try:
        metadata, tensors = unpack(message)
        if metadata.get("format") == OLD_MOMENTS:
            return _old_moments(metadata), tensors
        if KEY not in metadata:
            raise FormatError("it has no description")
        document = _checked(parse_json(metadata[KEY], "description"), name)
        if document["digest"] != _digest(document, tensors):
            raise FormatError("its content does not match its digest")
    except (FormatError, RecursionError) as error:
        raise _damaged(name, error) from error
    return document, tensors


def _old_moments(metadata: dict[str, str]) -> dict[str, Any]:
    """The description that a moments file of 0.1.0 would have today; it carries no digest."""
    fields = {"classes": {"$tuple": parse_json(metadata.get("classes", "[]"), "classes")}}
    arrays = {name: {"$array": name} for name in ("weight", "mean", "scatter")}
    content = {"$record": "SourceMoments", "fields": {**fields, **arrays}}
    return {"object": content, "provenance": {}, "version": 0, "pro2_version": "0.1.0", "digest": None}


def _plain(value: Any) -> Any:
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


def _checked(document: Any, name: str) -> dict[str, Any]:
    if not isinstance(document, dict) or document.get("format") != "pro2" or type(document.get("version")) is not int:
        raise FormatError("its description is not that of a model")
    if document["version"] > FORMAT_VERSION:
        writer = str(document.get("pro2_version"))[:20]
        raise ValueError(
            f"{name} has format version {document['version']}, written by pro2 {writer}; "
            f"this version reads up to {FORMAT_VERSION}: pip install --upgrade pro2"
        )
    missing = {"object", "provenance", "pro2_version", "digest"} - set(document)
    if missing or document["version"] < 1 or not isinstance(document["provenance"], dict):
        raise FormatError("its description is incomplete")
    try:
        _plain(document["provenance"])
    except ValueError as error:  # Python reads 1e999 as infinity
        raise FormatError(str(error)) from error
    return document


def _damaged(name: object, reason: object) -> ValueError:
    return ValueError(
        f"{name} is damaged ({reason}); restore it from a copy, or make it again with `pro2 fit` or `pro2 adapt`"
    )


def _nearby(path: Path) -> str:
    names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"did you mean {path.parent / close[0]}?" if close else "make one with `pro2 fit`"
