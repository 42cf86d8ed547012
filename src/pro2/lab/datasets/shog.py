"""Shifted homoscedastic Gaussians (SHOG): the synthetic model of Chen et al., "Project and Probe" (ICLR 2024).

Two equally frequent Gaussian classes with one covariance; a target keeps the class means and changes the
covariance. The paper fixes D = 20 and three targets but not the matrices. Here every target covariance is a power of
the source covariance S, rescaled so that the best head of each domain is equally accurate:

    id    S        the source again
    near  S^(1/4)  the same axes, differences of noise between them mostly gone
    far   S^-1     the axes of least noise, on which a source head relies, get the most

so the optimal target head is proportional to S^-p mu with p = 1, 1/4, -1, while the first d features of the Project
step span S^-1 mu, ..., S^-d mu. The head of p = 1 is the first of them; below 1, the smaller p, the more features it
takes to come near the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from scipy.special import ndtr

from pro2.estimators.moments import SourceMoments

TARGET_POWERS: Mapping[str, float] = MappingProxyType({"id": 1.0, "near": 0.25, "far": -1.0})
Seed = int | np.random.Generator | None


@dataclass(frozen=True, eq=False)
class Shog:
    """A source and its targets, with everything about them in closed form. Made by `make_shog`.

    `means` (2, D) are the class means, the same in every domain; `covariances` are the within-class covariances (D, D)
    of "source" and of each target ("id", "near", "far").

    Examples
    --------
    >>> shog = make_shog(random_state=0)
    >>> X, y = shog.sample("far", 8, random_state=1)
    >>> X.shape, y.tolist()
    ((8, 20), [0, 1, 0, 1, 0, 1, 0, 1])
    >>> round(shog.kl("id"), 6) < shog.kl("near") < shog.kl("far")
    True
    """

    means: np.ndarray
    covariances: Mapping[str, np.ndarray]

    @property
    def n_features(self) -> int:
        return int(self.means.shape[1])

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets, mildest shift first."""
        return tuple(name for name in self.covariances if name != "source")

    def covariance(self, domain: str) -> np.ndarray:
        """Within-class covariance (D, D) of "source" or of a target."""
        if domain not in self.covariances:
            raise ValueError(f"domain={domain!r} is unknown; this data has {', '.join(self.covariances)}.")
        return self.covariances[domain]

    def sample(self, domain: str, n_samples: int, random_state: Seed = None) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows X (n_samples, D) and labels y in {0, 1}; labels alternate, so any even number is balanced."""
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        rng = np.random.default_rng(random_state)
        factor = np.linalg.cholesky(self.covariance(domain))
        y = np.arange(n_samples) % 2
        return self.means[y] + rng.standard_normal((n_samples, self.n_features)) @ factor.T, y

    def head(self, domain: str) -> tuple[np.ndarray, float]:
        """Bayes-optimal head of a domain: coef (D,) = S^-1 (m1 - m0), and its intercept."""
        low, high = self.means
        coef = np.linalg.solve(self.covariance(domain), high - low)
        return coef, -float(np.sum(coef * (0.5 * (low + high))))

    def accuracy(self, domain: str, coef: np.ndarray, intercept: float = 0.0) -> float:
        """Exact accuracy on a domain of the head x'coef + intercept, no sampling."""
        spread = float(np.sqrt(coef @ self.covariance(domain) @ coef))
        low, high = self.means @ coef + intercept
        return 0.5 if spread == 0 else float(ndtr(-low / spread) + ndtr(high / spread)) / 2

    def kl(self, domain: str) -> float:
        """KL(source || domain) of the joint law of (x, y), in nats; exact.

        Means and label frequencies agree, so it is the KL of two Gaussians with one mean. The paper's printed formula
        lacks the factor 1/2 on its last three terms and would not be 0 for equal covariances.
        """
        ratio = np.linalg.solve(self.covariance(domain), self.covariance("source"))
        # rounding may leave less than the zero of equal covariances
        return max(0.0, 0.5 * float(np.trace(ratio) - self.n_features - np.linalg.slogdet(ratio)[1]))

    def moments(self) -> SourceMoments:
        """Population moments of the source: what `SourceMoments` converges to with endless rows."""
        return SourceMoments((0, 1), np.array([0.5, 0.5]), self.means, self.covariance("source"))


def make_shog(
    n_features: int = 20, *, condition: float = 100.0, separation: float = 4.0, random_state: Seed = None
) -> Shog:
    """Shifted Gaussians with targets "id", "near" and "far", in a random orientation (`random_state`).

    `condition`, above 1, is the largest over the smallest variance of the source; variances are spaced evenly in the
    logarithm, so all D of them are distinct. `separation` is the Mahalanobis distance of the class means in every
    domain: the best accuracy is Phi(separation / 2), 97.7 % for 4.
    """
    if n_features < 2:
        raise ValueError(f"n_features must be at least 2, got {n_features}: one axis leaves no room for a shift.")
    if not 1 < condition < np.inf:
        raise ValueError(f"condition must be a finite number above 1, got {condition}: the axes must differ.")
    if not 0 < separation < np.inf:
        raise ValueError(f"separation must be a finite number above 0, got {separation}.")
    Q, R = np.linalg.qr(np.random.default_rng(random_state).standard_normal((n_features, n_features)))
    axes = Q * np.sign(np.diag(R))  # uniformly random
    variance = np.geomspace(1.0 / condition, 1.0, n_features)
    # the same mean difference along every axis: its size makes the source distance equal to `separation`
    step = separation / np.sqrt(np.sum(1.0 / variance)) * axes.sum(axis=1)
    powers = {"source": 1.0, **TARGET_POWERS}
    covariances = {name: _power(axes, variance, step, separation, p) for name, p in powers.items()}
    return Shog(np.stack([-0.5 * step, 0.5 * step]), MappingProxyType(covariances))


def _power(axes: np.ndarray, variance: np.ndarray, step: np.ndarray, separation: float, power: float) -> np.ndarray:
    """S^power, scaled so that step' (S^power)^-1 step = separation^2."""
    values = variance**power
    values = values * np.sum((axes.T @ step) ** 2 / values) / separation**2
    return (axes * values) @ axes.T
