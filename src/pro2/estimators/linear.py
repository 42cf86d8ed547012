"""What every adapted model is in the end, one affine map and a softmax; and the contract of methods that return one."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Self, TypeVar

import numpy as np
from array_api_compat import array_namespace, device
from sklearn.base import BaseEstimator, ClassifierMixin

from pro2.estimators.base import (
    NEW_CLASS,
    check_classes,
    check_fitted,
    check_labels,
    check_weight,
    check_X,
    encode_known,
    split_domains,
    table_rows,
    take_rows,
)
from pro2.estimators.files import FileMixin
from pro2.estimators.report import AdaptationReport, Head, ReportInputs
from pro2.linalg.arrays import Array, asarray_like, both_scores, to_numpy
from pro2.linalg.labelled import row_hashes, short_hashes
from pro2.linalg.logistic import probabilities

Part = TypeVar("Part", bound=Any)


def unit_rows(X: Array) -> Array:
    """Rows divided by their length; zero rows stay zero."""
    xp = array_namespace(X)
    largest = xp.max(xp.abs(X), axis=1, keepdims=True)  # first, so that no square overflows
    X = X / xp.where(largest > 0, largest, xp.ones_like(largest))
    length = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
    return X / xp.where(length > 0, length, xp.ones_like(length))


def affine(X: Array, coef: Array, intercept: Array) -> Array:
    """Scores (M, K') of rows X (M, D) under a head (K', D), (K'), in the type of X where they fit, else in float64."""
    xp = array_namespace(X)
    with np.errstate(over="ignore", invalid="ignore"):
        F = X @ xp.matrix_transpose(xp.astype(coef, X.dtype)) + xp.astype(intercept, X.dtype)
    if X.dtype == xp.float64 or bool(xp.all(xp.isfinite(F))):
        return F
    return affine(xp.astype(X, xp.float64), coef, intercept)


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
        check_fitted(self, "coef_")
        return self._logits(check_X(self, X, reset=False))

    def _logits(self, X: Array) -> Array:
        """The same for rows that are checked."""
        X = unit_rows(X) if self.unit_rows_ else X
        logits = affine(X, asarray_like(self.coef_, X), asarray_like(self.intercept_, X))
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, (n, K)."""
        f = self.decision_function(X)
        return probabilities(f[:, None] if f.ndim == 1 else f)

    def predict(self, X: Any) -> np.ndarray:
        """Label of the most probable class, as a NumPy array of the caller's own labels."""
        f = self.decision_function(X)
        xp = array_namespace(f)
        codes = xp.astype(f > 0, xp.int64) if f.ndim == 1 else xp.argmax(f, axis=1)
        return self.classes_[to_numpy(codes)]

    def _named(self, part: Part) -> Part:
        """With the names of this one's columns, so that a frame in another order is noticed."""
        if hasattr(self, "feature_names_in_"):
            part.feature_names_in_ = self.feature_names_in_
        return part


class LinearClassifier(AffineMixin, BaseEstimator):
    """A fitted linear classifier in the original embedding space: what `adapt` returns.

    Attributes
    ----------
    classes_ : array (K,)
    coef_ : array (1, D) or (K, D)
    intercept_ : array (1,) or (K,)
    """

    _inputs: ReportInputs | None = None
    _report: AdaptationReport | None = None

    @property
    def report_(self) -> AdaptationReport:
        """What the labels say about this classifier; made when it is first asked for, or before a copy is made."""
        if self._report is None:
            if self._inputs is None:
                raise AttributeError("report_ exists after an adaptation: this classifier was not made by adapt.")
            self._report = self._inputs.report(self)
        return self._report

    @report_.setter
    def report_(self, report: AdaptationReport) -> None:
        self._report = report

    def __getstate__(self) -> Any:
        if self._inputs is not None:
            self.report_  # noqa: B018  the report is small and plain, what it is made from is neither
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_inputs"}

    @classmethod
    def from_arrays(
        cls, classes: np.ndarray, coef: Array, intercept: Array, *, like: Array | None = None, unit: bool = False,
        inputs: ReportInputs | None = None,
    ) -> LinearClassifier:  # fmt: skip
        """Wrap a head: a row of coefficients and an intercept for each class, or of two classes for their one logit.

        It is put where the array `like` is. `inputs` is what the report of an adaptation is made from.
        """
        self = cls()
        self._inputs = inputs
        xp = array_namespace(coef)
        coef = coef[None, :] if coef.ndim == 1 else coef
        intercept = xp.reshape(xp.asarray(intercept, dtype=coef.dtype, device=device(coef)), (-1,))
        if len(classes) == coef.shape[0] == 2:
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        self.classes_ = np.asarray(classes)
        self.coef_, self.intercept_ = (asarray_like(part, coef if like is None else like) for part in (coef, intercept))
        self.unit_rows_ = unit
        self.n_features_in_ = int(self.coef_.shape[1])
        return self

    def scores_head(self) -> Head:
        """One score for each class, (K, D) and (K,), also for two classes, in NumPy."""
        coef, intercept = to_numpy(self.coef_), to_numpy(self.intercept_)
        if len(coef) > 1:
            return coef, intercept
        return both_scores(coef[0], 0), both_scores(intercept[0], 0)

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Sets of classes, (n, K) of bool in the order of `classes_`, that hold the true class as often as asked.

        A class is in the set of a row if its probability is no lower than the held-out probability of the labels of all
        but a share 1 - coverage of the labelled rows (conformal prediction; Vovk et al. 2005, Barber et al. 2021), with
        classes as common as assumed on the target. The most probable class is always in the set. With fewer than
        coverage / (1 - coverage) labels, all classes are.

        Parameters
        ----------
        X : array (n, D)
        coverage : float in (0, 1)
            Share of new rows whose class is to be in the set.
        """
        if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0.0 < float(coverage) < 1.0:
            raise ValueError(f"coverage must be a number between 0 and 1, got {coverage!r}.")
        report = self.report_
        p, w = report.label_probabilities, report.label_weights
        if report.withheld and len(p) > 1:
            raise ValueError(f"predict_set cannot say how often it is right: {report.withheld}.")
        P = to_numpy(self.predict_proba(X))
        new = float(w @ w) / (1.0 + float(w @ w))  # weight of a new row among the labelled ones
        order = np.argsort(p)
        below = new + (1.0 - new) * np.append(0.0, np.cumsum(w[order]))  # weight of all rows with a lower probability
        least = np.append(p[order], 1.0)[below <= 1.0 - float(coverage)]
        least = least[-1] if len(least) else 0.0
        return np.asarray(np.minimum(least - 1e-12, P.max(axis=1, keepdims=True)) <= P)

    def outlier_score(self, X: Any) -> np.ndarray:
        """How unlike the labelled rows each row is, (n,), from 0 to 1: a share a of rows like them scores above 1 - a.

        A row is unlike them if it lies further from their mean than they do, in standard deviations of the source (a
        row of another kind), or if its scores are lower for all classes (a class that nobody labelled; the energy of
        Liu et al. 2020). Both are compared with the labelled rows, each held out. Scores end at 1 - 1 / (labels + 1).
        """
        if not hasattr(self, "known_rows_"):
            raise AttributeError("outlier_score needs an adaptation by averaged Pro2: this classifier has none.")
        X = check_X(self, X, reset=False)
        rows = to_numpy(unit_rows(X) if self.unit_rows_ else X)
        coef, intercept = self.scores_head()
        found = self._unlike(rows, self.known_centre_, to_numpy(affine(rows, coef, intercept)).astype(np.float64))
        mean, sd = self.known_rows_.mean(axis=0), self.known_rows_.std(axis=0)
        known, new = (((each - mean) / np.maximum(sd, 1e-12)).max(axis=1) for each in (self.known_rows_, found))
        return np.searchsorted(np.sort(known), new) / (len(known) + 1.0)

    def was_labelled(self, X: Any) -> np.ndarray:
        """Which rows equal one of the labelled rows that this classifier was fitted to, (n,) of bool.

        Its accuracy on such rows says nothing about others. Rows are compared in single precision.
        """
        if not hasattr(self, "known_hashes_"):
            raise AttributeError("was_labelled needs an adaptation: this classifier was not made by adapt.")
        return self._was_labelled(to_numpy(check_X(self, X, reset=False)))

    def _was_labelled(self, X: np.ndarray) -> np.ndarray:
        """The same for rows that are checked."""
        with np.errstate(over="ignore"):
            found = np.isin(short_hashes(X), self.known_hashes_.astype(np.uint32) & np.uint32(0x7FFFFFFF))
            found[found] = np.isin(row_hashes(X[found]), self.known_hashes_)
        return found

    def _unlike(self, rows: np.ndarray, centre: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Log distance from a centre, and energy of the scores, (n, 2)."""
        with np.errstate(over="ignore"):  # in the type of the rows: single precision takes half the time
            deviations = (rows - centre.astype(rows.dtype)) / self.known_scale_.astype(rows.dtype)
            distance = np.sqrt(np.einsum("ij,ij->i", deviations, deviations).astype(np.float64) / rows.shape[1])
        scores = scores - scores.mean(axis=1, keepdims=True)
        return np.column_stack([np.log(np.clip(distance, 1e-300, 1e300)), -np.logaddexp.reduce(scores, axis=1)])

    def remember(self, rows: np.ndarray, left_out: np.ndarray, scale: np.ndarray) -> None:
        """Keep what `outlier_score` compares with: labelled rows (M, D), their left-out scores, deviations (D,)."""
        M = len(rows)
        self.known_centre_, self.known_scale_ = rows.mean(axis=0), scale
        # from the mean of the others, each row is M / (M - 1) times as far as from the mean of all
        self.known_rows_ = self._unlike(rows, self.known_centre_, left_out) + np.array(
            [np.log(M / max(M - 1.0, 1.0)), 0.0]
        )

    def without(self, rows: Sequence[int]) -> LinearClassifier:
        """The classifier of all other labelled rows, so that predictions for these rows are out-of-sample.

        Parameters
        ----------
        rows : sequence of int
            Their numbers among the labelled rows given to `adapt`, from 0. A row leaves with all of its copies.

        Returns
        -------
        LinearClassifier
            What `adapt` would return for the others, computed from the same factors: exact, and a small part of the
            time. Unlabelled rows play no part. The paper's probe keeps `n_features` and `l2`.
        """
        if self._inputs is None:
            raise AttributeError("without() needs the labels of an adaptation: files and copies do not carry them.")
        coef, intercept = self._inputs.without(rows)
        return self._named(self.from_arrays(self.classes_, coef, intercept, like=self.coef_, unit=self.unit_rows_))

    def fit(self, X: Any = None, y: Any = None) -> LinearClassifier:
        """Not to be fitted: it is made by `adapt`."""
        raise TypeError("LinearClassifier is made by `adapt(X_target, y_target)`; fit ProjectAndProbe instead.")


class SourceTargetClassifier(AffineMixin, BaseEstimator):
    """fit(source) -> self, adapt(target) -> a new `LinearClassifier`; or both in one `fit` with `sample_domain`.

    A subclass writes two methods on checked arrays: `_fit_source(X, codes, weight)`, which returns the source head as
    (coef, intercept), and `_adapt(X, codes, weight, **extra)`, which returns a `LinearClassifier`.

    Attributes
    ----------
    source_head_ : LinearClassifier
    adapted_ : LinearClassifier
        Only after `fit` with `sample_domain`; `predict` then uses it instead of the source head.
    """

    _advice_on_new_classes = NEW_CLASS

    @property
    def _classifier(self) -> LinearClassifier:
        return self.adapted_ if hasattr(self, "adapted_") else self.source_head_

    @property
    def coef_(self) -> Array:
        return self._classifier.coef_

    @property
    def intercept_(self) -> Array:
        return self._classifier.intercept_

    @property
    def report_(self) -> AdaptationReport:
        """Of the adaptation in `fit` with `sample_domain`; see `AdaptationReport`."""
        return self._classifier.report_

    def fit(self, X: Any, y: Any, sample_domain: Any = None, sample_weight: Any = None) -> Self:
        """Learn from source rows; with `sample_domain`, adapt to the target rows too.

        Parameters
        ----------
        X : array (n, D)
        y : array (n,)
            Labels, any type.
        sample_domain : array (n,), optional
            Positive = source row, negative = labelled target row (as in skada). None: every row is source, and
            `predict` uses the source head.
        sample_weight : array (n,), optional
        """
        X, y = table_rows(X, y)
        X = check_X(self, X, reset=True)
        y = check_labels(y, X.shape[0])
        weight = check_weight(sample_weight, X)
        source, target = split_domains(sample_domain, X.shape[0], weight)
        self.classes_, codes = check_classes(y[source])
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only {self.classes_.tolist()}: a source needs rows of at least two.")
        Xs = X if len(source) == X.shape[0] else take_rows(X, source)
        self.__dict__.pop("adapted_", None)
        self._learn_source(Xs, asarray_like(codes, X), take_rows(weight, source))
        if target is not None:
            targets = asarray_like(encode_known(y[target], self.classes_, "y", self._advice_on_new_classes), X)
            self.adapted_ = self._named(self._adapt(take_rows(X, target), targets, take_rows(weight, target)))
        return self

    def adapt(self, X_target: Any, y_target: Any, sample_weight: Any = None, **extra: Any) -> LinearClassifier:
        """Probe with labelled target rows; the fitted source model is not changed."""
        check_fitted(self, "classes_")
        X = asarray_like(check_X(self, X_target, reset=False, name="X_target"), self.coef_)
        codes = self._encode_target(y_target, X, "y_target")
        return self._named(self._adapt(X, codes, check_weight(sample_weight, X), **extra))

    def _encode_target(self, y: Any, X: Array, name: str) -> Array:
        y = check_labels(y, X.shape[0], name)
        return asarray_like(encode_known(y, self.classes_, name, self._advice_on_new_classes), X)

    def _learn_source(self, X: Array, codes: Array, weight: Array | None) -> None:
        head = self._fit_source(X, codes, weight)
        self.source_head_ = LinearClassifier.from_arrays(self.classes_, *head, unit=self.unit_rows_)

    def _fit_source(self, X: Array, codes: Array, weight: Array | None) -> tuple[Array, Array]:
        raise NotImplementedError

    def _adapt(self, X: Array, codes: Array, weight: Array | None, **extra: Any) -> LinearClassifier:
        raise NotImplementedError
