"""Many yes-or-no labels at once: one pass over the source and one factorisation for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pro2.estimators.adaptation import Default
from pro2.estimators.linear import LinearClassifier
from pro2.estimators.moments import SourceMoments
from pro2.estimators.projection import DEFAULT_RIDGE, input_scale
from pro2.estimators.validation import check_X
from pro2.linalg.average import SAMPLING, Labels
from pro2.linalg.label_priors import LabelMeans, Spectrum, label_head, label_prior
from pro2.linalg.moments import host
from pro2.linalg.priors import PriorFamily

YES_NO = np.array([0, 1])


class MultiLabelMixin(ClassifierMixin):
    """Answers in the shapes of scikit-learn's `MultiOutputClassifier`, from one head per label in `estimators_`."""

    estimators_: list[LinearClassifier]

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits, (n, T)."""
        check_is_fitted(self, "estimators_")
        X = host(check_X(self, X, reset=False)).astype(np.float64)
        coef = np.concatenate([each.coef_ for each in self.estimators_])
        return np.asarray(X @ coef.T + np.concatenate([each.intercept_ for each in self.estimators_]))

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """For each label, the probabilities of 0 and 1, (n, 2)."""
        yes = 0.5 * (1.0 + np.tanh(0.5 * self.decision_function(X)))
        return [np.stack([1.0 - p, p], axis=1) for p in yes.T]

    def predict(self, X: Any) -> np.ndarray:
        """0 or 1 for each label, (n, T)."""
        return (self.decision_function(X) > 0).astype(int)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows all of whose labels are right, as scikit-learn has it."""
        return float(np.average(np.all(self.predict(X) == np.asarray(y), axis=1), weights=sample_weight))


class MultiLabelClassifier(MultiLabelMixin, BaseEstimator):
    """What `MultiLabelProjectAndProbe.adapt` returns: one `LinearClassifier` per label, with its report."""

    def fit(self, X: Any = None, y: Any = None) -> MultiLabelClassifier:
        """Not to be fitted: it is made by `adapt`."""
        raise TypeError("MultiLabelClassifier is made by `adapt`; fit MultiLabelProjectAndProbe instead.")


class MultiLabelProjectAndProbe(MultiLabelMixin, BaseEstimator):
    """`ProjectAndProbe` for a matrix of 0/1 labels: the same default for each column, a fraction of the time.

    Parameters
    ----------
    ridge, priors, label_sampling
        As in `ProjectAndProbe`.

    Attributes
    ----------
    estimators_ : list of LinearClassifier
        The source head of each label.
    priors_ : list of tuples of SourcePrior

    Notes
    -----
    The covariance is that of all rows, also for a label that some of them lack. NaN marks a missing label.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 6))
    >>> Y = (X[:, :3] + 0.3 * rng.normal(size=(300, 3)) > 0).astype(int)
    >>> model = MultiLabelProjectAndProbe().fit(X[:200], Y[:200])
    >>> len(model.adapt(X[200:220], Y[200:220]).predict_proba(X[220:]))
    3
    """

    def __init__(self, ridge: float = DEFAULT_RIDGE, priors: PriorFamily | None = None, label_sampling: str = "auto"):
        self.ridge = ridge
        self.priors = priors
        self.label_sampling = label_sampling

    def fit(self, X: Any, y: Any) -> MultiLabelProjectAndProbe:
        """Learn from source rows X (n, D) and labels y (n, T) of 0, 1 and NaN; both values of each label are needed."""
        if self.label_sampling not in SAMPLING:
            raise ValueError(f"label_sampling must be one of {SAMPLING}, got {self.label_sampling!r}.")
        X = host(check_X(self, X, reset=True))
        Y = _label_matrix(y, len(X), "y")
        family = PriorFamily() if self.priors is None else self.priors
        labels = _label_means(X, Y)
        covariance = SourceMoments.from_arrays(X, np.zeros(len(X), dtype=int)).covariance()
        spectra = [Spectrum.of(covariance, input_scale(np.diagonal(covariance), scale)) for scale in family.scales]
        named = list(zip(spectra, family.scales))
        self.priors_ = [tuple(label_prior(s, each, family, self.ridge, name) for s, name in named) for each in labels]
        self.shares_ = np.array([each.share for each in labels])
        heads = [label_head(spectra[0], each, self.ridge) for each in labels]
        self.estimators_ = [LinearClassifier.from_arrays(YES_NO, w, np.array(b)) for w, b in heads]
        self.classes_ = [YES_NO] * len(labels)
        return self

    def adapt(self, X_target: Any, y_target: Any) -> MultiLabelClassifier:
        """Fit each label to the target rows that have it; a label that no row has keeps its source head."""
        check_is_fitted(self, "priors_")
        X = host(check_X(self, X_target, reset=False, name="X_target"))
        Y = _label_matrix(y_target, len(X), "y_target")
        if Y.shape[1] != len(self.priors_):
            raise ValueError(f"y_target has {Y.shape[1]} columns, the source has {len(self.priors_)} labels.")
        adapted = MultiLabelClassifier()
        adapted.n_features_in_, adapted.classes_ = self.n_features_in_, self.classes_
        adapted.estimators_ = [self._adapted(t, X, Y[:, t]) for t in range(Y.shape[1])]
        return adapted

    def _adapted(self, t: int, X: np.ndarray, y: np.ndarray) -> LinearClassifier:
        known = ~np.isnan(y)
        if not known.any():
            return self.estimators_[t]
        shares = np.array([1.0 - self.shares_[t], self.shares_[t]])
        how = Default(self.priors_[t], shares, self.label_sampling, self.estimators_[t])
        return how.adapt(YES_NO, Labels.of(X[known], y[known].astype(int)), None)[0]


def _label_matrix(y: Any, n: int, name: str) -> np.ndarray:
    """(n, T) of 0, 1 and NaN."""
    Y = np.asarray(y, dtype=np.float64)
    if Y.ndim != 2 or len(Y) != n or not Y.shape[1]:
        raise ValueError(f"{name} has shape {Y.shape}: a matrix of 0 and 1 with {n} rows, one column per label.")
    odd = Y[~np.isnan(Y) & (Y != 0) & (Y != 1)]
    if len(odd):
        raise ValueError(f"{name} has the value {odd[0]:g}: labels are 0, 1, or NaN for a missing one.")
    return Y


def _label_means(X: np.ndarray, Y: np.ndarray) -> list[LabelMeans]:
    """Class means of all labels, one product with the rows for each value."""
    counts = np.stack([(Y == 0).sum(axis=0), (Y == 1).sum(axis=0)])
    if not counts.all():
        t = int(np.flatnonzero(~counts.all(axis=0))[0])
        raise ValueError(f"column {t} of y has one value only: a label needs source rows with 0 and with 1.")
    middle = X.mean(axis=0, dtype=np.float64)  # taken out first: sums of large means would lose digits
    Z = X - middle
    sums = [np.equal(Y, k).T.astype(np.float64) @ Z for k in YES_NO]
    means = np.stack([each / n[:, None] + middle for each, n in zip(sums, counts)], axis=1)
    return [LabelMeans(mean, float(share)) for mean, share in zip(means, counts[1] / counts.sum(axis=0))]
