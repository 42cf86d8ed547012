"""What travels inside a batch: few-shot draws, linear features, affine heads, and their evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pro2.estimators.linear import unit_rows
from pro2.lab.experiments.problems import Problem

# Logits of one chunk of the evaluation, in float32 entries: with what is made from them they stay in the cache.
_CHUNK = 1 << 18
_KEPT = 4  # projected pools that features keep: batches come target by target, from a few workers at a time


class Heads(NamedTuple):
    """Affine classifiers on embeddings: coef (S, G, K, D), intercept (S, G, K); K = 1 for two classes.

    S counts seeds, G settings. support_loss (S, G) is a leave-one-out log-loss on the few labelled rows.
    With `unit` the heads are meant for rows divided by their length. With `on` they are heads on features: one entry
    for the settings that share features and their number.
    """

    coef: np.ndarray
    intercept: np.ndarray
    support_loss: np.ndarray | None = None
    unit: bool = False
    on: tuple[OnFeatures, ...] = ()


class OnFeatures(NamedTuple):
    """The settings `at` use the first `n_features` of `features`."""

    features: Features
    at: list[int]
    n_features: int


class Draws(NamedTuple):
    """Few-shot rows of every seed, in the table and in the pool (S, M); pool rows for test and validation (S, n)."""

    few: np.ndarray
    at: np.ndarray
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

    def nullspace_norms(self, head: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        """Share of a head's length outside the span of the first d features, for each d of `sizes`."""
        from pro2.lab.theory import nullspace_norm

        if self.components is None:
            raise ValueError("the nullspace norm needs ranked features; this method uses all of them")
        return nullspace_norm(self.components, head * self.scale)[np.asarray(sizes) - 1]


def evaluate(problem: Problem, target: str, draws: Draws, heads: Heads) -> dict[str, np.ndarray]:
    """Accuracy and log-loss on the test rows and accuracy on the validation rows, each (S, G)."""
    S, G = heads.coef.shape[:2]
    out = {name: np.full((S, G), np.nan) for name in ("accuracy", "log_loss", "val_accuracy")}
    y = problem.pool(target)[1]
    for X, at, d in _spaces(problem, target, heads):
        sums = _sums(X[:, :d], y, heads.coef[:, at, :, :d], heads.intercept[:, at], draws)
        out["accuracy"][:, at], out["log_loss"][:, at], out["val_accuracy"][:, at] = sums
    out["accuracy"] /= draws.test.sum(1)[:, None]
    out["log_loss"] /= draws.test.sum(1)[:, None]
    n_val = draws.val.sum(1)[:, None]
    out["val_accuracy"] = np.where(n_val > 0, out["val_accuracy"] / np.maximum(n_val, 1), np.nan)
    if heads.support_loss is not None:
        out["support_loss"] = heads.support_loss
    out["n_test"] = np.repeat(draws.test.sum(1)[:, None], G, axis=1)
    return out


def _spaces(problem: Problem, target: str, heads: Heads) -> Iterator[tuple[np.ndarray, list[int], int]]:
    """Pool rows in the space of some heads, which heads, and how many of its columns they use."""
    if not heads.on:
        X = problem.pool(target)[0]
        yield unit_rows(X) if heads.unit else X, list(range(heads.coef.shape[1])), heads.coef.shape[-1]
    most: dict[int, int] = {}
    for part in heads.on:
        most[id(part.features)] = max(most.get(id(part.features), 0), part.n_features)
    for part in heads.on:
        yield part.features.pool(problem, target, most[id(part.features)]), part.at, part.n_features


def _sums(
    X: np.ndarray, y: np.ndarray, coef: np.ndarray, intercept: np.ndarray, draws: Draws
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hits and losses over the test rows and hits over the validation rows, (S, G); chunks of the pool at a time."""
    S, G, K, d = coef.shape
    W, b = coef.reshape(-1, d).astype(X.dtype), intercept.reshape(-1, 1).astype(X.dtype)
    sums = np.zeros((3, S, G))
    step = max(64, _CHUNK // len(W))
    for part in (slice(i, i + step) for i in range(0, len(X), step)):
        logits = W @ X[part].T
        logits += b
        # sums of a chunk in the precision of the rows (a count of hits is exact), of all chunks in float64
        test, val = (mask[:, part, None].astype(X.dtype) for mask in (draws.test, draws.val))
        shaped = logits.reshape(S, G, K, -1)
        hit, loss = _binary(shaped[:, :, 0], y[part]) if K == 1 else _multiclass(shaped, y[part])
        sums += np.stack([(values @ mask)[..., 0] for values, mask in ((hit, test), (loss, test), (hit, val))])
    return sums[0], sums[1], sums[2]


def _binary(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hits and losses; overwrites the logits."""
    # A logit of exactly 0 predicts class 0, as scikit-learn does.
    hit = ((logits > 0) == (y == 1)).astype(logits.dtype)
    logits *= np.where(y == 1, 1, -1).astype(logits.dtype)
    loss = np.abs(logits)
    np.negative(loss, out=loss)
    np.exp(loss, out=loss)
    loss += 1
    np.log(loss, out=loss)
    loss -= np.minimum(logits, 0, out=logits)
    return hit, loss


def _multiclass(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hit = logits.argmax(axis=2) == y
    shifted = logits - logits.max(axis=2, keepdims=True)
    own = np.take_along_axis(shifted, y[None, None, None, :], axis=2)[:, :, 0]
    return hit.astype(logits.dtype), np.log(np.exp(shifted).sum(axis=2)) - own
