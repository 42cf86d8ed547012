"""Models without source rows: from moments, from a head and unlabelled rows, or from unlabelled rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from pro2.estimators.linear import LinearClassifier, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.schema import MADE_FROM, check_distinct
from pro2.estimators.validation import LARGEST, beside, check_X, naming
from pro2.linalg import losses
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import SourcePrior

SOURCE_ROWS, MOMENTS, HEAD, UNLABELED = MADE_FROM


class OtherStarts:
    """What `ProjectAndProbe` can be made from besides labelled source rows; keywords are those of its constructor."""

    @classmethod
    def from_moments(cls, moments: SourceMoments, **params: Any) -> Self:
        """A model from moments alone: of a source larger than memory, or the sum of several sites'.

        With ``scale="unit"`` they must be those of rows of length one.
        """
        return cls(**params).fit_moments(moments)  # type: ignore[attr-defined]

    @classmethod
    def from_head(cls, coef: Any, intercept: Any, classes: Sequence[Any], X_unlabeled: Any, **params: Any) -> Self:
        """A model from all that is left of a source, a linear head: a classifier's last layer, CLIP's text prompts.

        Adaptation is centred on the head, never surer than the head itself is. What rows look like, and which
        directions the head tells apart, is taken from unlabelled rows with the head's own answers for labels; all
        covariances are "ranked".

        Parameters
        ----------
        coef : array (K, D), or (D,) or (1, D) for two classes
            Weights on raw embeddings (on rows of length one with ``scale="unit"``).
        intercept : float or array (K,)
            0 for a head without.
        classes : sequence of K labels
            In the order of the rows of `coef`.
        X_unlabeled : array (n, D) or `EmbeddingTable`
            Rows of the target, or of anything like it.
        """
        model: Any = cls(**params)
        X = _rows(model, X_unlabeled)
        head = _checked_head(coef, intercept, classes, X, unit=model.scale == "unit")
        xp = array_namespace(X)
        logits = losses.affine(xp.astype(X, xp.float64), head.coef_, head.intercept_)
        if not bool(xp.all(xp.abs(logits) <= LARGEST)):
            raise ValueError(f"coef gives logits beyond {LARGEST:g}: divide coef and intercept by a constant.")
        model._learn(_answered(X, logits, head.classes_), HEAD)
        model.priors_ = tuple(_centred(prior, head, logits) for prior in model.priors_)
        model.source_head_ = model._named(head)
        model._set_head(head.coef_, head.intercept_)
        return model

    @classmethod
    def from_unlabeled(cls, X: Any, classes: Sequence[Any], **params: Any) -> Self:
        """A model from unlabelled rows and the names of at least two classes: no source at all.

        Adaptation has no centre and no ranked features; rows say how features vary.
        """
        model: Any = cls(**params)
        X = _rows(model, X)
        names = np.unique(_checked_classes(classes))
        model._learn(_unanswered(X, names), UNLABELED)
        # nothing is ranked without a head, and what is not labelled is not whitened (see `_centred`)
        model.priors_ = tuple(
            replace(prior, family=replace(prior.family, sizes=(0.0,), covariances=("flat",))) for prior in model.priors_
        )
        return model


def _rows(model: Any, X: Any) -> Array:
    X = X.embeddings if hasattr(X, "iter_batches") else X
    X = check_X(model, X, reset=True)
    return unit_rows(X) if model.scale == "unit" else X


def _checked_classes(classes: Sequence[Any]) -> np.ndarray:
    several = isinstance(classes, Iterable) and not isinstance(classes, str)
    names = list(host(classes).tolist() if is_array_api_obj(classes) else classes) if several else []
    if len(names) < 2:
        raise ValueError(f"classes must be a list of at least two labels, got {classes!r}.")
    check_distinct([each.item() if isinstance(each, np.generic) else each for each in names], "classes")
    return np.asarray(names)


def _checked_head(coef: Any, intercept: Any, classes: Sequence[Any], X: Array, *, unit: bool) -> LinearClassifier:
    """The head with its classes in order, where the rows are; two rows for two classes become their difference."""
    names, order = np.unique(_checked_classes(classes), return_index=True)
    K, D = len(names), X.shape[1]
    with naming("coef"):
        W = np.atleast_2d(np.asarray(host(coef), dtype=np.float64))
    with naming("intercept"):
        b = np.asarray(host(intercept), dtype=np.float64).reshape(-1)
    if W.shape not in ((K, D), (1 if K == 2 else K, D)):
        raise ValueError(f"coef has shape {W.shape}, {K} classes and embeddings of width {D} need ({K}, {D}).")
    if len(b) not in (1, len(W)):
        raise ValueError(f"intercept has {len(b)} numbers for {len(W)} rows of coef: give one for each, or 0.")
    if not (np.isfinite(W).all() and np.isfinite(b).all()):
        raise ValueError("coef or intercept has NaN or infinite values.")
    b = np.broadcast_to(b, (len(W),))
    if len(W) == 1:
        W, b = np.concatenate([0.0 * W, W]), np.append(0.0, b)
    W, b = W[order], b[order]
    W, b = (W[1:] - W[:1], b[1:] - b[:1]) if K == 2 else (W, b)
    return LinearClassifier.from_arrays(names, beside(W, X), beside(b, X), unit=unit)


def _answered(X: Array, logits: Array, classes: np.ndarray) -> SourceMoments:
    """Moments of the rows with the head's answers for labels.

    Classes are as common as their probabilities say: one that is never the answer still exists, and lies at the mean.
    """
    xp = array_namespace(X)
    P = losses.probabilities(logits)
    found = SourceMoments.from_arrays(X, xp.argmax(P, axis=1), classes=range(len(classes))).placed()
    n = X.shape[0]
    weight = (xp.sum(P, axis=0) + 1.0) * (n / (n + len(classes)))
    return replace(found, classes=tuple(classes.tolist()), weight=weight)


def _unanswered(X: Array, classes: np.ndarray) -> SourceMoments:
    """Moments of rows that say nothing about classes: equally common ones that all look the same."""
    xp = array_namespace(X)
    whole = SourceMoments.from_arrays(X, np.zeros(X.shape[0], dtype=int))
    K = len(classes)
    weight, mean = xp.concat([whole.weight / K] * K), xp.concat([whole.mean] * K)
    return SourceMoments(tuple(classes.tolist()), weight, mean, whole.scatter)


def _centred(prior: SourcePrior, head: LinearClassifier, logits: Array) -> SourcePrior:
    """The prior with the head at its centre, in the place of the discriminants of its own answers."""
    xp = array_namespace(logits)
    coef = head.coef_ * prior.scale
    offset = head.intercept_ + coef @ prior.centre
    if prior.n_classes > 2:
        coef, offset = coef - xp.mean(coef, axis=0), offset - xp.mean(offset)
    size, target = _margin(logits), prior.unit**2
    scale = target / size if size > 0 else 0.0
    natural = size / target
    # sizes near the head's own or beyond it would be the same prior again, and take the place of another one
    sizes = (*(each for each in prior.family.sizes if each < 0.5 * natural), natural)
    sure = float(xp.mean(xp.max(losses.probabilities(logits), axis=1)))
    return replace(
        prior,
        # rows whose labels nobody knows are not whitened: that would damp the directions in which classes differ most
        family=replace(prior.family, ridges=prior.family.ridges[:1], sizes=sizes, covariances=("ranked",)),
        heads=scale * coef[None, ...],
        offsets=scale * offset[None, ...],
        natural=(natural,),
        accuracy=(sure,),
    )


def _margin(logits: Array) -> float:
    """Root mean square over rows of the logit of the answer minus the mean of the others."""
    xp = array_namespace(logits)
    if logits.shape[1] == 1:
        return float(xp.sqrt(xp.mean(logits**2)))
    n, best = logits.shape[1], xp.max(logits, axis=1)
    others = (xp.sum(logits, axis=1) - best) / (n - 1.0)
    return float(xp.sqrt(xp.mean((best - others) ** 2)))
