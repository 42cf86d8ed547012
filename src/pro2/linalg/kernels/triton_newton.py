"""The two-class Newton of `pro2.linalg.mode` as one Triton kernel: a problem stays in registers until it is solved.

One program solves one problem: it walks the rows, which stay in the first-level cache, and keeps the Hessian in
registers, where the symmetric sweep operator (Beaton 1964) inverts it without indexing. float32; wider inputs go the
plain way.
"""

# Triton reads the annotations of its kernels itself
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


def solve_batch(Z: Any, y: Any, c: Any, offset: Any, l2: Any, tol: float, max_iter: int) -> tuple[Any, Any, Any, int]:
    """theta (T, p), b, kkt (T,) and the most iterations of float32 problems Z (T, M, p) on a CUDA device."""
    (T, M, p), P = Z.shape, max(16, triton.next_power_of_2(Z.shape[2]))
    theta, b, kkt = (Z.new_empty(s) for s in ((T, p), (T,), (T,)))
    n_iter = Z.new_zeros((T,)).int()
    rows = [a.to(Z.dtype).expand(T, M).contiguous() for a in (y, c, offset)]
    penalty = l2.to(Z.dtype).expand(T).contiguous()
    R, warps, stages = launch_shape(M, P)
    solve[(T,)](
        Z.contiguous(), *rows, penalty, theta, b, kkt, n_iter, tol, max_iter=max_iter, M=M, p=p, R=R, P=P,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return theta, b, kkt, int(n_iter.max())


def launch_shape(M: int, P: int) -> tuple[int, int, int]:
    """Rows a step, warps a problem, stages of the pipeline."""
    return (32, 1 if P <= 16 else 2, 1)


@triton.jit
def _walk(
    Z_ptr, y_ptr, c_ptr, offset_ptr, t, theta, b, M: tl.constexpr, p: tl.constexpr, R: tl.constexpr, P: tl.constexpr
):
    """Log-loss, its derivatives by theta and b, and the Hessian of problem t at (theta, b): one pass over its rows."""
    j = tl.arange(0, P)
    value, slope, weight = 0.0, 0.0, 0.0
    gradient, border, H = tl.zeros((P,), tl.float32), tl.zeros((P,), tl.float32), tl.zeros((P, P), tl.float32)
    for start in range(0, M, R):
        m = start + tl.arange(0, R)
        at = t * M + m
        z = tl.load(Z_ptr + at[:, None] * p + j[None, :], mask=(m < M)[:, None] & (j < p)[None, :], other=0.0)
        y = tl.load(y_ptr + at, mask=m < M, other=0.0)
        c = tl.load(c_ptr + at, mask=m < M, other=0.0)
        f = tl.load(offset_ptr + at, mask=m < M, other=0.0) + tl.sum(z * theta[None, :], axis=1) + b
        e = tl.exp(-tl.abs(f))
        high = 1.0 / (1.0 + e)
        prob = tl.where(f >= 0, high, e * high)
        # log1p: below 1e-4 two terms of its series are exact in float32
        soft = tl.maximum(f, 0.0) + tl.where(e < 1e-4, e - 0.5 * e * e, tl.log(1.0 + e))
        g, h = c * (prob - y), c * prob * (1.0 - prob)
        value += tl.sum(c * (soft - y * f), axis=0)
        slope += tl.sum(g, axis=0)
        weight += tl.sum(h, axis=0)
        gradient += tl.sum(z * g[:, None], axis=0)
        weighted = z * h[:, None]
        border += tl.sum(weighted, axis=0)
        H = tl.dot(tl.trans(weighted), z, H, input_precision="tf32x3")
    return value, slope, weight, gradient, border, H


@triton.jit
def _negative_inverse(H, p: tl.constexpr, P: tl.constexpr):
    """-H^-1 of the leading p x p block of symmetric H: sweep each pivot once."""
    i = tl.arange(0, P)
    for k in range(0, p):
        at_row, at_column = (i == k)[:, None], (i == k)[None, :]
        column = tl.sum(tl.where(at_column, H, 0.0), axis=1)[:, None]
        row = tl.sum(tl.where(at_row, H, 0.0), axis=0)[None, :]
        pivot = tl.sum(tl.where(i == k, tl.sum(tl.where(at_row, H, 0.0), axis=0), 0.0), axis=0)
        # a pivot that rounding made non-positive: this feature does not move in this step
        inverse = tl.where(pivot > 0, 1.0 / pivot, 0.0)
        swept = H - column * (row * inverse)
        swept = tl.where(at_row, row * inverse, swept)
        swept = tl.where(at_column, column * inverse, swept)
        H = tl.where(at_row & at_column, -inverse, swept)
    return H


@triton.jit
def _bounds(Z_ptr, c_ptr, t, M: tl.constexpr, p: tl.constexpr, R: tl.constexpr, P: tl.constexpr):
    """The most each gradient entry can be, sum_i c_i |z_ij|; 1 for a feature that is always zero."""
    j = tl.arange(0, P)
    bound = tl.zeros((P,), tl.float32)
    for start in range(0, M, R):
        m = start + tl.arange(0, R)
        z = tl.load(Z_ptr + (t * M + m)[:, None] * p + j[None, :], mask=(m < M)[:, None] & (j < p)[None, :], other=0.0)
        bound += tl.sum(tl.abs(z) * tl.load(c_ptr + t * M + m, mask=m < M, other=0.0)[:, None], axis=0)
    return tl.where(bound > 0, bound, 1.0)


@triton.jit
def solve(
    Z_ptr, y_ptr, c_ptr, offset_ptr, l2_ptr, theta_ptr, b_ptr, kkt_ptr, n_ptr, tol,
    max_iter: tl.constexpr, M: tl.constexpr, p: tl.constexpr, R: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """One problem of Z (T, M, p): Newton; a step that raised the objective is halved and walked again."""
    t = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, P)
    l2 = tl.load(l2_ptr + t)
    bound = _bounds(Z_ptr, c_ptr, t, M, p, R, P)
    eye = tl.where(j[:, None] == j[None, :], 1.0, 0.0)
    theta, dtheta = tl.zeros((P,), tl.float32), tl.zeros((P,), tl.float32)
    b, db, length, value, ceiling, worst, kkt = 0.0, 0.0, 1.0, 3e38, 3e38, 3e38, 3e38
    going, n = 1, 0
    # a counted loop with a condition inside: Triton 3.6 fails on while loops like this one
    for _ in range(0, max_iter):
        if going > 0:
            trial, trial_b = theta + length * dtheta, b + length * db
            new, slope, weight, gradient, border, H = _walk(
                Z_ptr, y_ptr, c_ptr, offset_ptr, t, trial, trial_b, M, p, R, P
            )
            new += 0.5 * l2 * tl.sum(trial * trial, axis=0)
            if new > ceiling:
                length = 0.5 * length
                going = tl.where(length > 1e-6, 1, 0)
            else:
                theta, b, n = trial, trial_b, n + 1
                gradient += l2 * theta
                kkt = tl.maximum(tl.max(tl.abs(gradient) / bound, axis=0), tl.abs(slope))
                rounding = 16 * 1.1920929e-07 * (tl.abs(new) + 1e-3)
                stuck = (new >= value - rounding) & (kkt >= 0.5 * worst)
                going = tl.where((kkt > tol) & (stuck == 0), 1, 0)
                value, ceiling, worst, length = new, new + rounding, tl.minimum(worst, kkt), 1.0
                if going > 0:
                    N = _negative_inverse(H + l2 * eye, p, P)
                    x, v = tl.sum(N * gradient[None, :], axis=1), -tl.sum(N * border[None, :], axis=1)
                    schur = weight - tl.sum(border * v, axis=0)
                    db = tl.where(schur > 0, -(slope + tl.sum(border * x, axis=0)) / schur, 0.0)
                    dtheta = x - v * db
    tl.store(theta_ptr + t * p + j, theta, mask=j < p)
    tl.store(b_ptr + t, b)
    tl.store(kkt_ptr + t, kkt)
    tl.store(n_ptr + t, n)
