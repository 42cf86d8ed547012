"""How much of a target's optimal head the first d features miss.

Reference: Chen, Lee, Setlur, Levine & Finn, "Project and Probe: Sample-Efficient Adaptation by Interpolating Orthogonal
Features", ICLR 2024.
"""

from __future__ import annotations

import numpy as np


def nullspace_norm(components: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Share of a head's length outside the first 1..d features: ||(I - P_k) w|| / ||w||.

    The paper's Lemma 1 bounds the bias of probing k features by this number (times the length of w and the Lipschitz
    constant of the loss).

    Parameters
    ----------
    components : array (d, D)
        Features as rows in rank order; rows that are not orthonormal are orthonormalised first (spans do not change).
    heads : array (D,) or (n, D)
        Optimal target heads.

    Returns
    -------
    array (d,) or (n, d)
        Entry k - 1 belongs to the first k features; never increases along k.

    Examples
    --------
    >>> nullspace_norm(np.eye(3), np.array([0.0, 3.0, 4.0])).tolist()
    [1.0, 0.8, 0.0]
    """
    rows, left = check_rows(components, heads)
    size = np.linalg.norm(left, axis=-1)
    if not np.all(size > 0):
        raise ValueError("heads has a zero vector: it points nowhere, so no part of it can be missing.")
    curve = []
    for q in _orthonormal(rows):
        # subtract instead of summing squares: keeps small norms exact
        left = left - (left @ q)[..., None] * q
        curve.append(np.linalg.norm(left, axis=-1) / size)
    return np.stack(curve, axis=-1)


def check_rows(components: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, vectors = np.asarray(components, dtype=float), np.asarray(vectors, dtype=float)
    if rows.ndim != 2 or vectors.shape[-1] != rows.shape[1]:
        raise ValueError(
            f"components must be (d, D) for vectors of length {vectors.shape[-1]}, got shape {rows.shape}; "
            "features are rows."
        )
    return rows, vectors


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """Rows whose prefixes span what those of `rows` do; a dependent row becomes zero."""
    if np.allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-8):
        return rows
    Q = np.zeros_like(rows)
    for i, v in enumerate(rows):
        size = np.linalg.norm(v)
        for _ in range(2):
            v = v - (Q[:i] @ v) @ Q[:i]
        left = np.linalg.norm(v)
        if left > 1e-10 * size:
            Q[i] = v / left
    return Q
