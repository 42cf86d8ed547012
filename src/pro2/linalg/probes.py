"""The Probe step: exact L2-regularised logistic and softmax regression, batched over problems on leading axes.

    minimise   sum_i c_i loss(z_i'w + b, y_i) + (l2 / 2) ||w - w0||^2,   weights c of sum one, intercept b free

A path over feature prefixes and penalties, and leave-one-out along it, are things done with the solver of
`pro2.linalg.mode`. A problem that lacks a class has no finite optimum; each missing class then gets half a pseudo-count
spread over the rows, so that it keeps a small, defined probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg import losses
from pro2.linalg.loo import leave_one_out
from pro2.linalg.mode import MOST_STEPS, Mode, Rows, find_mode, orthogonal
from pro2.linalg.moments import Array

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


def fit_logistic(
    Z: Array,
    y: Array,
    l2: Array | float,
    *,
    n_classes: int = 2,
    sample_weight: Array | None = None,
    prior_mean: Array | None = None,
    tol: float = TOL,
    max_iter: int = MOST_STEPS,
) -> LogisticFit:
    """Solve one problem or a batch of them.

    Parameters
    ----------
    Z : array (..., M, p)
        Features. Everything is computed in float64 and returned in the type of Z.
    y : integer array (..., M)
        Class codes 0..n_classes-1.
    l2 : float or array (...)
        Penalty, positive and finite.
    sample_weight : array (..., M), optional
        Non-negative; normalised to sum one in each problem. A row of weight 0 is absent.
    prior_mean : array (..., p), or (..., n_classes, p) for more than two classes, optional
        Centre w0 of the penalty.

    Returns
    -------
    LogisticFit
        coef (..., p) and intercept (...) for two classes, (..., n_classes, p) and (..., n_classes) for more.
    """
    problem = _Problem.check(Z, y, n_classes, sample_weight, prior_mean)
    l2 = _check_l2(problem.Z, l2)[..., None]
    solved = problem.solve(Z.shape[-1], l2, tol, max_iter)
    coef, intercept = solved.heads(problem)
    return problem.fit(coef[..., 0, :, :], intercept[..., 0, :], solved.mode, tol)


def fit_path(
    Z: Array, y: Array, n_features: Sequence[int], l2: Sequence[float], *, n_classes: int = 2,
    sample_weight: Array | None = None, prior_mean: Array | None = None, tol: float = TOL, max_iter: int = MOST_STEPS,
) -> LogisticFit:  # fmt: skip
    """All feature prefixes times all penalties: entry (i, j) is `fit_logistic(Z[..., :n_features[i]], y, l2[j])`.

    coef (..., n_d, n_l2[, K], D) is zero beyond its prefix, whatever the prior mean is there; intercept
    (..., n_d, n_l2[, K]).
    """
    problem = _Problem.check(Z, y, n_classes, sample_weight, prior_mean)
    return _path(problem, n_features, l2, tol, max_iter)[0]


def loo_path(
    Z: Array, y: Array, n_features: Sequence[int], l2: Sequence[float], *, n_classes: int = 2,
    sample_weight: Array | None = None, prior_mean: Array | None = None, tol: float = TOL, max_iter: int = MOST_STEPS,
) -> tuple[LogisticFit, Array]:  # fmt: skip
    """`fit_path` and the scores that each row would get from a probe fitted without it (`pro2.linalg.loo`).

    Scores are (..., n_d, n_l2, M) for two classes and (..., n_d, n_l2, M, K) for more.
    """
    problem = _Problem.check(Z, y, n_classes, sample_weight, prior_mean)
    fit, solved = _path(problem, n_features, l2, tol, max_iter)
    xp = problem.xp
    each = [leave_one_out(s.rows, s.mode, problem.Y, s.l2) for s in solved]
    scores = xp.stack([xp.moveaxis(s, -2, -3) for s in each], axis=-4)
    return fit, problem.result(scores[..., 0] if n_classes == 2 else scores)


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


class _Solved(NamedTuple):
    """One prefix under all penalties."""

    rows: Rows
    mode: Mode
    l2: Array
    prior_mean: Array | None

    def heads(self, problem: _Problem) -> tuple[Array, Array]:
        """Coefficients (..., J, K', d) and intercepts (..., J, K')."""
        xp, B = problem.xp, self.mode.B
        coef, intercept = self.rows.coefficients(xp.reshape(B, (*B.shape[:-2], -1)))
        coef = xp.reshape(xp.matrix_transpose(coef), (*coef.shape[:-2], *B.shape[-2:], coef.shape[-2]))
        if self.prior_mean is not None:
            coef = coef + self.prior_mean[..., None, :, :]
        return coef, xp.reshape(intercept, (*coef.shape[:-1],))


class _Problem:
    """A checked batch in float64: features, soft targets, weights of sum one, and the centre of the penalty."""

    def __init__(self, Z: Array, Y: Array, c: Array, w0: Array | None, n_classes: int, dtype: Any):
        self.xp = array_namespace(Z)
        self.Z, self.Y, self.c, self.w0 = Z, Y, c, w0
        self.n_classes, self.dtype = n_classes, dtype

    @classmethod
    def check(
        cls, Z: Array, y: Array, n_classes: int, sample_weight: Array | None, prior_mean: Array | None
    ) -> _Problem:
        xp = array_namespace(Z)
        if Z.ndim < 2 or y.shape[-1] != Z.shape[-2]:
            raise ValueError(f"Z must be (..., M, p) and y (..., M), got {tuple(Z.shape)} and {tuple(y.shape)}.")
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes}.")
        dtype = Z.dtype if Z.dtype in (xp.float32, xp.float64) else xp.float64
        Z = xp.astype(Z, xp.float64, copy=False)
        c = xp.ones(y.shape, dtype=Z.dtype, device=device(Z))
        if sample_weight is not None:
            c = c * xp.astype(xp.asarray(sample_weight, device=device(Z)), Z.dtype)
        w0 = None if prior_mean is None else xp.asarray(prior_mean, dtype=Z.dtype, device=device(Z))
        w0 = w0[..., None, :] if w0 is not None and n_classes == 2 else w0
        return cls(Z, soft_targets(y, c, n_classes), c / xp.sum(c, axis=-1, keepdims=True), w0, n_classes, dtype)

    def solve(self, d: int, l2: Array, tol: float, max_iter: int) -> _Solved:
        """The first d features under all penalties l2 (..., J)."""
        xp = self.xp
        A = self.Z[..., :d]
        rows = orthogonal(A, self.c, intercept=True)
        offset = xp.zeros_like(self.Y)
        w0 = None if self.w0 is None else self.w0[..., :d]
        if w0 is not None:
            offset = A @ xp.matrix_transpose(w0)
        shape = (*offset.shape[:-1], l2.shape[-1], offset.shape[-1])
        offset = xp.broadcast_to(offset[..., None, :], shape)
        return _Solved(rows, find_mode(rows, self.Y, offset, l2, tol=tol, max_iter=max_iter), l2, w0)

    def fit(self, coef: Array, intercept: Array, mode: Mode, tol: float) -> LogisticFit:
        """In the caller's type, without the class axis for two classes."""
        if self.n_classes == 2:
            coef, intercept = coef[..., 0, :], intercept[..., 0]
        kkt = mode.residual if coef.ndim > 1 or mode.residual.ndim == 0 else mode.residual[..., 0]
        return LogisticFit(self.result(coef), self.result(intercept), kkt, mode.n_iter, kkt <= tol)

    def result(self, values: Array) -> Array:
        return self.xp.astype(values, self.dtype, copy=False)


def _path(
    problem: _Problem, n_features: Sequence[int], l2: Sequence[float], tol: float, max_iter: int
) -> tuple[LogisticFit, list[_Solved]]:
    xp, D = problem.xp, problem.Z.shape[-1]
    bad = [d for d in n_features if not 1 <= d <= D]
    if bad or not len(n_features):
        raise ValueError(f"n_features must be prefix lengths in 1..{D}, got {list(n_features)}.")
    grid = _check_l2(problem.Z, xp.asarray(list(l2), dtype=problem.Z.dtype, device=device(problem.Z)))
    solved = [problem.solve(d, grid, tol, max_iter) for d in n_features]
    heads = [s.heads(problem) for s in solved]
    coef = xp.stack([_pad(xp, w, D) for w, _ in heads], axis=-4)
    intercept = xp.stack([b for _, b in heads], axis=-3)
    kkt = xp.stack([s.mode.residual for s in solved], axis=-2)
    if problem.n_classes == 2:
        coef, intercept = coef[..., 0, :], intercept[..., 0]
    n_iter = max(s.mode.n_iter for s in solved)
    return LogisticFit(problem.result(coef), problem.result(intercept), kkt, n_iter, kkt <= tol), solved


def _pad(xp: Any, w: Array, D: int) -> Array:
    """Continue w (..., d) to D features by zeros."""
    if w.shape[-1] == D:
        return w
    rest = xp.zeros((*w.shape[:-1], D - w.shape[-1]), dtype=w.dtype, device=device(w))
    return xp.concat([w, rest], axis=-1)


def _check_l2(Z: Array, l2: Array | float) -> Array:
    xp = array_namespace(Z)
    l2 = xp.asarray(l2, dtype=Z.dtype, device=device(Z))
    if not bool(xp.all((l2 > 0) & (l2 < float("inf")))):
        raise ValueError(f"l2 must be positive and finite, got {l2}: without a penalty separable data has no optimum.")
    return l2
