"""Directions of the methods that Project and Probe is compared with: rows (d, D), the first the most important.

Random, PCA, LDA and PLS give orthonormal rows in rank order like `krylov_basis`; Pro2-NC and Teney et al. train their
rows jointly and give them unit length but no right angles: redundancy is what sets them apart.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from pro2.estimators.moments import SourceMoments
from pro2.linalg import lapack
from pro2.linalg.adamw import STEPS, AdamW
from pro2.linalg.bases import check_request, complete, inverse, orthogonalise
from pro2.linalg.moments import Array

PIECE = 1024  # rows of a gradient at a time: with d = 64, all that is made from their logits stays in the cache


def random_rows(n_components: int, width: int, seed: int | np.random.Generator | None = None) -> np.ndarray:
    """Uniformly random orthonormal rows; a longer basis of the same seed begins with the shorter one."""
    A = np.random.default_rng(seed).standard_normal((n_components, width))
    if n_components <= 0.9 * width:
        return lapack.orthonormal_rows(A)
    Q, R = np.linalg.qr(A.T)
    return np.ascontiguousarray((Q * np.sign(np.diag(R))).T)


@lru_cache(maxsize=16)
def shared_random_rows(n_components: int, width: int, seed: int) -> np.ndarray:
    """The same, kept: they depend on no data, so all data sets of a sweep share them."""
    rows = random_rows(n_components, width, seed)
    rows.flags.writeable = False
    return rows


def pca_rows(moments: SourceMoments, n_components: int) -> Array:
    """Principal directions of the source, largest variance first; labels are not used."""
    check_request(moments, n_components, 0.0)
    return _completed(_no_rows(moments), moments, n_components)


def lda_rows(moments: SourceMoments, n_components: int, ridge: float = 0.0) -> Array:
    """Fisher's discriminants: at most K - 1 directions, then the principal directions of what is left.

    Solves B v = rho W v with B the between-class and W the within-class covariance plus ridge * (its mean variance) * I
    (Rao, 1948), orthonormalised in order of rho.
    """
    check_request(moments, n_components, ridge)
    xp = array_namespace(moments.mean)
    C = moments.between_factor()
    MC = inverse(moments.within_covariance(), ridge) @ C
    values, vectors = xp.linalg.eigh(_symmetric(xp.matrix_transpose(C) @ MC))
    rows = _no_rows(moments)
    for i in range(min(len(moments.classes) - 1, n_components)):
        v, left = orthogonalise(rows, MC @ vectors[:, -1 - i])
        if float(values[-1 - i]) <= 1e-12 * float(values[-1]) or left <= 1e-10:
            break
        rows = xp.concat([rows, (v * _side(xp, C, v))[None, :]])
    return _completed(rows, moments, n_components)


def pls_rows(moments: SourceMoments, n_components: int) -> Array:
    """Partial least squares on one-hot labels: weights w_a of largest covariance with the deflated labels.

    The kernel form needs X'X and X'Y only (Dayal & MacGregor, 1997); for two classes the rows span the Krylov space
    b, Ab, A^2 b, ... with A = Cov(X) and b = Cov(X, y), where Project and Probe has inverse powers of A.
    """
    check_request(moments, n_components, 0.0)
    xp = array_namespace(moments.mean)
    A = moments.covariance()
    share = (moments.weight / moments.total_weight)[:, None]
    S = xp.matrix_transpose(share * (moments.mean - moments.total_mean()))  # Cov(X, one-hot y), (D, K)
    rows = R = P = _no_rows(moments)
    size = float(xp.sqrt(xp.sum(S * S)))
    for _ in range(n_components):
        w, left = orthogonalise(rows, _leading_left(S))
        if left <= 1e-10 or float(xp.sqrt(xp.sum(S * S))) <= 1e-12 * size:
            break
        r = w - (P @ w) @ R
        p = A @ r
        energy = xp.sum(r * p)
        S = S - p[:, None] * ((r @ S) / energy)[None, :]
        rows, R, P = (xp.concat([M, v[None, :]]) for M, v in ((rows, w), (R, r), (P, p / energy)))
    return _completed(rows, moments, n_components)


def alignment_rows(
    X: Array,
    y: Array,
    n_components: int,
    alignment: float,
    *,
    n_classes: int = 2,
    sample_weight: Array | None = None,
    seed: int | np.random.Generator | None = None,
    n_steps: int = STEPS,
) -> Array:
    """Source log-loss of every row plus `alignment` times how well the input gradients of the rows agree.

    Teney et al., "Evading the Simplicity Bias", CVPR 2022. X (N, D) is centred by the caller, y holds codes; with more
    than two classes row i learns class i mod K against the rest. Joint full-batch AdamW as in the Project step. With
    `alignment` 0 nothing but its random start keeps a row apart from the others: Pro2-NC.

    The penalty is the mean over rows i and source points of g_i(x)'g_j(x), averaged over j != i, with g_i the gradient
    of the probability of the predicted class: for a linear row s p (1 - p) w_i, in closed form. It is bounded, unlike
    the same product of logit gradients.
    """
    xp = array_namespace(X)
    _check_training(X, n_components, alignment, n_steps)
    X = X if X.dtype in (xp.float32, xp.float64) else xp.astype(X, xp.float64)
    targets = _row_targets(xp, X, y, n_components, n_classes)
    c = xp.ones(X.shape[0], dtype=X.dtype, device=device(X)) if sample_weight is None else sample_weight
    c = xp.astype(xp.asarray(c, device=device(X)), X.dtype)
    c = c / xp.sum(c)
    bound = 1.0 / math.sqrt(X.shape[1])  # PyTorch's start for a linear layer
    start = np.random.default_rng(seed).uniform(-bound, bound, (n_components, X.shape[1] + 1))
    W, b = (xp.asarray(part, dtype=X.dtype, device=device(X)) for part in (start[:, :-1].copy(), start[:, -1].copy()))
    optimiser = AdamW()
    for _ in range(n_steps):
        W, b = optimiser.step([W, b], [*_loss_gradient(X, targets, c, W, b, alignment)])
    return xp.astype(W / xp.sqrt(xp.sum(W * W, axis=1, keepdims=True)), xp.float64)


def _loss_gradient(X: Array, T: Array, c: Array, W: Array, b: Array, alignment: float) -> tuple[Array, Array]:
    """Gradient in (W, b) of sum_i logloss_i + alignment * sum_i mean_{j != i} sum_n c_n g_i(x_n)'g_j(x_n)."""
    xp, d = array_namespace(X), W.shape[0]
    off = (1.0 - xp.eye(d, dtype=X.dtype, device=device(X))) * (alignment / max(1, d - 1))
    G = (W @ xp.matrix_transpose(W)) * (2.0 * off)
    H, in_W, in_b = 0.0 * off, 0.0 * W, 0.0 * b
    n = PIECE if is_numpy_array(X) else X.shape[0]
    for rows in (slice(i, i + n) for i in range(0, X.shape[0], n)):
        p = X[rows, :] @ xp.matrix_transpose(W)
        p += b
        p = 1.0 / (1.0 + xp.exp(-xp.clip(p, -40.0, 40.0)))
        in_z = p - T[rows, :]  # d loss / d logit, before the weights
        if alignment > 0:
            q = 1.0 - p
            spread = p * q
            V = xp.where(p > 0.5, spread, -spread)
            H += xp.matrix_transpose(V) @ (c[rows, None] * V)
            in_z += (V @ G) * V * (q - p)  # through V: dV/dz = side p (1 - p)(1 - 2p)
        in_z *= c[rows, None]
        in_W += xp.matrix_transpose(in_z) @ X[rows, :]
        in_b += xp.sum(in_z, axis=0)
    return in_W + 2.0 * ((H * off) @ W), in_b


def _row_targets(xp: Any, X: Array, y: Array, n_components: int, n_classes: int) -> Array:
    """What each row learns, (N, d): class 1 of two, or class i mod K against the rest."""
    codes = np.ones(n_components, dtype=np.int64) if n_classes == 2 else np.arange(n_components) % n_classes
    y = xp.astype(xp.asarray(y, device=device(X)), xp.int64)
    return xp.astype(y[:, None] == xp.asarray(codes, device=device(X))[None, :], X.dtype)


def _check_training(X: Array, n_components: int, alignment: float, n_steps: int) -> None:
    if not 1 <= n_components <= X.shape[1]:
        raise ValueError(f"n_components={n_components} is outside 1..{X.shape[1]}, the number of features.")
    if not 0 <= alignment < math.inf:
        raise ValueError(f"alignment must be a finite number >= 0, got {alignment}.")
    if n_steps < 1:
        raise ValueError(f"n_steps must be at least 1, got {n_steps}.")


def _no_rows(moments: SourceMoments) -> Array:
    xp = array_namespace(moments.mean)
    return xp.zeros((0, moments.width), dtype=moments.mean.dtype, device=device(moments.mean))


def _completed(rows: Array, moments: SourceMoments, n_components: int) -> Array:
    return rows if rows.shape[0] == n_components else complete(rows, moments.covariance(), n_components)


def _leading_left(S: Array) -> Array:
    """S u with u the leading right singular vector of S: the direction of largest covariance with the labels."""
    xp = array_namespace(S)
    u = xp.linalg.eigh(_symmetric(xp.matrix_transpose(S) @ S))[1][:, -1]
    v = S @ u
    return v * _side(xp, S, v)


def _side(xp: Any, C: Array, v: Array) -> Array:
    """Sign that makes the last class on the positive side where it matters, else the class that is farthest out."""
    along = v @ C
    last = along[-1]
    far = xp.take(along, xp.reshape(xp.argmax(xp.abs(along)), (1,)))[0]
    pick = xp.where(xp.abs(last) > 0.5 * xp.abs(far), last, far)
    return xp.where(pick < 0, -xp.ones_like(pick), xp.ones_like(pick))


def _symmetric(S: Array) -> Array:
    return 0.5 * (S + array_namespace(S).matrix_transpose(S))
