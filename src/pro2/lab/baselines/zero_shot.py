"""Linear probes that start from a zero-shot head and are held near it: CLAP and LP++.

Both papers take CLIP's text embeddings for the head; here it is the source head, whatever made it. Rows get a
constant, so that the intercept is one more weight, and two classes are two rows of weights, as many classes are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pro2.lab.baselines.scaled import Head, ScaledBaseline, Validation, head_like
from pro2.linalg.losses import evaluate, probabilities
from pro2.linalg.moments import Array, host

Step = tuple[np.ndarray, np.ndarray, float]
CURVATURE = 0.5  # largest eigenvalue that the Hessian of a softmax's log-loss in its logits can have (Boehning 1992)


class ZeroShotProbe(ScaledBaseline):
    """A subclass writes `_weights(F, Y, c, T)`: rows F (M, D), one-hot Y (M, K), weights c of sum one, head T (K, D).

    The constant is as large as a feature on average, so that results do not depend on the unit of the features.
    """

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        K, y = len(self.classes_), host(codes)
        level = float(np.sqrt(np.mean(np.diagonal(host(self._moments.covariance()))))) or 1.0
        F = np.column_stack([host(Z), np.full(len(y), level)])
        c = np.ones(len(y)) if weight is None else host(weight)
        coef, intercept = (host(part) for part in self._source_scaled())
        T = np.column_stack([np.atleast_2d(coef), np.atleast_1d(intercept) / level])
        T = np.concatenate([-0.5 * T, 0.5 * T]) if K == 2 else T
        W = self._weights(F, np.eye(K)[y], c / c.sum(), T)
        W = W[1:] - W[:1] if K == 2 else W
        coef, intercept = W[:, :-1], level * W[:, -1]
        return head_like(Z, coef[0], intercept[0]) if K == 2 else head_like(Z, coef, intercept)

    def _weights(self, F: np.ndarray, Y: np.ndarray, c: np.ndarray, T: np.ndarray) -> np.ndarray:
        raise NotImplementedError


@dataclass(eq=False, repr=False, kw_only=True)
class ClassAdaptiveProbe(ZeroShotProbe):
    """CLAP: mean log-loss + strength * sum over classes k of a_k ||w_k - t_k||^2, t the zero-shot head.

    a_k is the mean probability that the zero-shot head gives to the labelled rows of class k for that class: one outer
    step of an augmented Lagrangian at w = t, so a class that the head knows well stays near it. Distances are relative
    to the mean length of the rows of t, which is one for CLIP's; a class without labels has a_k = 1.

    Parameters
    ----------
    strength : float
        1 is the paper's; infinity is the zero-shot head.
    ridge, scale
        As in `SourceOnly`.

    References
    ----------
    Silva-Rodriguez, Hajimiri, Ben Ayed & Dolz, "A closer look at the few-shot adaptation of large vision-language
    models", CVPR 2024.
    """

    strength: float = 1.0

    def _weights(self, F: np.ndarray, Y: np.ndarray, c: np.ndarray, T: np.ndarray) -> np.ndarray:
        from scipy.optimize import minimize

        if isinstance(self.strength, str) or not self.strength > 0:
            raise ValueError(f"strength must be a positive number, got {self.strength!r}.")
        if self.strength == float("inf"):
            return T
        # V = sqrt(penalty) (W - T) lies in the span of the rows: as many numbers as there are rows, all penalised alike
        basis, R = np.linalg.qr(F.T)
        S, root = F @ T.T, np.sqrt(self._penalties(F, Y, c, T))

        def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
            V = v.reshape(len(T), -1)
            value, slope = _log_loss(S + R.T @ V.T / root, Y, c)
            return value + float((V * V).sum()), ((R @ slope / root).T + 2.0 * V).ravel()

        found = minimize(
            loss, np.zeros(len(T) * R.shape[0]), jac=True, method="L-BFGS-B",
            options={"maxiter": 2000, "maxfun": 4000, "gtol": 1e-9, "ftol": 1e-15},
        )  # fmt: skip
        return T + (found.x.reshape(len(T), -1) / root[:, None]) @ basis.T

    def _penalties(self, F: np.ndarray, Y: np.ndarray, c: np.ndarray, T: np.ndarray) -> np.ndarray:
        share = c @ Y
        known = (c @ (Y * probabilities(F @ T.T))) / np.where(share > 0, share, 1.0)
        known = np.where(share > 0, known, 1.0)
        length = float(np.mean((T * T).sum(axis=1)))
        return np.asarray(self.strength * np.maximum(known, 1e-6) / (length or 1.0))


@dataclass(eq=False, repr=False, kw_only=True)
class BlendedProbe(ZeroShotProbe):
    """LP++: logits f . (w_k + a_k t_k), with class prototypes w_k and multipliers a_k of the zero-shot head t_k.

    Both are learned by block steps of length 1 / L, L a bound of the curvature of the mean log-loss in the block: no
    step can raise it, and no learning rate is searched for. Few steps, rather than a penalty, keep w near its start,
    scaled sums of the rows of each class; a_k starts at one, where the head has its own scale (the paper's text
    embeddings have none).

    Parameters
    ----------
    n_steps : int
        300, as in the paper.
    ridge, scale
        As in `SourceOnly`.

    References
    ----------
    Huang, Shakeri, Dolz, Boudiaf, Bahig & Ben Ayed, "LP++: a surprisingly strong linear probe for few-shot CLIP", CVPR
    2024; Boehning, "Multinomial logistic regression algorithm", Annals of the Institute of Statistical Mathematics,
    1992.
    """

    n_steps: int = 300

    def _weights(self, F: np.ndarray, Y: np.ndarray, c: np.ndarray, T: np.ndarray) -> np.ndarray:
        if isinstance(self.n_steps, str | float) or self.n_steps < 0:
            raise ValueError(f"n_steps must be a whole number >= 0, got {self.n_steps!r}.")
        *_, (W, a, _) = self.steps(F, Y, c, T)
        return np.asarray(W + a[:, None] * T)

    def steps(self, F: np.ndarray, Y: np.ndarray, c: np.ndarray, T: np.ndarray) -> Iterator[Step]:
        """Prototypes (K, D), multipliers (K,) and the loss at the start and after each pair of block steps."""
        S = F @ T.T
        bound_w = CURVATURE * float(np.linalg.norm(F * np.sqrt(c)[:, None], 2)) ** 2
        bound_a = CURVATURE * float((c @ (S * S)).max())
        # minimiser of the part of the loss that is linear in w, plus (bound / 2) ||w||^2
        W, a = (Y * c[:, None]).T @ F / bound_w, np.ones(len(T))
        yield W, a, _log_loss(F @ W.T + a * S, Y, c)[0]
        for _ in range(self.n_steps):
            W = W - _log_loss(F @ W.T + a * S, Y, c)[1].T @ F / bound_w
            a = a - (_log_loss(F @ W.T + a * S, Y, c)[1] * S).sum(axis=0) / bound_a if bound_a > 0 else a
            yield W, a, _log_loss(F @ W.T + a * S, Y, c)[0]


def _log_loss(scores: np.ndarray, Y: np.ndarray, c: np.ndarray) -> tuple[float, np.ndarray]:
    """Weighted log-loss of logits (M, K), and its slope in them."""
    value, P = evaluate(scores, Y)
    return float(c @ value), c[:, None] * (P - Y)
