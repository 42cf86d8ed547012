"""The two-class Newton of `pro2.linalg.newton` as one Triton kernel: a problem stays in registers until it is solved.

A program holds a few problems: features (B, M, P), Hessian (B, P, P). The Hessian is inverted by the symmetric sweep
operator (Beaton 1964), which needs no indexing of registers. float32; wider inputs go the plain way.
"""

# Triton reads the annotations of its kernels itself
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

EPS = 1.1920929e-07
REGISTERS = 16384  # numbers of features that one program may hold


def newton(
    space: Any, y: Any, c: Any, offset: Any, shape: tuple[int, ...], tol: float, max_iter: int
) -> tuple[Any, Any, Any, int] | None:
    """Like `pro2.linalg.newton.newton` for CUDA tensors; None where a problem does not fit into registers."""
    xp, Z = space.xp, space.Z
    (T, M, p), (MB, P) = Z.shape, (max(16, triton.next_power_of_2(n)) for n in Z.shape[1:])
    if Z.dtype != xp.float32 or MB * P > REGISTERS:
        return None
    theta, b, kkt = (xp.empty(s, dtype=Z.dtype, device=Z.device) for s in ((T, p), (T,), (T,)))
    n_iter = xp.empty((T,), dtype=xp.int32, device=Z.device)
    rows = [xp.broadcast_to(a, (T, M)).contiguous() for a in (y, c, offset)]
    l2 = xp.broadcast_to(space.l2, (T,)).contiguous()
    B, warps, dot = launch_shape(MB, P)
    solve[(triton.cdiv(T, B),)](
        Z.contiguous(),
        *rows,
        l2,
        theta,
        b,
        kkt,
        n_iter,
        T,
        tol,
        max_iter,
        M=M,
        p=p,
        B=B,
        MB=MB,
        P=P,
        DOT=dot,
        num_warps=warps,
    )
    return theta, b, kkt, int(xp.max(n_iter))


def launch_shape(MB: int, P: int) -> tuple[int, int, bool]:
    """Problems a program and warps: about sixteen numbers of Z a thread for small problems, more for large ones."""
    if MB * P <= 1024:
        return 1, 1, True
    return 1, 4 if MB * P <= 8192 else 8, True


@triton.jit
def _evaluate(f, y, c, theta, l2):
    """Objective (B,) and probabilities (B, M) of scores f."""
    e = tl.exp(-tl.abs(f))
    high = 1.0 / (1.0 + e)
    prob = tl.where(f >= 0, high, e * high)
    # log1p: below 1e-4 two terms of its series are exact in float32
    soft = tl.maximum(f, 0.0) + tl.where(e < 1e-4, e - 0.5 * e * e, tl.log(1.0 + e))
    return tl.sum(c * (soft - y * f), axis=1) + 0.5 * l2 * tl.sum(theta * theta, axis=1), prob


@triton.jit
def _negative_inverse(H, p: tl.constexpr, P: tl.constexpr):
    """-H^-1 of the leading p x p block of symmetric H (B, P, P): sweep each pivot once."""
    i = tl.arange(0, P)
    for k in range(0, p):
        at_row, at_column = (i == k)[None, :, None], (i == k)[None, None, :]
        column = tl.sum(tl.where(at_column, H, 0.0), axis=2)[:, :, None]
        row = tl.sum(tl.where(at_row, H, 0.0), axis=1)[:, None, :]
        pivot = tl.sum(tl.where(at_row, column, 0.0), axis=1)[:, None, :]
        # a pivot that rounding made non-positive: this feature does not move in this step
        inverse = tl.where(pivot > 0, 1.0 / pivot, 0.0)
        swept = H - column * row * inverse
        swept = tl.where(at_row, row * inverse, swept)
        swept = tl.where(at_column, column * inverse, swept)
        H = tl.where(at_row & at_column, -inverse, swept)
    return H


@triton.jit
def solve(
    Z_ptr, y_ptr, c_ptr, offset_ptr, l2_ptr, theta_ptr, b_ptr, kkt_ptr, n_ptr, T, tol, max_iter,
    M: tl.constexpr, p: tl.constexpr, B: tl.constexpr, MB: tl.constexpr, P: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Problems pid * B ... of Z (T, M, p): Newton with step halving until the residual is at most tol."""
    t = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    m, j = tl.arange(0, MB), tl.arange(0, P)
    inside = (t < T)[:, None, None] & (m < M)[None, :, None] & (j < p)[None, None, :]
    Z = tl.load(Z_ptr + t[:, None, None] * (M * p) + m[None, :, None] * p + j[None, None, :], mask=inside, other=0.0)
    at, rows = t[:, None] * M + m[None, :], (t < T)[:, None] & (m < M)[None, :]
    y = tl.load(y_ptr + at, mask=rows, other=0.0)
    c = tl.load(c_ptr + at, mask=rows, other=0.0)
    f = tl.load(offset_ptr + at, mask=rows, other=0.0)
    l2 = tl.load(l2_ptr + t, mask=t < T, other=1.0)
    eye = tl.where(j[:, None] == j[None, :], 1.0, 0.0)[None, :, :]
    bound = tl.sum(c[:, :, None] * tl.abs(Z), axis=1)
    bound = tl.where(bound > 0, bound, 1.0)
    theta, b = tl.zeros((B, P), tl.float32), tl.zeros((B,), tl.float32)
    value, prob = _evaluate(f, y, c, theta, l2)
    kkt, worst = tl.zeros((B,), tl.float32), tl.full((B,), float("inf"), tl.float32)
    live, n, going, it = t < T, tl.zeros((B,), tl.int32), 1, 0
    while (it < max_iter) & (going > 0):
        it += 1
        g, h = c * (prob - y), c * prob * (1.0 - prob)
        gradient = tl.sum(Z * g[:, :, None], axis=1) + l2[:, None] * theta
        slope = tl.sum(g, axis=1)
        residual = tl.maximum(tl.max(tl.abs(gradient) / bound, axis=1), tl.abs(slope))
        kkt = tl.where(live, residual, kkt)
        n = tl.where(live, it, n)
        live = live & (residual > tol)
        going = tl.max(live.to(tl.int32), axis=0)
        if going > 0:
            weighted = Z * h[:, :, None]
            if DOT:
                H = tl.dot(tl.trans(weighted, (0, 2, 1)), Z, input_precision="tf32x3") + l2[:, None, None] * eye
            else:
                H = l2[:, None, None] * eye
                for r in range(0, M):
                    base = Z_ptr + t[:, None, None] * (M * p) + r * p
                    left = tl.load(
                        base + j[None, :, None], mask=(t < T)[:, None, None] & (j < p)[None, :, None], other=0.0
                    )
                    right = tl.load(
                        base + j[None, None, :], mask=(t < T)[:, None, None] & (j < p)[None, None, :], other=0.0
                    )
                    hr = tl.sum(tl.where((m == r)[None, :], h, 0.0), axis=1)
                    H += (hr[:, None, None] * left) * right
            N = _negative_inverse(H, p, P)
            border = tl.sum(weighted, axis=1)
            x, v = tl.sum(N * gradient[:, None, :], axis=2), -tl.sum(N * border[:, None, :], axis=2)
            schur = tl.sum(h, axis=1) - tl.sum(border * v, axis=1)
            db = tl.where(schur > 0, -(slope + tl.sum(border * x, axis=1)) / schur, 0.0)
            dtheta = x - v * db[:, None]
            df = tl.sum(Z * dtheta[:, None, :], axis=2) + db[:, None]
            ceiling = value + 16 * 1.1920929e-07 * (tl.abs(value) + 1e-3)
            length = tl.where(live, 1.0, 0.0)
            halvings, rising = 0, 1
            new = value
            while (halvings < 40) & (rising > 0):
                halvings += 1
                new, prob = _evaluate(f + length[:, None] * df, y, c, theta + length[:, None] * dtheta, l2)
                rises = (new > ceiling) & live
                rising = tl.max(rises.to(tl.int32), axis=0)
                length = tl.where(rises, 0.5 * length, length)
            theta += length[:, None] * dtheta
            b += length * db
            f += length[:, None] * df
            lowest = value - 16 * 1.1920929e-07 * (tl.abs(value) + 1e-3)
            live = live & ((new < lowest) | (residual < 0.5 * worst))
            worst, value = tl.minimum(worst, residual), new
            going = tl.max(live.to(tl.int32), axis=0)
    tl.store(theta_ptr + t[:, None] * p + j[None, :], theta, mask=(t < T)[:, None] & (j < p)[None, :])
    tl.store(b_ptr + t, b, mask=t < T)
    tl.store(kkt_ptr + t, kkt, mask=t < T)
    tl.store(n_ptr + t, n, mask=t < T)
