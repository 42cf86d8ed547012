"""Mode of a logistic model with a Gaussian prior on its scores, in row space, with closed-form leave-one-out.

    scores f = o + K a,   a minimises   sum_i c_i loss(f_i, y_i) + (1/2) a'K a

K (M, M) is the prior covariance of the scores (of the difference of two scores, for two classes) and o their prior
mean. Batches of problems live on leading axes. The intercept is part of K: nothing is free, so every problem has one
solution, whatever the labels (Rasmussen & Williams 2006, ch. 3).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from pro2.linalg.moments import Array
from pro2.linalg.newton import rounding, sigmoid


class Mode(NamedTuple):
    """Two classes: all arrays (..., M). More: (..., M, K)."""

    alpha: Array  # dual weights: scores at new rows are o + k(new, rows) alpha
    scores: Array
    loo_scores: Array  # each row's scores had it been left out


def laplace_mode(
    K: Array, offset: Array, y: Array, weight: Array, n_classes: int, *, tol: float = 1e-6, max_iter: int = 60
) -> Mode:
    """Solve the batch. K (..., M, M), offset (..., M) or (..., M, n_classes), y (M,) codes, weight (M,).

    A row of weight w counts as w rows; leave-one-out takes out one of them. For more than two classes every class has
    prior covariance K / 2, so that the difference of two classes has K as in the two-class case.
    """
    xp = array_namespace(K)
    if n_classes == 2:
        problem: _Binary | _Softmax = _Binary(xp, K, offset, xp.astype(y, K.dtype), weight)
    else:
        onehot = xp.astype(y[:, None] == xp.arange(n_classes, device=device(y))[None, :], K.dtype)
        problem = _Softmax(xp, 0.5 * K, offset, onehot, weight[:, None])
    alpha, f = _solve(problem, max_iter, tol)
    return Mode(alpha, f, problem.leave_out(f))


def log_likelihood(f: Array, y: Array, n_classes: int) -> Array:
    """Log-probability of the label of each row: (..., M) from scores (..., M) or (..., M, K)."""
    xp = array_namespace(f)
    if n_classes == 2:
        return -_softplus(xp, -xp.astype(2 * y - 1, f.dtype) * f)
    onehot = xp.astype(y[:, None] == xp.arange(n_classes, device=device(y))[None, :], f.dtype)
    return xp.sum(onehot * f, axis=-1) - _logsumexp(xp, f)


def _solve(problem: _Binary | _Softmax, max_iter: int, tol: float) -> tuple[Array, Array]:
    """Safeguarded (quasi-)Newton: each problem has its own step length and stops on its own."""
    xp, o = problem.xp, problem.offset
    alpha, f = xp.zeros_like(o), o
    value = problem.value(alpha, f)
    live = value == value
    for _ in range(max_iter):
        slope, curvature = problem.derivatives(f)
        residual = problem.reduce_max(xp.abs(alpha - slope) / problem.largest)
        live = live & (residual > tol)
        if not bool(xp.any(live)):
            break
        step = problem.step(alpha, f, slope, curvature)
        df = problem.covariance_times(step)
        t, value_new = _line_search(problem, alpha, f, step, df, value, live)
        alpha, f = alpha + problem.lift(t) * step, f + problem.lift(t) * df
        live = live & ~(value_new >= value - rounding(xp, value))
        value = value_new
    return alpha, f


def _line_search(
    problem: _Binary | _Softmax, alpha: Array, f: Array, step: Array, df: Array, value: Array, live: Array
) -> tuple[Array, Array]:
    xp = problem.xp
    t = xp.where(live, xp.ones_like(value), xp.zeros_like(value))
    for _ in range(30):
        new = problem.value(alpha + problem.lift(t) * step, f + problem.lift(t) * df)
        rises = ~(new <= value + rounding(xp, value)) & live
        if not bool(xp.any(rises)):
            return t, new
        t = xp.where(rises, 0.5 * t, t)
    return xp.where(rises, xp.zeros_like(t), t), xp.where(rises, value, new)


class _Binary:
    """One score a row: exact Newton."""

    def __init__(self, xp: Any, K: Array, offset: Array, y: Array, c: Array):
        self.xp, self.K, self.y, self.c = xp, K, y, c
        self.offset = offset + xp.zeros_like(K[..., 0])
        self.largest = xp.where(c > 0, c, xp.ones_like(c))

    def lift(self, t: Array) -> Array:
        return t[..., None]

    def reduce_max(self, r: Array) -> Array:
        return self.xp.max(r, axis=-1)

    def covariance_times(self, a: Array) -> Array:
        return (self.K @ a[..., None])[..., 0]

    def value(self, alpha: Array, f: Array) -> Array:
        fit = self.xp.sum(self.c * (_softplus(self.xp, f) - self.y * f), axis=-1)
        return fit + 0.5 * self.xp.sum(alpha * (f - self.offset), axis=-1)

    def derivatives(self, f: Array) -> tuple[Array, Array]:
        p = sigmoid(self.xp, f)
        return self.c * (self.y - p), self.c * p * (1.0 - p)

    def step(self, alpha: Array, f: Array, slope: Array, h: Array) -> Array:
        """(I + h K)^-1 (slope - alpha), through the symmetric I + sqrt(h) K sqrt(h)."""
        xp, S = self.xp, self.xp.sqrt(h)
        right = slope - alpha
        inner = xp.linalg.solve(_system(xp, self.K, S), (S * self.covariance_times(right))[..., None])[..., 0]
        return right - S * inner

    def leave_out(self, f: Array) -> Array:
        p = sigmoid(self.xp, f)
        h = p * (1.0 - p)
        return f + _removed(self.xp, self.K, self.c * h, h, p - self.y)


class _Softmax:
    """K scores a row, each class with prior covariance `K`: one quasi-Newton system per class."""

    def __init__(self, xp: Any, K: Array, offset: Array, Y: Array, c: Array):
        self.xp, self.K, self.Y, self.c = xp, K, Y, c
        self.offset = offset + xp.zeros_like(K[..., :1])
        self.largest = xp.where(c > 0, c, xp.ones_like(c))

    def lift(self, t: Array) -> Array:
        return t[..., None, None]

    def reduce_max(self, r: Array) -> Array:
        return self.xp.max(self.xp.max(r, axis=-1), axis=-1)

    def covariance_times(self, a: Array) -> Array:
        return self.K @ a

    def value(self, alpha: Array, f: Array) -> Array:
        xp = self.xp
        fit = xp.sum(self.c[:, 0] * (_logsumexp(xp, f) - xp.sum(self.Y * f, axis=-1)), axis=-1)
        return fit + 0.5 * xp.sum(xp.sum(alpha * (f - self.offset), axis=-1), axis=-1)

    def derivatives(self, f: Array) -> tuple[Array, Array]:
        P = _softmax(self.xp, f)
        # diag(p) - pp' lies between about one and two times diag(p (1 - p)): the middle converges fastest
        return self.c * (self.Y - P), 1.5 * self.c * P * (1.0 - P)

    def step(self, alpha: Array, f: Array, slope: Array, h: Array) -> Array:
        xp, S = self.xp, self.xp.sqrt(self.xp.matrix_transpose(h))  # classes first: (..., K, M)
        right = slope - alpha
        inner = S * xp.matrix_transpose(self.covariance_times(right))
        inner = xp.linalg.solve(_system(xp, self.K[..., None, :, :], S), inner[..., None])[..., 0]
        step = right - xp.matrix_transpose(S * inner)
        return step - xp.mean(step, axis=-1, keepdims=True)  # the solution sums to zero over classes

    def leave_out(self, f: Array) -> Array:
        xp, n = self.xp, f.shape[-1]
        P = _softmax(xp, f)
        # exact for two classes, and for any number of equally likely ones
        h = P * (1.0 - P) * (n / (n - 1.0))
        H, h, g = (xp.matrix_transpose(v) for v in (self.c * h, h, P - self.Y))
        return f + xp.matrix_transpose(_removed(xp, self.K[..., None, :, :], H, h, g))


def _system(xp: Any, K: Array, S: Array) -> Array:
    return S[..., :, None] * K * S[..., None, :] + xp.eye(K.shape[-1], dtype=K.dtype, device=device(K))


def _removed(xp: Any, K: Array, H: Array, h: Array, g: Array) -> Array:
    """What leaving one unit of a row out adds to its score: V g / (1 - h V), V = posterior variance of the score."""
    S = xp.sqrt(H)
    KS = K * S[..., None, :]
    V = xp.linalg.diagonal(K) - xp.sum(
        KS * xp.matrix_transpose(xp.linalg.solve(_system(xp, K, S), S[..., :, None] * K)), axis=-1
    )
    return V * g / xp.maximum(1.0 - h * V, xp.full_like(V, 1e-6))


def _softplus(xp: Any, f: Array) -> Array:
    return xp.maximum(f, xp.zeros_like(f)) + xp.log1p(xp.exp(-xp.abs(f)))


def _softmax(xp: Any, f: Array) -> Array:
    e = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _logsumexp(xp: Any, f: Array) -> Array:
    top = xp.max(f, axis=-1, keepdims=True)
    return xp.log(xp.sum(xp.exp(f - top), axis=-1)) + top[..., 0]
