"""Linear features of embeddings, what a method learned from the source, and the probes on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pro2.estimators.linear import unit_rows
from pro2.lab.experiments.evaluate import Draws, Tally
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch, Setting
from pro2.linalg.adamw import adamw_probe
from pro2.linalg.losses import n_scores
from pro2.linalg.probes import fit_path, loo_loss, loo_path

PROBE_DEFAULTS: dict[str, Any] = {"probe": "newton", "lr": 0.01, "steps": 100}
LEARNERS = ("knn", "gp", "boosting")

Heads = tuple[np.ndarray, np.ndarray, np.ndarray]
_KEPT = 4  # projected pools that features keep: batches come target by target, from a few workers at a time


@dataclass(frozen=True, eq=False)
class Features:
    """Linear features z = C ((x - mean) / scale); ``components`` None stands for the identity.

    With `unit`, x is divided by its length first.
    """

    mean: np.ndarray
    scale: np.ndarray
    components: np.ndarray | None
    unit: bool = False
    _pools: dict[tuple[str, str, int], np.ndarray] = field(default_factory=dict, repr=False)

    @cached_property
    def single(self) -> np.ndarray | None:
        """Components in float32."""
        return None if self.components is None else self.components.astype(np.float32)

    def transform(self, X: np.ndarray, n_features: int) -> np.ndarray:
        """The first `n_features` features of rows (..., D), in the precision of the rows.

        Embeddings are no more exact than that.
        """
        if self.unit:
            X = unit_rows(X.reshape(-1, X.shape[-1])).reshape(X.shape)
        Z = X - self.mean.astype(X.dtype)
        Z /= self.scale.astype(X.dtype)
        if self.components is None or self.single is None:
            return Z
        return Z @ (self.single if X.dtype == np.float32 else self.components)[:n_features].T

    def pool(self, problem: Problem, target: str, n_features: int) -> np.ndarray:
        """The features of all rows of a target, made once while batches of that target come."""
        key = (problem.digest, target, n_features)
        made = self._pools.get(key)
        if made is None:
            made = self.transform(problem.pool(target)[0], n_features)
            for old in list(self._pools)[: max(0, len(self._pools) - _KEPT + 1)]:
                self._pools.pop(old, None)  # another thread may have done so
            self._pools[key] = made
        return made

    def original(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Heads on the features as heads on the embeddings, in the precision of coef (..., d); intercept (...)."""
        rows = self.single if coef.dtype == np.float32 else self.components
        W = coef.reshape(-1, coef.shape[-1])  # one product, not one a head
        W = W if rows is None else W @ rows[: W.shape[-1]]
        W = (W / self.scale.astype(coef.dtype)).reshape(*coef.shape[:-1], -1)
        return W, intercept - W @ self.mean


def options_of(batch: Batch, setting: Setting) -> dict[str, Any]:
    """Parameters of the probe."""
    given = {**dict(batch.method.params), **dict(setting.params)}
    return {name: given.get(name, default) for name, default in PROBE_DEFAULTS.items()}


def is_affine(batch: Batch, settings: Sequence[Setting]) -> bool:
    """Whether the probe ends in one affine map."""
    kind = options_of(batch, settings[0])["probe"]
    if kind not in ("newton", "adamw", *LEARNERS):
        raise ValueError(
            f"probe is {kind!r}; expected 'newton' (exact), 'adamw' (the paper's optimiser) or one of {LEARNERS}"
        )
    return kind not in LEARNERS


def probe_heads(
    problem: Problem, batch: Batch, draws: Draws, features: list[Features], settings: Sequence[Setting]
) -> Heads:
    """Heads on one set of features: coef (S, G, K, d), intercept (S, G, K), support loss (S, G).

    `features` holds one entry, or one per seed; d is the largest number of features of the settings.
    """
    Z = few_rows(problem, batch.target, draws, features, grid_axes(settings)[0][-1])
    if options_of(batch, settings[0])["probe"] == "adamw":
        coef, intercept = _adamw(problem, batch, draws, features, Z, settings)
        return coef, intercept, np.full(coef.shape[:2], np.nan)
    return _exact(Z, problem.y[draws.few], problem.n_classes, settings, batch.support)


def grid_axes(settings: Sequence[Setting]) -> tuple[list[int], list[float]]:
    """The sorted feature counts and penalties that occur in a batch."""
    return sorted({s.n_features or 0 for s in settings}), sorted({s.l2 or 0.0 for s in settings})


def few_rows(problem: Problem, target: str, draws: Draws, features: list[Features], n_features: int) -> np.ndarray:
    """Features of the few labelled rows, (S, M, d): of all rows of the target and then picked, if seeds share them."""
    if len(features) == 1:
        return features[0].pool(problem, target, n_features)[draws.at].astype(np.float64)
    X = problem.pool(target)[0]
    return np.stack([f.transform(X[at], n_features) for f, at in zip(features, draws.at)]).astype(np.float64)


def _exact(Z: np.ndarray, y: np.ndarray, n_classes: int, settings: Sequence[Setting], support: bool) -> Heads:
    """Every feature count and penalty through one path; with `support` the leave-one-out losses, too."""
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
    """One fit per run, each with the random start of its own seed; early stopping on the validation rows, if any."""
    X_pool, y_pool = problem.pool(batch.target)
    K = n_scores(problem.n_classes)
    coef = np.zeros((len(batch.seeds), len(settings), K, Z.shape[-1]))
    intercept = np.zeros((len(batch.seeds), len(settings), K))
    for i, (seed, few, val) in enumerate(zip(batch.seeds, draws.few, draws.val)):
        Z_val = features[i % len(features)].transform(X_pool[val], Z.shape[-1]).astype(np.float64)
        for j, s in enumerate(settings):
            d, options = s.n_features or Z.shape[-1], options_of(batch, s)
            held_out = {"X_val": Z_val[:, :d], "y_val": y_pool[val]} if len(Z_val) else {}
            coef[i, j, :, :d], intercept[i, j] = adamw_probe(
                Z[i, :, :d], problem.y[few], s.l2 or 0.0, options["lr"], np.random.default_rng(seed),
                n_classes=problem.n_classes, steps=options["steps"], **held_out,
            )  # fmt: skip
    return coef, intercept


def probe_measures(
    problem: Problem, batch: Batch, draws: Draws, features: list[Features], settings: Sequence[Setting]
) -> dict[str, np.ndarray]:
    """Learners that are no affine map, one fit per run; they see the features divided by one number."""
    most = max(s.n_features or problem.width for s in settings)
    X = problem.pool(batch.target)[0]
    tally = Tally(problem, batch.target, draws, len(settings))
    for i, at in enumerate(draws.at):
        own = features[i % len(features)]
        Z = own.pool(problem, batch.target, most) if len(features) == 1 else own.transform(X, most)
        for j, s in enumerate(settings):
            d = s.n_features or problem.width
            unit = float(np.sqrt(np.mean(Z[at, :d] ** 2))) or 1.0
            scores = _learned(options_of(batch, s)["probe"], Z[:, :d] / unit, at, problem.y[draws.few[i]], problem)
            tally.add(scores[None, None], [j], slice(None), slice(i, i + 1))
    return tally.result()


def _learned(kind: str, Z: np.ndarray, at: np.ndarray, y: np.ndarray, problem: Problem) -> np.ndarray:
    """Logits (K, n) of all rows from a learner that has seen the rows `at`; K = 1 for two classes."""
    model = _learner(kind, y, Z.shape[1]).fit(Z[at], y)
    P = np.full((len(Z), problem.n_classes), 1e-12)
    P[:, model.classes_] = np.maximum(model.predict_proba(Z), 1e-12)
    logits = np.log(P).T
    return logits[1:] - logits[:1] if problem.n_classes == 2 else logits


def _learner(kind: str, y: np.ndarray, width: int) -> Any:
    """Settings that work without tuning from four labels on."""
    if kind == "knn":
        from sklearn.neighbors import KNeighborsClassifier

        return KNeighborsClassifier(int(min(5, np.bincount(y)[np.unique(y)].min())))
    if kind == "gp":
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel

        # rows have a mean square of one per feature: sqrt(width) is their typical distance; fitted from there
        kernel = ConstantKernel(4.0, (1e-9, 1e9)) * RBF(width**0.5, (1e-9, 1e9))
        return GaussianProcessClassifier(kernel, optimizer=_most_likely, random_state=0)
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(random_state=0)


def _most_likely(objective: Any, start: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
    """Kernel of largest likelihood within a factor of 100 of the start: labels can be separable, or pure noise."""
    from scipy.optimize import minimize

    reach = np.log(100.0)
    near = np.stack([start - reach, start + reach], axis=1)
    found = minimize(objective, start, jac=True, bounds=near, method="L-BFGS-B", options={"maxiter": 100})
    return found.x, found.fun
