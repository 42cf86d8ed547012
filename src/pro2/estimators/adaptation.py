"""The two ways in which `ProjectAndProbe` adapts: averaged Pro2, and the paper's probe on the first d features.

Each is a fit to labelled rows that can say what it would be without some of them (`without`), how common classes are
(`shares`) and what else a report should say of it (`facts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Self

import numpy as np

from pro2.estimators.probe import best_candidate, feature_grid, penalty_grid, select
from pro2.estimators.projection import Projection
from pro2.estimators.report import Head
from pro2.estimators.unlabeled import SmoothedRows
from pro2.linalg.arrays import both_scores, to_numpy
from pro2.linalg.closed_form import Average, average, temperature
from pro2.linalg.labelled import ClassShares, Labelled, class_shares, drawn_by_class
from pro2.linalg.logistic import probabilities
from pro2.linalg.prior import SourcePrior

LARGE = 2e10  # multiplications from which on more than one BLAS thread pays: a third of a second


@cache
def blas() -> Any:
    """The BLAS libraries of this process, whose threads can be limited."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    return max((library.num_threads for library in blas().lib_controllers), default=1)


@contextmanager
def blas_threads_for(work: float) -> Iterator[None]:
    """One BLAS thread for few multiplications: several threads wait for each other on a busy machine.

    NumPy and SciPy bring a BLAS each, and the threads of one keep the cores from the other for a while.
    """
    if work >= LARGE or blas_threads() == 1:
        yield
        return
    with blas().limit(limits=1):
        yield


@dataclass(frozen=True, eq=False)
class AveragedFit:
    """Averaged Pro2: every prior of the family in closed form, weighed by leave-one-out likelihood.

    Labelled rows may have a leading axis, one entry for each of several targets: so has the head then.
    """

    priors: Sequence[SourcePrior]
    source_shares: np.ndarray
    label_sampling: str
    known_shares: np.ndarray | None  # of the target
    labelled: Labelled
    average: Average
    smoothed: SmoothedRows | None = None

    @classmethod
    def of(
        cls, priors: Sequence[SourcePrior], source_shares: np.ndarray, label_sampling: str, labelled: Labelled,
        U: np.ndarray | None = None, known_shares: np.ndarray | None = None,
    ) -> Self:  # fmt: skip
        """Fit to labelled rows, with unlabelled rows U (n, D) and known class shares where there are any."""
        M, D = labelled.X.shape[-2:]
        smoothed = None if U is None else SmoothedRows.of(priors, labelled.X, U)
        with blas_threads_for(M * min(M, D) * D):
            if smoothed is None:
                shrunk = [prior.shrunk(labelled.X, labelled.c) for prior in priors]
                fit = average(shrunk, labelled.X, labelled.y, labelled.c)
            else:
                fit = average(smoothed.priors, labelled.X, labelled.y, labelled.c, smoothed.versions)
        return cls(priors, source_shares, label_sampling, known_shares, labelled, fit, smoothed)

    @cached_property
    def temperature(self) -> np.ndarray:
        return temperature(self.average.left_out, self.average.y, self.average.c)[..., None]

    @cached_property
    def class_shares(self) -> ClassShares:
        power = self.priors[0].family.source_shares
        found = class_shares(self.average.counts, self.source_shares, power, self.label_sampling)
        if self.known_shares is None:
            return found
        logs = np.log(np.maximum(self.known_shares, 1e-12))
        return found._replace(assumed=logs - logs.mean(), shares=self.known_shares, by_class=np.zeros(()))

    def _final(self, scores: np.ndarray) -> np.ndarray:
        """Calibrated scores for the class shares of the target, from those for the shares of the labelled rows."""
        return self.temperature * scores - self.class_shares.labelled + self.class_shares.assumed

    @cached_property  # of many classes it is a large part of the fit
    def head(self) -> Head:
        coef, intercept = self.average.head() if self.smoothed is None else self.smoothed.affine_map(self.average)
        return self.temperature[..., None] * coef, self._final(intercept + self.class_shares.labelled)

    def left_out_scores(self) -> np.ndarray:
        """Of each labelled row without it, (M, K); of so many rows that only some were left out, those of the head."""
        if len(self.average.y) == len(self.labelled.y):
            return self._final(self.average.left_out)
        coef, intercept = self.head
        return np.asarray(self.labelled.X @ coef.T + intercept)

    def unlabeled_probabilities(self) -> np.ndarray:
        """Of the unlabelled rows that are in the graph, (n, K); better than those of the affine map."""
        assert self.smoothed is not None
        scores = self.smoothed.scores(self.average)[len(self.labelled.y) :]
        return probabilities(self._final(scores + self.class_shares.labelled))

    def without(self, rows: np.ndarray) -> tuple[AveragedFit, np.ndarray]:
        """Exact, from the same factors; of very many labels the fit to the others is made anew."""
        left = self.labelled.take(np.setdiff1d(np.arange(len(self.labelled.y)), rows))
        if len(self.average.y) < len(self.labelled.y):
            settings = self.priors, self.source_shares, self.label_sampling
            fit = AveragedFit.of(*settings, left, known_shares=self.known_shares)
            coef, intercept = fit.head
            return fit, self.labelled.X[rows] @ coef.T + intercept
        rest, scores = self.average.without(rows)
        fit = replace(self, labelled=left, average=rest, smoothed=None)
        return fit, fit._final(scores)

    @property
    def shares(self) -> tuple[np.ndarray, float]:
        return self.class_shares.shares, float(self.class_shares.by_class)

    def facts(self) -> dict[str, Any]:
        """The members with their weights, heaviest first, and the temperature."""
        found = self.average.members()
        found.sort(key=lambda member: -member["weight"])
        return {"members": found, "temperature": float(self.temperature[0])}


@dataclass(frozen=True, eq=False)
class ProbeFit:
    """The paper's method: a probe on the first d ranked features with an l2 penalty."""

    projection: Projection
    n_features: int
    l2: float
    n_classes: int
    label_sampling: str
    labelled: Labelled
    head: Head

    @classmethod
    def of(
        cls, projection: Projection, n_features: int | str, l2: float | str, n_classes: int, label_sampling: str,
        labelled: Labelled, val: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Self:  # fmt: skip
        """d and l2 as given, or by leave-one-out, or by accuracy on validation rows."""
        Z = projection._features(labelled.X)
        d_grid, l2_grid = feature_grid(n_features, Z.shape[1]), penalty_grid(l2, Z, labelled.c)
        val = None if val is None else (projection._features(val[0]), val[1])
        fit, scores = select(Z, labelled.y, d_grid, l2_grid, n_classes, labelled.c, None, val)
        i, j = best_candidate(scores)
        coef, intercept = map(to_numpy, projection.to_input_space(fit.coef[i, j], fit.intercept[i, j]))
        head = (coef, intercept) if coef.ndim > 1 else (both_scores(coef, 0), both_scores(intercept, 0))
        return cls(projection, d_grid[i], l2_grid[j], n_classes, label_sampling, labelled, head)

    def without(self, rows: np.ndarray) -> tuple[ProbeFit, np.ndarray]:
        """A fit to the others, with the same d and l2.

        Its scores of the rows take out by how much classes became rarer: free intercepts follow that.
        """
        left = self.labelled.take(np.setdiff1d(np.arange(len(self.labelled.y)), rows))
        args = self.projection, self.n_features, self.l2, self.n_classes, self.label_sampling
        fit = ProbeFit.of(*args, left)
        before, after = self.labelled.counts(self.n_classes), left.counts(self.n_classes)
        lost = np.log(np.divide(before, after, out=np.ones(self.n_classes), where=after > 0))
        return fit, self.labelled.X[rows] @ fit.head[0].T + fit.head[1] + lost

    @property
    def shares(self) -> tuple[np.ndarray, float]:
        counts = self.labelled.counts(self.n_classes)
        return counts / counts.sum(), float(drawn_by_class(counts, self.label_sampling))

    def facts(self) -> dict[str, Any]:
        return {"n_features": self.n_features, "l2": self.l2}
