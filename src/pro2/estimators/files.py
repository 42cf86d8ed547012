"""Model files: one safetensors file with a JSON document in its metadata. docs/file-format.md describes it.

Never pickle: a file names one of the kinds in the table below, which has a rule for every attribute, and everything in
it is a number, a text or a list of those. A new attribute is one line in the table. The safetensors library checks that
arrays fill the file; here are the limits and checks that it does not have.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import typing
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import safetensors.numpy
from array_api_compat import is_array_api_obj
from safetensors import SafetensorError, safe_open
from sklearn.utils.validation import check_is_fitted

from pro2.atomic import atomic_write
from pro2.linalg.arrays import to_numpy

KEY = "pro2.model"
FORMAT_VERSION = 4
NO_DIGEST = "sha256:" + 64 * "0"
BACKBONE_KEYS = ("backbone", "weights_digest", "layer", "preprocessing")
DTYPES = frozenset(map(np.dtype, "?bBhHiIqQefd"))
MAX_FILE = 8 << 30  # 8 GiB: two float64 matrices of 22,000 features, more than any backbone has
MAX_TEXT = 32 << 20  # of the description: names of two million targets fit; parsed, it takes up to 20 times as much
LABEL_ROOM = 256 << 20  # bytes of an array of texts, each of which takes the room of the longest; or 64 times its texts
ITEM = (str, bool, int, float)

Tensors = dict[str, np.ndarray]
Sizes = dict[str, int]  # the length of each axis by its name: "D" features, "K" classes, "T" labels or targets
SourceKind = Literal["source rows", "moments", "head", "unlabelled rows"]  # what a `ProjectAndProbe` can start from
Rule = Callable[[Any, str, Sizes], Any]  # an attribute as its object has it; FormatError if a file cannot hold it


class FormatError(ValueError):
    """What is wrong with the bytes, in a few words; callers add the file's name and what to do."""


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


def load(path: str | PathLike[str]) -> Any:
    """Read what `save` wrote: a model, an adapted classifier, a projection, a probe, a bank or moments.

    Safe for files from strangers: nothing in a file is run. Arrays come back as NumPy arrays.

    Raises
    ------
    ValueError
        When the file is something else, was cut off or altered, or comes from another version.
    """
    return from_bytes(_read(Path(path)), str(path))


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """What a model file holds, after checking that it is intact.

    Returns
    -------
    dict
        kind, source_kind (of models), format_version, pro2_version, params, classes (or labels, where there are several
        yes-or-no ones), n_features_in, provenance, digest, tensors (name to shape).
    """
    found, description, tensors = _opened(_read(Path(path)), str(path))
    content: dict[str, Any] = {"kind": type(found).__name__}
    if hasattr(found, "source_moments_"):
        # what a model was made from, in words; a model of several labels is made from rows only
        n, kind = f"{found.source_moments_.total_weight:,.10g}", getattr(found, "source_kind_", "source rows")
        words = {"moments": f"moments of {n} source rows", "head": f"a head and {n} unlabelled rows"}
        content["source_kind"] = words.get(kind, f"{n} {kind}")
    names = next(name for name in ("labels_", "classes_", "classes") if hasattr(found, name))
    return {
        **content,
        "format_version": description.version,
        "pro2_version": description.pro2_version,
        "params": found.get_params() if hasattr(found, "get_params") else {},
        names.rstrip("_"): np.asarray(getattr(found, names)).tolist(),
        "n_features_in": int(getattr(found, "n_features_in_", getattr(found, "width", 0))),
        "provenance": description.provenance,
        "digest": description.digest,
        "tensors": {name: list(values.shape) for name, values in sorted(tensors.items())},
    }


def is_model_file(path: Path) -> bool:
    """Whether the file says that it is one of ours; nothing else is checked."""
    return has_metadata(path, KEY)


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


# ---- the kinds of objects that a file may hold, with a rule for each attribute


def numbers(axes: str, least: float = -math.inf, above: float = -math.inf, types: str = "float32 float64") -> Rule:
    """Finite numbers whose axes have the names given. `rows` is 1 for two classes, which have one logit, else K."""
    names = axes.split()

    def read(values: Any, name: str, sizes: Sizes) -> np.ndarray:
        # NumPy has no linear algebra for half precision
        if not isinstance(values, np.ndarray) or values.dtype.name not in types.split() or values.ndim != len(names):
            raise FormatError(f"{name} is not an array of {types.replace(' ', ' or ')} with {len(names)} axes")
        expected = tuple(sizes.setdefault(axis, n) for axis, n in zip(names, values.shape))
        if values.shape != expected or 0 in expected:
            raise FormatError(f"{name} has shape {values.shape} instead of {expected}")
        if not np.isfinite(values).all():
            raise FormatError(f"{name} is not finite")
        if values.min() < least or values.min() <= above:
            raise FormatError(f"{name} has values that are too small")
        return values

    return read


def labels(axis: str, fewest: int = 1, form: type = np.ndarray) -> Rule:
    """Different texts or numbers, in one row: an array, but of moments a list that becomes a tuple."""

    def read(values: Any, name: str, sizes: Sizes) -> Any:
        if not isinstance(values, form) or getattr(values, "ndim", 1) != 1:
            raise FormatError(f"{name} is not a row of labels")
        found: Any = values.tolist() if isinstance(values, np.ndarray) else values
        check_distinct(found, name)
        n = sizes.setdefault(axis, len(found))
        if not fewest <= len(found) == n:
            raise FormatError(f"{name} has {len(found)} labels instead of {max(n, fewest)}")
        if axis == "K":
            sizes["rows"] = 1 if n == 2 else n
        return tuple(found) if form is list else values

    return read


def part(kind: str, shares: str = "", one_for_each: str = "") -> Rule:
    """Another object of that kind, as long as this one along the axes that they share; or one for each of an axis."""

    def read(value: Any, name: str, sizes: Sizes) -> Any:
        parts = value if one_for_each and isinstance(value, list) else [value]
        if len(parts) != sizes.get(one_for_each, 1) or any(each.get("kind") != kind for each in parts):
            raise FormatError(f"{name} is not a {kind}")
        built = []
        for each in parts:
            own = {axis: sizes[axis] for axis in shares.split() if axis in sizes}
            built.append(_built(each, own))
            sizes.update((axis, own[axis]) for axis in shares.split())
        return tuple(built) if one_for_each else built[0]

    return read


def plain(hint: Any) -> Rule:
    """Of the type that a hint says: numbers, texts, lists, mappings and records of those."""

    def read(value: Any, name: str, sizes: Sizes) -> Any:
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            raise FormatError(f"{name}: {str(error)[:100]}") from error

    return read


class Kind(NamedTuple):
    """Where a class is, what it holds besides plain parameters (a name with ? may be absent), and what must agree."""

    module: str
    rules: Mapping[str, Rule]  # in the order of reading: classes before what has as many rows
    agrees: Callable[[Any], bool] = lambda value: True

    def of(self, name: str) -> tuple[type, list[str], dict[str, Rule]]:
        """The class, the names of its parameters, and a rule for each attribute and parameter."""
        cls: Any = getattr(importlib.import_module(self.module), name)
        hints = {each: hint for each, hint in typing.get_type_hints(cls.__init__).items() if each != "return"}
        rules = {each.rstrip("?"): rule for each, rule in self.rules.items()}
        return cls, list(hints), rules | {each: plain(hint) for each, hint in hints.items() if each not in rules}


NAMES = {"feature_names_in_?": labels("D")}
CLASSES = {**NAMES, "classes_": labels("K", fewest=2)}
HEAD = {**CLASSES, "coef_": numbers("rows D"), "intercept_": numbers("rows")}
CHOSEN = {"n_features_?": plain(int), "l2_?": plain(float)}
UNIT = {"unit_rows_": plain(bool)}
KINDS = {
    "LinearClassifier": Kind(
        "pro2.estimators",
        {**HEAD, **UNIT, **CHOSEN, "report_?": part("AdaptationReport"),
         "transductive_proba_?": numbers("n K", least=0.0), "known_centre_?": numbers("D"),
         "known_scale_?": numbers("D", above=0.0), "known_rows_?": numbers("M 2"),
         "known_hashes_?": numbers("M", types="uint64")},
        lambda adapted: len({hasattr(adapted, f"known_{part}_") for part in ("centre", "scale", "rows")}) == 1,
    ),
    "Probe": Kind("pro2.estimators", {**HEAD, **CHOSEN, "scores_?": numbers("n_d n_l2"), "kkt_?": plain(float)}),
    "Projection": Kind(
        "pro2.estimators",
        {**CLASSES, "components_": numbers("d D"), "mean_": numbers("D"), "scale_": numbers("D", above=0.0),
         "norms_": numbers("d", least=0.0), "scores_": numbers("d"), "n_informative_": plain(int),
         "moments_?": part("SourceMoments", "K D")},
        lambda projection: projection.solver != "krylov" or hasattr(projection, "moments_"),
    ),
    "ProjectAndProbe": Kind(
        "pro2.estimators",
        {**CLASSES, **UNIT, "source_moments_": part("SourceMoments", "K D"),
         "source_kind_": plain(SourceKind), "given_head_?": part("LinearClassifier", "K D"),
         "trained_projection_?": part("Projection", "K D"), "adapted_?": part("LinearClassifier", "K D")},
        lambda model: (model.source_kind_ == "head") == hasattr(model, "given_head_"),
    ),
    "ProbeBank": Kind(
        "pro2.estimators.bank",
        {**CLASSES, **UNIT, "model": part("ProjectAndProbe", "D"), "targets_": labels("T"),
         "coef_": numbers("T rows D"), "intercept_": numbers("T rows")},
        lambda bank: bool(np.all(bank.targets_[:-1] < bank.targets_[1:])),
    ),
    "MultiLabelProjectAndProbe": Kind(
        "pro2.estimators.multilabel",
        {**NAMES, "labels_": labels("T"), "source_moments_": part("SourceMoments", "D"),
         "means_": numbers("T 2 D"), "shares_": numbers("T", above=0.0), "known_": numbers("T", above=0.0)},
        lambda model: model.shares_.max() < 1 and model.known_.max() <= 1,
    ),
    "MultiLabelClassifier": Kind(
        "pro2.estimators.multilabel",
        {**NAMES, "labels_": labels("T"), "estimators_": part("LinearClassifier", "D", one_for_each="T")},
        # each is one head on raw rows, and yes or no is all that it answers
        lambda adapted: all(each.classes_.tolist() == [0, 1] and not each.unit_rows_ for each in adapted.estimators_),
    ),
    "SourceMoments": Kind(
        "pro2.estimators.moments",
        {"classes": labels("K", form=list), "weight": numbers("K", least=0.0), "mean": numbers("K D"),
         "scatter": numbers("rows_of_scatter D")},
        lambda moments: moments.weight.sum() > 0 and len(moments.scatter) <= moments.width,
    ),
    "AdaptationReport": Kind(
        "pro2.estimators.report",
        {"confusion": numbers("K K", types="int64"), "surprising": numbers("M", types="int64"),
         "label_probabilities": numbers("M"), "label_weights": numbers("M"),
         "learning_curve?": part("LearningCurve")},
    ),
    "LearningCurve": Kind(
        "pro2.estimators.report",
        {"n_per_class": numbers("n", above=0.0), "error": numbers("n"), "deviation": numbers("n")},
    ),
    "PriorFamily": Kind("pro2.estimators", {}),
}  # fmt: skip


def check_distinct(items: list[Any], name: str) -> None:
    """All texts or all numbers, none missing, none twice."""
    texts = sum(isinstance(each, str) for each in items)
    finite = sum(isinstance(each, int | float) and math.isfinite(each) for each in items)
    if max(texts, finite) < len(items):
        raise FormatError(f"{name} mixes texts and numbers, or has missing values")
    if len(set(items)) < len(items):
        raise FormatError(f"{name} has the same label twice")


# ---- objects as documents, and back


def _document(value: Any, tensors: Tensors, at: str = "") -> Any:
    """JSON values for `value`; arrays of numbers go into `tensors`, each named by its place, which is null here."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, ITEM):
        return value
    if is_array_api_obj(value):
        return _array_document(to_numpy(value), tensors, at)
    if isinstance(value, list | tuple):
        return [_document(each, tensors, f"{at}.{i}") for i, each in enumerate(value)]
    name = type(value).__name__
    contents = {"kind": name, **_contents(value)} if name in KINDS else value
    if isinstance(contents, dict):
        return {key: _document(each, tensors, f"{at}.{key}".lstrip(".")) for key, each in contents.items()}
    if not at:
        raise ValueError(f"{name} has no file format; save what its adapt() returns, or use skops")
    raise ValueError(
        f"{at} is {name}, which a model file cannot hold; use numbers, texts and arrays (random_state: an integer or "
        "None)"
    )


def _contents(value: Any) -> dict[str, Any]:
    """Parameters, what `fit` has set, and the report of an adaptation; the width and provenance have other places."""
    kind = KINDS[type(value).__name__]
    _, params, rules = kind.of(type(value).__name__)
    if hasattr(value, "get_params"):
        check_is_fitted(value)
    fitted = sorted(each for each in vars(value) if each.endswith("_") and not each.startswith("_"))
    reported = ["report_"] if "report_" in rules and hasattr(value, "report_") else []
    found = {each: getattr(value, each) for each in (*params, *fitted, *reported)}
    for each in ("provenance_", "n_features_in_"):
        found.pop(each, None)
    return {each: part for each, part in found.items() if part is not None or f"{each}?" not in kind.rules}


def _array_document(values: np.ndarray, tensors: Tensors, at: str) -> dict[str, Any] | None:
    """Texts stay readable in the document; numbers become a tensor."""
    if values.dtype.kind in "UO":
        items = values.tolist()
        if values.ndim != 1 or not all(isinstance(each, ITEM) for each in items):
            raise ValueError(f"{at} holds labels that are not texts or numbers; convert them first, e.g. y.astype(str)")
        return {"$objects" if values.dtype.kind == "O" else "$texts": items}
    if values.dtype.newbyteorder("=") not in DTYPES:
        raise ValueError(f"{at} is an array of type {values.dtype}, which a model file cannot hold")
    tensors[at] = values
    return None


def _object(document: Any, tensors: Tensors) -> Any:
    """Inverse of `_document`; FormatError for anything it could not have written."""
    try:
        for place, values in tensors.items():
            *path, name = place.split(".")
            holder = document
            for step in path:
                holder = holder[int(step) if isinstance(holder, list) else step]
            if holder[name] is not None:
                raise FormatError(f"{place} is there twice")
            holder[name] = values
        return _built(document, {})
    except FormatError:
        raise
    # of a hostile document; the records check what they are made of with ValueError
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise FormatError(f"malformed entry: {str(error)[:100]}") from error


def _decoded(entry: dict[str, Any]) -> Any:
    """A mapping of the document, or what JSON has no value for."""
    if "$float" in entry:
        return float(entry["$float"])
    items = entry.get("$texts", entry.get("$objects"))
    if items is None:
        return entry
    if not isinstance(items, list) or not all(isinstance(each, ITEM) for each in items):
        raise ValueError("a label is neither text nor number")
    if "$objects" in entry:
        return np.array(items, dtype=object)
    room = 4 * max(map(len, items), default=1) * len(items)
    if room > max(LABEL_ROOM, 64 * sum(map(len, items))):
        raise ValueError(f"{len(items)} labels of very unequal lengths take {room:,} bytes")
    return np.array(items, dtype=str)


def _built(document: Mapping[str, Any], sizes: Sizes) -> Any:
    """The object of a decoded document, in which everything has its type, fits the rest and is finite."""
    contents = dict(document)
    name = contents.pop("kind")
    if name not in KINDS:
        raise FormatError(f"unknown kind {str(name)[:40]!r}")
    kind = KINDS[name]
    cls, params, rules = kind.of(name)
    unknown = contents.keys() - rules.keys()
    missing = {each for each in kind.rules if each[-1] != "?"} - contents.keys()
    if unknown or missing:
        raise FormatError(f"{name} has no {min(missing)}" if missing else f"{name} cannot have {min(unknown)[:40]!r}")
    sizes["2"] = 2
    values = {each: rule(contents[each], each, sizes) for each, rule in rules.items() if each in contents}
    found = cls(**{each: values.pop(each) for each in params if each in values})
    for each, value in values.items():
        setattr(found, each, value)
    if hasattr(found, "get_params"):
        found.n_features_in_ = sizes["D"]
    if not kind.agrees(found):
        raise FormatError(f"the parts of the {name} do not agree")
    return found


# ---- files


class Description(msgspec.Struct):
    """What the metadata of a file say."""

    format: Literal["pro2"]
    version: int
    pro2_version: str
    object: dict[str, Any]
    provenance: dict[str, Any]
    digest: str = ""


def from_bytes(message: bytes, name: str = "message") -> Any:
    """Inverse of `to_bytes`; a ValueError that starts with `name` for anything else."""
    return _opened(message, name)[0]


def to_bytes(value: Any, provenance: Mapping[str, Any] | None = None) -> bytes:
    """A fitted estimator or moments as the bytes of a file."""
    import pro2

    tensors: Tensors = {}
    document = {
        "format": "pro2",
        "version": FORMAT_VERSION,
        "pro2_version": pro2.__version__,
        "object": _document(value, tensors),
        "provenance": _as_json(dict(value.provenance if provenance is None else provenance)),
    }
    try:  # what cannot come back is not written
        parsed = parse_json(json.dumps(document), "description")
        _object(parsed["object"], tensors)
        _as_json(parsed["provenance"])
    except FormatError as error:
        raise ValueError(f"this {type(value).__name__} cannot be saved: {error}") from error
    return sealed(document, tensors)


def sealed(document: Mapping[str, Any], tensors: Tensors) -> bytes:
    """A file with its digest: the SHA-256 of all of its bytes, with zeros in the place of the digest.

    It finds accidents and edits, but is no signature.
    """
    text = json.dumps({**document, "digest": NO_DIGEST}, sort_keys=True)  # so that it comes first
    message = pack(tensors, {KEY: text})
    return message.replace(NO_DIGEST.encode(), _digest(message, NO_DIGEST).encode(), 1)


def _digest(message: bytes, digest: str) -> str:
    """What the digest of a message should be that has another one; the message is not copied."""
    found = digest.encode(errors="replace")
    at, whole = message.find(found), memoryview(message)
    state = hashlib.sha256(whole[:at])
    state.update(NO_DIGEST.encode())
    state.update(whole[at + len(found) :])
    return "sha256:" + state.hexdigest()


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"no model file at {path}; make one with `pro2 fit`")
    try:
        ours = KEY in read_metadata(path)
    except FormatError as error:
        raise _damaged(path, error) from error
    if not ours:  # said before the rest is read, however large it is
        raise ValueError(f"{path} is a safetensors file, but not a pro2 model; make one with `pro2 fit`")
    return path.read_bytes()


def _opened(message: bytes, name: str) -> tuple[Any, Description, Tensors]:
    """The object with the description and the arrays it was made from: nothing is made before the digest holds."""
    try:
        metadata, tensors = unpack(message)
        document = parse_json(metadata.get(KEY, ""), "description")
        try:
            description = msgspec.convert(document, Description)
            _as_json(description.provenance)  # Python reads 1e999 as infinity
        except (ValueError, AttributeError) as error:
            raise FormatError(f"its description is not that of a model: {str(error)[:100]}") from error
        if description.version != FORMAT_VERSION:
            advice = "fit it again" if description.version < FORMAT_VERSION else "install a newer pro2"
            raise ValueError(
                f"{name} has format version {description.version}, written by pro2 {description.pro2_version[:20]}; "
                f"this version of pro2 reads {FORMAT_VERSION}: {advice}"
            )
        if description.digest != _digest(message, description.digest):
            raise FormatError("its content does not match its digest")
        found = _object(description.object, tensors)
        if not isinstance(found, FileMixin):
            raise FormatError(f"it holds a {type(found).__name__} alone")
    except (FormatError, RecursionError) as error:
        raise _damaged(name, error) from error
    if description.provenance:
        vars(found)["provenance_"] = description.provenance  # moments are frozen, but this says nothing of their rows
    return found, description, tensors


def _as_json(value: Any) -> Any:
    """As it will come back from the file: lists for tuples, text for keys."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"provenance must hold JSON values (text, finite numbers, lists, mappings): {error}"
        ) from error


def _damaged(name: object, reason: object) -> ValueError:
    return ValueError(
        f"{name} is damaged ({reason}); restore it from a copy, or make it again with `pro2 fit` or `pro2 adapt`"
    )


# ---- safetensors messages: 8 bytes of header length, JSON header, one flat buffer


def pack(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """Arrays and texts as one message; equal contents give equal bytes as long as there is one text."""
    # the library reads memory as it lies: what is not contiguous would be written in another order
    message = safetensors.numpy.save({name: np.asarray(v, order="C") for name, v in tensors.items()}, dict(metadata))
    if len(message) > MAX_FILE or sum(map(len, metadata.values())) > MAX_TEXT:
        raise ValueError(f"{len(message):,} bytes are more than the limit of {MAX_FILE:,}, or texts than {MAX_TEXT:,}")
    return message


def unpack(message: bytes) -> tuple[dict[str, str], Tensors]:
    """Texts and writable arrays of a message; FormatError for anything that is not complete and well-formed."""
    try:
        arrays = safetensors.numpy.load(message)
    except (SafetensorError, ValueError, KeyError) as error:  # KeyError: a type that NumPy does not have
        raise FormatError(f"not a complete safetensors file: {error}") from error
    header = json.loads(message[8 : 8 + int.from_bytes(message[:8], "little")])  # the library has checked it
    return header.get("__metadata__") or {}, arrays


def has_metadata(path: Path, key: str) -> bool:
    """Whether a path is a safetensors file whose texts include that one; nothing else is checked."""
    try:
        return path.is_file() and key in read_metadata(path)
    except FormatError:
        return False


def read_metadata(path: Path) -> dict[str, str]:
    """The texts alone; nothing but the header is read. FormatError for what is no safetensors file, or too large."""
    size = path.stat().st_size
    if size > MAX_FILE:
        raise FormatError(f"it has {size:,} bytes, more than the limit of {MAX_FILE:,}")
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise FormatError(f"not a complete safetensors file: {error}") from error


def parse_json(text: str, what: str) -> Any:
    """JSON, however hostile the text."""
    if len(text) > MAX_TEXT:
        raise FormatError(f"its {what} has {len(text):,} characters, more than the limit of {MAX_TEXT:,}")
    try:
        return json.loads(text, object_hook=_decoded)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"unreadable {what}: {str(error)[:100]}") from error
