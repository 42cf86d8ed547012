"""Labelled target rows: each one once, with its weight; and what they say about how common classes are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pro2.linalg.arrays import to_numpy

SHARES_WORTH = 8.0  # labels per class that the assumed shares are worth where labels may have been drawn at random,
SHARES_WORTH_AT_RANDOM = 2.0  # and where they were
ODD = np.uint64(0x9E3779B97F4A7C15)  # products with its powers scatter bits (Knuth's multiplicative hash)
BLOCK = 256  # rows whose bits are held at a time
SAMPLING = ("auto", "by_class", "random", "suggested")


class Labelled(NamedTuple):
    """Labelled target rows: X (M, D) float64, codes y (M,), weights c (M,), all positive, no row twice.

    `number` (M,) says which row of the caller's each one is, the first of equal ones; `first` (n,) says for each of the
    caller's rows which that is, -1 for those of weight 0.
    """

    X: np.ndarray
    y: np.ndarray
    c: np.ndarray
    number: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> Labelled:
        """Equal rows with equal labels become one row of their total weight; rows of weight 0 are left out.

        So a row of weight 2 is the same as that row twice, and leave-one-out leaves out all copies of a row.
        """
        X = to_numpy(X).astype(np.float64, copy=False) + 0.0  # minus zero is zero
        y = to_numpy(y)
        w = np.ones(len(X)) if weight is None else to_numpy(weight).astype(np.float64)
        first = np.where(w > 0, _first_equal(X, y, w > 0), -1)
        total = np.bincount(first[w > 0], weights=w[w > 0], minlength=len(X))
        number = np.flatnonzero(total > 0)
        if len(number) == len(X):
            return cls(X, y, total, number, first)
        return cls(X[number], y[number], total[number], number, first)

    def take(self, rows: np.ndarray) -> Labelled:
        """Some of the rows; `first` still speaks of all."""
        return Labelled(self.X[rows], self.y[rows], self.c[rows], self.number[rows], self.first)

    def counts(self, n_classes: int) -> np.ndarray:
        """Total weight of the labels of each class, (K,)."""
        return np.bincount(self.y, weights=self.c, minlength=n_classes)

    def blocks(self, n: int, rng: np.random.Generator, by_class: bool) -> np.ndarray:
        """One of n blocks for each row, (M,), by chance; the order in which rows were given plays no part.

        With `by_class`, the rows of each class are dealt to the blocks in turn.
        """
        order = rng.permutation(np.lexsort(self.X[:, _some_columns(self.X)].T))
        block = np.empty(len(order), dtype=int)
        # classes begin at different blocks: the only labels of their classes would else all be left out at once
        parts = [order[self.y[order] == k] for k in np.unique(self.y)] if by_class else [order]
        for first, rows in enumerate(parts):
            block[rows] = (np.arange(len(rows)) + first) % n
        return block


def _first_equal(X: np.ndarray, y: np.ndarray, use: np.ndarray) -> np.ndarray:
    """For each row in use the first such row that equals it and has its label; bytes are compared only where need be.

    Rows are compared as they were given: BLAS kernels give equal rows different last digits.
    """
    first = np.arange(len(X))
    rows = np.flatnonzero(use)
    # a hash of a few columns tells most rows apart; those that it does not are compared whole
    keys = _mixed(np.column_stack([X[np.ix_(rows, _some_columns(X))], y[rows]]).view(np.uint64))
    _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
    at: dict[bytes, int] = {}
    for i in rows[size[group] > 1]:
        first[i] = at.setdefault(np.append(X[i], y[i]).tobytes(), int(i))
    return first


def row_hashes(X: np.ndarray) -> np.ndarray:
    """64 bits for each row of X (n, D), in single precision: those of equal rows are equal, of others hardly ever."""
    found = np.empty(len(X), dtype=np.uint64)
    for start in range(0, len(X), BLOCK):
        rows = np.ascontiguousarray(X[start : start + BLOCK], dtype=np.float32) + np.float32(0.0)  # minus zero is zero
        found[start : start + BLOCK] = _mixed(rows.view(np.uint32))
    return found


def short_hashes(X: np.ndarray) -> np.ndarray:
    """The last 31 of those bits, in a third of the time: factors are odd, so that minus zero changes only others."""
    return _mixed(np.ascontiguousarray(X, dtype=np.float32).view(np.uint32), np.uint32) & np.uint32(0x7FFFFFFF)


def _some_columns(X: np.ndarray) -> np.ndarray:
    """Numbers of a few columns, which tell most rows apart."""
    return np.unique(np.linspace(0, X.shape[1] - 1, 8).astype(int))


def _mixed(bits: np.ndarray, dtype: type = np.uint64) -> np.ndarray:
    """A hash of the bits of each row, (n,)."""
    factors: np.ndarray = (ODD ** np.arange(1, bits.shape[1] + 1, dtype=np.uint64)).astype(dtype)
    return np.asarray(np.einsum("ij,j->i", bits, factors, dtype=dtype))


class ClassShares(NamedTuple):
    """How common classes are, as centred logarithms: among the labelled rows, and as assumed for the target, (..., K).

    `shares` (..., K) are those assumed for the target; `by_class` (...) in [0, 1] says how far the labels could not
    tell them.
    """

    labelled: np.ndarray
    assumed: np.ndarray
    shares: np.ndarray
    by_class: np.ndarray


def class_shares(counts: np.ndarray, source: np.ndarray, power: float, sampling: str) -> ClassShares:
    """What the labels say about how common classes are.

    "by_class": so many of each class were asked for, which says nothing; the shares are then assumed between equal ones
    and the source's, as for "suggested" rows. "random": labels were drawn like the target, and their shares are its
    shares, up to chance. "auto": the closer the counts are to equal, the more it is the first, on a log scale.

    Parameters
    ----------
    counts : array (..., K)
        Total weight of the labels of each class.
    source : array (K,)
        Class shares of the source.
    power : float
        Of them in what is assumed.
    sampling : str
        One of `SAMPLING`.
    """
    K = len(source)
    asked = np.maximum(source, 1e-12) ** power
    asked /= asked.sum()
    by_class = drawn_by_class(counts, sampling)
    # shares of a handful are mostly chance: they count against as many labels as the assumption is worth
    worth = K * (SHARES_WORTH_AT_RANDOM if sampling == "random" else SHARES_WORTH)
    found = (counts + worth * asked) / (counts.sum(axis=-1, keepdims=True) + worth)
    share = by_class[..., None]
    assumed = _centred(share * np.log(asked) + (1.0 - share) * np.log(found))
    shares = np.exp(assumed - assumed.max(axis=-1, keepdims=True))
    return ClassShares(log_shares(counts), assumed, shares / shares.sum(axis=-1, keepdims=True), by_class)


def log_shares(counts: np.ndarray) -> np.ndarray:
    """Centred logarithms of the class shares of labelled rows, half a label added to each class, (..., K)."""
    return _centred(np.log(counts + 0.5))


def drawn_by_class(counts: np.ndarray, sampling: str) -> np.ndarray:
    """How far so many labels of each class were asked for, (...): 1 or 0 where known, else exp(-2 chi^2 / (K - 1))."""
    if sampling != "auto":
        return np.full(counts.shape[:-1], 0.0 if sampling == "random" else 1.0)
    mean = counts.mean(axis=-1, keepdims=True)
    chi2 = ((counts - mean) ** 2).sum(axis=-1) / np.maximum(mean[..., 0], 1e-12)
    return np.asarray(np.exp(-2.0 * chi2 / (counts.shape[-1] - 1)))


def _centred(logs: np.ndarray) -> np.ndarray:
    return np.asarray(logs - logs.mean(axis=-1, keepdims=True))
