"""Which target rows to label next: those that make the adapted classifier most certain where it matters.

Under the prior that `ProjectAndProbe.adapt` uses, scores f over rows are Gaussian with covariance K. A label at row i
takes K[j, i]^2 / (K[i, i] + noise) off the variance of f at row j. Rows are taken one after the other, each the one
that takes most off the sum over the other rows, weighted by how undecided the current classifier is about each of them;
its own class will be known. Rows in dense regions teach much about others, a row next to one that was taken teaches
little: batches are representative and diverse without a separate rule (transductive experimental design, Yu, Bi & Tresp
2006; with the weights it is the Fisher-information criterion of Ash et al. 2021, "Gone fishing", for this prior).
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
ROWS = 1024  # a larger pool is represented by this many random rows
TARGETS = 512  # of them, over which the variance is summed: more did not choose better
BATCH = 256  # rows taken from one such sample
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
        Which rows stand for a pool of more than 1024, or for more than 1024 labelled rows; fewer need no chance. See
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

    Every row has a random key, a hash of its number and `random_state`, and those with the smallest keys stay: 1024 for
    up to 256 suggestions, 256 more for each further 256. So neither the order of blocks matters nor how they are cut, a
    row that comes twice counts once, and the `X` and `rows` of one object can be added to another.
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
        full = len(self.rows) == self._limit
        new = _keys(rows, self._seed) < (_keys(self.rows, self._seed).max() if full else np.inf)
        X, rows = to_numpy(X[new]), rows[new]
        if self.X is not None:
            X, rows = np.concatenate([self.X, X]), np.concatenate([self.rows, rows])
        numbers, first = np.unique(rows, return_index=True)
        kept = first[np.searchsorted(numbers, self.among(numbers))]
        self.X, self.rows = X[kept], rows[kept]
        return self

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
            targets = _least(rows, TARGETS, self._seed)
            rows = np.concatenate([targets, np.setdiff1d(rows, targets)])
            pool = X[np.searchsorted(self.rows, rows)]
            weight = _indecision(adapted, pool[: len(targets)])
            known = known[_least(np.arange(len(known)), LABELED, self._seed)]
            both = np.concatenate([pool, known])
            A = covariance.features(unit_rows(both) if model.unit_rows_ else both)
            n = min(BATCH, self.n - len(taken), len(rows))
            new = _greedy(_Posterior(A, covariance.constant, len(rows), weight, standing_in + n), n, standing_in)
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
    by the smallest of the input scales: z' M z + constant with M = R R', made once for a model. So features A of rows
    have the covariance A A' + constant.
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

    def features(self, X: np.ndarray) -> np.ndarray:
        """A of rows X (m, D), in single precision where that holds sums of fourth powers."""
        if self.R is None:
            return self._wide_features(X)
        first, R = self.priors[0], self.R
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


def _greedy(posterior: _Posterior, n: int, standing_in: int) -> np.ndarray:
    """n candidates, each taking most off the weighted variance given those before."""
    stands, free = (np.ones(len(posterior.A), dtype=bool) for _ in range(2))
    for _ in range(min(standing_in, len(stands))):
        posterior.take(stands)
    return np.array([posterior.take(free) for _ in range(n)], dtype=np.intp)


class _Posterior:
    """Covariance A A' + constant - U'U of the scores of candidates after labels, and what one more label would bring.

    Rows of A are the candidates, the first ones also the targets, whose weighted variance counts; the last ones after
    `n_candidates` are labelled.
    """

    def __init__(self, A: np.ndarray, constant: float, n_candidates: int, weight: np.ndarray, size: int) -> None:
        self.A, known, self.constant = A[:n_candidates], A[n_candidates:], A.dtype.type(constant)
        self.n_targets, self.weight = len(weight), weight.astype(A.dtype)
        self.n_known = self.n = len(known)
        self.U = np.empty((self.n + size, n_candidates), dtype=A.dtype)
        self.U[: self.n] = self._given(known)
        U, targets = self.U[: self.n], slice(len(weight))
        self.variance = _squares(self.A.T) + float(constant) - _squares(U)
        self.K = self.A @ self.A[targets].T + self.constant - U.T @ U[:, targets]
        self.reach = ((self.K * self.K) @ self.weight).astype(np.float64)  # sum over targets j of weight_j K[i, j]^2

    def _given(self, known: np.ndarray) -> np.ndarray:
        """U for a label at each of these rows."""
        K = known @ known.T + self.constant
        # labels that say all about each other must not make it singular where scores are so large that noise is nothing
        K[np.diag_indices_from(K)] += NOISE + np.finfo(K.dtype).eps * np.trace(K)
        across = known @ self.A.T + self.constant
        return np.asarray(solve_triangular(np.linalg.cholesky(K), across, lower=True)) if len(known) else across

    def take(self, allowed: np.ndarray) -> int:
        """The row that helps most among those allowed, as if its label were known from now on."""
        gain, variance, T = self.reach.copy(), np.maximum(self.variance, 0.0), self.n_targets
        gain[:T] -= self.weight * variance[:T] ** 2  # what a label says about its own row
        i = int(np.argmax(np.where(allowed, gain / (variance + NOISE), -np.inf)))
        allowed[i] = False
        # condition on a label at row i: the covariance K becomes K - k k' / s, and `reach` follows without forming it
        U = self.U[: self.n]
        k = self.A @ self.A[i] + self.constant - U[:, i] @ U
        s = max(float(k[i]), 0.0) + NOISE
        wk = self.weight * k[:T]
        since = U[self.n_known :]
        overlap = self.K @ wk - (since[:, :T] @ wk) @ since
        self.reach += (k / s) * ((k / s) * (wk @ k[:T]) - 2.0 * overlap)
        self.variance -= k * k / s
        self.U[self.n] = k / math.sqrt(s)
        self.n += 1
        return i


def _squares(A: np.ndarray) -> np.ndarray:
    """Of the lengths of columns, in double precision."""
    return np.einsum("ij,ij->j", A, A).astype(np.float64)
