"""The paper's own optimiser, kept faithful for reproduction: full-batch AdamW for both steps.

The exact solvers of `pro2.linalg` reach better optima faster; these exist so that the two can be compared in one table.
AdamW is that of Loshchilov & Hutter (2019) with PyTorch's defaults: betas (0.9, 0.999), eps 1e-8.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from pro2.linalg.arrays import Array, to_numpy
from pro2.linalg.basis import Basis, direction_scores
from pro2.linalg.logistic import one_hot, probabilities
from pro2.linalg.moments import Moments

LEARNING_RATE, WEIGHT_DECAY, STEPS = 0.01, 0.01, 100


class AdamW:
    """State of one optimiser over a list of arrays; `step` returns the moved arrays."""

    def __init__(self, lr: Any = LEARNING_RATE, weight_decay: float = WEIGHT_DECAY):
        self.lr, self.decay, self.t = lr, weight_decay, 0
        self.m: list[Array] = []
        self.v: list[Array] = []

    def step(self, params: list[Array], grads: list[Array]) -> list[Array]:
        if not self.m:
            self.m = [0.0 * g for g in grads]
            self.v = [0.0 * g for g in grads]
        self.t += 1
        moved = []
        for i, (p, g) in enumerate(zip(params, grads)):
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
            root = array_namespace(g).sqrt(self.v[i] / (1 - 0.999**self.t)) + 1e-8
            moved.append(p * (1 - self.lr * self.decay) - self.lr * self.m[i] / (1 - 0.9**self.t) / root)
        return moved


def adamw_basis(
    X: Array, y: Array, n_components: int, rng: Any, *, n_classes: int = 2, sample_weight: Array | None = None,
    steps: int = STEPS, lr: float = LEARNING_RATE,
) -> tuple[Basis, Array]:  # fmt: skip
    """Joint AdamW on all directions, QR after every step (the paper's pseudocode, with y expanded to (N, d)).

    For more than two classes, which the pseudocode does not cover, feature i carries its own one-dimensional softmax
    head (K slopes and intercepts), as in the definition. Returns the basis and the column lengths |diag(R)|.
    """
    xp = array_namespace(X)
    D, d, dev = X.shape[1], n_components, device(X)
    bound = D**-0.5  # PyTorch's start for a linear layer
    start = lambda *shape: xp.asarray(rng.uniform(-bound, bound, shape), dtype=X.dtype, device=dev)  # noqa: E731
    W, heads = start(d, D), [start(d, 1)]
    if n_classes > 2:
        heads = [start(d, n_classes) / bound, start(d, n_classes)]
    c = xp.ones(X.shape[0], dtype=X.dtype, device=dev) if sample_weight is None else xp.astype(sample_weight, X.dtype)
    c = c / (xp.sum(c) * d)
    Y, optimiser = _targets(y, n_classes, X)[:, None, :], AdamW(lr)
    for _ in range(steps):
        W, *heads = optimiser.step([W, *heads], list(_gradient(xp, X, Y, c, W, heads)))
        Q, R = xp.linalg.qr(xp.matrix_transpose(W))
        W = xp.matrix_transpose(Q * xp.linalg.diagonal(R)[None, :])
    Q, R = xp.linalg.qr(xp.astype(xp.matrix_transpose(W), xp.float64))
    diagonal = xp.linalg.diagonal(R)
    rows = xp.matrix_transpose(Q * xp.where(diagonal < 0, -xp.ones_like(diagonal), xp.ones_like(diagonal)))
    scores = direction_scores(to_numpy(rows), Moments.from_arrays(X, y, sample_weight))
    return Basis(rows, scores, n_components), xp.abs(diagonal)


def _gradient(xp: Any, X: Array, Y: Array, c: Array, W: Array, heads: list[Array]) -> tuple[Array, ...]:
    """By the directions and by their heads: logits of feature i are slope_ik z_i + intercept_ik.

    Two classes have one logit, whose slope is 1 and not learned.
    """
    *slope, intercept = heads
    Z = (X @ xp.matrix_transpose(W))[..., None]
    G = c[:, None, None] * _slope((Z * slope[0] if slope else Z) + intercept, Y)
    gz = xp.sum(G * slope[0], axis=-1) if slope else G[..., 0]
    by_slope = [xp.sum(G * Z, axis=0) for _ in slope]
    return xp.matrix_transpose(gz) @ X, *by_slope, xp.sum(G, axis=0)


def adamw_probe(
    Z: Array, y: Array, l2: float, lr: float, rng: Any, *, n_classes: int = 2, X_val: Array | None = None,
    y_val: Array | None = None, steps: int = STEPS,
) -> tuple[Array, Array]:  # fmt: skip
    """The paper's probe: AdamW on mean log-loss + (l2/2)||w||^2, keeping the step of best validation accuracy.

    Z (..., M, p), y (..., M). Returns coef (..., K, p) and intercept (..., K), with K = 1 for two classes. Without
    validation rows the last step is returned.
    """
    xp, (*lead, M, p) = array_namespace(Z), Z.shape
    K, Y, optimiser = 1 if n_classes == 2 else n_classes, _targets(y, n_classes, Z), AdamW(lr)
    start = lambda *s: xp.asarray(rng.uniform(-(p**-0.5), p**-0.5, s), dtype=Z.dtype, device=device(Z))  # noqa: E731
    W, b = start(*lead, K, p), start(*lead, K)
    best, kept = xp.full(tuple(lead), -1.0, dtype=Z.dtype, device=device(Z)), (W, b)
    for _ in range(steps):
        G = _slope(Z @ xp.matrix_transpose(W) + b[..., None, :], Y) / M
        W, b = optimiser.step([W, b], [xp.matrix_transpose(G) @ Z + l2 * W, xp.sum(G, axis=-2)])
        if X_val is None or y_val is None:
            kept = (W, b)
            continue
        accuracy = _accuracy(xp, X_val @ xp.matrix_transpose(W) + b[..., None, :], y_val)
        better = accuracy > best
        best = xp.where(better, accuracy, best)
        kept = (xp.where(better[..., None, None], W, kept[0]), xp.where(better[..., None], b, kept[1]))
    return kept


def _targets(y: Array, n_classes: int, like: Array) -> Array:
    """One-hot; of two classes only the second, which has the one logit."""
    Y = one_hot(y, n_classes, like)
    return Y[..., 1:] if n_classes == 2 else Y


def _slope(F: Array, Y: Array) -> Array:
    """Slope of the log-loss in the logits F."""
    P = probabilities(F)
    return (P[..., 1:] if F.shape[-1] == 1 else P) - Y


def _accuracy(xp: Any, f: Array, y: Array) -> Array:
    codes = xp.astype(f[..., 0] > 0, y.dtype) if f.shape[-1] == 1 else xp.astype(xp.argmax(f, axis=-1), y.dtype)
    return xp.mean(xp.astype(codes == y, f.dtype), axis=-1)
