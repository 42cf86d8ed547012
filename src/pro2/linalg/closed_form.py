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

A member has the weight exp(sharpness * (sum of c_i log-likelihood of label i without row i + what it starts with)): a
bonus for a source head, less for rows that unlabelled neighbours smooth. A class without labels keeps its prior mean in
every member. Averages of this kind are due to Geisser & Eddy (1979); see Yao et al. (2018) and, for ridge regression,
Dempster et al. (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pro2.linalg.arrays import stacked
from pro2.linalg.labelled import log_shares
from pro2.linalg.prior import SourcePrior

MOST_SCORES = 1 << 20  # scores of one member: of more, a part of the rows decides the weights,
LEAST_ROWS = 1024  # at least so many of them
SMOOTHED = -0.5  # log-likelihood that members on smoothed rows start with: neighbours need not share a label
TEMPERATURE_SD = 0.25  # of the prior of log temperature: a handful of left-out scores says little about it
MOST_LOG_TEMPERATURE = 2.5
DOUBT = 1.0  # labels that are evenly spread over the classes: n right answers do not promise the next (Platt 1999)


@dataclass(frozen=True, eq=False)
class Sums:
    """All rows of a fit by their second moments and class sums: nothing of size (M, K) is made."""

    prior: SourcePrior
    second: np.ndarray  # (D + 1, D + 1), of rows z, extended by one, with their weights
    by_class: np.ndarray  # (K, D + 1), weighted sums of these

    @classmethod
    def of(cls, prior: SourcePrior, Z: np.ndarray, y: np.ndarray, c: np.ndarray) -> Sums:
        K, D = prior.n_classes, Z.shape[1]
        rows = np.sqrt(c)[:, None] * Z
        by_class = np.column_stack([csr_array((c, (y, np.arange(len(y)))), (K, len(y))) @ Z, np.bincount(y, c, K)])
        second, total = np.empty((D + 1, D + 1)), by_class.sum(axis=0)
        second[:-1, :-1], second[-1], second[:, -1] = rows.T @ rows, total, total
        return cls(prior, second, by_class)

    def gram(self, covariance: str) -> np.ndarray:
        """A'A (D + 1, D + 1)."""
        return self._features(self._features(self.second, covariance).T, covariance)

    def columns(self, covariance: str) -> np.ndarray:
        """A'S [T, h, 1], (D + 1, (H + 1) K + 1)."""
        second, K = self.second, len(self.by_class)
        T = _margin(self.prior) * (self.by_class - self.by_class.sum(axis=0) / K)
        heads = stacked(self.prior.coef) @ second[:-1] + np.outer(self.prior.intercept, second[-1])
        return self._features(np.vstack([T, heads, second[-1:]]), covariance).T

    def _features(self, rows: np.ndarray, covariance: str) -> np.ndarray:
        root = math.sqrt(self.prior.family.intercept)
        return np.column_stack([self.prior.root(rows[:, :-1], covariance), root * rows[:, -1]])


@dataclass(frozen=True, eq=False)
class Group:
    """Members that share one covariance of the labelled scores: R prior scales times n prior means.

    Arrays may have leading axes, one entry for each of several targets. They hold the m labelled rows that decide the
    weights: all, unless there are very many. The coefficients then follow from `whole`, as `residual` lacks some rows.
    """

    prior: SourcePrior
    covariance: str
    smoothing: float  # weight of neighbours in the rows that the members are fitted to
    columns: np.ndarray  # (..., m, (H + 1) K + 1), S [T, h, 1]
    residual: np.ndarray  # (..., R, m, (H + 1) K + 1), P S [T, h, 1]
    precision: np.ndarray  # (..., R, m), the diagonal of P
    features: np.ndarray  # (..., m, D + 1), A: the rows in coordinates whose inner products are S G S
    spectrum: tuple[np.ndarray, np.ndarray] | None = None  # U (..., m, r) or A E, and e (..., r); not after `without`
    primal: bool = False  # whether the eigenvalues are those of A'A
    whole: tuple[np.ndarray, np.ndarray] | None = None  # E (D + 1, r), and E'A'S [T, h, 1] of all rows

    @classmethod
    def fitted(
        cls, prior: SourcePrior, covariance: str, smoothing: float, W: np.ndarray, root: np.ndarray,
        columns: np.ndarray, sums: Sums | None = None,
    ) -> Group:  # fmt: skip
        """From rows W = S Z (..., M, D) of the prior's space, sqrt c (..., M) and S [T, h, 1].

        With the sums of more rows, these enter the fits, and the others decide only the weights.
        """
        A = prior.features(W, covariance, root)
        primal = W.ndim == 2 and (sums is not None or W.shape[0] > W.shape[1] + 1)
        if not primal:
            e, basis = np.linalg.eigh(A @ np.swapaxes(A, -1, -2))
            inside = np.swapaxes(basis, -1, -2) @ columns
        else:
            e, E = np.linalg.eigh(A.T @ A if sums is None else sums.gram(covariance))
            basis = A @ E
            inside = basis.T @ columns if sums is None else E.T @ sums.columns(covariance)
        e = np.maximum(e, 0.0)
        p = prior.penalties(covariance)
        filters = 1.0 / (e[..., None, :] + p[:, None])  # (..., R, r)
        residual = basis[..., None, :, :] @ (filters[..., None] * inside[..., None, :, :])
        precision = filters @ np.swapaxes(basis**2, -1, -2)
        if primal:
            residual = (columns[..., None, :, :] - residual) / p[:, None, None]
            precision = (1.0 - precision) / p[:, None]
        precision = np.maximum(precision, filters.min(axis=-1, keepdims=True))  # by rounding, of very large weights
        whole = None if sums is None else (E, inside)
        return cls(prior, covariance, smoothing, columns, residual, precision, A, (basis, e), primal, whole)

    def log_prior(self) -> np.ndarray:
        """What the members start with, (R n,): the bonus of a source head, and less for smoothed rows."""
        heads = np.tile(self.prior.means.any(axis=1), self.precision.shape[-2])
        return np.asarray(self.prior.family.source_bonus * heads + SMOOTHED * (self.smoothing > 0))

    def prior_means(self, offset: np.ndarray, root: np.ndarray) -> np.ndarray:
        """The prior mean O for each member, (..., R, n, m, K), from log shares (..., K) and sqrt c (..., m)."""
        heads = self._split(self.columns / root[..., None])[1]
        mean = np.einsum("nh,...mhk->...nmk", self.prior.means, heads) + offset[..., None, None, :]
        return np.repeat(mean[..., None, :, :, :], self.precision.shape[-2], axis=-4)

    def left_out(self, offset: np.ndarray, root: np.ndarray, labelled: np.ndarray | None = None) -> np.ndarray:
        """Scores of each row by all others, (..., R, n, m, K)."""
        fixed, heads = self.parts(self.residual, offset, labelled)
        scale = self.precision * root[..., None, :]
        T = self._split(self.columns)[0] / root[..., None] + self._centring(labelled)[..., None, :]
        F = (T[..., None, :, :] - fixed / scale[..., None])[..., None, :, :]
        for h, sizes in enumerate(self.prior.means.T):
            F = F + sizes[:, None, None] * (heads[..., h, :] / scale[..., None])[..., None, :, :]
        if labelled is not None:
            F = np.where(labelled[..., None, None, None, :], F, self.prior_means(offset, root))
        return np.asarray(F)

    def _split(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What belongs to T, h and 1: (..., m, K), (..., m, H, K) and (..., m, 1)."""
        H, K = self.prior.intercept.shape
        heads = columns[..., K:-1].reshape(*columns.shape[:-1], H, K)
        return columns[..., :K], heads, columns[..., -1:]

    def parts(
        self, columns: np.ndarray, offset: np.ndarray, labelled: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is linear in [T, h, 1]: that of T - offset, (..., R, m, K), and that of h, (..., R, m, H, K).

        Classes that are not `labelled` (..., K) keep their prior mean, and T is centred over the others: labels of some
        classes say nothing about rows of the rest.
        """
        T, heads, one = self._split(columns)
        fixed = T - one * (offset - self._centring(labelled))[..., None, None, :]
        if labelled is None:
            return fixed, heads
        return fixed * labelled[..., None, None, :], heads * labelled[..., None, None, None, :]

    def _centring(self, labelled: np.ndarray | None) -> np.ndarray:
        """What centres T over the classes that have labels, (..., K)."""
        K = self.prior.n_classes
        if labelled is None:
            return np.zeros(K)
        share = 1.0 / labelled.sum(axis=-1, keepdims=True)
        return np.asarray(_margin(self.prior) * (1.0 / K - share) * labelled)

    def head(
        self, weights: np.ndarray, offset: np.ndarray, labelled: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weighted sum of the members' heads on raw rows, (..., K, D) and (..., K); weights (..., R, n).

        Intercepts are relative to equally common classes.
        """
        prior, A, dual = self.prior, self.features, self.residual
        if self.whole is not None and self.spectrum is not None:
            E, inside = self.whole
            A, dual = E.T, inside / (self.spectrum[1] + prior.penalties(self.covariance)[:, None])[..., None]
        fixed, heads = self.parts(dual, offset, labelled)
        share, size = weights.sum(axis=-1), weights @ prior.means
        dual = np.einsum("...r,...rmk->...km", share, fixed) - np.einsum("...rh,...rmhk->...km", size, heads)
        V, b = prior.head(dual @ A, self.covariance)
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
        precision = np.maximum(precision, filters.min(axis=-1, keepdims=True))
        parts = self.columns[rest], residual, precision, self.features[rest]
        return Group(self.prior, self.covariance, self.smoothing, *parts), self.columns[block] - lost


@dataclass(frozen=True, eq=False)
class Average:
    """Members weighed by the left-out likelihood of the labels, and what they say together."""

    groups: Sequence[Group]
    y: np.ndarray  # (..., m), labels of the rows that decide the weights
    c: np.ndarray  # (..., m), their weights
    counts: np.ndarray  # (..., K), total weight of all labels of each class
    weights: np.ndarray  # (..., members), of each group in turn, prior scales and prior means within it
    left_out: np.ndarray  # (..., m, K), scores of each row without it: it has no influence on the weights either
    log_likelihood: np.ndarray  # (..., members), mean over labels of the left-out log-likelihood

    @classmethod
    def of(
        cls, groups: Sequence[Group], y: np.ndarray, c: np.ndarray, counts: np.ndarray, alone: np.ndarray
    ) -> Average:
        """From labels y and weights c (..., m), and which of them are the only one of their class."""
        family = groups[0].prior.family
        offset, root = log_shares(counts), np.sqrt(c)
        labelled = with_labels(counts)
        scores = [_flat(g.left_out(offset, root, labelled)) for g in groups]  # each (..., members, m, K)
        judged = scores
        if alone.any():
            means = [_flat(g.prior_means(offset, root)) for g in groups]
            # Without its only label, a class is like others that have none, and keeps its prior mean. Where all classes
            # have labels, nothing is like that, and the label is judged by the prior mean of all scores.
            some_lack = np.asarray(np.zeros(y.shape[:-1], bool) if labelled is None else ~labelled.all(axis=-1))
            lost = (alone & some_lack[..., None])[..., None] & (y[..., None] == np.arange(counts.shape[-1]))
            scores = [np.where(lost[..., None, :, :], mean, F) for mean, F in zip(means, scores)]
            by_mean = (alone & ~some_lack[..., None])[..., None, :, None]
            judged = [np.where(by_mean, mean, F) for mean, F in zip(means, scores)]
        found = np.concatenate([_log_likelihood(F, y) for F in judged], axis=-2)
        # rows that decide the weights speak for all labels
        speaks_for = counts.sum(axis=-1) / c.sum(axis=-1)
        votes = speaks_for[..., None, None] * c[..., None, :] * found
        total = votes.sum(axis=-1) + np.concatenate([g.log_prior() for g in groups])
        own = _softmax(family.sharpness, total[..., None, :] - np.swapaxes(votes, -1, -2))
        ends = np.cumsum([F.shape[-3] for F in scores])[:-1]
        parts = zip(np.split(own, ends, axis=-1), scores)
        left_out = sum(np.einsum("...mj,...jmk->...mk", share, F, optimize=True) for share, F in parts)
        mean = votes.sum(axis=-1) / counts.sum(axis=-1)[..., None]
        return cls(groups, y, c, counts, _softmax(family.sharpness, total), np.asarray(left_out), mean)

    def head(self, smoothing: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The average as one affine map on raw rows, (..., K, D) and (..., K), for equally common classes.

        With `smoothing`, the part of the members that were fitted to rows smoothed so much.
        """
        coef: np.ndarray | float = 0.0
        intercept: np.ndarray | float = 0.0
        for group, weights in zip(self.groups, self._weights_by_group()):
            if smoothing is None or group.smoothing == smoothing:
                V, b = group.head(weights, log_shares(self.counts), with_labels(self.counts))
                coef, intercept = coef + V, intercept + b
        return np.asarray(coef), np.asarray(intercept)

    def without(self, block: np.ndarray) -> tuple[Average, np.ndarray]:
        """The average without a block of rows, as a fit to the others has it, and its scores of the block, (b, K)."""
        rest = np.setdiff1d(np.arange(len(self.y)), block)
        counts = self.counts - np.bincount(self.y[block], self.c[block], len(self.counts))
        parts = [group.without(block) for group in self.groups]
        y, c = self.y[rest], self.c[rest]
        average = Average.of([group for group, _ in parts], y, c, counts, only_of_their_class(y, len(counts)))
        offset, root, labelled = log_shares(counts), np.sqrt(self.c[block]), with_labels(counts)
        scores = np.zeros((len(block), len(counts)))
        for group, found, weights in zip(self.groups, (found for _, found in parts), average._weights_by_group()):
            fixed, heads = group.parts(found, offset, labelled)
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


def average(
    priors: Sequence[SourcePrior], X: np.ndarray, y: np.ndarray, c: np.ndarray,
    smoothed: Callable[[SourcePrior], Sequence[tuple[float, np.ndarray]]] | None = None,
) -> Average:  # fmt: skip
    """The averaged fit to labelled rows X (..., M, D) with codes y and weights c (..., M).

    `smoothed` gives, for each weight of the neighbours, the labelled rows in the space of a prior as their neighbours
    among unlabelled rows smooth them: further members.
    """
    K = priors[0].n_classes
    at = rows_that_decide(priors[0], X, y)
    counts = _counts(y, c, K)
    own_y, own_c, alone = (v if at is None else v[at] for v in (y, c, only_of_their_class(y, K)))
    groups: list[Group] = []
    for prior in priors:
        for smoothing, Z in [(0.0, prior.rows(X))] if smoothed is None else smoothed(prior):
            sums = None if at is None else Sums.of(prior, Z, y, c)
            Z = Z if at is None else Z[at]
            root, columns = fit_columns(prior, Z, own_y, own_c)
            W = root[..., None] * Z
            groups += [
                Group.fitted(prior, name, smoothing, W, root, columns, sums) for name in prior.family.covariances
            ]
    return Average.of(groups, own_y, own_c, counts, alone)


def temperature(F: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Scale t (...) of left-out scores F (..., m, K) that makes their labels most likely, under a log-normal prior.

    The labels are one-hot vectors q_i mixed with an even distribution, which has the weight DOUBT in all. Newton steps
    for u = log t, kept inside a bracket of the root of
        slope(u) = sum_i c_i t sum_k (p_ik - q_ik) F_ik + u / TEMPERATURE_SD^2,   p = softmax(t F).
    """
    own = np.take_along_axis(F, y[..., None], axis=-1)[..., 0]
    n = c.sum(axis=-1, keepdims=True)
    own = (n * own + DOUBT * F.mean(axis=-1)) / (n + DOUBT)
    c = c * (n + DOUBT) / n
    low, high = np.full(F.shape[:-2], -MOST_LOG_TEMPERATURE), np.full(F.shape[:-2], MOST_LOG_TEMPERATURE)
    u = np.zeros(F.shape[:-2])
    for _ in range(60):
        t = np.exp(u)[..., None]
        P = _softmax(1.0, t[..., None] * F)
        mean = (P * F).sum(axis=-1)
        excess = t * (mean - own)
        with np.errstate(over="ignore", invalid="ignore"):  # of scores beyond 1e150: then the bracket is halved
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
    coef, intercept = prior.to_input(prior.coef[0], prior.intercept[0])
    own = np.empty(len(y))
    for k in range(K):
        own[y == k] = X[y == k] @ coef[k] + intercept[k]
    mean = np.bincount(y, own, K) / np.maximum(np.bincount(y, minlength=K), 1)
    order = np.lexsort((own, mean[y]))
    return np.sort(order[np.linspace(0, len(y) - 1, n).round().astype(int)])


def with_labels(counts: np.ndarray) -> np.ndarray | None:
    """Which classes have labels, (..., K) of bool; None if all have, and all where only one has."""
    labelled = counts > 0
    labelled |= np.count_nonzero(labelled, axis=-1, keepdims=True) < 2
    return None if labelled.all() else labelled


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


def fit_columns(prior: SourcePrior, Z: np.ndarray, y: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """sqrt c (..., M), and S [T, h, 1] (..., M, (H + 1) K + 1)."""
    K = prior.n_classes
    root = np.sqrt(c)
    T = _margin(prior) * (np.eye(K)[y] - 1.0 / K)
    heads = prior.scores(Z).reshape(*y.shape, -1)
    return root, root[..., None] * np.concatenate([T, heads, np.ones((*y.shape, 1))], axis=-1)


def _margin(prior: SourcePrior) -> float:
    return prior.family.margin * prior.unit


def _flat(values: np.ndarray) -> np.ndarray:
    """(..., R, n, m, K) as (..., members, m, K)."""
    return values.reshape(*values.shape[:-4], -1, *values.shape[-2:])


def _log_likelihood(F: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of labels y (..., m) under scores F (..., members, m, K)."""
    own = np.take_along_axis(F, y[..., None, :, None], axis=-1)[..., 0]
    top = F.max(axis=-1)
    rest = F - top[..., None]
    return np.asarray(own - top - np.log(np.exp(rest, out=rest).sum(axis=-1)))


def _softmax(sharpness: float, score: np.ndarray) -> np.ndarray:
    """Weights from their logarithms along the last axis; infinite sharpness leaves only the largest."""
    behind = score - score.max(axis=-1, keepdims=True)
    weights = (behind == 0).astype(float) if np.isinf(sharpness) else np.exp(sharpness * behind)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
