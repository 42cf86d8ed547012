"""The paper's mutual-information theorem and its two entropy lemmas, in numbers where they are exact: on Gaussians.

Classes are equally frequent Gaussians N(m_0, S) and N(m_1, S). What projections A x tell of the label depends on the
distance of the projected classes alone, so that every quantity is a determinant or an integral over one line. In nats.

Reference: Chen, Lee, Setlur, Levine & Finn, "Project and Probe", ICLR 2024, appendix on the projection step.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from scipy.stats import norm

REACH = 12.0  # standard deviations beyond the means, where a density is below 1e-31
POINTS = 4001


def gaussian_entropy(covariance: np.ndarray) -> float:
    """Differential entropy of a Gaussian: log det(2 pi e covariance) / 2."""
    return 0.5 * float(np.linalg.slogdet(2 * math.pi * math.e * np.atleast_2d(covariance))[1])


def mixture_entropy(means: ArrayLike, deviations: ArrayLike, share: float = 0.5) -> float:
    """Differential entropy of share * N(m_0, s_0^2) + (1 - share) * N(m_1, s_1^2), on one line."""
    (m0, m1), (s0, s1) = np.asarray(means, dtype=float), np.asarray(deviations, dtype=float)
    x = np.linspace(min(m0 - REACH * s0, m1 - REACH * s1), max(m0 + REACH * s0, m1 + REACH * s1), POINTS)
    log_density = np.logaddexp(
        math.log(share) + norm.logpdf(x, m0, s0), math.log1p(-share) + norm.logpdf(x, m1, s1)
    )  # fmt: skip
    return float(trapezoid(-np.exp(log_density) * log_density, x))


def gaussian_divergences(means: ArrayLike, deviations: ArrayLike, share: float = 0.5) -> tuple[float, float]:
    """Jensen-Shannon divergence of two Gaussians on one line with these shares, and the larger of their two KL."""
    (m0, m1), (s0, s1) = np.asarray(means, dtype=float), np.asarray(deviations, dtype=float)
    within = share * gaussian_entropy(s0**2) + (1 - share) * gaussian_entropy(s1**2)
    kl = [math.log(b / a) + (a**2 + (m0 - m1) ** 2) / (2 * b**2) - 0.5 for a, b in ((s0, s1), (s1, s0))]
    return mixture_entropy(means, deviations, share) - within, max(kl)


def label_information(rows: np.ndarray, means: np.ndarray, covariance: np.ndarray) -> float:
    """I(A x; y) for rows A (d, D): what d projections together tell of the label; at most log 2."""
    A = np.atleast_2d(rows)
    step = A @ (means[1] - means[0])
    distance = math.sqrt(max(0.0, float(step @ np.linalg.solve(A @ covariance @ A.T, step))))
    return gaussian_divergences((0.0, distance), (1.0, 1.0))[0]


def single_informations(rows: np.ndarray, means: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """I(a_i' x; y) of each row by itself (d): the paper's lower bound on I(A x; y) is their sum, less a constant."""
    return np.array([label_information(row, means, covariance) for row in rows])


def separation_for(divergence: float) -> float:
    """Distance of two Gaussians whose Jensen-Shannon divergence is this, in (0, log 2): the theorem's assumption."""
    return float(brentq(lambda d: gaussian_divergences((0.0, d), (1.0, 1.0))[0] - divergence, 1e-6, 40.0))


def even_rows(direction: np.ndarray, n_rows: int) -> np.ndarray:
    """Orthonormal rows (n_rows, D), each at the same angle to a direction that lies in their span."""
    D = len(direction)
    basis = np.linalg.qr(np.column_stack([direction, np.eye(D)[:, : D - 1]]))[0][:, :n_rows]
    # a rotation whose first column has equal entries
    turn = np.linalg.qr(np.column_stack([np.ones(n_rows), np.eye(n_rows)[:, : n_rows - 1]]))[0]
    return turn @ basis.T
