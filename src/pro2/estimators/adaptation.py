"""The default of `ProjectAndProbe.adapt`: priors from the source, weighed by the few target labels alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from pro2.estimators.adaptation_report import AdaptationReport, make_report
from pro2.estimators.linear import LinearClassifier, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.projection import Projection
from pro2.linalg.averaging import average_head
from pro2.linalg.heads import discriminant_head
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import SourcePrior

LABELS_FOR_SHIFT = 16  # labels that make unlabelled rows count as much as the labelled class shares
STABLE = 0.5  # a feature whose variance changed by more than this factor is not trusted without labels


class PriorSpace:
    """Where the prior lives: the scaled embedding, or the ranked features when fewer than all are asked for.

    All D ranked features are a rotation of the scaled embedding, and the prior does not care about rotations.
    """

    def __init__(self, projection: Projection, moments: SourceMoments):
        xp = array_namespace(projection.components_)
        self.projection = projection
        self.whole = projection.components_.shape[0] == projection.components_.shape[1]
        scaled = moments.scaled(projection.scale_)
        if not self.whole:
            map_ = projection.components_ * projection.norms_[:, None]
            centred = scaled.mean - projection.mean_ / projection.scale_
            scaled = SourceMoments(
                scaled.classes,
                scaled.weight,
                centred @ xp.matrix_transpose(map_),
                map_ @ scaled.scatter @ xp.matrix_transpose(map_),
            )
        self.prior = SourcePrior.from_moments(scaled)

    def rows(self, X: Array) -> Array:
        """Target rows in the space of the prior, float64."""
        xp = array_namespace(X)
        if not self.whole:
            return xp.astype(self.projection.transform(X), xp.float64)
        X = unit_rows(X) if self.projection.scale == "unit" else X
        return xp.astype(X, xp.float64) / self.projection.scale_

    def to_input(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        """A head of that space as the same head on raw embeddings."""
        if not self.whole:
            return self.projection.to_input_space(coef, intercept)
        return coef / self.projection.scale_, intercept


def adapt_auto(
    space: PriorSpace, classes: np.ndarray, X: Array, codes: Array, weight: Array | None = None,
    X_unlabeled: Array | None = None,
) -> LinearClassifier:  # fmt: skip
    """Average the priors of `space` on labelled target rows X (M, D) with codes (M,).

    With unlabelled target rows the shares of the classes are re-estimated (see `class_shift`). Returns a classifier
    with `report_`.
    """
    Z = space.rows(X)
    head = average_head(space.prior, Z, codes, weight)
    coef, intercept = head.coef, head.intercept
    if X_unlabeled is not None:
        logits = space.rows(X_unlabeled) @ _columns(coef) + intercept
        intercept = intercept + class_shift(logits, head.shares, len(codes))
    adapted = LinearClassifier.from_arrays(classes, *space.to_input(coef, intercept), unit=_is_unit(space))
    adapted.report_ = make_report(space, head, Z, codes, weight)
    return adapted


def class_shift(logits: Array, shares: np.ndarray, n_labels: int) -> Any:
    """What to add to the logits so that class shares fit the unlabelled rows: maximum likelihood by EM, shrunk.

    Few-shot labels are usually drawn class by class, so their shares say nothing about the target's; unlabelled rows
    do (Saerens, Latinne & Decaestecker 2002). The estimate leans on calibrated probabilities: it is shrunk towards the
    shares (K,) that the logits assume, with a weight of 16 / n_labels times the unlabelled rows.
    """
    xp = array_namespace(logits)
    L = host(logits)
    L = np.stack([np.zeros(len(L)), L], axis=1) if L.ndim == 1 else L
    share = start = shares
    pseudo = len(L) * LABELS_FOR_SHIFT / n_labels
    for _ in range(200):
        F = L + np.log(share / start)
        P = np.exp(F - F.max(axis=1, keepdims=True))
        new = ((P / P.sum(axis=1, keepdims=True)).sum(axis=0) + pseudo * start) / (len(L) + pseudo)
        done, share = np.abs(new - share).max() < 1e-8, new
        if done:
            break
    shift = np.log(share / start)
    return float(shift[1] - shift[0]) if len(shares) == 2 else xp.asarray(shift, device=device(logits))


def adapt_unlabeled(
    space: PriorSpace, moments: SourceMoments, classes: np.ndarray, X_unlabeled: Array, ridge: float
) -> LinearClassifier:
    """Rank the features for a target without any label, and restrict the source head to those that look unchanged.

    A feature is trusted when its variance on the target is within a factor of two of that on the source. `report_` of
    the result has `ranking` (ranked features, most useful for the target first), `n_features` and `stability`.

    Without labels only a change of the inputs can be seen: a feature whose distribution stays but whose meaning turns
    round (the label follows another part of the image) keeps its rank. Check with a few labels when it matters.
    """
    xp = array_namespace(X_unlabeled)
    projection = space.projection
    Z = xp.astype(projection.transform(X_unlabeled), xp.float64)
    map_ = projection.components_ * projection.norms_[:, None]
    scaled = moments.scaled(projection.scale_)
    source = xp.sum((map_ @ scaled.covariance()) * map_, axis=1)
    centred = Z - xp.mean(Z, axis=0)
    target = xp.mean(centred * centred, axis=0)
    ratio = host(target) / np.maximum(host(source), 1e-12)
    stability = np.minimum(ratio, 1.0 / np.maximum(ratio, 1e-12))
    ranking = np.argsort(-host(projection.scores_) * stability, kind="stable")
    trusted = np.flatnonzero(stability >= STABLE)
    trusted = trusted if len(trusted) else ranking[:1]
    coef, intercept = _restricted_head(projection, scaled, map_, trusted, ridge)
    adapted = LinearClassifier.from_arrays(classes, coef, intercept, unit=_is_unit(space))
    adapted.report_ = AdaptationReport(n_labels=0, ranking=ranking, stability=stability, n_features=len(trusted))
    return adapted


def _restricted_head(
    projection: Projection, scaled: SourceMoments, map_: Array, trusted: np.ndarray, ridge: float
) -> tuple[Array, Array]:
    """Source discriminant on some of the ranked features, carried to raw embeddings."""
    xp = array_namespace(map_)
    Q = xp.take(map_, xp.asarray(trusted, device=device(map_)), axis=0)
    part = SourceMoments(
        scaled.classes, scaled.weight, scaled.mean @ xp.matrix_transpose(Q), Q @ scaled.scatter @ xp.matrix_transpose(Q)
    )
    coef, intercept = discriminant_head(part, ridge)
    return (coef @ Q) / projection.scale_, intercept


def _is_unit(space: PriorSpace) -> bool:
    return space.projection.scale == "unit"


def _columns(coef: Array) -> Array:
    return coef if coef.ndim == 1 else array_namespace(coef).matrix_transpose(coef)
