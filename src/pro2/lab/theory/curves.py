"""How the error on the target splits into bias and variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pro2.lab.theory.bounds import check_components
from pro2.linalg.arrays import encode
from pro2.linalg.logistic import fit_path


@dataclass(frozen=True, eq=False)
class AdaptationCurves:
    """Mean target error over the draws, and its standard error, by `n_features` (axis 0) and `n_shots` (axis 1)."""

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
    components: np.ndarray, X_pool: np.ndarray, y_pool: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, *,
    n_features: Sequence[int], n_shots: Sequence[int], l2: float = 0.01, n_draws: int = 10,
    random_state: int | np.random.Generator | None = None,
) -> AdaptationCurves:  # fmt: skip
    """Probe the first d of `components` with n_shots rows per class of the pool, many times; error on the test rows.

    Draws are nested (a larger set contains the smaller), so the curves differ by the added rows only. No row may be in
    both pool and test.
    """
    classes, pool = encode(y_pool)
    test = encode(y_test, classes)[1]
    sizes = tuple(sorted(int(n) for n in n_shots))
    rarest = int(np.bincount(pool).min())
    if not sizes or sizes[0] < 1 or sizes[-1] > rarest:
        raise ValueError(
            f"n_shots must lie in 1..{rarest} (rows of the rarest class of the pool), got {list(n_shots)}."
        )
    rows, X_pool = check_components(components, X_pool)
    Z, T, rng = X_pool @ rows.T, np.asarray(X_test, dtype=float) @ rows.T, np.random.default_rng(random_state)
    members = [np.flatnonzero(pool == k) for k in range(len(classes))]
    order = np.array([[rng.permutation(rows)[: sizes[-1]] for rows in members] for _ in range(n_draws)])
    errors = np.empty((n_draws, len(n_features), len(sizes)))
    for j, n in enumerate(sizes):
        at = order[:, :, :n].reshape(n_draws, -1)
        fit = fit_path(Z[at], pool[at], n_features, [l2], n_classes=len(classes))
        for r, (coef, intercept) in enumerate(zip(fit.coef[:, :, 0], fit.intercept[:, :, 0])):
            scores = np.einsum("nd,a...d->an...", T, coef) + intercept[:, None]
            answers = scores > 0 if len(classes) == 2 else scores.argmax(axis=-1)
            errors[r, :, j] = np.mean(answers != test, axis=1)
    stderr = errors.std(axis=0, ddof=min(1, n_draws - 1)) / np.sqrt(n_draws)
    return AdaptationCurves(tuple(int(d) for d in n_features), sizes, errors.mean(axis=0), stderr)
