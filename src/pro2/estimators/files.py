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
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import safetensors.numpy
from array_api_compat import is_array_api_obj
from safetensors import SafetensorError, safe_open

from pro2.atomic import atomic_write
from pro2.estimators.report import AdaptationReport
from pro2.linalg.arrays import to_numpy

KEY = "pro2.model"
FORMAT_VERSION = 3
BACKBONE_KEYS = ("backbone", "weights_digest", "layer", "preprocessing")
DTYPES = frozenset(map(np.dtype, "?bBhHiIqQefd"))
FLOATS = (np.float32, np.float64)
LABEL_TYPES = {np.dtype(code).name: np.dtype(code) for code in "?bBhHiIlLqQefdO"}
MAX_FILE = 8 << 30  # 8 GiB: two float64 matrices of 22,000 features, more than any backbone has
MAX_TEXT = 32 << 20  # of the description: names of two million targets fit; parsed, it takes up to 20 times as much
LABEL_ROOM = 256 << 20  # bytes of an array of texts, each of which takes the room of the longest; or 64 times its texts
ITEM = (str, bool, int, float)

Tensors = dict[str, np.ndarray]
Sizes = dict[str, int]  # the length of each axis by its name: "D" features, "K" classes, "T" labels or targets
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
    try:
        return path.is_file() and KEY in read_metadata(path)
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


# ---- the kinds of objects that a file may hold, with a rule for each attribute


def numbers(axes: str, least: float = -math.inf, above: float = -math.inf) -> Rule:
    """Finite floats whose axes have the names given. `rows` is 1 for two classes, which have one logit, else K."""
    names = axes.split()

    def read(values: Any, name: str, sizes: Sizes) -> np.ndarray:
        # NumPy has no linear algebra for half precision
        if not isinstance(values, np.ndarray) or values.dtype not in FLOATS or values.ndim != len(names):
            raise FormatError(f"{name} is not an array of float32 or float64 with {len(names)} axes")
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


def part(kind: str, shares: str, several: bool = False) -> Rule:
    """Another object of that kind, as long as this one along the axes that they share; or several of them."""

    def read(value: Any, name: str, sizes: Sizes) -> Any:
        parts = value if several and isinstance(value, list) and value else [value]
        if any(not isinstance(each, dict) or each.get("kind") != kind for each in parts):
            raise FormatError(f"{name} is not a {kind}")
        built = tuple(_built(each, {axis: sizes[axis] for axis in shares.split()}) for each in parts)
        return built if several else built[0]

    return read


def hashes(values: Any, name: str, sizes: Sizes) -> np.ndarray:
    """64 bits for each labelled row."""
    if not isinstance(values, np.ndarray) or values.dtype != np.uint64 or values.ndim != 1:
        raise FormatError(f"{name} is not an array of 64-bit numbers with one axis")
    if len(values) != sizes.setdefault("M", len(values)):
        raise FormatError(f"{name} has {len(values)} rows instead of {sizes['M']}")
    return values


def plain(hint: Any) -> Rule:
    """Of the type that a hint says: numbers, texts, lists, mappings and records of those."""

    def read(value: Any, name: str, sizes: Sizes) -> Any:
        if isinstance(value, np.ndarray):
            raise FormatError(f"{name} is an array")
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            raise FormatError(f"{name}: {str(error)[:100]}") from error

    return read


def report(value: Any, name: str, sizes: Sizes) -> AdaptationReport:
    """A record whose arrays hold numbers, as many of each point of a learning curve."""
    found: AdaptationReport = plain(AdaptationReport)(value, name, sizes)
    for each, values in vars(found).items():
        if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
            raise FormatError(f"{each} holds no numbers")
    points: Sizes = {}
    for each, above in (("n_per_class", 0.0), ("error", -math.inf), ("deviation", -math.inf)):
        if found.learning_curve is not None:
            numbers("n", above=above)(getattr(found.learning_curve, each), each, points)
    return found


def width(value: Any, name: str, sizes: Sizes) -> int:
    """The number of features."""
    if type(value) is not int or value < 1 or value != sizes.setdefault("D", value):
        raise FormatError("the number of features is missing or does not fit")
    return value


class Kind(NamedTuple):
    """Where a class is, what it holds besides plain parameters (a name with ? may be absent), and what must agree."""

    module: str
    rules: Mapping[str, Rule]  # in the order of reading: classes before what has as many rows
    agrees: Callable[[Any], bool] = lambda value: True

    def of(self, name: str) -> tuple[type, list[str], dict[str, Rule]]:
        """The class, the names of its parameters, and a rule for each parameter and attribute."""
        cls = getattr(importlib.import_module(self.module), name)
        attributes = {each.rstrip("?"): rule for each, rule in self.rules.items()}
        if not hasattr(cls, "get_params"):
            return cls, list(attributes), attributes
        hints = typing.get_type_hints(cls.__init__)
        params = {each: attributes.get(each) or plain(hints[each]) for each in cls._get_param_names()}
        return cls, list(params), attributes | params


SOURCE_KINDS = ("source rows", "moments", "head", "unlabelled rows")  # what a `ProjectAndProbe` can start from
WIDTH = {"n_features_in_": width, "feature_names_in_?": labels("D")}
CLASSES = {**WIDTH, "classes_": labels("K", fewest=2)}
HEAD = {**CLASSES, "coef_": numbers("rows D"), "intercept_": numbers("rows")}
CHOSEN = {"n_features_?": plain(int), "l2_?": plain(float)}
UNIT, REPORT = {"unit_rows_": plain(bool)}, {"report_?": report}
KINDS = {
    "LinearClassifier": Kind(
        "pro2.estimators", {
            **HEAD, **UNIT, **CHOSEN, **REPORT, "transductive_proba_?": numbers("n K", least=0.0),
            "known_centre_?": numbers("D"), "known_scale_?": numbers("D", above=0.0), "known_rows_?": numbers("M pair"),
            "known_hashes_?": hashes,
        },
        lambda adapted: len({hasattr(adapted, f"known_{part}_") for part in ("centre", "scale", "rows")}) == 1
        and (not hasattr(adapted, "known_rows_") or adapted.known_rows_.shape[1] == 2),
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
        {**HEAD, **UNIT, **REPORT, "source_moments_": part("SourceMoments", "K D"),
         "source_kind_": plain(Literal[SOURCE_KINDS]), "given_head_?": part("LinearClassifier", "K D"),
         "trained_projection_?": part("Projection", "K D")},
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
        {**WIDTH, "labels_": labels("T"), "source_moments_": part("SourceMoments", "D"),
         "means_": numbers("T values D"), "shares_": numbers("T", above=0.0), "known_": numbers("T", above=0.0)},
        lambda model: model.means_.shape[1] == 2 and model.shares_.max() < 1 and model.known_.max() <= 1,
    ),
    "MultiLabelClassifier": Kind(
        "pro2.estimators.multilabel",
        {**WIDTH, "labels_": labels("T"), "estimators_": part("LinearClassifier", "D", several=True)},
        # one head on raw rows for each label, and yes or no is all that it answers
        lambda adapted: len(adapted.estimators_) == len(adapted.labels_)
        and all(each.classes_.tolist() == [0, 1] and not each.unit_rows_ for each in adapted.estimators_),
    ),
    "SourceMoments": Kind(
        "pro2.estimators.moments",
        {"classes": labels("K", form=list), "weight": numbers("K", least=0.0), "mean": numbers("K D"),
         "scatter": numbers("rows_of_scatter D")},
        lambda moments: moments.weight.sum() > 0 and len(moments.scatter) <= moments.width,
    ),
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
    """JSON values for `value`; arrays go into `tensors` under the name of the attribute that holds them."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, ITEM):
        return {"$float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value
    if is_array_api_obj(value):
        return _array_document(to_numpy(value), tensors, at)
    name, contents = type(value).__name__, None
    if name in KINDS:
        contents = {"kind": name, **_contents(value)}
    elif at and (isinstance(value, dict) or hasattr(value, "__dataclass_fields__")):
        contents = value if isinstance(value, dict) else vars(value)
    elif at and isinstance(value, list | tuple):
        return [_document(each, tensors, f"{at}.{i}") for i, each in enumerate(value)]
    if contents is not None:
        return {key: _document(each, tensors, f"{at}.{key}".lstrip(".")) for key, each in contents.items()}
    if not at and hasattr(value, "get_params"):
        raise ValueError(f"{name} has no file format; save what its adapt() returns, or use skops")
    raise ValueError(
        f"{at or 'this object'} is {name}, which a model file cannot hold; "
        "use numbers, texts and arrays (random_state: an integer or None)"
    )


def _contents(value: Any) -> dict[str, Any]:
    """Parameters, what `fit` has set, and the report of an adaptation; provenance has its own place."""
    name = type(value).__name__
    if not hasattr(value, "get_params"):
        return {each: getattr(value, each) for each in KINDS[name].rules}
    if not hasattr(value, "n_features_in_"):
        raise ValueError(f"this {name} is not fitted yet: call fit before save")
    fitted = {each: found for each, found in sorted(vars(value).items()) if each[-1] == "_" != each[0]}
    fitted.pop("provenance_", None)
    reported = "report_?" in KINDS[name].rules and hasattr(value, "report_")
    return value.get_params(deep=False) | fitted | ({"report_": value.report_} if reported else {})


def _array_document(values: np.ndarray, tensors: Tensors, at: str) -> dict[str, Any]:
    """Labels stay readable in the document; numbers become a tensor."""
    if values.dtype.kind not in "UO" and not at.endswith(("classes_", "labels_")):
        if values.dtype.newbyteorder("=") not in DTYPES:
            raise ValueError(f"{at} is an array of type {values.dtype}, which a model file cannot hold")
        tensors[at] = values
        return {"$array": at}
    items = values.tolist()
    if values.ndim != 1 or not all(isinstance(each, ITEM) for each in items):
        raise ValueError(f"{at} holds labels that are not texts or numbers; convert them first, e.g. y.astype(str)")
    return {"$labels": items, "dtype": "object" if values.dtype.kind == "O" else values.dtype.newbyteorder("=").name}


def _object(document: Any, tensors: Tensors) -> Any:
    """Inverse of `_document`; FormatError for anything it could not have written."""
    try:
        return _built(_decoded(document, tensors), {})
    except FormatError:
        raise
    # of a hostile document; the records check what they are made of with ValueError
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise FormatError(f"malformed entry: {str(error)[:100]}") from error


def _decoded(value: Any, tensors: Tensors) -> Any:
    """A document with its arrays and all that JSON cannot say; objects are still mappings."""
    if isinstance(value, list):
        return [_decoded(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return tensors[value["$array"]]
    if "$labels" in value:
        return _labels(value["$labels"], value["dtype"])
    if "$float" in value:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value["$float"]]
    return {name: _decoded(each, tensors) for name, each in value.items()}


def _labels(items: Any, dtype: str) -> np.ndarray:
    """Labels of a type in an exact list: NumPy's own parser would accept structured and enormous ones."""
    if not isinstance(items, list) or not all(isinstance(each, ITEM) for each in items):
        raise FormatError("a label is neither text nor number")
    if not dtype.startswith("str"):
        return np.array(items, dtype=LABEL_TYPES[dtype])
    room = 4 * max(map(len, items), default=1) * len(items)
    if room > max(LABEL_ROOM, 64 * sum(map(len, items))):
        raise FormatError(f"{len(items)} labels of very unequal lengths take {room:,} bytes")
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
    values = {each: rule(contents[each], each, sizes) for each, rule in rules.items() if each in contents}
    found = cls(**{each: values.pop(each) for each in params if each in values})
    for each, value in values.items():
        setattr(found, each, value)
    if not kind.agrees(found):
        raise FormatError(f"the parts of the {name} do not agree")
    return found


# ---- files


class Description(msgspec.Struct):
    """What the metadata of a file say."""

    format: Literal["pro2"]
    version: Annotated[int, msgspec.Meta(ge=1)]
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
    document = _document(value, tensors)
    try:
        _object(document, tensors)  # what cannot come back is not written
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
        except ValueError as error:
            raise FormatError(f"its description is not that of a model: {str(error)[:100]}") from error
        if description.version != FORMAT_VERSION:
            advice = "fit it again" if description.version < FORMAT_VERSION else "install a newer pro2"
            raise ValueError(
                f"{name} has format version {description.version}, written by pro2 {description.pro2_version[:20]}; "
                f"this version of pro2 reads {FORMAT_VERSION}: {advice}"
            )
        if description.digest != _digest(document, tensors):
            raise FormatError("its content does not match its digest")
        found = _object(description.object, tensors)
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


def _digest(document: Mapping[str, Any], tensors: Tensors) -> str:
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
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"unreadable {what}: {str(error)[:100]}") from error
