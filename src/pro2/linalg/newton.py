"""Safeguarded Newton for batches of two-class problems, in feature space or in row space, whichever is smaller.

    minimise  sum_i c_i logloss(o_i + s_i + b, y_i) + (l2 / 2) ||v||^2,   s = Z v,  weights c of sum one, b free

Targets y may be soft (between 0 and 1); o is an offset (the scores of a prior mean).
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from pro2.linalg.moments import Array


class Primal:
    """theta = v (..., p): scores Z theta."""

    def __init__(self, Z: Array, c: Array, l2: Array):
        self.xp = xp = array_namespace(Z)
        self.Z, self.l2 = Z, l2
        # the most a gradient entry can be; a feature that is zero on all rows can have none
        bound = (c[..., None, :] @ xp.abs(Z))[..., 0, :]
        self.bound = xp.where(bound > 0, bound, xp.ones_like(bound))
        self.size = Z.shape[-1]

    def scores(self, theta: Array) -> Array:
        return (self.Z @ theta[..., None])[..., 0]

    def penalty(self, theta: Array, s: Array) -> Array:
        return 0.5 * self.l2 * self.xp.sum(theta * theta, axis=-1)

    def gradient(self, theta: Array, g: Array) -> Array:
        return (g[..., None, :] @ self.Z)[..., 0, :] + self.l2[..., None] * theta

    def residual(self, theta: Array, g: Array) -> Array:
        return self.xp.max(self.xp.abs(self.gradient(theta, g)) / self.bound, axis=-1)

    def hessian(self, h: Array) -> Array:
        xp = self.xp
        eye = xp.eye(self.size, dtype=h.dtype, device=device(h))
        return xp.matrix_transpose(self.Z * h[..., None]) @ self.Z + self.l2[..., None, None] * eye

    def step(self, theta: Array, g: Array, h: Array) -> tuple[Array, Array]:
        """Solve [[Z'hZ + l2 I, Z'h], [h'Z, sum h]] [dv, db] = -[gradient, sum g], eliminating dv."""
        xp = self.xp
        border = (h[..., None, :] @ self.Z)[..., 0, :]
        both = xp.linalg.solve(self.hessian(h), xp.stack([-self.gradient(theta, g), border], axis=-1))
        x, t = both[..., 0], both[..., 1]
        schur = xp.sum(h, axis=-1) - xp.sum(border * t, axis=-1)
        db = ratio(xp, -xp.sum(g, axis=-1) - xp.sum(border * x, axis=-1), schur)
        return x - t * db[..., None], db


class Dual:
    """theta = a (..., M) with v = Z'a: scores K a. K is never inverted, so duplicate rows are harmless."""

    def __init__(self, K: Array, c: Array, l2: Array):
        self.xp = xp = array_namespace(K)
        self.K, self.l2 = K, l2
        self.c = xp.where(c > 0, c, xp.ones_like(c))
        self.size = K.shape[-1]

    def scores(self, theta: Array) -> Array:
        return (self.K @ theta[..., None])[..., 0]

    def penalty(self, theta: Array, s: Array) -> Array:
        return 0.5 * self.l2 * self.xp.sum(theta * s, axis=-1)

    def residual(self, theta: Array, g: Array) -> Array:
        # |l2 a + g| <= tol c implies |gradient_j| <= tol sum_i c_i |z_ij|: the primal's measure, from above
        return self.xp.max(self.xp.abs(self.l2[..., None] * theta + g) / self.c, axis=-1)

    def step(self, theta: Array, g: Array, h: Array) -> tuple[Array, Array]:
        """Solve (l2 I + h K) da + h db = -(l2 a + g) with the rows of a + da summing to zero.

        The inverse goes through l2 I + S K S, S = sqrt(h) (Rasmussen & Williams 2006, ch. 3): symmetric and bounded
        below by l2 even where weights h vanish.
        """
        xp, l2 = self.xp, self.l2[..., None]
        S = xp.sqrt(h)
        eye = xp.eye(self.size, dtype=h.dtype, device=device(h))
        B = S[..., :, None] * self.K * S[..., None, :] + l2[..., None] * eye
        rhs = xp.stack([-(l2 * theta + g), h], axis=-1)
        inner = xp.linalg.solve(B, S[..., None] * (self.K @ rhs))
        both = (rhs - S[..., None] * inner) / l2[..., None]
        u, t = both[..., 0], both[..., 1]
        db = ratio(xp, xp.sum(theta + u, axis=-1), xp.sum(t, axis=-1))
        return u - t * db[..., None], db


def newton(
    space: Primal | Dual, y: Array, c: Array, offset: Array, shape: tuple[int, ...], tol: float, max_iter: int
) -> tuple[Array, Array, Array, int]:
    """Minimise over (theta, b) for every problem of the batch; each has its own step length and stops on its own.

    Returns theta (*shape, n), b (*shape), kkt (*shape) and the number of iterations.
    """
    xp, zero = space.xp, xp_zeros(c)
    theta, b, kkt = zero(*shape, space.size), zero(*shape), zero(*shape)
    s = zero(*shape, c.shape[-1])
    value = loss(xp, offset + s, y, c)
    live = value == value
    worst = xp.full_like(kkt, float("inf"))
    n_iter = 0
    for n_iter in range(1, max_iter + 1):
        p = sigmoid(xp, offset + s + b[..., None])
        g, h = c * (p - y), c * p * (1.0 - p)
        kkt = xp.maximum(space.residual(theta, g), xp.abs(xp.sum(g, axis=-1)))
        live = live & (kkt > tol)
        if not bool(xp.any(live)):
            break
        dtheta, db = space.step(theta, g, h)
        ds = space.scores(dtheta)
        t, new = _line_search(space, (theta, s, b), (dtheta, ds, db), value, live, y, c, offset)
        theta, s, b = theta + t[..., None] * dtheta, s + t[..., None] * ds, b + t * db
        # rounding allows no further descent: neither the objective nor the gradient falls any more
        stuck = (new >= value - rounding(xp, value)) & (kkt >= 0.5 * worst)
        live, worst, value = live & ~stuck, xp.minimum(worst, kkt), new
    return theta, b, kkt, n_iter


def _line_search(
    space: Primal | Dual, at: tuple[Array, ...], step: tuple[Array, ...], value: Array, live: Array, y: Array,
    c: Array, offset: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Halve each problem's step until its objective does not rise; finished problems get step 0."""
    xp = space.xp
    (theta, s, b), (dtheta, ds, db) = at, step
    t = xp.where(live, xp.ones_like(value), xp.zeros_like(value))
    ceiling = value + rounding(xp, value)
    for _ in range(40):
        f = offset + s + t[..., None] * ds + (b + t * db)[..., None]
        new = loss(xp, f, y, c) + space.penalty(theta + t[..., None] * dtheta, s + t[..., None] * ds)
        rises = ~(new <= ceiling) & live
        if not bool(xp.any(rises)):
            return t, new
        t = xp.where(rises, 0.5 * t, t)
    t = xp.where(rises, xp.zeros_like(t), t)
    return t, xp.where(rises, value, new)


def sigmoid(xp: Any, f: Array) -> Array:
    """1 / (1 + exp(-f)) without overflow."""
    e = xp.exp(-xp.abs(f))
    return xp.where(f >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def loss(xp: Any, f: Array, y: Array, c: Array) -> Array:
    """sum_i c_i (log(1 + exp(f_i)) - y_i f_i), stable for large |f|."""
    soft = xp.maximum(f, xp.zeros_like(f)) + xp.log1p(xp.exp(-xp.abs(f)))
    return xp.sum(c * (soft - y * f), axis=-1)


def ratio(xp: Any, a: Array, b: Array) -> Array:
    """a / b where b > 0, and 0 where every row is saturated (b = 0): the intercept then stays."""
    good = b > 0
    return xp.where(good, a / xp.where(good, b, xp.ones_like(b)), xp.zeros_like(a))


def rounding(xp: Any, value: Array) -> Array:
    return 16 * float(xp.finfo(value.dtype).eps) * (xp.abs(value) + 1e-3)


def xp_zeros(like: Array) -> Any:
    """zeros(*shape) in the namespace, dtype and device of `like`."""
    xp = array_namespace(like)
    return lambda *shape: xp.zeros(shape, dtype=like.dtype, device=device(like))
