"""One batch of L2-regularised logistic or softmax problems, checked and solved by `pro2.linalg.mode`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg import losses
from pro2.linalg.kernels.threads import host_pieces
from pro2.linalg.loo import leave_one_out
from pro2.linalg.mode import Mode, find_mode, is_direct
from pro2.linalg.moments import Array
from pro2.linalg.rows import Rows, orthogonal

PSEUDO_COUNT = 0.5
TOL = 1e-9


class LogisticFit(NamedTuple):
    """Solutions: leading axes are problems; the class axis exists for three classes or more.

    `kkt` is the largest entry of the gradient, each relative to the most it can be; `converged` is kkt <= tol.
    """

    coef: Array
    intercept: Array
    kkt: Array
    n_iter: int
    converged: Array

    @classmethod
    def of_pieces(cls, fits: Sequence[LogisticFit]) -> LogisticFit:
        """Of a batch from those of its pieces."""
        xp = array_namespace(fits[0].coef)
        coef, intercept, kkt, n_iter, converged = zip(*fits)
        return cls(xp.concat(coef), xp.concat(intercept), xp.concat(kkt), max(n_iter), xp.concat(converged))


class Part(NamedTuple):
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

    def at(self, some: Any) -> Problem:
        """Some problems of a batch with one leading axis."""
        w0 = self.w0 if self.w0 is None or self.w0.ndim == 2 else self.w0[some, ...]
        Z, Y, c = (v[some, ...] for v in (self.Z, self.Y, self.c))
        return Problem(Z, Y, c, w0, self.n_classes, self.tol, self.max_iter)

    def pieces(self) -> list[slice]:
        """Of a large batch on the host, parts that fit the cache; none where it is solved as a whole."""
        return host_pieces(self.c, self.c.shape[:-1], math.prod(self.Z.shape[-2:])) if self.Z.ndim == 3 else []

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
        rows = self._rows(self.wide(self.Z), self.c, 1)
        mode = self._mode(rows, self.offset(self.Z.shape[-1]), l2[..., None])
        coef, intercept = _heads(rows, mode, self.w0)
        coef, intercept, kkt = coef[..., 0, :, :], intercept[..., 0, :], mode.residual[..., 0]
        if self.n_classes == 2:
            coef, intercept = coef[..., 0, :], intercept[..., 0]
        return LogisticFit(self.result(coef), self.result(intercept), kkt, mode.n_iter, kkt <= self.tol)

    def _rows(self, A: Array, c: Array, n_penalties: int) -> Rows:
        M, p = A.shape[-2:]
        direct = self.w0 is None and p <= M and is_direct(M, p + 1, n_penalties, losses.n_scores(self.n_classes))
        return orthogonal(A, c, intercept=True, as_is=direct)

    def _mode(self, rows: Rows, offset: Array, l2: Array) -> Mode:
        shape = (*offset.shape[:-1], l2.shape[-1], offset.shape[-1])
        offset = self.xp.broadcast_to(offset[..., None, :], shape)
        Y = self.Y if self.Y.ndim == rows.phi.ndim else self.Y[..., None, :, :]
        return find_mode(rows, Y, offset, l2, tol=self.tol, max_iter=self.max_iter)

    def solve(self, A: Array, c: Array, offset: Array, w0: Array | None, l2: Array, loo: bool) -> Part:
        """Prefixes A (..., n_d, M, d) under all penalties l2 (J,)."""
        xp = self.xp
        rows = self._rows(A, c, l2.shape[0])
        mode = self._mode(rows, offset, l2)
        coef, intercept = _heads(rows, mode, w0)
        scores = None
        if loo:
            # one logit: each row's own curvature is affordable, and exact
            each = leave_one_out(rows, mode, self.Y[..., None, :, :], l2, own_curvature=self.n_classes == 2)
            scores = xp.moveaxis(each, -2, -3)
        return Part(_pad(xp, coef, self.Z.shape[-1]), intercept, mode.residual, mode.n_iter, scores)


def one_prefix(problem: Problem, d: int, l2: Array, loo: bool) -> Part:
    A = problem.wide(problem.Z[..., None, :, :d])
    w0 = None if problem.w0 is None else problem.w0[..., None, :, :d]
    return problem.solve(A, problem.c[..., None, :], problem.offset(d)[..., None, :, :], w0, l2, loo)


def joined(problem: Problem, parts: list[Part]) -> tuple[LogisticFit, Array]:
    xp = problem.xp
    coef, intercept, kkt, n_iter, scores = parts[0]
    if len(parts) > 1:
        coef, intercept, kkt = (xp.concat([p[k] for p in parts], axis=-a) for k, a in ((0, 4), (1, 3), (2, 2)))
        scores = None if scores is None else xp.concat([p.scores for p in parts], axis=-4)
        n_iter = max(p.n_iter for p in parts)
    if problem.n_classes == 2:
        coef, intercept = coef[..., 0, :], intercept[..., 0]
    return LogisticFit(problem.result(coef), problem.result(intercept), kkt, n_iter, kkt <= problem.tol), scores


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
    rows = (y[..., None, :] == xp.arange(n_classes, device=device(y))[:, None]) & (c > 0)[..., None, :]  # (..., K, M)
    absent = ~xp.any(rows, axis=-1)[..., None, :]
    hot = losses.one_hot(y, n_classes, c)
    if not bool(xp.any(absent)):
        return hot
    present = xp.sum(xp.astype(c > 0, c.dtype), axis=-1)[..., None, None]
    absent = xp.astype(absent, c.dtype) * PSEUDO_COUNT
    own = absent[..., 1:] if n_classes == 2 else absent
    return (hot * present + own) / (present + xp.sum(absent, axis=-1, keepdims=True))


def _heads(rows: Rows, mode: Mode, w0: Array | None) -> tuple[Array, Array]:
    """Coefficients (..., J, K', d) and intercepts (..., J, K')."""
    xp, B = array_namespace(mode.B), mode.B
    coef, intercept = rows.coefficients(xp.reshape(B, (*B.shape[:-2], -1)))
    coef = xp.reshape(xp.matrix_transpose(coef), (*coef.shape[:-2], *B.shape[-2:], coef.shape[-2]))
    coef = coef if w0 is None else coef + w0[..., None, :, :]
    return coef, xp.reshape(intercept, coef.shape[:-1])


def _pad(xp: Any, w: Array, D: int) -> Array:
    """Continue w (..., d) to D features by zeros."""
    if w.shape[-1] == D:
        return w
    rest = xp.zeros((*w.shape[:-1], D - w.shape[-1]), dtype=w.dtype, device=device(w))
    return xp.concat([w, rest], axis=-1)
