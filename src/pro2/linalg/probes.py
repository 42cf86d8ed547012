"""The Probe step: exact L2-regularised logistic and softmax regression, batched over problems on leading axes.

    minimise   sum_i c_i loss(z_i'w + b, y_i) + (l2 / 2) ||w - w0||^2,   weights c of sum one, intercept b free

A path over feature prefixes and penalties, and leave-one-out along it, are things done with the solver of
`pro2.linalg.mode`. A problem that lacks a class has no finite optimum; each missing class then gets half a pseudo-count
spread over the rows, so that it keeps a small, defined probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from array_api_compat import array_namespace, device

from pro2.linalg import kernels
from pro2.linalg.compiled import by_kernel, paths_by_kernel, penalties_by_kernel
from pro2.linalg.kernels.threads import in_threads
from pro2.linalg.mode import MOST_STEPS
from pro2.linalg.moments import Array
from pro2.linalg.problem import LogisticFit, Part, Problem, joined, loo_loss, one_prefix

STACKED = 64  # rows up to which all prefixes are solved as one batch: calls cost more than arithmetic there


def fit_logistic(
    Z: Array,
    y: Array,
    l2: Array | float,
    *,
    n_classes: int = 2,
    sample_weight: Array | None = None,
    prior_mean: Array | None = None,
    tol: float | None = None,
    max_iter: int = MOST_STEPS,
) -> LogisticFit:
    """Solve one problem or a batch of them.

    Parameters
    ----------
    Z : array (..., M, p)
        Features. The plain solver computes in float64; results have the type of Z.
    y : integer array (..., M)
        Class codes 0..n_classes-1.
    l2 : float or array (...)
        Penalty, positive and finite.
    sample_weight : array (..., M), optional
        Non-negative; normalised to sum one in each problem. A row of weight 0 is absent.
    prior_mean : array (..., p), or (..., n_classes, p) for more than two classes, optional
        Centre w0 of the penalty.
    tol : float, optional
        On `kkt`; 1e-9, or 1e-4 where a kernel computes in float32 on a device.

    Returns
    -------
    LogisticFit
        coef (..., p) and intercept (...) for two classes, (..., n_classes, p) and (..., n_classes) for more.
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, tol, max_iter)
    l2 = _check_l2(problem.Z, l2)
    fast = by_kernel(problem, l2) if n_classes == 2 else None
    if fast is not None:
        return fast
    pieces = problem.pieces()
    if not pieces:
        return problem.solve_one(l2)
    l2 = problem.xp.broadcast_to(l2, problem.c.shape[:-1])
    return LogisticFit.of_pieces(in_threads(lambda part: problem.at(part).solve_one(l2[part]), pieces))


def fit_path(
    Z: Array, y: Array, n_features: Sequence[int], l2: Sequence[float], *, n_classes: int = 2,
    sample_weight: Array | None = None, prior_mean: Array | None = None, tol: float | None = None,
    max_iter: int = MOST_STEPS,
) -> LogisticFit:  # fmt: skip
    """All feature prefixes times all penalties: entry (i, j) is `fit_logistic(Z[..., :n_features[i]], y, l2[j])`.

    coef (..., n_d, n_l2[, K], D) is zero beyond its prefix, whatever the prior mean is there; intercept
    (..., n_d, n_l2[, K]).
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, tol, max_iter)
    return joined(problem, _parts(problem, n_features, l2, loo=False))[0]


def loo_path(
    Z: Array, y: Array, n_features: Sequence[int], l2: Sequence[float], *, n_classes: int = 2,
    sample_weight: Array | None = None, prior_mean: Array | None = None, tol: float | None = None,
    max_iter: int = MOST_STEPS,
) -> tuple[LogisticFit, Array]:  # fmt: skip
    """`fit_path` and the scores that each row would get from a probe fitted without it (`pro2.linalg.loo`).

    Scores are (..., n_d, n_l2, M) for two classes and (..., n_d, n_l2, M, K) for more.
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, tol, max_iter)
    fit, scores = joined(problem, _parts(problem, n_features, l2, loo=True))
    return fit, problem.result(scores[..., 0] if n_classes == 2 else scores)


def loo_penalties(
    Z: Array, y: Array, l2: Sequence[float], *, n_classes: int = 2, sample_weight: Array | None = None,
    prior_mean: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Heads (T, L[, K], p), intercepts (T, L[, K]) and mean leave-one-out losses (T, L) of T targets Z (T, M, p)."""
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, None, MOST_STEPS)
    done = penalties_by_kernel(problem, y, l2) if n_classes == 2 else None
    if done is not None:
        return done
    pieces = problem.pieces()
    if not pieces:
        return _penalties(problem, y, l2)
    coef, intercept, loss = zip(*in_threads(lambda part: _penalties(problem.at(part), y[part, ...], l2), pieces))
    return problem.xp.concat(coef), problem.xp.concat(intercept), problem.xp.concat(loss)


def _penalties(problem: Problem, y: Array, l2: Sequence[float]) -> tuple[Array, Array, Array]:
    fit, scores = joined(problem, _parts(problem, [problem.Z.shape[-1]], l2, loo=True))
    loss = loo_loss(scores[..., 0] if problem.n_classes == 2 else scores, y, problem.n_classes, problem.c)
    return fit.coef[:, 0, ...], fit.intercept[:, 0, ...], loss[:, 0, :]


def _parts(problem: Problem, n_features: Sequence[int], l2: Sequence[float], loo: bool) -> list[Part]:
    """Solutions in the order of n_features, whichever way suits the size."""
    xp, Z = problem.xp, problem.Z
    M, D = Z.shape[-2:]
    bad = [d for d in n_features if not 1 <= d <= D]
    if bad or not len(n_features):
        raise ValueError(f"n_features must be prefix lengths in 1..{D}, got {list(n_features)}.")
    grid = _check_l2(problem.Z, xp.asarray(list(l2), dtype=xp.float64, device=device(Z)))
    n_problems = math.prod(Z.shape[:-2]) * len(n_features) * grid.shape[0]
    if problem.n_classes == 2 and kernels.serves_paths(Z, M, n_problems):
        return [paths_by_kernel(problem, list(n_features), grid, loo)]
    if M <= STACKED and D > M and len(n_features) > 1:
        return [_stacked(problem, n_features, grid, loo)]
    return [one_prefix(problem, d, grid, loo) for d in n_features]


def _stacked(problem: Problem, n_features: Sequence[int], l2: Array, loo: bool) -> Part:
    """Prefixes as one batch: features beyond a prefix are zero."""
    xp, Z = problem.xp, problem.wide(problem.Z)
    inside = xp.arange(Z.shape[-1], device=device(Z)) < xp.asarray(list(n_features), device=device(Z))[:, None]
    inside = xp.astype(inside, Z.dtype)[:, None, :]
    offset = xp.stack([problem.offset(d) for d in n_features], axis=-3)
    w0 = None if problem.w0 is None else problem.w0[..., None, :, :] * inside
    return problem.solve(Z[..., None, :, :] * inside, problem.c[..., None, :], offset, w0, l2, loo)


def _check_l2(Z: Array, l2: Array | float) -> Array:
    xp = array_namespace(Z)
    l2 = xp.asarray(l2, dtype=xp.float64, device=device(Z))
    if not bool(xp.all((l2 > 0) & (l2 < float("inf")))):
        raise ValueError(f"l2 must be positive and finite, got {l2}: without a penalty separable data has no optimum.")
    return l2
