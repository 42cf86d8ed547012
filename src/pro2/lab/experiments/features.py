"""Linear features of embeddings: what a method learned from the source, as one affine map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pro2.estimators.linear import unit_rows
from pro2.lab.experiments.problems import Problem
from pro2.lab.theory.nullspace import nullspace_norm

_KEPT = 4  # projected pools that features keep: batches come target by target, from a few workers at a time


@dataclass(frozen=True, eq=False)
class Features:
    """Linear features z = C ((x - mean) / scale); ``components`` None stands for the identity.

    With `unit`, x is divided by its length first.
    """

    mean: np.ndarray
    scale: np.ndarray
    components: np.ndarray | None
    unit: bool = False
    _pools: dict[tuple[str, str, int], np.ndarray] = field(default_factory=dict, repr=False)

    @cached_property
    def single(self) -> np.ndarray | None:
        """Components in float32."""
        return None if self.components is None else self.components.astype(np.float32)

    def transform(self, X: np.ndarray, n_features: int) -> np.ndarray:
        """The first `n_features` features of rows (..., D), in the precision of the rows.

        Embeddings are no more exact than that.
        """
        if self.unit:
            X = unit_rows(X.reshape(-1, X.shape[-1])).reshape(X.shape)
        Z = X - self.mean.astype(X.dtype)
        Z /= self.scale.astype(X.dtype)
        if self.components is None or self.single is None:
            return Z
        return Z @ (self.single if X.dtype == np.float32 else self.components)[:n_features].T

    def pool(self, problem: Problem, target: str, n_features: int) -> np.ndarray:
        """The features of all rows of a target, made once while batches of that target come."""
        key = (problem.digest, target, n_features)
        made = self._pools.get(key)
        if made is None:
            made = self.transform(problem.pool(target)[0], n_features)
            for old in list(self._pools)[: max(0, len(self._pools) - _KEPT + 1)]:
                self._pools.pop(old, None)  # another thread may have done so
            self._pools[key] = made
        return made

    def original(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Heads on the features as heads on the embeddings, in the precision of coef (..., d); intercept (...)."""
        rows = self.single if coef.dtype == np.float32 else self.components
        W = coef.reshape(-1, coef.shape[-1])  # one product, not one a head
        W = W if rows is None else W @ rows[: W.shape[-1]]
        W = (W / self.scale.astype(coef.dtype)).reshape(*coef.shape[:-1], -1)
        return W, intercept - W @ self.mean

    def nullspace_norms(self, head: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        """Share of a head's length outside the span of the first d features, for each d of `sizes`."""
        if self.components is None:
            raise ValueError("the nullspace norm needs ranked features; this method uses all of them")
        return nullspace_norm(self.components, head * self.scale)[np.asarray(sizes) - 1]
