"""Where labelling starts from: a source model, or nothing but the unlabelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pro2.active import suggest_labels
from pro2.estimators.linear import LinearClassifier
from pro2.label.pool import Pool

_LOOK = 2048  # rows that stand for a larger pool


class Start(Protocol):
    """What a refit needs: classifiers from labels, and rows worth a label."""

    classes: list[str]

    def adapt(self, X: np.ndarray, labels: Sequence[str]) -> LinearClassifier | None:
        """The classifier after these labels; None while there is nothing to go by."""
        ...

    def suggest(self, X: np.ndarray, n: int, adapted: LinearClassifier | None, X_labeled: np.ndarray) -> np.ndarray:
        """Row numbers of X whose labels would teach most, best first."""
        ...


def start_model(model: Any, pool: Pool, classes: Sequence[str] = ()) -> Start:
    """Start from a fitted `ProjectAndProbe`, or without one from the classes' names and unlabelled rows alone."""
    rows = np.unique(np.linspace(0, len(pool) - 1, _LOOK).astype(int))
    nothing = FromNothing(pool.take(rows), list(classes))
    return nothing if model is None else FromModel(model, nothing)


class FromModel:
    """Labels adapt a source model.

    Class names are text on the page; the model keeps the values it was fitted with.
    """

    def __init__(self, model: Any, fallback: FromNothing) -> None:
        self.model, self._fallback = model, fallback
        self._values = {str(value): value for value in model.classes_.tolist()}
        self.classes = list(self._values)

    def adapt(self, X: np.ndarray, labels: Sequence[str]) -> LinearClassifier | None:
        if not len(labels):
            return self.model.source_head_
        if not set(labels) <= set(self._values):
            return self._fallback.adapt(X, labels)
        return self.model.adapt(X, np.array([self._values[name] for name in labels]))

    def suggest(self, X: np.ndarray, n: int, adapted: LinearClassifier | None, X_labeled: np.ndarray) -> np.ndarray:
        known = X_labeled if len(X_labeled) else None
        return suggest_labels(self.model, X, n, adapted, random_state=0, X_labeled=known)


class FromNothing:
    """Labels fit a softmax on standardised embeddings; before the first, rows are spread over the pool."""

    def __init__(self, X: np.ndarray, classes: list[str]) -> None:
        some = np.asarray(X, dtype=np.float64)
        self.classes, self._mean = classes, some.mean(axis=0)
        self._scale = np.maximum(some.std(axis=0), 1e-3 * max(some.std(), 1e-12))

    def adapt(self, X: np.ndarray, labels: Sequence[str]) -> LinearClassifier | None:
        from sklearn.linear_model import LogisticRegression

        names = sorted(set(labels))
        if not names:
            return None
        if len(names) == 1:  # all we know is one class
            return LinearClassifier.from_arrays(np.array(names), np.zeros((1, X.shape[1])), np.zeros(1))
        head = LogisticRegression(C=1.0 / X.shape[1] ** 0.5, max_iter=500).fit((X - self._mean) / self._scale, labels)
        coef = head.coef_ / self._scale
        return LinearClassifier.from_arrays(head.classes_, coef, head.intercept_ - coef @ self._mean)

    def suggest(self, X: np.ndarray, n: int, adapted: LinearClassifier | None, X_labeled: np.ndarray) -> np.ndarray:
        from sklearn.cluster import kmeans_plusplus

        rows = np.arange(len(X))
        if adapted is not None and len(adapted.classes_) > 1:
            sure = np.asarray(adapted.predict_proba(np.asarray(X, dtype=np.float64))).max(axis=1)
            rows = np.argsort(sure, kind="stable")[: 4 * n]
        Z = (X[rows] - self._mean) / self._scale
        return rows[kmeans_plusplus(Z, n, random_state=0, n_local_trials=1)[1]]
