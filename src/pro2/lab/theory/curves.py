"""How the error on the target splits into bias and variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pro2.lab.theory.nullspace import check_rows
from pro2.linalg.moments import encode
from pro2.linalg.probes import fit_path

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


def _class_orders(codes: np.ndarray, n: int, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Indices (n_draws, K, n): for each draw n distinct rows of every class, in random order."""
    members = [np.flatnonzero(codes == k) for k in range(codes.max() + 1)]
    return np.array([[rng.permutation(rows)[:n] for rows in members] for _ in range(n_draws)])


def _error(Z: np.ndarray, codes: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Share of wrong rows (n_d,) of heads that are stacked on the first axis."""
    if coef.ndim == 2:  # two classes
        found = coef @ Z.T + intercept[:, None] > 0
    else:
        found = (np.einsum("nd,akd->ank", Z, coef) + intercept[:, None, :]).argmax(axis=-1)
    return np.mean(found != codes, axis=-1)
