"""What travels inside a batch: few-shot draws, linear features, affine heads, and their evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pro2.estimators.linear import unit_rows
from pro2.experiments.problems import Problem

# Logits of one chunk of the evaluation, in float32 entries (32 MB).
_CHUNK = 8_000_000


class Heads(NamedTuple):
    """Affine classifiers in the original space: coef (S, G, K, D), intercept (S, G, K); K = 1 for two classes.

    S counts seeds, G settings. support_loss (S, G) is a leave-one-out log-loss on the few labelled rows.
    With `unit` the heads are meant for rows divided by their length.
    """

    coef: np.ndarray
    intercept: np.ndarray
    support_loss: np.ndarray | None = None
    unit: bool = False


class Draws(NamedTuple):
    """Few-shot rows (S, M) and validation rows of every seed; which pool rows are for test and validation (S, n)."""

    few: np.ndarray
    test: np.ndarray
    val: np.ndarray


@dataclass(frozen=True, eq=False)
class Features:
    """Linear features z = C ((x - mean) / scale); ``components`` None stands for the identity.

    With `unit`, x is divided by its length first.
    """

    mean: np.ndarray
    scale: np.ndarray
    components: np.ndarray | None
    unit: bool = False

    def transform(self, X: np.ndarray, n_features: int) -> np.ndarray:
        """The first `n_features` features of rows (..., D), in float64.

        The product itself is done in the precision of the rows: embeddings are no more exact than that.
        """
        if self.unit:
            X = unit_rows(X.reshape(-1, X.shape[-1])).reshape(X.shape)
        Z = (X - self.mean.astype(X.dtype)) / self.scale.astype(X.dtype)
        if self.components is not None:
            Z = Z @ self.components[:n_features].T.astype(X.dtype)
        return Z.astype(np.float64)

    def original(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Heads on the features as heads on the embeddings: coef (..., d), intercept (...)."""
        W = coef if self.components is None else coef @ self.components[: coef.shape[-1]]
        W = W / self.scale
        return W, intercept - W @ self.mean

    def nullspace_norms(self, head: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        """Share of a head's length outside the span of the first d features, for each d of `sizes`."""
        from pro2.diagnostics import nullspace_norm

        if self.components is None:
            raise ValueError("the nullspace norm needs ranked features; this method uses all of them")
        return nullspace_norm(self.components, head * self.scale)[np.asarray(sizes) - 1]


def evaluate(problem: Problem, target: str, draws: Draws, heads: Heads) -> dict[str, np.ndarray]:
    """Accuracy and log-loss on the test rows and accuracy on the validation rows, each (S, G)."""
    X, y = problem.pool(target)
    X = unit_rows(X) if heads.unit else X
    S, G, K, D = heads.coef.shape
    out = {name: np.full((S, G), np.nan) for name in ("accuracy", "log_loss", "val_accuracy")}
    step = max(1, _CHUNK // (len(X) * G * K))
    for part in (slice(i, i + step) for i in range(0, S, step)):
        W = heads.coef[part].reshape(-1, D).astype(X.dtype)
        b = heads.intercept[part].reshape(-1).astype(X.dtype)
        logits = (W @ X.T + b[:, None]).reshape(-1, G, K, len(X))
        hit, loss = _binary(logits[:, :, 0], y) if K == 1 else _multiclass(logits, y)
        out["accuracy"][part] = _mean_over(hit, draws.test[part])
        out["log_loss"][part] = _mean_over(loss, draws.test[part])
        if draws.val.any():
            out["val_accuracy"][part] = _mean_over(hit, draws.val[part])
    if heads.support_loss is not None:
        out["support_loss"] = heads.support_loss
    out["n_test"] = np.repeat(draws.test.sum(1)[:, None], G, axis=1)
    return out


def _binary(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    margin = logits * np.where(y == 1, 1, -1).astype(logits.dtype)
    # A logit of exactly 0 predicts class 0, as scikit-learn does.
    hit = (logits > 0) == (y == 1)
    return hit.astype(logits.dtype), np.log(1 + np.exp(-np.abs(margin))) - np.minimum(margin, 0)


def _multiclass(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hit = logits.argmax(axis=2) == y
    shifted = logits - logits.max(axis=2, keepdims=True)
    own = np.take_along_axis(shifted, y[None, None, None, :], axis=2)[:, :, 0]
    return hit.astype(logits.dtype), np.log(np.exp(shifted).sum(axis=2)) - own


def _mean_over(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean over the pool rows of each seed's mask: values (S, G, n), mask (S, n)."""
    # float64 sums: a count of hits is then exact
    total = np.stack([v[:, m].sum(axis=1, dtype=np.float64) for v, m in zip(values, mask)])
    return total / mask.sum(axis=1)[:, None]
