"""What unlabelled target rows add: neighbours tend to have the same label, where the labels say that they do.

Probabilities of the adapted head spread over a graph of neighbours, and are mixed with the head's own. How much is
decided by cross-validation on the labelled rows, with a prior that goes by how much neighbours get the same answer:
where answers are rough on the graph, it is a graph of something else than the label. The mixture is then fitted by
one affine map, which starts from the head.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pro2.estimators.adaptation import Default
from pro2.estimators.validation import beside
from pro2.linalg import losses
from pro2.linalg.average import AveragedHead, temperature
from pro2.linalg.family import Member
from pro2.linalg.graph import neighbour_graph, smoothness, spread
from pro2.linalg.labels import Labels
from pro2.linalg.mode import find_mode
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import SourcePrior
from pro2.linalg.rows import orthogonal

ROWS = 4096  # unlabelled rows in the graph; the others get the answers of the affine map
ALPHA = 0.8
FOLDS = 4
# Prior log-odds of the graph are SLOPE (smoothness - EVEN). Settled on Living, Waterbirds, CelebA (two of the five) and
# Collages: where neighbours mislead (CelebA balanced) smoothness is 0.3 to 0.6, where they help 0.6 to 0.8.
SLOPE, EVEN = 10.0, 0.7
NEGLIGIBLE = 0.02  # weight of the graph below which the head stays as it is
TOL = 1e-3


def transduce(how: Default, head: AveragedHead, labels: Labels, U: Array) -> tuple[Array, Array, np.ndarray]:
    """Let unlabelled rows U (n, D) speak: the head after hearing them, (K', D), (K'), and their probabilities (n, K).

    Those of the rows in the graph are the mixture's, which are better than the affine map's.
    """
    rows = np.unique(np.linspace(0, U.shape[0] - 1, min(ROWS, U.shape[0])).round().astype(int))
    X = np.concatenate([host(labels.X), host(U[rows, :]).astype(np.float64)])
    y, prior = host(labels.y), how.priors[0]
    gain = prior.gain(beside(X, labels.X), beside(np.ones(len(X)), labels.X))
    Z = prior.rows(beside(X, labels.X), gain)
    S = neighbour_graph(host(Z))
    F = losses.affine(X, host(head.coef), host(head.intercept))
    P = losses.probabilities(F)
    evidence, sharpness = _cross_validated(how, head, labels, X, S)
    odds = evidence + SLOPE * (smoothness(S, P) - EVEN)
    weight = 1.0 / (1.0 + math.exp(-min(max(odds, -50.0), 50.0)))
    heard = _heard(S, P, y) ** sharpness
    mixed = weight * (heard / heard.sum(axis=1, keepdims=True)) + (1.0 - weight) * P
    coef, intercept = head.coef, head.intercept
    if weight > NEGLIGIBLE:
        change, shift = prior.to_input(*_affine(prior, Z, mixed, beside(F, labels.X), labels), gain)
        coef, intercept = coef + change, intercept + shift
    proba = host(losses.probabilities(losses.affine(U, coef, intercept)))
    proba[rows] = mixed[len(y) :]
    return coef, intercept, proba


def _heard(S: Any, P: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Probabilities after spreading; the first rows have labels y (or -1)."""
    start = P.copy()
    known = np.flatnonzero(y >= 0)
    start[known] = np.eye(P.shape[1])[y[known]]
    return spread(S, start, ALPHA)


def _cross_validated(how: Default, head: AveragedHead, labels: Labels, X: np.ndarray, S: Any) -> tuple[float, float]:
    """Log-likelihood of left-out labels with the graph minus that without it; and the temperature of the graph."""
    y, K = host(labels.y), how.priors[0].n_classes
    fold = labels.folds(FOLDS)
    alone, heard = np.full((len(y), K), 1.0 / K), np.full((len(y), K), 1.0 / K)
    for f in np.unique(fold):
        out = fold == f
        if out.all():
            continue
        coef, intercept = map(host, how.refit(labels.take(np.flatnonzero(~out)), head))
        P = losses.probabilities(losses.affine(X, coef, intercept))
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


def _affine(prior: SourcePrior, Z: Array, mixed: np.ndarray, F: Array, labels: Labels) -> tuple[Array, Array]:
    """What to add to a head with scores F, so that its probabilities come closest to the mixture's.

    It is held small by the flat prior. All rows together count as much as the labels do.
    """
    y, (n, K) = host(labels.y), mixed.shape
    target = mixed.copy()
    target[: len(y)] = np.eye(K)[y]
    Y = beside(target[:, 1:] if K == 2 else target, labels.X)
    rows = orthogonal(prior.features(Z, "flat"), beside(np.full(n, len(y) / n), labels.X))
    precision = prior.precision(Member("flat", max(prior.family.reaches), 0.0, math.inf))
    mode = find_mode(rows, Y, F[:, None, :], beside(np.array([precision]), labels.X), tol=TOL)
    theta, _ = rows.coefficients(mode.B[:, 0, :])
    return prior.head(theta, "flat")
