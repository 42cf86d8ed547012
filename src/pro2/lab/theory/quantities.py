"""The paper's theory made measurable, on any embeddings.

* How much of a target's optimal head the first d features miss: `nullspace_norm`, `capture`, `oracle_heads`.
* How the error splits into bias and variance: `adaptation_curves`, and the bound they follow: `shift_bound`.
* How far apart source and target are: `shift_severity` (KL).
* How much the first d features tell about the label: `information_curve`.

Reference: Chen, Lee, Setlur, Levine & Finn, "Project and Probe: Sample-Efficient Domain Adaptation by Interpolating
Orthogonal Features", ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pro2.estimators.moments import SourceMoments
from pro2.lab.theory.gaussians import gaussian_kl
from pro2.linalg.probes import fit_logistic, fit_path
from pro2.linalg.moments import encode

Seed = int | np.random.Generator | None


def nullspace_norm(components: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Share of a head's length outside the first 1..d features: ||(I - P_k) w|| / ||w||.

    The paper's Lemma 1 bounds the bias of probing k features by this number (times the length of w and the Lipschitz
    constant of the loss).

    Parameters
    ----------
    components : array (d, D)
        Features as rows in rank order; rows that are not orthonormal are orthonormalised first (spans do not change).
    heads : array (D,) or (n, D)
        Optimal target heads.

    Returns
    -------
    array (d,) or (n, d)
        Entry k - 1 belongs to the first k features; never increases along k.

    Examples
    --------
    >>> nullspace_norm(np.eye(3), np.array([0.0, 3.0, 4.0])).tolist()
    [1.0, 0.8, 0.0]
    """
    rows, left = _check_rows(components, heads)
    size = np.linalg.norm(left, axis=-1)
    if not np.all(size > 0):
        raise ValueError("heads has a zero vector: it points nowhere, so no part of it can be missing.")
    curve = []
    for q in _orthonormal(rows):
        # subtract instead of summing squares: keeps small norms exact
        left = left - (left @ q)[..., None] * q
        curve.append(np.linalg.norm(left, axis=-1) / size)
    return np.stack(curve, axis=-1)


def capture(components: np.ndarray, heads: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Share of each named direction's squared length inside the first 1..d features: 1 - nullspace_norm^2.

    With `oracle_heads` these are the curves of the paper's cumulative figure: a projection is good when both the
    shortcut and the robust direction are captured early.
    """
    return {name: 1.0 - nullspace_norm(components, head) ** 2 for name, head in heads.items()}


def oracle_heads(X: np.ndarray, y: np.ndarray, attribute: np.ndarray, l2: float = 0.01) -> dict[str, np.ndarray]:
    """Shortcut and robust directions of two-class data with a spurious attribute, from labelled target rows.

    "shortcut" is the head fitted where the attribute agrees with the label, "robust" where it does not (the paper's
    appendix). Both `y` and `attribute` hold two values; their sorted order says which agree.
    """
    X = np.asarray(X, dtype=float)
    codes = encode(y)[1]
    agree = codes == encode(attribute)[1]
    if len(np.unique(y)) != 2 or len(np.unique(attribute)) != 2:
        raise ValueError("y and attribute must hold two values each: agreement is not defined otherwise.")
    heads = {}
    for name, rows in (("shortcut", agree), ("robust", ~agree)):
        if len(np.unique(codes[rows])) < 2:
            raise ValueError(f"The {name} rows hold one class only; both classes are needed to fit a head.")
        heads[name] = fit_logistic(X[rows] - X[rows].mean(axis=0), codes[rows], l2).coef
    return heads


@dataclass(frozen=True, eq=False)
class AdaptationCurves:
    """Target error over numbers of features (axis 0) and target rows per class (axis 1).

    Attributes
    ----------
    n_features, n_shots : tuple of int
        The axes, `n_shots` ascending.
    error, stderr : array (n_d, n_sizes)
        Mean error over the draws, and its standard error.
    """

    n_features: tuple[int, ...]
    n_shots: tuple[int, ...]
    error: np.ndarray
    stderr: np.ndarray

    @property
    def bias(self) -> np.ndarray:
        """Error at the largest target set, (n_d,): what more labels would not remove."""
        return self.error[:, -1]

    @property
    def variance(self) -> np.ndarray:
        """Difference to the error at the largest target set, (n_d, n_sizes): the price of few labels."""
        return self.error - self.error[:, -1:]


def adaptation_curves(
    components: np.ndarray,
    X_pool: np.ndarray,
    y_pool: np.ndarray,
    X_test: np.ndarray,
    y_test: np.ndarray,
    *,
    n_features: Sequence[int],
    n_shots: Sequence[int],
    l2: float = 0.01,
    n_draws: int = 10,
    random_state: Seed = None,
) -> AdaptationCurves:
    """Probe the first d features with n_shots rows per class of the pool, many times; error on the test rows.

    Draws are nested (a larger set contains the smaller), so the curves differ by the added rows only.

    Parameters
    ----------
    components : array (d, D)
        Features as rows in rank order.
    X_pool, y_pool, X_test, y_test : arrays
        Target rows to draw from and to measure on; no row may be in both.
    n_features, n_shots : sequence of int
        Prefix lengths of `components`, and rows per class (at most what the rarest class of the pool has).
    l2 : float
        Penalty of the probe.
    """
    classes, pool = encode(y_pool)
    test = encode(y_test, classes)[1]
    sizes = tuple(sorted(int(n) for n in n_shots))
    have = int(np.bincount(pool).min())
    if not sizes or sizes[0] < 1 or sizes[-1] > have:
        raise ValueError(f"n_shots must lie in 1..{have} (rows of the rarest class of the pool), got {list(n_shots)}.")
    rows, X_pool = _check_rows(components, X_pool)
    Z, T = X_pool @ rows.T, np.asarray(X_test, dtype=float) @ rows.T
    order = _class_orders(pool, sizes[-1], n_draws, np.random.default_rng(random_state))
    errors = np.empty((n_draws, len(n_features), len(sizes)))
    for j, n in enumerate(sizes):
        at = order[:, :, :n].reshape(n_draws, -1)
        fit = fit_path(Z[at], pool[at], n_features, [l2], n_classes=len(classes))
        for r in range(n_draws):
            errors[r, :, j] = _error(T, test, fit.coef[r, :, 0], fit.intercept[r, :, 0])
    stderr = errors.std(axis=0, ddof=min(1, n_draws - 1)) / np.sqrt(n_draws)
    return AdaptationCurves(tuple(int(d) for d in n_features), sizes, errors.mean(axis=0), stderr)


def shift_bound(n_features: np.ndarray | int, n_target: np.ndarray | int, n_dims: int, kl: float) -> np.ndarray:
    """The paper's bound on the target error under shifted Gaussians: sqrt(1 - d/D) KL + sqrt(d/M).

    Stated up to constants and for a random projection, so read its shape, not its level: the d that minimises it grows
    with the shift and with the number of target rows. Arguments broadcast.
    """
    d, M = np.asarray(n_features, dtype=float), np.asarray(n_target, dtype=float)
    if np.any(d < 0) or np.any(d > n_dims):
        raise ValueError(f"n_features must lie in 0..{n_dims} (n_dims), got {n_features}.")
    if np.any(M < 1):
        raise ValueError(f"n_target must be at least 1, got {n_target}.")
    if not kl >= 0:
        raise ValueError(f"kl must be a number >= 0, got {kl}.")
    return np.sqrt(1.0 - d / n_dims) * kl + np.sqrt(d / M)


def shift_severity(
    X_source: np.ndarray, y_source: np.ndarray, X_target: np.ndarray, y_target: np.ndarray, shrinkage: float = 0.1
) -> float:
    """KL(source || target) of (x, y) in nats, both read as Gaussian classes with one shrunk covariance per domain.

    Parameters
    ----------
    shrinkage : float
        Weight in (0, 1] of the scaled identity in each covariance, so that few target rows are enough for a number.
    """
    source = SourceMoments.from_arrays(np.asarray(X_source, dtype=float), y_source)
    target = SourceMoments.from_arrays(np.asarray(X_target, dtype=float), y_target, classes=source.classes)
    return moments_severity(source, target, shrinkage)


def moments_severity(source: SourceMoments, target: SourceMoments, shrinkage: float = 0.1) -> float:
    """`shift_severity` from the moments alone; both must hold the same classes in the same order."""
    if not 0 < shrinkage <= 1:
        raise ValueError(f"shrinkage must lie in (0, 1], got {shrinkage}.")
    missing = [c for c, w in zip(source.classes, target.weight) if w == 0]
    if missing:
        raise ValueError(f"The target has no row of the classes {missing[:5]}: the KL divergence is infinite.")
    P, Q = (_shrunk(m.within_covariance(), shrinkage) for m in (source, target))
    p, q = source.weight / source.weight.sum(), target.weight / target.weight.sum()
    within = [gaussian_kl(a, P, b, Q) for a, b in zip(source.mean, target.mean)]
    return float(np.sum(p * (np.array(within) + np.log(p / q))))


@dataclass(frozen=True, eq=False)
class InformationCurve:
    """Information about the label in the first d features, in nats.

    Attributes
    ----------
    n_features : tuple of int
        Prefix lengths.
    lower_bound : array (n_d,)
        Lower bound on I(first d features; y): never decreases with d, at most `entropy`.
    marginal_sum : array (n_d,)
        Sum over the first d features of a lower bound on I(feature; y): the criterion that the Project step
        maximises (the information theorem), which bounds I up to a constant and may exceed `entropy`.
    entropy : float
        H(y), the most there is to know.
    """

    n_features: tuple[int, ...]
    lower_bound: np.ndarray
    marginal_sum: np.ndarray
    entropy: float


def information_curve(
    components: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    n_features: Sequence[int] | None = None,
    *,
    l2: float = 1e-3,
    random_state: Seed = 0,
) -> InformationCurve:
    """Lower bounds on what the first d features tell about the label.

    I(Z; y) >= H(y) - cross-entropy of any classifier of y from Z (Barber & Agakov, 2003). The classifier is logistic,
    fitted on one half of the rows and measured on the other, both ways round. As the first d features contain all
    shorter prefixes, the largest value so far is a bound for d, too.

    Parameters
    ----------
    components : array (d, D)
        Features as rows in rank order.
    X, y : arrays (N, D), (N,)
        Labelled rows, at least two of each class.
    n_features : sequence of int, optional
        Prefix lengths in ascending order; all of 1..d by default.
    l2 : float
        Penalty of the classifier, on features of unit variance.
    """
    rows, X = _check_rows(components, X)
    wanted = tuple(range(1, len(rows) + 1)) if n_features is None else tuple(int(d) for d in n_features)
    if list(wanted) != sorted(wanted):
        raise ValueError(f"n_features must ascend, got {list(wanted)}.")
    classes, codes = encode(y)
    if np.bincount(codes).min() < 2:
        raise ValueError("y has a class with one row: each half of the rows needs every class.")
    Z = (X - X.mean(axis=0)) @ rows.T
    Z = Z / np.where(Z.std(axis=0) > 0, Z.std(axis=0), 1.0)
    joint, alone = np.zeros(len(wanted)), np.zeros(wanted[-1])
    halves = _halves(codes, np.random.default_rng(random_state))
    for train, test in (halves, halves[::-1]):
        share = len(test) / len(codes)
        fit = fit_path(Z[train], codes[train], wanted, [l2], n_classes=len(classes))
        joint += share * _cross_entropies(Z[test], codes[test], fit.coef[:, 0], fit.intercept[:, 0])
        alone += share * _single_cross_entropies(Z[:, : wanted[-1]], codes, train, test, len(classes), l2)
    p = np.bincount(codes) / len(codes)
    entropy = float(-np.sum(p * np.log(p)))
    single = np.cumsum(np.maximum(entropy - alone, 0.0))[np.array(wanted) - 1]
    return InformationCurve(wanted, np.maximum.accumulate(np.maximum(entropy - joint, 0.0)), single, entropy)


def _check_rows(components: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, vectors = np.asarray(components, dtype=float), np.asarray(vectors, dtype=float)
    if rows.ndim != 2 or vectors.shape[-1] != rows.shape[1]:
        raise ValueError(
            f"components must be (d, D) for vectors of length {vectors.shape[-1]}, got shape {rows.shape}; "
            "features are rows."
        )
    return rows, vectors


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """Rows whose prefixes span what those of `rows` do; a dependent row becomes zero."""
    if np.allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-8):
        return rows
    Q = np.zeros_like(rows)
    for i, v in enumerate(rows):
        size = np.linalg.norm(v)
        for _ in range(2):
            v = v - (Q[:i] @ v) @ Q[:i]
        left = np.linalg.norm(v)
        if left > 1e-10 * size:
            Q[i] = v / left
    return Q


def _shrunk(cov: np.ndarray, shrinkage: float) -> np.ndarray:
    return (1 - shrinkage) * cov + shrinkage * np.trace(cov) / len(cov) * np.eye(len(cov))


def _class_orders(codes: np.ndarray, n: int, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Indices (n_draws, K, n): for each draw n distinct rows of every class, in random order."""
    members = [np.flatnonzero(codes == k) for k in range(codes.max() + 1)]
    return np.array([[rng.permutation(rows)[:n] for rows in members] for _ in range(n_draws)])


def _halves(codes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two disjoint halves of the rows, each with its share of every class."""
    members = [rng.permutation(np.flatnonzero(codes == k)) for k in range(codes.max() + 1)]
    return np.concatenate([m[::2] for m in members]), np.concatenate([m[1::2] for m in members])


def _scores(Z: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Class scores (n_d, N, K) of heads stacked on the first axis; two classes get the scores (0, z)."""
    if coef.ndim == 3:
        return np.einsum("nd,akd->ank", Z, coef) + intercept[:, None, :]
    z = coef @ Z.T + intercept[:, None]
    return np.stack([np.zeros_like(z), z], axis=-1)


def _error(Z: np.ndarray, codes: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    return np.mean(_scores(Z, coef, intercept).argmax(axis=-1) != codes, axis=-1)


def _cross_entropies(Z: np.ndarray, codes: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    scores = _scores(Z, coef, intercept)
    scores = scores - scores.max(axis=-1, keepdims=True)
    own = np.take_along_axis(scores, codes[None, :, None], axis=-1)[..., 0]
    return np.mean(np.log(np.exp(scores).sum(axis=-1)) - own, axis=-1)


def _single_cross_entropies(
    Z: np.ndarray, codes: np.ndarray, train: np.ndarray, test: np.ndarray, n_classes: int, l2: float
) -> np.ndarray:
    """Held-out cross-entropy of each feature alone: one batch of one-dimensional problems."""
    fit = fit_logistic(
        Z[train].T[..., None], np.broadcast_to(codes[train], (Z.shape[1], len(train))), l2, n_classes=n_classes
    )
    each = [
        _cross_entropies(Z[test, i : i + 1], codes[test], fit.coef[i : i + 1], fit.intercept[i : i + 1])[0]
        for i in range(Z.shape[1])
    ]
    return np.array(each)
