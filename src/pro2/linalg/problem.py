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


class Path(NamedTuple):
    """Problems (...) times n_d prefixes times J penalties.

    coef (..., n_d, J, K', D), intercept (..., n_d, J, K'), kkt and converged (..., n_d, J), leave-one-out scores
    (..., n_d, J, M, K') or None.
    """

    coef: Array
    intercept: Array
    kkt: Array
    n_iter: int
    converged: Array
    scores: Array | None

    @classmethod
    def joined(cls, parts: Sequence[Path], axis: int) -> Path:
        """Parts one after the other: of the problems (axis 0), or of the prefixes."""
        if len(parts) == 1:
            return parts[0]
        xp = array_namespace(parts[0].coef)
        coef, intercept, kkt, n_iter, converged, scores = zip(*parts)
        whole: list[Any] = [xp.concat(v, axis=axis) for v in (coef, intercept, kkt, converged)]
        left_out = None if scores[0] is None else xp.concat(scores, axis=axis)
        return cls(whole[0], whole[1], whole[2], max(n_iter), whole[3], left_out)


class Problem:
    """A checked batch: features, labels, soft targets, weights of sum one, and the centre of the penalty."""

    def __init__(
        self, Z: Array, y: Array, Y: Array, c: Array, w0: Array | None, n_classes: int, tol: float, max_iter: int
    ):
        self.xp = array_namespace(Z)
        self.Z, self.y, self.Y, self.c, self.w0 = Z, y, Y, c, w0
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
        Y, c = soft_targets(y, c, n_classes), c / xp.sum(c, axis=-1, keepdims=True)
        return cls(Z, y, Y, c, w0, n_classes, TOL if tol is None else tol, max_iter)

    def at(self, some: Any) -> Problem:
        """Some problems of a batch with one leading axis."""
        w0 = self.w0 if self.w0 is None or self.w0.ndim == 2 else self.w0[some, ...]
        Z, y, Y, c = (v[some, ...] for v in (self.Z, self.y, self.Y, self.c))
        return Problem(Z, y, Y, c, w0, self.n_classes, self.tol, self.max_iter)

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

    def fit(self, path: Path) -> LogisticFit:
        """What a caller sees of a path: in its type, without an axis of one logit."""
        coef, intercept = self.result(path.coef), self.result(path.intercept)
        if self.n_classes == 2:
            coef, intercept = coef[..., 0, :], intercept[..., 0]
        return LogisticFit(coef, intercept, *path[2:5])

    def loo_scores(self, path: Path) -> Array:
        """Of a path that has them, (..., n_d, J, M) for two classes, (..., n_d, J, M, K) for more."""
        assert path.scores is not None
        return path.scores[..., 0] if self.n_classes == 2 else path.scores

    def loo_loss(self, path: Path) -> Array:
        """Mean leave-one-out log-loss over rows, (..., n_d, J)."""
        return loo_loss(self.loo_scores(path), self.y, self.n_classes, self.c)

    def prefix(self, d: int, l2: Array, loo: bool) -> Path:
        """The first d features under penalties l2 (J,), or (..., 1, J) where each problem has its own."""
        A, w0 = self.wide(self.Z[..., None, :, :d]), None if self.w0 is None else self.w0[..., None, :, :d]
        return self._solve(A, self.offset(d)[..., None, :, :], w0, l2, loo)

    def stacked(self, n_features: Sequence[int], l2: Array, loo: bool) -> Path:
        """Several prefixes as one batch: features beyond a prefix are zero."""
        xp, Z = self.xp, self.wide(self.Z)
        inside = xp.arange(Z.shape[-1], device=device(Z)) < xp.asarray(list(n_features), device=device(Z))[:, None]
        inside = xp.astype(inside, Z.dtype)[:, None, :]
        offset = xp.stack([self.offset(d) for d in n_features], axis=-3)
        w0 = None if self.w0 is None else self.w0[..., None, :, :] * inside
        return self._solve(Z[..., None, :, :] * inside, offset, w0, l2, loo)

    def _solve(self, A: Array, offset: Array, w0: Array | None, l2: Array, loo: bool) -> Path:
        """Rows A (..., n_d, M, d), scores of the centre (..., n_d, M, K') and the centre itself, (..., n_d, K', d)."""
        xp, Y, (M, p), J = self.xp, self.Y[..., None, :, :], A.shape[-2:], l2.shape[-1]
        direct = self.w0 is None and p <= M and is_direct(M, p + 1, J, Y.shape[-1])
        rows = orthogonal(A, self.c[..., None, :], intercept=True, as_is=direct)
        offset = xp.broadcast_to(offset[..., None, :], (*offset.shape[:-1], J, offset.shape[-1]))
        mode = find_mode(rows, Y, offset, l2, tol=self.tol, max_iter=self.max_iter)
        coef, intercept = _heads(rows, mode, w0)
        scores = None
        if loo:
            # one logit: each row's own curvature is affordable, and exact
            each = leave_one_out(rows, mode, Y, l2, own_curvature=self.n_classes == 2)
            scores = xp.moveaxis(each, -2, -3)
        coef = _pad(xp, coef, self.Z.shape[-1])
        return Path(coef, intercept, mode.residual, mode.n_iter, mode.converged, scores)


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
