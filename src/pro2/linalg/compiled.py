"""Probes by compiled kernels, where there is one for their sizes; what a kernel leaves open is solved plainly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import is_numpy_array

from pro2.linalg import kernels, losses
from pro2.linalg.loo import left_out_scores, own_variance
from pro2.linalg.moments import Array
from pro2.linalg.problem import LogisticFit, Part, Problem, joined, loo_loss, one_prefix
from pro2.linalg.rows import orthogonal

SINGLE_TOL = 1e-4  # of a relative gradient in float32


def by_kernel(problem: Problem, l2: Array) -> LogisticFit | None:
    """Many small two-class problems; what the kernel does not bring below the tolerance is solved plainly."""
    xp, Z = problem.xp, problem.Z
    if Z.ndim != 3:
        return None
    T = Z.shape[0]
    l2 = xp.broadcast_to(l2, (T,))
    tol = _tolerance(problem)
    offset = problem.offset(Z.shape[-1])[..., 0]
    found = kernels.solve_batch(Z, problem.Y[..., 0], problem.c, offset, l2, tol, problem.max_iter)
    if found is None:
        return None
    coef, b, kkt, n_iter = found
    coef = coef if problem.w0 is None else coef + problem.result(problem.w0[..., 0, :])
    (at,) = xp.nonzero(~(kkt <= tol))
    if at.shape[0]:
        again = problem.at(at).solve_one(l2[at])
        coef[at, ...], b[at], kkt[at] = again.coef, again.intercept, problem.result(again.kkt)
    return LogisticFit(coef, b, kkt, n_iter, kkt <= tol)


def penalties_by_kernel(problem: Problem, y: Array, l2: Sequence[float]) -> tuple[Array, Array, Array] | None:
    xp, Z = problem.xp, problem.Z
    if Z.ndim != 3 or Z.shape[-1] > Z.shape[-2]:
        return None
    tol = _tolerance(problem)
    offset = xp.broadcast_to(problem.offset(Z.shape[-1])[..., 0], problem.c.shape)
    hard, soft = xp.astype(y == 1, xp.float64), problem.Y[..., 0]
    found = kernels.solve_penalties(Z, hard, soft, problem.c, offset, l2, tol, problem.max_iter)
    if found is None:
        return None
    theta, b, loss, open_ = found
    coef = theta if problem.w0 is None else theta + problem.w0
    (at,) = xp.nonzero(open_)
    if at.shape[0]:
        rest = problem.at(at)
        fit, scores = joined(rest, [one_prefix(rest, Z.shape[-1], xp.asarray(list(l2), dtype=xp.float64), loo=True)])
        coef[at, ...], b[at, ...] = fit.coef[:, 0], fit.intercept[:, 0]
        loss[at, ...] = loo_loss(scores[..., 0], y[at, ...], 2, rest.c)[:, 0]
    return problem.result(coef), problem.result(b), loss


def _tolerance(problem: Problem) -> float:
    """Of a kernel: on a device it computes in the type of the rows, on the host in float64."""
    single = problem.Z.dtype == problem.xp.float32 and not is_numpy_array(problem.Z)
    return max(problem.tol, SINGLE_TOL) if single else problem.tol


def paths_by_kernel(problem: Problem, n_features: list[int], l2: Array, loo: bool) -> Part:
    """All prefixes in row space, on the host: each Gram matrix is the one before plus the new features."""
    xp, Z = problem.xp, problem.wide(problem.Z)
    lead, (M, D) = Z.shape[:-2], Z.shape[-2:]
    mean = problem.c[..., None, :] @ Z
    Z = Z - mean  # products of what all rows have in common would leave few digits to what they differ in
    K = _prefix_grams(xp, Z, n_features)
    offset = xp.stack([problem.offset(d)[..., 0] for d in n_features], axis=-2)
    shape = (*lead, len(n_features), M)
    y, c, offset = (_rows_of(xp, v, shape) for v in (problem.Y[..., None, :, 0], problem.c[..., None, :], offset))
    a, b, kkt, n_iter = kernels.solve_paths(xp.reshape(K, (-1, M, M)), y, c, offset, l2, problem.tol, problem.max_iter)
    scores = _loo_by_kernel(xp, Z, n_features, K, y, c, offset, a, b, l2) if loo else None
    n_d, J = len(n_features), l2.shape[0]
    a, b, kkt = (xp.reshape(v, (*lead, n_d, J, *v.shape[2:])) for v in (a, b, kkt))
    coef = xp.zeros((*lead, n_d, J, 1, D), dtype=xp.float64)
    for i, d in enumerate(n_features):
        coef[..., i, :, 0, :d] = a[..., i, :, :] @ Z[..., :d]
        b[..., i, :] -= (mean[..., :d] @ xp.matrix_transpose(coef[..., i, :, 0, :d]))[..., 0, :]
        if problem.w0 is not None:
            coef[..., i, :, :, :d] += problem.w0[..., None, :, :d]
    scores = None if scores is None else xp.reshape(scores, (*lead, n_d, J, M, 1))
    return _finished(problem, Part(coef, b[..., None], kkt, n_iter, scores), n_features, l2, loo)


def _prefix_grams(xp: Any, Z: Array, n_features: list[int]) -> Array:
    K = xp.empty((*Z.shape[:-2], len(n_features), Z.shape[-2], Z.shape[-2]), dtype=xp.float64)
    last, running = 0, None
    for i in sorted(range(len(n_features)), key=n_features.__getitem__):
        new = Z[..., last : n_features[i]]
        if new.shape[-1] or running is None:
            more = new @ xp.matrix_transpose(new)
            running = more if running is None else running + more
        K[..., i, :, :], last = running, n_features[i]
    return K


def _rows_of(xp: Any, values: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast, with one leading axis, as its own writable memory."""
    whole = xp.empty(shape, dtype=xp.float64)
    whole[...] = values
    return xp.reshape(whole, (-1, shape[-1]))


def _loo_by_kernel(
    xp: Any, Z: Array, n_features: list[int], K: Array, y: Array, c: Array, offset: Array, a: Array, b: Array, l2: Array
) -> Array:
    M = K.shape[-1]
    gram = xp.reshape(K, (-1, M, M))
    F = (a @ gram + b[..., None] + offset[:, None, :])[..., None]
    _, P = losses.evaluate(F, y[:, None, :, None])
    h = c[:, None, :] * (P * (1.0 - P))[..., 0]
    V = kernels.path_variances(gram, h, l2)
    if V is None:
        prefixes = ((A, d) for A in xp.reshape(Z, (-1, *Z.shape[-2:])) for d in n_features)
        V = xp.stack([_variances(xp, A[:, :d], *each, l2) for (A, d), each in zip(prefixes, zip(gram, c, h))])
    return left_out_scores(F, P, y[:, None, :, None], V, c[:, None, :], h)


def _variances(xp: Any, A: Array, K: Array, c: Array, h: Array, l2: Array) -> Array:
    """What `kernels.path_variances` computes, (J, M), by LAPACK for the many rows A of one prefix; K = A A'.

    T = K (l2 I + h K)^-1, u = 1 - T h, V_ii = T_ii + u_i^2 / h'u, through l2 I + S K S with S = sqrt(h).
    """
    if A.shape[1] < A.shape[0]:
        return own_variance(orthogonal(A, c, intercept=True, as_is=True), h, l2)
    S, lam = xp.sqrt(h)[..., None], l2[:, None]
    SK = S * K
    X = xp.linalg.solve(SK * xp.matrix_transpose(S) + lam[..., None] * xp.eye(K.shape[0], dtype=K.dtype), SK)
    T = (xp.linalg.diagonal(K) - xp.sum(SK * X, axis=-2)) / lam
    u = 1.0 - (h @ K - ((SK @ h[..., None])[..., None, :, 0] @ X)[..., 0, :]) / lam
    mass = xp.sum(h * u, axis=-1, keepdims=True)
    return T + xp.where(mass > 0, u * u / xp.where(mass > 0, mass, xp.ones_like(mass)), xp.zeros_like(u))


def _finished(problem: Problem, part: Part, n_features: list[int], l2: Array, loo: bool) -> Part:
    """Prefixes that the kernel left above the tolerance, solved plainly."""
    xp = problem.xp
    open_ = ~(part.residual <= problem.tol)
    for i, d in enumerate(n_features):
        if bool(xp.any(open_[..., i, :])):
            again = one_prefix(problem, d, l2, loo)
            part.coef[..., i, :, :, :] = again.coef[..., 0, :, :, :]
            part.intercept[..., i, :, :] = again.intercept[..., 0, :, :]
            part.residual[..., i, :] = again.residual[..., 0, :]
            if part.scores is not None and again.scores is not None:
                part.scores[..., i, :, :, :] = again.scores[..., 0, :, :, :]
    return part
