"""Every member of the prior family fitted to a few labels in closed form, and their average by leave-one-out scores.

Scores f = O + g with O = m h(z) + log class shares of the labels, and g a Gaussian process (`pro2.linalg.prior`).
Squared loss towards T = margin * unit * (one-hot - 1 / K), a label of weight c having variance noise / c. With
S = diag(sqrt c), G the prior covariance of the labelled scores at v = 1 and p = noise / v:

    P = (S G S + p I)^-1        R = P S (T - O)        coefficients = (prior covariance) Z' S R
    without row i       F_i = T_i - R_i / (P_ii sqrt c_i)                              exact, not an approximation
    without rows B      F_B = T_B - S_B^-1 P_BB^-1 R_B     and the other rows' P, R less P_.B P_BB^-1 (P_B., R_B)

One eigendecomposition S G S = U diag(e) U' serves all classes, prior scales and prior means: R is linear in
the columns [T, h, 1], and P = U diag(1 / (e + p)) U'. With more labels than features it is taken of A'A instead, where
A A' = S G S: then P = (I - A E diag(1 / (e + p)) E'A') / p.

A member has the weight exp(sharpness * (sum of c_i log-likelihood of label i without row i + bonus of a source head)).
The only label of its class is judged by the prior mean: without it nothing is left to learn from. Averages of this
kind are due to Geisser & Eddy (1979); see Yao et al. (2018) and, for ridge regression, Dempster et al. (2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pro2.linalg.labelled import log_shares
from pro2.linalg.prior import SourcePrior

MOST_SCORES = 1 << 20  # scores of one member: of more, a part of the rows decides the weights,
LEAST_ROWS = 1024  # at least so many of them
TEMPERATURE_SD = 0.25  # of the prior of log temperature: a handful of left-out scores says little about it
MOST_LOG_TEMPERATURE = 2.5


@dataclass(frozen=True, eq=False)
class Group:
    """Members that share one covariance of the labelled scores: R prior scales times n prior means.

    Arrays may have leading axes, one entry for each of several targets.

    Attributes
    ----------
    prior, covariance, smoothing
        Of the members; `smoothing` is the weight of neighbours in the rows that they are fitted to.
    columns : array (..., m, (H + 1) K + 1)
        S [T, h, 1] of the labelled rows that decide the weights: all, unless there are very many.
    residual : array (..., R, m, (H + 1) K + 1)
        P S [T, h, 1].
    precision : array (..., R, m)
        Diagonal of P.
    spectrum : tuple (basis (..., m, r), e (..., r)) or None
        U and e, or A E and e: what P consists of. None in a group that `without` made.
    rows : array (..., m, D) or None
        S z; None where `theta` is given.
    theta : array (R, D + 1, (H + 1) K + 1) or None
        Coefficients for the columns [T, h, 1] on rows `prior.root(z)`, where `residual` does not hold all rows.
    primal : bool
        Whether the eigenvalues are those of A'A.
    """

    prior: SourcePrior
    covariance: str
    smoothing: float
    columns: np.ndarray
    residual: np.ndarray
    precision: np.ndarray
    spectrum: tuple[np.ndarray, np.ndarray] | None
    rows: np.ndarray | None
    theta: np.ndarray | None = None
    primal: bool = False

    @classmethod
    def fitted(
        cls, prior: SourcePrior, covariance: str, smoothing: float, Z: np.ndarray, y: np.ndarray, c: np.ndarray
    ) -> Group:
        """From rows Z (..., M, D) of the prior's space, codes y (..., M) and weights c (..., M)."""
        root, columns = _columns(prior, Z, y, c)
        rows, p = Z * root[..., None], prior.penalties(covariance)
        primal = Z.ndim == 2 and Z.shape[0] > Z.shape[1] + 1
        if primal:
            A = root[:, None] * _features(prior, covariance, Z)
            e, E = np.linalg.eigh(A.T @ A)
            basis = A @ E
        else:
            G = prior.gram(Z, covariance) * root[..., None] * root[..., None, :]
            e, basis = np.linalg.eigh(G)
        e = np.maximum(e, 0.0)
        residual, precision = _solved(basis, e, p, columns, primal)
        return cls(prior, covariance, smoothing, columns, residual, precision, (basis, e), rows, primal=primal)

    @classmethod
    def fitted_to_many(
        cls, prior: SourcePrior, covariance: str, smoothing: float, Z: np.ndarray, y: np.ndarray, c: np.ndarray,
        at: np.ndarray,
    ) -> Group:  # fmt: skip
        """The same for more rows than features, where only the rows `at` decide the weights.

        All rows enter by their second moments and class sums: nothing of size (M, K) is made.
        """
        K, p = prior.n_classes, prior.penalties(covariance)
        extended = np.hstack([Z, np.ones((len(Z), 1))])
        weighted = extended * c[:, None]
        sums = np.zeros((K, extended.shape[1]))
        np.add.at(sums, y, weighted)
        total = sums.sum(axis=0)
        second = weighted.T @ extended
        T = _margin(prior) * (sums - total / K).T
        coef = prior.coef.reshape(-1, Z.shape[1])
        h = second[:, :-1] @ coef.T + np.outer(second[:, -1], prior.intercept)
        moved = _to_features(prior, covariance, np.hstack([T, h, second[:, -1:]]))
        gram = _to_features(prior, covariance, _to_features(prior, covariance, second).T)  # A'A
        e, E = np.linalg.eigh(gram)
        e = np.maximum(e, 0.0)
        theta = np.stack([E @ ((E.T @ moved) / (e + each)[:, None]) for each in p])
        root, columns = _columns(prior, Z[at], y[at], c[at])
        A = root[:, None] * _features(prior, covariance, Z[at])
        residual = (columns - A @ theta) / p[:, None, None]
        basis = A @ E
        precision = np.stack([(1.0 - basis**2 @ (1.0 / (e + each))) / each for each in p])
        return cls(prior, covariance, smoothing, columns, residual, precision, (basis, e), None, theta, primal=True)

    def prior_means(self, offset: np.ndarray, root: np.ndarray) -> np.ndarray:
        """The prior mean O for each member, (..., R, n, m, K), from log shares (..., K) and sqrt c (..., m)."""
        heads = self._split(self.columns / root[..., None])[1]
        mean = np.einsum("nh,...mhk->...nmk", self.prior.means, heads) + offset[..., None, None, :]
        return np.repeat(mean[..., None, :, :, :], self.precision.shape[-2], axis=-4)

    def left_out(self, offset: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Scores of each row by all others, (..., R, n, m, K)."""
        fixed, heads = self.parts(self.residual, offset)
        R = fixed[..., None, :, :] - np.einsum("nh,...mhk->...nmk", self.prior.means, heads)
        scale = np.maximum(self.precision, 1e-300) * root[..., None, :]
        T = self._split(self.columns / root[..., None])[0]
        return np.asarray(T[..., None, None, :, :] - R / scale[..., None, :, None])

    def _split(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What belongs to T, h and 1: (..., m, K), (..., m, H, K) and (..., m, 1)."""
        H, K = self.prior.intercept.shape
        heads = columns[..., K:-1].reshape(*columns.shape[:-1], H, K)
        return columns[..., :K], heads, columns[..., -1:]

    def parts(self, columns: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is linear in [T, h, 1]: that of T - offset, (..., R, m, K), and that of h, (..., R, m, H, K)."""
        T, heads, one = self._split(columns)
        return T - one * offset[..., None, None, :], heads

    def head(self, weights: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted sum of the members' heads on raw rows, (..., K, D) and (..., K); weights (..., R, n).

        Intercepts are relative to equally common classes.
        """
        prior = self.prior
        fixed, heads = self.parts(self.residual if self.theta is None else self.theta, offset)
        share, size = weights.sum(axis=-1), weights @ prior.means
        dual = np.einsum("...r,...rmk->...mk", share, fixed) - np.einsum("...rh,...rmhk->...mk", size, heads)
        across = np.swapaxes(dual, -1, -2)
        if self.rows is None:
            V = prior.root(across[..., :-1], self.covariance, adjoint=True)
            b = np.sqrt(prior.family.intercept) * across[..., -1]
        else:
            V = prior.apply(across @ self.rows, self.covariance)
            b = prior.family.intercept * (across @ self.columns[..., -1:])[..., 0]
        size = size.sum(axis=-2)
        mean = np.tensordot(size, prior.coef, 1), np.tensordot(size, prior.intercept, 1)
        return prior.to_input(V + mean[0], b + mean[1])

    def without(self, block: np.ndarray) -> tuple[Group, np.ndarray]:
        """The same members fitted without a block of rows; and what they predict of `columns` there, (R, b, ...)."""
        assert self.spectrum is not None
        basis, e = self.spectrum
        p = self.prior.penalties(self.covariance)
        filters = 1.0 / (e + p[:, None])
        rest = np.setdiff1d(np.arange(len(basis)), block)
        PB = (basis[block] * filters[:, None, :]) @ basis.T  # (R, b, m): P between the block and all rows
        if self.primal:
            PB = (np.eye(len(basis))[block] - PB) / p[:, None, None]
        solved = np.linalg.solve(PB[:, :, block], np.concatenate([self.residual[:, block], PB[:, :, rest]], axis=-1))
        n = self.residual.shape[-1]
        lost, across = solved[..., :n], PB[:, :, rest]
        residual = self.residual[:, rest] - np.swapaxes(across, -1, -2) @ lost
        precision = self.precision[:, rest] - np.einsum("rbm,rbm->rm", across, solved[..., n:])
        rows = None if self.rows is None else self.rows[rest]
        group = Group(
            self.prior, self.covariance, self.smoothing, self.columns[rest], residual, precision, None, rows, self.theta
        )
        return group, self.columns[block] - lost


@dataclass(frozen=True, eq=False)
class Average:
    """Members weighed by the left-out likelihood of the labels, and what they say together.

    Attributes
    ----------
    groups : list of Group
    y, c : arrays (..., m)
        Labels and weights of the rows that decide the weights.
    counts : array (..., K)
        Total weight of all labels of each class.
    weights : array (..., members)
        Of each group in turn, prior scales and prior means within it.
    left_out : array (..., m, K)
        Scores of each row without it: it has no influence on the weights either.
    log_likelihood : array (..., members)
        Mean over labels of the left-out log-likelihood.
    """

    groups: Sequence[Group]
    y: np.ndarray
    c: np.ndarray
    counts: np.ndarray
    weights: np.ndarray
    left_out: np.ndarray
    log_likelihood: np.ndarray

    @classmethod
    def of(
        cls, groups: Sequence[Group], y: np.ndarray, c: np.ndarray, counts: np.ndarray, alone: np.ndarray
    ) -> Average:
        """From labels y and weights c (..., m), and which of them are the only one of their class."""
        family = groups[0].prior.family
        offset, root = log_shares(counts), np.sqrt(c)
        F = np.concatenate([_flat(g.left_out(offset, root)) for g in groups], axis=-3)  # (..., members, m, K)
        votes = c[..., None, :] * _log_likelihood(F, y)
        if alone.any():
            means = np.concatenate([_flat(g.prior_means(offset, root)) for g in groups], axis=-3)
            votes = np.where(alone[..., None, :], c[..., None, :] * _log_likelihood(means, y), votes)
        # rows that decide the weights speak for all labels
        votes *= (counts.sum(axis=-1) / c.sum(axis=-1))[..., None, None]
        bonus = np.concatenate([np.tile(g.prior.means.any(axis=1), g.precision.shape[-2]) for g in groups])
        total = votes.sum(axis=-1) + family.source_bonus * bonus
        own = _softmax(family.sharpness, total[..., None, :] - np.swapaxes(votes, -1, -2))
        left_out = np.einsum("...mj,...jmk->...mk", own, F, optimize=True)
        mean = votes.sum(axis=-1) / counts.sum(axis=-1)[..., None]
        return cls(groups, y, c, counts, _softmax(family.sharpness, total), left_out, mean)

    def head(self, smoothing: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The average as one affine map on raw rows, (..., K, D) and (..., K), for equally common classes.

        With `smoothing`, the part of the members that were fitted to rows smoothed so much.
        """
        coef: np.ndarray | float = 0.0
        intercept: np.ndarray | float = 0.0
        for group, weights in self._by_group():
            if smoothing is None or group.smoothing == smoothing:
                V, b = group.head(weights, log_shares(self.counts))
                coef, intercept = coef + V, intercept + b
        return np.asarray(coef), np.asarray(intercept)

    def without(self, block: np.ndarray) -> tuple[Average, np.ndarray]:
        """The average without a block of rows, as a fit to the others has it, and its scores of the block, (b, K)."""
        rest = np.setdiff1d(np.arange(len(self.y)), block)
        counts = self.counts - np.bincount(self.y[block], self.c[block], len(self.counts))
        parts = [group.without(block) for group in self.groups]
        y, c = self.y[rest], self.c[rest]
        average = Average.of([group for group, _ in parts], y, c, counts, only_of_their_class(y, len(counts)))
        offset, root = log_shares(counts), np.sqrt(self.c[block])
        scores = np.zeros((len(block), len(counts)))
        for group, found, weights in zip(self.groups, (found for _, found in parts), average._weights_by_group()):
            fixed, heads = group.parts(found, offset)
            own = group._split(group.columns[block])[1]  # S h, which the prior means add back
            size = weights @ group.prior.means
            scores += np.einsum("r,rmk->mk", weights.sum(axis=-1), fixed) / root[:, None]
            scores += np.einsum("rh,rmhk->mk", size, own - heads) / root[:, None]
        return average, scores + offset

    def members(self) -> list[dict[str, Any]]:
        """Each member: what it is, its weight and its mean left-out log-likelihood."""
        found, n = [], iter(zip(self.weights, self.log_likelihood))
        for group in self.groups:
            for scale in group.prior.family.prior_scales:
                for mean in group.prior.means:
                    weight, value = map(float, next(n))
                    at = int(np.argmax(mean))
                    found.append(
                        {"covariance": group.covariance, "smoothing": group.smoothing, "prior_scale": scale,
                         "head": at, "mean_size": float(mean[at]), "weight": weight, "log_likelihood": value}
                    )  # fmt: skip
        return found

    def _weights_by_group(self) -> list[np.ndarray]:
        """Weights (..., R, n) of each group's members."""
        shapes = [(g.precision.shape[-2], len(g.prior.means)) for g in self.groups]
        ends = np.cumsum([r * s for r, s in shapes])
        return [
            self.weights[..., end - r * s : end].reshape(*self.weights.shape[:-1], r, s)
            for end, (r, s) in zip(ends, shapes)
        ]

    def _by_group(self) -> Iterator[tuple[Group, np.ndarray]]:
        return zip(self.groups, self._weights_by_group())


def average(
    priors: Sequence[SourcePrior],
    X: np.ndarray,
    y: np.ndarray,
    c: np.ndarray,
    smoothed: Sequence[tuple[float, np.ndarray]] | None = None,
) -> Average:
    """The averaged fit to labelled rows X (..., M, D) with codes y and weights c (..., M).

    `smoothed` has, for each weight of the neighbours, the labelled rows of the first prior's space as their neighbours
    among unlabelled rows smooth them: further members.
    """
    K = priors[0].n_classes
    at = rows_that_decide(priors[0], X, y)
    counts = _counts(y, c, K)
    alone = only_of_their_class(y, K)
    groups = []
    for prior in priors:
        versions = [(0.0, prior.rows(X))] if smoothed is None else smoothed
        for smoothing, Z in versions:
            for covariance in prior.family.covariances:
                if at is None:
                    groups.append(Group.fitted(prior, covariance, smoothing, Z, y, c))
                else:
                    groups.append(Group.fitted_to_many(prior, covariance, smoothing, Z, y, c, at))
    if at is not None:
        y, c, alone = y[at], c[at], alone[at]
    return Average.of(groups, y, c, counts, alone)


def temperature(F: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Scale t (...) of left-out scores F (..., m, K) that makes their labels most likely, under a log-normal prior.

    Newton steps for u = log t, kept inside a bracket of the root of
        slope(u) = sum_i c_i (sum_k p_ik t F_ik - t F_iy) + u / TEMPERATURE_SD^2,   p = softmax(t F).
    """
    own = np.take_along_axis(F, y[..., None], axis=-1)[..., 0]
    low, high = np.full(F.shape[:-2], -MOST_LOG_TEMPERATURE), np.full(F.shape[:-2], MOST_LOG_TEMPERATURE)
    u = np.zeros(F.shape[:-2])
    for _ in range(60):
        t = np.exp(u)[..., None]
        P = _softmax(1.0, t[..., None] * F)
        mean = (P * F).sum(axis=-1)
        excess = t * (mean - own)
        variance = t**2 * ((P * F**2).sum(axis=-1) - mean**2)
        slope = (c * excess).sum(axis=-1) + u / TEMPERATURE_SD**2
        curvature = (c * (excess + variance)).sum(axis=-1) + 1.0 / TEMPERATURE_SD**2
        low, high = np.where(slope < 0, u, low), np.where(slope < 0, high, u)
        step = u - slope / np.where(curvature > 0, curvature, 1.0)
        new = np.where((curvature > 0) & (step > low) & (step < high), step, 0.5 * (low + high))
        done = np.abs(new - u) < 1e-13
        u = new
        if done.all():
            break
    return np.asarray(np.exp(u))


def rows_that_decide(prior: SourcePrior, X: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Rows whose left-out scores weigh the members, where all would be too many to hold; None for all of them.

    They are spread evenly over classes and, within a class, over the score that the source head gives it: neither the
    order of the rows nor the names of the classes play a part.
    """
    K = prior.n_classes
    n = max(LEAST_ROWS, MOST_SCORES // K)
    if X.ndim > 2 or len(y) <= n or len(y) <= X.shape[1] + 1:
        return None
    own = prior.scores(prior.rows(X))[np.arange(len(y)), 0, y]
    mean = np.bincount(y, own, K) / np.maximum(np.bincount(y, minlength=K), 1)
    order = np.lexsort((own, mean[y]))
    return np.sort(order[np.linspace(0, len(y) - 1, n).round().astype(int)])


def only_of_their_class(y: np.ndarray, n_classes: int) -> np.ndarray:
    """Which labels (..., M) have a class of their own: without them nothing is left to learn that class from."""
    counts = _counts(y, np.ones(y.shape), n_classes)
    return np.asarray(np.take_along_axis(counts, y, axis=-1) == 1)


def _counts(y: np.ndarray, c: np.ndarray, n_classes: int) -> np.ndarray:
    """Total weight of each class, (..., K)."""
    counts = np.zeros((*y.shape[:-1], n_classes))
    flat, at, weight = counts.reshape(-1, n_classes), y.reshape(-1, y.shape[-1]), c.reshape(-1, y.shape[-1])
    for row, codes, w in zip(flat, at, weight):
        row += np.bincount(codes, w, n_classes)
    return counts


def _columns(prior: SourcePrior, Z: np.ndarray, y: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """sqrt c (..., M), and S [T, h, 1] (..., M, (H + 1) K + 1)."""
    K = prior.n_classes
    root = np.sqrt(c)
    T = _margin(prior) * (np.eye(K)[y] - 1.0 / K)
    heads = prior.scores(Z).reshape(*y.shape, -1)
    return root, root[..., None] * np.concatenate([T, heads, np.ones((*y.shape, 1))], axis=-1)


def _margin(prior: SourcePrior) -> float:
    return prior.family.margin * prior.unit


def _features(prior: SourcePrior, covariance: str, Z: np.ndarray) -> np.ndarray:
    """A (M, D + 1) with A A' the prior covariance of the scores; the last column is the intercept."""
    intercept = np.full((len(Z), 1), np.sqrt(prior.family.intercept))
    return np.hstack([prior.root(Z, covariance), intercept])


def _to_features(prior: SourcePrior, covariance: str, columns: np.ndarray) -> np.ndarray:
    """Z' x and 1' x (D + 1, k) as A' x."""
    return np.vstack([prior.root(columns[:-1].T, covariance).T, np.sqrt(prior.family.intercept) * columns[-1:]])


def _solved(
    basis: np.ndarray, e: np.ndarray, p: np.ndarray, columns: np.ndarray, primal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """P x for all columns x, (..., R, M, k), and the diagonal of P, (..., R, M)."""
    filters = 1.0 / (e[..., None, :] + p[:, None])  # (..., R, r)
    inside = filters[..., None] * (np.swapaxes(basis, -1, -2) @ columns)[..., None, :, :]
    residual = basis[..., None, :, :] @ inside
    precision = filters @ np.swapaxes(basis**2, -1, -2)
    if primal:
        residual = (columns[..., None, :, :] - residual) / p[:, None, None]
        precision = (1.0 - precision) / p[:, None]
    return residual, precision


def _flat(values: np.ndarray) -> np.ndarray:
    """(..., R, n, m, K) as (..., members, m, K)."""
    return values.reshape(*values.shape[:-4], -1, *values.shape[-2:])


def _log_likelihood(F: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of labels y (..., m) under scores F (..., members, m, K)."""
    own = np.take_along_axis(F, y[..., None, :, None], axis=-1)[..., 0]
    top = F.max(axis=-1)
    return np.asarray(own - top - np.log(np.exp(F - top[..., None]).sum(axis=-1)))


def _softmax(sharpness: float, score: np.ndarray) -> np.ndarray:
    """Weights from their logarithms along the last axis; infinite sharpness leaves only the largest."""
    behind = score - score.max(axis=-1, keepdims=True)
    weights = (behind == 0).astype(float) if np.isinf(sharpness) else np.exp(sharpness * behind)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
