"""Project and Probe: both steps behind one door."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from pro2.estimators.adaptation import PriorSpace, adapt_auto, adapt_unlabeled
from pro2.estimators.contract import SourceTargetClassifier
from pro2.estimators.linear import LinearClassifier, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.probe import best_candidate, feature_grid, penalty_grid, select
from pro2.estimators.projection import DEFAULT_RIDGE, Projection
from pro2.estimators.validation import check_X
from pro2.linalg.heads import discriminant_head
from pro2.linalg.moments import Array


class ProjectAndProbe(SourceTargetClassifier):
    """Adapt to a shifted target with a handful of labels (Chen et al., "Project and Probe", ICLR 2024).

    `fit` learns ranked orthonormal features and a source head from a large labelled source; `adapt` fits a linear
    classifier on those features with the few labels of a target and returns it as one affine map on raw embeddings.

    Parameters
    ----------
    n_components, solver, ridge, scale, random_state
        As in `Projection`.
    l2 : float or "auto"
        Penalty of the probe: mean log-loss + (l2 / 2) ||w||^2.
    n_features : int or "auto"
        Features the probe may use. What is "auto" is chosen from the target labels alone.

    Attributes
    ----------
    projection_ : Projection
    source_head_ : LinearClassifier
        Linear discriminant of the source in the original space: what `predict` uses before any adaptation.
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

    def __init__(
        self,
        n_components: int | None = None,
        solver: str = "krylov",
        ridge: float = DEFAULT_RIDGE,
        scale: str | None = "standard",
        l2: float | str = "auto",
        n_features: int | str = "auto",
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.solver = solver
        self.ridge = ridge
        self.scale = scale
        self.l2 = l2
        self.n_features = n_features
        self.random_state = random_state

    def _fit_source(self, X: Array, codes: Array, weight: Array | None) -> tuple[Array, Array]:
        self.projection_ = Projection(
            self.n_components, self.solver, self.ridge, self.scale, random_state=self.random_state
        ).fit(X, codes, weight)
        return self._set_source_head(X, codes, weight)

    def _set_source_head(self, X: Array, codes: Array, weight: Array | None) -> tuple[Array, Array]:
        """Shrunk linear discriminant in the scaled space, carried back to raw embeddings."""
        self.unit_rows_ = self.scale == "unit"
        moments = getattr(self.projection_, "moments_", None)
        if moments is None:
            moments = SourceMoments.from_arrays(unit_rows(X) if self.unit_rows_ else X, codes, weight)
        self.source_moments_ = moments
        self.__dict__.pop("_space", None)
        scale = self.projection_.scale_
        coef, intercept = discriminant_head(moments.scaled(scale), self.ridge)
        coef = coef / scale
        self.source_head_ = LinearClassifier.from_arrays(self.classes_, coef, intercept, unit=self.unit_rows_)
        return coef, intercept

    def _prior_space(self) -> PriorSpace | None:
        """Made from the fitted attributes on first use, so that a model from a file has it too."""
        if not self._untuned():
            return None
        if "_space" not in self.__dict__:
            self._space = PriorSpace(self.projection_, self.source_moments_)
        return self._space

    def _untuned(self) -> bool:
        """Nothing is fixed by the caller: priors are weighed by the labels instead of one candidate being picked."""
        return isinstance(self.l2, str) and isinstance(self.n_features, str) and self.l2 == self.n_features == "auto"

    def adapt(
        self, X_target: Any, y_target: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None,
        X_unlabeled: Any = None,
    ) -> LinearClassifier:  # fmt: skip
        """Fit the probe on labelled target rows; returns a new classifier, the model is not changed.

        With `l2` and `n_features` both "auto" and no validation rows, a family of priors learned from the source is
        averaged with leave-one-out weights (docs/selection.md), and the result carries `report_`.

        Parameters
        ----------
        X_target, y_target : arrays (M, D), (M,)
            The handful of labelled target rows. Classes of the source that are missing here keep a small probability.
        sample_weight : array (M,), optional
        X_val, y_val : arrays, optional
            Held-out target rows: what is "auto" is then chosen by accuracy on them, as in the paper.
        X_unlabeled : array (n, D), optional
            Target rows without labels: they say how common each class is. Without any label (`adapt(None, None,
            X_unlabeled=U)`) they only tell which features keep their variance: the source head on those is returned,
            and `report_.ranking` ranks the features. That fails where the inputs look the same but mean another label.
        """
        if X_target is None and X_unlabeled is None:
            raise ValueError("X_target is None: give labelled target rows, or target rows alone as X_unlabeled.")
        if X_unlabeled is None:
            return super().adapt(X_target, y_target, sample_weight, X_val=X_val, y_val=y_val)
        check_is_fitted(self, "projection_")
        U = check_X(self, X_unlabeled, reset=False, name="X_unlabeled")
        space = self._prior_space()
        if space is None or X_val is not None:
            raise ValueError("X_unlabeled needs l2='auto', n_features='auto' and no X_val: only the default uses it.")
        if X_target is None and y_target is None:
            return adapt_unlabeled(space, self.source_moments_, self.classes_, U, self.ridge)
        return super().adapt(X_target, y_target, sample_weight, X_unlabeled=U)

    def _adapt(
        self, X: Array, codes: Array, weight: Array | None, X_unlabeled: Any = None, **extra: Any
    ) -> LinearClassifier:
        space = self._prior_space()
        if space is not None and extra.get("X_val") is None and extra.get("y_val") is None:
            return adapt_auto(space, self.classes_, X, codes, weight, X_unlabeled)
        Z = self.projection_.transform(X)
        d_grid, l2_grid = feature_grid(self.n_features, Z.shape[1]), penalty_grid(self.l2, Z, weight)
        val = self._validation(**extra)
        fit, scores = select(Z, codes, d_grid, l2_grid, len(self.classes_), weight, None, val)
        i, j = best_candidate(scores)
        coef, intercept = self.projection_.to_input_space(fit.coef[i, j, ...], fit.intercept[i, j, ...])
        adapted = LinearClassifier.from_arrays(self.classes_, coef, intercept, unit=self.unit_rows_)
        adapted.n_features_, adapted.l2_ = d_grid[i], l2_grid[j]
        return adapted

    def _validation(self, X_val: Any = None, y_val: Any = None) -> tuple[Array, Array] | None:
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val go together: give both or neither.")
        if X_val is None:
            return None
        check_is_fitted(self, "projection_")
        X_val = check_X(self, X_val, reset=False, name="X_val")
        return self.projection_.transform(X_val), self._encode_target(y_val, X_val, "y_val")
