"""Labelled target rows: each one once, with its weight; and what they say about how common classes are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from pro2.linalg.family import PriorFamily
from pro2.linalg.moments import Array, host

SHARES_WORTH = 8.0  # labels per class that the assumed shares are worth where labels may have been drawn at random,
SHARES_WORTH_AT_RANDOM = 2.0  # and where they were
SAMPLING = ("auto", "by_class", "random", "suggested")


class Labels(NamedTuple):
    """Labelled target rows: X (M, D) float64, codes y (M,), weights c (M,), all positive, no row twice.

    `number` (M,) says which row of the caller's each one is, the first of equal ones; `first` (n,) says for each of the
    caller's rows which that is, -1 for those of weight 0.
    """

    X: Array
    y: Array
    c: Array
    number: Array
    first: np.ndarray

    @classmethod
    def of(cls, X: Array, y: Array, weight: Array | None = None) -> Labels:
        """Equal rows with equal labels become one row of their total weight; rows of weight 0 are left out.

        So a row of weight 2 is the same as that row twice, and leave-one-out leaves out all copies of a row.
        """
        xp = array_namespace(X)
        X = xp.astype(X, xp.float64, copy=False)
        w = np.ones(X.shape[0]) if weight is None else host(weight).astype(np.float64)
        first, total = _merged(host(X), host(y), w)
        at = xp.asarray(np.flatnonzero(total), device=device(X))
        c = xp.asarray(total[total > 0], dtype=X.dtype, device=device(X))
        return cls(xp.take(X, at, axis=0), xp.take(y, at, axis=0), c, at, first)

    def take(self, rows: np.ndarray) -> Labels:
        xp = array_namespace(self.X)
        at = xp.asarray(rows, device=device(self.X))
        X, y, c, number = (xp.take(v, at, axis=0) for v in self[:4])
        return Labels(X, y, c, number, self.first)

    def folds(self, n: int) -> np.ndarray:
        """One of n folds for each row: rows of a class are dealt in turn.

        Classes begin at different folds: the only labels of their classes would else all be left out at once.
        """
        y = host(self.y)
        fold = np.empty(len(y), dtype=int)
        for k in np.unique(y):
            fold[y == k] = (np.arange(int((y == k).sum())) + k) % n
        return fold


def _merged(X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row the first that equals it, -1 without a weight; and the total weight that first ones have, else 0."""
    X = X + 0.0  # minus zero is zero
    at: dict[bytes, int] = {}
    first, total = np.full(len(X), -1), np.zeros(len(X))
    for i in np.flatnonzero(weight > 0):
        first[i] = at.setdefault(np.append(X[i], y[i]).tobytes(), int(i))
        total[first[i]] += weight[i]
    return first, total


class ClassShift(NamedTuple):
    """How common classes are: logits of the labelled rows, and of the target, relative to equal classes, both (K').

    `shares` (K,) are those assumed for the target; `by_class` in [0, 1] says how far the labels could not tell them.
    """

    labeled: Array
    assumed: Array
    shares: np.ndarray
    by_class: float


def class_shift(labels: Labels, source_shares: np.ndarray, family: PriorFamily, sampling: str) -> ClassShift:
    """What the labels say about how common classes are.

    "by_class": so many of each class were asked for, which says nothing; the shares are then assumed between equal ones
    and the source's, as for "suggested" rows. "random": labels were drawn like the target, and their shares are its
    shares, up to chance. "auto": the closer the counts are to equal, the more it is the first, on a log scale.
    """
    K = len(source_shares)
    counts = np.bincount(host(labels.y), weights=host(labels.c), minlength=K)
    labeled = (counts + 0.5) / (counts.sum() + 0.5 * K)
    asked = np.maximum(source_shares, 1e-12) ** family.source_shares
    asked /= asked.sum()
    by_class = drawn_by_class(counts, sampling)
    # shares of a handful are mostly chance: they count against as many labels as the assumption is worth
    worth = K * (SHARES_WORTH_AT_RANDOM if sampling == "random" else SHARES_WORTH)
    found = (counts + worth * asked) / (counts.sum() + worth)
    assumed = np.exp(by_class * np.log(asked) + (1.0 - by_class) * np.log(found))
    assumed /= assumed.sum()
    return ClassShift(_logits(np.log(labeled), labels.X), _logits(np.log(assumed), labels.X), assumed, by_class)


def drawn_by_class(counts: np.ndarray, sampling: str) -> float:
    """How far so many labels of each class were asked for: 1 or 0 where that is said, else exp(-2 chi^2 / (K - 1))."""
    known = {"by_class": 1.0, "suggested": 1.0, "random": 0.0}.get(sampling)
    chi2 = float(np.sum((counts - counts.mean()) ** 2) / max(counts.mean(), 1e-12))
    return float(np.exp(-2.0 * chi2 / (len(counts) - 1))) if known is None else known


def _logits(log_share: np.ndarray, like: Array) -> Array:
    xp = array_namespace(like)
    values = log_share[1:] - log_share[:1] if len(log_share) == 2 else log_share - log_share.mean()
    return xp.asarray(values, dtype=like.dtype, device=device(like))
