"""Model files: one safetensors file with a JSON document in its metadata. docs/file-format.md describes it.

Never pickle: a file names one of the kinds in the table below, which says what each may hold, and everything in it is a
number, a text or a list of those. A new attribute is one line in the table. The safetensors library checks that arrays
fill the file; here are the limits and checks that it does not have.
"""

from __future__ import annotations

import dataclasses
import difflib
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
DTYPES = frozenset(map(np.dtype, "?bBhHiIqQefd"))
FORMAT_VERSION = 2
CHANGED_IN_2 = ("ProjectAndProbe", "MultiLabelProjectAndProbe", "ProbeBank")  # version 1 held what is derived today
BACKBONE_KEYS = ("backbone", "weights_digest", "layer", "preprocessing")
MAX_FILE = 8 << 30  # 8 GiB: two float64 matrices of 22,000 features, more than any backbone has
MAX_TEXT = 32 << 20  # of the description: names of two million targets fit; parsed, it takes up to 20 times as much
LABEL_ROOM = 256 << 20  # bytes of an array of texts, each of which takes the room of the longest; or 64 times its texts
ITEM = (str, bool, int, float)
LABEL_TYPES = {np.dtype(code).name: np.dtype(code) for code in "?bBhHiIlLqQefdO"}

Tensors = dict[str, np.ndarray]
Sizes = dict[str, int]  # the length of each axis by its name: "D" features, "K" classes, "T" labels or targets


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


# ---- what a file may hold: a rule for each attribute, which returns it as an object has it, or raises FormatError


class Numbers(NamedTuple):
    """Finite floats whose axes have the names given. `rows` is 1 for two classes, which have one logit, else K."""

    axes: str
    least: float = -math.inf
    above: float = -math.inf

    def read(self, values: Any, name: str, sizes: Sizes) -> np.ndarray:
        """The lengths of axes that are met for the first time are kept in `sizes`."""
        axes = self.axes.split()
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.ndim != len(axes):
            raise FormatError(f"{name} is not an array of floats with {len(axes)} axes")
        if values.dtype.itemsize < 4:  # NumPy has no linear algebra for half precision
            raise FormatError(f"{name} has type {values.dtype}")
        expected = tuple(sizes.setdefault(axis, n) for axis, n in zip(axes, values.shape))
        if values.shape != expected or 0 in expected:
            raise FormatError(f"{name} has shape {values.shape} instead of {expected}")
        if not np.isfinite(values).all():
            raise FormatError(f"{name} is not finite")
        if values.min() < self.least or values.min() <= self.above:
            raise FormatError(f"{name} has values that are too small")
        return values


class Labels(NamedTuple):
    """Different texts or numbers, in one row: an array, but of moments a list that becomes a tuple."""

    axis: str
    fewest: int = 1
    form: type = np.ndarray

    def read(self, values: Any, name: str, sizes: Sizes) -> Any:
        if not isinstance(values, self.form) or getattr(values, "ndim", 1) != 1:
            raise FormatError(f"{name} is not a row of labels")
        labels: Any = values.tolist() if isinstance(values, np.ndarray) else values
        check_distinct(labels, name)
        n = sizes.setdefault(self.axis, len(labels))
        if not self.fewest <= len(labels) == n:
            raise FormatError(f"{name} has {len(labels)} labels instead of {max(n, self.fewest)}")
        if self.axis == "K":
            sizes["rows"] = 1 if n == 2 else n
        return tuple(labels) if self.form is list else values


class Part(NamedTuple):
    """Another object of that kind, as long as this one along the axes that they share; or several of them."""

    kind: str
    shares: str
    several: bool = False

    def read(self, value: Any, name: str, sizes: Sizes) -> Any:
        parts = value if self.several and isinstance(value, list) and value else [value]
        if any(not isinstance(part, dict) or part.get("kind") != self.kind for part in parts):
            raise FormatError(f"{name} is not a {self.kind}")
        built = tuple(_built(part, {axis: sizes[axis] for axis in self.shares.split()}) for part in parts)
        return built if self.several else built[0]


class Plain(NamedTuple):
    """Of the type that a hint says: numbers, texts, lists, mappings and records of those."""

    hint: Any

    def read(self, value: Any, name: str, sizes: Sizes) -> Any:
        if isinstance(value, np.ndarray):
            raise FormatError(f"{name} is an array")
        try:
            found = msgspec.convert(value, self.hint)
        except msgspec.ValidationError as error:
            raise FormatError(f"{name}: {str(error)[:100]}") from error
        if isinstance(found, AdaptationReport):
            _check_report(found)
        return found


def _check_report(report: AdaptationReport) -> None:
    for name, values in vars(report).items():
        if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
            raise FormatError(f"{name} holds no numbers")
    sizes: Sizes = {}
    for name, above in (("n_per_class", 0.0), ("error", -math.inf), ("deviation", -math.inf)):
        if report.learning_curve is not None:
            Numbers("n", above=above).read(getattr(report.learning_curve, name), name, sizes)


class Kind(NamedTuple):
    """Where a class is, what it holds besides plain parameters (a name with ? may be absent), and what must agree."""

    module: str
    rules: Mapping[str, Any]  # in the order of reading: classes before what has as many rows
    agrees: Callable[[Any], bool] = lambda value: True


def _heads_agree(value: Any) -> bool:
    """One head on raw rows for each label, and yes or no is all that it answers."""
    heads = value.estimators_
    return len(heads) == len(value.labels_) and all(
        each.classes_.tolist() == [0, 1] and not each.unit_rows_ for each in heads
    )


SOURCE_KINDS = ("source rows", "moments", "head", "unlabelled rows")  # what a `ProjectAndProbe` can start from
CLASSES, NAMES = {"classes_": Labels("K", fewest=2)}, {"feature_names_in_?": Labels("D")}
HEAD = {**CLASSES, **NAMES, "coef_": Numbers("rows D"), "intercept_": Numbers("rows")}
LABEL_HEADS = {**NAMES, "labels_": Labels("T"), "estimators_": Part("LinearClassifier", "D", several=True)}
CHOSEN = {"n_features_?": Plain(int), "l2_?": Plain(float)}
UNIT, REPORT = {"unit_rows_": Plain(bool)}, {"report_?": Plain(AdaptationReport)}
KINDS = {
    "LinearClassifier": Kind(
        "pro2.estimators", {**HEAD, **UNIT, **CHOSEN, **REPORT, "transductive_proba_?": Numbers("n K", least=0.0)}
    ),
    "Probe": Kind("pro2.estimators", {**HEAD, **CHOSEN, "scores_?": Numbers("n_d n_l2"), "kkt_?": Plain(float)}),
    "Projection": Kind(
        "pro2.estimators",
        {**CLASSES, **NAMES, "components_": Numbers("d D"), "mean_": Numbers("D"), "scale_": Numbers("D", above=0.0),
         "norms_": Numbers("d", least=0.0), "scores_": Numbers("d"), "n_informative_": Plain(int),
         "moments_?": Part("SourceMoments", "K D")},
        lambda projection: projection.solver != "krylov" or hasattr(projection, "moments_"),
    ),
    "ProjectAndProbe": Kind(
        "pro2.estimators",
        {**HEAD, **UNIT, **REPORT, "source_moments_": Part("SourceMoments", "K D"),
         "source_kind_": Plain(Literal[SOURCE_KINDS]), "given_head_?": Part("LinearClassifier", "K D"),
         "trained_projection_?": Part("Projection", "K D")},
        lambda model: (model.source_kind_ == "head") == hasattr(model, "given_head_"),
    ),
    "ProbeBank": Kind(
        "pro2.estimators.bank",
        {**CLASSES, **NAMES, **UNIT, "model": Part("ProjectAndProbe", "D"), "targets_": Labels("T"),
         "coef_": Numbers("T rows D"), "intercept_": Numbers("T rows")},
        lambda bank: bool(np.all(bank.targets_[:-1] < bank.targets_[1:])),
    ),
    "MultiLabelProjectAndProbe": Kind(
        "pro2.estimators.multilabel",
        {**LABEL_HEADS, "source_moments_": Part("SourceMoments", "D"), "means_": Numbers("T values D"),
         "shares_": Numbers("T", above=0.0), "known_": Numbers("T", above=0.0)},
        lambda model: _heads_agree(model) and model.means_.shape[1] == 2 and model.shares_.max() < 1
        and model.known_.max() <= 1,
    ),
    "MultiLabelClassifier": Kind("pro2.estimators.multilabel", LABEL_HEADS, _heads_agree),
    "SourceMoments": Kind(
        "pro2.estimators.moments",
        {"classes": Labels("K", form=list), "weight": Numbers("K", least=0.0), "mean": Numbers("K D"),
         "scatter": Numbers("rows_of_scatter D")},
        lambda moments: moments.weight.sum() > 0 and len(moments.scatter) <= moments.width,
    ),
}  # fmt: skip


def check_distinct(items: list[Any], name: str) -> None:
    """All texts or all numbers, none missing, none twice."""
    texts = sum(isinstance(each, str) for each in items)
    numbers = sum(isinstance(each, int | float) and math.isfinite(each) for each in items)
    if max(texts, numbers) < len(items):
        raise FormatError(f"{name} mixes texts and numbers, or has missing values")
    if len(set(items)) < len(items):
        raise FormatError(f"{name} has the same label twice")


# ---- objects as documents, and back


def _document(value: Any, tensors: Tensors, at: str = "") -> Any:
    """JSON values for `value`; arrays go into `tensors` under the name of the attribute that holds them."""

    def each_of(values: dict[str, Any]) -> dict[str, Any]:
        return {name: _document(part, tensors, f"{at}.{name}".lstrip(".")) for name, part in values.items()}

    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, ITEM):
        return value
    if is_array_api_obj(value):
        return _array_document(to_numpy(value), tensors, at)
    if type(value) in (list, tuple):
        return [_document(part, tensors, f"{at}.{i}") for i, part in enumerate(value)]
    if isinstance(value, dict):
        return {"$dict": [[_document(k, tensors, at), _document(v, tensors, f"{at}.{k}")] for k, v in value.items()]}
    name = type(value).__name__
    if dataclasses.is_dataclass(value) and (at or name in KINDS):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return {"$record": name, "fields": each_of(fields)}
    if name in KINDS:
        if not hasattr(value, "n_features_in_"):
            raise ValueError(f"this {name} is not fitted yet: call fit before save")
        params = value.get_params(deep=False)
        return {"kind": name, "params": each_of(params), "fitted": each_of(_fitted_values(value))}
    if not at and hasattr(value, "get_params"):
        raise ValueError(f"{name} has no file format; save what its adapt() returns, or use skops")
    raise ValueError(
        f"{at or 'this object'} is {name}, which a model file cannot hold; "
        "use numbers, texts and arrays (random_state: an integer or None)"
    )


def _fitted_values(value: Any) -> dict[str, Any]:
    """What `fit` has set, and the report of an adaptation where there is one; provenance has its own place."""
    found = {name: each for name, each in sorted(vars(value).items()) if name.endswith("_") and name[0] != "_"}
    found.pop("provenance_", None)
    reported = "report_?" in KINDS[type(value).__name__].rules and hasattr(value, "report_")
    return found | ({"report_": value.report_} if reported else {})


def _array_document(values: np.ndarray, tensors: Tensors, at: str) -> dict[str, Any]:
    """Labels stay readable in the document; numbers become a tensor."""
    if values.dtype.kind not in "UO" and not at.endswith(("classes_", "labels_")):
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{at} is an array of type {values.dtype}, which a model file cannot hold")
        tensors[at] = values
        return {"$array": at}
    items = values.tolist()
    if values.ndim != 1 or not all(isinstance(each, ITEM) for each in items):
        raise ValueError(f"{at} holds labels that are not texts or numbers; convert them first, e.g. y.astype(str)")
    return {"$labels": items, "dtype": "object" if values.dtype.kind == "O" else values.dtype.newbyteorder("=").name}


def _object(document: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """Inverse of `_document`; FormatError for anything it could not have written."""
    try:
        return _built(_decoded(document, tensors), {})
    except FormatError:
        raise
    # of a hostile document; the records check what they are made of with ValueError
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise FormatError(f"malformed entry: {str(error)[:100]}") from error


def _decoded(value: Any, tensors: Mapping[str, np.ndarray]) -> Any:
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
    if "$tuple" in value:  # as files written before today's have it
        return _decoded(value["$tuple"], tensors)
    if "$dict" in value:
        return dict(_decoded(value["$dict"], tensors))
    if "$record" in value:
        fields = _decoded(value["fields"], tensors)
        return {"kind": value["$record"], "params": {}, "fitted": fields} if value["$record"] in KINDS else fields
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


def _built(document: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """The object of a decoded document, in which everything has its type, fits the rest and is finite."""
    name = document["kind"]
    if name not in KINDS:
        raise FormatError(f"unknown kind {str(name)[:40]!r}")
    kind, known, contents = KINDS[name], dict(sizes), {**document["params"], **document["fitted"]}
    cls = getattr(importlib.import_module(kind.module), name)
    rules, params = {each.rstrip("?"): rule for each, rule in kind.rules.items()}, []
    if is_estimator := hasattr(cls, "get_params"):
        params, hints = cls._get_param_names(), typing.get_type_hints(cls.__init__)
        rules |= {each: Plain(hints[each]) for each in params if each not in rules}
        width = contents.pop("n_features_in_", None)
        if type(width) is not int or width < 1 or width != known.setdefault("D", width):
            raise FormatError("the number of features is missing or does not fit")
    unknown = contents.keys() - rules.keys()
    missing = {each for each in kind.rules if each[-1] != "?"} - contents.keys()
    if unknown or missing:
        raise FormatError(f"{name} has no {min(missing)}" if missing else f"{name} cannot have {min(unknown)[:40]!r}")
    values = {each: rule.read(contents[each], each, known) for each, rule in rules.items() if each in contents}
    found = cls(**{each: values.pop(each) for each in (params if is_estimator else rules) if each in values})
    if is_estimator:
        found.n_features_in_ = width
    for each, value in values.items():
        setattr(found, each, value)
    if not kind.agrees(found):
        raise FormatError(f"the parts of the {name} do not agree")
    return found


# ---- files


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
        names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
        advice = f"did you mean {path.parent / close[0]}?" if close else "make one with `pro2 fit`"
        raise FileNotFoundError(f"no model file at {path}; {advice}")
    try:
        ours = KEY in read_metadata(path)
    except FormatError as error:
        raise _damaged(path, error) from error
    if not ours:  # said before the rest is read, however large it is
        raise ValueError(f"{path} is a safetensors file, but not a pro2 model; make one with `pro2 fit`")
    return path.read_bytes()


def _opened(message: bytes, name: str) -> tuple[Any, dict[str, Any], Tensors]:
    """The object with the description and the arrays it was made from: nothing is made before the digest holds."""
    try:
        metadata, tensors = unpack(message)
        document = parse_json(metadata.get(KEY, ""), "description")
        _check_description(document, name)
        if document["digest"] != _digest(document, tensors):
            raise FormatError("its content does not match its digest")
        if document["version"] == 1 and isinstance(fitted := document["object"].get("fitted"), dict):
            fitted.pop("report_", None)  # its fields were others
        found = _object(document["object"], tensors)
    except (FormatError, RecursionError) as error:
        raise _damaged(name, error) from error
    if document["provenance"]:
        vars(found)["provenance_"] = document["provenance"]  # moments are frozen, but this says nothing of their rows
    return found, document, tensors


class Description(typing.TypedDict):
    """What the metadata of a file say."""

    format: Literal["pro2"]
    version: Annotated[int, msgspec.Meta(ge=1)]
    pro2_version: str
    object: dict[str, Any]
    provenance: dict[str, Any]
    digest: str


def _check_description(document: Any, name: str) -> None:
    try:
        msgspec.convert(document, Description)
        _as_json(document["provenance"])  # Python reads 1e999 as infinity
    except ValueError as error:
        raise FormatError(f"its description is not that of a model: {str(error)[:100]}") from error
    version, writer = document["version"], document["pro2_version"][:20]
    kind = document["object"].get("kind", document["object"].get("$record"))
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{name} has format version {version}, written by pro2 {writer}; "
            f"this version reads up to {FORMAT_VERSION}: install a newer pro2"
        )
    if version == 1 and kind in CHANGED_IN_2:
        raise ValueError(
            f"{name} holds a {kind} in format version 1, written by pro2 {writer}, "
            "which this version does not read: fit it again with `pro2 fit`"
        )


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
    for name, values in tensors.items():
        if values.dtype.newbyteorder("=") not in DTYPES:
            raise ValueError(f"{name} has type {values.dtype}, which a file cannot hold; use integers or floats")
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
