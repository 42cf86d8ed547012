"""What every adapted model is in the end: one affine map and a softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pro2.estimators.files import FileMixin
from pro2.estimators.validation import check_X
from pro2.linalg.moments import Array, host


def unit_rows(X: Array) -> Array:
    """Rows divided by their length; zero rows stay zero."""
    xp = array_namespace(X)
    length = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
    return X / xp.where(length > 0, length, xp.ones_like(length))


class AffineMixin(FileMixin, ClassifierMixin):
    """predict, predict_proba and decision_function from `coef_`, `intercept_` and `classes_`.

    Two classes: coef_ (1, D), intercept_ (1,). K > 2: coef_ (K, D), intercept_ (K,). With `unit_rows_` true, rows are
    scaled to length one first, and the map acts on those.
    """

    classes_: np.ndarray
    coef_: Array
    intercept_: Array
    unit_rows_: bool = False

    def decision_function(self, X: Any) -> Array:
        """Logits: (n,) for two classes, (n, K) for more."""
        check_is_fitted(self, "coef_")
        X = check_X(self, X, reset=False)
        xp = array_namespace(X)
        X = unit_rows(X) if self.unit_rows_ else X
        coef = xp.astype(self.coef_, X.dtype) if hasattr(self.coef_, "dtype") else self.coef_
        logits = X @ xp.matrix_transpose(coef) + xp.astype(self.intercept_, X.dtype)
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, (n, K)."""
        f = self.decision_function(X)
        xp = array_namespace(f)
        if f.ndim == 1:
            f = xp.stack([xp.zeros_like(f), f], axis=1)
        e = xp.exp(f - xp.max(f, axis=1, keepdims=True))
        return e / xp.sum(e, axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Label of the most probable class, as a NumPy array of the caller's own labels."""
        f = self.decision_function(X)
        xp = array_namespace(f)
        codes = xp.astype(f > 0, xp.int64) if f.ndim == 1 else xp.argmax(f, axis=1)
        return self.classes_[host(codes)]


class LinearClassifier(AffineMixin, BaseEstimator):
    """A fitted linear classifier in the original embedding space: what `adapt` returns.

    Attributes
    ----------
    classes_ : array (K,)
    coef_ : array (1, D) or (K, D)
    intercept_ : array (1,) or (K,)
    """

    @classmethod
    def from_arrays(cls, classes: np.ndarray, coef: Array, intercept: Array, *, unit: bool = False) -> LinearClassifier:
        """Wrap a head: coef (D,) or (1, D) with a scalar intercept for two classes, (K, D) and (K,) for more."""
        self = cls()
        xp = array_namespace(coef)
        self.classes_ = np.asarray(classes)
        self.coef_ = coef[None, :] if coef.ndim == 1 else coef
        self.intercept_ = xp.reshape(xp.asarray(intercept, dtype=coef.dtype, device=device(coef)), (-1,))
        self.unit_rows_ = unit
        self.n_features_in_ = int(self.coef_.shape[1])
        return self

    def fit(self, X: Any = None, y: Any = None) -> LinearClassifier:
        """Not to be fitted: it is made by `adapt`."""
        raise TypeError("LinearClassifier is made by `adapt(X_target, y_target)`; fit ProjectAndProbe instead.")
