"""The probes of a batch: exact and all together, or one by one with the paper's optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pro2.lab.experiments.heads import Draws, Features
from pro2.lab.experiments.problems import Problem

if TYPE_CHECKING:
    from pro2.lab.experiments.expand import Batch, Setting

PROBE_DEFAULTS: dict[str, Any] = {"probe": "newton", "lr": 0.01, "steps": 100}

_Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def probe_heads(
    problem: Problem, batch: Batch, draws: Draws, features: list[Features], settings: Sequence[Setting]
) -> _Arrays:
    """Heads on one set of features: coef (S, G, K, d), intercept (S, G, K), support loss (S, G).

    `features` holds one entry, or one a seed; d is the largest number of features of the settings.
    """
    sizes, _ = grid_axes(settings)
    Z = _few(problem, batch.target, draws, features, sizes[-1]).astype(np.float64)
    y = problem.y[draws.few]
    kind = {**PROBE_DEFAULTS, **dict(batch.method.params)}["probe"]
    if kind == "newton":
        return _exact(Z, y, problem.n_classes, settings, batch.support)
    if kind == "adamw":
        coef, intercept = _adamw(problem, batch, draws, features, Z, settings)
        return coef, intercept, np.full(coef.shape[:2], np.nan)
    raise ValueError(f"probe is {kind!r}; expected 'newton' (exact) or 'adamw' (the paper's optimiser)")


def on_embeddings(
    features: Sequence[Features], coef: np.ndarray, intercept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Heads on features of each seed's own as heads on embeddings, (S, G, K, D), in float32."""
    pairs = [f.original(c.astype(np.float32), b) for f, c, b in zip(features, coef, intercept)]
    return np.stack([W for W, _ in pairs]), np.stack([b for _, b in pairs])


def grid_axes(settings: Sequence[Setting]) -> tuple[list[int], list[float]]:
    """The sorted feature counts and penalties that occur in a batch."""
    return sorted({s.n_features or 0 for s in settings}), sorted({s.l2 or 0.0 for s in settings})


def _exact(Z: np.ndarray, y: np.ndarray, n_classes: int, settings: Sequence[Setting], support: bool) -> _Arrays:
    """Every feature count and penalty through one path; with `support` the leave-one-out losses, too."""
    from pro2.linalg.probes import fit_path
    from pro2.linalg.probes import loo_loss, loo_path

    sizes, l2 = grid_axes(settings)
    at = (slice(None), [sizes.index(s.n_features or 0) for s in settings], [l2.index(s.l2 or 0.0) for s in settings])
    if support:
        fit, scores = loo_path(Z, y, sizes, l2, n_classes=n_classes)
        loss = np.asarray(loo_loss(scores, y, n_classes))[at]
    else:
        fit = fit_path(Z, y, sizes, l2, n_classes=n_classes)
        loss = np.full((len(Z), len(settings)), np.nan)
    coef, intercept = fit.coef[at], fit.intercept[at]
    return (coef[:, :, None], intercept[:, :, None], loss) if n_classes == 2 else (coef, intercept, loss)


def _adamw(
    problem: Problem, batch: Batch, draws: Draws, features: list[Features], Z: np.ndarray, settings: Sequence[Setting]
) -> tuple[np.ndarray, np.ndarray]:
    """One fit a run, each with the random start of its own seed; early stopping on the validation rows, if any."""
    from pro2.linalg.adamw import adamw_probe

    X_pool, y_pool = problem.pool(batch.target)
    K = 1 if problem.n_classes == 2 else problem.n_classes
    coef = np.zeros((len(batch.seeds), len(settings), K, Z.shape[-1]))
    intercept = np.zeros((len(batch.seeds), len(settings), K))
    for i, (seed, few, val) in enumerate(zip(batch.seeds, draws.few, draws.val)):
        Z_val = None
        if val.any():
            Z_val = features[i % len(features)].transform(X_pool[val], Z.shape[-1]).astype(np.float64)
        for j, s in enumerate(settings):
            d = s.n_features or Z.shape[-1]
            options = {**PROBE_DEFAULTS, **dict(batch.method.params), **dict(s.params)}
            coef[i, j, :, :d], intercept[i, j] = adamw_probe(
                Z[i, :, :d], problem.y[few], s.l2 or 0.0, options["lr"], np.random.default_rng(seed),
                n_classes=problem.n_classes, X_val=None if Z_val is None else Z_val[:, :d],
                y_val=None if Z_val is None else y_pool[val], steps=options["steps"],
            )  # fmt: skip
    return coef, intercept


def _few(problem: Problem, target: str, draws: Draws, features: list[Features], n_features: int) -> np.ndarray:
    """Features of the few labelled rows, (S, M, d): of all rows of the target and then picked, if seeds share them."""
    if len(features) == 1:
        return features[0].pool(problem, target, n_features)[draws.at]
    X = problem.pool(target)[0]
    return np.stack([f.transform(X[at], n_features) for f, at in zip(features, draws.at)])
