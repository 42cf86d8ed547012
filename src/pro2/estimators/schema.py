"""What a model file may hold: a fixed list of classes with a rule for each part, and their form as JSON and arrays.

Only the kinds in the table below go into a file or come out of one; a new attribute is one line there. Constructor
arguments and the fields of records follow their type hints, which therefore must be importable at run time.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import typing
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_array_api_obj

from pro2.linalg.arrays import to_numpy

Sizes = dict[str, int]  # the length of each axis by its name: "D" features, "K" classes, "T" labels or targets
ITEM = (str, bool, int, float)


class FormatError(ValueError):
    """What is wrong with the bytes, in a few words; callers add the file's name and what to do."""


# ---- rules


class Numbers(NamedTuple):
    """Finite floats whose axes have the names given. `rows` is 1 for two classes, which have one logit, else K."""

    axes: str
    least: float = -math.inf
    above: float = -math.inf

    def check(self, values: Any, name: str, sizes: Sizes) -> None:
        """FormatError for anything else; the lengths of axes that are met for the first time are kept in `sizes`."""
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


class Labels(NamedTuple):
    """Different texts or numbers, in one row: an array, but of moments a tuple."""

    axis: str
    fewest: int = 1
    form: Any = np.ndarray

    def check(self, values: Any, name: str, sizes: Sizes) -> None:
        """FormatError for anything else."""
        if not isinstance(values, self.form) or getattr(values, "ndim", 1) != 1:
            raise FormatError(f"{name} is not a row of labels")
        labels: list[Any] = list(values.tolist() if isinstance(values, np.ndarray) else values)
        check_distinct(labels, name)
        n = sizes.setdefault(self.axis, len(labels))
        if not self.fewest <= len(labels) == n:
            raise FormatError(f"{name} has {len(labels)} labels instead of {max(n, self.fewest)}")
        if self.axis == "K":
            sizes["rows"] = 1 if n == 2 else n


class Part(NamedTuple):
    """Another estimator or record of that kind, as long as this one along the axes that they share."""

    kind: str
    shares: str
    several: bool = False

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        """FormatError for anything else; a tuple of at least one where there are several."""
        if self.several and (not isinstance(value, tuple) or not value):
            raise FormatError(f"{name} is not a tuple of {self.kind}")
        for each in value if self.several else (value,):
            if type(each).__name__ != self.kind:
                raise FormatError(f"{name} is not a {self.kind}")
            check_object(each, {axis: sizes[axis] for axis in self.shares.split()})


class Kind(NamedTuple):
    """Where a class is, what it must and may hold besides plain parameters, and what else must agree."""

    module: str
    holds: Mapping[str, Any]  # a rule, or a type
    may_hold: Mapping[str, Any] = {}
    agrees: Callable[[Any], bool] = lambda value: True


def _heads_agree(value: Any) -> bool:
    """One head on raw rows for each label, and yes or no is all that it answers."""
    heads = value.estimators_
    return len(heads) == len(value.labels_) and all(
        each.classes_.tolist() == [0, 1] and not each.unit_rows_ for each in heads
    )


SOURCE_KINDS = ("source rows", "moments", "head", "unlabelled rows")  # what a `ProjectAndProbe` can start from
NAMES = {"feature_names_in_": Labels("D")}
HEAD = {"classes_": Labels("K", fewest=2), "coef_": Numbers("rows D"), "intercept_": Numbers("rows")}
LABEL_HEADS = {"labels_": Labels("T"), "estimators_": Part("LinearClassifier", "D", several=True)}
KINDS = {
    "LinearClassifier": Kind(
        "pro2.estimators",
        {**HEAD, "unit_rows_": bool},
        {**NAMES, "report_": Part("AdaptationReport", ""), "n_features_": int, "l2_": float,
         "transductive_proba_": Numbers("n K", least=0.0)},
    ),
    "Probe": Kind(
        "pro2.estimators",
        HEAD,
        {**NAMES, "scores_": Numbers("n_d n_l2"), "n_features_": int, "l2_": float, "kkt_": float, "unit_rows_": bool},
    ),
    "Projection": Kind(
        "pro2.estimators",
        {"classes_": Labels("K", fewest=2), "components_": Numbers("d D"), "mean_": Numbers("D"),
         "scale_": Numbers("D", above=0.0), "norms_": Numbers("d", least=0.0), "scores_": Numbers("d"),
         "n_informative_": int},
        {**NAMES, "moments_": Part("SourceMoments", "K D")},
        lambda projection: projection.solver != "krylov" or hasattr(projection, "moments_"),
    ),
    "ProjectAndProbe": Kind(
        "pro2.estimators",
        {**HEAD, "unit_rows_": bool, "source_moments_": Part("SourceMoments", "K D"),
         "source_kind_": typing.Literal[SOURCE_KINDS]},
        {**NAMES, "given_head_": Part("LinearClassifier", "K D"), "trained_projection_": Part("Projection", "K D"),
         "report_": Part("AdaptationReport", "")},
        lambda model: (model.source_kind_ == "head") == hasattr(model, "given_head_"),
    ),
    "ProbeBank": Kind(
        "pro2.estimators.bank",
        {"model": Part("ProjectAndProbe", "D"), "classes_": Labels("K", fewest=2), "targets_": Labels("T"),
         "coef_": Numbers("T rows D"), "intercept_": Numbers("T rows"), "unit_rows_": bool},
        NAMES,
        lambda bank: bool(np.all(bank.targets_[:-1] < bank.targets_[1:])),
    ),
    "MultiLabelProjectAndProbe": Kind(
        "pro2.estimators.multilabel",
        {**LABEL_HEADS, "source_moments_": Part("SourceMoments", "D"), "means_": Numbers("T values D"),
         "shares_": Numbers("T", above=0.0), "known_": Numbers("T", above=0.0)},
        NAMES,
        lambda model: _heads_agree(model) and model.means_.shape[1] == 2 and model.shares_.max() < 1
        and model.known_.max() <= 1,
    ),
    "MultiLabelClassifier": Kind("pro2.estimators.multilabel", LABEL_HEADS, NAMES, _heads_agree),
    "SourceMoments": Kind(
        "pro2.estimators.moments",
        {"classes": Labels("K", form=tuple), "weight": Numbers("K", least=0.0), "mean": Numbers("K D"),
         "scatter": Numbers("rows_of_scatter D")},
        agrees=lambda moments: moments.weight.sum() > 0 and len(moments.scatter) <= moments.width,
    ),
    "PriorFamily": Kind("pro2.linalg.prior", {}),
    "AdaptationReport": Kind("pro2.estimators.report", {}),
    "LearningCurve": Kind(
        "pro2.estimators.report",
        {"n_per_class": Numbers("n", above=0.0), "error": Numbers("n"), "deviation": Numbers("n")},
    ),
}  # fmt: skip


# ---- checks


def check_object(value: Any, sizes: Mapping[str, int] | None = None) -> None:
    """A file may be whole and still not make sense: everything must have its type, fit the rest and be finite."""
    name = type(value).__name__
    kind = KINDS.get(name)
    if kind is None:
        raise FormatError(f"it holds a {name[:40]}")
    known = dict(sizes or {})
    if dataclasses.is_dataclass(value):
        contents, hints = _fields(value), typing.get_type_hints(type(value))
    else:
        contents = {**value.get_params(deep=False), **fitted_values(value)}
        hints = typing.get_type_hints(type(value).__init__)
        width = contents.pop("n_features_in_", None)
        if type(width) is not int or width < 1 or width != known.setdefault("D", width):
            raise FormatError("the number of features is missing or does not fit")
    contents.pop("provenance_", None)
    rules = {**kind.holds, **kind.may_hold}  # in their order: classes before what has as many rows
    for each in (*rules, *(contents.keys() - rules.keys())):
        if each in contents or each in kind.holds:
            if each not in rules and each not in hints:
                raise FormatError(f"{name} has no attribute {each[:40]!r}")
            _check(contents.get(each), each, rules.get(each, hints.get(each)), known)
    if not kind.agrees(value):
        raise FormatError(f"the parts of the {name} do not agree")


def _check(value: Any, name: str, rule: Any, sizes: Sizes) -> None:
    if isinstance(rule, Numbers | Labels | Part):
        rule.check(value, name, sizes)
    elif not _has_type(value, rule):
        raise FormatError(f"{name} is {type(value).__name__}, not {getattr(rule, '__name__', rule)}")
    elif type(value).__name__ in KINDS:
        check_object(value)


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value has the type of a hint; whole numbers are floats, too, and arrays hold numbers."""
    import msgspec

    if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
        return False
    try:
        converted = msgspec.convert(value, hint)
    except (msgspec.MsgspecError, AttributeError):  # the latter of an array in the place of a mapping
        return False
    return type(converted) is type(value) or isinstance(converted, float)  # and not a mapping made into a record


def check_distinct(items: list[Any], name: str) -> None:
    """All texts or all numbers, none missing, none twice."""
    texts = sum(isinstance(each, str) for each in items)
    numbers = sum(isinstance(each, int | float) and math.isfinite(each) for each in items)
    if max(texts, numbers) < len(items):
        raise FormatError(f"{name} mixes texts and numbers, or has missing values")
    if len(set(items)) < len(items):
        raise FormatError(f"{name} has the same label twice")


def fitted_values(value: Any) -> dict[str, Any]:
    """What `fit` has set, and the report of an adaptation where it is the object's own."""
    found = {name: each for name, each in sorted(vars(value).items()) if _is_fitted_name(name)}
    kind = KINDS.get(type(value).__name__)
    own = kind is not None and "report_" in kind.may_hold and hasattr(value, "report_")
    return found | ({"report_": value.report_} if own else {})


def _is_fitted_name(name: str) -> bool:
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")


def _fields(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}


# ---- writing


INLINE = 1 << 20  # characters of labels that stay readable in the document; more are stored as bytes


def to_document(value: Any, tensors: dict[str, np.ndarray], at: str = "") -> Any:
    """JSON values for `value`; arrays go into `tensors` under the name of the attribute that holds them."""

    def mapped(values: dict[str, Any]) -> dict[str, Any]:
        return {name: to_document(each, tensors, f"{at}.{name}".lstrip(".")) for name, each in values.items()}

    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, ITEM):
        return value
    if is_array_api_obj(value):
        return _array_document(to_numpy(value), tensors, at)
    if type(value) in (list, tuple):
        items = [to_document(each, tensors, f"{at}.{i}") for i, each in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        pairs = [[to_document(k, tensors, at), to_document(v, tensors, f"{at}.{k}")] for k, v in value.items()]
        return {"$dict": pairs}
    name = type(value).__name__
    if name in KINDS and dataclasses.is_dataclass(value):
        return {"$record": name, "fields": mapped(_fields(value))}
    if name in KINDS and hasattr(value, "get_params"):
        fitted = fitted_values(value)
        fitted.pop("provenance_", None)  # it is at the top of the document
        if "n_features_in_" not in fitted:
            raise ValueError(f"this {name} is not fitted yet: call fit before save")
        return {"kind": name, "params": mapped(value.get_params(deep=False)), "fitted": mapped(fitted)}
    if not at and hasattr(value, "get_params"):
        raise ValueError(f"{name} has no file format; save what its adapt() returns, or use skops")
    raise ValueError(
        f"{at or 'this object'} is {name}, which a model file cannot hold; "
        "use numbers, texts and arrays (random_state: an integer or None)"
    )


def _array_document(values: np.ndarray, tensors: dict[str, np.ndarray], at: str) -> dict[str, Any]:
    """Labels stay readable in the document; numbers become a tensor."""
    if values.dtype.kind not in "UO" and not at.endswith(("classes_", "labels_")):
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{at} is an array of type {values.dtype}, which a model file cannot hold")
        # a bank and its model share arrays: each is stored once
        same = next((name for name, other in tensors.items() if other is values), at)
        tensors[same] = values
        return {"$array": same}
    items = values.tolist()
    if values.ndim != 1 or not all(isinstance(each, ITEM) for each in items):
        raise ValueError(f"{at} holds labels that are not texts or numbers; convert them first, e.g. y.astype(str)")
    dtype = "object" if values.dtype.kind == "O" else values.dtype.newbyteorder("=").name
    if values.dtype.kind != "U" or sum(map(len, items)) <= INLINE:
        return {"$labels": items, "dtype": dtype}
    raw = [each.encode("utf-8", "surrogatepass") for each in items]
    tensors[f"{at}#utf8"] = np.frombuffer(b"".join(raw), dtype=np.uint8)
    tensors[f"{at}#ends"] = np.cumsum([len(each) for each in raw])
    return {"$text": at, "dtype": dtype}


# ---- reading


TEXT_ROOM = 256 << 20  # bytes that an array of labels may take, however unequal their lengths
LABEL_TYPES = {np.dtype(code).name: np.dtype(code) for code in "?bBhHiIlLqQefd"}
PYTHON_TYPES = {"i": int, "u": int, "b": bool, "f": float}
REPORT_OF_0_1 = {  # names of its fields then and now; what is not here was dropped
    "n_labels": "n_labels",
    "loo_accuracy": "accuracy",
    "loo_interval": "accuracy_interval",
    "loo_log_loss": "log_loss",
    "n_features": "effective_features",
    "temperature": "temperature",
    "learning_curve": "learning_curve",
    "candidates": "members",
}


def from_document(value: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """Inverse of `to_document`; FormatError for anything it could not have written."""
    if value is None or isinstance(value, ITEM):
        return value
    if isinstance(value, list):
        return [from_document(each, tensors) for each in value]
    try:
        return _decoded(value, tensors)
    except FormatError:
        raise
    # of a hostile document; the records check what they are made of with ValueError
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise FormatError(f"malformed entry: {str(error)[:100]}") from error


def _decoded(value: dict[str, Any], tensors: Mapping[str, np.ndarray]) -> Any:
    def plain(part: Any) -> Any:
        return from_document(part, tensors)

    if "$array" in value:
        return tensors[value["$array"]]
    if "$labels" in value:
        return _labels(value["$labels"], value["dtype"])
    if "$text" in value:
        return _labels(_texts(*(tensors[f"{value['$text']}#{part}"] for part in ("utf8", "ends"))), value["dtype"])
    if "$float" in value:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value["$float"]]
    if "$tuple" in value:
        return tuple(map(plain, _listed(value["$tuple"])))
    if "$dict" in value:
        return {plain(k): plain(v) for k, v in map(_listed, _listed(value["$dict"]))}
    name = value["$record"] if "$record" in value else value["kind"]
    if not isinstance(name, str) or name not in KINDS:
        raise FormatError(f"unknown kind {str(name)[:40]!r}")
    cls = getattr(importlib.import_module(KINDS[name].module), name)
    if dataclasses.is_dataclass(cls) != ("$record" in value):
        raise FormatError(f"{name} is not written in this way")
    if "$record" in value:
        fields = {each: plain(found) for each, found in value["fields"].items()}
        if name == "AdaptationReport" and "loo_accuracy" in fields:
            fields = {new: fields[old] for old, new in REPORT_OF_0_1.items() if old in fields}
        return cls(**fields)  # a later version may add fields that have a default
    if not set(value["params"]) <= set(cls._get_param_names()):
        raise FormatError(f"{name} has no such parameters; it may come from a newer version")
    estimator = cls(**{each: plain(found) for each, found in value["params"].items()})
    for each, found in value["fitted"].items():
        if not _is_fitted_name(each) or callable(getattr(cls, each, None)):
            raise FormatError(f"no attribute can be called {each[:40]!r}")
        setattr(estimator, each, plain(found))
    return estimator


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"a {type(value).__name__} is where a list must be")
    return value


def _labels(items: Any, name: str) -> np.ndarray:
    """Labels of a type in an exact list: NumPy's own parser would accept structured and enormous ones."""
    if not all(isinstance(each, ITEM) for each in _listed(items)):
        raise FormatError("a label is neither text nor number")
    if name == "object":
        return np.array(items, dtype=object)
    kind = str if name.startswith("str") else PYTHON_TYPES[LABEL_TYPES[name].kind]
    if not all(isinstance(each, kind) for each in items):
        raise FormatError(f"labels are not of their type {name[:20]}")
    if kind is not str:
        return np.array(items, dtype=LABEL_TYPES[name])
    longest = max(map(len, items), default=1)
    room, limit = 4 * longest * len(items), max(TEXT_ROOM, 64 * sum(map(len, items)))
    if room > limit:  # in an array every text takes the room of the longest
        raise FormatError(f"{len(items)} labels of up to {longest:,} characters take {room:,} bytes, above {limit:,}")
    return np.array(items, dtype=f"U{longest}")


def _texts(raw: np.ndarray, ends: np.ndarray) -> list[str]:
    if raw.dtype != np.uint8 or ends.dtype != np.int64 or not raw.ndim == ends.ndim == 1:
        raise FormatError("a text is not stored as bytes and ends")
    edges, content = [0, *ends.tolist()], raw.tobytes()
    if edges != sorted(edges) or edges[-1] != len(raw):
        raise FormatError("the ends of texts do not fit their bytes")
    return [content[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(edges)]
