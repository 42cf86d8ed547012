"""Models without source rows: from moments, from a head, or from unlabelled rows; and models with new classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from pro2.estimators.base import LARGEST, check_X, naming
from pro2.estimators.files import check_distinct
from pro2.estimators.linear import LinearClassifier, affine, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.linalg.arrays import Array, to_numpy
from pro2.linalg.logistic import probabilities
from pro2.linalg.prior import SourcePrior


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

        The head is the prior mean of adaptation, in sizes up to its own. What rows look like, and which
        directions the head tells apart, is taken from unlabelled rows with the head's own answers for labels.

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
        logits = affine(xp.astype(X, xp.float64), head.coef_, head.intercept_)
        if not bool(xp.all(xp.abs(logits) <= LARGEST)):
            raise ValueError(f"coef gives logits beyond {LARGEST:g}: divide coef and intercept by a constant.")
        # classes are as common as their probabilities say: one that is never the answer still exists, at the mean
        P, K = probabilities(logits), len(head.classes_)
        found = SourceMoments.from_arrays(X, xp.argmax(P, axis=1), classes=range(K)).with_means_filled()
        weight = (xp.sum(P, axis=0) + 1.0) * (len(X) / (len(X) + K))
        return model._learn(replace(found, classes=tuple(head.classes_.tolist()), weight=weight), "head", head)

    @classmethod
    def from_unlabeled(cls, X: Any, classes: Sequence[Any], **params: Any) -> Self:
        """A model from unlabelled rows and the names of at least two classes: no source at all.

        Adaptation has no prior mean and no ranked features; rows say how features vary.
        """
        model: Any = cls(**params)
        X = _rows(model, X)
        names = np.unique(_checked_classes(classes))
        # equally common classes that all look the same
        whole, K = SourceMoments.from_arrays(X, np.zeros(len(X), dtype=int)), len(names)
        concat = array_namespace(X).concat
        means = concat([whole.weight / K] * K), concat([whole.mean] * K)
        return model._learn(SourceMoments(tuple(names.tolist()), *means, whole.scatter), "unlabelled rows")


def _rows(model: Any, X: Any) -> Array:
    X = X.embeddings if hasattr(X, "iter_batches") else X
    X = check_X(model, X, reset=True)
    return unit_rows(X) if model.scale == "unit" else X


def _checked_classes(classes: Sequence[Any]) -> np.ndarray:
    several = isinstance(classes, Iterable) and not isinstance(classes, str)
    names = list(to_numpy(classes).tolist() if is_array_api_obj(classes) else classes) if several else []
    if len(names) < 2:
        raise ValueError(f"classes must be a list of at least two labels, got {classes!r}.")
    check_distinct([each.item() if isinstance(each, np.generic) else each for each in names], "classes")
    return np.asarray(names)


def _checked_head(coef: Any, intercept: Any, classes: Sequence[Any], X: Array, *, unit: bool) -> LinearClassifier:
    """The head with its classes in order, where the rows are."""
    names, order = np.unique(_checked_classes(classes), return_index=True)
    K, D = len(names), X.shape[1]
    with naming("coef"):
        W = np.atleast_2d(np.asarray(to_numpy(coef), dtype=np.float64))
    with naming("intercept"):
        b = np.asarray(to_numpy(intercept), dtype=np.float64).reshape(-1)
    if W.shape not in ((K, D), (1 if K == 2 else K, D)):
        raise ValueError(f"coef has shape {W.shape}, {K} classes and embeddings of width {D} need ({K}, {D}).")
    if len(b) not in (1, len(W)):
        raise ValueError(f"intercept has {len(b)} numbers for {len(W)} rows of coef: give one for each, or 0.")
    if not (np.isfinite(W).all() and np.isfinite(b).all()):
        raise ValueError("coef or intercept has NaN or infinite values.")
    b = np.broadcast_to(b, (len(W),))
    if len(W) < K:
        W, b = np.concatenate([0.0 * W, W]), np.append(0.0, b)
    return LinearClassifier.from_arrays(names, W[order], b[order], like=X, unit=unit)


def prior_of_head(prior: SourcePrior, head: LinearClassifier, moments: SourceMoments) -> SourcePrior:
    """The prior with the head as its mean, in the place of the discriminant of the head's own answers.

    Nobody labelled the rows, so no covariance is whitened: that would shrink the directions in which classes differ
    most.
    """
    coef, intercept = head.scores_head()
    coef, intercept = coef - coef.mean(axis=0), intercept - intercept.mean()
    V, K = coef * prior.scale, prior.n_classes
    b = intercept + V @ prior.centre
    # root mean square of the margin, K / (K - 1) times the centred score of the answer, from the moments alone
    own = np.einsum("kd,kd->k", V, to_numpy(moments.mean) / prior.scale - prior.centre) + b
    within = to_numpy(moments.within_covariance()) / prior.scale[:, None] / prior.scale
    noise = np.maximum(np.einsum("kd,kd->k", V @ within, V), 0.0)
    natural = K / (K - 1.0) * math.sqrt(float(moments.class_shares() @ (own**2 + noise))) / prior.unit**2
    scale = 1.0 / natural if natural > 0 else 0.0
    # sizes near the head's own or beyond it would be the same prior again, and take the place of another one
    sizes = (*(size for size in prior.family.mean_sizes if size < 0.5 * natural), natural)
    family = replace(prior.family, mean_sizes=sizes, covariances=("ranked",))
    return replace(prior, family=family, coef=scale * V[None], intercept=scale * b[None], calibrated_size=natural)


def prior_without_head(prior: SourcePrior) -> SourcePrior:
    """Of rows that nobody has labelled: without a mean, and nothing is ranked or whitened (see `prior_of_head`)."""
    return replace(prior, family=replace(prior.family, mean_sizes=(0.0,), covariances=("flat",)))


NEW_CLASSES = ("refuse", "allow")


def with_new_classes(model: Any, y: np.ndarray) -> Any:
    """A copy of a fitted `ProjectAndProbe` that knows the classes of y, too; the model itself where there are none."""
    names, known = np.array(y.tolist()), model.classes_
    if (known.dtype.kind in "UO") != (names.dtype.kind in "UO"):  # NumPy would turn the numbers into text
        raise ValueError(
            f"y_target has labels such as {names.tolist()[0]!r}, the source has classes such as "
            f"{known.tolist()[0]!r}: write both as text, or both as numbers."
        )
    classes = np.union1d(known, names)
    if len(classes) == len(model.classes_):
        return model
    places = np.searchsorted(classes, model.classes_).tolist()
    wider = copy(model)
    wider.classes_ = classes
    moments = replace(model.source_moments_, classes=tuple(known.tolist()))  # classes may have been renamed
    wider.source_moments_ = moments.over(tuple(classes.tolist()))
    wider._derived["priors"] = tuple(prior.with_classes(places, len(classes)) for prior in model.priors_)
    # the source head never answers with a class that it does not know
    head = model.source_head_
    own, offset = head.scores_head()
    coef, intercept = np.zeros((len(classes), own.shape[1])), np.full(len(classes), -np.inf)
    coef[places], intercept[places] = own, offset
    wider._derived["head"] = LinearClassifier.from_arrays(
        classes, coef, intercept, like=head.coef_, unit=head.unit_rows_
    )
    vars(wider).pop("given_head_", None)
    return wider
