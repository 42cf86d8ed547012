"""Project and Probe: both steps behind one door."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from pro2.estimators.adaptation import Default, PaperProbe, damped_source_head
from pro2.estimators.contract import NEW_CLASS, SourceTargetClassifier, check_labels, take_rows, weighted_rows
from pro2.estimators.linear import LinearClassifier, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.new_classes import NEW_CLASSES, class_shares, with_new_classes
from pro2.estimators.projection import DEFAULT_RIDGE, SCALES, Projection, check_family
from pro2.estimators.starts import HEAD, MOMENTS, SOURCE_ROWS, UNLABELED, OtherStarts
from pro2.estimators.transduction import transduce
from pro2.estimators.validation import beside, check_fitted, check_weight, check_X, forget_names, table_rows
from pro2.linalg.discriminants import discriminant_head
from pro2.linalg.family import PriorFamily
from pro2.linalg.kernels.threads import in_threads
from pro2.linalg.labels import SAMPLING, Labels
from pro2.linalg.moments import Array, host, is_missing
from pro2.linalg.priors import SourcePrior

AT_ONCE = 256 << 20  # bytes of a covariance: larger ones are decomposed one after the other, or memory would run out


class ProjectAndProbe(OtherStarts, SourceTargetClassifier):
    """Adapt to a shifted target with a handful of labels (after Chen et al., "Project and Probe", ICLR 2024).

    `fit` learns ranked orthonormal features and source heads from a large labelled source; `adapt` fits a linear
    classifier to the few labels of a target and returns it as one affine map on raw embeddings.

    By default that is an average over a family of priors: centred on nothing or on a source head, with a variance that
    falls in part along the ranked features or is whitened by the source. Each is fitted to the labels and weighed by
    leave-one-out. The paper's own method, a probe on the first d features, is `n_features=d, l2=...`; a number for one
    of them lets leave-one-out choose the other, and ``n_features="loo", l2="loo"`` lets it choose both.

    Parameters
    ----------
    n_components : int, optional
        Ranked features to learn, at most the width; by default as many as the default adaptation uses
        (`PriorFamily.n_ranked`), or `n_features` if that is more.
    solver, ridge, random_state
        As in `Projection`.
    scale : {"auto", "standard", "global", "unit", None}
        What embeddings are divided by, as in `Projection`. "auto" tries those of `PriorFamily.scales` beside each other
        and lets the labels weigh them; the paper's probe then uses the first.
    l2 : float, "auto" or "loo"
        Penalty of the paper's probe: mean log-loss + (l2 / 2) ||w||^2. With "auto" for both the default is used.
    n_features : int, "auto" or "loo"
        Leading features of the paper's probe.
    priors : PriorFamily, optional
        The constants of the default.
    label_sampling : {"auto", "by_class", "random", "suggested"}
        How target labels are drawn: so many of each class, or at random, which tells how common classes are, or
        chosen by `suggest_labels`, which tells neither that nor how accurate the result is. "auto" goes by how equal
        counts are.

    Attributes
    ----------
    projection_ : Projection
        Of the first scale.
    priors_ : tuple of SourcePrior
        What the default knows of the source, one for each scale.
    source_head_ : LinearClassifier
        Linear discriminant of the source in the original space: what `predict` uses before any adaptation.
    source_moments_ : SourceMoments
    made_from_ : str
        "source rows", "moments", "head" or "unlabelled rows".
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
        self,
        n_components: int | None = None,
        solver: str = "krylov",
        ridge: float = DEFAULT_RIDGE,
        scale: str | None = "auto",
        l2: float | str = "auto",
        n_features: int | str = "auto",
        priors: PriorFamily | None = None,
        label_sampling: str = "auto",
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.solver = solver
        self.ridge = ridge
        self.scale = scale
        self.l2 = l2
        self.n_features = n_features
        self.priors = priors
        self.label_sampling = label_sampling
        self.random_state = random_state

    @property
    def _family(self) -> PriorFamily:
        return PriorFamily() if self.priors is None else self.priors

    def _fit_source(self, X: Array, codes: Array, weight: Array | None) -> tuple[Array, Array]:
        self._check_options()
        self.unit_rows_ = self.scale == "unit"
        X = self._units(X)
        moments = replace(SourceMoments.from_arrays(X, codes, weight), classes=tuple(self.classes_.tolist()))
        return self._set_source(moments, SOURCE_ROWS, None if self.solver == "krylov" else (X, codes, weight))

    def fit_moments(self, moments: SourceMoments) -> Self:
        """Learn from moments alone: of a source larger than memory, or of several sites. Only for solver="krylov"."""
        if not isinstance(moments, SourceMoments):
            raise TypeError(f"moments must be SourceMoments, got {type(moments).__name__}.")
        if len(moments.classes) < 2:
            raise ValueError(f"moments have one class only {list(moments.classes)}: a source needs at least two.")
        forget_names(self)
        return self._learn(moments, MOMENTS)

    def _learn(self, moments: SourceMoments, made_from: str) -> Self:
        self._check_options()
        if self.solver != "krylov":
            raise ValueError(f"solver={self.solver!r} needs source rows: only solver='krylov' learns from {made_from}.")
        self.unit_rows_ = self.scale == "unit"
        self.n_features_in_ = moments.width
        self.classes_ = np.asarray(moments.classes)
        self._set_head(*self._set_source(moments, made_from))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Add source rows; the model equals that of one `fit` on all rows seen. Only for solver="krylov".

        `classes`, if given, are all that may come: a label that is not among them is refused.
        """
        first = not hasattr(self, "source_moments_")
        if getattr(self, "made_from_", SOURCE_ROWS) in (HEAD, UNLABELED):
            raise ValueError(
                f"partial_fit adds to labelled source rows, but this model was made from {self.made_from_!r}: "
                "fit a new one."
            )
        X = check_X(self, X, reset=first)
        X = X if first else beside(X, self.source_moments_.mean)
        X, y, weight = weighted_rows(X, check_labels(y, X.shape[0]), check_weight(sample_weight, X))
        unknown = [] if classes is None else sorted(set(y.tolist()) - set(np.ravel(classes).tolist()), key=str)
        if unknown:
            raise ValueError(f"y has classes {unknown[:5]} that are not in `classes`.")
        X = unit_rows(X) if self.scale == "unit" else X
        moments = SourceMoments.from_arrays(X, y, weight)
        moments = moments if first else self.source_moments_ + moments
        if len(moments.classes) > 1:
            return self._learn(moments, SOURCE_ROWS)
        self.source_moments_: SourceMoments = moments  # a first batch of one class: wait for the others
        return self

    def _projection(self, scale: str | None) -> Projection:
        n = self.n_components
        if n is None:
            asked = self.n_features if isinstance(self.n_features, int | np.integer) else 1
            n = min(max(self._family.n_ranked, int(asked)), self.n_features_in_)
        return Projection(n, self.solver, self.ridge, scale, random_state=self.random_state)

    def _scales(self) -> tuple[str | None, ...]:
        return self._family.scales if self.scale == "auto" else (self.scale,)

    def _check_options(self) -> None:
        if self.scale != "auto" and self.scale not in SCALES:
            raise ValueError(f"scale must be 'auto' or one of {SCALES}, got {self.scale!r}.")
        if self.label_sampling not in SAMPLING:
            raise ValueError(f"label_sampling must be one of {SAMPLING}, got {self.label_sampling!r}.")
        check_family(self.priors, scaled=self.scale == "auto")

    def _set_source(self, moments: SourceMoments, made_from: str, rows: Any = None) -> tuple[Array, Array]:
        """All that is learned from moments, and from rows (X, codes, weight) where the solver needs them."""
        moments = moments.placed()

        def learn(scale: str | None) -> tuple[Projection, SourcePrior]:
            new = self._projection(scale)
            projection = self._named(new.fit_moments(moments) if rows is None else new.fit(*rows))
            return projection, self._prior(moments, projection, scale)

        # a thread for each scale: half the time of BLAS threads, which wait for each other, most on a busy machine
        at_once = rows is None and is_numpy_array(moments.scatter) and moments.scatter.nbytes <= AT_ONCE
        parts = in_threads(learn, self._scales()) if at_once else [learn(scale) for scale in self._scales()]
        self.source_moments_, self.projection_, self.made_from_ = moments, parts[0][0], made_from
        self.priors_ = tuple(prior for _, prior in parts)
        scale = self.projection_.scale_
        coef, intercept = discriminant_head(moments.scaled(scale), self.ridge)
        coef = coef / scale
        head = LinearClassifier.from_arrays(self.classes_, coef, intercept, unit=self.unit_rows_)
        self.source_head_ = self._named(head)
        return coef, intercept

    def adapt(
        self, X_target: Any, y_target: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None,
        X_unlabeled: Any = None, new_classes: str = "refuse",
    ) -> LinearClassifier:  # fmt: skip
        """Fit to labelled target rows; returns a new classifier with `report_`, the model is not changed.

        Parameters
        ----------
        X_target : array (M, D), data frame or `EmbeddingTable`
            The handful of labelled target rows.
        y_target : array (M,), or the name of a column of a table
            Rows whose label is missing (None, NaN) are taken as unlabelled. Classes of the source that are missing here
            keep a small probability.
        sample_weight : array (M,), optional
            Importances: a row of weight 2 counts as that row twice, a row of weight 0 is absent.
        X_val, y_val : arrays, optional
            Held-out target rows: d and l2 of the paper's probe are then chosen by accuracy on them, as in the paper.
        X_unlabeled : array (n, D), optional
            Target rows without labels; only the default uses them. `transductive_proba_` of the result has their
            probabilities, after those of rows of X_target without a label. See `adapt_unlabeled` for a target without
            any label.
        new_classes : {"refuse", "allow"}
            Labels of classes that the source does not have: an error, or classes that start without a centre.
        """
        check_fitted(self, "coef_")
        self._check_options()
        if new_classes not in NEW_CLASSES:
            raise ValueError(f"new_classes must be one of {NEW_CLASSES}, got {new_classes!r}.")
        if y_target is None:
            raise ValueError("y_target is None: give one label per row, or use adapt_unlabeled(X) without any label.")
        X, y = table_rows(X_target, y_target)
        X = self._target_rows(X, "X_target")
        X, y, weight, rest = _labeled_rows(X, y, check_weight(sample_weight, X))
        if rest is not None and self._is_default() and X_val is None:
            if X_unlabeled is not None:
                xp, more = array_namespace(rest), self._target_rows(X_unlabeled, "X_unlabeled")
                rest = xp.concat([rest, xp.astype(more, rest.dtype)])
            X_unlabeled = rest
        model: ProjectAndProbe = with_new_classes(self, y) if new_classes == "allow" else self
        extra = {"X_val": X_val, "y_val": y_val, "X_unlabeled": X_unlabeled}
        return SourceTargetClassifier.adapt(model, X, y, weight, **extra)

    def adapt_unlabeled(self, X_unlabeled: Any) -> LinearClassifier:
        """The source head for a target without any label: features that vary too much there count for less."""
        check_fitted(self, "source_head_")
        U = self._units(self._target_rows(X_unlabeled, "X_unlabeled"))
        return self._named(damped_source_head(self.source_head_, self._source_priors()[0], U))

    def _is_default(self) -> bool:
        """Nothing is fixed by the caller: priors are weighed by the labels instead of one candidate being picked."""
        return isinstance(self.l2, str) and isinstance(self.n_features, str) and self.l2 == self.n_features == "auto"

    def _source_priors(self) -> tuple[SourcePrior, ...]:
        """`priors_`; models of version 0.1.0 have none and make it from what they know."""
        if not hasattr(self, "priors_"):
            self.priors_ = (self._prior(self.source_moments_, self.projection_, self.scale),)
        return self.priors_

    def _prior(self, moments: SourceMoments, projection: Projection, name: str | None) -> SourcePrior:
        """Of the features that the source ranks: what merely completes a basis has no rank."""
        ranked = projection.components_[: max(1, projection.n_informative_), :]
        return SourcePrior.from_moments(moments, projection.scale_, ranked, self._family, str(name))

    def _adapt(
        self, X: Array, codes: Array, weight: Array | None, X_val: Any, y_val: Any, X_unlabeled: Any
    ) -> LinearClassifier:
        val = self._validation(X_val, y_val)
        U = None if X_unlabeled is None else self._target_rows(X_unlabeled, "X_unlabeled")
        if self._is_default() and val is None:
            return self._adapt_default(X, codes, weight, U)
        if U is not None:
            raise ValueError("X_unlabeled needs l2='auto', n_features='auto' and no X_val: only the default uses it.")
        n_features = "auto" if self.n_features == "loo" else self.n_features
        l2 = "auto" if self.l2 == "loo" else self.l2
        how = PaperProbe(self.projection_, n_features, l2, self.label_sampling, self.source_head_)
        adapted = how.adapt(self.classes_, self._units(X), codes, weight, val)
        adapted.unit_rows_ = self.unit_rows_
        return adapted

    def _adapt_default(self, X: Array, codes: Array, weight: Array | None, U: Array | None) -> LinearClassifier:
        labels = Labels.of(self._units(X), codes, weight)
        shares = class_shares(host(self.source_moments_.weight))
        how = Default(self._source_priors(), shares, self.label_sampling, self.source_head_)
        U = None if U is None else self._units(U)
        adapted, head = how.adapt(self.classes_, labels, U)
        adapted.unit_rows_ = self.unit_rows_
        if U is not None:
            adapted.coef_, adapted.intercept_, adapted.transductive_proba_ = transduce(how, head, labels, U)
        return adapted

    def _units(self, X: Array) -> Array:
        return unit_rows(X) if self.unit_rows_ else X

    def _target_rows(self, X: Any, name: str) -> Array:
        return beside(check_X(self, X, reset=False, name=name), self.coef_)

    def _validation(self, X_val: Any, y_val: Any) -> tuple[Array, Array] | None:
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val go together: give both or neither.")
        if X_val is None:
            return None
        X_val = self._target_rows(X_val, "X_val")
        return X_val, self._encode_target(y_val, X_val, "y_val")


def _labeled_rows(X: Array, y: Any, weight: Array | None) -> tuple[Array, Any, Array | None, Array | None]:
    """Rows with a label, their labels and weights, and the rows without one, if any."""
    y = check_labels(y, X.shape[0], "y_target", missing=True)
    missing = is_missing(y)
    if not missing.any():
        return X, y, weight, None
    if missing.all():
        raise ValueError("y_target has no label at all: use adapt_unlabeled(X) for rows without any label.")
    has, rest = np.flatnonzero(~missing), np.flatnonzero(missing)
    y = np.array(y[has].tolist()) if y.dtype.kind == "O" else y[has]
    return take_rows(X, has), y, take_rows(weight, has), take_rows(X, rest)
