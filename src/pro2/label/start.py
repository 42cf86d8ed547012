"""Where labelling starts from: a source model, or nothing but the unlabelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from pro2.active import suggest_labels
from pro2.estimators.linear import LinearClassifier
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.label.pool import Pool

_LOOK = 2048  # rows that stand for a larger pool
_UNNAMED = ("first", "second")  # which rows to label does not depend on the names of the classes


class Start:
    """What a refit needs: classifiers from labels, and rows worth a label."""

    classes: list[str]
    model: Any  # ProjectAndProbe

    def adapt(self, X: np.ndarray, labels: Sequence[str]) -> LinearClassifier | None:
        """The classifier after these labels; None while there is nothing to go by."""
        raise NotImplementedError

    def suggest(self, X: np.ndarray, n: int, adapted: LinearClassifier | None, X_labeled: np.ndarray) -> np.ndarray:
        """Row numbers of X whose labels would teach most, best first."""
        known = adapted if adapted is not None and len(adapted.classes_) > 1 else None  # one class teaches nothing
        labeled = X_labeled if len(X_labeled) else None
        return suggest_labels(self.model, X, n, known, random_state=0, X_labeled=labeled)


def start_model(model: Any, pool: Pool, classes: Sequence[str] = ()) -> Start:
    """Start from a fitted `ProjectAndProbe`, or without one from the classes' names and unlabelled rows alone."""
    if model is not None:
        return FromModel(model)
    rows = np.unique(np.linspace(0, len(pool) - 1, _LOOK).astype(int))
    return FromNothing(pool.take(rows), list(classes))


class FromModel(Start):
    """Labels adapt a source model.

    Class names are text on the page; the model keeps the values it was fitted with, until a class comes up that it does
    not have: from then on all are text.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._values = {str(value): value for value in model.classes_.tolist()}
        self.classes = list(self._values)
        self._as_text = _renamed(model, self.classes)

    def adapt(self, X: np.ndarray, labels: Sequence[str]) -> LinearClassifier | None:
        if not len(labels):
            return self.model.source_head_
        if not set(labels) <= set(self._values):
            return self._as_text.adapt(X, np.array(labels), new_classes="allow")
        return self.model.adapt(X, np.array([self._values[name] for name in labels]))


class FromNothing(Start):
    """Labels adapt a model that knows the rows and no class; before the first there is no classifier."""

    def __init__(self, X: np.ndarray, classes: list[str]) -> None:
        self.classes, self._rows = classes, X

    @cached_property
    def model(self) -> Any:
        return ProjectAndProbe.from_unlabeled(self._rows, _UNNAMED, n_components=1)

    def adapt(self, X: np.ndarray, labels: Sequence[str]) -> LinearClassifier | None:
        names = sorted(set(labels))
        if not names:
            return None
        if len(names) == 1:  # all we know is one class
            return LinearClassifier.from_arrays(np.array(names), np.zeros((1, X.shape[1])), np.zeros(1))
        return _renamed(self.model, names[:2]).adapt(X, np.array(labels), new_classes="allow")


def _renamed(model: Any, classes: list[str]) -> Any:
    same = copy(model)
    same.classes_ = np.array(classes)
    return same
