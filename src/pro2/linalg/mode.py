"""The one Newton: mode of a logistic or softmax model whose coefficients have a Gaussian prior.

    minimise over B   sum_i c_i loss(o_i + phi_i B, y_i) + (1/2) sum_k prior_k ||B_k||^2

for many problems at once. All problems of a batch share rows: they differ in offsets o (prior means) and in the
precision of the prior. `pro2.linalg.rows` turns rows into coordinates phi that the weights c make orthogonal, from
whichever side is smaller, rows or features; there the curvature of a typical row makes the Hessian diagonal. Newton
steps are solved by conjugate gradients with that diagonal as preconditioner, so an iteration is two matrix products
for all problems and all classes together, and nothing is ever factorised again. Only where one logit has few
coordinates is a step one factorisation for each problem: products that small cost more in calls than in arithmetic.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from pro2.linalg import losses
from pro2.linalg.moments import Array, host
from pro2.linalg.rows import Rows

MOST_STEPS = 100
MOST_INNER = 200  # conjugate gradients per Newton step; a truncated step is still a descent
REACH = 4.0  # scores a step may move by, beside what they are: their curvature falls by e with each
ROUGH = 0.3  # what a Newton step may leave of the gradient while the residual is above FAR; nearer it must leave less
FAR = 1e-4
SLOW = 4  # one in so many problems of a batch may be slower than the others
DIRECT = 24  # coordinates of one logit up to which a step is factorised,
DIRECT_NUMBERS = 1 << 21  # and rows times coordinates of all problems: each multiplies its own curvatures in;
DIRECT_OFFSET = 1e4  # and how far scores may begin from zero
DAMP = 1e-3  # times the squared residual: curvature of each row besides its own, where rows are too sure to have any
JITTER = 1e-14  # of a Hessian whose coordinates have unit size: rows that are sure of their labels leave none of it


def is_direct(n_rows: int, n_coordinates: int, n_problems: int, n_scores: int) -> bool:
    """Whether a Newton step is one factorisation for each problem on the same rows."""
    small = n_rows * n_coordinates * n_problems <= DIRECT_NUMBERS
    return n_scores == 1 and n_coordinates <= DIRECT and small


class Mode(NamedTuple):
    """Solutions of a batch: J problems that share rows, K' scores per row.

    Attributes
    ----------
    B : array (..., r, J, K')
        Coordinates; `Rows.coefficients` turns them into coefficients.
    scores, P : arrays (..., M, J, K')
        Scores of the rows, offsets included, and their probabilities.
    residual : array (..., J)
        Largest entry of the gradient, each relative to the most it can be.
    converged : array (..., J)
    n_iter : int
    """

    B: Array
    scores: Array
    P: Array
    residual: Array
    converged: Array
    n_iter: int


def find_mode(
    rows: Rows, Y: Array, offset: Array, precision: Array, *, tol: float, max_iter: int = MOST_STEPS,
    single: bool = False,
) -> Mode:  # fmt: skip
    """Solve J problems on the same rows.

    Parameters
    ----------
    rows : Rows
    Y : array (..., M, K')
        Targets, see `pro2.linalg.losses`.
    offset : array (..., M, J, K')
        Prior mean of the scores.
    precision : array (..., J)
        Of the prior on every coordinate but the free one.
    tol : float
        On `Mode.residual`.
    single : bool
        Compute steps in float32, twice as fast; gradients are float64, so that rounding of a step costs another one at
        most. Only for rows of about unit length: squares must not overflow.
    """
    problem = _Problem.of(rows, Y, offset, precision, tol, single)
    at = problem.start(rows.free)
    worst = array_namespace(at.value).full_like(at.value, float("inf"))
    at, residual, n_iter = _descend(problem, at, at.value == at.value, worst, 0, max_iter)
    return Mode(at.B, at.F, at.P, residual, residual <= tol, n_iter)


def _descend(
    problem: _Problem, at: _Point, live: Array, worst: Array, n_iter: int, max_iter: int
) -> tuple[_Point, Array, int]:
    """Newton steps until no problem is live; those that are done are put aside, for every column costs the same."""
    xp = problem.xp
    while True:
        gradient, residual = problem.gradient(at)
        live = live & (residual > problem.tol)
        if n_iter == max_iter or not bool(xp.any(live)):
            return at, residual, n_iter
        keep = _unsolved(live)
        if 4 * len(keep) <= 3 * live.shape[-1]:
            some = xp.asarray(keep, device=device(live))
            live, worst = xp.take(live, some, axis=-1), xp.take(worst, some, axis=-1)
            part, part_residual, n_iter = _descend(problem.take(some), at.take(some), live, worst, n_iter, max_iter)
            return at.put(part, keep), _put(residual, part_residual, keep, -1), n_iter
        new = problem.line_search(at, *problem.newton_step(at, gradient, residual, live), live)
        # rounding allows no further descent: neither the objective nor the gradient falls any more
        stuck = (new.value >= at.value - _rounding(at.value)) & (residual >= 0.5 * worst)
        live, worst, at, n_iter = live & ~stuck, xp.minimum(worst, residual), new, n_iter + 1


def _unsolved(live: Array) -> np.ndarray:
    """Numbers of the problems (last axis) of which any is live."""
    return np.flatnonzero(host(live).reshape(-1, live.shape[-1]).any(axis=0))


def _put(whole: Array, part: Array, at: np.ndarray, axis: int) -> Array:
    """`whole` with `part` in the places `at` along an axis."""
    xp = array_namespace(whole)
    n = whole.shape[axis]
    order = np.arange(n)
    order[at] = n + np.arange(len(at))
    return xp.take(xp.concat([whole, part], axis=axis), xp.asarray(order, device=device(whole)), axis=axis)


class _Point(NamedTuple):
    """A point of all problems: coordinates, scores, probabilities, and objective (..., J)."""

    B: Array
    F: Array
    P: Array
    value: Array

    def take(self, some: Array) -> _Point:
        xp = array_namespace(self.B)
        B, F, P = (xp.take(v, some, axis=-2) for v in self[:3])
        return _Point(B, F, P, xp.take(self.value, some, axis=-1))

    def put(self, part: _Point, at: np.ndarray) -> _Point:
        B, F, P = (_put(a, b, at, -2) for a, b in zip(self[:3], part[:3]))
        return _Point(B, F, P, _put(self.value, part.value, at, -1))


class _Problem:
    """Objective, gradient and Newton step of a batch."""

    def __init__(
        self, phi: Array, c: Array, Y: Array, energy: Array, offset: Array, prior: Array, tol: float, rough: Array
    ):  # fmt: skip
        self.xp = xp = array_namespace(phi)
        self.phi, self.rough = phi, rough  # the same, of the precision of a step
        self.c, self.Y, self.energy = c, Y, energy
        self.offset, self.prior, self.tol = offset, prior, tol
        self.total = xp.sum(c[..., 0], axis=-2)
        # the most that an entry of the gradient can be; a coordinate without energy has none
        bound = xp.sum(c[..., 0] * xp.abs(phi), axis=-2)
        self.bound = xp.where(bound > 0, bound, xp.ones_like(bound))[..., None, None]

    @classmethod
    def of(cls, rows: Rows, Y: Array, offset: Array, precision: Array, tol: float, single: bool) -> _Problem:
        prior = (1.0 - rows.free)[:, None] * precision[..., None, :]  # (..., r, J)
        c, energy = rows.weight[..., None, None], rows.energy[..., None]
        rough = array_namespace(c).astype(rows.phi, array_namespace(c).float32) if single else rows.phi
        return cls(rows.phi, c, Y[..., None, :], energy, offset, prior, tol, rough)

    def take(self, some: Array) -> _Problem:
        """Some of the J problems."""
        offset, prior = self.xp.take(self.offset, some, axis=-2), self.xp.take(self.prior, some, axis=-1)
        return _Problem(self.phi, self.c, self.Y, self.energy, offset, prior, self.tol, self.rough)

    def start(self, free: Array) -> _Point:
        """Zero, but for a free intercept, which takes the mean offset away: far out the loss has no curvature."""
        xp = self.xp
        r, lead = self.phi.shape[-1], (self.total[..., None, None] + 0.0 * self.offset[..., :1, :, :]).shape
        B = xp.zeros((*lead[:-3], r, *lead[-2:]), dtype=self.phi.dtype, device=device(self.phi))
        F = self.offset + xp.zeros((*lead[:-3], 1, 1, 1), dtype=B.dtype, device=device(B))
        level = xp.sum(self.c * F, axis=-3, keepdims=True) / self.total[..., None, None]
        return self._at(B - free[:, None, None] * level, F - xp.max(free) * level)

    def _at(self, B: Array, F: Array) -> _Point:
        xp = self.xp
        loss, P = losses.evaluate(F, self.Y)
        value = xp.sum(self.c[..., 0] * loss, axis=-2)
        return _Point(B, F, P, value + 0.5 * _dot(xp, self.prior[..., None] * B, B))

    def gradient(self, at: _Point) -> tuple[Array, Array]:
        """The gradient (..., r, J, K') and its largest relative entry (..., J)."""
        xp = self.xp
        gradient = _down(self.phi, self.c * (at.P - self.Y)) + self.prior[..., None] * at.B
        return gradient, _largest(xp, gradient / self.bound)

    def newton_step(self, at: _Point, gradient: Array, residual: Array, live: Array) -> tuple[Array, Array]:
        """x with Hessian x = -gradient, and what it does to the scores."""
        xp = self.xp
        with np.errstate(over="ignore", invalid="ignore"):  # said by what is not finite
            direct = self._direct
            x = self._factorised(at.P, -gradient) if direct else self._iterated(at.P, -gradient, residual, live)
            Fx = _up(self.phi, x)
            total = xp.sum(xp.sum(x, axis=-3), axis=-1) + xp.sum(xp.sum(Fx, axis=-3), axis=-1)
        # without curvature a step has no end: such a problem stays where it is, and is not converged
        ends = xp.isfinite(total)[..., None, :, None]
        return xp.where(ends, x, xp.zeros_like(x)), xp.where(ends, Fx, xp.zeros_like(Fx))

    def _factorised(self, P: Array, left: Array) -> Array:
        """x with Hessian x = left, of one logit."""
        xp, (unit, phi, prior) = self.xp, self._scaled
        h = xp.matrix_transpose((self.c * P * (1.0 - P))[..., 0])[..., None]  # (..., J, M, 1)
        H = xp.matrix_transpose(phi) @ (h * phi) + prior
        x = xp.linalg.solve(H, (unit * xp.matrix_transpose(left[..., 0]))[..., None])[..., 0]
        return xp.matrix_transpose(unit * x)[..., None]

    @cached_property
    def _direct(self) -> bool:
        """Whether to factorise: not where offsets are so large that a full step leads to where no curvature is left."""
        M, r = self.phi.shape[-2:]
        few = is_direct(M, r, self.prior.shape[-1], self.Y.shape[-1])
        return few and bool(self.xp.all(self.xp.abs(self.offset) <= DIRECT_OFFSET))

    @cached_property
    def _scaled(self) -> tuple[Array, Array, Array]:
        """Units (..., 1, r) that make coordinates about equally large, so that a Hessian keeps the digits of each.

        And in these units the coordinates (..., 1, M, r) and the Hessian of the prior (..., J, r, r).
        """
        xp, phi = self.xp, self.phi
        size = self.energy[..., 0] + xp.mean(self.prior, axis=-1)
        unit = (1.0 / xp.sqrt(xp.where(size > 0, size, xp.ones_like(size))))[..., None, :]
        prior = xp.matrix_transpose(self.prior) * unit**2 + JITTER
        eye = xp.eye(phi.shape[-1], dtype=phi.dtype, device=device(phi))
        return unit, (unit * phi)[..., None, :, :], prior[..., None] * eye

    def _diagonal(self, typical: Array) -> Array:
        """The Hessian if all rows had the same curvature (..., J)."""
        xp = self.xp
        D = (self.prior + typical[..., None, :] * self.energy)[..., None]
        return xp.where(D > 0, D, xp.ones_like(D))

    def _enough(self, residual: Array) -> Array:
        """What a step may leave: far from the mode the Hessian is soon another, beyond the tolerance all is wasted."""
        xp = self.xp
        worth = 0.3 * self.tol / xp.maximum(residual, xp.full_like(residual, self.tol))
        return xp.maximum(worth, ROUGH * xp.minimum(residual / FAR, xp.ones_like(residual)))

    def _iterated(self, P: Array, left: Array, residual: Array, live: Array) -> Array:
        """The same up to what is enough, by conjugate gradients in the precision of `rough`."""
        xp, phi = self.xp, self.rough
        typical = xp.sum(self.c[..., 0] * losses.mean_curvature(P), axis=-2) / self.total
        more = DAMP * residual**2
        sure = bool(xp.any(live & (typical < more)))
        D, more = self._diagonal(typical + more if sure else typical), more[..., None, :, None]
        P, left, inverse, c, prior, more, enough = (
            xp.astype(v, phi.dtype, copy=False)
            for v in (P, left, 1.0 / D, self.c, self.prior[..., None], more, self._enough(residual))
        )
        z = left * inverse
        d, now = z, _dot(xp, left, z)
        goal = enough**2 * now
        x = xp.zeros_like(d)
        # where precision is not wanted, few shall not make many wait: a step that is cut short descends, too
        slow = _count(xp, live) // SLOW if self.tol > FAR else 0
        for _ in range(MOST_INNER):
            Fd = _up(phi, d)
            bent = losses.curvature_times(P, Fd)
            Hd = prior * d + _down(phi, c * (bent + more * Fd if sure else bent))
            # what has reached its goal rests: beyond it there is rounding only, which a flat direction blows up
            a = xp.where(now > goal, _ratio(xp, now, _dot(xp, d, Hd)), xp.zeros_like(now))[..., None, :, None]
            x, left = x + a * d, left - a * Hd
            z = left * inverse
            then, now = now, _dot(xp, left, z)
            if _count(xp, live & (now > goal)) <= slow:
                break
            d = z + _ratio(xp, now, then)[..., None, :, None] * d
        return xp.astype(x, self.phi.dtype, copy=False)

    def line_search(self, at: _Point, step: Array, step_scores: Array, live: Array) -> _Point:
        """Halve each problem's step until its objective does not rise; problems that are done stay."""
        xp = self.xp
        # curvature is known near here only: beyond, where it has died, a step would end where no other can begin
        near, far = REACH + _largest(xp, at.F), _largest(xp, step_scores)
        t = xp.astype(live, at.value.dtype) * (near / xp.maximum(far, near))
        ceiling = at.value + _rounding(at.value)
        for _ in range(40):
            by = t[..., None, :, None]
            new = self._at(at.B + by * step, at.F + by * step_scores)
            rises = ~(new.value <= ceiling) & live
            if not bool(xp.any(rises)):
                return new
            t = xp.where(rises, 0.5 * t, t)
        by = xp.where(rises, xp.zeros_like(t), t)[..., None, :, None]
        return self._at(at.B + by * step, at.F + by * step_scores)


def _up(phi: Array, B: Array) -> Array:
    """phi B: coordinates (..., r, J, K') to scores (..., M, J, K')."""
    xp = array_namespace(B)
    flat = phi @ xp.reshape(B, (*B.shape[:-2], -1))
    return xp.reshape(flat, (*flat.shape[:-1], *B.shape[-2:]))


def _down(phi: Array, G: Array) -> Array:
    """phi' G: rows (..., M, J, K') to coordinates (..., r, J, K')."""
    xp = array_namespace(G)
    flat = xp.matrix_transpose(phi) @ xp.reshape(G, (*G.shape[:-2], -1))
    return xp.reshape(flat, (*flat.shape[:-1], *G.shape[-2:]))


def _dot(xp: Any, a: Array, b: Array) -> Array:
    """Inner products over coordinates and classes, (..., J); the long axis first, which is several times faster."""
    return xp.sum(xp.sum(a * b, axis=-3), axis=-1)


def _count(xp: Any, which: Array) -> int:
    return int(xp.sum(xp.astype(which, xp.int64)))


def _largest(xp: Any, a: Array) -> Array:
    """Largest absolute entry over rows or coordinates, and classes, (..., J)."""
    return xp.max(xp.max(xp.abs(a), axis=-3), axis=-1)


def _ratio(xp: Any, a: Array, b: Array) -> Array:
    """a / b where b > 0, else 0."""
    return xp.where(b > 0, a / xp.where(b > 0, b, xp.ones_like(b)), xp.zeros_like(a))


def _rounding(value: Array) -> Array:
    xp = array_namespace(value)
    return 16 * float(xp.finfo(value.dtype).eps) * (xp.abs(value) + 1e-3)
