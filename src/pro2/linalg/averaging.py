"""One affine head from a handful of labels: every prior of the family, weighted by its leave-one-out likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from pro2.linalg.laplace import LowRank, Mode, laplace_mode, log_likelihood
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import CANDIDATES, RIDGES, SHARPNESS, TRUST, Candidate, SourcePrior

ROWS = 128  # priors are weighed on at most this many rows (fewer for many classes); the best are then fitted on all
KEEP = 4  # priors kept when there are more rows; half as many for more classes, or more rows than features
BATCH = 1 << 22  # numbers in one batch of systems: 32 MB


@dataclass(frozen=True, eq=False)
class AveragedHead:
    """coef (D,) and intercept () for two classes, (K, D) and (K,) for more, in the space of the prior's moments.

    Attributes
    ----------
    candidates, weights, loo : tuple, array (C,), array (C,)
        The priors, their weights (sum one) and their mean leave-one-out log-likelihood per row.
    loo_scores : array (M,) or (M, K)
        Leave-one-out logits of the average, weights included, after `temperature`.
    temperature : float
        What the averaged logits were multiplied by, so that probabilities are calibrated.
    shares : array (K,)
        Class shares of the target that the intercept assumes (`SourcePrior.assumed_shares`).
    """

    coef: Array
    intercept: Array
    candidates: tuple[Candidate, ...]
    weights: np.ndarray
    loo: np.ndarray
    loo_scores: Array
    temperature: float
    shares: np.ndarray


def average_head(
    prior: SourcePrior, Z: Array, y: Array, sample_weight: Array | None = None,
    candidates: tuple[Candidate, ...] = CANDIDATES, *, trust: float = TRUST, pick: bool = False,
) -> AveragedHead:  # fmt: skip
    """Fit each prior to rows Z (M, D) with codes y (M,), and average the heads.

    Weights are the square (`SHARPNESS`) of exp(sum of leave-one-out log-likelihoods) (pseudo-Bayesian model averaging;
    Geisser & Eddy 1979; Yao et al. 2018) times (accuracy of the centre on the source)^trust: before any target label a
    source head counts as if it had been right on that many. Logits are averaged, not probabilities: the result is one
    affine map. `pick` takes the best prior alone, for comparison.
    """
    xp = array_namespace(Z)
    Z = xp.astype(Z, xp.float64)
    c = xp.ones(Z.shape[0], dtype=Z.dtype, device=device(Z))
    c = c if sample_weight is None else xp.astype(sample_weight, Z.dtype)
    shift, shares = _sampling_shift(prior, y, c)
    limit = int(ROWS / (prior.n_classes - 1) ** (1 / 3))
    if limit < Z.shape[0]:
        rows = _some_rows(host(y), host(prior.scores(Z)[:, 0, 0]), limit)
        at = xp.asarray(rows, device=device(Z))
        part = [xp.take(v, at, axis=0) for v in (Z, y, c)]
        _, _, score = _weigh(prior, part[0], part[1], part[2], shift, candidates, trust)
        kept = KEEP if prior.n_classes == 2 and Z.shape[0] <= Z.shape[1] else KEEP // 2
        candidates = tuple(candidates[i] for i in np.argsort(-score)[:kept])
    modes, likelihood, score = _weigh(prior, Z, y, c, shift, candidates, trust)
    weights = _normalised(score, pick)
    # a left-out row has no say in the weights either: without it, what the average claims would be too good
    without = _normalised(score[:, None] - SHARPNESS * likelihood, pick)
    apart = xp.asarray(without, dtype=Z.dtype, device=device(Z))
    scores = _flat(prior, sum(apart[i, :, None] * m.loo_scores for i, m in enumerate(modes)))
    loo = np.average(likelihood, axis=1, weights=host(c))
    t = _temperature(scores, y, c, prior.n_classes)
    coef, intercept = _mixed_head(prior, Z, candidates, weights, modes)
    coef, intercept = t * coef, t * (intercept + shift - coef @ prior.centre) - shift
    if prior.n_classes == 2:
        coef, intercept = coef[0, :], intercept[0]
    return AveragedHead(coef, intercept, candidates, weights, loo, t * scores, t, shares)


def _sampling_shift(prior: SourcePrior, y: Array, c: Array) -> tuple[Array, np.ndarray]:
    """Logits of labelled rows minus those of target rows, (K'), for how labels were drawn; shares assumed, (K,)."""
    xp = array_namespace(c)
    counts = np.bincount(host(y), weights=host(c), minlength=prior.n_classes) + 0.5
    labeled = counts / counts.sum()
    assumed = prior.assumed_shares(labeled)
    shift = np.log(labeled / assumed)
    shift = shift[1:] - shift[:1] if prior.n_classes == 2 else shift - shift.mean()
    return xp.asarray(shift, dtype=prior.offsets.dtype, device=device(c)), assumed


def _weigh(
    prior: SourcePrior, Z: Array, y: Array, c: Array, shift: Array, candidates: tuple[Candidate, ...], trust: float
) -> tuple[list[Mode], np.ndarray, np.ndarray]:
    """Modes of the candidates, leave-one-out log-likelihoods (C, M), and logarithms of the weights (C,)."""
    modes = fit_candidates(prior, Z, y, c, candidates, shift)
    likelihood = np.stack([host(log_likelihood(_flat(prior, m.loo_scores), y, prior.n_classes)) for m in modes])
    centres = np.array([prior.log_accuracy(k) for k in candidates])
    return modes, likelihood, SHARPNESS * (likelihood @ host(c) + trust * centres)


def _normalised(score: np.ndarray, pick: bool) -> np.ndarray:
    """Weights from their logarithms along the first axis: they sum to one; `pick` leaves only the largest."""
    top = score.max(axis=0)
    weights = (score == top).astype(float) if pick else np.exp(score - top)
    return np.asarray(weights / weights.sum(axis=0))


def fit_candidates(
    prior: SourcePrior, Z: Array, y: Array, c: Array, candidates: tuple[Candidate, ...], shift: Array | float = 0.0
) -> list[Mode]:
    """The mode under each prior, arrays (M, K'), in one batch; `shift` (K') is added to the prior mean of scores."""
    xp = array_namespace(Z)
    S, tol = prior.scores(Z), _tolerance(prior.n_classes)
    few = Z.shape[0] <= Z.shape[1] + 1
    size = max(1, BATCH // (Z.shape[0] ** 2 * S.shape[2])) if few else 1
    grams = prior.grams(Z) if few else {}
    modes = []
    for start in range(0, len(candidates), size):
        part = candidates[start : start + size]
        offset = xp.stack([prior.centre_scores(S, k) + shift for k in part])
        offset = offset[..., 0] if prior.n_classes == 2 else offset
        K: Any = (
            xp.stack([prior.variance(k) * grams[k.kernel] for k in part])
            if few
            else LowRank(prior.variance(part[0]) ** 0.5 * prior.features(Z, part[0].kernel))
        )
        mode = laplace_mode(K, offset, y, c, prior.n_classes, tol=tol)
        modes += [Mode(*(_columns(prior, v[i, ...]) for v in mode)) for i in range(len(part))]
    return modes


def _mixed_head(
    prior: SourcePrior, Z: Array, candidates: tuple[Candidate, ...], weights: np.ndarray, modes: list[Mode]
) -> tuple[Array, Array]:
    """Average of the heads, (K', D) and (K') at the centre; one product per kernel, not per prior."""
    coef, intercept = 0.0 * prior.heads[0, ...], 0.0 * prior.offsets[0, ...]
    pulls: dict[str, Array] = {}
    half = 1.0 if prior.n_classes == 2 else 0.5  # prior covariance of one class, as in laplace_mode
    for k, w, mode in zip(candidates, weights.tolist(), modes):
        dual = (w * half * prior.variance(k)) * mode.alpha
        pulls[k.kernel] = pulls[k.kernel] + dual if k.kernel in pulls else dual
        if k.ridge is not None:
            r, size = RIDGES.index(k.ridge), w * prior.centre_size(k)
            coef, intercept = coef + size * prior.heads[r, ...], intercept + size * prior.offsets[r, ...]
    for kernel, dual in pulls.items():
        more, constant = prior.head_from_dual(Z, kernel, dual)
        coef, intercept = coef + more, intercept + constant
    return coef, intercept


def _temperature(scores: Array, y: Array, c: Array, n_classes: int) -> float:
    """Scale of the logits that makes the left-out labels most likely, under a log-normal prior around 1."""
    xp = array_namespace(scores)
    grid = np.exp(np.linspace(-2.5, 2.5, 101))
    likelihood = np.array([float(xp.sum(c * log_likelihood(float(t) * scores, y, n_classes))) for t in grid])
    value = likelihood - 0.5 * (np.log(grid) / 0.5) ** 2
    return float(grid[int(np.argmax(value))])


def _some_rows(y: np.ndarray, logit: np.ndarray, limit: int) -> np.ndarray:
    """About `limit` row indices, evenly spaced by source logit within each class: the order of rows plays no part."""
    rows = []
    for k in np.unique(y):
        own = np.flatnonzero(y == k)
        own = own[np.argsort(logit[own], kind="stable")]
        n = min(len(own), max(2, round(limit * len(own) / len(y))))  # leaving one out of two needs two
        rows.append(own[np.linspace(0, len(own) - 1, n).round().astype(int)])
    return np.sort(np.concatenate(rows))


def _tolerance(n_classes: int) -> float:
    """Two classes converge quadratically; for many, more digits than predictions need would cost most of the time."""
    return 1e-7 if n_classes == 2 else 1e-5 if n_classes <= 10 else 1e-3


def _columns(prior: SourcePrior, v: Array) -> Array:
    return v[:, None] if prior.n_classes == 2 else v


def _flat(prior: SourcePrior, v: Any) -> Any:
    return v[:, 0] if prior.n_classes == 2 else v
