"""What the baselines share: source rows under one input scaling, a source head, the paper's probe on target rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pro2.estimators.linear import LinearClassifier, SourceTargetClassifier, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.probe import best_candidate, penalty_grid, select
from pro2.estimators.projection import DEFAULT_RIDGE, SCALES, check_ridge, input_scale
from pro2.linalg.arrays import Array, to_numpy

Head = tuple[np.ndarray, np.ndarray]  # coef (1, D), intercept (1,) for two classes; (K, D), (K,) for more
Fit = tuple[Any, ...]  # a head and, where they were chosen, the number of features and the penalty


class Source:
    """Source rows X (N, D) with class codes, their input scaling (mean, sd), and moments after scaling.

    `device` is PyTorch's name of the device that features are trained on.
    """

    def __init__(
        self, X: np.ndarray, codes: np.ndarray, n_classes: int, scale: str | None, device: str | None = None
    ) -> None:
        if scale not in SCALES:
            raise ValueError(f"scale must be one of {SCALES}, got {scale!r}.")
        self.unit, self.X = scale == "unit", unit_rows(X) if scale == "unit" else X
        self.codes, self.n_classes, self.device = codes, n_classes, device
        self.width = int(X.shape[1])
        moments = SourceMoments.from_arrays(self.X, codes, classes=range(n_classes))
        self.mean = np.asarray(moments.total_mean())
        self.sd = np.asarray(input_scale(np.diagonal(moments.covariance()), scale))
        self.moments = moments.scaled(self.sd)

    def rows(self) -> np.ndarray:
        """The scaled rows; not kept, since they are as large as the source."""
        return np.asarray((self.X - self.mean.astype(self.X.dtype)) / self.sd.astype(self.X.dtype))

    def on_device(self, rows: np.ndarray) -> Array:
        """Rows to train on, where training is to run; without a device, the rows as they are."""
        if self.device is None:
            return rows
        import torch

        return torch.asarray(rows, device=self.device)


@dataclass(eq=False, repr=False, kw_only=True)
class Baseline(SourceTargetClassifier):
    """fit: input scaling and a source head (a shrunk discriminant); adapt: `_head` on scaled target rows, in NumPy.

    Parameters of all baselines: `ridge`, shrinkage of the within-class covariance relative to the mean variance of the
    scaled features, and `scale`, as in `Projection`. `grid` names what plans may try ("n_features", "l2"); `nested`
    is true where fewer features are the first of more.
    """

    grid: ClassVar[tuple[str, ...]] = ()
    nested: ClassVar[bool] = True

    ridge: float = DEFAULT_RIDGE
    scale: str | None = "standard"

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Learn from source rows; with `sample_domain`, adapt to the target rows, too. Rows have no weights."""
        return super().fit(X, y, sample_domain)

    def adapt(self, X_target: Any, y_target: Any, **extra: Any) -> LinearClassifier:
        """Probe with labelled target rows; the fitted source model is not changed."""
        return super().adapt(X_target, y_target, None, **extra)

    def _fit_source(self, X: Array, codes: Array, weight: None) -> Head:
        check_ridge(self.ridge)
        source = Source(to_numpy(X), to_numpy(codes), len(self.classes_), self.scale)
        self.unit_rows_, self.mean_, self.scale_ = source.unit, source.mean, source.sd
        coef, intercept = discriminant_head(source.moments, self.ridge)
        coef = coef / self.scale_
        self.source_head_ = LinearClassifier.from_arrays(self.classes_, coef, intercept, unit=self.unit_rows_)
        self._learn(source)
        return coef, intercept

    def _learn(self, source: Source) -> None:
        """What else a method needs of the source: most need nothing and do not keep its rows."""

    def _adapt(self, X: Array, codes: Array, weight: None, **extra: Any) -> LinearClassifier:
        X = unit_rows(X) if self.unit_rows_ else X
        coef, intercept, *chosen = self._head((X.astype(np.float64) - self.mean_) / self.scale_, codes, **extra)
        coef = coef / self.scale_
        adapted = LinearClassifier.from_arrays(self.classes_, coef, intercept - coef @ self.mean_, unit=self.unit_rows_)
        if chosen:
            adapted.n_features_, adapted.l2_ = chosen
        return adapted

    def _source_scaled(self) -> Head:
        """The source head as a map of scaled rows."""
        coef = self.source_head_.coef_
        return coef * self.scale_, self.source_head_.intercept_ + coef @ self.mean_

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        """A head on scaled rows, and, where they were chosen, the number of features and the penalty."""
        raise NotImplementedError


@dataclass(eq=False, repr=False, kw_only=True)
class ProbeBaseline(Baseline):
    """Adds the exact L2 probe; `l2` is its penalty, or "auto": by leave-one-out."""

    l2: float | str = "auto"

    def _probe(
        self, Z: np.ndarray, codes: np.ndarray, sizes: Sequence[int] = (), prior: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ) -> Fit:  # fmt: skip
        """Probe on the first columns of Z; `sizes` are the numbers of columns to try, all of them by default."""
        sizes, penalties = list(sizes) or [Z.shape[1]], penalty_grid(self.l2, Z, weight)
        fit, scores = select(Z, codes, sizes, penalties, len(self.classes_), weight, prior)
        i, j = best_candidate(scores)
        return np.atleast_2d(fit.coef[i, j]), np.atleast_1d(fit.intercept[i, j]), sizes[i], penalties[j]


def check_share(name: str, value: Any) -> float:
    """A number in [0, 1], or an error that names the argument."""
    if isinstance(value, str) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be a number in [0, 1], got {value!r}.")
    return float(value)


def generator(random_state: Any) -> np.random.Generator:
    """From None, a seed, a Generator or the older RandomState."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    return np.random.default_rng(random_state)


def discriminant_head(moments: SourceMoments, ridge: float) -> Head:
    """Linear discriminant with shrunk within-class covariance, as logits of a softmax.

    logit_k(x) = m_k' A^-1 x - m_k' A^-1 m_k / 2 + log(share of class k), A = within covariance + ridge * (mean
    variance) * I. Returns coef (1, D) and intercept (1,) for two classes, (K, D) and (K,) for more.
    """
    mean, centre = to_numpy(moments.mean), to_numpy(moments.total_mean())
    A = to_numpy(moments.within_covariance()).copy()
    A[np.diag_indices_from(A)] += max(ridge, 1e-10) * (float(np.mean(to_numpy(moments.feature_variance()))) or 1.0)
    coef = cho_solve(cho_factor(A, lower=True, overwrite_a=True), (mean - centre).T).T
    share = to_numpy(moments.weight) / moments.total_weight
    intercept = np.log(np.maximum(share, 1e-12)) - 0.5 * np.sum(coef * (mean + centre), axis=1)
    if len(moments.classes) > 2:
        return coef, intercept
    return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
