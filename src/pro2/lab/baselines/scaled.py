"""What the baselines share: source rows under one input scaling, a source head, an exact probe on target rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device

from pro2.estimators.contract import SourceTargetClassifier
from pro2.estimators.linear import LinearClassifier, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.probe import best_candidate, penalty_grid, select
from pro2.estimators.projection import DEFAULT_RIDGE, SCALES, input_scale
from pro2.estimators.validation import check_X
from pro2.linalg.discriminants import discriminant_head
from pro2.linalg.moments import Array

Head = tuple[Array, Array]
Validation = tuple[Array, Array] | None


class Source:
    """Labelled source rows, and what is made of them when it is first asked for.

    Parameters
    ----------
    X : array (N, D)
    codes : integer array (N,)
        Class codes 0..n_classes-1.
    scale : {None, "global", "standard", "unit"}
        As in `Projection`.
    weight : array (N,), optional
    device : str, optional
        PyTorch's name of the device that `on_device` moves rows to, where features are trained on them.
    """

    def __init__(
        self, X: Array, codes: Array, n_classes: int, scale: str | None, weight: Array | None = None,
        device: str | None = None,
    ) -> None:  # fmt: skip
        if scale not in SCALES:
            raise ValueError(f"scale must be one of {SCALES}, got {scale!r}.")
        if n_classes < 2:
            raise ValueError("y has one class only: a classifier needs source rows of at least two classes.")
        self.unit = scale == "unit"
        self.scale = scale
        self.X = unit_rows(X) if self.unit else X
        self.codes, self.weight, self.n_classes, self.device = codes, weight, n_classes, device

    @property
    def width(self) -> int:
        return int(self.X.shape[1])

    @cached_property
    def raw_moments(self) -> SourceMoments:
        return SourceMoments.from_arrays(self.X, self.codes, self.weight, classes=range(self.n_classes))

    @cached_property
    def mean(self) -> Array:
        return self.raw_moments.total_mean()

    @cached_property
    def sd(self) -> Array:
        """What each feature is divided by."""
        C, moments = self.raw_moments.between_factor(), self.raw_moments
        xp = array_namespace(C)
        variance = xp.linalg.diagonal(moments.scatter) / moments.total_weight + xp.sum(C * C, axis=1)
        return input_scale(variance, self.scale)

    @cached_property
    def moments(self) -> SourceMoments:
        """Of the scaled rows."""
        return self.raw_moments.scaled(self.sd)

    def rows(self) -> Array:
        """The scaled rows; not kept, they are as large as the source."""
        xp = array_namespace(self.X)
        return (self.X - xp.astype(self.mean, self.X.dtype)) / xp.astype(self.sd, self.X.dtype)

    def on_device(self, rows: Array) -> Array:
        """Rows to train on, where training is to run; without a device, the rows as they are."""
        if self.device is None:
            return rows
        import torch

        return torch.asarray(rows, device=self.device)


@dataclass(eq=False, repr=False, kw_only=True)
class ScaledBaseline(SourceTargetClassifier):
    """fit: input scaling and a source head (shrunk discriminant); adapt: `_adapt_scaled` on scaled target rows.

    Heads are (coef (D,), intercept ()) for two classes and (coef (K, D), intercept (K,)) for more, as in linalg.

    Attributes
    ----------
    grid : tuple of str
        What a plan's grids try for this method: "n_features", "l2", both or nothing.
    nested : bool
        Whether the features of a smaller number are the first of a larger number.
    """

    grid: ClassVar[tuple[str, ...]] = ()
    nested: ClassVar[bool] = True

    ridge: float = DEFAULT_RIDGE
    scale: str | None = "standard"

    def _fit_source(self, X: Array, codes: Array, weight: Array | None) -> Head:
        if isinstance(self.ridge, str) or not 0 <= self.ridge < float("inf"):
            raise ValueError(f"ridge must be a finite number >= 0, got {self.ridge!r}.")
        source = Source(X, codes, len(self.classes_), self.scale, weight)
        self.unit_rows_, self.mean_, self.scale_ = source.unit, source.mean, source.sd
        self._moments = source.moments
        coef, intercept = discriminant_head(self._moments, self.ridge)
        self.source_head_ = LinearClassifier.from_arrays(
            self.classes_, coef / self.scale_, intercept, unit=self.unit_rows_
        )
        self._learn(source)
        return coef / self.scale_, intercept

    def _learn(self, source: Source) -> None:
        """What else a method needs of the source: most need nothing and forget its rows."""

    def adapt(
        self, X_target: Any, y_target: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> LinearClassifier:
        """Adapt to labelled target rows; returns a new classifier, the model is not changed.

        Parameters
        ----------
        X_target, y_target : arrays (M, D), (M,)
        sample_weight : array (M,), optional
        X_val, y_val : arrays, optional
            Held-out target rows: what is "auto" is then chosen by accuracy on them. Methods with nothing to choose
            do not look at them.
        """
        return super().adapt(X_target, y_target, sample_weight, X_val=X_val, y_val=y_val)

    def _adapt(
        self, X: Array, codes: Array, weight: Array | None, X_val: Any = None, y_val: Any = None, **extra: Any
    ) -> LinearClassifier:
        val = self._validation(X_val, y_val)
        return self._unscaled(*self._adapt_scaled(self._scaled(X), codes, weight, val, **extra))

    def _unscaled(self, coef: Array, intercept: Array) -> LinearClassifier:
        """A head on scaled rows as a classifier of embeddings."""
        coef = coef / self.scale_
        return LinearClassifier.from_arrays(self.classes_, coef, intercept - coef @ self.mean_, unit=self.unit_rows_)

    def _scaled(self, X: Array) -> Array:
        xp = array_namespace(X)
        X = unit_rows(X) if self.unit_rows_ else X
        return (xp.astype(X, xp.float64) - self.mean_) / self.scale_

    def _source_scaled(self) -> Head:
        """The source head as a map of scaled rows."""
        coef, intercept = self.source_head_.coef_, self.source_head_.intercept_
        if len(self.classes_) == 2:
            coef, intercept = coef[0, :], intercept[0]
        return coef * self.scale_, intercept + coef @ self.mean_

    def _validation(self, X_val: Any, y_val: Any) -> tuple[Array, Array] | None:
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val go together: give both or neither.")
        if X_val is None:
            return None
        X_val = check_X(self, X_val, reset=False, name="X_val")
        return self._scaled(X_val), self._encode_target(y_val, X_val, "y_val")

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation, **extra: Any) -> Head:
        raise NotImplementedError


@dataclass(eq=False, repr=False, kw_only=True)
class ProbeBaseline(ScaledBaseline):
    """Adds the exact L2 probe and its penalty."""

    l2: float | str = "auto"

    def _probe(self, Z: Array, codes: Array, weight: Array | None, val: Validation, prior: Array | None = None) -> Head:
        """Probe on all columns of Z; a penalty that is "auto" by validation or leave-one-out."""
        grid = penalty_grid(self.l2, Z, weight)
        fit, scores = select(Z, codes, [Z.shape[1]], grid, len(self.classes_), weight, prior, val)
        at = best_candidate(scores)
        return fit.coef[*at, ...], fit.intercept[*at, ...]


def check_share(name: str, value: Any) -> float:
    """A number in [0, 1], or an error that names the argument."""
    if isinstance(value, str) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be a number in [0, 1], got {value!r}.")
    return float(value)


def head_like(Z: Array, coef: np.ndarray, intercept: np.ndarray | float) -> Head:
    """A head that NumPy computed, in the namespace and on the device of Z."""
    xp = array_namespace(Z)
    return tuple(xp.asarray(part, dtype=xp.float64, device=device(Z)) for part in (coef, np.asarray(intercept)))


def logits(coef: Array, intercept: Array, Z: Array) -> Array:
    return Z @ (coef if coef.ndim == 1 else array_namespace(coef).matrix_transpose(coef)) + intercept
