"""The paper's theory in numbers: what the first d features miss of a head, bounds on the target error, information.

Chen, Lee, Setlur, Levine & Finn, "Project and Probe", ICLR 2024: Lemma 1, Theorem 1, the corollary for Gaussians, and
the theorem on mutual information with its two entropy lemmas where they are exact: classes are equally frequent
Gaussians N(m_0, S) and N(m_1, S), and what projections A x tell of the label, in nats, depends on the distance of the
projected classes alone.
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


def nullspace_norm(components: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Share of a head's length outside the first 1..d features: ||(I - P_k) w|| / ||w||, (d,) or (n, d).

    Lemma 1 bounds the bias of probing k features by this number times the length of w and the Lipschitz constant of the
    loss. `components` (d, D) are features as rows in rank order, orthonormalised here if they are not; `heads` (D,) or
    (n, D). Entry k - 1 belongs to the first k features.

    Examples
    --------
    >>> nullspace_norm(np.eye(3), np.array([0.0, 3.0, 4.0])).tolist()
    [1.0, 0.8, 0.0]
    """
    rows, rest = np.asarray(components, dtype=float), np.asarray(heads, dtype=float)
    if rows.ndim != 2 or rest.shape[-1] != rows.shape[1]:
        raise ValueError(f"components must be (d, D) for heads of length {rest.shape[-1]}, got shape {rows.shape}.")
    length = np.linalg.norm(rest, axis=-1)
    if not np.all(length > 0):
        raise ValueError("heads has a zero vector: it has no direction, so no part of it can be missing.")
    if not np.allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-8):
        rows = _orthonormal(rows)
    curve = []
    for q in rows:
        rest = rest - (rest @ q)[..., None] * q  # subtracting keeps small norms exact, a sum of squares would not
        curve.append(np.linalg.norm(rest, axis=-1) / length)
    return np.stack(curve, axis=-1)


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """Rows whose prefixes span what those of `rows` do; a dependent row becomes zero."""
    Q = np.zeros_like(rows)
    for i, row in enumerate(rows):
        v = row - (Q[:i] @ row) @ Q[:i]
        v = v - (Q[:i] @ v) @ Q[:i]
        if np.linalg.norm(v) > 1e-10 * np.linalg.norm(row):
            Q[i] = v / np.linalg.norm(v)
    return Q


def risk_bound(
    missed: float, radius: float, projected_radius: float, n_target: int, delta: float = 0.05
) -> tuple[float, float]:
    """Theorem 1 with its constants: excess risk of the norm-bounded probe on d features, with probability 1 - delta.

    It is at most bias + variance, which are returned: bias = R ||(I - P_d) w*|| and
    variance = 2 R_d / sqrt(M) + 2 B sqrt(log(2 / delta) / (2 M)), for log-loss, whose slope is at most 1 and which is
    at most B = log(1 + exp(R)). The paper hides the constants and bounds R_d by sqrt(d) ||x||_inf. The first term of
    the variance is twice the Rademacher complexity of the unit ball (Kakade et al., 2008), the second is Hoeffding's
    inequality for the probe and for the best head in the span (Bartlett & Mendelson, 2002).

    `missed` is ||(I - P_d) w*|| for the best head w* of length at most one; `radius` R and `projected_radius` R_d are
    the largest lengths of a row and of its projection; `n_target` is M.
    """
    if not 0 < delta < 1 or n_target < 1:
        raise ValueError(f"expected delta in (0, 1) and n_target of at least 1, got {delta} and {n_target}.")
    deviation = 2.0 * math.log1p(math.exp(radius)) * math.sqrt(math.log(2.0 / delta) / (2.0 * n_target))
    return radius * missed, 2.0 * projected_radius / math.sqrt(n_target) + deviation


def norm_bounded_probe(Z: np.ndarray, y: np.ndarray, radius: float = 1.0, tol: float = 1e-7) -> np.ndarray:
    """The probe of Theorem 1: w (..., d) of least mean log-loss among ||w|| <= radius, without intercept.

    Z (..., M, d) and y (..., M) in {0, 1}; leading axes are problems. Accelerated projected gradient steps with
    restarts, until no entry moves by more than `tol`.
    """
    Z, sign = np.asarray(Z, dtype=float), 2.0 * np.asarray(y) - 1.0
    M = Z.shape[-2]
    # the second derivative of the log-loss in the logit is at most 1/4
    step = 4.0 * M / np.maximum(np.linalg.norm(Z, ord=2, axis=(-2, -1)) ** 2, 1e-300)[..., None]
    w = np.zeros((*Z.shape[:-2], Z.shape[-1]))
    at, t = w, 1.0
    for _ in range(100_000):
        margin = sign * (Z @ at[..., None])[..., 0]
        slope = -np.squeeze((sign / (1.0 + np.exp(np.clip(margin, -700, 700))))[..., None, :] @ Z, axis=-2) / M
        new = at - step * slope
        new = new * np.minimum(1.0, radius / np.maximum(np.linalg.norm(new, axis=-1, keepdims=True), 1e-300))
        if np.max(np.abs(new - at), initial=0.0) <= tol:
            return new
        uphill = np.sum((at - new) * (new - w)) > 0
        following = 1.0 if uphill else 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        at = new if uphill else new + ((t - 1.0) / following) * (new - w)
        w, t = new, following
    raise RuntimeError("the norm-bounded probe did not converge in 100,000 steps")


def mean_log_loss(Z: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Mean log-loss of heads w (..., d) without intercept on rows Z (n, d), labels y in {0, 1}: (...)."""
    return np.asarray(np.logaddexp(0.0, -(w @ Z.T) * (2.0 * y - 1.0)).mean(axis=-1))


def shift_bound(n_features: np.ndarray | int, n_target: np.ndarray | int, n_dims: int, kl: float) -> np.ndarray:
    """The paper's bound on the target error under shifted Gaussians: sqrt(1 - d/D) KL + sqrt(d/M).

    Stated up to constants and for a random projection, so read its shape, not its level: the d that minimises it grows
    with the shift and with the number of target rows. Arguments broadcast.
    """
    d, M = np.asarray(n_features, dtype=float), np.asarray(n_target, dtype=float)
    if np.any(d < 0) or np.any(d > n_dims) or np.any(M < 1) or not kl >= 0:
        raise ValueError(f"expected n_features in 0..{n_dims}, n_target >= 1 and kl >= 0, got {d}, {M} and {kl}.")
    return np.sqrt(1.0 - d / n_dims) * kl + np.sqrt(d / M)


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
