"""Baselines that differ from Project and Probe in the features only: another basis, the same probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from sklearn.utils import check_random_state

from pro2.estimators.linear import LinearClassifier
from pro2.estimators.probe import best_candidate, feature_grid, penalty_grid, select
from pro2.estimators.validation import beside
from pro2.lab.baselines.directions import alignment_rows, lda_rows, pca_rows, pls_rows, random_rows, shared_random_rows
from pro2.lab.baselines.scaled import ScaledBaseline, Source
from pro2.linalg.moments import Array

TRAINED_SIZE = 64  # features of the jointly trained baselines: each costs as much as a classifier on all source rows


@dataclass(eq=False, repr=False, kw_only=True)
class BasisProbe(ScaledBaseline):
    """fit: `directions` from the source; adapt: the exact probe on the first features along them.

    Attributes
    ----------
    components_ : array (d, D)
        Directions in the scaled space, the most important first.
    """

    grid = ("n_features", "l2")

    n_components: int | None = None
    l2: float | str = "auto"
    n_features: int | str = "auto"
    random_state: Any = None

    def directions(self, source: Source, size: int) -> Array:
        """The first `size` directions (size, D) in the scaled space."""
        raise NotImplementedError

    def _default_size(self, source: Source) -> int:
        return source.width

    def _learn(self, source: Source) -> None:
        size = self._default_size(source) if self.n_components is None else self.n_components
        if not isinstance(size, int | np.integer) or not 1 <= size <= source.width:
            raise ValueError(f"n_components={size!r} must be an integer in 1..{source.width} (the embedding's width).")
        self.components_ = self.directions(source, int(size))

    def _adapt(
        self, X: Array, codes: Array, weight: Array | None, X_val: Any = None, y_val: Any = None, **extra: Any
    ) -> LinearClassifier:
        Z, val = self._features(self._scaled(X)), self._validation(X_val, y_val)
        sizes, penalties = feature_grid(self.n_features, Z.shape[1]), penalty_grid(self.l2, Z, weight)
        val = None if val is None else (self._features(val[0]), val[1])
        fit, scores = select(Z, codes, sizes, penalties, len(self.classes_), weight, None, val)
        i, j = best_candidate(scores)
        adapted = self._unscaled(fit.coef[i, j, ...] @ self.components_, fit.intercept[i, j, ...])
        adapted.n_features_, adapted.l2_ = sizes[i], penalties[j]
        return adapted

    def _features(self, Z: Array) -> Array:
        return Z @ array_namespace(Z).matrix_transpose(self.components_)

    def _seed(self) -> Any:
        """What NumPy's generators take; a generator of the old kind gives one number."""
        if self.random_state is None or isinstance(self.random_state, int | np.integer | np.random.Generator):
            return self.random_state
        return int(check_random_state(self.random_state).randint(2**31))


class RandomProjectionProbe(BasisProbe):
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

    def directions(self, source: Source, size: int) -> Array:
        seed = self._seed()
        if isinstance(seed, int | np.integer) and is_numpy_array(source.X):
            return shared_random_rows(size, source.width, int(seed))
        return beside(random_rows(size, source.width, seed), source.X)


class PCAProbe(BasisProbe):
    """Probe on the principal components of the source, largest variance first. Parameters as in `ProjectAndProbe`.

    References
    ----------
    Pearson, "On lines and planes of closest fit to systems of points in space", 1901.
    """

    def directions(self, source: Source, size: int) -> Array:
        return pca_rows(source.moments, size)


class LDAProbe(BasisProbe):
    """Probe on Fisher's discriminants of the source: K - 1 features for K classes, unless `n_components` asks for more.

    `ridge` shrinks the within-class covariance; other parameters as in `ProjectAndProbe`. For two classes and equal
    regularisation this is Project and Probe with one feature (the paper's corollary).

    References
    ----------
    Fisher, "The use of multiple measurements in taxonomic problems", 1936; Rao, 1948.
    """

    def _default_size(self, source: Source) -> int:
        return min(source.n_classes - 1, source.width)

    def directions(self, source: Source, size: int) -> Array:
        return lda_rows(source.moments, size, self.ridge)


class PLSProbe(BasisProbe):
    """Probe on partial-least-squares features of the source. Parameters as in `ProjectAndProbe`.

    References
    ----------
    Wold, "Estimation of principal components and related models by iterative least squares", 1966; Dayal & MacGregor,
    "Improved PLS algorithms", J. Chemometrics 1997.
    """

    def directions(self, source: Source, size: int) -> Array:
        return pls_rows(source.moments, size)


class UnconstrainedProbe(BasisProbe):
    """Pro2-NC: features trained on the source label with no orthogonality constraint, so they repeat each other.

    Parameters as in `ProjectAndProbe`; `n_components` is 64 by default (or the width, if smaller), `random_state` draws
    where training starts. Rows do not know each other, so the first of a larger number are those of a smaller one.

    References
    ----------
    Chen et al., "Project and Probe", ICLR 2024, ablation on orthogonality.
    """

    def _default_size(self, source: Source) -> int:
        return min(TRAINED_SIZE, source.width)

    def directions(self, source: Source, size: int) -> Array:
        return self._train(source, size, 0.0)

    def _train(self, source: Source, size: int, alignment: float) -> Array:
        return alignment_rows(
            source.on_device(source.rows()), source.codes, size, alignment,
            n_classes=source.n_classes, sample_weight=source.weight, seed=self._seed(),
        )  # fmt: skip


@dataclass(eq=False, repr=False, kw_only=True)
class GradientAlignmentProbe(UnconstrainedProbe):
    """Features trained on the source label with a penalty on the alignment of their input gradients (Teney et al.).

    For a linear feature with weights w the gradient of the predicted class's probability p is p (1 - p) w up to sign,
    so the penalty is in closed form.

    Parameters
    ----------
    alignment : float
        Weight of the penalty, at least 0; 0 is `UnconstrainedProbe`, and all other parameters are as there.

    References
    ----------
    Teney, Abbasnejad, Lucey & van den Hengel, "Evading the Simplicity Bias: Training a Diverse Set of Models Discovers
    Solutions with Superior OOD Generalization", CVPR 2022.
    """

    nested = False

    alignment: float = 1.0

    def directions(self, source: Source, size: int) -> Array:
        return self._train(source, size, self.alignment)
