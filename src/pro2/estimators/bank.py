"""Thousands to millions of small targets over one projection: sites, users, cameras."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, validate_data

from pro2.estimators.contract import check_classes, check_few, check_labels
from pro2.estimators.files import FileMixin
from pro2.estimators.projection import Projection
from pro2.estimators.validation import beside, check_fitted, check_width, check_X, naming
from pro2.linalg.losses import probabilities
from pro2.linalg.moments import Array, host
from pro2.linalg.probes import fit_logistic, loo_penalties

L2_GRID = tuple(10.0 ** np.arange(-3.0, 1.5, 1.0))
POOLED_ROWS = 100_000  # rows that decide the pooled head: more would not move it
SHARING_TARGETS = 10_000  # targets that decide the shares of the candidates
BATCH_NUMBERS = 1 << 23  # numbers in one batch of supports: 64 MB, and a few times that while solving
DEVICE_NUMBERS = 1 << 27  # the same on a GPU, where a batch must be large to be worth its launch
FAR = 3.0  # deviations of the mean from the origin from which on rows are taken about it: kernels keep their digits
FEW_CODES = 32  # integer labels of so narrow a range are counted value by value: that needs no sorting


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

    coef_: Array
    intercept_: Array
    pooled_coef_: Array
    pooled_intercept_: Array

    def __init__(self, projection: Any = None, l2: float | str = "auto", n_features: int | None = None):
        self.projection = projection
        self.l2 = l2
        self.n_features = n_features

    def fit(self, X: Any, y: Any, target: Any = None) -> ProbeBank:
        """Fit all heads, where X lives: tensors on a GPU stay there.

        Parameters
        ----------
        X : array (T, M, D), list of T arrays (M_t, D), or flat rows (n, D)
        y : labels in the same layout
        target : array (n,) or (T,), optional
            Target id of each flat row, or of each target in the other layouts. Without it flat rows are one target; the
            other layouts number targets 0..T-1.
        """
        number = isinstance(self.l2, Real) and not isinstance(self.l2, bool)
        if not (self.l2 == "auto" or (number and 0 < float(self.l2) < np.inf)):
            raise ValueError(f"l2 must be 'auto' or a positive finite number, got {self.l2!r}.")
        rows, labels, ids = _flatten(X, y, target)
        Z = self._features(rows, reset=True)
        if ids is None:
            ids = np.zeros(Z.shape[0], dtype=int)
        if not isinstance(ids, int):
            ids = check_labels(ids, Z.shape[0], "target")
        self.classes_, codes = _encoded(labels, Z)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only {self.classes_.tolist()}: a bank needs at least two over all targets."
            )
        if isinstance(ids, int):
            self.targets_, which = np.arange(ids), None  # equal targets one after the other need no sorting
        else:
            with naming("target"):
                self.targets_, which = np.unique(ids, return_inverse=True)
        middle, self._unit = _far_middle(Z)
        Z = Z if middle is None else Z - middle
        self._fit_pooled(Z, codes)
        self._fit_heads(Z, codes, which)
        if middle is not None:
            self.intercept_ = self.intercept_ - self.coef_ @ middle
            self.pooled_intercept_ = self.pooled_intercept_ - self.pooled_coef_ @ middle
        return self

    def predict(self, X: Any, target: Any = None) -> np.ndarray:
        """Labels of rows X (n, D), each with the head of its `target` (one id for all rows, or one per row)."""
        f = host(self.decision_function(X, target))
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(1)]

    def predict_proba(self, X: Any, target: Any = None) -> Array:
        """Probability of each class, (n, K)."""
        f = self.decision_function(X, target)
        return probabilities(f[:, None] if f.ndim == 1 else f)

    def decision_function(self, X: Any, target: Any = None) -> Array:
        """Logits: (n,) for two classes, (n, K) for more."""
        check_is_fitted(self, "coef_")
        Z = self._features(X, reset=False)
        xp = array_namespace(Z)
        at = beside(self._find(target, Z.shape[0]), Z)
        coef, intercept = (xp.astype(beside(a, Z), Z.dtype) for a in (self.coef_, self.intercept_))
        coef, intercept = xp.take(coef, at, axis=0), xp.take(intercept, at, axis=0)
        return xp.sum((Z if intercept.ndim == 1 else Z[:, None, :]) * coef, axis=-1) + intercept

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, target: Any = None) -> float:
        """Share of right answers on rows X (n, D) with labels y (n,)."""
        return float(accuracy_score(y, self.predict(X, target), sample_weight=sample_weight))

    def __sklearn_clone__(self) -> ProbeBank:
        """A fitted projection is data, not a setting: it stays."""
        return type(self)(self.projection, self.l2, self.n_features)

    def _features(self, X: Any, reset: bool) -> Array:
        inner = getattr(self.projection, "projection_", self.projection)
        if inner is not None and reset and hasattr(X, "columns"):  # a frame: its names must be those of the projection
            validate_data(inner, X, reset=False, skip_check_array=True)
        X = check_X(self, X, reset=reset)
        X = X if inner is None else _projected(inner, X)
        d = X.shape[1] if self.n_features is None else self.n_features
        if isinstance(d, bool) or not isinstance(d, int | np.integer) or not 1 <= d <= X.shape[1]:
            raise ValueError(f"n_features must be in 1..{X.shape[1]} (the projected width), got {d!r}.")
        return X[:, :d]

    def _find(self, target: Any, n_rows: int) -> np.ndarray:
        if target is None:
            if len(self.targets_) > 1:
                raise ValueError(f"target is needed: this bank holds {len(self.targets_)} targets.")
            return np.zeros(n_rows, dtype=int)
        wanted = host(target)
        if wanted.ndim and wanted.shape != (n_rows,):
            raise ValueError(f"target has shape {wanted.shape}: one id for all rows, or one for each of {n_rows}.")
        with naming("target"):
            at = np.clip(np.searchsorted(self.targets_, wanted), 0, len(self.targets_) - 1)
        unknown = np.unique(np.atleast_1d(wanted)[np.atleast_1d(self.targets_[at] != wanted)])
        if unknown.size:
            raise ValueError(f"target {unknown[:5].tolist()} is not in the bank: fit it, or use pooled_coef_.")
        return np.zeros(n_rows, dtype=int) + at

    def _fit_pooled(self, Z: Array, codes: Array) -> None:
        some = _spread_rows(Z)
        l2 = 1e-3 * self._unit if self.l2 == "auto" else float(self.l2)
        fit = fit_logistic(Z[some, :], codes[some], l2, n_classes=len(self.classes_))
        self.pooled_coef_, self.pooled_intercept_ = fit.coef, fit.intercept

    def _fit_heads(self, Z: Array, codes: Array, which: np.ndarray | None) -> None:
        K = len(self.classes_)
        if self.l2 == "auto":
            self._fit_auto(Z, codes, which)
            return
        parts = []
        for at, Zb, yb, wb in _batches(Z, codes, which, len(self.targets_), K):
            fit = fit_logistic(Zb, yb, float(self.l2), n_classes=K, sample_weight=wb)
            parts.append((at, fit.coef, fit.intercept))
        self.coef_, self.intercept_ = _in_order(parts)

    def _fit_auto(self, Z: Array, codes: Array, which: np.ndarray | None) -> None:
        """Score every candidate on every target and average the heads by shares learned from the first ones scored."""
        penalties = [float(g * self._unit) for g in L2_GRID]
        centres = [None] if len(self.targets_) == 1 else [None, self.pooled_coef_]
        self.candidates_ = [(c, l2) for c in ("zero", "pooled")[: len(centres)] for l2 in penalties]
        every = max(1, len(self.targets_) // SHARING_TARGETS)
        first = np.arange(len(self.targets_)) % every == 0
        scored = list(self._scored(Z, codes, which, penalties, centres, first))
        self.shares_ = _learn_shares(np.concatenate([host(likelihood) for *_, likelihood in scored]))
        parts = []
        for group in (scored, self._scored(Z, codes, which, penalties, centres, ~first)):
            for at, heads, offsets, likelihood in group:
                w = beside(_responsibility(host(likelihood), self.shares_), Z)
                parts.append((at, _weighted(w, heads), _weighted(w, offsets)))
        self.coef_, self.intercept_ = _in_order(parts)

    def _scored(
        self,
        Z: Array,
        codes: Array,
        which: np.ndarray | None,
        penalties: list[float],
        centres: list[Any],
        among: np.ndarray,
    ) -> Iterator[tuple[np.ndarray, Array, Array, Array]]:
        """(targets, heads, intercepts, leave-one-out log-likelihoods) of all candidates, batch by batch."""
        K = len(self.classes_)
        for at, Zb, yb, wb in _batches(Z, codes, which, len(self.targets_), K, len(self.candidates_), among):
            xp = array_namespace(Zb)
            each = [loo_penalties(Zb, yb, penalties, n_classes=K, sample_weight=wb, prior_mean=c) for c in centres]
            heads, offsets, loss = (xp.concat([e[k] for e in each], axis=1) for k in range(3))
            yield at, heads, offsets, -loss * xp.sum(wb, axis=-1, keepdims=True)


def _spread_rows(Z: Array) -> slice:
    return slice(None, None, max(1, Z.shape[0] // POOLED_ROWS))


def _far_middle(Z: Array) -> tuple[Array | None, float]:
    """The mean of rows (p,) that lie far from the origin, else None; and their total variance, 1 if nothing moves."""
    xp = array_namespace(Z)
    few = xp.astype(Z[_spread_rows(Z), :], xp.float64)
    mean, variance = xp.mean(few, axis=0), float(xp.sum(xp.var(few, axis=0)))
    far = float(xp.sum(mean * mean)) > FAR**2 * variance
    return xp.astype(mean, Z.dtype) if far else None, variance or 1.0


def _projected(inner: Any, X: Array) -> Array:
    """Features of checked rows, an array whatever `set_output` says."""
    if not hasattr(inner, "transform"):
        raise TypeError(f"projection must be a fitted transformer or ProjectAndProbe, got {type(inner).__name__}.")
    if isinstance(inner, Projection):
        check_fitted(inner, "components_")
        check_width(inner, X.shape[1], "X")
        return inner._features(X)
    Z = inner.transform(X)
    return Z if is_array_api_obj(Z) else np.asarray(Z)


def _weighted(w: Array, values: Array) -> Array:
    """Sum over candidates (axis 1) of values (t, C, ...) with weights (t, C), in the type of the values."""
    xp = array_namespace(values)
    w = xp.reshape(xp.astype(w, values.dtype), (*w.shape, *(1,) * (values.ndim - 2)))
    return xp.sum(w * values, axis=1)


def _in_order(parts: list[tuple[np.ndarray, Array, Array]]) -> tuple[Array, Array]:
    """Heads and intercepts of all targets from batches, in the order of the targets."""
    xp = array_namespace(parts[0][1])
    coef, intercept = (xp.concat([p[k] for p in parts]) if len(parts) > 1 else parts[0][k] for k in (1, 2))
    order = np.concatenate([at for at, *_ in parts])
    if bool((order[1:] > order[:-1]).all()):
        return coef, intercept
    back = beside(np.argsort(order), coef)
    return xp.take(coef, back, axis=0), xp.take(intercept, back, axis=0)


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


def _encoded(labels: Any, Z: Array) -> tuple[np.ndarray, Array]:
    """Classes, and codes where the features are; integers on a device are never copied to the host."""
    xp = array_namespace(Z)
    away = is_array_api_obj(labels) and not is_numpy_array(labels) and not is_numpy_array(Z)
    if away and xp.isdtype(labels.dtype, "integral"):
        if tuple(labels.shape) != (Z.shape[0],):
            raise ValueError(f"y has shape {tuple(labels.shape)}, X has {Z.shape[0]} rows: give one label per row.")
        classes = _values(labels)
        check_few(classes.shape[0], Z.shape[0])
        return host(classes), xp.searchsorted(classes, labels)
    y = check_labels(labels, Z.shape[0])
    classes = check_classes(y)
    return classes, beside(np.searchsorted(classes, y), Z)


def _values(labels: Array) -> Array:
    """Different integers, sorted."""
    xp = array_namespace(labels)
    low, high = int(xp.min(labels)), int(xp.max(labels))
    if high - low >= FEW_CODES:
        return xp.unique_values(labels)
    found = [v for v in range(low, high + 1) if bool(xp.any(labels == v))]
    return xp.asarray(found, dtype=labels.dtype, device=device(labels))


def _flatten(X: Any, y: Any, target: Any) -> tuple[Any, Any, np.ndarray | int | None]:
    """Rows, labels and target ids, whatever the layout.

    For (T, M, D) without ids the number of targets stands for them; flat rows without ids are one target.
    """
    if isinstance(X, list | tuple) and len(X) and getattr(X[0], "ndim", 0) == 2:
        if len(X) != len(y) or any(len(a) != len(b) or not len(a) for a, b in zip(X, y)):
            raise ValueError(
                "X and y must be lists of equal length, with one label for each row, and no target without rows."
            )
        with naming("X"):
            parts = [each if is_array_api_obj(each) else np.asarray(each) for each in X]
            rows = array_namespace(*parts).concat(parts)
        ids = np.repeat(_ids(target, len(X)), [len(a) for a in X])
        return rows, np.concatenate([host(each) for each in y]), ids
    if getattr(X, "ndim", 2) == 3:
        labels: Any = y if is_array_api_obj(y) else np.asarray(y)
        if tuple(labels.shape) != tuple(X.shape[:2]):
            expected = tuple(X.shape[:2])
            raise ValueError(f"X is {tuple(X.shape)}, so y must be {expected} (targets, rows), got {labels.shape}.")
        T, M, D = X.shape
        xp = array_namespace(X)
        return xp.reshape(X, (T * M, D)), labels.reshape(-1), T if target is None else np.repeat(_ids(target, T), M)
    return X, y, None if target is None else host(target)


def _ids(target: Any, n_targets: int) -> np.ndarray:
    """One id for each target, 0, 1, ... by default."""
    return np.arange(n_targets) if target is None else check_labels(target, n_targets, "target")


def _batches(
    Z: Array, codes: Array, which: np.ndarray | None, n_targets: int, n_classes: int, copies: int = 1,
    among: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, Array, Array, Array]]:  # fmt: skip
    """(targets, Z (t, m, p), codes (t, m), weight (t, m)): supports of similar size together, padded by weight 0.

    `which` (n,) is the target of each row, None for equal targets one after the other; `among` (T,) says which targets,
    all by default.
    """
    asked = np.arange(n_targets) if among is None else np.flatnonzero(among)
    if which is None:
        yield from _equal_batches(Z, codes, n_targets, asked, n_classes, copies)
        return
    xp, p = array_namespace(Z), Z.shape[1]
    order = np.argsort(which, kind="stable")
    size = np.bincount(which)
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    room = np.where(size == size.max(), size, 2 ** np.ceil(np.log2(np.maximum(size, 1))).astype(int))
    for m in np.unique(room[asked]):
        for at in _parts(asked[room[asked] == m], int(m), Z, n_classes, copies):
            present = np.arange(m) < size[at][:, None]
            rows = order[np.where(present, start[at][:, None] + np.arange(m), start[at][:, None])]
            flat = beside(rows.reshape(-1), Z)
            some = xp.reshape(xp.take(Z, flat, axis=0), (*rows.shape, p))
            yield at, some, xp.reshape(xp.take(codes, flat), rows.shape), beside(present.astype(np.float64), Z)


def _equal_batches(
    Z: Array, codes: Array, n_targets: int, asked: np.ndarray, n_classes: int, copies: int
) -> Iterator[tuple[np.ndarray, Array, Array, Array]]:
    xp, p = array_namespace(Z), Z.shape[1]
    m = Z.shape[0] // n_targets
    Z, codes = xp.reshape(Z, (n_targets, m, p)), xp.reshape(codes, (n_targets, m))
    for at in _parts(asked, m, Z, n_classes, copies):
        if len(at) == at[-1] - at[0] + 1:
            some, labels = Z[int(at[0]) : int(at[-1]) + 1, ...], codes[int(at[0]) : int(at[-1]) + 1, ...]
        else:
            some, labels = (xp.take(v, beside(at, Z), axis=0) for v in (Z, codes))
        yield at, some, labels, xp.ones(labels.shape, dtype=xp.float64, device=device(Z))


def _parts(group: np.ndarray, m: int, Z: Array, n_classes: int, copies: int) -> list[np.ndarray]:
    """Targets of m rows in batches of about BATCH_NUMBERS, or DEVICE_NUMBERS."""
    # two classes in feature space: a target is its rows; otherwise every candidate has its own coordinates
    p = Z.shape[-1]
    numbers = m * (p if n_classes == 2 and p <= m else (p + m) * copies)
    limit = BATCH_NUMBERS if is_numpy_array(Z) else DEVICE_NUMBERS
    n_parts = min(len(group), -(-len(group) * numbers // limit))  # one target may be larger than that alone
    return np.array_split(group, n_parts) if n_parts else []
