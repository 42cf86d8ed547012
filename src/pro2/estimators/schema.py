"""What a fitted estimator holds, kind by kind: the only things that can go into a file or come out of one.

A new attribute is one line in a table below. Constructor arguments and the fields of records are checked by their type
hints, which therefore must be importable at run time.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pro2.estimators.tensors import FormatError

Sizes = dict[str, int]


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Finite floats. Axes have names, and a name is one length throughout an estimator; `heads` is (K,), or () of two
    classes."""

    axes: str
    least: float | None = None
    above: float | None = None

    def check(self, values: Any, name: str, sizes: Sizes) -> None:
        """FormatError for anything else; binds names of axes that are met for the first time."""
        axes = self.axes.replace("heads", "" if sizes.get("K") == 2 else "K").split()
        values = np.asarray(values) if isinstance(values, float) else values  # how an array without axes is stored
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.ndim != len(axes):
            raise FormatError(f"{name} is not an array of floats with {len(axes)} axes")
        expected = tuple(sizes.setdefault(axis, n) for axis, n in zip(axes, values.shape))
        if values.shape != expected or 0 in expected:
            raise FormatError(f"{name} has shape {values.shape} instead of {expected}")
        if not np.isfinite(values).all():
            raise FormatError(f"{name} is not finite")
        if (self.least is not None and values.min() < self.least) or (
            self.above is not None and values.min() <= self.above
        ):
            raise FormatError(f"{name} has values that are too small")


@dataclasses.dataclass(frozen=True)
class Labels:
    """Different texts or numbers, in one row."""

    axis: str

    def check(self, values: Any, name: str, sizes: Sizes) -> None:
        """FormatError for anything else."""
        if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in "UObiuf":
            raise FormatError(f"{name} is not a row of labels")
        check_distinct(values.tolist(), name)
        if len(values) != sizes.setdefault(self.axis, len(values)):
            raise FormatError(f"{name} has {len(values)} labels instead of {sizes[self.axis]}")


@dataclasses.dataclass(frozen=True)
class Part:
    """Another estimator or record of one of these kinds, which has the same lengths along the axes it shares."""

    kinds: str
    shares: str
    several: bool = False

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        """FormatError for anything else; a tuple of at least one where there are several."""
        if self.several and (not isinstance(value, tuple) or not value):
            raise FormatError(f"{name} is not a tuple of {self.kinds}")
        for each in value if self.several else (value,):
            if type(each).__name__ not in self.kinds.split():
                raise FormatError(f"{name} is not a {self.kinds.replace(' ', ' or ')}")
            check_object(each, {axis: sizes[axis] for axis in self.shares.split()})


Rule = Numbers | Labels | Part | Any  # anything else is a type hint


@dataclasses.dataclass(frozen=True)
class Kind:
    """Where the class is, what it must and may hold, which arguments are parts, and what else must agree."""

    home: str
    holds: Mapping[str, Rule]
    may_hold: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    agrees: Callable[[Any], bool] = lambda value: True


SOURCE_KINDS = ("source rows", "moments", "head", "unlabelled rows")  # what a `ProjectAndProbe` can start from
NAMES = {"feature_names_in_": Labels("D")}
HEAD = {"classes_": Labels("K"), "coef_": Numbers("rows D"), "intercept_": Numbers("rows")}
LABEL_HEADS = {"labels_": Labels("T"), "estimators_": Part("LinearClassifier", "D", several=True)}
KINDS = {
    "LinearClassifier": Kind(
        "pro2.estimators",
        {**HEAD, "unit_rows_": bool},
        {
            **NAMES,
            "report_": Part("AdaptationReport", ""),
            "n_features_": int,
            "l2_": float,
            "transductive_proba_": Numbers("n K", least=0.0),
        },
    ),
    "Probe": Kind(
        "pro2.estimators",
        HEAD,
        {**NAMES, "scores_": Numbers("n_d n_l2"), "n_features_": int, "l2_": float, "kkt_": float, "unit_rows_": bool},
    ),
    "Projection": Kind(
        "pro2.estimators",
        {
            "classes_": Labels("K"),
            "components_": Numbers("d D"),
            "mean_": Numbers("D"),
            "scale_": Numbers("D", above=0.0),
            "norms_": Numbers("d", least=0.0),
            "scores_": Numbers("d"),
            "n_informative_": int,
        },
        {**NAMES, "moments_": Part("SourceMoments", "K D")},
        agrees=lambda projection: projection.solver != "krylov" or hasattr(projection, "moments_"),
    ),
    "ProjectAndProbe": Kind(
        "pro2.estimators",
        {
            **HEAD,
            "unit_rows_": bool,
            "source_moments_": Part("SourceMoments", "K D"),
            "source_kind_": typing.Literal[SOURCE_KINDS],
        },
        {
            **NAMES,
            "given_head_": Part("LinearClassifier", "K D"),
            "trained_projection_": Part("Projection", "K D"),
            "report_": Part("AdaptationReport", ""),
        },
        agrees=lambda model: (model.source_kind_ == "head") == hasattr(model, "given_head_"),
    ),
    "ProbeBank": Kind(
        "pro2.estimators.bank",
        {
            "classes_": Labels("K"),
            "targets_": Labels("T"),
            "coef_": Numbers("T rows D"),
            "intercept_": Numbers("T rows"),
            "unit_rows_": bool,
        },
        NAMES,
        {"model": Part("ProjectAndProbe", "D")},
        agrees=lambda bank: bool(np.all(bank.targets_[:-1] < bank.targets_[1:])),
    ),
    "MultiLabelProjectAndProbe": Kind(
        "pro2.estimators.multilabel",
        {
            **LABEL_HEADS,
            "source_moments_": Part("SourceMoments", "D"),
            "means_": Numbers("T values D"),
            "shares_": Numbers("T", above=0.0),
            "known_": Numbers("T", above=0.0),
        },
        NAMES,
        agrees=lambda model: (
            _heads_agree(model) and model.means_.shape[1] == 2 and model.shares_.max() < 1 and model.known_.max() <= 1
        ),
    ),
    "MultiLabelClassifier": Kind(
        "pro2.estimators.multilabel", LABEL_HEADS, NAMES, agrees=lambda classifier: _heads_agree(classifier)
    ),
}
RECORDS = {
    "SourceMoments": Kind(
        "pro2.estimators.moments",
        {"weight": Numbers("K", least=0.0), "mean": Numbers("K D"), "scatter": Numbers("rows_of_scatter D")},
        agrees=lambda moments: moments.weight.sum() > 0 and len(moments.scatter) <= moments.width,
    ),
    "PriorFamily": Kind("pro2.linalg.prior", {}),
    "AdaptationReport": Kind("pro2.estimators.report", {}),
    "LearningCurve": Kind(
        "pro2.estimators.report",
        {"n_per_class": Numbers("n", above=0.0), "error": Numbers("n"), "deviation": Numbers("n")},
    ),
}


def find_class(name: Any, table: Mapping[str, Kind]) -> Any:
    """The class of that name; FormatError for one that is not in the table."""
    if not isinstance(name, str) or name not in table:
        raise FormatError(f"unknown kind {str(name)[:40]!r}")
    return getattr(importlib.import_module(table[name].home), name)


def check_object(value: Any, sizes: Sizes | None = None) -> None:
    """A file may be whole and still not make sense: everything must have its type, fit the rest and be finite."""
    name = type(value).__name__
    kind = RECORDS.get(name) or KINDS.get(name)
    if kind is None:
        raise FormatError(f"it holds a {name[:40]}")
    (_check_record if name in RECORDS else _check_estimator)(value, kind, dict(sizes or {}))
    if not kind.agrees(value):
        raise FormatError(f"the parts of the {name} do not agree")


def _check_estimator(value: Any, kind: Kind, sizes: Sizes) -> None:
    width = getattr(value, "n_features_in_", None)
    if type(width) is not int or width < 1 or width != sizes.setdefault("D", width):
        raise FormatError("the number of features is missing or does not fit")
    fitted = fitted_values(value)
    unknown = set(fitted) - {*kind.holds, *kind.may_hold, "n_features_in_", "provenance_"}
    if unknown:
        raise FormatError(f"{type(value).__name__} has no attribute {min(unknown)[:40]!r}")
    if "classes_" in kind.holds:
        Labels("K").check(fitted.get("classes_"), "classes_", sizes)
        if sizes["K"] < 2:
            raise FormatError("there are fewer than two classes")
        sizes["rows"] = 1 if sizes["K"] == 2 else sizes["K"]
    for each, rule in {**kind.holds, **kind.may_hold}.items():
        if each in fitted or each in kind.holds:
            _check(fitted.get(each), each, rule, sizes)
    hints = typing.get_type_hints(type(value).__init__)
    for each, found in value.get_params(deep=False).items():
        rule = kind.parts.get(each, hints.get(each, Any)) if found is not None else hints.get(each, Any)
        _check(found, each, rule, sizes)


def _check_record(value: Any, kind: Kind, sizes: Sizes) -> None:
    hints = typing.get_type_hints(type(value))
    for field in dataclasses.fields(value):
        _check(getattr(value, field.name), field.name, hints[field.name], sizes)
    if "classes" in hints:
        check_distinct(list(value.classes), "classes")
        if len(value.classes) != sizes.setdefault("K", len(value.classes)):
            raise FormatError("the moments do not fit the classes")
    for each, rule in kind.holds.items():
        _check(getattr(value, each), each, rule, sizes)


def _check(value: Any, name: str, rule: Rule, sizes: Sizes) -> None:
    if isinstance(rule, Numbers | Labels | Part):
        rule.check(value, name, sizes)
    elif not _fits(value, rule):
        raise FormatError(f"{name} is {type(value).__name__}, not {getattr(rule, '__name__', rule)}")
    elif type(value).__name__ in RECORDS:
        check_object(value)


def check_distinct(items: list[Any], name: str) -> None:
    """All texts or all numbers, none missing, none twice."""
    texts = sum(isinstance(each, str) for each in items)
    numbers = sum(isinstance(each, int | float) and math.isfinite(each) for each in items)
    if max(texts, numbers) < len(items):
        raise FormatError(f"{name} mixes texts and numbers, or has missing values")
    if len(set(items)) < len(items):
        raise FormatError(f"{name} has the same label twice")


def _heads_agree(value: Any) -> bool:
    """One head on raw rows for each label, and yes or no is all that it answers."""
    heads = value.estimators_
    return len(heads) == len(value.labels_) and all(
        each.classes_.tolist() == [0, 1] and not each.unit_rows_ for each in heads
    )


def fitted_values(value: Any) -> dict[str, Any]:
    """What `fit` has set, and the report of an adaptation where it is the object's own."""
    found = {name: each for name, each in sorted(vars(value).items()) if is_fitted_name(name)}
    kind = KINDS.get(type(value).__name__)
    own = kind is not None and "report_" in kind.may_hold and hasattr(value, "report_")
    return found | ({"report_": value.report_} if own else {})


def is_fitted_name(name: str) -> bool:
    """Whether it is the name of an attribute that `fit` sets."""
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type of a hint; whole numbers are floats, too, and arrays hold numbers."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in args)
    if origin is typing.Literal:
        return value in args
    if origin is tuple and args[-1] is not ...:
        return isinstance(value, tuple) and len(value) == len(args) and all(map(_fits, value, args))
    if origin in (list, tuple):
        return isinstance(value, origin) and all(_fits(each, args[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, args[0]) and _fits(v, args[1]) for k, v in value.items())
    if hint in (int, float):
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    if hint is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    return isinstance(value, hint) if isinstance(hint, type) else value is hint
