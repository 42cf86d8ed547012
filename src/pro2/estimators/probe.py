"""The Probe step as a scikit-learn classifier on ranked features."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_sample_weight

from pro2.estimators.base import LARGEST, check_classes, check_labels, check_weight, check_X, validation_rows
from pro2.estimators.linear import AffineMixin
from pro2.linalg.arrays import Array, asarray_like, to_numpy
from pro2.linalg.labelled import Labelled
from pro2.linalg.logistic import LogisticFit, fit_path, loo_loss, loo_path

L2_GRID = tuple(10.0 ** np.arange(-4, 2.5, 0.5))


class Probe(AffineMixin, BaseEstimator):
    """Exact L2-regularised linear classifier on the first features of a ranked list.

    Minimises mean log-loss + (l2 / 2) ||w - prior_mean||^2 with a free intercept, to a relative gradient of 1e-9; a
    `ConvergenceWarning` tells where that was not reached. Weights are importances: scaling all of them changes nothing.
    PyTorch tensors are copied to the CPU for the fit; `coef_` is a tensor where X was.

    Parameters
    ----------
    l2 : float or "auto"
        Penalty. "auto" tries a grid of 13 values, relative to the mean squared length of the rows about their mean.
    n_features : int or "auto"
        How many of the leading features to use. "auto" tries 1, 2, 4, ... and all. What is left to choose is chosen by
        leave-one-out log-loss, or by accuracy on `X_val, y_val` where given.
    class_weight : dict, "balanced" or None

    Attributes
    ----------
    coef_, intercept_ : arrays (1, p), (1,) or (K, p), (K,)
    l2_, n_features_, kkt_ : float, int, float
        What was used, and the largest relative gradient entry at the solution.
    scores_ : array (n_d, n_l2)
        Leave-one-out log-loss (or validation error) of each candidate, when something was chosen.
    """

    def __init__(self, l2: float | str = "auto", n_features: int | str = "auto", class_weight: Any = None):
        self.l2 = l2
        self.n_features = n_features
        self.class_weight = class_weight

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None, prior_mean: Any = None
    ) -> Probe:
        """Fit on labelled rows X (M, p); `prior_mean` (p,) or (K, p) centres the penalty."""
        X = check_X(self, X, reset=True)
        y = check_labels(y, X.shape[0])
        self.classes_, codes = check_classes(y)
        if len(self.classes_) < 2:
            hint = "label a row of another class, or use ProjectAndProbe.adapt, which knows them from the source"
            raise ValueError(f"y has one class only {self.classes_.tolist()}: {hint}.")
        rows = to_numpy(X)
        weight, val = self._weights(y, rows, sample_weight), validation_rows(self, X_val, y_val, rows)
        d_grid, l2_grid = feature_grid(self.n_features, X.shape[1]), penalty_grid(self.l2, rows, weight)
        prior = self._prior_mean(prior_mean)
        merged = Labelled.of(rows, codes, weight)
        fit, self.scores_ = select(merged.X, merged.y, d_grid, l2_grid, len(self.classes_), merged.c, prior, val)
        i, j = best_candidate(self.scores_)
        self.coef_ = asarray_like(np.atleast_2d(fit.coef[i, j]), X)
        self.intercept_ = asarray_like(np.atleast_1d(fit.intercept[i, j]), X)
        self.n_features_, self.l2_, self.kkt_ = d_grid[i], l2_grid[j], float(fit.kkt[i, j])
        if not fit.converged[i, j]:
            message = f"the probe did not converge: relative gradient {self.kkt_:.1e} at l2={self.l2_:.3g}. "
            warnings.warn(message + "Scale the features or raise l2.", ConvergenceWarning, stacklevel=2)
        return self

    def _prior_mean(self, prior_mean: Any) -> np.ndarray | None:
        """Checked: finite numbers, one per feature (and class, for more than two)."""
        if prior_mean is None:
            return None
        K, p = len(self.classes_), self.n_features_in_
        try:
            values = to_numpy(prior_mean).astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"prior_mean must be an array of numbers: {error}.") from None
        expected = (p,) if K == 2 else (K, p)
        values = values[0] if values.shape == (1, p) and K == 2 else values
        if values.shape != expected or not (np.abs(values) <= LARGEST).all():
            raise ValueError(f"prior_mean must be {expected} numbers up to {LARGEST:g}, got shape {values.shape}.")
        return values

    def _weights(self, y: np.ndarray, X: np.ndarray, sample_weight: Any) -> np.ndarray | None:
        weight = check_weight(sample_weight, X)
        if self.class_weight is None:
            return weight
        rows = np.ones(len(y)) if weight is None else weight
        if self.class_weight != "balanced":
            return check_weight(rows * compute_sample_weight(self.class_weight, y), X, "class_weight")
        # by weight, not by number of rows: a weight is a repetition here, too
        total = np.bincount(codes := np.searchsorted(self.classes_, y), rows)
        return check_weight(rows / np.where(total > 0, total, 1.0)[codes], X)


def select(
    Z: Array, codes: Array, d_grid: list[int], l2_grid: list[float], n_classes: int, weight: Array | None = None,
    prior_mean: Array | None = None, val: tuple[Array, Array] | None = None,
) -> tuple[LogisticFit, np.ndarray]:  # fmt: skip
    """Fit all candidates and score each: validation error where rows are given, leave-one-out log-loss otherwise.

    Equal rows must be merged by the caller (`Labelled.of`), before any matrix product: BLAS may give equal rows
    different last digits, and leave-one-out would then leave out only some copies of a row. Heads are arrays like Z.
    """
    X, y = to_numpy(Z), to_numpy(codes)
    weight, prior_mean = (None if v is None else to_numpy(v) for v in (weight, prior_mean))
    options: dict[str, Any] = {"n_classes": n_classes, "sample_weight": weight, "prior_mean": prior_mean}
    if val is not None:
        fit = fit_path(X, y, d_grid, l2_grid, **options)
        F = fit.coef @ to_numpy(val[0]).T + fit.intercept[..., None]
        scores = np.mean((F > 0 if n_classes == 2 else F.argmax(axis=-2)) != to_numpy(val[1]), axis=-1)
    elif len(d_grid) * len(l2_grid) == 1:
        fit, scores = fit_path(X, y, d_grid, l2_grid, **options), np.zeros((1, 1))
    else:
        fit, left_out = loo_path(X, y, d_grid, l2_grid, **options)
        scores = loo_loss(left_out, y, n_classes, weight)
    return fit._replace(coef=asarray_like(fit.coef, Z), intercept=asarray_like(fit.intercept, Z)), scores


def best_candidate(scores: np.ndarray) -> tuple[int, int]:
    """Lowest score; ties go to fewer features, then to the stronger penalty."""
    flipped = np.where(np.isfinite(scores), scores, np.inf)[:, ::-1]
    i, j = np.unravel_index(int(np.argmin(flipped)), flipped.shape)
    return int(i), scores.shape[1] - 1 - int(j)


def feature_grid(n_features: int | str, p: int) -> list[int]:
    """Prefix lengths to try: the one asked for, or 1, 2, 4, ... and all."""
    if n_features == "auto":
        return sorted({*(2**k for k in range(p.bit_length()) if 2**k < p), p})
    if isinstance(n_features, bool) or not isinstance(n_features, int | np.integer) or not 1 <= n_features <= p:
        raise ValueError(
            f"n_features must be 'auto' or an integer in 1..{p}, the number of features, got {n_features!r}."
        )
    return [int(n_features)]


def penalty_grid(l2: float | str, Z: Array, weight: Array | None = None) -> list[float]:
    """Penalties to try: the one asked for, or a grid in units of the mean squared row length, smallest first."""
    if isinstance(l2, str):
        if l2 != "auto":
            raise ValueError(f"l2 must be 'auto' or a positive number, got {l2!r}.")
        rows, share = to_numpy(Z).astype(np.float64), None if weight is None else to_numpy(weight)
        centred = rows - np.average(rows, axis=0, weights=share)
        unit = np.average((centred * centred).sum(axis=1), weights=share)
        return [float(g * (unit if unit > 0 else 1.0)) for g in L2_GRID]
    if isinstance(l2, bool) or not isinstance(l2, Real) or not 0 < l2 < float("inf"):
        raise ValueError(f"l2 must be 'auto' or a positive finite number, got {l2!r}.")
    return [float(l2)]
