"""Exact L2-regularised logistic and softmax regression, batched over problems on leading axes: the Probe step.

Objective of every problem, with weights c that sum to one and a free intercept b:

    sum_i c_i logloss(z_i'w + b, y_i) + (l2 / 2) ||w - w0||^2

Two classes: safeguarded Newton, in feature space or in row space (`pro2.linalg.newton`). More classes: Newton with
conjugate gradients (`pro2.linalg.softmax`), on at most M features. A problem that lacks a class has no finite
optimum; each missing class then gets half a pseudo-count spread over the rows, so that it keeps a small, defined
probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg import paths
from pro2.linalg.moments import Array
from pro2.linalg.newton import Dual, Primal, newton
from pro2.linalg.softmax import fit_softmax

PSEUDO_COUNT = 0.5
CHEAPER = 0.4  # of M: up to here 2 M d^2 + d^3 / 3 for the Hessian is less than M^3 / 3 in row space
FLAT = 1 << 23  # numbers in the Gram matrices of a flat batch of problems
KEPT = 1 << 20  # numbers in Gram matrices that are kept beside each other: beyond, copies of them leave the cache
FEW_ROWS = 32  # up to here a path costs calls, not operations: all its prefixes go together


class LogisticFit(NamedTuple):
    """Solutions: leading axes are problems; the class axis exists for three classes or more.

    kkt is the largest gradient entry, each relative to the most that entry can be (sum_i c_i |z_ij|); a problem has
    converged when kkt is at most `tol`. Where rounding allows no further descent the best point is returned and kkt
    says how close it is.
    """

    coef: Array
    intercept: Array
    kkt: Array
    n_iter: int
    converged: Array


def fit_logistic(
    Z: Array,
    y: Array,
    l2: Array | float,
    *,
    n_classes: int = 2,
    sample_weight: Array | None = None,
    prior_mean: Array | None = None,
    tol: float | None = None,
    max_iter: int = 100,
) -> LogisticFit:
    """Solve one problem or a batch of them.

    Parameters
    ----------
    Z : array (..., M, p)
        Features.
    y : integer array (..., M)
        Class codes 0..n_classes-1.
    l2 : float or array (...)
        Penalty, positive and finite.
    sample_weight : array (..., M), optional
        Non-negative; normalised to sum one in each problem. A row of weight 0 is absent.
    prior_mean : array (..., p), or (..., n_classes, p) for more than two classes, optional
        Centre w0 of the penalty.
    tol : float, optional
        On `kkt`; 1e-10 in float64 and 1e-4 in float32 by default.

    Returns
    -------
    LogisticFit
        coef (..., p) and intercept (...) for two classes, (..., n_classes, p) and (..., n_classes) for more.
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, tol, max_iter)
    xp, Z = problem.xp, problem.Z
    l2 = _check_l2(xp, l2, Z)
    w0 = None if prior_mean is None else xp.asarray(prior_mean, dtype=Z.dtype, device=device(Z))
    if n_classes > 2:
        return problem.fit(problem.softmax, l2, w0, Z)
    if Z.shape[-1] <= Z.shape[-2]:
        return problem.fit(problem.primal, l2, w0, Z)
    return problem.fit(problem.dual, l2, w0, Z)


def fit_path(
    Z: Array,
    y: Array,
    n_features: Sequence[int],
    l2: Sequence[float],
    *,
    n_classes: int = 2,
    sample_weight: Array | None = None,
    prior_mean: Array | None = None,
    tol: float | None = None,
    max_iter: int = 100,
) -> LogisticFit:
    """All feature prefixes times all penalties in one call that shares work.

    Z (..., M, D); `n_features` lists prefix lengths, `l2` penalties. coef (..., n_d, n_l2[, K], D) is zero beyond its
    prefix, whatever the prior mean is there; intercept (..., n_d, n_l2[, K]). Entry (i, j) equals
    `fit_logistic(Z[..., :n_features[i]], y, l2[j])`; prefixes longer than M share one running Gram matrix.
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, tol, max_iter)
    return fit_prefixes(problem, Prefixes(problem.Z, n_features), l2, prior_mean)[0]


class Prefixes:
    """Gram matrices of leading features, each the one before plus the new features; all are kept if they are small."""

    def __init__(self, Z: Array, n_features: Sequence[int]):
        _check_prefixes(n_features, Z.shape[-1])
        self.xp, self.Z, self.n_features = array_namespace(Z), Z, list(n_features)
        self.ZT = self.xp.matrix_transpose(Z)
        self.size = math.prod(Z.shape[:-2]) * len(self.n_features) * Z.shape[-2] ** 2
        self._kept: dict[int, Array] = {}
        self._running: tuple[int, Array] | None = None
        self._stacked: Array | None = None

    @property
    def small(self) -> bool:
        return self.size < KEPT

    def order(self) -> list[int]:
        """Positions in n_features, shortest prefix first: the order in which a running sum serves."""
        return sorted(range(len(self.n_features)), key=self.n_features.__getitem__)

    def gram(self, i: int) -> Array:
        """Gram matrix of prefix i, (..., M, M)."""
        d = self.n_features[i]
        if d in self._kept:
            return self._kept[d]
        last, K = (0, None) if self._running is None or self._running[0] > d else self._running
        if last < d:
            gram = self.Z[..., last:d] @ self.ZT[..., last:d, :]
            if K is not None:
                gram += K  # not into K: others may hold it
            K = gram
        self._running = (d, K)
        if self.small:
            self._kept[d] = K
        return K

    def stacked(self) -> Array:
        """All Gram matrices in the order of n_features, (..., n_d, M, M)."""
        if self._stacked is None:
            *lead, M, _ = self.Z.shape
            shape = (*lead, len(self.n_features), M, M)
            self._stacked = self.xp.empty(shape, dtype=self.Z.dtype, device=device(self.Z))
            for i in self.order():
                self._stacked[..., i, :, :] = self.gram(i)
                self._kept[self.n_features[i]] = self._stacked[..., i, :, :]  # not a second copy
        return self._stacked


def fit_prefixes(
    problem: Problem, prefixes: Prefixes, l2: Sequence[float], prior_mean: Array | None = None
) -> tuple[LogisticFit, Array | None]:
    """`fit_path` for a checked problem whose Gram matrices are wanted elsewhere, too.

    Where all prefixes were solved in row space, also their solutions a (..., n_d, n_l2, M): w = w0 + Z'a.
    """
    xp, Z = problem.xp, problem.Z
    grid = _check_l2(xp, xp.asarray(list(l2), dtype=Z.dtype, device=device(Z)), Z)
    w0 = None if prior_mean is None else xp.asarray(prior_mean, dtype=Z.dtype, device=device(Z))
    two, n_problems = problem.n_classes == 2, math.prod(Z.shape[:-2]) * len(prefixes.n_features) * grid.shape[0]
    compiled = two and paths.serves(Z, Z.shape[-2], n_problems)
    if two and (Z.shape[-2] <= FEW_ROWS or (compiled and prefixes.small)):
        return _prefixes_at_once(problem, prefixes, grid, w0, not compiled)
    across = problem.with_axis()  # the penalties are one more batch axis
    w0 = None if w0 is None else _insert_axis(w0, problem.n_classes)
    fits = dict(_prefix_fits(across, prefixes, grid, w0, 0.0 if compiled else CHEAPER))
    ordered = [fits[i] for i in range(len(prefixes.n_features))]
    coef, intercept, kkt, done = (xp.stack([f[k] for f in ordered], axis=Z.ndim - 2) for k in (0, 1, 2, 4))
    return LogisticFit(coef, intercept, kkt, max(f.n_iter for f in ordered), done), None


def _prefix_fits(
    problem: Problem, prefixes: Prefixes, l2: Array, w0: Array | None, cheaper: float
) -> Iterator[tuple[int, LogisticFit]]:
    """(position, fit) of each prefix, shortest first; in feature space up to a share `cheaper` of the rows."""
    xp, Z, n_features = problem.xp, problem.Z, prefixes.n_features
    for i in prefixes.order():
        d = n_features[i]
        prior = None if w0 is None else w0[..., :d]
        if problem.n_classes == 2 and d <= cheaper * Z.shape[-2]:
            fit = problem.fit(problem.primal, l2, prior, Z[..., :d])
        else:
            solve = problem.dual if problem.n_classes == 2 else problem.softmax
            fit = problem.fit(solve, l2, prior, Z[..., :d], prefixes.gram(i)[..., None, :, :])
        yield i, fit._replace(coef=_pad(xp, fit.coef, Z.shape[-1]))


def _prefixes_at_once(
    problem: Problem, prefixes: Prefixes, l2: Array, w0: Array | None, flatten: bool
) -> tuple[LogisticFit, Array]:  # fmt: skip
    """All prefixes as one batch in row space, Gram matrices stacked: (..., n_d, J) problems."""
    xp, Z = problem.xp, problem.Z
    K = prefixes.stacked()[..., None, :, :]
    c, targets = problem.weight[..., None, None, :], problem.targets[..., None, None, :]
    scores = None if w0 is None else [(Z[..., :d] @ w0[..., :d, None])[..., 0] for d in prefixes.n_features]
    offset = xp.zeros_like(targets) if scores is None else xp.stack(scores, axis=-2)[..., None, :]
    shape = _broadcast_shapes((*K.shape[:-3], 1), c.shape[:-1], l2.shape)
    # one flat batch, so that each problem can leave it alone; too many rows of it and copies cost more than that
    flatten = flatten and math.prod(shape) * Z.shape[-2] ** 2 < FLAT
    flat = (math.prod(shape),) if flatten else shape
    if flatten:
        K, c, targets, offset, l2 = (
            xp.reshape(xp.broadcast_to(v, (*shape, *v.shape[v.ndim - k :])), (*flat, *v.shape[v.ndim - k :]))
            for v, k in ((K, 2), (c, 1), (targets, 1), (offset, 1), (l2, 0))
        )
    a, b, kkt, n_iter = newton(Dual(K, c, l2), targets, c, offset, flat, problem.tol, problem.max_iter)
    a, b, kkt = (xp.reshape(v, (*shape, *v.shape[len(flat) :])) for v in (a, b, kkt))
    coef = xp.zeros((*shape, Z.shape[-1]), dtype=Z.dtype, device=device(Z))
    for i, d in enumerate(prefixes.n_features):
        coef[..., i, :, :d] = a[..., i, :, :] @ Z[..., :d]
        if w0 is not None:
            coef[..., i, :, :d] += w0[..., None, :d]
    return LogisticFit(coef, b, kkt, n_iter, kkt <= problem.tol), a


class Problem:
    """A checked batch: features, soft targets, weights of sum one (`total` before), and the three ways to solve it."""

    def __init__(
        self, Z: Array, targets: Array, weight: Array, total: Array, n_classes: int, tol: float, max_iter: int
    ):  # fmt: skip
        self.xp = array_namespace(Z)
        self.Z, self.targets, self.weight, self.total = Z, targets, weight, total
        self.n_classes, self.tol, self.max_iter = n_classes, tol, max_iter

    @classmethod
    def check(
        cls, Z: Array, y: Array, n_classes: int, sample_weight: Array | None, tol: float | None, max_iter: int
    ) -> Problem:
        xp = array_namespace(Z)
        if Z.ndim < 2 or y.shape[-1] != Z.shape[-2]:
            raise ValueError(f"Z must be (..., M, p) and y (..., M), got {tuple(Z.shape)} and {tuple(y.shape)}.")
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes}.")
        Z = Z if Z.dtype in (xp.float32, xp.float64) else xp.astype(Z, xp.float64)
        if sample_weight is None:
            c = xp.ones(y.shape, dtype=Z.dtype, device=device(Z))
        else:
            c = xp.astype(xp.asarray(sample_weight, device=device(Z)), Z.dtype)
            c = c + xp.zeros(y.shape, dtype=Z.dtype, device=device(Z))
        targets = _soft_targets(xp, y, c, n_classes)
        default = 1e-10 if Z.dtype == xp.float64 else 1e-4
        total = xp.sum(c, axis=-1)
        return cls(Z, targets, c / total[..., None], total, n_classes, default if tol is None else tol, max_iter)

    def with_axis(self) -> Problem:
        targets = self.targets[..., None, :] if self.n_classes == 2 else self.targets[..., None, :, :]
        return Problem(
            self.Z[..., None, :, :],
            targets,
            self.weight[..., None, :],
            self.total[..., None],
            self.n_classes,
            self.tol,
            self.max_iter,
        )

    def fit(self, solve: Any, l2: Array, w0: Array | None, Z: Array, K: Array | None = None) -> LogisticFit:
        """Run a solver on v = w - w0 with the scores of w0 as offset, then add w0 back."""
        xp = self.xp
        if w0 is None:
            offset = xp.zeros_like(self.targets)
        elif self.n_classes == 2:
            offset = (Z @ w0[..., None])[..., 0]
        else:
            offset = Z @ xp.matrix_transpose(w0)
        shape = _broadcast_shapes(Z.shape[:-2], self.weight.shape[:-1], l2.shape)
        v, b, kkt, n_iter = solve(Z, l2, offset, shape, K)
        return LogisticFit(v if w0 is None else v + w0, b, kkt, n_iter, kkt <= self.tol)

    def primal(self, Z: Array, l2: Array, offset: Array, shape: tuple[int, ...], K: Array | None) -> tuple:
        space = Primal(Z, self.weight, l2)
        return newton(space, self.targets, self.weight, offset, shape, self.tol, self.max_iter)

    def dual(self, Z: Array, l2: Array, offset: Array, shape: tuple[int, ...], K: Array | None) -> tuple:
        space = Dual(Z @ self.xp.matrix_transpose(Z) if K is None else K, self.weight, l2)
        a, b, kkt, n_iter = newton(space, self.targets, self.weight, offset, shape, self.tol, self.max_iter)
        return (a[..., None, :] @ Z)[..., 0, :], b, kkt, n_iter

    def softmax(self, Z: Array, l2: Array, offset: Array, shape: tuple[int, ...], K: Array | None) -> tuple:
        """In the row space when it is smaller: Z = F R' with F (M, r) from the eigenvectors of the Gram matrix."""
        args = (l2, self.weight, offset, shape, self.tol, self.max_iter)
        if Z.shape[-1] <= Z.shape[-2]:
            return fit_softmax(Z, self.targets, *args)
        xp = self.xp
        F, back = _row_space(xp, Z @ xp.matrix_transpose(Z) if K is None else K)
        V, b, kkt, n_iter = fit_softmax(F, self.targets, *args)
        return (V @ xp.matrix_transpose(back)) @ Z, b, kkt, n_iter


def soft_labels(y: Array, weight: Array) -> Array:
    """Codes 0 and 1 as numbers (..., M); where a class has no row it gets half a pseudo-count."""
    xp = array_namespace(weight)
    one = xp.astype(y == 1, weight.dtype)
    mass = [xp.sum(weight * part, axis=-1, keepdims=True) for part in (1.0 - one, one)]
    zeros, ones = (PSEUDO_COUNT * xp.astype(m == 0, weight.dtype) for m in mass)
    rows = mass[0] + mass[1]
    return (one * rows + ones) / (rows + zeros + ones)


def _soft_targets(xp: Any, y: Array, c: Array, n_classes: int) -> Array:
    """(..., M) for two classes, (..., M, K) for more; one-hot where every class has a row."""
    if n_classes == 2:
        return soft_labels(y, c)
    onehot = xp.astype(y[..., None] == xp.arange(n_classes, device=device(y)), c.dtype)
    mass = xp.sum(c[..., None] * onehot, axis=-2, keepdims=True)
    absent = xp.astype(mass == 0, c.dtype) * PSEUDO_COUNT
    rows = xp.sum(c, axis=-1)[..., None, None]
    return (onehot * rows + absent) / (rows + xp.sum(absent, axis=-1, keepdims=True))


def _row_space(xp: Any, K: Array) -> tuple[Array, Array]:
    """F and T with K = F F' and Z'T the matching orthonormal directions (zero where K has no energy)."""
    values, vectors = xp.linalg.eigh(K)
    floor = K.shape[-1] * float(xp.finfo(K.dtype).eps) * xp.max(xp.abs(values), axis=-1, keepdims=True)
    keep = values > floor
    root = xp.where(keep, xp.sqrt(xp.where(keep, values, xp.ones_like(values))), xp.zeros_like(values))
    inverse = xp.where(keep, 1.0 / xp.where(keep, root, xp.ones_like(root)), xp.zeros_like(root))
    return vectors * root[..., None, :], vectors * inverse[..., None, :]


def _pad(xp: Any, w: Array, D: int) -> Array:
    """Continue w (..., d) to D features by zeros."""
    if w.shape[-1] == D:
        return w
    rest = xp.zeros((*w.shape[:-1], D - w.shape[-1]), dtype=w.dtype, device=device(w))
    return xp.concat([w, rest], axis=-1)


def _insert_axis(w0: Array, n_classes: int) -> Array:
    return w0[..., None, :] if n_classes == 2 else w0[..., None, :, :]


def _broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    out: list[int] = []
    for sizes in zip(*((1,) * (max(map(len, shapes)) - len(s)) + tuple(s) for s in shapes)):
        out.append(max(sizes))
    return tuple(out)


def _check_l2(xp: Any, l2: Array | float, Z: Array) -> Array:
    l2 = xp.asarray(l2, dtype=Z.dtype, device=device(Z))
    if not bool(xp.all((l2 > 0) & (l2 < float("inf")))):
        raise ValueError(f"l2 must be positive and finite, got {l2}: without a penalty separable data has no optimum.")
    return l2


def _check_prefixes(n_features: Sequence[int], D: int) -> None:
    bad = [d for d in n_features if not 1 <= d <= D]
    if bad or not len(n_features):
        raise ValueError(f"n_features must be prefix lengths in 1..{D}, got {list(n_features)}.")
