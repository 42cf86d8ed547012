"""Few-shot draws of a batch, and what its classifiers measure on the rows that were not drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch
from pro2.tables.shifts import draw

# Logits of one chunk of the evaluation, in float32 entries: with what is made from them they stay in the cache.
_CHUNK = 1 << 18

Space = tuple[np.ndarray, list[int], int]  # rows of a pool, which settings use them, and how many of their columns


class Draws(NamedTuple):
    """Few-shot rows of every seed, in the table and in the pool (S, M); pool rows for test and validation (S, n)."""

    few: np.ndarray
    at: np.ndarray
    test: np.ndarray
    val: np.ndarray


def draw_all(problem: Problem, batch: Batch) -> Draws:
    """The same rows for every method: draws depend on target, shots and seed only."""
    cells = [(batch.target, batch.shots, seed, batch.n_val, batch.min_test) for seed in batch.seeds]
    drawn = [problem.once(("draw", *cell), partial(_draw, problem, *cell)) for cell in cells]
    return Draws(*(np.stack(parts) for parts in zip(*drawn)))


def _draw(problem: Problem, target: str, shots: int, seed: int, n_val: int, min_test: int) -> tuple[np.ndarray, ...]:
    """One seed's entries of `Draws`."""
    rows = problem.targets[target]
    d = draw(problem.y, rows, shots, seed, n_val=n_val, keep=min_test)
    place = np.zeros(len(problem.y), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return d.few, place[d.few], np.isin(rows, d.rest), np.isin(rows, d.val)


class Tally:
    """Sums over the rows of a pool, a chunk at a time: hits and losses on test rows, hits on validation rows.

    `masks` (S, n, 2 + groups) says which rows count for what: test, validation, and the test rows of each group.
    """

    def __init__(self, problem: Problem, target: str, draws: Draws, n_settings: int) -> None:
        self.y = problem.pool(target)[1]
        masks = [draws.test, draws.val]
        if problem.groups is not None:
            groups = problem.groups[problem.targets[target]]
            masks += [draws.test & (groups == g) for g in np.unique(groups)]
        self.masks = np.stack(masks, axis=-1).astype(np.float32)
        self.counts = self.masks.sum(axis=1, dtype=np.float64)[:, None, :]
        self.hits = np.zeros((len(draws.test), n_settings, len(masks)))
        self.losses = np.zeros((len(draws.test), n_settings))

    def add(self, logits: np.ndarray, at: Sequence[int], rows: slice, seeds: slice = slice(None)) -> None:
        """Count logits (S, len(at), K, n) of a chunk of rows; overwrites them."""
        hit, loss = _binary(logits[:, :, 0], self.y[rows]) if logits.shape[2] == 1 else _softmax(logits, self.y[rows])
        masks = self.masks[seeds, rows]
        # sums of a chunk in the precision of the logits (a count of hits is exact), of all chunks in float64
        self.hits[seeds, at] += hit @ masks.astype(hit.dtype)
        self.losses[seeds, at] += (loss @ masks[..., :1].astype(loss.dtype))[..., 0]

    def result(self) -> dict[str, np.ndarray]:
        """Each measure as (S, G); NaN where there is no row to measure it on."""
        share = np.divide(self.hits, self.counts, out=np.full_like(self.hits, np.nan), where=self.counts > 0)
        worst = np.full(self.losses.shape, np.nan)
        if share.shape[-1] > 2:
            worst = np.nanmin(share[..., 2:], axis=-1)
        n_test = np.broadcast_to(self.counts[..., 0], self.losses.shape)
        return {
            "accuracy": share[..., 0],
            "val_accuracy": share[..., 1],
            "worst_group": worst,
            "log_loss": self.losses / n_test,
            "n_test": n_test.astype(np.int64),
        }


def evaluate(
    problem: Problem, target: str, draws: Draws, spaces: Iterable[Space], coef: np.ndarray, intercept: np.ndarray
) -> dict[str, np.ndarray]:
    """Measures (S, G) of affine heads: coef (S, G, K, d), intercept (S, G, K); K = 1 for two classes."""
    tally = Tally(problem, target, draws, coef.shape[1])
    for X, at, d in spaces:
        W = coef[:, at, :, :d].reshape(-1, d).astype(X.dtype)
        b = intercept[:, at].reshape(-1, 1).astype(X.dtype)
        step = max(64, _CHUNK // len(W))
        for rows in (slice(i, i + step) for i in range(0, len(X), step)):
            logits = W @ X[rows, :d].T
            logits += b
            tally.add(logits.reshape(len(coef), len(at), coef.shape[2], -1), at, rows)
    return tally.result()


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


def _softmax(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hit = logits.argmax(axis=2) == y
    logits -= logits.max(axis=2, keepdims=True)
    own = np.take_along_axis(logits, y[None, None, None, :], axis=2)[:, :, 0]
    return hit.astype(logits.dtype), np.log(np.exp(logits).sum(axis=2)) - own
