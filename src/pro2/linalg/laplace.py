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


class Dense:
    """Prior covariance of the scores as a matrix K (..., M, M)."""

    def __init__(self, K: Array):
        self.xp, self.K = array_namespace(K), K

    def classes_first(self) -> Dense:
        """The same for problems with a class axis before the rows."""
        return Dense(self.K[..., None, :, :])

    def times(self, a: Array) -> Array:
        """K a for vectors a (..., M)."""
        return (self.K @ a[..., None])[..., 0]

    def shrink(self, h: Array, right: Array) -> Array:
        """(I + h K)^-1 right, through the symmetric I + sqrt(h) K sqrt(h)."""
        S = self.xp.sqrt(h)
        return right - S * self.xp.linalg.solve(self._system(S), (S * self.times(right))[..., None])[..., 0]

    def posterior_variance(self, h: Array) -> Array:
        """Diagonal of (K^-1 + h)^-1."""
        xp, S = self.xp, self.xp.sqrt(h)
        KS = self.K * S[..., None, :]
        inner = xp.linalg.solve(self._system(S), xp.matrix_transpose(KS))
        return xp.linalg.diagonal(self.K) - xp.sum(KS * xp.matrix_transpose(inner), axis=-1)

    def _system(self, S: Array) -> Array:
        eye = self.xp.eye(self.K.shape[-1], dtype=self.K.dtype, device=device(self.K))
        return S[..., :, None] * self.K * S[..., None, :] + eye


class LowRank:
    """K = F F' with fewer features than rows, F (M, p): the same answers at the cost of p x p systems (Woodbury)."""

    def __init__(self, F: Array):
        self.xp, self.F = array_namespace(F), F

    def classes_first(self) -> LowRank:
        return self

    def times(self, a: Array) -> Array:
        return (a @ self.F) @ self.xp.matrix_transpose(self.F)

    def shrink(self, h: Array, right: Array) -> Array:
        """(I + h F F')^-1 right = right - h F (I + F'hF)^-1 F' right."""
        inner = self.xp.linalg.solve(self._system(h), (right @ self.F)[..., None])[..., 0]
        return right - h * (inner @ self.xp.matrix_transpose(self.F))

    def posterior_variance(self, h: Array) -> Array:
        xp = self.xp
        inner = xp.linalg.solve(self._system(h), xp.matrix_transpose(self.F) + 0.0 * h[..., None, :1])
        return xp.sum(self.F * xp.matrix_transpose(inner), axis=-1)

    def _system(self, h: Array) -> Array:
        xp, F = self.xp, self.F
        return xp.matrix_transpose(F * h[..., None]) @ F + xp.eye(F.shape[1], dtype=F.dtype, device=device(F))


class Mode(NamedTuple):
    """Two classes: all arrays (..., M). More: (..., M, K)."""

    alpha: Array  # dual weights: scores at new rows are o + k(new, rows) alpha
    scores: Array
    loo_scores: Array  # each row's scores had it been left out


def laplace_mode(
    K: Array | Dense | LowRank,
    offset: Array,
    y: Array,
    weight: Array,
    n_classes: int,
    *,
    tol: float = 1e-6,
    max_iter: int = 60,
) -> Mode:
    """Solve the batch: K (..., M, M) or a `LowRank`, offset (..., M) or (..., M, n_classes), codes y (M,), weight (M,).

    A row of weight w counts as w rows; leave-one-out takes out one of them. For more than two classes every class has
    prior covariance K / 2, so that the difference of two classes has K as in the two-class case.
    """
    xp = array_namespace(offset)
    prior = K if isinstance(K, Dense | LowRank) else Dense(K)
    if n_classes == 2:
        problem: _Binary | _Softmax = _Binary(xp, prior, offset, xp.astype(y, offset.dtype), weight)
    else:
        onehot = xp.astype(y[:, None] == xp.arange(n_classes, device=device(y))[None, :], offset.dtype)
        problem = _Softmax(xp, prior, offset, onehot, weight[:, None])
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
        step = problem.step(alpha, slope, curvature)
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

    def __init__(self, xp: Any, prior: Dense | LowRank, offset: Array, y: Array, c: Array):
        self.xp, self.prior, self.y, self.c, self.offset = xp, prior, y, c, offset
        self.largest = xp.where(c > 0, c, xp.ones_like(c))

    def lift(self, t: Array) -> Array:
        return t[..., None]

    def reduce_max(self, r: Array) -> Array:
        return self.xp.max(r, axis=-1)

    def covariance_times(self, a: Array) -> Array:
        return self.prior.times(a)

    def value(self, alpha: Array, f: Array) -> Array:
        fit = self.xp.sum(self.c * (_softplus(self.xp, f) - self.y * f), axis=-1)
        return fit + 0.5 * self.xp.sum(alpha * (f - self.offset), axis=-1)

    def derivatives(self, f: Array) -> tuple[Array, Array]:
        p = sigmoid(self.xp, f)
        return self.c * (self.y - p), self.c * p * (1.0 - p)

    def step(self, alpha: Array, slope: Array, h: Array) -> Array:
        return self.prior.shrink(h, slope - alpha)

    def leave_out(self, f: Array) -> Array:
        p = sigmoid(self.xp, f)
        h = p * (1.0 - p)
        return f + _removed(self.xp, self.prior, self.c * h, h, p - self.y)


class _Softmax:
    """K scores a row, each class with half the prior covariance: one quasi-Newton system per class."""

    def __init__(self, xp: Any, prior: Dense | LowRank, offset: Array, Y: Array, c: Array):
        self.xp, self.Y, self.c, self.offset = xp, Y, c, offset
        self.prior = _halved(prior).classes_first()
        self.largest = xp.where(c > 0, c, xp.ones_like(c))

    def lift(self, t: Array) -> Array:
        return t[..., None, None]

    def reduce_max(self, r: Array) -> Array:
        return self.xp.max(self.xp.max(r, axis=-1), axis=-1)

    def covariance_times(self, a: Array) -> Array:
        return self._by_class(self.prior.times, a)

    def _by_class(self, function: Any, *arrays: Array) -> Array:
        """Apply to arrays (..., M, K) as (..., K, M)."""
        turn = self.xp.matrix_transpose
        return turn(function(*(turn(a) for a in arrays)))

    def value(self, alpha: Array, f: Array) -> Array:
        xp = self.xp
        fit = xp.sum(self.c[:, 0] * (_logsumexp(xp, f) - xp.sum(self.Y * f, axis=-1)), axis=-1)
        return fit + 0.5 * xp.sum(xp.sum(alpha * (f - self.offset), axis=-1), axis=-1)

    def derivatives(self, f: Array) -> tuple[Array, Array]:
        P = _softmax(self.xp, f)
        # diag(p) - pp' lies between about one and two times diag(p (1 - p)): the middle converges fastest
        return self.c * (self.Y - P), 1.5 * self.c * P * (1.0 - P)

    def step(self, alpha: Array, slope: Array, h: Array) -> Array:
        step = self._by_class(self.prior.shrink, h, slope - alpha)
        return step - self.xp.mean(step, axis=-1, keepdims=True)  # the solution sums to zero over classes

    def leave_out(self, f: Array) -> Array:
        n = f.shape[-1]
        P = _softmax(self.xp, f)
        # exact for two classes, and for any number of equally likely ones
        h = P * (1.0 - P) * (n / (n - 1.0))
        return f + self._by_class(lambda *v: _removed(self.xp, self.prior, *v), self.c * h, h, P - self.Y)


def _halved(prior: Dense | LowRank) -> Dense | LowRank:
    return Dense(0.5 * prior.K) if isinstance(prior, Dense) else LowRank(0.5**0.5 * prior.F)


def _removed(xp: Any, prior: Dense | LowRank, H: Array, h: Array, g: Array) -> Array:
    """What leaving one unit of a row out adds to its score: V g / (1 - h V), V = posterior variance of the score."""
    V = prior.posterior_variance(H)
    return V * g / xp.maximum(1.0 - h * V, xp.full_like(V, 1e-6))


def _softplus(xp: Any, f: Array) -> Array:
    return xp.maximum(f, xp.zeros_like(f)) + xp.log1p(xp.exp(-xp.abs(f)))


def _softmax(xp: Any, f: Array) -> Array:
    e = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _logsumexp(xp: Any, f: Array) -> Array:
    top = xp.max(f, axis=-1, keepdims=True)
    return xp.log(xp.sum(xp.exp(f - top), axis=-1)) + top[..., 0]
