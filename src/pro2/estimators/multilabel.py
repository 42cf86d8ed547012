"""Many yes-or-no labels at once: one pass over the source and one factorisation for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pro2.estimators.adaptation import AveragedFit
from pro2.estimators.base import check_weight, check_X, naming
from pro2.estimators.files import FileMixin
from pro2.estimators.linear import LinearClassifier
from pro2.estimators.moments import SourceMoments
from pro2.estimators.project_and_probe import DerivedMixin, prior_scales
from pro2.estimators.projection import check_family
from pro2.estimators.report import AdaptationReport, ReportInputs
from pro2.linalg.arrays import to_numpy
from pro2.linalg.covariance import LowRankCovariance
from pro2.linalg.labelled import SAMPLING, Labelled
from pro2.linalg.prior import PriorFamily, SourcePrior

YES_NO = np.array([0, 1])


@dataclass(frozen=True, repr=False)
class MultiLabelReport:
    """The reports of all labels of a `MultiLabelClassifier`; ``report["Smiling"]`` is that of one.

    Attributes
    ----------
    reports : dict of label to AdaptationReport or None
        None for a label that no target row has: it kept its source head.
    """

    reports: dict[Any, AdaptationReport | None]

    def __getitem__(self, label: Any) -> AdaptationReport | None:
        return self.reports[label]

    def verdict(self) -> str:
        """All labels in one sentence."""
        judged = [each for each in self.reports.values() if each is not None and not each.withheld]
        if not judged:
            return f"No accuracy estimate for any of the {len(self.reports)} labels."
        after, before = (100 * np.mean([getattr(r, name) for r in judged]) for name in ("accuracy", "source_accuracy"))
        some = f"{len(judged)} of {len(self.reports)} labels" if len(judged) < len(self.reports) else "all labels"
        return f"held-out accuracy {after:.1f}% on average over {some}, source heads {before:.1f}%"

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists only, for JSON."""
        return {str(name): None if each is None else each.to_dict() for name, each in self.reports.items()}

    def __str__(self) -> str:
        header: tuple[str, ...] = ("label", "yes", "no", "held-out accuracy", "source head")
        rows = [header, *(_row(str(name), each) for name, each in self.reports.items())]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(f"{cell:{side}{w}}" for cell, side, w in zip(row, "<>><>", widths)) for row in rows]
        return "\n".join([self.verdict(), *(line.rstrip() for line in lines)])

    __repr__ = __str__


def _row(name: str, report: AdaptationReport | None) -> tuple[str, ...]:
    """Name of a label, how many labelled rows say yes and no, and both accuracies."""
    if report is None:
        return name, "0", "0", "no label: source head", ""
    no, yes = report.counts
    low, high = (100 * v for v in report.accuracy_interval)
    figure = "not known" if report.withheld else f"{100 * report.accuracy:.1f}% ({low:.0f} to {high:.0f})"
    return name, str(yes), str(no), figure, f"{100 * report.source_accuracy:.1f}%"


class MultiLabelMixin(FileMixin, ClassifierMixin):
    """Answers in the shapes of scikit-learn's multi-label classifiers, from one head per label in `estimators_`."""

    estimators_: tuple[LinearClassifier, ...]
    labels_: np.ndarray

    @property
    def classes_(self) -> list[np.ndarray]:
        """For each label its two values, as scikit-learn's `MultiOutputClassifier` has them."""
        check_is_fitted(self, "estimators_")
        return [YES_NO] * len(self.estimators_)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits, (n, T), as of `ClassifierChain` and `OneVsRestClassifier`."""
        check_is_fitted(self, "estimators_")
        X = to_numpy(check_X(self, X, reset=False)).astype(np.float64)
        coef = np.concatenate([each.coef_ for each in self.estimators_])
        return np.asarray(X @ coef.T + np.concatenate([each.intercept_ for each in self.estimators_]))

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """For each label, the probabilities of 0 and 1, (n, 2), as of `MultiOutputClassifier`."""
        return [np.stack([1.0 - p, p], axis=1) for p in expit(self.decision_function(X)).T]

    def predict(self, X: Any) -> np.ndarray:
        """0 or 1 for each label, (n, T)."""
        return (self.decision_function(X) > 0).astype(int)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows all of whose known labels are right, as scikit-learn has it."""
        found = self.predict(X)
        Y = label_matrix(y, len(found), "y")[0]
        right = np.all((found == Y) | np.isnan(Y), axis=1)
        return float(np.average(right, weights=check_weight(sample_weight, found)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output, tags.target_tags.multi_output = False, True
        tags.classifier_tags.multi_label = True
        return tags


class MultiLabelClassifier(MultiLabelMixin, BaseEstimator):
    """What `MultiLabelProjectAndProbe.adapt` returns: one `LinearClassifier` per label, with its report.

    Attributes
    ----------
    estimators_ : tuple of LinearClassifier
    labels_ : array (T,)
        Names of the labels.
    """

    @property
    def report_(self) -> MultiLabelReport:
        """What the labelled rows say, label by label."""
        check_is_fitted(self, "estimators_")
        reports = [getattr(each, "report_", None) for each in self.estimators_]
        return MultiLabelReport(dict(zip(self.labels_.tolist(), reports)))

    def fit(self, X: Any = None, y: Any = None) -> MultiLabelClassifier:
        """Not to be fitted: it is made by `adapt`."""
        raise TypeError("MultiLabelClassifier is made by `adapt`; fit MultiLabelProjectAndProbe instead.")


class MultiLabelProjectAndProbe(DerivedMixin, MultiLabelMixin, BaseEstimator):
    """`ProjectAndProbe` for a matrix of 0/1 labels: averaged Pro2 for each column, a fraction of the time.

    Parameters
    ----------
    priors, label_sampling
        As in `ProjectAndProbe`.

    Attributes
    ----------
    labels_ : array (T,)
        Their names.
    estimators_ : tuple of LinearClassifier
        The source head of each label.
    source_moments_ : SourceMoments
        Of all rows as one class: what all labels share.
    means_, shares_, known_ : arrays (T, 2, D), (T,), (T,)
        Class means of each label, the share of yes among the rows where it is known, and the share of those rows.

    Notes
    -----
    The covariance is that of all rows, also for a label that some of them lack. NaN marks a missing label. All labels
    share one eigendecomposition.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 6))
    >>> Y = (X[:, :3] + 0.3 * rng.normal(size=(300, 3)) > 0).astype(int)
    >>> model = MultiLabelProjectAndProbe().fit(X[:200], Y[:200])
    >>> len(model.adapt(X[200:220], Y[200:220]).predict_proba(X[220:]))
    3
    """

    def __init__(self, priors: PriorFamily | None = None, label_sampling: str = "auto"):
        self.priors = priors
        self.label_sampling = label_sampling

    def fit(self, X: Any, y: Any, *, labels: Sequence[Any] | None = None) -> MultiLabelProjectAndProbe:
        """Learn from source rows.

        Parameters
        ----------
        X : array (n, D)
        y : array (n, T) or data frame
            0, 1, or NaN for a missing label; each label needs rows with 0 and with 1.
        labels : sequence of T names, optional
            By default the names of a frame's columns, else 0, 1, ...
        """
        if self.label_sampling not in SAMPLING:
            raise ValueError(f"label_sampling must be one of {SAMPLING}, got {self.label_sampling!r}.")
        check_family(self.priors)
        X = to_numpy(check_X(self, X, reset=True))
        Y, self.labels_ = label_matrix(y, len(X), "y", labels)
        self.means_, self.shares_ = _label_means(X, Y, self.labels_)
        self.known_ = (~np.isnan(Y)).mean(axis=0)
        self.source_moments_ = SourceMoments.from_arrays(X, np.zeros(len(X), dtype=int))
        self._derived.clear()
        self.estimators_  # noqa: B018  made now, so that the first `adapt` is as fast as any
        return self

    @property
    def estimators_(self) -> tuple[LinearClassifier, ...]:
        """The source heads; in a model from a file made from the moments when they are first needed."""
        check_is_fitted(self, "means_")
        if "heads" not in self._derived:
            heads = self._derived["heads"] = []
            for t in range(len(self.labels_)):
                coef, intercept = self.label_priors(t)[0].source_head(self._class_shares(t))
                heads.append(LinearClassifier.from_arrays(YES_NO, coef, intercept, like=coef))
        return tuple(self._derived["heads"])

    def adapt(self, X_target: Any, y_target: Any) -> MultiLabelClassifier:
        """Fit each label to the target rows that have it; a label that no row has keeps its source head."""
        check_is_fitted(self, "estimators_")
        X = to_numpy(check_X(self, X_target, reset=False, name="X_target"))
        Y, names = label_matrix(y_target, len(X), "y_target")
        if Y.shape[1] != len(self.labels_):
            raise ValueError(f"y_target has {Y.shape[1]} columns, the source has {len(self.labels_)} labels.")
        if hasattr(y_target, "columns") and names.tolist() != self.labels_.tolist():
            raise ValueError(
                f"y_target has columns {names.tolist()[:5]}, the source has labels {self.labels_.tolist()[:5]}: "
                "give the same columns in the same order."
            )
        adapted = MultiLabelClassifier()
        for name in ("n_features_in_", "feature_names_in_", "labels_"):
            if hasattr(self, name):
                setattr(adapted, name, getattr(self, name))
        adapted.estimators_ = tuple(self._adapted(t, X, Y[:, t]) for t in range(Y.shape[1]))
        return adapted

    def _adapted(self, t: int, X: np.ndarray, y: np.ndarray) -> LinearClassifier:
        known = ~np.isnan(y)
        if not known.any():
            return self.estimators_[t]
        labelled = Labelled.of(X[known], y[known].astype(int))
        priors = self.label_priors(t)
        fit = AveragedFit.of(priors, self._class_shares(t), self.label_sampling, labelled)
        inputs = ReportInputs(fit, priors[0], self.estimators_[t].scores_head(), self.label_sampling)
        return LinearClassifier.from_arrays(YES_NO, *fit.head, like=X, inputs=inputs)

    def _class_shares(self, t: int) -> np.ndarray:
        return np.array([1.0 - self.shares_[t], self.shares_[t]])

    def label_priors(self, t: int) -> tuple[SourcePrior, ...]:
        """What `ProjectAndProbe` would learn of the t-th label alone, one prior for each scale."""
        check_is_fitted(self, "means_")
        # of the covariance of all rows a part lies between the two values of the label; as equally common classes
        # they would have d d' / 4, and rows that lack the label lie within them
        weight = self.known_[t] * self.source_moments_.total_weight * self._class_shares(t)
        between = float(self.known_[t] * self.shares_[t] * (1.0 - self.shares_[t]))
        family, priors = check_family(self.priors), []
        if "spectra" not in self._derived:  # eigenvalues and eigenvectors of the covariance of scaled rows
            spectra = self._derived["spectra"] = []
            for scale in prior_scales(self.source_moments_, "auto"):
                values, vectors = np.linalg.eigh(self.source_moments_.covariance() / scale[:, None] / scale)
                spectra.append((scale, np.maximum(values, 0.0), vectors))
        for scale, values, vectors in self._derived["spectra"]:
            mean = self.means_[t] / scale
            step = mean[1] - mean[0]
            row = math.sqrt(0.25 - between) * step[None]
            second_moments = LowRankCovariance(row, family.ridge, values, vectors)
            priors.append(SourcePrior.of(scale, mean, second_moments, family, weight))
        return tuple(priors)


def label_matrix(y: Any, n: int, name: str, labels: Sequence[Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(n, T) of 0, 1 and NaN, and the names of its columns."""
    with naming(name):
        values = y.to_numpy(dtype=np.float64, na_value=np.nan) if hasattr(y, "iloc") else to_numpy(y)
        Y = np.asarray(values, dtype=np.float64)
    if Y.ndim != 2 or len(Y) != n or not Y.shape[1]:
        raise ValueError(f"{name} has shape {Y.shape}: a matrix of 0 and 1 with {n} rows, one column per label.")
    odd = Y[~np.isnan(Y) & (Y != 0) & (Y != 1)]
    if len(odd):
        raise ValueError(f"{name} has the value {odd[0]:g}: labels are 0, 1, or NaN for a missing one.")
    names = list(labels if labels is not None else getattr(y, "columns", range(Y.shape[1])))
    if len(names) != Y.shape[1] or len(set(names)) < len(names):
        raise ValueError(f"labels must be {Y.shape[1]} different names, one per column of {name}, got {names[:5]}.")
    return Y, np.asarray(names)


def _label_means(X: np.ndarray, Y: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Class means (T, 2, D) and shares of ones (T,) of all labels: one product with the rows for each value."""
    counts = np.stack([(Y == 0).sum(axis=0), (Y == 1).sum(axis=0)])
    if not counts.all():
        t = names.tolist()[int(np.flatnonzero(~counts.all(axis=0))[0])]
        raise ValueError(f"column {t!r} of y has one value only: a label needs source rows with 0 and with 1.")
    middle = X.mean(axis=0, dtype=np.float64)  # taken out first: sums of large means would lose digits
    Z = X - middle
    sums = [np.equal(Y, k).T.astype(np.float64) @ Z for k in YES_NO]
    means = np.stack([each / n[:, None] + middle for each, n in zip(sums, counts)], axis=1)
    return means, counts[1] / counts.sum(axis=0)
