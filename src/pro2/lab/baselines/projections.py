"""Baselines that differ from Project and Probe in the features only: another basis, the same probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.utils import check_random_state

from pro2.estimators.contract import _like
from pro2.estimators.moments import SourceMoments
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.estimators.projection import DEFAULT_RIDGE, SCALES, Projection
from pro2.lab.baselines.bases import (
    alignment_basis,
    lda_basis,
    pca_basis,
    pls_basis,
    random_basis,
    unconstrained_basis,
)
from pro2.linalg.bases import Basis
from pro2.linalg.moments import Array, encode

TRAINED_SIZE = 64  # features of the jointly trained baselines: each costs as much as a classifier on all source rows


class _BasisProjection(Projection):
    """A `Projection` whose rows come from a function of (scaled rows, codes, weights, scaled moments, size)."""

    def __init__(self, basis: Callable[..., Basis], n_components: int | None, scale: str | None):
        super().__init__(n_components, solver="basis", scale=scale)
        self.basis = basis

    def _check_options(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale must be one of {SCALES}, got {self.scale!r}.")

    def _solve_rows(self, X: Array, y: np.ndarray, weight: Array | None, moments: SourceMoments) -> Basis:
        self.moments_ = moments
        xp = array_namespace(X)

        def scaled_rows() -> Array:  # on demand: only trained bases look at rows
            return (X - xp.astype(self.mean_, X.dtype)) / xp.astype(self.scale_, X.dtype)

        codes = _like(encode(y, moments.classes)[1], X)
        return self.basis(scaled_rows, codes, weight, moments.scaled(self.scale_), self._width())


class _BasisProbe(ProjectAndProbe):
    """fit: a basis from the source; adapt: the exact probe on its first features. Subclasses write `_basis`."""

    def __init__(
        self,
        n_components: int | None = None,
        ridge: float = DEFAULT_RIDGE,
        scale: str | None = "standard",
        l2: float | str = "auto",
        n_features: int | str = "auto",
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.ridge = ridge
        self.scale = scale
        self.l2 = l2
        self.n_features = n_features
        self.random_state = random_state

    def _fit_source(self, X: Array, codes: Array, weight: Array | None) -> tuple[Array, Array]:
        size = self.n_components if self.n_components is not None else self._default_size(X.shape[1])
        self.projection_ = _BasisProjection(self._basis, size, self.scale).fit(X, codes, weight)
        return self._set_source_head(X, codes, weight)

    def _untuned(self) -> bool:
        return False  # a baseline picks d and l2 by leave-one-out; averaging priors of the source is Pro2's own

    def _default_size(self, width: int) -> int:
        return width

    def _seed(self) -> np.random.Generator:
        if isinstance(self.random_state, np.random.Generator):
            return self.random_state
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31))

    def _basis(
        self, rows: Callable[[], Array], codes: Array, weight: Array | None, moments: SourceMoments, size: int
    ) -> Basis:
        raise NotImplementedError


class RandomProjectionProbe(_BasisProbe):
    """Probe on random orthonormal features: the paper's "Random Projection".

    Parameters
    ----------
    n_components, scale, l2, n_features
        As in `ProjectAndProbe`; `ridge` shrinks the source head only.
    random_state : int, Generator or None
        Draws the basis.

    References
    ----------
    Bingham & Mannila, "Random projection in dimensionality reduction", KDD 2001.
    """

    def _basis(self, rows: Any, codes: Array, weight: Any, moments: SourceMoments, size: int) -> Basis:
        return random_basis(moments, size, self._seed())


class PCAProbe(_BasisProbe):
    """Probe on the principal components of the source, largest variance first. Parameters as in `ProjectAndProbe`.

    References
    ----------
    Pearson, "On lines and planes of closest fit to systems of points in space", 1901.
    """

    def _basis(self, rows: Any, codes: Array, weight: Any, moments: SourceMoments, size: int) -> Basis:
        return pca_basis(moments, size)


class LDAProbe(_BasisProbe):
    """Probe on Fisher's discriminants of the source: K - 1 features for K classes, unless `n_components` asks for more.

    `ridge` shrinks the within-class covariance; other parameters as in `ProjectAndProbe`. For two classes and equal
    regularisation this is Project and Probe with one feature (the paper's corollary).

    References
    ----------
    Fisher, "The use of multiple measurements in taxonomic problems", 1936; Rao, 1948.
    """

    def _default_size(self, width: int) -> int:
        return max(1, min(len(self.classes_) - 1, width))

    def _basis(self, rows: Any, codes: Array, weight: Any, moments: SourceMoments, size: int) -> Basis:
        return lda_basis(moments, size, self.ridge)


class PLSProbe(_BasisProbe):
    """Probe on partial-least-squares features of the source. Parameters as in `ProjectAndProbe`.

    References
    ----------
    Wold, "Estimation of principal components and related models by iterative least squares", 1966; Dayal & MacGregor,
    "Improved PLS algorithms", J. Chemometrics 1997.
    """

    def _basis(self, rows: Any, codes: Array, weight: Any, moments: SourceMoments, size: int) -> Basis:
        return pls_basis(moments, size)


class UnconstrainedProbe(_BasisProbe):
    """Pro2-NC: features trained on the source label with no orthogonality constraint, so they repeat each other.

    Parameters as in `ProjectAndProbe`; `n_components` is 64 by default (or the width, if smaller), `random_state` draws
    where training starts.

    References
    ----------
    Chen et al., "Project and Probe", ICLR 2024, ablation on orthogonality.
    """

    def _default_size(self, width: int) -> int:
        return min(TRAINED_SIZE, width)

    def _basis(self, rows: Any, codes: Array, weight: Any, moments: SourceMoments, size: int) -> Basis:
        n_classes = _check_classes(moments)
        return unconstrained_basis(rows(), codes, size, n_classes=n_classes, sample_weight=weight, seed=self._seed())


class GradientAlignmentProbe(_BasisProbe):
    """Features trained on the source label with a penalty on the alignment of their input gradients (Teney et al.).

    For a linear feature with weights w the gradient of the predicted class's probability p is p (1 - p) w up to sign,
    so the penalty is in closed form.

    Parameters
    ----------
    alignment : float
        Weight of the penalty, at least 0; 0 is `UnconstrainedProbe`.
    n_components : int, optional
        Number of features, 64 by default (or the width, if smaller).
    ridge, scale, l2, n_features
        As in `ProjectAndProbe`.
    random_state : int, Generator or None
        Start of the training.

    References
    ----------
    Teney, Abbasnejad, Lucey & van den Hengel, "Evading the Simplicity Bias: Training a Diverse Set of Models Discovers
    Solutions with Superior OOD Generalization", CVPR 2022.
    """

    def __init__(
        self,
        alignment: float = 1.0,
        n_components: int | None = None,
        ridge: float = DEFAULT_RIDGE,
        scale: str | None = "standard",
        l2: float | str = "auto",
        n_features: int | str = "auto",
        random_state: Any = None,
    ):
        super().__init__(n_components, ridge, scale, l2, n_features, random_state)
        self.alignment = alignment

    def _default_size(self, width: int) -> int:
        return min(TRAINED_SIZE, width)

    def _basis(self, rows: Any, codes: Array, weight: Any, moments: SourceMoments, size: int) -> Basis:
        n_classes = _check_classes(moments)
        return alignment_basis(
            rows(),
            codes,
            size,
            alignment=self.alignment,
            n_classes=n_classes,
            sample_weight=weight,
            seed=self._seed(),
        )


def _check_classes(moments: SourceMoments) -> int:
    if len(moments.classes) < 2:
        raise ValueError("y has one class only: features that predict the label need at least two classes.")
    return len(moments.classes)
