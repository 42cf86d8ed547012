"""How the error splits into bias and variance, and how much the first d features tell about the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pro2.lab.theory.nullspace import check_rows
from pro2.linalg.moments import encode
from pro2.linalg.probes import fit_logistic, fit_path

Seed = int | np.random.Generator | None


@dataclass(frozen=True, eq=False)
class AdaptationCurves:
    """Target error over numbers of features (axis 0) and target rows per class (axis 1).

    Attributes
    ----------
    n_features, n_shots : tuple of int
        The axes, `n_shots` ascending.
    error, stderr : array (n_d, n_sizes)
        Mean error over the draws, and its standard error.
    """

    n_features: tuple[int, ...]
    n_shots: tuple[int, ...]
    error: np.ndarray
    stderr: np.ndarray

    @property
    def bias(self) -> np.ndarray:
        """Error at the largest target set, (n_d,): what more labels would not remove."""
        return self.error[:, -1]

    @property
    def variance(self) -> np.ndarray:
        """Difference to the error at the largest target set, (n_d, n_sizes): the price of few labels."""
        return self.error - self.error[:, -1:]


def adaptation_curves(
    components: np.ndarray,
    X_pool: np.ndarray,
    y_pool: np.ndarray,
    X_test: np.ndarray,
    y_test: np.ndarray,
    *,
    n_features: Sequence[int],
    n_shots: Sequence[int],
    l2: float = 0.01,
    n_draws: int = 10,
    random_state: Seed = None,
) -> AdaptationCurves:
    """Probe the first d features with n_shots rows per class of the pool, many times; error on the test rows.

    Draws are nested (a larger set contains the smaller), so the curves differ by the added rows only.

    Parameters
    ----------
    components : array (d, D)
        Features as rows in rank order.
    X_pool, y_pool, X_test, y_test : arrays
        Target rows to draw from and to measure on; no row may be in both.
    n_features, n_shots : sequence of int
        Prefix lengths of `components`, and rows per class (at most what the rarest class of the pool has).
    l2 : float
        Penalty of the probe.
    """
    classes, pool = encode(y_pool)
    test = encode(y_test, classes)[1]
    sizes = tuple(sorted(int(n) for n in n_shots))
    have = int(np.bincount(pool).min())
    if not sizes or sizes[0] < 1 or sizes[-1] > have:
        raise ValueError(f"n_shots must lie in 1..{have} (rows of the rarest class of the pool), got {list(n_shots)}.")
    rows, X_pool = check_rows(components, X_pool)
    Z, T = X_pool @ rows.T, np.asarray(X_test, dtype=float) @ rows.T
    order = _class_orders(pool, sizes[-1], n_draws, np.random.default_rng(random_state))
    errors = np.empty((n_draws, len(n_features), len(sizes)))
    for j, n in enumerate(sizes):
        at = order[:, :, :n].reshape(n_draws, -1)
        fit = fit_path(Z[at], pool[at], n_features, [l2], n_classes=len(classes))
        for r in range(n_draws):
            errors[r, :, j] = _error(T, test, fit.coef[r, :, 0], fit.intercept[r, :, 0])
    stderr = errors.std(axis=0, ddof=min(1, n_draws - 1)) / np.sqrt(n_draws)
    return AdaptationCurves(tuple(int(d) for d in n_features), sizes, errors.mean(axis=0), stderr)


@dataclass(frozen=True, eq=False)
class InformationCurve:
    """Information about the label in the first d features, in nats.

    Attributes
    ----------
    n_features : tuple of int
        Prefix lengths.
    lower_bound : array (n_d,)
        Lower bound on I(first d features; y): never decreases with d, at most `entropy`.
    marginal_sum : array (n_d,)
        Sum over the first d features of a lower bound on I(feature; y): the criterion that the Project step
        maximises (the information theorem), which bounds I up to a constant and may exceed `entropy`.
    entropy : float
        H(y), the most there is to know.
    """

    n_features: tuple[int, ...]
    lower_bound: np.ndarray
    marginal_sum: np.ndarray
    entropy: float


def information_curve(
    components: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    n_features: Sequence[int] | None = None,
    *,
    l2: float = 1e-3,
    random_state: Seed = 0,
) -> InformationCurve:
    """Lower bounds on what the first d features tell about the label.

    I(Z; y) >= H(y) - cross-entropy of any classifier of y from Z (Barber & Agakov, 2003). The classifier is logistic,
    fitted on one half of the rows and measured on the other, both ways round. As the first d features contain all
    shorter prefixes, the largest value so far is a bound for d, too.

    Parameters
    ----------
    components : array (d, D)
        Features as rows in rank order.
    X, y : arrays (N, D), (N,)
        Labelled rows, at least two of each class.
    n_features : sequence of int, optional
        Prefix lengths in ascending order; all of 1..d by default.
    l2 : float
        Penalty of the classifier, on features of unit variance.
    """
    rows, X = check_rows(components, X)
    wanted = tuple(range(1, len(rows) + 1)) if n_features is None else tuple(int(d) for d in n_features)
    if list(wanted) != sorted(wanted):
        raise ValueError(f"n_features must ascend, got {list(wanted)}.")
    classes, codes = encode(y)
    if np.bincount(codes).min() < 2:
        raise ValueError("y has a class with one row: each half of the rows needs every class.")
    Z = (X - X.mean(axis=0)) @ rows.T
    Z = Z / np.where(Z.std(axis=0) > 0, Z.std(axis=0), 1.0)
    joint, alone = np.zeros(len(wanted)), np.zeros(wanted[-1])
    halves = _halves(codes, np.random.default_rng(random_state))
    for train, test in (halves, halves[::-1]):
        share = len(test) / len(codes)
        fit = fit_path(Z[train], codes[train], wanted, [l2], n_classes=len(classes))
        joint += share * _cross_entropies(Z[test], codes[test], fit.coef[:, 0], fit.intercept[:, 0])
        alone += share * _single_cross_entropies(Z[:, : wanted[-1]], codes, train, test, len(classes), l2)
    p = np.bincount(codes) / len(codes)
    entropy = float(-np.sum(p * np.log(p)))
    single = np.cumsum(np.maximum(entropy - alone, 0.0))[np.array(wanted) - 1]
    return InformationCurve(wanted, np.maximum.accumulate(np.maximum(entropy - joint, 0.0)), single, entropy)


def _class_orders(codes: np.ndarray, n: int, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Indices (n_draws, K, n): for each draw n distinct rows of every class, in random order."""
    members = [np.flatnonzero(codes == k) for k in range(codes.max() + 1)]
    return np.array([[rng.permutation(rows)[:n] for rows in members] for _ in range(n_draws)])


def _halves(codes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two disjoint halves of the rows, each with its share of every class."""
    members = [rng.permutation(np.flatnonzero(codes == k)) for k in range(codes.max() + 1)]
    return np.concatenate([m[::2] for m in members]), np.concatenate([m[1::2] for m in members])


def _scores(Z: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Class scores (n_d, N, K) of heads stacked on the first axis; two classes get the scores (0, z)."""
    if coef.ndim == 3:
        return np.einsum("nd,akd->ank", Z, coef) + intercept[:, None, :]
    z = coef @ Z.T + intercept[:, None]
    return np.stack([np.zeros_like(z), z], axis=-1)


def _error(Z: np.ndarray, codes: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    return np.mean(_scores(Z, coef, intercept).argmax(axis=-1) != codes, axis=-1)


def _cross_entropies(Z: np.ndarray, codes: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    scores = _scores(Z, coef, intercept)
    scores = scores - scores.max(axis=-1, keepdims=True)
    own = np.take_along_axis(scores, codes[None, :, None], axis=-1)[..., 0]
    return np.mean(np.log(np.exp(scores).sum(axis=-1)) - own, axis=-1)


def _single_cross_entropies(
    Z: np.ndarray, codes: np.ndarray, train: np.ndarray, test: np.ndarray, n_classes: int, l2: float
) -> np.ndarray:
    """Held-out cross-entropy of each feature alone: one batch of one-dimensional problems."""
    fit = fit_logistic(
        Z[train].T[..., None], np.broadcast_to(codes[train], (Z.shape[1], len(train))), l2, n_classes=n_classes
    )
    each = [
        _cross_entropies(Z[test, i : i + 1], codes[test], fit.coef[i : i + 1], fit.intercept[i : i + 1])[0]
        for i in range(Z.shape[1])
    ]
    return np.array(each)
