"""What unlabelled target rows add: neighbours tend to have the same label, where the labels say that they do.

Probabilities of the adapted head spread over a graph of neighbours, and are mixed with the head's own. How much is
decided by cross-validation on the labelled rows, with a prior that goes by how much neighbours get the same answer:
where answers are rough on the graph, it is a graph of something else than the label. The mixture is then fitted by
one affine map, which starts from the head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from pro2.estimators.adaptation import Default
from pro2.linalg import losses
from pro2.linalg.average import AveragedHead, Labels, temperature
from pro2.linalg.graph import neighbour_graph, smoothness, spread
from pro2.linalg.mode import find_mode, orthogonal
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import Member, SourcePrior

ROWS = 4096  # unlabelled rows in the graph; the others get the answers of the affine map
ALPHA = 0.8
FOLDS = 4
# Prior log-odds of the graph are SLOPE (smoothness - EVEN). Settled on Living, Waterbirds, CelebA (two of the five) and
# Collages: where neighbours mislead (CelebA balanced) smoothness is 0.3 to 0.6, where they help 0.6 to 0.8.
SLOPE, EVEN = 10.0, 0.7
NEGLIGIBLE = 0.02  # weight of the graph below which the head stays as it is
TOL = 1e-3


@dataclass(frozen=True, eq=False)
class Transduced:
    """The head after hearing unlabelled rows.

    Attributes
    ----------
    coef, intercept : arrays (K', D), (K')
    rows : array of int
        The unlabelled rows of the graph.
    proba : array (n, K)
        Their class probabilities, better than those of the affine map.
    weight : float in [0, 1]
        Of the graph in them.
    """

    coef: Array
    intercept: Array
    rows: np.ndarray
    proba: np.ndarray
    weight: float


def transduce(how: Default, head: AveragedHead, labels: Labels, U: Array) -> Transduced:
    """Let unlabelled rows U (n, D) speak."""
    rows = np.unique(np.linspace(0, U.shape[0] - 1, min(ROWS, U.shape[0])).round().astype(int))
    X = np.concatenate([host(labels.X), host(U[rows, :]).astype(np.float64)])
    y, prior = host(labels.y), how.priors[0]
    everywhere = np.ones(len(X))
    Z = host(prior.rows(_like(X, labels), prior.gain(_like(X, labels), _like(everywhere, labels))))
    S = neighbour_graph(Z)
    P = _proba(X, head.coef, head.intercept)
    evidence, sharpness = _cross_validated(how, head, labels, X, S)
    odds = evidence + SLOPE * (smoothness(S, P) - EVEN)
    weight = 1.0 / (1.0 + math.exp(-min(max(odds, -50.0), 50.0)))
    mixed = weight * _sharpened(_heard(S, P, y), sharpness) + (1.0 - weight) * P
    coef, intercept = head.coef, head.intercept
    if weight > NEGLIGIBLE:
        coef, intercept = _affine(prior, Z, mixed, y, X, head, labels)
    return Transduced(coef, intercept, rows, mixed[len(y) :], weight)


def _like(values: np.ndarray, labels: Labels) -> Array:
    xp = array_namespace(labels.X)
    return xp.asarray(values, device=device(labels.X))


def _proba(X: np.ndarray, coef: Array, intercept: Array) -> np.ndarray:
    return np.asarray(losses.probabilities(X @ host(coef).T + host(intercept)))


def _heard(S: Any, P: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Probabilities after spreading; the first rows have labels y (or -1)."""
    start = P.copy()
    known = np.flatnonzero(y >= 0)
    start[known] = np.eye(P.shape[1])[y[known]]
    return spread(S, start, ALPHA)


def _cross_validated(how: Default, head: AveragedHead, labels: Labels, X: np.ndarray, S: Any) -> tuple[float, float]:
    """Log-likelihood of left-out labels with the graph minus that without it; and the temperature of the graph."""
    y, K = host(labels.y), how.priors[0].n_classes
    fold = _folds(y)
    alone, heard = np.full((len(y), K), 1.0 / K), np.full((len(y), K), 1.0 / K)
    for f in np.unique(fold):
        out = fold == f
        if out.all():
            continue
        P = _proba(X, *how.refit(labels.take(np.flatnonzero(~out)), head))
        alone[out] = P[: len(y)][out]
        heard[out] = _heard(S, P, np.where(out, -1, y))[: len(y)][out]
    Y, c = losses.one_hot(y, K, heard), host(labels.c)
    each = []
    for P in (alone, heard):
        F = np.log(np.maximum(P, 1e-12))
        F = F[:, 1:] - F[:, :1] if K == 2 else F
        t = temperature(F, Y, c)
        each.append((-float(c @ losses.evaluate(t * F, Y)[0]), t))
    return each[1][0] - each[0][0], each[1][1]


def _folds(y: np.ndarray) -> np.ndarray:
    """Fold of each row: rows of a class are dealt in turn, classes begin at different folds."""
    fold = np.zeros(len(y), dtype=int)
    for k in np.unique(y):
        at = np.flatnonzero(y == k)
        fold[at] = (np.arange(len(at)) + k) % FOLDS
    return fold


def _sharpened(P: np.ndarray, t: float) -> np.ndarray:
    P = P**t
    return np.asarray(P / P.sum(axis=1, keepdims=True))


def _affine(
    prior: SourcePrior, Z: np.ndarray, mixed: np.ndarray, y: np.ndarray, X: np.ndarray, head: AveragedHead,
    labels: Labels,
) -> tuple[Array, Array]:  # fmt: skip
    """One affine map whose probabilities are closest to the mixture's, held near the head by the flat prior.

    All rows together count as much as the labels do.
    """
    K = mixed.shape[1]
    target = mixed.copy()
    target[: len(y)] = np.eye(K)[y]
    gain = prior.gain(_like(X, labels), _like(np.ones(len(X)), labels))
    rows = orthogonal(prior.features(_like(Z, labels), 0.0), _like(np.full(len(Z), len(y) / len(Z)), labels))
    offset = _like(X @ host(head.coef).T + host(head.intercept), labels)
    Y = _like(target[:, 1:] if K == 2 else target, labels)
    precision = prior.precision(Member(0.0, max(prior.family.reaches), 0.0, math.inf))
    mode = find_mode(rows, Y, offset[:, None, :], _like(np.array([precision]), labels), tol=TOL)
    xp = array_namespace(labels.X)
    theta, _ = rows.coefficients(mode.B[:, 0, :])
    coef = prior.spread(xp.matrix_transpose(theta[:-1, :]), 0.0)
    change, shift = prior.to_input(coef, theta[-1, :] * prior.family.intercept**0.5, gain)
    return head.coef + change, head.intercept + shift
