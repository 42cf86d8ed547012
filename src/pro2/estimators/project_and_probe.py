"""The `ProjectAndProbe` estimator: ranked features from a source, and a classifier from the few labels of a target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace

from pro2.estimators.adaptation import AveragedFit, ProbeFit, blas_threads_for
from pro2.estimators.base import (
    NEW_CLASS,
    check_fitted,
    check_labels,
    check_weight,
    check_X,
    encode_known,
    forget_names,
    source_rows,
    table_rows,
    take_rows,
    validation_rows,
)
from pro2.estimators.files import SourceKind
from pro2.estimators.linear import LinearClassifier, SourceTargetClassifier, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.projection import DEFAULT_RIDGE, SCALES, Projection, check_family, input_scale
from pro2.estimators.report import ReportInputs
from pro2.estimators.starts import NEW_CLASSES, OtherStarts, prior_of_head, prior_without_head, with_new_classes
from pro2.estimators.unlabeled import graph_rows, smoothed_head
from pro2.linalg.arrays import Array, asarray_like, is_missing, to_numpy
from pro2.linalg.labelled import SAMPLING, Labelled, row_hashes
from pro2.linalg.prior import PriorFamily, SourcePrior

DEFAULT_COMPONENTS = 128
MOST_COMPONENTS = 1024  # for leave-one-out to choose from: the largest number of features in the paper's grid
# (sum of variances)^2 / (D * sum of their squares): 1 where features vary alike. Image embeddings have 0.2 to 0.7,
# tables of measurements 0.1 and less.
ONE_UNIT, DIFFERENT_UNITS = 0.4, 0.1


class DerivedMixin:
    """Of models: what follows from parameters and moments is made when it is first needed, and is in no file."""

    @property
    def _derived(self) -> dict[str, Any]:
        return self.__dict__.setdefault("_made", {})

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_made"}


class ProjectAndProbe(DerivedMixin, OtherStarts, SourceTargetClassifier):
    """Adapt to a shifted target with a few labels (after Chen et al., "Project and Probe", ICLR 2024).

    `fit` learns ranked orthonormal features and a source head from a large labelled source; `adapt` fits a linear
    classifier to the few labels of a target and returns it as one affine map on raw embeddings.

    By default it is averaged Pro2: an average over a small family of Gaussian priors, whose mean is the source head or
    zero, and whose variance falls with the rank of a feature, is whitened by the source, or is flat. Each member is
    fitted in closed form and weighted by its exact leave-one-out likelihood. The paper's Pro2, a probe on the first d
    features, is `n_features=d, l2=...`. With a number for one of them, leave-one-out chooses the other, and with
    ``n_features="loo", l2="loo"`` it chooses both.

    Parameters
    ----------
    n_components : int, optional
        Ranked features to learn, at most the width; by default 128, or `n_features` if that is more. With
        `solver="krylov"`, leave-one-out chooses `n_features` among 1024 of them, as in the paper. Averaged Pro2 has its
        own number in `PriorFamily.n_ranked`.
    solver, ridge, random_state
        As in `Projection`.
    scale : {"auto", "standard", "global", "unit", None}
        What embeddings are divided by, as in `Projection`. With "auto" averaged Pro2 takes one number for all features
        where their variances are alike, each feature's standard deviation where they show different units, and lets
        the labels weigh both in between; the paper's probe takes standard deviations.
    l2 : float, "auto" or "loo"
        Penalty of the paper's probe: mean log-loss + (l2 / 2) ||w||^2. With "auto" for both, averaged Pro2 is used.
    n_features : int, "auto" or "loo"
        Leading features of the paper's probe.
    priors : PriorFamily, optional
        The constants of averaged Pro2.
    label_sampling : {"auto", "by_class", "random", "suggested"}
        How the target's labels were drawn: a number of each class; at random, so that they show how common classes
        are; or by `suggest_labels`, so that they show neither class shares nor accuracy. "auto" decides by how equal
        the counts are.

    Attributes
    ----------
    projection_ : Projection
        The ranked features of the paper's probe.
    priors_ : tuple of SourcePrior
        What averaged Pro2 learned from the source, one for each scale.
    source_head_ : LinearClassifier
        Linear discriminant of the source in the original space: what `predict` uses before any adaptation.
    source_moments_ : SourceMoments
    source_kind_ : str
        "source rows", "moments", "head" or "unlabelled rows".
    adapted_ : LinearClassifier
        Only after `fit(..., sample_domain=...)`.
    coef_, intercept_, classes_
        The classifier of this object: the source head, or the adapted one after `fit(..., sample_domain=...)`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 400)
    >>> X = rng.normal(size=(400, 6)) + y[:, None] * [3, 1, 0, 0, 0, 0]
    >>> model = ProjectAndProbe().fit(X[:300], y[:300])
    >>> adapted = model.adapt(X[300:316], y[300:316])
    >>> adapted.coef_.shape
    (1, 6)
    >>> bool(adapted.score(X[316:], y[316:]) > 0.8)
    True
    """

    _advice_on_new_classes = f"accept them with new_classes='allow', {NEW_CLASS}"

    def __init__(
        self, n_components: int | None = None, solver: str = "krylov", ridge: float = DEFAULT_RIDGE,
        scale: str | None = "auto", l2: float | str = "auto", n_features: int | str = "auto",
        priors: PriorFamily | None = None, label_sampling: str = "auto", random_state: Any = None,
    ):  # fmt: skip
        self.n_components = n_components
        self.solver = solver
        self.ridge = ridge
        self.scale = scale
        self.l2 = l2
        self.n_features = n_features
        self.priors = priors
        self.label_sampling = label_sampling
        self.random_state = random_state

    def _learn_source(self, X: Array, codes: Array, weight: Array | None) -> None:
        self._check_options()
        X = unit_rows(X) if self.scale == "unit" else X
        moments = SourceMoments.from_codes(X, codes, weight, tuple(self.classes_.tolist()))
        trained = None
        if self.solver != "krylov":  # the others need rows, which are not kept
            trained = self._named(self._new_projection().fit(X, codes, weight))
        self._set_source(moments, "source rows", trained=trained)

    def fit_moments(self, moments: SourceMoments) -> Self:
        """Learn from moments alone: of a source larger than memory, or of several sites. Only for solver="krylov"."""
        if not isinstance(moments, SourceMoments):
            raise TypeError(f"moments must be SourceMoments, got {type(moments).__name__}.")
        if len(moments.classes) < 2:
            raise ValueError(f"moments have one class only {list(moments.classes)}: a source needs at least two.")
        forget_names(self)
        return self._learn(moments, "moments")

    def _learn(self, moments: SourceMoments, source_kind: SourceKind, head: LinearClassifier | None = None) -> Self:
        self._check_options()
        if self.solver != "krylov":
            raise ValueError(
                f"solver={self.solver!r} needs source rows: only solver='krylov' learns from {source_kind}."
            )
        self.n_features_in_ = moments.width
        self.classes_ = np.asarray(moments.classes)
        self._set_source(moments, source_kind, head)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Add source rows; the model equals that of one `fit` on all rows seen. Only for solver="krylov".

        `classes`, if given, are all that may come: a label that is not among them is refused.
        """
        first = not hasattr(self, "source_moments_")
        if getattr(self, "source_kind_", "source rows") in ("head", "unlabelled rows"):
            raise ValueError(
                f"partial_fit adds to labelled source rows, but this model was made from {self.source_kind_!r}: "
                "fit a new one."
            )
        X, y, weight = source_rows(self, X, y, sample_weight, None if first else self.source_moments_.mean)
        unknown = [] if classes is None else sorted(set(y.tolist()) - set(np.ravel(classes).tolist()), key=str)
        if unknown:
            raise ValueError(f"y has classes {unknown[:5]} that are not in `classes`.")
        X = unit_rows(X) if self.scale == "unit" else X
        moments = SourceMoments.from_arrays(X, y, weight)
        moments = moments if first else self.source_moments_ + moments
        if len(moments.classes) > 1:
            return self._learn(moments, "source rows")
        self.source_moments_: SourceMoments = moments  # a first batch of one class: wait for the others
        return self

    @property
    def projection_(self) -> Projection:
        """The ranked features; those of `solver="krylov"` are made from the moments when they are first needed."""
        check_fitted(self, "source_kind_")
        if hasattr(self, "trained_projection_"):
            return self.trained_projection_
        projection = self._new_projection()
        name = f"projection on {projection.n_components}"  # which `n_features` may have changed since
        if name not in self._derived:
            self._derived[name] = self._named(projection.fit_moments(self.source_moments_))
        return self._derived[name]

    @property
    def priors_(self) -> tuple[SourcePrior, ...]:
        """What averaged Pro2 knows of the source; made from the moments, in a model from a file when first needed."""
        check_fitted(self, "source_kind_")
        if "priors" not in self._derived:
            moments, priors = self.source_moments_, []
            for scale in prior_scales(moments, self.scale):
                with blas_threads_for(len(moments.scatter) ** 2 * moments.width):
                    prior = SourcePrior.from_moments(moments, scale, check_family(self.priors))
                if self.source_kind_ == "head":
                    prior = prior_of_head(prior, self.given_head_, moments)
                priors.append(prior_without_head(prior) if self.source_kind_ == "unlabelled rows" else prior)
            self._derived["priors"] = tuple(priors)
        return self._derived["priors"]

    @property
    def source_head_(self) -> LinearClassifier:
        """The linear head of the source: that of the prior, calibrated, for classes as common as in the source."""
        check_fitted(self, "source_kind_")
        if hasattr(self, "given_head_"):
            return self.given_head_
        if "head" not in self._derived:
            coef, intercept = self.priors_[0].source_head(self.source_moments_.class_shares())
            like = self.source_moments_.mean
            head = LinearClassifier.from_arrays(self.classes_, coef, intercept, like=like, unit=self.unit_rows_)
            self._derived["head"] = self._named(head)
        return self._derived["head"]

    def _new_projection(self) -> Projection:
        n = self.n_components
        if n is None:
            n = DEFAULT_COMPONENTS
            if isinstance(self.n_features, int | np.integer):
                n = max(n, int(self.n_features))
            elif self.solver == "krylov" and not self._is_averaged():
                n = MOST_COMPONENTS
            n = min(n, self.n_features_in_)
        scale = "standard" if self.scale == "auto" else self.scale
        return Projection(n, self.solver, self.ridge, scale, random_state=self.random_state)

    def _check_options(self) -> None:
        if self.scale != "auto" and self.scale not in SCALES:
            raise ValueError(f"scale must be 'auto' or one of {SCALES}, got {self.scale!r}.")
        if self.label_sampling not in SAMPLING:
            raise ValueError(f"label_sampling must be one of {SAMPLING}, got {self.label_sampling!r}.")
        for name, kind, expected in (("l2", Real, "a positive number"), ("n_features", Integral, "a positive integer")):
            value = getattr(self, name)
            if isinstance(value, str) and value in ("auto", "loo"):
                continue
            if isinstance(value, bool) or not isinstance(value, kind) or not 0 < float(value) < math.inf:
                raise ValueError(f"{name} must be {expected}, 'auto' or 'loo', got {value!r}.")
        check_family(self.priors)

    def _set_source(
        self, moments: SourceMoments, source_kind: SourceKind, given_head: LinearClassifier | None = None,
        trained: Projection | None = None,
    ) -> None:  # fmt: skip
        """All that a model file holds; and what follows from it, so that the first `adapt` is as fast as any."""
        for name, part in (("given_head_", given_head), ("trained_projection_", trained), ("adapted_", None)):
            self.__dict__.pop(name, None)
            if part is not None:
                setattr(self, name, self._named(part))
        projection = self._new_projection()
        projection.n_features_in_ = moments.width
        projection._check_options()
        projection._width()
        self._derived.clear()
        self.unit_rows_ = self.scale == "unit"
        self.source_moments_, self.source_kind_ = moments.with_means_filled(), source_kind
        self.source_head_  # noqa: B018

    def adapt(
        self, X_target: Any, y_target: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None,
        X_unlabeled: Any = None, class_shares: Any = None, new_classes: str = "refuse",
    ) -> LinearClassifier:  # fmt: skip
        """Fit to labelled target rows; returns a new classifier with `report_`, the model is not changed.

        Parameters
        ----------
        X_target : array (M, D), data frame or `EmbeddingTable`
            The labelled target rows; a few are enough.
        y_target : array (M,), or the name of a column of a table
            Rows whose label is missing (None, NaN) are taken as unlabelled. Classes of the source that are missing here
            keep a small probability.
        sample_weight : array (M,), optional
            Importances: a row of weight 2 counts as that row twice, a row of weight 0 is absent.
        X_val, y_val : arrays, optional
            Held-out target rows: d and l2 of the paper's probe are then chosen by accuracy on them, as in the paper.
        X_unlabeled : array (n, D), optional
            Target rows without labels; only averaged Pro2 uses them. `transductive_proba_` of the result has their
            probabilities, after those of rows of X_target without a label. See `adapt_unlabeled` for a target without
            any label.
        class_shares : array (K,) or dict of class to share, optional
            How common the classes are in the target, where that is known; only for averaged Pro2. By default that is
            estimated from the labels (see `label_sampling`).
        new_classes : {"refuse", "allow"}
            Labels of classes that the source does not have: an error, or classes that start without a prior mean.
        """
        check_fitted(self, "coef_")
        self._check_options()
        if class_shares is not None and not self._is_averaged():
            raise ValueError("class_shares needs l2='auto' and n_features='auto': the paper's probe does not use them.")
        if new_classes not in NEW_CLASSES:
            raise ValueError(f"new_classes must be one of {NEW_CLASSES}, got {new_classes!r}.")
        if y_target is None:
            raise ValueError("y_target is None: give one label per row, or use adapt_unlabeled(X) without any label.")
        X, y = table_rows(X_target, y_target)
        X = self._target_rows(X, "X_target")
        X, y, weight, rest = _labeled_rows(X, y, check_weight(sample_weight, X))
        U = None if X_unlabeled is None else self._target_rows(X_unlabeled, "X_unlabeled")
        if rest is not None and self._is_averaged() and X_val is None:
            xp = array_namespace(rest)
            U = rest if U is None else xp.concat([rest, xp.astype(U, rest.dtype)])
        model: ProjectAndProbe = with_new_classes(self, y) if new_classes == "allow" else self
        codes = asarray_like(encode_known(y, model.classes_, "y_target", self._advice_on_new_classes), X)
        shares = None if class_shares is None else _checked_shares(class_shares, model.classes_)
        return self._named(model._adapt(X, codes, weight, validation_rows(model, X_val, y_val, X), U, shares))

    def adapt_unlabeled(self, X_unlabeled: Any) -> LinearClassifier:
        """The source head for a target without any label: its scores are smoothed over a graph of nearest neighbours.

        Without labels nothing shows whether neighbours belong to the same class, so it helps on some targets and harms
        on others: see docs/results/unlabeled.md.
        """
        check_fitted(self, "source_kind_")
        U = self._units(self._target_rows(X_unlabeled, "X_unlabeled"))
        coef, intercept = smoothed_head(self.priors_[0], self.source_head_.scores_head(), to_numpy(U))
        return self._named(LinearClassifier.from_arrays(self.classes_, coef, intercept, like=U, unit=self.unit_rows_))

    def _is_averaged(self) -> bool:
        """Nothing is fixed by the caller: priors are weighed by the labels instead of one candidate being picked."""
        return isinstance(self.l2, str) and isinstance(self.n_features, str) and self.l2 == self.n_features == "auto"

    def _adapt(
        self, X: Array, codes: Array, weight: Array | None, val: tuple[Array, np.ndarray] | None = None,
        U: Array | None = None, shares: np.ndarray | None = None,
    ) -> LinearClassifier:  # fmt: skip
        """With checked labelled rows X, validation rows, unlabelled rows U and class shares."""
        U = None if U is None else self._units(U)
        labelled = Labelled.of(self._units(X), codes, weight)
        if self._is_averaged() and val is None:
            source_shares = self.source_moments_.class_shares()
            fit = AveragedFit.of(self.priors_, source_shares, self.label_sampling, labelled, U, shares)
            adapted = self._adapted(fit, self.priors_[0], X)
            variance = np.maximum(to_numpy(self.source_moments_.feature_variance()), 0.0)
            deviation = to_numpy(input_scale(variance, "standard")) + np.zeros(self.n_features_in_)
            adapted.remember(labelled.X, fit.left_out_scores(), deviation)
            if U is not None:
                adapted.transductive_proba_ = to_numpy(adapted.predict_proba(U)).copy()
                adapted.transductive_proba_[graph_rows(len(U))] = fit.unlabeled_probabilities()
            return adapted
        if U is not None:
            raise ValueError("X_unlabeled needs l2='auto', n_features='auto' and no X_val: only averaged Pro2 uses it.")
        n_features = "auto" if self.n_features == "loo" else self.n_features
        l2 = "auto" if self.l2 == "loo" else self.l2
        K, val = len(self.classes_), None if val is None else (self._units(val[0]), val[1])
        probe = ProbeFit.of(self.projection_, n_features, l2, K, self.label_sampling, labelled, val)
        adapted = self._adapted(probe, None, X)
        adapted.n_features_, adapted.l2_ = probe.n_features, probe.l2
        return adapted

    def _adapted(self, fit: AveragedFit | ProbeFit, prior: SourcePrior | None, X: Array) -> LinearClassifier:
        inputs = ReportInputs(fit, prior, self.source_head_.scores_head(), self.label_sampling)
        found = LinearClassifier.from_arrays(self.classes_, *fit.head, like=X, unit=self.unit_rows_, inputs=inputs)
        with np.errstate(over="ignore"):
            found.known_hashes_ = row_hashes(to_numpy(X)[fit.labelled.number])
        return found

    def _units(self, X: Array) -> Array:
        return unit_rows(X) if self.unit_rows_ else X

    def _target_rows(self, X: Any, name: str) -> Array:
        return asarray_like(check_X(self, X, reset=False, name=name), self.coef_)


def _labeled_rows(X: Array, y: Any, weight: Array | None) -> tuple[Array, Any, Array | None, Array | None]:
    """Rows with a label, their labels and weights, and the rows without one, if any."""
    y = check_labels(y, X.shape[0], "y_target", missing=True)
    missing = is_missing(y)
    if not missing.any():
        return X, y, weight, None
    if missing.all():
        raise ValueError("y_target has no label at all: use adapt_unlabeled(X) for rows without any label.")
    has, rest = np.flatnonzero(~missing), np.flatnonzero(missing)
    y = check_labels(y[has].tolist(), len(has), "y_target") if y.dtype.kind == "O" else y[has]
    return take_rows(X, has), y, take_rows(weight, has), take_rows(X, rest)


def prior_scales(moments: SourceMoments, scale: str | None) -> list[np.ndarray]:
    """What averaged Pro2 divides features by, each (D,): for "auto" as many ways as the variances leave open."""
    variance = np.maximum(to_numpy(moments.feature_variance()), 0.0)
    scales: tuple[str | None, ...] = (scale,)
    if scale == "auto":
        v = variance / (variance.max() or 1.0)
        alike = v.sum() ** 2 / (len(v) * float(v @ v)) if v.any() else 1.0
        scales = ("global", "standard") if alike < ONE_UNIT else ("global",)
        scales = ("standard",) if alike < DIFFERENT_UNITS else scales
    return [np.asarray(input_scale(variance, each)) for each in scales]


def _checked_shares(class_shares: Any, classes: np.ndarray) -> np.ndarray:
    """Known class shares of the target, (K,), of sum one."""
    names = classes.tolist()
    if isinstance(class_shares, Mapping):
        unknown = [name for name in class_shares if name not in names]
        if unknown or len(class_shares) < len(names):
            raise ValueError(
                f"class_shares must have a share for each of the classes {names[:10]}, got {list(class_shares)[:10]}."
            )
        class_shares = [class_shares[name] for name in names]
    shares = np.asarray(to_numpy(class_shares), dtype=np.float64)
    if shares.shape != (len(names),):
        raise ValueError(f"class_shares has shape {shares.shape}: give one number for each of {len(names)} classes.")
    if not (np.isfinite(shares).all() and (shares >= 0).all() and abs(shares.sum() - 1.0) < 1e-3):
        raise ValueError(f"class_shares must be numbers of at least 0 whose sum is 1, got a sum of {shares.sum():g}.")
    return shares / shares.sum()
