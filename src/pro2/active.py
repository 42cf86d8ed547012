"""Which target rows to label next: those that make the adapted classifier most certain where it matters.

Under the prior that `ProjectAndProbe.adapt` uses, scores f over rows are Gaussian with covariance K. A label at row i
takes K[j, i]^2 / (K[i, i] + noise) off the variance of f at row j. Rows are taken one after the other, each the one
that takes most off the sum over the pool, weighted by how undecided the current classifier is about each row. Rows in
dense regions teach much about others, a row next to one that was taken teaches little: batches are representative and
diverse without a separate rule (transductive experimental design, Yu, Bi & Tresp 2006; with the weights it is the
Fisher-information criterion of Ash et al. 2021, "Gone fishing", for this prior).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils.validation import check_is_fitted

from pro2.estimators.base import check_X, naming
from pro2.estimators.linear import AffineMixin, unit_rows
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.linalg.arrays import to_numpy
from pro2.linalg.covariance import times_triangle
from pro2.linalg.logistic import probabilities
from pro2.linalg.prior import SourcePrior

NOISE = 1.0  # of a label, in whose units the covariance is
ROWS = 2048  # a larger pool is represented by this many random rows
BATCH = 512  # rows taken from one such sample
LABELED = 1024  # labelled rows that are remembered
WIDE = 4096  # features from which on a root of D x D costs more than it saves
SINGLE = 1e7  # of features: single precision holds sums of their fourth powers


def suggest_labels(
    model: Any, X_pool: Any, n: int, adapted: Any = None, ids: Any = None, random_state: Any = None,
    *, X_labeled: Any = None,
) -> np.ndarray:  # fmt: skip
    """Rows of an unlabelled pool whose labels help `model.adapt` most, in labelling order.

    Parameters
    ----------
    model : ProjectAndProbe
        Fitted on the source.
    X_pool : array (N, D)
        Unlabelled target rows; leave out rows that are labelled already.
    n : int
        How many rows to label, 1..N.
    adapted : LinearClassifier, optional
        What `model.adapt` returned for the labels so far; None at the cold start.
    ids : array (N,), optional
        Names of the rows: what is returned instead of row numbers.
    random_state : int, Generator or None
        Which rows stand for a pool of more than 2048, or for more than 1024 labelled rows; fewer need no chance. See
        `pro2.active.Candidates`, also for pools larger than memory.
    X_labeled : array (M, D), optional
        Rows labelled so far. Give them in later rounds: new rows then differ from them as well as from each other.
        Without them, rows of the pool stand in for as many labelled rows as `adapted.report_` counts.

    Returns
    -------
    array (n,)
        Row numbers (or ids), no row twice. Any beginning of it is a good smaller choice.

    Examples
    --------
    >>> from pro2 import ProjectAndProbe
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 300)
    >>> X = rng.normal(size=(300, 4)) + 2 * y[:, None]
    >>> model = ProjectAndProbe().fit(X[:200], y[:200])
    >>> suggest_labels(model, X[200:], 4).shape
    (4,)
    """
    X, names = _checked(model, X_pool, n, adapted, ids)
    candidates = Candidates(n, random_state).add(X, np.arange(len(X)))
    taken = candidates._choose(model, candidates.X, adapted, X_labeled)
    return taken if names is None else names[taken]


class Candidates:
    """The rows that `suggest_labels` chooses from, collected from blocks of a pool of any size in bounded memory.

    Every row has a random key, a hash of its number and `random_state`, and those with the smallest keys stay: 2048 for
    up to 512 suggestions, 512 more for each further 512. Neither the order of blocks nor how they are cut matters, and
    a row that comes twice counts once. Blocks can be reduced on several machines by copies of one object, then merged.

    Examples
    --------
    >>> from pro2 import ProjectAndProbe
    >>> X = np.random.default_rng(0).normal(size=(5000, 4))
    >>> model = ProjectAndProbe().fit(X[:200], X[:200, 0] > 0)
    >>> candidates = Candidates(n=4, random_state=0)
    >>> for first in range(0, 5000, 1000):
    ...     rows = np.arange(first, first + 1000)
    ...     _ = candidates.add(X[rows], rows)
    >>> bool((candidates.suggest(model) == suggest_labels(model, X, 4, random_state=0)).all())
    True
    """

    def __init__(self, n: int, random_state: Any = None) -> None:
        with naming("random_state"):
            self._seed = int(np.random.default_rng(random_state).integers(1 << 63))
        self.n, self._limit = n, ROWS + (n - 1) // BATCH * BATCH
        self.X: np.ndarray | None = None
        self.rows = np.empty(0, dtype=np.int64)

    def among(self, rows: Any) -> np.ndarray:
        """Those of these row numbers that would stay, ascending: where rows can be read by number, read no others."""
        return _least(np.unique(np.asarray(rows, dtype=np.int64)), self._limit, self._seed)

    def add(self, X: Any, rows: Any) -> Candidates:
        """Rows X (m, D) of the pool with their numbers (m,); leave out rows that are labelled already."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) != len(X):
            raise ValueError(f"rows has {len(rows)} numbers for {len(X)} rows of X: give one for each.")
        if self.X is not None and X.shape[1] != self.X.shape[1]:
            raise ValueError(f"X has {X.shape[1]} features, earlier blocks {self.X.shape[1]}: give one kind of rows.")
        full = len(self.rows) == self._limit
        new = _keys(rows, self._seed) < (_keys(self.rows, self._seed).max() if full else np.inf)
        X, rows = to_numpy(X[new]), rows[new]
        if self.X is not None:
            X, rows = np.concatenate([self.X, X]), np.concatenate([self.rows, rows])
        numbers, first = np.unique(rows, return_index=True)
        kept = first[np.searchsorted(numbers, self.among(numbers))]
        self.X, self.rows = X[kept], rows[kept]
        return self

    def merge(self, other: Candidates) -> Candidates:
        """With the candidates of other blocks."""
        if (other.n, other._seed) != (self.n, self._seed):
            raise ValueError("candidates of another n or random_state: copy one object to all workers.")
        return self if other.X is None else self.add(other.X, other.rows)

    def suggest(self, model: Any, adapted: Any = None, X_labeled: Any = None) -> np.ndarray:
        """What `suggest_labels` returns for the whole pool, as row numbers."""
        X, _ = _checked(model, np.empty((0, 0)) if self.X is None else self.X, self.n, adapted, None)
        return self._choose(model, X, adapted, X_labeled)

    def _choose(self, model: Any, X: Any, adapted: Any, X_labeled: Any) -> np.ndarray:
        """Batches of rows, each among those with the smallest keys that are left; all but X_labeled is checked."""
        known, standing_in = np.empty((0, X.shape[1]), X.dtype), 0
        if X_labeled is not None:
            known = to_numpy(check_X(model, X_labeled, reset=False, name="X_labeled"))
        elif hasattr(adapted, "report_"):
            standing_in = min(BATCH, adapted.report_.n_labels)
        if "score covariance" not in model._derived:
            model._derived["score covariance"] = _ScoreCovariance(model.priors_)
        covariance = model._derived["score covariance"]
        left, taken = self.rows, np.empty(0, dtype=np.int64)
        while len(taken) < self.n:
            rows = _least(left, ROWS, self._seed)
            pool = X[np.searchsorted(self.rows, rows)]
            weight = _indecision(adapted, pool)
            known = known[_least(np.arange(len(known)), LABELED, self._seed)]
            both = np.concatenate([pool, known])
            K = covariance(unit_rows(both) if model.unit_rows_ else both)
            new = _greedy(K, weight, min(BATCH, self.n - len(taken), len(rows)), standing_in)
            taken, known = np.concatenate([taken, rows[new]]), np.concatenate([known, pool[new]])
            left = np.setdiff1d(left, taken)
        return taken


def _keys(rows: np.ndarray, seed: int) -> np.ndarray:
    """The numbers at those places of the random sequence SplitMix64 (Steele, Lea & Flood 2014)."""
    key = np.uint64(seed) + rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(key ^ (key >> np.uint64(31)))


def _least(rows: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """At most so many of these row numbers, those with the smallest keys, in their order here."""
    return rows if len(rows) <= limit else rows[np.sort(np.argpartition(_keys(rows, seed), limit)[:limit])]


def _checked(model: Any, X_pool: Any, n: Any, adapted: Any, ids: Any) -> tuple[np.ndarray, np.ndarray | None]:
    if hasattr(model, "labels_"):
        raise TypeError("model has several labels: suggest_labels needs a ProjectAndProbe, fitted on one of them.")
    if not isinstance(model, ProjectAndProbe):
        raise TypeError(f"model must be a fitted ProjectAndProbe, got {type(model).__name__}.")
    check_is_fitted(model, "source_kind_")
    X = to_numpy(check_X(model, X_pool, reset=False, name="X_pool"))
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= len(X):
        raise ValueError(f"n must be an integer in 1..{len(X)} (the rows of X_pool), got {n!r}.")
    if adapted is not None:
        if not isinstance(adapted, AffineMixin):
            raise TypeError(f"adapted must be what this model's adapt returned, got {type(adapted).__name__}.")
        check_is_fitted(adapted, "coef_")
        if adapted.n_features_in_ != X.shape[1]:
            raise ValueError(
                f"adapted takes {adapted.n_features_in_} features, X_pool has {X.shape[1]}: "
                "give the classifier that this model's adapt returned."
            )
    names = None if ids is None else np.asarray(ids)
    if names is not None and names.shape != (len(X),):
        raise ValueError(f"ids has shape {names.shape}, X_pool has {len(X)} rows: one id per row is needed.")
    return X, names


def _indecision(adapted: Any, X: np.ndarray) -> np.ndarray:
    """1 - sum of squared class probabilities, as p (1 - p) for two classes; the same for all rows at the cold start."""
    if adapted is None:
        return np.ones(len(X))
    F = adapted._logits(X)
    P = probabilities(F[:, None] if F.ndim == 1 else F)
    return 1.0 - np.sum(to_numpy(P).astype(np.float64) ** 2, axis=1)


class _ScoreCovariance:
    """Of the scores of rows, in units of the noise of a label: the mean over scales and covariances of the family.

    The prior scale is the largest: few labels must be able to matter. The mean is one quadratic form of rows z, divided
    by the smallest of the input scales: z' M z + constant with M = R R', made once for a model.
    """

    def __init__(self, priors: Sequence[SourcePrior]) -> None:
        self.priors, n = priors, sum(len(prior.family.covariances) for prior in priors)
        gains = [{name: 1.0 / (n * p.penalties(name).min()) for name in p.family.covariances} for p in priors]
        self.constant = sum(sum(gain.values()) * p.family.intercept for p, gain in zip(priors, gains))
        self.parts = [(*p.flat_and_ranked(gain), gain.get("whitened", 0.0)) for p, gain in zip(priors, gains)]
        self.scale = np.min([prior.scale for prior in priors], axis=0)
        self.R = self._root() if len(self.scale) <= WIDE else None

    def _root(self) -> np.ndarray:
        M = np.zeros((len(self.scale),) * 2, dtype=np.float32)  # what is above the diagonal is not used
        for prior, (flat, along, whitened) in zip(self.priors, self.parts):
            Q = (np.sqrt(along)[:, None] * prior.directions).astype(np.float32)
            part = Q.T @ Q
            part[np.diag_indices_from(part)] += flat
            if whitened:
                part += whitened / prior.traces["whitened"][0] * prior.second_moments.inverse()
            ratio = (self.scale / prior.scale).astype(np.float32)
            M += ratio[:, None] * part * ratio
        try:
            return np.linalg.cholesky(M)
        except np.linalg.LinAlgError:  # a family of ranked directions alone
            values, vectors = np.linalg.eigh(M)
            return np.asarray(np.linalg.qr(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, mode="r")).T

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Covariance (m, m) of the scores of rows X (m, D), in single precision where that holds its squares."""
        A = self._wide_features(X) if self.R is None else self._features(X, self.R)
        return np.asarray(A @ A.T + A.dtype.type(self.constant))

    def _features(self, X: np.ndarray, R: np.ndarray) -> np.ndarray:
        first = self.priors[0]
        Z = replace(first, scale=self.scale, centre=first.centre * (first.scale / self.scale)).rows(X)
        largest = len(R) * float(np.abs(R).max()) * max(Z.max(), -Z.min())
        return times_triangle(*(part.astype(np.float32 if largest < SINGLE else np.float64) for part in (Z, R)))

    def _wide_features(self, X: np.ndarray) -> np.ndarray:
        features = []
        for prior, (flat, along, whitened) in zip(self.priors, self.parts):
            Z = prior.rows(X)
            features += [math.sqrt(flat) * Z, np.sqrt(along) * (Z @ prior.directions.T)]
            if whitened:
                features.append(math.sqrt(whitened) * prior.root(Z, "whitened"))
        A = np.concatenate(features, axis=1)
        return A.astype(np.float32) if np.abs(A).max() < SINGLE else A


def _greedy(K: np.ndarray, weight: np.ndarray, n: int, standing_in: int) -> np.ndarray:
    """n pool rows, each taking most off the weighted variance given those before; rows after the pool are labelled."""
    posterior = _Posterior(_given_labels(K, len(weight)), weight, standing_in + n)
    stands, free = (np.ones(len(weight), dtype=bool) for _ in range(2))
    for _ in range(min(standing_in, len(weight))):
        posterior.take(stands)
    return np.array([posterior.take(free) for _ in range(n)], dtype=np.intp)


def _given_labels(K: np.ndarray, pool: int) -> np.ndarray:
    """Covariance of the scores of the pool, the first rows, after a label for each of the others."""
    if len(K) == pool:
        return K
    known, across = K[pool:, pool:], K[pool:, :pool]
    # labels that say all about each other must not make it singular where scores are so large that noise is nothing
    noise = NOISE + np.finfo(K.dtype).eps * np.trace(known)
    U = solve_triangular(np.linalg.cholesky(known + noise * np.eye(len(known), dtype=K.dtype)), across, lower=True)
    return np.asarray(K[:pool, :pool] - U.T @ U)


class _Posterior:
    """Covariance K - U'U of the scores after labels, and what one more label would take off the weighted variance."""

    def __init__(self, K: np.ndarray, weight: np.ndarray, size: int):
        self.K, self.weight = K, weight.astype(K.dtype)
        self.U, self.n = np.empty((size, len(K)), dtype=K.dtype), 0
        self.variance = np.diagonal(K).astype(np.float64)
        self.reach = (self.weight @ (K * K)).astype(np.float64)  # sum over j of weight_j K[j, i]^2

    def take(self, allowed: np.ndarray) -> int:
        """The row that helps most among those allowed, as if its label were known from now on."""
        gain = self.reach / (np.maximum(self.variance, 0.0) + NOISE)
        i = int(np.argmax(np.where(allowed, gain, -np.inf)))
        allowed[i] = False
        # condition on a label at row i: K becomes K - k k' / s, and `reach` follows without forming it
        U = self.U[: self.n]
        k = self.K[i] - U[:, i] @ U
        s = max(float(k[i]), 0.0) + NOISE
        wk = self.weight * k
        overlap = self.K @ wk - (U @ wk) @ U
        self.reach += (k / s) * ((k / s) * (wk @ k) - 2.0 * overlap)
        self.variance -= k * k / s
        self.U[self.n] = k / math.sqrt(s)
        self.n += 1
        return i
