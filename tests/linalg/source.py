"""A small source and target, shared by the tests of priors and averages."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from pro2.linalg.average import AveragedHead, average_head
from pro2.linalg.bases import krylov_basis
from pro2.linalg.family import PriorFamily
from pro2.linalg.labels import Labels, class_shift
from pro2.linalg.moments import Moments
from pro2.linalg.priors import SourcePrior

D = 12


def make_source(n_classes: int = 2, N: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(N) % n_classes
    mean = rng.normal(size=(n_classes, D)) * 2
    return mean[y] + np.linspace(0.5, 3.0, D) * rng.normal(size=(N, D)), y


def make_target(n_classes: int = 2, M: int = 12, seed: int = 1, shift: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """As many rows of each class, all of them moved."""
    X, y = make_source(n_classes)
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(y == k))[: M // n_classes] for k in range(n_classes)]
    rows = np.concatenate(rows)
    return X[rows] + shift, y[rows]


def make_prior(X: Any, y: Any, family: PriorFamily = PriorFamily(), scale: str = "standard") -> SourcePrior:  # noqa: B008
    """The priors of a source that is scaled feature by feature ("standard") or by one number ("global")."""
    moments = Moments.from_arrays(X, y)
    xp = array_namespace(moments.mean)
    variance = xp.linalg.diagonal(moments.covariance())
    divisor = xp.sqrt(variance if scale == "standard" else 0.0 * variance + xp.mean(variance))
    basis = krylov_basis(moments.scaled(divisor), min(family.n_ranked, moments.width), 1.0)
    return SourcePrior.from_moments(moments, divisor, basis.components, family, scale)


def make_average(
    priors: Any, Z: Any, t: Any, weight: Any = None, *, sampling: str = "auto", shares: Any = None, **options: Any
) -> AveragedHead:
    priors = [priors] if isinstance(priors, SourcePrior) else priors
    labels = Labels.of(Z, t, weight)
    K = priors[0].n_classes
    shift = class_shift(labels, np.full(K, 1.0 / K) if shares is None else shares, priors[0].family, sampling)
    return average_head(priors, labels, shift, **options)
