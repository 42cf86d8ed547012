"""Exact multinomial logistic regression for batches: Newton with preconditioned conjugate gradients.

    minimise  sum_i c_i (logsumexp_k f_ik - sum_k y_ik f_ik) + (l2 / 2) ||V||^2,   f = o + Z V' + b

V (K, p) has a penalty on every class, so the optimum sums to zero over classes; b (K) is free and kept at sum zero.
The preconditioner is Boehning's bound H <= (1/2) Z'cZ (Boehning 1992), one p x p factor for all classes.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from pro2.linalg.moments import Array
from pro2.linalg.newton import rounding, xp_zeros


def fit_softmax(
    Z: Array, Y: Array, l2: Array, c: Array, offset: Array, shape: tuple[int, ...], tol: float, max_iter: int
) -> tuple[Array, Array, Array, int]:
    """V (*shape, K, p), b (*shape, K), kkt (*shape), iterations; Z (..., M, p), Y and offset (..., M, K)."""
    problem = _Softmax(Z, Y, l2, c, offset)
    xp, zero = problem.xp, xp_zeros(c)
    # theta stacks slopes and intercept: (*shape, K, p + 1)
    theta, kkt = zero(*shape, Y.shape[-1], Z.shape[-1] + 1), zero(*shape)
    value, worst = problem.value(theta), xp.full_like(kkt, float("inf"))
    live = value == value
    n_iter = 0
    for n_iter in range(1, max_iter + 1):
        P = problem.probabilities(theta)
        gradient = problem.gradient(theta, P)
        kkt = xp.max(xp.max(xp.abs(gradient) / problem.bound[..., None, :], axis=-1), axis=-1)
        live = live & (kkt > tol)
        if not bool(xp.any(live)):
            break
        step = problem.newton_step(gradient, P, tol)
        t, new = _line_search(problem, theta, step, value, live)
        theta = theta + t[..., None, None] * step
        stuck = (new >= value - rounding(xp, value)) & (kkt >= 0.5 * worst)
        live, worst, value = live & ~stuck, xp.minimum(worst, kkt), new
    return theta[..., :-1], theta[..., -1], kkt, n_iter


class _Softmax:
    """Value, gradient and Newton step of one batch, with a column of ones for the intercept."""

    def __init__(self, Z: Array, Y: Array, l2: Array, c: Array, offset: Array):
        self.xp = xp = array_namespace(Z)
        self.Z = xp.concat([Z, xp.ones_like(Z[..., :1])], axis=-1)
        self.Y, self.c, self.offset = Y, c, offset
        free = xp.arange(self.Z.shape[-1], device=device(Z)) == Z.shape[-1]
        self.l2 = xp.where(free, xp.zeros_like(l2)[..., None], l2[..., None])  # (..., p + 1), none on the intercept
        bound = (c[..., None, :] @ xp.abs(self.Z))[..., 0, :]
        self.bound = xp.where(bound > 0, bound, xp.ones_like(bound))
        gram = xp.matrix_transpose(self.Z * c[..., None]) @ self.Z
        eye = xp.eye(self.Z.shape[-1], dtype=Z.dtype, device=device(Z))
        self.inverse = xp.linalg.inv(0.5 * gram + self.l2[..., None, :] * eye + 1e-12 * self.scale(gram) * eye)

    def scale(self, gram: Array) -> Array:
        return self.xp.max(self.xp.abs(self.xp.linalg.diagonal(gram)), axis=-1)[..., None, None]

    def logits(self, theta: Array) -> Array:
        return self.offset + self.Z @ self.xp.matrix_transpose(theta)

    def value(self, theta: Array) -> Array:
        xp, f = self.xp, self.logits(theta)
        top = xp.max(f, axis=-1, keepdims=True)
        lse = xp.log(xp.sum(xp.exp(f - top), axis=-1)) + top[..., 0]
        fit = xp.sum(self.c * (lse - xp.sum(self.Y * f, axis=-1)), axis=-1)
        return fit + 0.5 * xp.sum(xp.sum(self.l2[..., None, :] * theta * theta, axis=-1), axis=-1)

    def probabilities(self, theta: Array) -> Array:
        xp, f = self.xp, self.logits(theta)
        e = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    def gradient(self, theta: Array, P: Array) -> Array:
        return self._to_features(self.c[..., None] * (P - self.Y)) + self.l2[..., None, :] * theta

    def newton_step(self, gradient: Array, P: Array, tol: float) -> Array:
        """Conjugate gradients on H s = -gradient, to a residual that shrinks with the gradient."""
        xp = self.xp
        s, r = xp.zeros_like(gradient), -gradient
        z = self._precondition(r)
        d, rz = z, _dot(xp, r, z)
        start = rz
        for _ in range(200):
            Hd = self._hessian(d, P)
            curvature = _dot(xp, d, Hd)
            a = xp.where(curvature > 0, rz / xp.where(curvature > 0, curvature, xp.ones_like(rz)), xp.zeros_like(rz))
            s, r = s + a[..., None, None] * d, r - a[..., None, None] * Hd
            z = self._precondition(r)
            new = _dot(xp, r, z)
            # a fixed small share: Newton then gains six digits in the error a step
            if not bool(xp.any(new > 1e-12 * start)):
                break
            d = (
                z
                + xp.where(rz > 0, new / xp.where(rz > 0, rz, xp.ones_like(rz)), xp.zeros_like(rz))[..., None, None] * d
            )
            rz = new
        return s - xp.mean(s, axis=-2, keepdims=True)

    def _hessian(self, d: Array, P: Array) -> Array:
        f = self.Z @ self.xp.matrix_transpose(d)
        curved = P * (f - self.xp.sum(P * f, axis=-1, keepdims=True))
        return self._to_features(self.c[..., None] * curved) + self.l2[..., None, :] * d

    def _precondition(self, r: Array) -> Array:
        z = r @ self.inverse
        return z - self.xp.mean(z, axis=-2, keepdims=True)  # the optimum sums to zero over classes

    def _to_features(self, G: Array) -> Array:
        return self.xp.matrix_transpose(G) @ self.Z


def _dot(xp: Any, a: Array, b: Array) -> Array:
    return xp.sum(xp.sum(a * b, axis=-1), axis=-1)


def _line_search(problem: _Softmax, theta: Array, step: Array, value: Array, live: Array) -> tuple[Array, Array]:
    """Halve each problem's step until its objective does not rise; finished problems get step 0."""
    xp = problem.xp
    t = xp.where(live, xp.ones_like(value), xp.zeros_like(value))
    ceiling = value + rounding(xp, value)
    for _ in range(40):
        new = problem.value(theta + t[..., None, None] * step)
        rises = ~(new <= ceiling) & live
        if not bool(xp.any(rises)):
            return t, new
        t = xp.where(rises, 0.5 * t, t)
    return xp.where(rises, xp.zeros_like(t), t), xp.where(rises, value, new)
