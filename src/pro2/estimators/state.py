"""Fitted estimators as plain documents and arrays, and back. Only the kinds listed here can come out of a file."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array

from pro2.estimators.schema import KINDS, RECORDS, find_class, fitted_values, is_fitted_name
from pro2.estimators.tensors import FormatError
from pro2.linalg.arrays import to_numpy

_INLINE = 1 << 20  # characters of labels that stay readable in the document; more are stored as bytes
_TEXT_ROOM = 256 << 20  # bytes that an array of labels may take, however unequal their lengths
_LABEL_KINDS = {"U": str, "i": int, "u": int, "b": bool, "f": float}
_ITEM = (str, bool, int, float)


_REPORT_OF_0_1 = {  # names of its fields then and now; what is not here was dropped
    "n_labels": "n_labels",
    "loo_accuracy": "accuracy",
    "loo_interval": "accuracy_interval",
    "loo_log_loss": "log_loss",
    "n_features": "effective_features",
    "temperature": "temperature",
    "learning_curve": "learning_curve",
    "candidates": "members",
}


def to_document(value: Any, tensors: dict[str, np.ndarray], at: str = "") -> Any:
    """JSON values for `value`; arrays go into `tensors` under the name of the attribute that holds them."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, np.bool_):
        return bool(value)
    if is_array_api_obj(value):
        return _array(value if is_numpy_array(value) else to_numpy(value), tensors, at)
    return _composite(value, tensors, at)


def _composite(value: Any, tensors: dict[str, np.ndarray], at: str) -> Any:
    name = type(value).__name__
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        items = [to_document(each, tensors, f"{at}.{i}") for i, each in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        pairs = [[to_document(k, tensors, at), to_document(v, tensors, f"{at}.{k}")] for k, v in value.items()]
        return {"$dict": pairs}
    if name in RECORDS and dataclasses.is_dataclass(value):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return {"$record": name, "fields": _mapping(fields, tensors, at)}
    if name in KINDS and hasattr(value, "get_params"):
        return _estimator(value, tensors, at)
    if not at and hasattr(value, "get_params"):
        raise ValueError(f"{name} has no file format; save what its adapt() returns, or use skops")
    raise ValueError(
        f"{at or 'this object'} is {name}, which a model file cannot hold; "
        "use numbers, texts and arrays (random_state: an integer or None)"
    )


def _estimator(value: Any, tensors: dict[str, np.ndarray], at: str) -> dict[str, Any]:
    params = value.get_params(deep=False)
    fitted = {name: each for name, each in fitted_values(value).items() if name != "provenance_"}
    if "n_features_in_" not in fitted:
        raise ValueError(f"this {type(value).__name__} is not fitted yet: call fit before save")
    return {
        "kind": type(value).__name__,
        "params": _mapping(params, tensors, at),
        "fitted": _mapping(fitted, tensors, at),
    }


def _mapping(values: dict[str, Any], tensors: dict[str, np.ndarray], at: str) -> dict[str, Any]:
    prefix = f"{at}." if at else ""
    return {name: to_document(value, tensors, f"{prefix}{name}") for name, value in values.items()}


def _array(values: np.ndarray, tensors: dict[str, np.ndarray], at: str) -> dict[str, Any]:
    """Labels stay readable in the document; numbers become a tensor."""
    if values.dtype.kind in "UO" or at.endswith(("classes_", "labels_")):
        return _labels(values, tensors, at)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{at} is an array of type {values.dtype}, which a model file cannot hold")
    # model and projection share arrays: each is stored once
    same = next((name for name, other in tensors.items() if other is values), at)
    tensors[same] = values
    return {"$array": same}


def _labels(values: np.ndarray, tensors: dict[str, np.ndarray], at: str) -> dict[str, Any]:
    items = values.tolist()
    if values.ndim != 1 or not all(isinstance(each, _ITEM) for each in items):
        raise ValueError(f"{at} holds labels that are not texts or numbers; convert them first, e.g. y.astype(str)")
    name = "object" if values.dtype.kind == "O" else values.dtype.newbyteorder("=").name
    if values.dtype.kind == "U" and sum(map(len, items)) > _INLINE:
        raw = [each.encode("utf-8", "surrogatepass") for each in items]
        tensors[f"{at}#utf8"] = np.frombuffer(b"".join(raw), dtype=np.uint8)
        tensors[f"{at}#ends"] = np.cumsum([len(each) for each in raw])
        return {"$text": at, "dtype": name}
    return {"$labels": items, "dtype": name}


def from_document(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    """Inverse of `to_document`; FormatError for anything it could not have written."""
    if value is None or isinstance(value, _ITEM):
        return value
    if isinstance(value, list):
        return [from_document(each, tensors) for each in value]
    if not isinstance(value, dict):
        raise FormatError(f"unexpected {type(value).__name__}")
    try:
        return _decode(value, tensors)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise FormatError(f"malformed entry: {str(error)[:100]}") from error


def _decode(value: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    if "$array" in value:
        return tensors[value["$array"]]
    if "$labels" in value:
        return _read_labels(value["$labels"], value["dtype"])
    if "$text" in value:
        raw, ends = (tensors[f"{value['$text']}#{part}"] for part in ("utf8", "ends"))
        return _read_labels(_split(raw, ends), value["dtype"])
    if "$float" in value:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value["$float"]]
    if "$tuple" in value:
        return tuple(from_document(each, tensors) for each in value["$tuple"])
    if "$dict" in value:
        return {from_document(k, tensors): from_document(v, tensors) for k, v in _pairs(value["$dict"])}
    if "$record" in value:
        return _read_record(value, tensors)
    return _read_estimator(value, tensors)


def _pairs(items: Any) -> list[Any]:
    if not isinstance(items, list) or not all(isinstance(each, list) and len(each) == 2 for each in items):
        raise FormatError("a mapping is not a list of pairs")
    return items


def _read_labels(items: Any, name: Any) -> np.ndarray:
    if not isinstance(items, list) or not isinstance(name, str):
        raise FormatError("labels are not a list with a type")
    if not all(isinstance(each, _ITEM) for each in items):
        raise FormatError("a label is neither text nor number")
    if name == "object":
        return np.array(items, dtype=object)
    dtype = _label_dtype(name)
    if not all(isinstance(each, _LABEL_KINDS[dtype.kind]) for each in items):
        raise FormatError(f"labels are not of their type {name[:20]}")
    return np.array(items, dtype=_width(items) if dtype.kind == "U" else dtype)


def _width(texts: list[str]) -> str:
    """The type of an array of these texts, in which every text takes the room of the longest."""
    longest = max(map(len, texts), default=1)
    room, limit = 4 * longest * len(texts), max(_TEXT_ROOM, 64 * sum(map(len, texts)))
    if room > limit:
        raise FormatError(f"{len(texts)} labels of up to {longest:,} characters take {room:,} bytes, above {limit:,}")
    return f"U{longest}"


def _split(raw: np.ndarray, ends: np.ndarray) -> list[str]:
    if raw.dtype != np.uint8 or ends.dtype != np.int64 or not raw.ndim == ends.ndim == 1:
        raise FormatError("a text is not stored as bytes and ends")
    edges = [0, *ends.tolist()]
    if edges != sorted(edges) or edges[-1] != len(raw):
        raise FormatError("the ends of texts do not fit their bytes")
    content = raw.tobytes()
    try:
        return [content[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(edges)]
    except UnicodeDecodeError as error:
        raise FormatError(f"a text is not UTF-8: {error}") from error


def _label_dtype(name: str) -> np.dtype:
    # an exact list: NumPy's own parser would accept structured and enormous types
    if name.startswith("str"):
        return np.dtype(str)
    known = {np.dtype(code).name: np.dtype(code) for code in "?bBhHiIlLqQefd"}
    if name not in known:
        raise FormatError(f"unknown type of labels {name[:20]!r}")
    return known[name]


def _read_record(value: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    cls = find_class(value["$record"], RECORDS)
    fields = {name: from_document(each, tensors) for name, each in value["fields"].items()}
    if value["$record"] == "AdaptationReport" and "loo_accuracy" in fields:
        fields = {new: fields[old] for old, new in _REPORT_OF_0_1.items() if old in fields}
    known = {each.name: each for each in dataclasses.fields(cls)}
    needed = {name for name, each in known.items() if each.default is each.default_factory is dataclasses.MISSING}
    if not needed <= set(fields) <= set(known):  # a later version may add fields that have a default
        raise FormatError(f"the fields of {value['$record']} do not fit")
    try:
        return cls(**fields)
    except ValueError as error:  # the class checks what it is made of
        raise FormatError(str(error)[:100]) from error


def _read_estimator(value: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    cls = find_class(value["kind"], KINDS)
    params = {name: from_document(each, tensors) for name, each in value["params"].items()}
    if not set(params) <= set(cls._get_param_names()):
        raise FormatError(f"{value['kind']} has no such parameters; it may come from a newer version")
    estimator = cls(**params)
    for name, each in value["fitted"].items():
        if not is_fitted_name(name) or callable(getattr(cls, name, None)):
            raise FormatError(f"no attribute can be called {name[:40]!r}")
        setattr(estimator, name, from_document(each, tensors))
    return estimator
