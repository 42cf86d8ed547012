"""Thousands to millions of small targets over one projection: sites, users, cameras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pro2.estimators.files import FileMixin
from pro2.estimators.validation import check_X
from pro2.linalg.logistic import fit_logistic
from pro2.linalg.moments import encode
from pro2.linalg.penalty_path import penalty_path
from pro2.linalg.selection import loo_loss, loo_path

L2_GRID = tuple(10.0 ** np.arange(-3.0, 1.5, 1.0))
POOLED_ROWS = 100_000  # rows that decide the pooled head: more would not move it
SHARING_TARGETS = 10_000  # targets that decide the shares of the candidates
BATCH_NUMBERS = 1 << 23  # numbers in one batch of supports: 64 MB, and a few times that while solving


class ProbeBank(FileMixin, ClassifierMixin, BaseEstimator):
    """One linear probe per target, all fitted in batches.

    Every target's head minimises mean log-loss + (l2 / 2) ||w - w0||^2 on the projected features. With l2="auto" the
    candidates (w0 = 0 or the head of all targets pooled, times a grid of penalties) are averaged with weights
    proportional to share_c * exp(leave-one-out log-likelihood of the target under c); the shares are learned across
    targets by expectation-maximisation, so that many targets tell each other how far to trust the pooled head.

    Parameters
    ----------
    projection : fitted transformer, optional
        Such as `Projection`, or a fitted `ProjectAndProbe` (its projection is used). None: X are features already.
    l2 : float or "auto"
    n_features : int, optional
        Leading features to use; all by default.

    Attributes
    ----------
    targets_ : array (T,)
        Target ids, sorted.
    classes_ : array (K,)
    coef_, intercept_ : arrays (T, p), (T,) for two classes, (T, K, p), (T, K) for more
        Heads on the projected features; all that is stored per target.
    pooled_coef_, pooled_intercept_ : arrays
        One head for all targets together: what an unseen target would start from.
    candidates_, shares_ : list of (centre, l2), array (C,)
        Only with l2="auto".

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.tile([0, 1], (50, 4))
    >>> X = rng.normal(size=(50, 8, 3)) + 2 * y[..., None]
    >>> bank = ProbeBank().fit(X, y)
    >>> bank.predict(X[7], target=7).shape
    (8,)
    """

    def __init__(self, projection: Any = None, l2: float | str = "auto", n_features: int | None = None):
        self.projection = projection
        self.l2 = l2
        self.n_features = n_features

    def fit(self, X: Any, y: Any, target: Any = None) -> ProbeBank:
        """Fit all heads.

        Parameters
        ----------
        X : array (T, M, D), list of T arrays (M_t, D), or flat rows (n, D)
        y : labels in the same layout
        target : array (n,), optional
            Target id of each flat row. Without it flat rows are one target; the other layouts number targets 0..T-1.
        """
        if not (self.l2 == "auto" or (not isinstance(self.l2, str | bool) and 0 < self.l2 < np.inf)):
            raise ValueError(f"l2 must be 'auto' or a positive finite number, got {self.l2!r}.")
        rows, labels, ids = _flatten(X, y, target)
        Z = self._features(rows, reset=True)
        classes, codes = encode(labels)
        self.classes_ = np.asarray(classes)
        if len(classes) < 2:
            raise ValueError(f"y has one class only ({classes[0]!r}): a bank needs at least two over all targets.")
        self.targets_, which = np.unique(ids, return_inverse=True)
        self._fit_pooled(Z, codes)
        self._fit_heads(Z, codes, which)
        return self

    def predict(self, X: Any, target: Any = None) -> np.ndarray:
        """Labels of rows X (n, D), each with the head of its `target` (one id for all rows, or one per row)."""
        f = self.decision_function(X, target)
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(1)]

    def predict_proba(self, X: Any, target: Any = None) -> np.ndarray:
        """Probability of each class, (n, K)."""
        f = self.decision_function(X, target)
        f = np.stack([0 * f, f], axis=1) if f.ndim == 1 else f
        e = np.exp(f - f.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def decision_function(self, X: Any, target: Any = None) -> np.ndarray:
        """Logits: (n,) for two classes, (n, K) for more."""
        check_is_fitted(self, "coef_")
        Z = self._features(X, reset=False)
        at = self._find(target, len(Z))
        if len(self.classes_) == 2:
            return np.einsum("np,np->n", Z, self.coef_[at]) + self.intercept_[at]
        return np.einsum("np,nkp->nk", Z, self.coef_[at]) + self.intercept_[at]

    def _features(self, X: Any, reset: bool) -> np.ndarray:
        X = check_X(self, X, reset=reset)
        if self.projection is not None:
            X = getattr(self.projection, "projection_", self.projection).transform(X)
        d = X.shape[1] if self.n_features is None else self.n_features
        if not 1 <= d <= X.shape[1]:
            raise ValueError(f"n_features must be in 1..{X.shape[1]} (the projected width), got {d}.")
        return np.asarray(X[:, :d])

    def _find(self, target: Any, n_rows: int) -> np.ndarray:
        if target is None:
            if len(self.targets_) > 1:
                raise ValueError(f"target is needed: this bank holds {len(self.targets_)} targets.")
            return np.zeros(n_rows, dtype=int)
        wanted = np.asarray(target)
        at = np.clip(np.searchsorted(self.targets_, wanted), 0, len(self.targets_) - 1)
        unknown = np.unique(wanted[self.targets_[at] != wanted]) if wanted.ndim else wanted[self.targets_[at] != wanted]
        if unknown.size:
            raise ValueError(
                f"target {unknown.reshape(-1)[:5].tolist()} is not in the bank: fit it, or use pooled_coef_."
            )
        return np.broadcast_to(at, (n_rows,))

    def _fit_pooled(self, Z: np.ndarray, codes: np.ndarray) -> None:
        some = slice(None, None, max(1, len(Z) // POOLED_ROWS))
        self._unit = unit = float(np.sum(np.var(Z[some], axis=0))) or 1.0
        l2 = 1e-3 * unit if self.l2 == "auto" else float(self.l2)
        fit = fit_logistic(Z[some], codes[some], l2, n_classes=len(self.classes_))
        self.pooled_coef_, self.pooled_intercept_ = fit.coef, fit.intercept

    def _fit_heads(self, Z: np.ndarray, codes: np.ndarray, which: np.ndarray) -> None:
        T, K = len(self.targets_), len(self.classes_)
        shape = (T,) if K == 2 else (T, K)
        coef, intercept = np.empty((*shape, Z.shape[1]), Z.dtype), np.empty(shape, Z.dtype)
        if self.l2 != "auto":
            for at, Zb, yb, wb in _batches(Z, codes, which, K):
                fit = fit_logistic(Zb, yb, float(self.l2), n_classes=K, sample_weight=wb)
                coef[at], intercept[at] = fit.coef, fit.intercept
            self.coef_, self.intercept_ = coef, intercept
            return
        self._fit_auto(Z, codes, which, coef, intercept)

    def _fit_auto(self, Z: Any, codes: Any, which: Any, coef: np.ndarray, intercept: np.ndarray) -> None:
        """Score every candidate on every target and average the heads by shares learned from the first ones scored."""
        penalties = [float(g * self._unit) for g in L2_GRID]
        centres = [None] if len(self.targets_) == 1 else [None, self.pooled_coef_]
        self.candidates_ = [(c, l2) for c in ("zero", "pooled")[: len(centres)] for l2 in penalties]
        every = max(1, len(self.targets_) // SHARING_TARGETS)
        first = np.arange(len(self.targets_)) % every == 0
        scored = list(self._scored(Z, codes, which, penalties, centres, first))
        self.shares_ = _learn_shares(np.concatenate([likelihood for *_, likelihood in scored]))
        for part in (scored, self._scored(Z, codes, which, penalties, centres, ~first)):
            for at, heads, offsets, likelihood in part:
                weight = _responsibility(likelihood, self.shares_)
                coef[at] = np.einsum("tc,tc...->t...", weight, heads)
                intercept[at] = np.einsum("tc,tc...->t...", weight, offsets)
        self.coef_, self.intercept_ = coef, intercept

    def _scored(
        self, Z: Any, codes: Any, which: Any, penalties: list[float], centres: list[Any], among: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """(targets, heads, intercepts, leave-one-out log-likelihoods) of all candidates, batch by batch."""
        for at, Zb, yb, wb in _batches(Z, codes, which, len(self.classes_), len(self.candidates_), among):
            yield at, *_loo_likelihood(Zb, yb, wb, penalties, centres, len(self.classes_))


def _loo_likelihood(
    Z: np.ndarray, y: np.ndarray, w: np.ndarray, penalties: list[float], centres: list[Any], n_classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heads (t, C, ...), intercepts (t, C, ...) and summed leave-one-out log-likelihoods (t, C) of a batch."""
    heads, offsets, scores = [], [], []
    for centre in centres:
        if n_classes == 2:
            coef, intercept, loss = penalty_path(Z, y, penalties, sample_weight=w, prior_mean=centre)
        else:
            fit, loo = loo_path(Z, y, [Z.shape[-1]], penalties, n_classes=n_classes, sample_weight=w, prior_mean=centre)
            coef, intercept, loss = fit.coef[:, 0], fit.intercept[:, 0], loo_loss(loo, y, n_classes, w)[:, 0]
        heads.append(coef)
        offsets.append(intercept)
        scores.append(-loss * w.sum(-1, keepdims=True))
    return np.concatenate(heads, 1), np.concatenate(offsets, 1), np.concatenate(scores, 1)


def _responsibility(likelihood: np.ndarray, shares: np.ndarray) -> np.ndarray:
    weight = np.exp(likelihood - likelihood.max(1, keepdims=True)) * shares
    return weight / weight.sum(1, keepdims=True)


def _learn_shares(likelihood: np.ndarray, n_steps: int = 50) -> np.ndarray:
    """Mixture shares of the candidates by expectation-maximisation, one pseudo-target spread over all of them."""
    shares = np.full(likelihood.shape[1], 1.0 / likelihood.shape[1])
    for _ in range(n_steps):
        total = _responsibility(likelihood, shares).sum(0) + 1.0 / len(shares)
        shares = total / total.sum()
    return shares


def _flatten(X: Any, y: Any, target: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows, labels and target ids, whatever the layout."""
    if isinstance(X, list | tuple) and len(X) and getattr(X[0], "ndim", 0) == 2:
        if len(X) != len(y) or any(len(a) != len(b) for a, b in zip(X, y)):
            raise ValueError("X and y must be lists of equal length, with one label for each row of each target.")
        ids = np.repeat(np.arange(len(X)), [len(a) for a in X])
        return np.concatenate(X), np.concatenate([np.asarray(b) for b in y]), ids
    if getattr(X, "ndim", 2) == 3:
        labels = np.asarray(y)
        if labels.shape != X.shape[:2]:
            raise ValueError(f"X is {X.shape}, so y must be {X.shape[:2]} (targets, rows); got {labels.shape}.")
        return X.reshape(-1, X.shape[2]), labels.reshape(-1), np.repeat(np.arange(X.shape[0]), X.shape[1])
    labels = np.asarray(y).reshape(-1)
    ids = np.zeros(len(labels), dtype=int) if target is None else np.asarray(target).reshape(-1)
    if not len(labels) == len(ids) == len(X):
        raise ValueError(f"X has {len(X)} rows, y {len(labels)} labels and target {len(ids)} ids: all must agree.")
    return X, labels, ids


def _batches(
    Z: np.ndarray, codes: np.ndarray, which: np.ndarray, n_classes: int, copies: int = 1, among: Any = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """(targets, Z (t, m, p), codes (t, m), weight (t, m)): supports of similar size together, padded by weight 0.

    `among` (T,) says which targets, all by default.
    """
    order = np.argsort(which, kind="stable")
    size = np.bincount(which)
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    room = np.where(size == size.max(), size, 2 ** np.ceil(np.log2(np.maximum(size, 1))).astype(int))
    asked = np.arange(len(size)) if among is None else np.flatnonzero(among)
    for m in np.unique(room[asked]):
        group = asked[room[asked] == m]
        # two classes in feature space: a target is its rows; otherwise every candidate has its own Gram matrix
        small = n_classes == 2 and Z.shape[1] <= m
        numbers = int(m) * (Z.shape[1] if small else (Z.shape[1] + int(m)) * copies)
        n_parts = -(-len(group) * numbers // BATCH_NUMBERS)
        for at in np.array_split(group, n_parts):
            column = np.arange(m)
            present = column < size[at][:, None]
            rows = order[np.where(present, start[at][:, None] + column, start[at][:, None])]
            yield at, Z[rows], codes[rows], present.astype(Z.dtype)
