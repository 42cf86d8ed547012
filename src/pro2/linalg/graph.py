"""Neighbours among target rows, and class probabilities that spread over them (Zhou et al. 2004)."""

from __future__ import annotations

import numpy as np
from scipy import sparse

NEIGHBOURS = 10
STEPS = 30  # 0.8^30 is a thousandth
BLOCK = 1024  # rows whose similarities are in memory at once


def neighbour_graph(Z: np.ndarray, k: int = NEIGHBOURS) -> sparse.csr_matrix:
    """Symmetric normalised graph S of rows Z (n, D): each row and its k nearest by angle, weighted by the cosine."""
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    Z = (Z / np.where(length > 0, length, 1.0)).astype(np.float32)
    n, k = len(Z), min(k, len(Z) - 1)
    near, weight = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    for start in range(0, n, BLOCK):
        part = slice(start, min(start + BLOCK, n))
        C = Z[part] @ Z.T
        C[np.arange(len(C)), np.arange(part.start, part.stop)] = -np.inf  # nobody is a neighbour of oneself
        near[part] = np.argpartition(-C, k - 1, axis=1)[:, :k]
        weight[part] = np.take_along_axis(C, near[part], axis=1)
    values = np.maximum(weight, 1e-6).astype(np.float64).ravel()
    W = sparse.csr_matrix((values, (np.repeat(np.arange(n), k), near.ravel())), shape=(n, n))
    W = W.maximum(W.T)
    scale = sparse.diags(1.0 / np.sqrt(np.asarray(W.sum(axis=1)).ravel()))
    return (scale @ W @ scale).tocsr()


def spread(S: sparse.csr_matrix, P: np.ndarray, alpha: float) -> np.ndarray:
    """Fixed point of F = alpha S F + (1 - alpha) P, rows of sum one: every row hears its neighbours."""
    F = P
    for _ in range(STEPS):
        F = alpha * (S @ F) + (1.0 - alpha) * P
    return np.asarray(F / F.sum(axis=1, keepdims=True))


def smoothness(S: sparse.csr_matrix, P: np.ndarray) -> float:
    """How much the most probable class of a row is that of its neighbours: 1 for wholly, 0 for no more than chance."""
    H = np.eye(P.shape[1])[P.argmax(axis=1)]
    H -= H.mean(axis=0)
    total = float((H * H).sum())
    return float((H * (S @ H)).sum()) / total if total > 0 else 1.0
