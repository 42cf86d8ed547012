"""Source rows under one input scaling: what the methods of a comparison learn from, each part made once."""

from __future__ import annotations

from functools import cached_property

from array_api_compat import array_namespace

from pro2.estimators.linear import unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.projection import SCALES, input_scale
from pro2.linalg.moments import Array


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
