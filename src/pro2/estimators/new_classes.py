"""Classes that appear on the target only: they start without a centre."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from pro2.estimators.linear import LinearClassifier
from pro2.linalg.priors import spread_classes

NEW_CLASSES = ("refuse", "allow")


def with_new_classes(model: Any, y: np.ndarray) -> Any:
    """A copy of a fitted `ProjectAndProbe` that knows the classes of y, too; the model itself where there are none."""
    classes = _union(model.classes_, y)
    if len(classes) == len(model.classes_):
        return model
    places = np.searchsorted(classes, model.classes_).tolist()
    wider = copy(model)
    wider.classes_ = classes
    wider.priors_ = tuple(prior.with_classes(places, len(classes)) for prior in model._source_priors())
    known = replace(model.source_moments_, classes=tuple(model.classes_.tolist()))  # classes may have been renamed
    wider.source_moments_ = known.over(tuple(classes.tolist()))
    wider.source_head_ = _head(model.source_head_, classes, places)
    return wider


def _union(known: np.ndarray, y: np.ndarray) -> np.ndarray:
    """All classes, sorted. NumPy would turn numbers into text where both occur: such labels are a mistake."""
    names = np.array(y.tolist())
    if (known.dtype.kind in "UO") != (names.dtype.kind in "UO"):
        raise ValueError(
            f"y_target has labels such as {names.tolist()[0]!r}, the source has classes such as "
            f"{known.tolist()[0]!r}: write both as text, or both as numbers."
        )
    return np.union1d(known, names)


def class_shares(weight: np.ndarray) -> np.ndarray:
    """How common classes are: one without source rows is taken to be as common as the others are on average."""
    weight = np.where(weight > 0, weight, weight[weight > 0].mean())
    return np.asarray(weight / weight.sum())


def _head(head: LinearClassifier, classes: np.ndarray, places: list[int]) -> LinearClassifier:
    """The source head among all classes: it never answers with one that it does not know."""
    xp = array_namespace(head.coef_)
    coef = spread_classes(head.coef_[None, ...], places, len(classes))[0, ...]
    intercept = spread_classes(head.intercept_[None, ...], places, len(classes))[0, ...]
    never = [0.0 if k in places else -float("inf") for k in range(len(classes))]
    intercept = intercept + xp.asarray(never, dtype=intercept.dtype, device=device(intercept))
    return LinearClassifier.from_arrays(classes, coef, intercept, unit=head.unit_rows_)
