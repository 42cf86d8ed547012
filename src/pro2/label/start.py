"""Where labelling starts from: a source model, or nothing but the unlabelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from pro2.active import suggest_labels
from pro2.estimators.linear import LinearClassifier
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.label.pool import Pool

_LOOK = 2048  # rows that stand for a larger pool
_UNNAMED = ("first", "second")  # which rows to label does not depend on the names of the classes


class Start:
    """What a refit needs: classifiers from labels, and rows worth a label.

    Class names are text on the page; a source model keeps the values it was fitted with, until a class comes up that it
    does not have: from then on all are text.

    Parameters
    ----------
    model : ProjectAndProbe
    classes : sequence of str, optional
        Their names, for a model that knows the rows and no class; by default the source's.
    """

    def __init__(self, model: Any, classes: Sequence[str] | None = None) -> None:
        self.model = model
        self._values = {str(value): value for value in model.classes_.tolist()} if classes is None else {}
        self.classes = list(self._values if classes is None else classes)
        self._as_text = _renamed(model, self.classes)

    def adapt(self, X: np.ndarray, labels: Sequence[str]) -> LinearClassifier | None:
        """The classifier after these labels; None while there is nothing to go by."""
        names = sorted(set(labels))
        if not names:
            return self.model.source_head_ if self._values else None
        if set(names) <= set(self._values):
            return self.model.adapt(X, np.array([self._values[name] for name in labels]))
        if len(names) == 1 and not self._values:  # all we know is one class
            return LinearClassifier.from_arrays(np.array(names), np.zeros((1, X.shape[1])), np.zeros(1))
        start = self._as_text if self._values else _renamed(self.model, names[:2])
        return start.adapt(X, np.array(labels), new_classes="allow")

    def suggest(self, X: np.ndarray, n: int, adapted: LinearClassifier | None, X_labeled: np.ndarray) -> np.ndarray:
        """Row numbers of X whose labels would teach most, best first."""
        known = adapted if adapted is not None and len(adapted.classes_) > 1 else None  # one class teaches nothing
        labeled = X_labeled if len(X_labeled) else None
        return suggest_labels(self.model, X, n, known, random_state=0, X_labeled=labeled)


def start_model(model: Any, pool: Pool, classes: Sequence[str] = ()) -> Start:
    """Start from a fitted `ProjectAndProbe`, or without one from the classes' names and unlabelled rows alone."""
    if model is not None:
        return Start(model)
    rows = np.unique(np.linspace(0, len(pool) - 1, _LOOK).astype(int))
    return Start(ProjectAndProbe.from_unlabeled(pool.take(rows), _UNNAMED, n_components=1), classes)


def _renamed(model: Any, classes: Sequence[str]) -> Any:
    same = copy(model)
    same.classes_ = np.array(classes)
    return same
