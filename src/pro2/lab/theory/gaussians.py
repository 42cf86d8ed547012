"""Closed forms for Gaussian classes: best linear head, accuracy of any head, KL divergence."""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import array_namespace

from pro2.linalg.moments import Array


def gaussian_kl(mean_p: Array, covariance_p: Array, mean_q: Array, covariance_q: Array) -> float:
    """KL(N(mean_p, covariance_p) || N(mean_q, covariance_q)) in nats.

    (tr(Q^-1 P) - D + log det Q - log det P + (m_q - m_p)' Q^-1 (m_q - m_p)) / 2. The Project-and-Probe paper prints the
    eigenvalue sums and D without the factor 1/2; this is the exact value, 0 for equal arguments.
    """
    xp = array_namespace(covariance_p)
    _check_covariance("covariance_p", covariance_p)
    _check_covariance("covariance_q", covariance_q)
    step = mean_q - mean_p
    trace = xp.sum(xp.linalg.diagonal(xp.linalg.solve(covariance_q, covariance_p)))
    distance = xp.sum(step * xp.linalg.solve(covariance_q, step[:, None])[:, 0])
    volume = _log_det("covariance_q", covariance_q) - _log_det("covariance_p", covariance_p)
    return 0.5 * (float(trace) - covariance_p.shape[0] + volume + float(distance))


def gaussian_head(means: Array, covariance: Array, prior: tuple[float, float] = (0.5, 0.5)) -> tuple[Array, float]:
    """Bayes-optimal head (coef (D,), intercept) of two Gaussian classes with one covariance.

    coef = S^-1 (m1 - m0); intercept = log(p1 / p0) - coef'(m0 + m1) / 2. The sigmoid of x'coef + intercept is the exact
    posterior of class 1.
    """
    xp = array_namespace(covariance)
    _check_covariance("covariance", covariance)
    coef = xp.linalg.solve(covariance, (means[1, :] - means[0, :])[:, None])[:, 0]
    middle = 0.5 * (means[0, :] + means[1, :])
    return coef, math.log(prior[1] / prior[0]) - float(xp.sum(coef * middle))


def gaussian_accuracy(means: Array, covariance: Array, coef: Array, intercept: float = 0.0) -> float:
    """Exact accuracy of the rule x'coef + intercept > 0 on two equally frequent Gaussian classes."""
    xp = array_namespace(covariance)
    _check_covariance("covariance", covariance)
    spread = math.sqrt(float(xp.sum(coef * (covariance @ coef))))
    if spread == 0:
        return 0.5
    low, high = (float(xp.sum(means[k, :] * coef)) + intercept for k in (0, 1))
    return 0.5 * (_normal_cdf(-low / spread) + _normal_cdf(high / spread))


def _normal_cdf(t: float) -> float:
    return 0.5 * math.erfc(-t / math.sqrt(2.0))


def _check_covariance(name: str, covariance: Array) -> None:
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        raise ValueError(f"{name} must be a square matrix (D, D), got shape {tuple(covariance.shape)}.")


def _log_det(name: str, covariance: Array) -> float:
    xp: Any = array_namespace(covariance)
    sign, value = xp.linalg.slogdet(covariance)
    if not float(sign) > 0 or not math.isfinite(float(value)):
        raise ValueError(f"{name} is not positive definite; add a small multiple of the identity (shrinkage) first.")
    return float(value)
