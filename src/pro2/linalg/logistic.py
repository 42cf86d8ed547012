"""The paper's probe: L2-regularised softmax regression, its path over prefixes and penalties, its leave-one-out.

    minimise over W (K, p), b (K)   sum_i c_i loss(W z_i + b, y_i) + (l2 / 2) ||W - W0||^2,   weights c of sum one

There are K logits inside. Two classes have one logit at the public functions, w = W_1 - W_0 with penalty l2: as a
softmax these are the heads -w/2 and w/2 with penalty 2 l2, because ||w/2||^2 + ||w/2||^2 = ||w||^2 / 2.

A problem is solved in coordinates phi of its rows that the weights make orthogonal, from the smaller side, rows or
features. With one curvature for all rows the Hessian is diagonal there, which makes that diagonal a good
preconditioner: Newton steps are solved by conjugate gradients, and nothing is factorised again. Problems, prefixes and
penalties are one batch of array operations; penalties and classes are the columns of its matrix products.

A class without rows has no finite optimum; it gets half a pseudo-count, spread over the rows as soft targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from pro2.linalg.arrays import Array, both_scores

TOL = 1e-9  # on the largest entry of the gradient, relative to the most that entry can be
MOST_STEPS, PATIENCE = 100, 3  # Newton steps; those in a row without progress, after which rounding allows no more
MOST_INNER = 200  # conjugate gradients in a Newton step; a step that is cut short still descends
STACKED = 64  # rows up to which all prefixes are one batch: calls cost more than arithmetic there
PSEUDO_COUNT = 0.5
MOST_CHANGE = 4.0  # of a score in one step, besides its size: its curvature falls by a factor of e with each unit
ROUGH, NEAR = 0.3, 1e-4  # what a step may leave of the gradient; less of it where the gradient is below NEAR
DAMP = 1e-3  # times the squared gradient: added to each curvature, since rows far on the right side have none
GRADED = 1e-5  # ratio of the sizes of features below which their products share too few digits
NOISE = 64.0  # times rounding: energy a direction needs to count as one
ALONE, ENDLESS = 1e-6, 1e30  # bounds of 1 - h V and of V that keep leave-one-out scores finite
ROUNDING = 4e-15  # of an objective, which is positive
_EPS = float(np.finfo(np.float64).eps)


class LogisticFit(NamedTuple):
    """Solutions; leading axes are problems, and the class axis exists for three classes or more.

    `kkt` is the largest entry of the gradient, each relative to the most it can be; `converged` is kkt <= tol.
    """

    coef: np.ndarray
    intercept: np.ndarray
    kkt: np.ndarray
    n_iter: int
    converged: np.ndarray


def probabilities(F: Array) -> Array:
    """Probability of every class (..., K) from scores (..., K); or two columns from the one logit (..., 1)."""
    xp = array_namespace(F)
    F = xp.concat([xp.zeros_like(F), F], axis=-1) if F.shape[-1] == 1 else F
    with np.errstate(over="ignore"):  # scores so far apart that the exponential is 0
        e = xp.exp(F - xp.max(F, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def one_hot(y: Array, n_classes: int, like: Array) -> Array:
    """Targets (..., K) of integer codes y (...), in the type of `like`."""
    xp = array_namespace(like)
    return xp.astype(y[..., None] == xp.arange(n_classes, device=device(y)), like.dtype)


def log_likelihood(F: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Log-probability (...) of targets Y (..., K), one-hot or soft, under scores F (..., K)."""
    return -_loss(F, Y)[0]


def fit_logistic(
    Z: np.ndarray, y: np.ndarray, l2: np.ndarray | float, *, n_classes: int = 2,
    sample_weight: np.ndarray | None = None, prior_mean: np.ndarray | None = None, tol: float = TOL,
    max_iter: int = MOST_STEPS,
) -> LogisticFit:  # fmt: skip
    """Solve one problem, or a batch of problems that have the same number of rows and features.

    Parameters
    ----------
    Z : array (..., M, p)
        Features. All computation is in float64; results have the type of Z.
    y : integer array (..., M)
        Class codes 0..n_classes-1.
    l2 : float or array (...)
        Penalty, positive and finite; its unit is the squared unit of the features.
    sample_weight : array (..., M), optional
        Non-negative; normalised to sum one in each problem. A row of weight 0 is absent.
    prior_mean : array (..., p), or (..., n_classes, p) for more than two classes, optional
        Centre of the penalty.
    tol : float
        On `kkt`.

    Returns
    -------
    LogisticFit
        coef (..., p) and intercept (...) for two classes, (..., n_classes, p) and (..., n_classes) for more.
    """
    problem = _Problem(Z, y, n_classes, sample_weight, prior_mean, tol, max_iter)
    fit, _ = problem.path([problem.Z.shape[-1]], np.broadcast_to(l2, problem.lead).reshape(-1, 1), loo=False)
    grid = (len(problem.lead), len(problem.lead) + 1)  # axes of length one
    coef, intercept, kkt, converged = (np.squeeze(v, axis=grid) for v in (*fit[:3], fit.converged))
    return LogisticFit(coef, intercept, kkt, fit.n_iter, converged)


def fit_path(
    Z: np.ndarray, y: np.ndarray, n_features: Sequence[int], l2: Sequence[float], **options: Any
) -> LogisticFit:
    """All feature prefixes times all penalties: entry (i, j) is `fit_logistic(Z[..., :n_features[i]], y, l2[j])`.

    coef (..., n_d, n_l2[, K], D) is zero beyond its prefix, whatever the prior mean is there; intercept
    (..., n_d, n_l2[, K]).
    """
    return _Problem(Z, y, **options).path(n_features, np.array([l2]), loo=False)[0]


def loo_path(
    Z: np.ndarray, y: np.ndarray, n_features: Sequence[int], l2: Sequence[float], **options: Any
) -> tuple[LogisticFit, np.ndarray]:
    """`fit_path` and the scores that each row would get from a probe fitted without it.

    Near its optimum the model without row i is quadratic. With h_j = c_j times the curvature of row j, averaged over
    the directions in which its scores can differ (exact for two classes), and with V_i the variance of score i,

        V_i = phi_i' (sum_j h_j phi_j phi_j' + l2)^-1 phi_i,   U_i = V_i / (1 - h_i V_i),   f_i + U_i c_i (p_i - y_i).

    A row leaves with all of its weight: weights are importances, a row of weight 2 is one row that counts twice.

    Scores are (..., n_d, n_l2, M) for two classes, (..., n_d, n_l2, M, K) for more.
    """
    return _Problem(Z, y, **options).path(n_features, np.array([l2]), loo=True)


def row_loss(scores: np.ndarray, y: np.ndarray, n_classes: int = 2) -> np.ndarray:
    """Log-loss (..., n_d, n_l2, M) of each row from the leave-one-out scores of `loo_path`."""
    scores = both_scores(scores, -1) if n_classes == 2 else scores
    return -log_likelihood(scores, one_hot(y, n_classes, scores)[..., None, None, :, :])


def loo_loss(
    scores: np.ndarray, y: np.ndarray, n_classes: int = 2, sample_weight: np.ndarray | None = None
) -> np.ndarray:
    """Mean of `row_loss` over the rows, (..., n_d, n_l2)."""
    w = np.ones(scores.shape[-1 if n_classes == 2 else -2]) if sample_weight is None else np.asarray(sample_weight)
    w = w[..., None, None, :]
    return np.asarray((w * row_loss(scores, y, n_classes)).sum(axis=-1) / w.sum(axis=-1))


class _Problem:
    """A checked batch with one leading axis: features about their mean, soft targets, weights of sum one."""

    def __init__(
        self, Z: np.ndarray, y: np.ndarray, n_classes: int = 2, sample_weight: np.ndarray | None = None,
        prior_mean: np.ndarray | None = None, tol: float = TOL, max_iter: int = MOST_STEPS,
    ):  # fmt: skip
        Z, y = np.asarray(Z), np.asarray(y)
        if Z.ndim < 2 or y.shape[-1:] != Z.shape[-2:-1]:
            raise ValueError(f"Z must be (..., M, p) and y (..., M), got {Z.shape} and {y.shape}.")
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes}.")
        self.lead, (M, D), self.K = Z.shape[:-2], Z.shape[-2:], n_classes
        self.dtype = Z.dtype if Z.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        self.tol, self.max_iter = tol, max_iter
        c = np.ones((*self.lead, M)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        self.c = np.broadcast_to(c / c.sum(axis=-1, keepdims=True), (*self.lead, M)).reshape(-1, M)
        self.Y = _soft_targets(np.broadcast_to(y, (*self.lead, M)).reshape(-1, M), self.c, n_classes)
        self.Z = Z.reshape(len(self.c), M, D).astype(np.float64, copy=False)
        self.mean = self.c[:, None, :] @ self.Z
        self.A = self.Z - self.mean
        W0 = np.zeros(D if n_classes == 2 else (n_classes, D)) if prior_mean is None else np.asarray(prior_mean)
        W0 = both_scores(W0, -2).astype(np.float64) if n_classes == 2 else W0
        self.W0 = np.broadcast_to(W0, (*self.lead, n_classes, D)).reshape(len(self.c), n_classes, D)

    def path(self, n_features: Sequence[int], l2: np.ndarray, *, loo: bool) -> tuple[LogisticFit, np.ndarray]:
        """Prefixes (n_d) times penalties (T or 1, J), and leave-one-out scores or none, in the caller's shapes."""
        (T, M, D), K, (n, J) = self.A.shape, self.K, (len(n_features), l2.shape[1])
        if not n or min(n_features) < min(1, D) or max(n_features) > D:
            raise ValueError(f"n_features must be prefix lengths in 1..{D}, got {list(n_features)}.")
        if not ((l2 > 0) & (l2 < np.inf)).all():
            raise ValueError(f"l2 must be positive and finite, got {l2}: separable data has no optimum without it.")
        coef, b, kkt = np.zeros((T, n, J, K, D)), np.empty((T, n, J, K)), np.empty((T, n, J))
        scores, n_iter = np.empty((T, n, J, M if loo else 0, K)), 0
        for at in [range(n)] if M <= STACKED else [[i] for i in range(n)]:
            sizes = [n_features[i] for i in at]
            batch, turns = self._batch(sizes, np.broadcast_to(l2, (T, J)))
            B, residual, steps = batch.minimise(self.max_iter)
            kkt[:, at], n_iter = residual.reshape(T, -1, J), max(n_iter, steps)
            if loo:
                scores[:, at] = _leave_one_out(batch, B).reshape(T, -1, J, M, K)
            B = B.reshape(T, len(sizes), -1, J, K)
            for i, d, turn, own in zip(at, sizes, turns, B.swapaxes(0, 1)):
                W = turn @ own[:, : turn.shape[-1]].reshape(T, -1, J * K)
                W = W if turn.shape[1] == d else self.A[..., :d].swapaxes(-1, -2) @ W
                coef[:, i, ..., :d] = W.swapaxes(-1, -2).reshape(T, J, K, d)
                b[:, i] = own[:, -1] - (self.mean[..., :d] @ W).reshape(T, J, K)
                coef[:, i, ..., :d] += self.W0[:, None, :, :d]
        found: list[np.ndarray] = [coef, b, scores]
        if K == 2:
            found = [coef[..., 1, :] - coef[..., 0, :], b[..., 1] - b[..., 0], scores[..., 1] - scores[..., 0]]
        W, b, scores = (v.reshape(*self.lead, *v.shape[1:]).astype(self.dtype, copy=False) for v in found)
        kkt = kkt.reshape(*self.lead, n, J)
        return LogisticFit(W, b, kkt, n_iter, kkt <= self.tol), scores

    def _batch(self, sizes: list[int], l2: np.ndarray) -> tuple[_Batch, list[np.ndarray]]:
        """Prefixes times penalties (T, J) as one batch of T n problems, and the turns of their coordinates."""
        (T, M, _), n = self.A.shape, len(sizes)
        each = [_orthogonal(self.A[..., :d], self.c, self.mean[..., :d]) for d in sizes]
        r = max(phi.shape[-1] for phi, _ in each) + 1
        phi, offset = np.zeros((T, n, M, r)), np.zeros((T, n, M, self.K))
        phi[..., -1] = 1.0  # the intercept
        for i, d in enumerate(sizes):
            phi[:, i, :, : each[i][0].shape[-1]] = each[i][0]
            offset[:, i] = self.Z[..., :d] @ self.W0[..., :d].swapaxes(-1, -2)
        prior = np.repeat(np.repeat((2.0 if self.K == 2 else 1.0) * l2, n, axis=0)[:, None, :, None], r, axis=1)
        prior[:, -1] = 0.0
        c, Y = (np.repeat(v, n, axis=0)[:, :, None] for v in (self.c[..., None], self.Y))
        batch = _Batch(phi.reshape(T * n, M, r), c, Y, offset.reshape(T * n, M, 1, -1), prior, self.tol)
        return batch, [turn for _, turn in each]


def _orthogonal(A: np.ndarray, c: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates phi (T, M, r) of rows A (T, M, p) with weights c (T, M): phi' diag(c) phi is diagonal.

    `mean` (T, 1, p) is what was subtracted from A. Coefficients of A are turn B, turn (T, p, r); or A' turn B, turn
    (T, M, r), where there are fewer rows than features.
    """
    if A.shape[2] == 0:
        return np.zeros((*A.shape[:2], 1)), np.zeros((len(A), 0, 1))
    root = np.sqrt(c)[..., None]
    size = np.linalg.norm(root * A, axis=1)
    largest = size.max(axis=-1, keepdims=True)
    # what rounding leaves of equal rows about their mean is no direction
    noise = NOISE * _EPS * np.linalg.norm(mean, axis=-1)
    if (np.where(size > 0, size, largest) < GRADED * largest).any():
        _, values, rows = np.linalg.svd(root * A, full_matrices=False)
        there = values > np.maximum(NOISE * _EPS * values[:, :1], noise)
        turn = (rows * there[..., None]).swapaxes(-1, -2)
        return A @ turn, turn
    if A.shape[2] <= A.shape[1]:
        turn = _leading((root * A).swapaxes(-1, -2) @ (root * A), noise, inverse=False)
        return A @ turn, turn
    gram = A @ A.swapaxes(-1, -2)
    turn = root * _leading(root * gram * root.swapaxes(-1, -2), noise, inverse=True)
    return gram @ turn, turn


def _leading(G: np.ndarray, noise: np.ndarray, *, inverse: bool) -> np.ndarray:
    """Eigenvectors of G (T, r, r) with more energy than noise (T, 1) squared, divided by its root if asked for."""
    values, vectors = np.linalg.eigh(G)
    there = values > np.maximum(NOISE * G.shape[-1] * _EPS * values[:, -1:], noise**2)
    scale = 1.0 / np.sqrt(np.where(there, values, 1.0)) if inverse else 1.0
    # a direction without energy is a column of zeros; where all problems lack it, it need not be carried along
    kept = max(int(there.sum(axis=-1).max()), 1)
    return np.asarray((vectors * (there * scale)[:, None, :])[..., -kept:])


def _soft_targets(y: np.ndarray, c: np.ndarray, n_classes: int) -> np.ndarray:
    """Targets (T, M, K) of codes y; a class without rows gets half a pseudo-count, spread over the rows."""
    hot = one_hot(y, n_classes, c)
    absent = PSEUDO_COUNT * ~((hot > 0) & (c > 0)[..., None]).any(axis=-2, keepdims=True)
    n = (c > 0).sum(axis=-1)[:, None, None]
    return np.asarray((hot * n + absent) / (n + absent.sum(axis=-1, keepdims=True)))


def _loss(F: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss log(sum_k exp F_k) - sum_k Y_k F_k of each row (...), and probabilities P; its slope in F is P - Y."""
    F = F - F.max(axis=-1, keepdims=True)
    P = np.exp(F)
    total = _over_classes(P)
    P /= total
    return (np.log(total) - _over_classes(Y * F))[..., 0], P


def _over_classes(A: np.ndarray) -> np.ndarray:
    """Sum over the last axis, which is kept: as a product, since NumPy's sums of few numbers take ten times as long."""
    return (A.reshape(-1, A.shape[-1]) @ np.ones((A.shape[-1], 1))).reshape(*A.shape[:-1], 1)


def _mean_curvature(P: np.ndarray) -> np.ndarray:
    """Second derivative of the loss (..., 1), averaged over the directions in which scores can differ."""
    return (1.0 - _over_classes(P * P)) / (P.shape[-1] - 1.0)


class _Point(NamedTuple):
    """Coordinates B (T, r, J, K), scores F and probabilities P (T, M, J, K), and objective (T, J)."""

    B: np.ndarray
    F: np.ndarray
    P: np.ndarray
    value: np.ndarray


class _Batch:
    """T problems times J penalties: objective, gradient and Newton step. The axes are (T, rows or coordinates, J, K).

    phi (T, M, r), c (T, M, 1, 1), targets Y and prior scores `offset` (T, M, 1, K), prior precision (T, r, J, 1).
    """

    def __init__(
        self, phi: np.ndarray, c: np.ndarray, Y: np.ndarray, offset: np.ndarray, prior: np.ndarray, tol: float
    ):
        self.phi, self.c, self.Y, self.offset, self.prior, self.tol = phi, c, Y, offset, prior, tol
        self.energy = (c[..., 0] * phi * phi).sum(axis=1)[..., None, None]
        # the most that an entry of the gradient can be; a coordinate without energy has none
        bound = (c[..., 0] * np.abs(phi)).sum(axis=1)[..., None, None]
        self.bound = np.where(bound > 0, bound, 1.0)

    def take(self, t: np.ndarray, j: np.ndarray) -> _Batch:
        """Some problems, some penalties."""
        return _Batch(self.phi[t], self.c[t], self.Y[t], self.offset[t], self.prior[t][:, :, j], self.tol)

    def minimise(self, max_iter: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Coordinates (T, r, J, K) of the optimum, relative gradients (T, J), and the number of steps.

        The intercept starts where it takes the mean prior score away: far from zero the loss has no curvature.
        """
        T, r, J, _ = self.prior.shape
        B = np.zeros((T, r, J, self.Y.shape[-1]))
        B[:, -1] -= (self.c * self.offset).sum(axis=1)
        residual, n_iter = self._descend(B, np.full((T, J), PATIENCE), np.full((T, J), np.inf), 0, max_iter)
        return B, residual, n_iter

    def _descend(
        self, B: np.ndarray, tries: np.ndarray, best: np.ndarray, n_iter: int, max_iter: int
    ) -> tuple[np.ndarray, int]:
        """Newton steps in place while a problem has tries left; those that are done are put aside, as all cost."""
        at = self.at(B, self.offset + _up(self.phi, B))
        while True:
            gradient = _down(self.phi, self.c * (at.P - self.Y)) + self.prior * at.B
            residual = _largest(gradient / self.bound)
            live = (tries > 0) & (residual > self.tol)
            t, j = np.flatnonzero(live.any(axis=1)), np.flatnonzero(live.any(axis=0))
            if n_iter == max_iter or 4 * t.size * j.size <= 3 * live.size:
                B[:] = at.B
                if n_iter < max_iter and t.size:
                    some, part = np.ix_(t, j), B[t][:, :, j]
                    residual[some], n_iter = self.take(t, j)._descend(part, tries[some], best[some], n_iter, max_iter)
                    B[np.ix_(t, np.arange(B.shape[1]), j)] = part
                return residual, n_iter
            with np.errstate(over="ignore", invalid="ignore"):  # the line search drops what is not finite
                step = self.newton_step(at.P, -gradient, residual, live)
                new = self.line_search(at, step, live)
            # near the optimum the objective falls by less than rounding while the gradient still does
            stuck = (new.value >= at.value - ROUNDING * (1.0 + at.value)) & (residual >= 0.5 * best)
            tries = np.where(stuck & live, tries - 1, PATIENCE * live)
            best, at, n_iter = np.minimum(best, residual), new, n_iter + 1

    def at(self, B: np.ndarray, F: np.ndarray) -> _Point:
        loss, P = _loss(F, self.Y)
        return _Point(B, F, P, (self.c[..., 0] * loss).sum(axis=1) + 0.5 * _dot(self.prior * B, B))

    def newton_step(self, P: np.ndarray, left: np.ndarray, residual: np.ndarray, live: np.ndarray) -> np.ndarray:
        """x with Hessian x = left, up to what is enough, by conjugate gradients."""
        more = (DAMP * residual**2)[:, None, :, None]
        typical = (self.c * _mean_curvature(P)).sum(axis=1, keepdims=True) + more
        D = self.prior + typical * self.energy
        inverse = 1.0 / np.where(D > 0, D, 1.0)
        z = left * inverse
        d, now = z, _dot(left, z)
        # far from the optimum the Hessian is soon another; below the tolerance all work is wasted
        enough = np.maximum(0.3 * self.tol / np.maximum(residual, self.tol), ROUGH * np.minimum(residual / NEAR, 1.0))
        goal = np.where(live, enough**2 * now, np.inf)
        x = np.zeros_like(d)
        for _ in range(MOST_INNER):
            Fd = _up(self.phi, d)
            PF = P * Fd
            Hd = self.prior * d + _down(self.phi, self.c * (PF - P * _over_classes(PF) + more * Fd))
            # what has reached its goal rests: beyond it there is rounding only, which a flat direction blows up
            a = np.where(now > goal, _ratio(now, _dot(d, Hd)), 0.0)[:, None, :, None]
            x, left = x + a * d, left - a * Hd
            z = left * inverse
            then, now = now, _dot(left, z)
            if not (now > goal).any():
                break
            d = z + _ratio(now, then)[:, None, :, None] * d
        return x

    def line_search(self, at: _Point, step: np.ndarray, live: np.ndarray) -> _Point:
        """Halve each problem's step until its objective does not rise; problems that are done stay."""
        change = _up(self.phi, step)
        # curvature is known near here only: a longer step would end where it has died and no other step can begin
        most, far = MOST_CHANGE + _largest(at.F), _largest(change)
        ends = np.isfinite(far) & live
        t, ceiling = ends * (most / np.maximum(far, most)), at.value + ROUNDING * (1.0 + at.value)
        t, step, change = np.where(ends, t, 0.0), *(np.where(ends[:, None, :, None], v, 0.0) for v in (step, change))
        for _ in range(40):
            by = t[:, None, :, None]
            new = self.at(at.B + by * step, at.F + by * change)
            rises = ~(new.value <= ceiling) & (t > 0)
            if not rises.any():
                return new
            t = np.where(rises, 0.5 * t, t)
        by = np.where(rises, 0.0, t)[:, None, :, None]
        return self.at(at.B + by * step, at.F + by * change)


def _leave_one_out(batch: _Batch, B: np.ndarray) -> np.ndarray:
    """Scores (T, J, M, K) of each row from the others, see `loo_path`."""
    phi, eye = batch.phi, np.eye(batch.phi.shape[-1])
    at = batch.at(B, batch.offset + _up(phi, B))
    h = batch.c * _mean_curvature(at.P)
    V = np.empty_like(h)
    for j in range(B.shape[2]):
        A = (phi * h[:, :, j]).swapaxes(-1, -2) @ phi + batch.prior[:, :, j] * eye
        # in coordinates of unit curvature: energies may differ by more than a float can tell apart
        curvature = np.einsum("tii->ti", A)
        size = np.where(curvature > 0, 1.0 / np.sqrt(np.where(curvature > 0, curvature, 1.0)), 0.0)[:, None, :]
        inverse = np.linalg.inv(size.swapaxes(-1, -2) * A * size + ALONE**2 * eye)
        scaled = phi * size
        V[:, :, j, 0] = ((scaled @ inverse) * scaled).sum(axis=-1)
    V = np.minimum(V, ENDLESS)
    U = V / np.maximum(1.0 - h * V, ALONE)
    return (at.F + U * batch.c * (at.P - batch.Y)).swapaxes(1, 2)


def _up(phi: np.ndarray, B: np.ndarray) -> np.ndarray:
    """phi B: coordinates (T, r, J, K) to scores (T, M, J, K)."""
    return (phi @ B.reshape(*B.shape[:2], -1)).reshape(*phi.shape[:2], *B.shape[2:])


def _down(phi: np.ndarray, G: np.ndarray) -> np.ndarray:
    """phi' G: rows (T, M, J, K) to coordinates (T, r, J, K)."""
    return (phi.swapaxes(-1, -2) @ G.reshape(*G.shape[:2], -1)).reshape(len(phi), -1, *G.shape[2:])


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Inner products over coordinates and classes, (T, J); the long axis first, which is several times faster."""
    return np.asarray((a * b).sum(axis=1).sum(axis=-1))


def _largest(a: np.ndarray) -> np.ndarray:
    """Largest absolute entry over rows or coordinates, and classes, (T, J)."""
    return np.asarray(np.abs(a).max(axis=1).max(axis=-1))


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b where b > 0, else 0."""
    return np.where(b > 0, a / np.where(b > 0, b, 1.0), 0.0)
