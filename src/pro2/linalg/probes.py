"""The Probe step: exact L2-regularised logistic and softmax regression, batched over problems on leading axes.

    minimise   sum_i c_i loss(z_i'w + b, y_i) + (l2 / 2) ||w - w0||^2,   weights c of sum one, intercept b free

A path over feature prefixes and penalties, and leave-one-out along it, are things done with the solver of
`pro2.linalg.mode`. A problem that lacks a class has no finite optimum; each missing class then gets half a pseudo-count
spread over the rows, so that it keeps a small, defined probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg import kernels, losses
from pro2.linalg.loo import leave_one_out, left_out_scores, own_variance
from pro2.linalg.mode import MOST_STEPS, Mode, Rows, find_mode, orthogonal
from pro2.linalg.moments import Array

PSEUDO_COUNT = 0.5
TOL = 1e-9
STACKED = 64  # rows up to which all prefixes are solved as one batch: calls cost more than arithmetic there


class LogisticFit(NamedTuple):
    """Solutions: leading axes are problems; the class axis exists for three classes or more.

    `kkt` is the largest entry of the gradient, each relative to the most it can be; `converged` is kkt <= tol.
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
    max_iter: int = MOST_STEPS,
) -> LogisticFit:
    """Solve one problem or a batch of them.

    Parameters
    ----------
    Z : array (..., M, p)
        Features. The plain solver computes in float64; results have the type of Z.
    y : integer array (..., M)
        Class codes 0..n_classes-1.
    l2 : float or array (...)
        Penalty, positive and finite.
    sample_weight : array (..., M), optional
        Non-negative; normalised to sum one in each problem. A row of weight 0 is absent.
    prior_mean : array (..., p), or (..., n_classes, p) for more than two classes, optional
        Centre w0 of the penalty.
    tol : float, optional
        On `kkt`; 1e-9, or 1e-4 where a kernel computes in float32.

    Returns
    -------
    LogisticFit
        coef (..., p) and intercept (...) for two classes, (..., n_classes, p) and (..., n_classes) for more.
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, tol, max_iter)
    l2 = _check_l2(problem.Z, l2)
    fast = _by_kernel(problem, l2) if n_classes == 2 else None
    return problem.solve_one(l2) if fast is None else fast


def fit_path(
    Z: Array, y: Array, n_features: Sequence[int], l2: Sequence[float], *, n_classes: int = 2,
    sample_weight: Array | None = None, prior_mean: Array | None = None, tol: float | None = None,
    max_iter: int = MOST_STEPS,
) -> LogisticFit:  # fmt: skip
    """All feature prefixes times all penalties: entry (i, j) is `fit_logistic(Z[..., :n_features[i]], y, l2[j])`.

    coef (..., n_d, n_l2[, K], D) is zero beyond its prefix, whatever the prior mean is there; intercept
    (..., n_d, n_l2[, K]).
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, tol, max_iter)
    return _joined(problem, _parts(problem, n_features, l2, loo=False))[0]


def loo_path(
    Z: Array, y: Array, n_features: Sequence[int], l2: Sequence[float], *, n_classes: int = 2,
    sample_weight: Array | None = None, prior_mean: Array | None = None, tol: float | None = None,
    max_iter: int = MOST_STEPS,
) -> tuple[LogisticFit, Array]:  # fmt: skip
    """`fit_path` and the scores that each row would get from a probe fitted without it (`pro2.linalg.loo`).

    Scores are (..., n_d, n_l2, M) for two classes and (..., n_d, n_l2, M, K) for more.
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, tol, max_iter)
    fit, scores = _joined(problem, _parts(problem, n_features, l2, loo=True))
    return fit, problem.result(scores[..., 0] if n_classes == 2 else scores)


def loo_penalties(
    Z: Array, y: Array, l2: Sequence[float], *, n_classes: int = 2, sample_weight: Array | None = None,
    prior_mean: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Heads (T, L[, K], p), intercepts (T, L[, K]) and mean leave-one-out losses (T, L) of T targets Z (T, M, p)."""
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, None, MOST_STEPS)
    done = _penalties_by_kernel(problem, y, l2) if n_classes == 2 else None
    if done is not None:
        return done
    fit, scores = _joined(problem, _parts(problem, [Z.shape[-1]], l2, loo=True))
    loss = loo_loss(scores[..., 0] if n_classes == 2 else scores, y, n_classes, problem.c)
    return fit.coef[:, 0, ...], fit.intercept[:, 0, ...], loss[:, 0, :]


def loo_loss(scores: Array, y: Array, n_classes: int = 2, sample_weight: Array | None = None) -> Array:
    """Mean log-loss of leave-one-out scores over rows: (..., n_d, n_l2)."""
    xp = array_namespace(scores)
    scores = scores[..., None] if n_classes == 2 else scores
    loss, _ = losses.evaluate(scores, losses.one_hot(y, n_classes, scores)[..., None, None, :, :])
    if sample_weight is None:
        return xp.mean(loss, axis=-1)
    w = xp.astype(sample_weight, loss.dtype)[..., None, None, :]
    return xp.sum(w * loss, axis=-1) / xp.sum(w, axis=-1)


def soft_targets(y: Array, c: Array, n_classes: int) -> Array:
    """Targets (..., M, K') of codes y; a class without rows gets half a pseudo-count, spread over the rows."""
    xp = array_namespace(c)
    hot = xp.astype(y[..., None] == xp.arange(n_classes, device=device(y)), c.dtype)
    present = xp.sum(xp.astype(c > 0, c.dtype), axis=-1)[..., None, None]
    absent = xp.astype(xp.sum(c[..., None] * hot, axis=-2, keepdims=True) == 0, c.dtype) * PSEUDO_COUNT
    soft = (hot * present + absent) / (present + xp.sum(absent, axis=-1, keepdims=True))
    return soft[..., 1:] if n_classes == 2 else soft


class _Part(NamedTuple):
    """One prefix under all penalties, with an axis of prefixes before that of penalties.

    coef (..., n_d, J, K', D), intercept (..., n_d, J, K'), residual (..., n_d, J), scores (..., n_d, J, M, K') or None.
    """

    coef: Array
    intercept: Array
    residual: Array
    n_iter: int
    scores: Array | None


class Problem:
    """A checked batch: features, soft targets, weights of sum one, and the centre of the penalty."""

    def __init__(self, Z: Array, Y: Array, c: Array, w0: Array | None, n_classes: int, tol: float, max_iter: int):
        self.xp = array_namespace(Z)
        self.Z, self.Y, self.c, self.w0 = Z, Y, c, w0
        self.n_classes, self.tol, self.max_iter = n_classes, tol, max_iter

    @classmethod
    def check(
        cls, Z: Array, y: Array, n_classes: int, sample_weight: Array | None, prior_mean: Array | None,
        tol: float | None, max_iter: int,
    ) -> Problem:  # fmt: skip
        """Weights, targets and centre in float64; features stay as they are until they are used."""
        xp = array_namespace(Z)
        if Z.ndim < 2 or y.shape[-1] != Z.shape[-2]:
            raise ValueError(f"Z must be (..., M, p) and y (..., M), got {tuple(Z.shape)} and {tuple(y.shape)}.")
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes}.")
        Z = Z if Z.dtype in (xp.float32, xp.float64) else xp.astype(Z, xp.float64)
        c = xp.ones(y.shape, dtype=xp.float64, device=device(Z))
        if sample_weight is not None:
            c = c * xp.astype(xp.asarray(sample_weight, device=device(Z)), c.dtype)
        w0 = None if prior_mean is None else xp.asarray(prior_mean, dtype=c.dtype, device=device(Z))
        w0 = w0[..., None, :] if w0 is not None and n_classes == 2 else w0
        Y = soft_targets(y, c, n_classes)
        return cls(Z, Y, c / xp.sum(c, axis=-1, keepdims=True), w0, n_classes, TOL if tol is None else tol, max_iter)

    def offset(self, d: int) -> Array:
        """Scores of the centre on the first d features, (..., M, K')."""
        if self.w0 is None:
            return self.xp.zeros_like(self.Y)
        return self.wide(self.Z[..., :d]) @ self.xp.matrix_transpose(self.w0[..., :d])

    def wide(self, Z: Array) -> Array:
        return self.xp.astype(Z, self.xp.float64, copy=False)

    def result(self, values: Array) -> Array:
        """In the caller's type."""
        return self.xp.astype(values, self.Z.dtype, copy=False)

    def solve_one(self, l2: Array) -> LogisticFit:
        """All features under one penalty per problem."""
        rows = orthogonal(self.wide(self.Z), self.c, intercept=True)
        mode = self._mode(rows, self.offset(self.Z.shape[-1]), l2[..., None])
        coef, intercept = _heads(rows, mode, self.w0)
        coef, intercept, kkt = coef[..., 0, :, :], intercept[..., 0, :], mode.residual[..., 0]
        if self.n_classes == 2:
            coef, intercept = coef[..., 0, :], intercept[..., 0]
        return LogisticFit(self.result(coef), self.result(intercept), kkt, mode.n_iter, kkt <= self.tol)

    def _mode(self, rows: Rows, offset: Array, l2: Array) -> Mode:
        shape = (*offset.shape[:-1], l2.shape[-1], offset.shape[-1])
        offset = self.xp.broadcast_to(offset[..., None, :], shape)
        Y = self.Y if self.Y.ndim == rows.phi.ndim else self.Y[..., None, :, :]
        return find_mode(rows, Y, offset, l2, tol=self.tol, max_iter=self.max_iter)

    def solve(self, A: Array, c: Array, offset: Array, w0: Array | None, l2: Array, loo: bool) -> _Part:
        """Prefixes A (..., n_d, M, d) under all penalties l2 (J,)."""
        xp = self.xp
        rows = orthogonal(A, c, intercept=True)
        mode = self._mode(rows, offset, l2)
        coef, intercept = _heads(rows, mode, w0)
        scores = None
        if loo:
            # one logit: each row's own curvature is affordable, and exact
            each = leave_one_out(rows, mode, self.Y[..., None, :, :], l2, own_curvature=self.n_classes == 2)
            scores = xp.moveaxis(each, -2, -3)
        return _Part(_pad(xp, coef, self.Z.shape[-1]), intercept, mode.residual, mode.n_iter, scores)


def _heads(rows: Rows, mode: Mode, w0: Array | None) -> tuple[Array, Array]:
    """Coefficients (..., J, K', d) and intercepts (..., J, K')."""
    xp, B = array_namespace(mode.B), mode.B
    coef, intercept = rows.coefficients(xp.reshape(B, (*B.shape[:-2], -1)))
    coef = xp.reshape(xp.matrix_transpose(coef), (*coef.shape[:-2], *B.shape[-2:], coef.shape[-2]))
    coef = coef if w0 is None else coef + w0[..., None, :, :]
    return coef, xp.reshape(intercept, coef.shape[:-1])


def _parts(problem: Problem, n_features: Sequence[int], l2: Sequence[float], loo: bool) -> list[_Part]:
    """Solutions in the order of n_features, whichever way suits the size."""
    xp, Z = problem.xp, problem.Z
    M, D = Z.shape[-2:]
    bad = [d for d in n_features if not 1 <= d <= D]
    if bad or not len(n_features):
        raise ValueError(f"n_features must be prefix lengths in 1..{D}, got {list(n_features)}.")
    grid = _check_l2(problem.Z, xp.asarray(list(l2), dtype=xp.float64, device=device(Z)))
    n_problems = math.prod(Z.shape[:-2]) * len(n_features) * grid.shape[0]
    if problem.n_classes == 2 and kernels.serves_paths(Z, M, n_problems):
        return [_paths_by_kernel(problem, list(n_features), grid, loo)]
    if M <= STACKED and D > M and len(n_features) > 1:
        return [_stacked(problem, n_features, grid, loo)]
    return [_one_prefix(problem, d, grid, loo) for d in n_features]


def _one_prefix(problem: Problem, d: int, l2: Array, loo: bool) -> _Part:
    A = problem.wide(problem.Z[..., None, :, :d])
    w0 = None if problem.w0 is None else problem.w0[..., None, :, :d]
    return problem.solve(A, problem.c[..., None, :], problem.offset(d)[..., None, :, :], w0, l2, loo)


def _stacked(problem: Problem, n_features: Sequence[int], l2: Array, loo: bool) -> _Part:
    """Prefixes as one batch: features beyond a prefix are zero."""
    xp, Z = problem.xp, problem.wide(problem.Z)
    inside = xp.arange(Z.shape[-1], device=device(Z)) < xp.asarray(list(n_features), device=device(Z))[:, None]
    inside = xp.astype(inside, Z.dtype)[:, None, :]
    offset = xp.stack([problem.offset(d) for d in n_features], axis=-3)
    w0 = None if problem.w0 is None else problem.w0[..., None, :, :] * inside
    return problem.solve(Z[..., None, :, :] * inside, problem.c[..., None, :], offset, w0, l2, loo)


def _joined(problem: Problem, parts: list[_Part]) -> tuple[LogisticFit, Array]:
    xp = problem.xp
    coef, intercept, kkt, n_iter, scores = parts[0]
    if len(parts) > 1:
        coef, intercept, kkt = (xp.concat([p[k] for p in parts], axis=-a) for k, a in ((0, 4), (1, 3), (2, 2)))
        scores = None if scores is None else xp.concat([p.scores for p in parts], axis=-4)
        n_iter = max(p.n_iter for p in parts)
    if problem.n_classes == 2:
        coef, intercept = coef[..., 0, :], intercept[..., 0]
    return LogisticFit(problem.result(coef), problem.result(intercept), kkt, n_iter, kkt <= problem.tol), scores


def _by_kernel(problem: Problem, l2: Array) -> LogisticFit | None:
    """Many small two-class problems; what the kernel does not bring below the tolerance is solved plainly."""
    xp, Z = problem.xp, problem.Z
    if Z.ndim != 3:
        return None
    T = Z.shape[0]
    l2 = xp.broadcast_to(l2, (T,))
    tol = max(problem.tol, 1e-4) if Z.dtype == xp.float32 else problem.tol
    offset = problem.offset(Z.shape[-1])[..., 0]
    found = kernels.solve_batch(Z, problem.Y[..., 0], problem.c, offset, l2, tol, problem.max_iter)
    if found is None:
        return None
    coef, b, kkt, n_iter = found
    coef = coef if problem.w0 is None else coef + problem.result(problem.w0[..., 0, :])
    (at,) = xp.nonzero(~(kkt <= tol))
    if at.shape[0]:
        w0 = problem.w0 if problem.w0 is None or problem.w0.ndim == 2 else problem.w0[at, ...]
        rest = Problem(Z[at, ...], problem.Y[at, ...], problem.c[at, ...], w0, 2, problem.tol, problem.max_iter)
        again = rest.solve_one(l2[at])
        coef[at, ...], b[at], kkt[at] = again.coef, again.intercept, problem.result(again.kkt)
    return LogisticFit(coef, b, kkt, n_iter, kkt <= tol)


def _penalties_by_kernel(problem: Problem, y: Array, l2: Sequence[float]) -> tuple[Array, Array, Array] | None:
    xp, Z = problem.xp, problem.Z
    if Z.ndim != 3 or Z.shape[-1] > Z.shape[-2]:
        return None
    tol = max(problem.tol, 1e-4) if Z.dtype == xp.float32 else problem.tol
    offset = xp.broadcast_to(problem.offset(Z.shape[-1])[..., 0], problem.c.shape)
    hard, soft = xp.astype(y == 1, xp.float64), problem.Y[..., 0]
    found = kernels.solve_penalties(Z, hard, soft, problem.c, offset, l2, tol, problem.max_iter)
    if found is None:
        return None
    theta, b, loss, open_ = found
    coef = theta if problem.w0 is None else theta + problem.w0
    (at,) = xp.nonzero(open_)
    if at.shape[0]:
        w0 = problem.w0 if problem.w0 is None or problem.w0.ndim == 2 else problem.w0[at, ...]
        rest = Problem(Z[at, ...], problem.Y[at, ...], problem.c[at, ...], w0, 2, problem.tol, problem.max_iter)
        fit, scores = _joined(rest, _parts(rest, [Z.shape[-1]], l2, loo=True))
        coef[at, ...], b[at, ...] = fit.coef[:, 0], fit.intercept[:, 0]
        loss[at, ...] = loo_loss(scores[..., 0], y[at, ...], 2, rest.c)[:, 0]
    return problem.result(coef), problem.result(b), loss


def _paths_by_kernel(problem: Problem, n_features: list[int], l2: Array, loo: bool) -> _Part:
    """All prefixes in row space, on the host: each Gram matrix is the one before plus the new features."""
    xp, Z = problem.xp, problem.wide(problem.Z)
    lead, (M, D) = Z.shape[:-2], Z.shape[-2:]
    K = _prefix_grams(problem, n_features)
    offset = xp.stack([problem.offset(d)[..., 0] for d in n_features], axis=-2)
    shape = (*lead, len(n_features), M)
    y, c, offset = (_rows_of(xp, v, shape) for v in (problem.Y[..., None, :, 0], problem.c[..., None, :], offset))
    a, b, kkt, n_iter = kernels.solve_paths(xp.reshape(K, (-1, M, M)), y, c, offset, l2, problem.tol, problem.max_iter)
    scores = _loo_by_kernel(problem, K, y, c, offset, a, b, l2) if loo else None
    n_d, J = len(n_features), l2.shape[0]
    a, b, kkt = (xp.reshape(v, (*lead, n_d, J, *v.shape[2:])) for v in (a, b, kkt))
    coef = xp.zeros((*lead, n_d, J, 1, D), dtype=xp.float64)
    for i, d in enumerate(n_features):
        coef[..., i, :, 0, :d] = a[..., i, :, :] @ Z[..., :d]
        if problem.w0 is not None:
            coef[..., i, :, :, :d] += problem.w0[..., None, :, :d]
    scores = None if scores is None else xp.reshape(scores, (*lead, n_d, J, M, 1))
    return _finished(problem, _Part(coef, b[..., None], kkt, n_iter, scores), n_features, l2, loo)


def _prefix_grams(problem: Problem, n_features: list[int]) -> Array:
    xp, Z = problem.xp, problem.wide(problem.Z)
    K = xp.empty((*Z.shape[:-2], len(n_features), Z.shape[-2], Z.shape[-2]), dtype=xp.float64)
    last, running = 0, None
    for i in sorted(range(len(n_features)), key=n_features.__getitem__):
        new = Z[..., last : n_features[i]]
        if new.shape[-1] or running is None:
            more = new @ xp.matrix_transpose(new)
            running = more if running is None else running + more
        K[..., i, :, :], last = running, n_features[i]
    return K


def _rows_of(xp: Any, values: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast, with one leading axis, as its own writable memory."""
    whole = xp.empty(shape, dtype=xp.float64)
    whole[...] = values
    return xp.reshape(whole, (-1, shape[-1]))


def _loo_by_kernel(
    problem: Problem, K: Array, y: Array, c: Array, offset: Array, a: Array, b: Array, l2: Array
) -> Array:
    xp, M = problem.xp, K.shape[-1]
    gram = xp.reshape(K, (-1, M, M))
    F = (a @ gram + b[..., None] + offset[:, None, :])[..., None]
    _, P = losses.evaluate(F, y[:, None, :, None])
    h = c[:, None, :] * (P * (1.0 - P))[..., 0]
    V = kernels.path_variances(gram, h, l2)
    if V is None:
        each = [own_variance(orthogonal(_root(xp, g), w, intercept=True), hj, l2) for g, w, hj in zip(gram, c, h)]
        V = xp.stack(each)
    return left_out_scores(F, P, y[:, None, :, None], V, c[:, None, :], h)


def _root(xp: Any, gram: Array) -> Array:
    """Rows with this Gram matrix."""
    values, vectors = xp.linalg.eigh(gram)
    return vectors * xp.sqrt(xp.clip(values, 0.0, None))


def _finished(problem: Problem, part: _Part, n_features: list[int], l2: Array, loo: bool) -> _Part:
    """Prefixes that the kernel left above the tolerance, solved plainly."""
    xp = problem.xp
    open_ = ~(part.residual <= problem.tol)
    for i, d in enumerate(n_features):
        if bool(xp.any(open_[..., i, :])):
            again = _one_prefix(problem, d, l2, loo)
            part.coef[..., i, :, :, :] = again.coef[..., 0, :, :, :]
            part.intercept[..., i, :, :] = again.intercept[..., 0, :, :]
            part.residual[..., i, :] = again.residual[..., 0, :]
            if part.scores is not None and again.scores is not None:
                part.scores[..., i, :, :, :] = again.scores[..., 0, :, :, :]
    return part


def _pad(xp: Any, w: Array, D: int) -> Array:
    """Continue w (..., d) to D features by zeros."""
    if w.shape[-1] == D:
        return w
    rest = xp.zeros((*w.shape[:-1], D - w.shape[-1]), dtype=w.dtype, device=device(w))
    return xp.concat([w, rest], axis=-1)


def _check_l2(Z: Array, l2: Array | float) -> Array:
    xp = array_namespace(Z)
    l2 = xp.asarray(l2, dtype=xp.float64, device=device(Z))
    if not bool(xp.all((l2 > 0) & (l2 < float("inf")))):
        raise ValueError(f"l2 must be positive and finite, got {l2}: without a penalty separable data has no optimum.")
    return l2
