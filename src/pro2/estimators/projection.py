"""The Project step as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if

from pro2.estimators.base import (
    check_classes,
    check_fitted,
    check_X,
    forget_names,
    random_generator,
    source_rows,
)
from pro2.estimators.files import FileMixin
from pro2.estimators.linear import unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.linalg.adamw import adamw_basis
from pro2.linalg.arrays import Array, asarray_like, encode
from pro2.linalg.basis import Basis, krylov_basis, logistic_basis
from pro2.linalg.prior import PriorFamily

SCALES = (None, "global", "standard", "unit")
SOLVERS = ("krylov", "logistic", "adamw")
SCALE_FLOOR = 0.1  # of the mean deviation: a feature that is constant in the source may be alive in the target
DEFAULT_RIDGE = 0.3


def _has_moments(projection: Projection) -> bool:
    if projection.solver != "krylov":
        raise AttributeError(f"only solver='krylov' learns from moments that can be merged, not {projection.solver!r}.")
    return True


class Projection(FileMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Ranked orthonormal features that each predict the source label.

    Direction i minimises the source loss of a one-dimensional classifier with intercept, orthogonal to all before it
    (Chen et al., "Project and Probe", ICLR 2024).

    Parameters
    ----------
    n_components : int, optional
        Number of directions d, at most the width D; all D by default.
    solver : {"krylov", "logistic", "adamw"}
        "krylov": squared loss in closed form from one-pass moments; fast, deterministic, mergeable (`partial_fit`).
        "logistic": log-loss, exact convex solves one after the other; slower, for comparison.
        "adamw": the paper's printed procedure (joint AdamW, QR after every step), for reproduction.
    ridge : float
        Regularisation of the source problem, relative to the mean variance of the (scaled) features. For "adamw" it is
        not used. 0 with "krylov" is the bare definition.
    scale : {None, "global", "standard", "unit"}
        What embeddings are divided by first: nothing; one number (their root mean variance); each feature's standard
        deviation in the source, at least a tenth of the mean one; each row's length.
    keep_norms : bool
        Only for "adamw": keep the columns' lengths diag(R) as the paper's code does (they act as a prior on the
        probe). `components_` stays orthonormal; the lengths are in `norms_` and applied by `transform`.
    random_state : int, Generator or None
        Start of "adamw"; the other solvers do not use chance.

    Attributes
    ----------
    components_, mean_, scale_ : arrays (d, D), (D,), (D,)
        Orthonormal rows in rank order; `transform` returns ((X - mean_) / scale_) @ components_.T.
    scores_ : array (d,)
        Between-class share of the source variance along each direction, in [0, 1].
    n_informative_ : int
        How many directions the criterion found before the label was exhausted; the rest completes the space.
    moments_ : SourceMoments
        Only for "krylov": what was learned from the rows, mergeable.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 200)
    >>> X = rng.normal(size=(200, 5)) + y[:, None] * [2, 1, 0, 0, 0]
    >>> Projection(n_components=2).fit_transform(X, y).shape
    (200, 2)
    """

    def __init__(
        self, n_components: int | None = None, solver: str = "krylov", ridge: float = DEFAULT_RIDGE,
        scale: str | None = "standard", keep_norms: bool = False, random_state: Any = None,
    ):  # fmt: skip
        self.n_components = n_components
        self.solver = solver
        self.ridge = ridge
        self.scale = scale
        self.keep_norms = keep_norms
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Projection:
        """Learn the basis from source rows X (N, D) with labels y (N,)."""
        X, y, weight = self._rows(X, y, sample_weight, first=True)
        check_classes(y)
        moments = SourceMoments.from_arrays(X, y, weight)
        if self.solver == "krylov":
            return self._set_krylov(moments)
        self._set_scale(moments)
        xp, n_classes, d = array_namespace(X), len(moments.classes), self._width()
        if n_classes < 2:
            raise ValueError("y has one class only: a projection needs at least two classes.")
        Z, codes = (xp.astype(X, xp.float64) - self.mean_) / self.scale_, asarray_like(encode(y)[1], X)
        options: dict[str, Any] = {"n_classes": n_classes, "sample_weight": weight}
        if self.solver == "logistic":
            return self._set_basis(logistic_basis(Z, codes, d, self.ridge, **options))
        return self._set_basis(*adamw_basis(Z, codes, d, random_generator(self.random_state), **options))

    @available_if(_has_moments)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Projection:
        """Add source rows; the basis equals that of one `fit` on all rows seen. Only for solver="krylov"."""
        first = not hasattr(self, "moments_")
        moments = SourceMoments.from_arrays(*self._rows(X, y, sample_weight, first=first))
        return self._learn(moments if first else self.moments_ + moments)

    @available_if(_has_moments)
    def fit_moments(self, moments: SourceMoments) -> Projection:
        """Learn the basis from moments alone: merged shards or sites, no rows. Only for solver="krylov"."""
        if not isinstance(moments, SourceMoments):
            raise TypeError(f"moments must be SourceMoments, got {type(moments).__name__}.")
        self._check_options()
        forget_names(self)
        self.n_features_in_ = moments.width
        return self._learn(moments)

    def _rows(self, X: Any, y: Any, weight: Any, *, first: bool) -> tuple[Array, np.ndarray, Array | None]:
        """Checked rows of positive weight, where earlier ones are if these are not the first."""
        self._check_options()
        X, y, weight = source_rows(self, X, y, weight, None if first else self.moments_.mean)
        return unit_rows(X) if self.scale == "unit" else X, y, weight

    def _check_options(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {SOLVERS}, got {self.solver!r}.")
        if self.scale not in SCALES:
            raise ValueError(f"scale must be one of {SCALES}, got {self.scale!r}.")
        check_ridge(self.ridge)

    def _learn(self, moments: SourceMoments) -> Projection:
        if len(moments.classes) > 1:
            return self._set_krylov(moments)
        self._set_scale(moments)  # a first batch of one class: wait for the others
        self.moments_ = moments
        return self

    def _set_krylov(self, moments: SourceMoments) -> Projection:
        self._set_scale(moments)
        basis = krylov_basis(moments.scaled(self.scale_), self._width(), self.ridge)
        self.moments_ = moments  # last: rows that could not be learned from are not among those seen
        return self._set_basis(basis)

    def _set_scale(self, moments: SourceMoments) -> None:
        self.mean_, self.scale_ = moments.total_mean(), input_scale(moments.feature_variance(), self.scale)
        self.classes_ = np.asarray(moments.classes)

    def _width(self) -> int:
        d = self.n_features_in_ if self.n_components is None else self.n_components
        if isinstance(d, bool) or not isinstance(d, int | np.integer) or not 1 <= d <= self.n_features_in_:
            raise ValueError(
                f"n_components={d!r} must be an integer in 1..{self.n_features_in_}, the number of features."
            )
        return int(d)

    def _set_basis(self, basis: Basis, norms: Array | None = None) -> Projection:
        self.components_, self.scores_, self.n_informative_ = basis
        ones = array_namespace(basis.components).ones_like(basis.components[:, 0])
        self.norms_ = norms if self.keep_norms and norms is not None else ones
        return self

    def transform(self, X: Any) -> Array:
        """Ranked features of X, (n, d)."""
        check_fitted(self, "components_")
        return self._features(check_X(self, X, reset=False))

    def _features(self, X: Array) -> Array:
        """The same for rows that are checked, as an array whatever `set_output` says."""
        xp = array_namespace(X)
        X = unit_rows(X) if self.scale == "unit" else X
        map_, mean = (asarray_like(part, X) for part in (self._map(len(self.components_)), self.mean_))
        with np.errstate(over="ignore", invalid="ignore"):
            F = (X - xp.astype(mean, X.dtype)) @ xp.matrix_transpose(xp.astype(map_, X.dtype))
        # what does not fit the type of X is a float64
        return F if bool(xp.all(xp.isfinite(F))) else (xp.astype(X, xp.float64) - mean) @ xp.matrix_transpose(map_)

    def to_input_space(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        """An affine map on the first p features, (..., p), as the same map on raw embeddings, (..., D)."""
        xp, map_ = array_namespace(self.components_), self._map(coef.shape[-1])
        coef, intercept = asarray_like(coef, map_), asarray_like(intercept, map_)
        full = xp.astype(coef, map_.dtype) @ map_
        return full, xp.astype(intercept, map_.dtype) - full @ self.mean_

    def _map(self, p: int) -> Array:
        """The first p directions on rows that are not scaled: one product instead of a scaled copy of the rows."""
        return self.components_[:p, :] * (self.norms_[:p, None] / self.scale_[None, :])

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def check_ridge(ridge: Any) -> None:
    """A number of any type, but no truth value."""
    number = isinstance(ridge, Real) and not isinstance(ridge, bool | np.bool_)
    if not (number and 0 <= float(ridge) < float("inf")):
        raise ValueError(f"ridge must be a finite number >= 0, got {ridge!r}.")


def check_family(priors: Any) -> PriorFamily:
    """The constants of averaged Pro2."""
    family = PriorFamily() if priors is None else priors
    if not isinstance(family, PriorFamily):
        raise TypeError(f"priors must be a PriorFamily, got {type(priors).__name__}.")
    return family


def input_scale(variance: Array, scale: str | None) -> Array:
    """What each feature is divided by, (D,); never near zero."""
    xp = array_namespace(variance)
    sd = xp.sqrt(xp.clip(variance, 0.0, None))  # that of equal rows may round to less
    if scale in (None, "unit"):
        return xp.ones_like(sd)
    level = xp.sqrt(xp.mean(sd * sd)) if scale == "global" else SCALE_FLOOR * xp.mean(sd)
    level = xp.where(level > 0, level, xp.ones_like(level))
    return xp.zeros_like(sd) + level if scale == "global" else xp.maximum(sd, level)
