"""The Probe step as a scikit-learn classifier on ranked features."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_sample_weight

from pro2.estimators.contract import check_classes, check_labels
from pro2.estimators.linear import AffineMixin
from pro2.estimators.validation import LARGEST, beside, check_weight, check_X, random_generator
from pro2.linalg.adamw import adamw_probe
from pro2.linalg.labels import Labels
from pro2.linalg.moments import Array, encode, host
from pro2.linalg.probes import LogisticFit, fit_path, loo_loss, loo_path

L2_GRID = tuple(10.0 ** np.arange(-4, 2.5, 0.5))
FASTEST = 100.0  # learning rate: beyond, the decay of the weights makes them grow


class Probe(AffineMixin, BaseEstimator):
    """Exact L2-regularised linear classifier on the first features of a ranked list.

    Minimises mean log-loss + (l2 / 2) ||w - prior_mean||^2 with a free intercept, to a relative gradient of 1e-9; a
    `ConvergenceWarning` tells where that was not reached. Weights are importances: scaling all of them changes nothing.

    Parameters
    ----------
    l2 : float or "auto"
        Penalty. "auto" tries a grid of 13 values, relative to the mean squared length of the rows about their mean.
    n_features : int or "auto"
        How many of the leading features to use. "auto" tries 1, 2, 4, ... and all.
        What is left to choose is chosen by leave-one-out log-loss, or by accuracy on `X_val, y_val` where given.
    solver : {"newton", "adamw"}
        "adamw" is the paper's optimiser (100 full-batch steps, early stopping on `X_val, y_val`), for reproduction. It
        chooses nothing: "auto" is then the middle of the grid, and all features.
    class_weight : dict, "balanced" or None
    learning_rate : float
        Only for "adamw".
    random_state : int, Generator or None
        Start of "adamw".

    Attributes
    ----------
    coef_, intercept_ : arrays (1, p), (1,) or (K, p), (K,)
    l2_, n_features_ : float, int
        What was used.
    scores_ : array (n_d, n_l2)
        Leave-one-out log-loss (or validation error) of each candidate, when something was chosen. Not for "adamw".
    kkt_ : float
        Largest relative gradient entry at the solution. Not for "adamw".
    """

    def __init__(
        self,
        l2: float | str = "auto",
        n_features: int | str = "auto",
        solver: str = "newton",
        class_weight: Any = None,
        learning_rate: float = 0.01,
        random_state: Any = None,
    ):
        self.l2 = l2
        self.n_features = n_features
        self.solver = solver
        self.class_weight = class_weight
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None, prior_mean: Any = None
    ) -> Probe:
        """Fit on labelled rows X (M, p); `prior_mean` (p,) or (K, p) centres the penalty."""
        X = check_X(self, X, reset=True)
        y = check_labels(y, X.shape[0])
        self.classes_ = check_classes(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only {self.classes_.tolist()}: label at least one row of another class, or use "
                "ProjectAndProbe.adapt, which knows the other classes from the source."
            )
        codes = beside(encode(y, self.classes_.tolist())[1], X)
        weight = self._weights(y, X, sample_weight)
        val = self._validation(X_val, y_val, X)
        d_grid, l2_grid = feature_grid(self.n_features, X.shape[1]), penalty_grid(self.l2, X, weight)
        prior = self._prior_mean(prior_mean, X)
        if self.solver == "adamw":
            return self._fit_adamw(X, codes, weight, prior, d_grid[-1], l2_grid[len(l2_grid) // 2], val)
        if self.solver != "newton":
            raise ValueError(f"solver must be 'newton' or 'adamw', got {self.solver!r}.")
        fit, self.scores_ = select(X, codes, d_grid, l2_grid, len(self.classes_), weight, prior, val)
        return self._keep(fit, d_grid, l2_grid)

    def _keep(self, fit: LogisticFit, d_grid: list[int], l2_grid: list[float]) -> Probe:
        i, j = best_candidate(self.scores_)
        xp = array_namespace(fit.coef)
        coef = fit.coef[i, j, ...]
        self.coef_ = coef[None, :] if coef.ndim == 1 else coef
        self.intercept_ = xp.reshape(fit.intercept[i, j, ...], (-1,))
        self.n_features_, self.l2_, self.kkt_ = d_grid[i], l2_grid[j], float(fit.kkt[i, j])
        if not bool(fit.converged[i, j]):
            found = f"relative gradient {self.kkt_:.1e} at l2={self.l2_:.3g}"
            advice = "Scale the features or raise l2."
            warnings.warn(f"the probe did not converge: {found}. {advice}", ConvergenceWarning, stacklevel=3)
        return self

    def _prior_mean(self, prior_mean: Any, X: Array) -> Array | None:
        """Checked: finite numbers, one per feature (and class, for more than two)."""
        if prior_mean is None:
            return None
        K, p = len(self.classes_), X.shape[1]
        try:
            values = np.asarray(host(prior_mean) if is_array_api_obj(prior_mean) else prior_mean, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"prior_mean must be an array of numbers: {error}.") from None
        expected = (p,) if K == 2 else (K, p)
        if values.shape == (1, p) and K == 2:
            values = values[0]
        if values.shape != expected or not (np.abs(values) <= LARGEST).all():
            raise ValueError(f"prior_mean must be {expected} numbers up to {LARGEST:g}, got shape {values.shape}.")
        return array_namespace(X).asarray(values, dtype=X.dtype, device=device(X))

    def _fit_adamw(
        self, X: Array, codes: Array, weight: Array | None, prior: Array | None, d: int, l2: float,
        val: tuple[Array, Array] | None,
    ) -> Probe:  # fmt: skip
        lr = self.learning_rate
        if isinstance(lr, bool) or not isinstance(lr, Real) or not 0 < lr <= FASTEST:
            raise ValueError(f"learning_rate must be a positive number up to {FASTEST:g}, got {lr!r}.")
        rng, xp = random_generator(self.random_state), array_namespace(X)
        X_val, y_val = (val[0][:, :d], val[1]) if val else (None, None)
        prior = None if prior is None else prior[..., :d]
        coef, intercept = adamw_probe(
            X[:, :d], codes, l2, float(lr), rng, n_classes=len(self.classes_), X_val=X_val, y_val=y_val,
            sample_weight=weight, prior_mean=prior,
        )  # fmt: skip
        rest = xp.zeros((coef.shape[0], X.shape[1] - d), dtype=coef.dtype, device=device(coef))
        self.coef_, self.intercept_ = xp.concat([coef, rest], axis=1), intercept
        self.n_features_, self.l2_ = d, l2
        return self

    def _weights(self, y: np.ndarray, X: Array, sample_weight: Any) -> Array | None:
        weight = check_weight(sample_weight, X)
        if self.class_weight is None:
            return weight
        rows = np.ones(len(y)) if weight is None else host(weight)
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            # by weight, not by number of rows: a weight is a repetition here, too
            code = np.searchsorted(self.classes_, y)
            total = np.bincount(code, rows)
            return check_weight(rows / np.where(total > 0, total, 1.0)[code], X)
        return check_weight(rows * compute_sample_weight(self.class_weight, y), X, "class_weight")

    def _validation(self, X_val: Any, y_val: Any, X: Array) -> tuple[Array, Array] | None:
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val go together: give both or neither.")
        if X_val is None:
            return None
        X_val = beside(check_X(self, X_val, reset=False, name="X_val"), X)
        y_val = check_labels(y_val, X_val.shape[0], "y_val")
        return X_val, beside(encode(y_val, self.classes_.tolist())[1], X_val)


def select(
    Z: Array, codes: Array, d_grid: list[int], l2_grid: list[float], n_classes: int, weight: Array | None = None,
    prior_mean: Array | None = None, val: tuple[Array, Array] | None = None,
) -> tuple[LogisticFit, np.ndarray]:  # fmt: skip
    """Fit all candidates and score each: validation error where rows are given, leave-one-out log-loss otherwise."""
    # equal rows are one, and leave together, so that a row of weight 2 is the same as that row twice
    Z, codes, weight, *_ = Labels.of(Z, codes, weight)
    shared: dict[str, Any] = {"n_classes": n_classes, "sample_weight": weight, "prior_mean": prior_mean}
    if val is not None:
        fit = fit_path(Z, codes, d_grid, l2_grid, **shared)
        return fit, 1.0 - _validation_accuracy(fit, *val)
    if len(d_grid) * len(l2_grid) == 1:
        return fit_path(Z, codes, d_grid, l2_grid, **shared), np.zeros((1, 1))
    fit, scores = loo_path(Z, codes, d_grid, l2_grid, **shared)
    return fit, host(loo_loss(scores, codes, n_classes, weight))


def best_candidate(scores: np.ndarray) -> tuple[int, int]:
    """Lowest score; ties go to fewer features, then to the stronger penalty."""
    flipped = np.where(np.isfinite(scores), scores, np.inf)[:, ::-1]
    i, j = np.unravel_index(int(np.argmin(flipped)), flipped.shape)
    return int(i), scores.shape[1] - 1 - int(j)


def _validation_accuracy(fit: LogisticFit, X_val: Array, y_val: Array) -> np.ndarray:
    xp = array_namespace(X_val)
    X_val = xp.astype(X_val, fit.coef.dtype, copy=False)  # PyTorch multiplies no two types
    if fit.coef.ndim == 3:
        codes = xp.astype(fit.coef @ xp.matrix_transpose(X_val) + fit.intercept[..., None] > 0, y_val.dtype)
    else:
        logits = X_val @ xp.matrix_transpose(fit.coef) + fit.intercept[..., None, :]
        codes = xp.astype(xp.argmax(logits, axis=-1), y_val.dtype)
    return host(xp.mean(xp.astype(codes == y_val, xp.float64), axis=-1))


def feature_grid(n_features: int | str, p: int) -> list[int]:
    """Prefix lengths to try: the one asked for, or 1, 2, 4, ... and all."""
    if n_features == "auto":
        return sorted({*(2**k for k in range(p.bit_length()) if 2**k < p), p})
    if isinstance(n_features, str | bool) or not isinstance(n_features, int | np.integer) or not 1 <= n_features <= p:
        raise ValueError(
            f"n_features must be 'auto' or an integer in 1..{p} (the number of features), got {n_features!r}."
        )
    return [int(n_features)]


def penalty_grid(l2: float | str, Z: Array, weight: Array | None = None) -> list[float]:
    """Penalties to try: the one asked for, or a grid in units of the mean squared row length, smallest first."""
    if isinstance(l2, str):
        if l2 != "auto":
            raise ValueError(f"l2 must be 'auto' or a positive number, got {l2!r}.")
        xp = array_namespace(Z)
        Z = xp.astype(Z, xp.float64, copy=False)
        share = xp.ones_like(Z[:, 0]) if weight is None else weight
        share = share / xp.sum(share)
        centred = Z - share @ Z
        unit = float(share @ xp.sum(centred * centred, axis=1))
        return [float(g * (unit if unit > 0 else 1.0)) for g in L2_GRID]
    if isinstance(l2, bool) or not isinstance(l2, Real) or not 0 < l2 < float("inf"):
        raise ValueError(f"l2 must be 'auto' or a positive finite number, got {l2!r}.")
    return [float(l2)]
