"""Fitted estimators as plain documents and arrays, and back. Only the kinds listed here can come out of a file."""

from __future__ import annotations

import dataclasses
import importlib
import math
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array

from pro2.estimators.tensors import FormatError
from pro2.linalg.moments import host

KINDS = {
    "ProjectAndProbe": "pro2.estimators",
    "LinearClassifier": "pro2.estimators",
    "Projection": "pro2.estimators",
    "Probe": "pro2.estimators",
    "ProbeBank": "pro2.estimators.bank",
}
RECORDS = {
    "SourceMoments": "pro2.estimators.moments",
    "AdaptationReport": "pro2.estimators.adaptation_report",
    "LearningCurve": "pro2.estimators.adaptation_report",
}
_LABEL_KINDS = {"U": str, "i": int, "u": int, "b": bool, "f": float}
_ITEM = (str, bool, int, float)


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
        return _array(value if is_numpy_array(value) else host(value), tensors, at)
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
    fitted = {name: each for name, each in vars(value).items() if _is_fitted_name(name) and name != "provenance_"}
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


def _is_fitted_name(name: str) -> bool:
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")


def _array(values: np.ndarray, tensors: dict[str, np.ndarray], at: str) -> dict[str, Any]:
    """Labels stay readable in the document; numbers become a tensor."""
    if values.dtype.kind in "UO" or at.endswith("classes_"):
        return _labels(values, at)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{at} is an array of type {values.dtype}, which a model file cannot hold")
    # model and projection share arrays: each is stored once
    same = next((name for name, other in tensors.items() if other is values), at)
    tensors[same] = values
    return {"$array": same}


def _labels(values: np.ndarray, at: str) -> dict[str, Any]:
    items = values.tolist()
    if values.ndim != 1 or not all(isinstance(each, _ITEM) for each in items):
        raise ValueError(f"{at} holds labels that are not texts or numbers; convert them first, e.g. y.astype(str)")
    return {"$labels": items, "dtype": "object" if values.dtype.kind == "O" else values.dtype.newbyteorder("=").name}


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
    return np.array(items, dtype=str if dtype.kind == "U" else dtype)


def _label_dtype(name: str) -> np.dtype:
    # an exact list: NumPy's own parser would accept structured and enormous types
    if name.startswith("str"):
        return np.dtype(str)
    known = {np.dtype(code).name: np.dtype(code) for code in "?bBhHiIlLqQefd"}
    if name not in known:
        raise FormatError(f"unknown type of labels {name[:20]!r}")
    return known[name]


def _read_record(value: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    cls = _known(value["$record"], RECORDS)
    fields = {name: from_document(each, tensors) for name, each in value["fields"].items()}
    known = {each.name: each for each in dataclasses.fields(cls)}
    needed = {name for name, each in known.items() if each.default is each.default_factory is dataclasses.MISSING}
    if not needed <= set(fields) <= set(known):  # a later version may add fields that have a default
        raise FormatError(f"the fields of {value['$record']} do not fit")
    return cls(**fields)


def _read_estimator(value: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    cls = _known(value["kind"], KINDS)
    params = {name: from_document(each, tensors) for name, each in value["params"].items()}
    if not set(params) <= set(cls._get_param_names()):
        raise FormatError(f"{value['kind']} has no such parameters; it may come from a newer version")
    estimator = cls(**params)
    for name, each in value["fitted"].items():
        if not _is_fitted_name(name) or callable(getattr(cls, name, None)):
            raise FormatError(f"no attribute can be called {name[:40]!r}")
        setattr(estimator, name, from_document(each, tensors))
    return estimator


def _known(name: Any, table: dict[str, str]) -> Any:
    if not isinstance(name, str) or name not in table:
        raise FormatError(f"unknown kind {str(name)[:40]!r}")
    return getattr(importlib.import_module(table[name]), name)


def check_shapes(estimator: Any) -> None:
    """A file may be whole and still not make sense: every array must fit the others and be finite."""
    if type(estimator).__name__ == "SourceMoments":
        _check_moments(estimator, len(estimator.classes), _width(estimator))
        return
    D = getattr(estimator, "n_features_in_", None)
    if type(D) is not int or D < 1:
        raise FormatError("the number of features is missing")
    if type(estimator).__name__ == "Projection":
        _check_projection(estimator, D)
        return
    classes = getattr(estimator, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or len(classes) < 2:
        raise FormatError("the classes are missing")
    rows = 1 if len(classes) == 2 else len(classes)
    if type(estimator).__name__ == "ProbeBank":
        _check_bank(estimator, len(classes))
        return
    _check_arrays(estimator, {"coef_": (rows, D), "intercept_": (rows,)})
    if type(estimator).__name__ == "ProjectAndProbe":
        _check_model(estimator, D)


def _check_bank(bank: Any, K: int) -> None:
    T, coef = len(getattr(bank, "targets_", ())), getattr(bank, "coef_", None)
    heads = () if K == 2 else (K,)
    p = coef.shape[-1] if isinstance(coef, np.ndarray) and coef.ndim else 0
    _check_arrays(bank, {"coef_": (T, *heads, p), "intercept_": (T, *heads)})
    if bank.projection is not None:
        check_shapes(bank.projection)


def _check_model(model: Any, D: int) -> None:
    for name, kind in (("projection_", "Projection"), ("source_head_", "LinearClassifier")):
        part: Any = getattr(model, name, None)
        if type(part).__name__ != kind or part.n_features_in_ != D:
            raise FormatError(f"{name} is missing or does not fit")
        check_shapes(part)
    if len(model.projection_.classes_) != len(model.classes_):
        raise FormatError("the classes of model and projection differ")
    _check_moments(getattr(model, "source_moments_", None), len(model.classes_), D)


def _check_projection(projection: Any, D: int) -> None:
    components = getattr(projection, "components_", None)
    d = components.shape[0] if isinstance(components, np.ndarray) and components.ndim == 2 else -1
    expected = {"components_": (d, D), "mean_": (D,), "scale_": (D,), "norms_": (d,), "scores_": (d,)}
    _check_arrays(projection, expected)
    _check_moments(getattr(projection, "moments_", None), len(getattr(projection, "classes_", ())), D)


def _check_moments(moments: Any, K: int, D: int) -> None:
    if moments is None:
        return
    if type(moments).__name__ != "SourceMoments" or len(moments.classes) != K:
        raise FormatError("the moments do not fit the classes")
    _check_arrays(moments, {"weight": (K,), "mean": (K, D), "scatter": (D, D)})


def _width(moments: Any) -> int:
    return moments.mean.shape[-1] if isinstance(moments.mean, np.ndarray) and moments.mean.ndim else -1


def _check_arrays(holder: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        values = getattr(holder, name, None)
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.shape != shape:
            raise FormatError(f"{name} is not an array of floats of shape {shape}")
        if not np.isfinite(values).all():
            raise FormatError(f"{name} is not finite")
