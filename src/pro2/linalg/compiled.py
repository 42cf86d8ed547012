"""Probes by compiled kernels, where there is one for their sizes; what a kernel leaves open is solved plainly."""

from __future__ import annotations

from typing import Any

from array_api_compat import is_numpy_array

from pro2.linalg import kernels, losses
from pro2.linalg.loo import left_out_scores, own_variance
from pro2.linalg.moments import Array
from pro2.linalg.problem import Path, Problem
from pro2.linalg.rows import orthogonal

SINGLE_TOL = 1e-4  # of a relative gradient in float32


def penalties_by_kernel(problem: Problem, l2: Array, loo: bool) -> tuple[Path, Array | None] | None:
    """Many small two-class problems under penalties l2 (T, L), and mean leave-one-out losses (T, L) if asked for.

    What the kernel does not bring below the tolerance is solved plainly.
    """
    xp, Z = problem.xp, problem.Z
    if problem.n_classes > 2 or Z.ndim != 3 or (loo and Z.shape[-1] > Z.shape[-2]):
        return None
    tol, hard = _tolerance(problem), xp.astype(problem.y == 1, xp.float64) if loo else None
    offset = problem.offset(Z.shape[-1])[..., 0]
    found = kernels.solve_penalties(Z, problem.Y[..., 0], problem.c, offset, l2, hard, tol, problem.max_iter)
    if found is None:
        return None
    theta, b, kkt, n_iter, loss = found
    theta = theta if problem.w0 is None else theta + xp.astype(problem.w0, theta.dtype, copy=False)
    path = Path(theta[:, None, :, None, :], b[:, None, :, None], kkt[:, None, :], n_iter, kkt[:, None, :] <= tol, None)
    (at,) = xp.nonzero(~xp.all(kkt <= tol, axis=-1))
    if at.shape[0]:
        rest = problem.at(at)
        again = rest.prefix(Z.shape[-1], l2[at, None, :], loo)
        for whole, part in zip(path[:3], again[:3]):
            whole[at, ...] = xp.astype(part, whole.dtype, copy=False)
        path.converged[at, ...] = again.kkt <= tol
        if loss is not None:
            loss[at, ...] = rest.loo_loss(again)[:, 0, :]
    return path, loss


def _tolerance(problem: Problem) -> float:
    """Of a kernel: on a device it computes in the type of the rows, on the host in float64."""
    single = problem.Z.dtype == problem.xp.float32 and not is_numpy_array(problem.Z)
    return max(problem.tol, SINGLE_TOL) if single else problem.tol


def path_by_kernel(problem: Problem, n_features: list[int], l2: Array, loo: bool) -> Path:
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
    shape = (*lead, len(n_features), l2.shape[0])
    a, b, kkt = (xp.reshape(v, (*shape, *v.shape[2:])) for v in (a, b, kkt))
    coef = xp.zeros((*shape, 1, D), dtype=xp.float64)
    for i, d in enumerate(n_features):
        coef[..., i, :, 0, :d] = a[..., i, :, :] @ Z[..., :d]
        b[..., i, :] -= (mean[..., :d] @ xp.matrix_transpose(coef[..., i, :, 0, :d]))[..., 0, :]
        if problem.w0 is not None:
            coef[..., i, :, :, :d] += problem.w0[..., None, :, :d]
    scores = None if scores is None else xp.reshape(scores, (*shape, M, 1))
    return _finished(problem, Path(coef, b[..., None], kkt, n_iter, kkt <= problem.tol, scores), n_features, l2)


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


def _finished(problem: Problem, path: Path, n_features: list[int], l2: Array) -> Path:
    """Prefixes that the kernel left above the tolerance, solved plainly."""
    each = tuple(slice(None) for _ in problem.Z.shape[:-2])
    for i, d in enumerate(n_features):
        if not bool(problem.xp.all(path.converged[(*each, i)])):
            again = problem.prefix(d, l2, path.scores is not None)
            for name in ("coef", "intercept", "kkt", "converged", *(("scores",) if path.scores is not None else ())):
                getattr(path, name)[(*each, i)] = getattr(again, name)[(*each, 0)]
    return path
