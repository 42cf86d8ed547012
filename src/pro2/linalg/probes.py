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
from pro2.linalg.compiled import path_by_kernel, penalties_by_kernel
from pro2.linalg.kernels.threads import in_threads
from pro2.linalg.mode import MOST_STEPS
from pro2.linalg.moments import Array
from pro2.linalg.problem import LogisticFit, Path, Problem, loo_loss

__all__ = ["LogisticFit", "fit_logistic", "fit_path", "loo_loss", "loo_path", "loo_penalties"]

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
    lead = problem.c.shape[:-1]
    path, _ = _penalties(problem, problem.xp.broadcast_to(_check_l2(problem.Z, l2), lead)[..., None], loo=False)
    coef, intercept, kkt, n_iter, converged = problem.fit(path)
    only = (*(slice(None) for _ in lead), 0, 0, ...)
    return LogisticFit(coef[only], intercept[only], kkt[only], n_iter, converged[only])


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
    return problem.fit(_path(problem, n_features, l2, loo=False))


def loo_path(
    Z: Array, y: Array, n_features: Sequence[int], l2: Sequence[float], *, n_classes: int = 2,
    sample_weight: Array | None = None, prior_mean: Array | None = None, tol: float | None = None,
    max_iter: int = MOST_STEPS,
) -> tuple[LogisticFit, Array]:  # fmt: skip
    """`fit_path` and the scores that each row would get from a probe fitted without it (`pro2.linalg.loo`).

    Scores are (..., n_d, n_l2, M) for two classes and (..., n_d, n_l2, M, K) for more.
    """
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, tol, max_iter)
    path = _path(problem, n_features, l2, loo=True)
    return problem.fit(path), problem.result(problem.loo_scores(path))


def loo_penalties(
    Z: Array, y: Array, l2: Sequence[float], *, n_classes: int = 2, sample_weight: Array | None = None,
    prior_mean: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Heads (T, L[, K], p), intercepts (T, L[, K]) and mean leave-one-out losses (T, L) of T targets Z (T, M, p)."""
    problem = Problem.check(Z, y, n_classes, sample_weight, prior_mean, None, MOST_STEPS)
    grid = problem.xp.broadcast_to(_check_l2(problem.Z, list(l2)), (Z.shape[0], len(l2)))
    path, loss = _penalties(problem, grid, loo=True)
    fit = problem.fit(path)
    return fit.coef[:, 0, ...], fit.intercept[:, 0, ...], loss


def _penalties(problem: Problem, l2: Array, loo: bool) -> tuple[Path, Array | None]:
    """All features under penalties l2 (..., L) of each problem, and mean leave-one-out losses (..., L) if asked for."""
    found = penalties_by_kernel(problem, l2, loo)
    if found is not None:
        return found
    D, pieces = problem.Z.shape[-1], problem.pieces()
    if pieces:
        parts = in_threads(lambda some: problem.at(some).prefix(D, l2[some, None, :], loo), pieces)
        path = Path.joined(parts, axis=0)
    else:
        path = problem.prefix(D, l2[..., None, :], loo)
    return path, problem.loo_loss(path)[..., 0, :] if loo else None


def _path(problem: Problem, n_features: Sequence[int], l2: Sequence[float], loo: bool) -> Path:
    """Prefixes in the order of n_features, whichever way suits the size."""
    Z = problem.Z
    M, D = Z.shape[-2:]
    bad = [d for d in n_features if not 1 <= d <= D]
    if bad or not len(n_features):
        raise ValueError(f"n_features must be prefix lengths in 1..{D}, got {list(n_features)}.")
    grid = _check_l2(Z, list(l2))
    n_problems = math.prod(Z.shape[:-2]) * len(n_features) * grid.shape[0]
    if problem.n_classes == 2 and kernels.serves_paths(Z, M, n_problems):
        return path_by_kernel(problem, list(n_features), grid, loo)
    if M <= STACKED and D > M and len(n_features) > 1:
        return problem.stacked(n_features, grid, loo)
    return Path.joined([problem.prefix(d, grid, loo) for d in n_features], axis=Z.ndim - 2)


def _check_l2(Z: Array, l2: Array | Sequence[float] | float) -> Array:
    xp = array_namespace(Z)
    l2 = xp.asarray(l2, dtype=xp.float64, device=device(Z))
    if not bool(xp.all((l2 > 0) & (l2 < float("inf")))):
        raise ValueError(f"l2 must be positive and finite, got {l2}: without a penalty separable data has no optimum.")
    return l2
