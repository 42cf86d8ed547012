"""One affine head from a handful of labels: every prior of the family is fitted, weighed by leave-one-out, averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from pro2.linalg import losses
from pro2.linalg.family import Member
from pro2.linalg.labels import ClassShift, Labels
from pro2.linalg.loo import leave_one_out, log_likelihood
from pro2.linalg.mode import Mode, find_mode
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import SourcePrior
from pro2.linalg.rows import Rows, orthogonal

SCREEN_ROWS = 256  # priors are weighed on at most this many rows; the best are then fitted on all
MANY_CLASSES = 24  # where there are more,
SCREEN_CLASSES = 16  # this many stand for them
LARGE = 256  # rows times scores: beyond, a rough fit first tells which priors are hopeless
HOPELESS = 12.0  # nats behind the best
KEEP = 4  # priors that are fitted on all rows where there are more,
MOST_SCORES = 1 << 22  # and fewer where they would have more scores than that together
TOL = 1e-5  # of a mode: five digits of the scores
SCREEN_TOL = 3e-4  # enough to tell which priors are the best; ten times that is not, for the widest ones
GAIN_ROWS = 4096  # unlabelled rows that say how features vary: more would not change it
SPREAD = 0.5  # standard deviation of the log of the temperature before any label is seen,
WIDEST = 2.5  # and how far that may go


@dataclass(frozen=True, eq=False)
class AveragedHead:
    """The average of all priors on raw embeddings, and what each of them was worth.

    Attributes
    ----------
    coef, intercept : arrays (K', D), (K',)
        K' = 1, a difference of logits, for two classes.
    members : list of (scale name, Member)
    weights : array (J,)
        Sum one.
    loo : array (J,)
        Mean leave-one-out log-likelihood of a row.
    loo_scores : array (M, K')
        Leave-one-out logits of the average, weights included, at `temperature`.
    temperature : float
        What the averaged logits were multiplied by, so that probabilities are calibrated.
    shift : ClassShift
        What the intercept assumes about how common classes are.
    labels : Labels
        The rows of `loo_scores`.
    converged : bool
    standing : Standing
        What the labels say about each prior, of which some may not be among `members`.
    """

    coef: Array
    intercept: Array
    members: list[tuple[str, Member]]
    weights: np.ndarray
    loo: np.ndarray
    loo_scores: Array
    temperature: float
    shift: ClassShift
    labels: Labels
    converged: bool
    standing: Standing


class Standing(NamedTuple):
    """How well priors do on labelled rows that they have not seen.

    Attributes
    ----------
    members : list of (scale name, Member)
    trust : array (J,)
        Logarithms of their weights before any label.
    say : array (m, J)
        What each row adds to them: its leave-one-out log-likelihood.
    number : array (m,)
        Which of the caller's rows these are, see `Labels`.
    """

    members: list[tuple[str, Member]]
    trust: np.ndarray
    say: np.ndarray
    number: np.ndarray

    @property
    def score(self) -> np.ndarray:
        """Logarithms of the weights, (J,)."""
        return np.asarray(self.say.sum(axis=0) + self.trust)

    def best(self, number: np.ndarray, n: int) -> list[tuple[str, Member]]:
        """The n priors that these rows of the caller's would choose: rows that are left out have no say."""
        score = self.trust + self.say[np.isin(self.number, number)].sum(axis=0)
        return [self.members[i] for i in np.argsort(-score, kind="stable")[:n]]


def average_head(
    priors: Sequence[SourcePrior], labels: Labels, shift: ClassShift,
    members: Sequence[Sequence[Member]] | None = None, others: Array | None = None,
) -> AveragedHead:  # fmt: skip
    """Fit each member of each prior to the labels, and average the heads.

    Weights are exp(sum of leave-one-out log-likelihoods) (pseudo-Bayesian model averaging; Geisser & Eddy 1979; Yao
    et al. 2018) times (accuracy of the centre on the source)^trust: before any target label a source head counts as
    if it had been right on that many. Logits are averaged, not probabilities: the result is one affine map.
    """
    family = priors[0].family
    chosen = [family.members() for _ in priors] if members is None else [list(m) for m in members]
    gains = _gains(priors, labels, others)
    chosen, screened = _worth_fitting(priors, gains, chosen, labels, shift)
    blocks = _fit(priors, gains, chosen, labels, shift, None, TOL)
    standing = _standing(blocks, labels)
    weights = _normalised(standing.score, family.sharpness)
    # without the say of the row itself: what the average claims about it would be too good with it
    without = _normalised(standing.score - standing.say, family.sharpness)
    Y = losses.one_hot(labels.y, priors[0].n_classes, labels.X)
    xp = array_namespace(labels.X)
    apart = xp.asarray(without, dtype=labels.X.dtype, device=device(labels.X))
    scores = xp.sum(apart[..., None] * xp.concat([b.loo for b in blocks], axis=1), axis=1)
    t = temperature(scores, Y, labels.c)
    coef, intercept = _mixed(blocks, weights)
    intercept = t * (intercept + shift.labeled) - shift.labeled + shift.assumed
    return AveragedHead(
        coef=t * coef,
        intercept=intercept,
        members=standing.members,
        weights=weights,
        loo=standing.say.sum(axis=0) / host(labels.c).sum(),
        loo_scores=t * scores,
        temperature=t,
        shift=shift,
        labels=labels,
        converged=all(bool(xp.all(b.mode.converged)) for b in blocks),
        standing=screened or standing,
    )


class _Block(NamedTuple):
    """All members that share a scale and a covariance: one factorisation, one batch."""

    prior: SourcePrior
    gain: Array
    covariance: str
    members: list[Member]
    rows: Rows
    mode: Mode
    loo: Array
    likelihood: np.ndarray


def _gains(priors: Sequence[SourcePrior], labels: Labels, others: Array | None) -> list[Array]:
    """What features are damped by, for each prior, from all target rows."""
    X, weight = labels.X, labels.c
    if others is not None:
        xp = array_namespace(X)
        others = xp.astype(others[:: max(1, others.shape[0] // GAIN_ROWS), :], X.dtype)
        X = xp.concat([X, others])
        weight = xp.concat([weight, xp.ones(others.shape[0], dtype=X.dtype, device=device(X))])
    return [prior.gain(X, weight) for prior in priors]


def _worth_fitting(
    priors: Sequence[SourcePrior], gains: Sequence[Array], members: list[list[Member]], labels: Labels,
    shift: ClassShift,
) -> tuple[list[list[Member]], Standing | None]:  # fmt: skip
    """Members by prior that are fitted precisely; and how all did, where they were weighed on some rows."""
    if sum(map(len, members)) <= KEEP:
        return members, None
    few, classes = _screening_rows(priors[0], labels)
    if few is None and not _is_large(labels, priors[0]):
        return members, None
    some = labels if few is None else labels.take(few)
    blocks = _fit(priors, gains, members, some, shift, classes, SCREEN_TOL)
    standing = _standing(blocks, some)
    if few is None:
        keep = standing.score >= standing.score.max() - HOPELESS
    else:
        n_scores = labels.y.shape[0] * priors[0].heads.shape[1]
        keep = _best(standing.score, blocks, min(KEEP, max(1, MOST_SCORES // n_scores)))
    fitted = [(b.prior, m) for b in blocks for m in b.members]
    kept = [[m for (p, m), k in zip(fitted, keep) if k and p is prior] for prior in priors]
    return kept, None if few is None else standing


def _best(score: np.ndarray, blocks: Sequence[_Block], n: int) -> np.ndarray:
    """Which members are the n best, all of the one block with the largest weight: one factorisation of all rows."""
    block = np.repeat(np.arange(len(blocks)), [len(b.members) for b in blocks])
    best = np.argmax([np.logaddexp.reduce(score[block == i]) for i in range(len(blocks))])
    own = np.where(block == best, score, -np.inf)
    rank = np.argsort(np.argsort(-own, kind="stable"))
    return np.asarray((rank < n) & (own >= own.max() - 0.5 * HOPELESS))


def _is_large(labels: Labels, prior: SourcePrior) -> bool:
    """Whether arithmetic costs more than calls."""
    return bool(labels.y.shape[0] * prior.heads.shape[1] >= LARGE)


def _fit(
    priors: Sequence[SourcePrior], gains: Sequence[Array], chosen: Sequence[Sequence[Member]], labels: Labels,
    shift: ClassShift, classes: np.ndarray | None, tol: float,
) -> list[_Block]:  # fmt: skip
    """Modes and leave-one-out of all members, on some classes alone if asked for."""
    blocks = []
    for prior, gain, members in zip(priors, gains, chosen):
        Z = prior.rows(labels.X, gain)
        S = prior.scores(Z)
        for name in dict.fromkeys(m.covariance for m in members):
            own = [m for m in members if m.covariance == name]
            blocks.append(_fit_block(prior, gain, name, own, Z, S, labels, shift.labeled, classes, tol))
    return blocks


def _fit_block(
    prior: SourcePrior, gain: Array, covariance: str, members: list[Member], Z: Array, S: Array, labels: Labels,
    shift: Array, classes: np.ndarray | None, tol: float,
) -> _Block:  # fmt: skip
    xp = array_namespace(Z)
    offset = xp.stack([prior.centre_scores(S, m) + shift for m in members], axis=1)
    Y = losses.one_hot(labels.y, prior.n_classes, Z)
    if classes is not None:
        at = xp.asarray(classes, device=device(Z))
        offset, Y = xp.take(offset, at, axis=2), xp.take(Y, at, axis=1)
    rows = orthogonal(prior.features(Z, covariance), labels.c)
    precision = xp.asarray([prior.precision(m) for m in members], dtype=Z.dtype, device=device(Z))
    mode = find_mode(rows, Y, offset, precision, tol=tol, single=_is_large(labels, prior))
    loo = leave_one_out(rows, mode, Y, precision)
    # the only label of its class says nothing about how far labels reach: without it there is none to learn from
    alone = _alone(labels)[:, None, None]
    judged = alone * offset + (1.0 - alone) * loo
    return _Block(prior, gain, covariance, members, rows, mode, loo, host(log_likelihood(judged, Y)))


def _alone(labels: Labels) -> Array:
    """1 for the only row of a class, 0 for one that has no more than half of its weight; between them by its share."""
    xp = array_namespace(labels.X)
    y, c = host(labels.y), host(labels.c)
    share = c / np.bincount(y, weights=c)[y]
    return xp.asarray(np.maximum(2.0 * share - 1.0, 0.0), device=device(labels.X))


def _standing(blocks: Sequence[_Block], labels: Labels) -> Standing:
    """Of all members of the blocks, whose rows are `labels`."""
    members = [(b.prior, m) for b in blocks for m in b.members]
    trust = np.array([prior.family.trust * prior.log_accuracy(m) for prior, m in members])
    say = host(labels.c)[:, None] * np.concatenate([b.likelihood for b in blocks], axis=1)
    return Standing([(prior.name, m) for prior, m in members], trust, say, host(labels.number))


def _normalised(score: np.ndarray, sharpness: float) -> np.ndarray:
    """Weights from their logarithms along the last axis; infinite sharpness leaves only the largest."""
    behind = score - score.max(axis=-1, keepdims=True)
    weights = (behind == 0).astype(float) if np.isinf(sharpness) else np.exp(sharpness * behind)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _mixed(blocks: Sequence[_Block], weights: np.ndarray) -> tuple[Array, Array]:
    """Average of the heads on raw embeddings, relative to equally common classes; one product per block."""
    coef: Any = 0.0
    intercept: Any = 0.0
    start = 0
    for block in blocks:
        own = weights[start : start + len(block.members)]
        start += len(own)
        w, b = block.prior.to_input(*_mixed_block(block, own), block.gain)
        coef, intercept = coef + w, intercept + b
    return coef, intercept


def _mixed_block(block: _Block, weights: np.ndarray) -> tuple[Array, Array]:
    prior, B = block.prior, block.mode.B
    xp = array_namespace(B)
    w = xp.asarray(weights, dtype=B.dtype, device=device(B))
    theta, _ = block.rows.coefficients(xp.sum(w[None, :, None] * B, axis=1))
    coef, intercept = prior.head(theta, block.covariance)
    for member, weight in zip(block.members, weights.tolist()):
        size = weight * prior.centre_size(member)
        if size:
            at = prior.family.ridges.index(member.ridge)
            coef, intercept = coef + size * prior.heads[at, ...], intercept + size * prior.offsets[at, ...]
    return coef, intercept


def temperature(scores: Array, Y: Array, c: Array) -> float:
    """Scale of the logits that makes the left-out labels most likely, under a log-normal prior around 1.

    Where the slope of that, by the logarithm u of the scale, is zero; or the end of the range that it points to.
    """
    from scipy.optimize import brentq  # takes longer to import than all of the estimators

    xp = array_namespace(scores)

    def slope(u: float) -> float:
        F = float(np.exp(u)) * scores
        return float(xp.sum(c[:, None] * (losses.evaluate(F, Y)[1] - Y) * F)) + u / SPREAD**2

    if not slope(-WIDEST) < 0 < slope(WIDEST):
        return float(np.exp(WIDEST if slope(WIDEST) <= 0 else -WIDEST))
    return float(np.exp(brentq(slope, -WIDEST, WIDEST, xtol=1e-12)))


def _screening_rows(prior: SourcePrior, labels: Labels) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Rows, and classes if there are many, on which all priors are weighed; None where all are few enough.

    Rows are spread evenly by source logit within their class, and classes by its mean among those with labels: neither
    the order of the rows nor the names of the classes play a part.
    """
    y = host(labels.y)
    if len(y) <= SCREEN_ROWS and prior.n_classes <= MANY_CLASSES:
        return None, None
    S = host(prior.scores(labels.X / prior.scale - prior.centre)[:, 0, :])
    logit = S[:, 0] if prior.n_classes == 2 else S[np.arange(len(y)), y]
    some, many = np.unique(y), prior.n_classes > MANY_CLASSES
    if many:
        some = some[np.argsort([logit[y == k].mean() for k in some], kind="stable")]
        some = np.sort(some[np.linspace(0, len(some) - 1, min(len(some), SCREEN_CLASSES)).round().astype(int)])
    rows = []
    for k in some:
        own = np.flatnonzero(y == k)
        own = own[np.argsort(logit[own], kind="stable")]
        n = min(len(own), max(2, SCREEN_ROWS // len(some)))  # leaving one out of two needs two
        rows.append(own[np.linspace(0, len(own) - 1, n).round().astype(int)])
    return np.sort(np.concatenate(rows)), some if many else None
