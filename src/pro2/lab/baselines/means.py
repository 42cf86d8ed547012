"""Baselines that need the target's class means only."""

from __future__ import annotations

from array_api_compat import array_namespace

from pro2.estimators.moments import SourceMoments
from pro2.lab.baselines.scaled import Head, ScaledBaseline, Validation
from pro2.linalg.discriminants import discriminant_head
from pro2.linalg.moments import Array


class NearestClassMean(ScaledBaseline):
    """Class of the nearest mean of the target rows, in scaled features; classes without target rows keep the source's.

    Parameters as in `SourceOnly`.

    References
    ----------
    Mensink et al., "Distance-based image classification: generalizing to new classes at near-zero cost", TPAMI 2013;
    Snell, Swersky & Zemel, "Prototypical networks for few-shot learning", NeurIPS 2017.
    """

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        mean = self._target_moments(Z, codes, weight).mean
        xp = array_namespace(mean)
        # logits of equal spherical Gaussians with the mean variance of the source classes
        within = self._moments.within_covariance()
        level = xp.sum(xp.linalg.diagonal(within)) / within.shape[0]
        level = xp.where(level > 0, level, xp.ones_like(level))
        rows, intercept = mean / level, -0.5 * xp.sum(mean * mean, axis=1) / level
        return (rows, intercept) if len(self.classes_) > 2 else (rows[1, :] - rows[0, :], intercept[1] - intercept[0])

    def _target_moments(self, Z: Array, codes: Array, weight: Array | None) -> SourceMoments:
        """Moments of scaled target rows; a class without rows takes its mean from the source."""
        xp = array_namespace(Z)
        target = SourceMoments.from_arrays(Z, codes, weight, classes=range(len(self.classes_)))
        source = self._moments.mean - self.mean_ / self.scale_
        mean = xp.where((target.weight > 0)[:, None], target.mean, source)
        return SourceMoments(target.classes, target.weight, mean, target.scatter)


class ShrunkLDA(NearestClassMean):
    """Linear discriminant with the target's class means and the shrunk covariance of source and target together.

    Parameters
    ----------
    ridge : float
        Weight of the identity added to the within-class covariance, relative to the mean variance.
    scale
        As in `SourceOnly`.

    References
    ----------
    Friedman, "Regularized discriminant analysis", JASA 1989; Ledoit & Wolf, "A well-conditioned estimator for
    large-dimensional covariance matrices", 2004.
    """

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        target = self._target_moments(Z, codes, weight)
        xp = array_namespace(target.mean)
        total = self._moments.total_weight + target.total_weight
        scatter = (self._moments.scatter + target.scatter) / total
        equal = xp.ones_like(target.weight) / target.weight.shape[0]
        return discriminant_head(SourceMoments(target.classes, equal, target.mean, scatter), self.ridge)
