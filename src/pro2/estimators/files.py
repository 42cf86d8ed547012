"""Model files: one safetensors file with a JSON document in its metadata. docs/file-format.md describes it.

Never pickle: a file names one of the kinds below, and everything in it is a number, a text or a list of those.
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
from pro2.estimators.state import check_shapes, from_document, to_document
from pro2.estimators.tensors import FormatError, parse_json, read_metadata, read_tensors, write_tensors

KEY = "pro2.model"
FORMAT_VERSION = 1
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
        document, tensors = _document(self, provenance)
        return atomic_write(Path(path), lambda file: write_tensors(file, tensors, {KEY: document}), force)


def load(path: str | PathLike[str]) -> Any:
    """Read what `save` wrote: a model, an adapted classifier, a projection or a probe.

    Safe for files from strangers: nothing in a file is run. Arrays come back as NumPy arrays.

    Raises
    ------
    ValueError
        When the file is something else, was cut off or altered, or comes from a newer version.
    """
    return _estimator(*read_document(Path(path)), Path(path))


def _estimator(document: dict[str, Any], tensors: dict[str, np.ndarray], path: Path) -> Any:
    try:
        estimator = from_document(document["object"], tensors)
        check_shapes(estimator)
    except (FormatError, RecursionError) as error:
        raise _damaged(path, error) from error
    if document["provenance"]:
        estimator.provenance_ = document["provenance"]
    return estimator


def is_model_file(path: Path) -> bool:
    """Whether the file says that it is one of ours; nothing else is checked."""
    return path.is_file() and KEY in read_metadata(path)


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """What a model file holds, after checking that it is intact.

    Returns
    -------
    dict
        kind, format_version, pro2_version, params, classes, n_features_in, provenance, digest, tensors (name to shape).
    """
    document, tensors = read_document(Path(path))
    estimator = _estimator(document, tensors, Path(path))
    return {
        "kind": document["object"]["kind"],
        "format_version": document["version"],
        "pro2_version": document["pro2_version"],
        "params": estimator.get_params(),
        "classes": estimator.classes_.tolist(),
        "n_features_in": int(estimator.n_features_in_),
        "provenance": document["provenance"],
        "digest": document["digest"],
        "tensors": {name: list(values.shape) for name, values in tensors.items()},
    }


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
                f"({learned[key]!r}): embed it again with the model's, or pass --force if you know they agree"
            )


def read_document(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The checked JSON document and the arrays of a model file."""
    if not path.is_file():
        raise FileNotFoundError(f"no model file at {path}; {_nearby(path)}")
    try:
        metadata, views = read_tensors(path)
        if KEY not in metadata:
            raise ValueError(f"{path} is a safetensors file, but not a pro2 model; make one with `pro2 fit`")
        document = _checked(parse_json(metadata[KEY], "description"), path)
        if document["digest"] != _digest(document, views):
            raise FormatError("its content does not match its digest")
    except FormatError as error:
        raise _damaged(path, error) from error
    # copied only now that the digest holds: later changes of the file cannot reach a loaded model
    return document, {name: view.copy() for name, view in views.items()}


def _document(estimator: Any, provenance: Mapping[str, Any] | None) -> tuple[str, dict[str, np.ndarray]]:
    import pro2

    tensors: dict[str, np.ndarray] = {}
    content: dict[str, Any] = {
        "format": "pro2",
        "version": FORMAT_VERSION,
        "pro2_version": pro2.__version__,
        "object": to_document(estimator, tensors),
        "provenance": _plain(dict(estimator.provenance if provenance is None else provenance)),
    }
    content["digest"] = _digest(content, tensors)
    return json.dumps(content, sort_keys=True), tensors


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


def _checked(document: Any, path: Path) -> dict[str, Any]:
    if not isinstance(document, dict) or document.get("format") != "pro2" or type(document.get("version")) is not int:
        raise FormatError("its description is not that of a model")
    if document["version"] > FORMAT_VERSION:
        writer = str(document.get("pro2_version"))[:20]
        raise ValueError(
            f"{path} has format version {document['version']}, written by pro2 {writer}; "
            f"this version reads up to {FORMAT_VERSION}: pip install --upgrade pro2"
        )
    missing = {"object", "provenance", "pro2_version", "digest"} - set(document)
    if missing or document["version"] < 1 or not isinstance(document["provenance"], dict):
        raise FormatError("its description is incomplete")
    return document


def _damaged(path: Path, reason: object) -> ValueError:
    return ValueError(
        f"{path} is damaged ({reason}); restore it from a copy, or make it again with `pro2 fit` or `pro2 adapt`"
    )


def _nearby(path: Path) -> str:
    names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"did you mean {path.parent / close[0]}?" if close else "make one with `pro2 fit SOURCE --out MODEL`"
