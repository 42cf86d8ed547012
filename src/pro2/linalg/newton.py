"""Safeguarded Newton for batches of two-class problems, in feature space or in row space, whichever is smaller.

    minimise  sum_i c_i logloss(o_i + s_i + b, y_i) + (l2 / 2) ||v||^2,   s = Z v,  weights c of sum one, b free

Targets y may be soft (between 0 and 1); o is an offset (the scores of a prior mean).
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

from array_api_compat import array_namespace, device

from pro2.linalg import fused, lapack, paths
from pro2.linalg.batches import Finished, host_pieces, in_threads, pick
from pro2.linalg.moments import Array


class Primal:
    """theta = v (..., p): scores Z theta."""

    def __init__(self, Z: Array, c: Array, l2: Array):
        self.xp = array_namespace(Z)
        self.Z, self.l2, self.c = Z, l2, c
        self.size = Z.shape[-1]

    @cached_property
    def bound(self) -> Array:
        """The most a gradient entry can be; a feature that is zero on all rows can have none."""
        bound = (self.c[..., None, :] @ self.xp.abs(self.Z))[..., 0, :]
        return self.xp.where(bound > 0, bound, self.xp.ones_like(bound))

    def at(self, part: Any, ndim: int) -> Primal:
        """The same for a part of the leading axis; ndim is the number of batch axes."""
        return Primal(pick(self.Z, part, ndim + 2), pick(self.c, part, ndim + 1), pick(self.l2, part, ndim))

    def points(self, where: tuple[Array, ...], shape: tuple[int, ...]) -> Primal:
        """The problems at `where` of a batch of that shape, on one axis."""
        data = ((self.Z, 2), (self.c, 1), (self.l2, 0))
        return Primal(*(_points(self.xp, a, where, shape, k) for a, k in data))

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
        if self.Z.ndim == 2 and h.ndim == 1 and lapack.serves(self.Z):  # one large problem: half the operations
            return lapack.gram(self.Z * xp.sqrt(h)[:, None]) + self.l2 * eye
        return xp.matrix_transpose(self.Z * h[..., None]) @ self.Z + self.l2[..., None, None] * eye

    def step(self, theta: Array, g: Array, h: Array) -> tuple[Array, Array]:
        """Solve [[Z'hZ + l2 I, Z'h], [h'Z, sum h]] [dv, db] = -[gradient, sum g], eliminating dv."""
        xp = self.xp
        border = (h[..., None, :] @ self.Z)[..., 0, :]
        both = solve_definite(xp, self.hessian(h), xp.stack([-self.gradient(theta, g), border], axis=-1))
        x, t = both[..., 0], both[..., 1]
        schur = xp.sum(h, axis=-1) - xp.sum(border * t, axis=-1)
        db = ratio(xp, -xp.sum(g, axis=-1) - xp.sum(border * x, axis=-1), schur)
        return x - t * db[..., None], db


class Dual:
    """theta = a (..., M) with v = Z'a: scores K a. K is never inverted, so duplicate rows are harmless."""

    def __init__(self, K: Array, c: Array, l2: Array):
        self.xp = array_namespace(K)
        self.K, self.l2, self.c = K, l2, c
        self.size = K.shape[-1]

    @cached_property
    def bound(self) -> Array:
        """The most a slope can be; an absent row has none."""
        return self.xp.where(self.c > 0, self.c, self.xp.ones_like(self.c))

    def at(self, part: Any, ndim: int) -> Dual:
        """The same for a part of the leading axis; ndim is the number of batch axes."""
        return Dual(pick(self.K, part, ndim + 2), pick(self.c, part, ndim + 1), pick(self.l2, part, ndim))

    def points(self, where: tuple[Array, ...], shape: tuple[int, ...]) -> Dual:
        """The problems at `where` of a batch of that shape, on one axis."""
        data = ((self.K, 2), (self.c, 1), (self.l2, 0))
        return Dual(*(_points(self.xp, a, where, shape, k) for a, k in data))

    def scores(self, theta: Array) -> Array:
        return (self.K @ theta[..., None])[..., 0]

    def penalty(self, theta: Array, s: Array) -> Array:
        return 0.5 * self.l2 * self.xp.sum(theta * s, axis=-1)

    def residual(self, theta: Array, g: Array) -> Array:
        # |l2 a + g| <= tol c implies |gradient_j| <= tol sum_i c_i |z_ij|: the primal's measure, from above
        return self.xp.max(self.xp.abs(self.l2[..., None] * theta + g) / self.bound, axis=-1)

    def step(self, theta: Array, g: Array, h: Array) -> tuple[Array, Array]:
        """Solve (l2 I + h K) da + h db = -(l2 a + g) with the rows of a + da summing to zero.

        The inverse goes through l2 I + S K S, S = sqrt(h) (Rasmussen & Williams 2006, ch. 3): symmetric and bounded
        below by l2 even where weights h vanish.
        """
        xp, l2 = self.xp, self.l2[..., None]
        S = xp.sqrt(h)
        rhs = xp.stack([-(l2 * theta + g), h], axis=-1)
        inner = solve_shifted(xp, self.K, S, self.l2, S[..., None] * (self.K @ rhs))
        both = (rhs - S[..., None] * inner) / l2[..., None]
        u, t = both[..., 0], both[..., 1]
        db = ratio(xp, xp.sum(theta + u, axis=-1), xp.sum(t, axis=-1))
        return u - t * db[..., None], db


def newton(
    space: Primal | Dual, y: Array, c: Array, offset: Array, shape: tuple[int, ...], tol: float, max_iter: int
) -> tuple[Array, Array, Array, int]:
    """Minimise over (theta, b) for every problem of the batch; each has its own step length and stops on its own.

    Returns theta (*shape, n), b (*shape), kkt (*shape) and the number of iterations. Large batches on the host are
    solved in pieces that fit the cache, on as many threads as BLAS may use; where `pro2.linalg.fused` or
    `pro2.linalg.paths` has a kernel for them, that solves them first and only what it leaves open comes here.
    """
    args = (space, y, c, offset, shape, tol, max_iter)
    fit = fused.newton(*args) if isinstance(space, Primal) else paths.newton(*args)
    return _in_pieces(*args) if fit is None else _finish(fit, *args)


def _finish(fit: tuple[Array, Array, Array, int], space: Any, y: Array, c: Array, offset: Array, shape: Any, tol: float,
            max_iter: int) -> tuple[Array, Array, Array, int]:  # fmt: skip
    """Problems that a kernel did not bring below the tolerance, once more by the plain path; the better one stays."""
    xp, (theta, b, kkt, n_iter) = space.xp, fit
    open_ = ~(kkt <= tol)
    if not bool(xp.any(open_)):
        return fit
    if not shape:
        return _in_pieces(space, y, c, offset, shape, tol, max_iter)
    where = xp.nonzero(open_)
    y, c, offset = (_points(xp, a, where, shape, 1) for a in (y, c, offset))
    again = _in_pieces(space.points(where, shape), y, c, offset, (where[0].shape[0],), tol, max_iter)
    better = ~(again[2] >= kkt[where])
    for old, new in zip((theta, b, kkt), again):
        old[where] = xp.where(better[:, None] if new.ndim > 1 else better, new, old[where])
    return theta, b, kkt, max(n_iter, again[3])


def _points(xp: Any, a: Array, where: tuple[Array, ...], shape: tuple[int, ...], k: int) -> Array:
    """The problems at `where` of a batch of that shape; `a` has `k` axes of its own behind those of the batch."""
    return xp.broadcast_to(a, (*shape, *a.shape[a.ndim - k :]))[where]


def _in_pieces(
    space: Primal | Dual, y: Array, c: Array, offset: Array, shape: tuple[int, ...], tol: float, max_iter: int
) -> tuple[Array, Array, Array, int]:
    solve: Any = partial(_newton, tol=tol, max_iter=max_iter)
    pieces = host_pieces(c, shape, space.size * c.shape[-1])
    if len(pieces) < 2:
        return solve(space, y, c, offset, shape)
    n = len(shape)

    def solve_piece(part: slice) -> tuple[Array, Array, Array, int]:
        here = [pick(a, part, n + 1) for a in (y, c, offset)]
        return solve(space.at(part, n), *here, shape=(part.stop - part.start, *shape[1:]))

    theta, b, kkt, n_iter = zip(*in_threads(solve_piece, pieces))
    xp = space.xp
    return xp.concat(theta), xp.concat(b), xp.concat(kkt), max(n_iter)


def _newton(
    space: Primal | Dual, y: Array, c: Array, offset: Array, shape: tuple[int, ...], *, tol: float, max_iter: int
) -> tuple[Array, Array, Array, int]:
    xp, zero, n = space.xp, xp_zeros(c), len(shape)
    theta, b, kkt, s = zero(*shape, space.size), zero(*shape), zero(*shape), zero(*shape, c.shape[-1])
    value, p = evaluate(xp, offset + s, y, c)
    live, worst = value == value, xp.full_like(kkt, float("inf"))
    finished, n_iter = Finished(xp, c, shape), 0
    for n_iter in range(1, max_iter + 1):
        g = c * (p - y)
        kkt = xp.maximum(space.residual(theta, g), xp.abs(xp.sum(g, axis=-1)))
        live = live & (kkt > tol)
        go_on, stay = finished.leave(live, (theta, b, kkt))
        if not go_on:
            break
        if stay is not None:
            space = space.at(stay, n)
            y, c, offset, g, p, theta, s = (pick(a, stay, n + 1) for a in (y, c, offset, g, p, theta, s))
            b, kkt, value, live, worst = (pick(a, stay, n) for a in (b, kkt, value, live, worst))
        dtheta, db = space.step(theta, g, c * p * (1.0 - p))
        step = (dtheta, space.scores(dtheta), db)
        t, new, p = _line_search(space, (theta, s, b), step, value, live, y, c, offset)
        theta, s, b = theta + t[..., None] * dtheta, s + t[..., None] * step[1], b + t * db
        # rounding allows no further descent: neither the objective nor the gradient falls any more
        stuck = (new >= value - rounding(xp, value)) & (kkt >= 0.5 * worst)
        live, worst, value = live & ~stuck, xp.minimum(worst, kkt), new
    theta, b, kkt = finished.all((theta, b, kkt))
    return theta, b, kkt, n_iter


def _line_search(
    space: Primal | Dual, at: tuple[Array, ...], step: tuple[Array, ...], value: Array, live: Array, y: Array,
    c: Array, offset: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Halve each problem's step until its objective does not rise; finished problems get step 0.

    Returns the step lengths, the objectives and the probabilities there.
    """
    xp = space.xp
    (theta, s, b), (dtheta, ds, db) = at, step
    t = xp.where(live, xp.ones_like(value), xp.zeros_like(value))
    ceiling = value + rounding(xp, value)
    for _ in range(40):
        moved = s + t[..., None] * ds
        new, p = evaluate(xp, offset + moved + (b + t * db)[..., None], y, c)
        new = new + space.penalty(theta + t[..., None] * dtheta, moved)
        rises = ~(new <= ceiling) & live
        if not bool(xp.any(rises)):
            return t, new, p
        t = xp.where(rises, 0.5 * t, t)
    t = xp.where(rises, xp.zeros_like(t), t)
    return (
        t,
        xp.where(rises, value, new),
        evaluate(xp, offset + s + t[..., None] * ds + (b + t * db)[..., None], y, c)[1],
    )


def evaluate(xp: Any, f: Array, y: Array, c: Array) -> tuple[Array, Array]:
    """Log-loss (see `loss`) and probabilities of scores f, from one exponential."""
    e = xp.exp(-xp.abs(f))
    soft = xp.maximum(f, xp.zeros_like(f)) + xp.log1p(e)
    high = 1.0 / (1.0 + e)
    return xp.sum(c * (soft - y * f), axis=-1), xp.where(f >= 0, high, e * high)


def solve_definite(xp: Any, A: Array, rhs: Array) -> Array:
    """A^-1 rhs for symmetric positive definite A (..., n, n), by Cholesky on the host where it pays."""
    if A.shape[-1] >= lapack.SMALLEST_CHOLESKY and lapack.serves(A):
        solution = lapack.spd_solve(A, rhs)
        if solution is not None:
            return solution
    return xp.linalg.solve(A, rhs)


def solve_shifted(xp: Any, K: Array, S: Array, l2: Array, rhs: Array) -> Array:
    """(l2 I + S K S)^-1 rhs with S (..., M) the diagonal, by Cholesky on the host where it pays."""
    if K.shape[-1] >= lapack.SMALLEST_CHOLESKY and lapack.serves(rhs):
        solution = lapack.shifted_solve(K, S, l2, rhs)
        if solution is not None:
            return solution
    eye = xp.eye(K.shape[-1], dtype=K.dtype, device=device(K))
    return xp.linalg.solve(S[..., :, None] * K * S[..., None, :] + l2[..., None, None] * eye, rhs)


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
