"""Methods for few labels, compared under one interface: `fit(X_source, y_source)`, `adapt(X_target, y_target)`, then
`predict_proba(X)`. Hyperparameters by each method's own rule, or on held-out labels (leave-one-out where it is exact).

    python benchmarks/rivals.py [DATA] [--only unseen shared] [--seeds 5] [--rows JSON] [--out docs/results/rivals.md]

All see embeddings scaled by the source (mean and standard deviation). Methods for CLIP start from text embeddings; here
the source head takes their place. Those with unlabelled rows are judged on these rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from pro2 import ProjectAndProbe
from pro2.lab.baselines import create_baseline

TITLES = {
    "source": "source head",
    "probe": "linear probe",
    "paper": "paper's Pro2",
    "interpolation": "head interpolation",
}
Logits = Callable[[np.ndarray], np.ndarray]  # of scaled rows (n, D): (n, K)


class Adapted:
    """What `adapt` returns: probabilities from logits of scaled rows, and those of the unlabelled rows."""

    def __init__(self, rival: Rival, logits: Logits, U: np.ndarray | None) -> None:
        self.classes_, self.rival, self.logits = rival.classes_, rival, logits
        if U is not None:
            self.transductive_proba_ = softmax(logits(U), axis=1)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(softmax(self.logits(self.rival.scaled(X)), axis=1))

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(self.classes_[self.predict_proba(X).argmax(axis=1)] == y))


class Rival:
    """Scaled rows and a source head T (K, D), t (K,) on them; a subclass writes `learn`."""

    needs_unlabeled = False

    def fit(self, X: np.ndarray, y: np.ndarray) -> Rival:
        return self.start(create_baseline("source-only").fit(X, y).source_head_, X)

    def start(self, head: Any, X: np.ndarray) -> Rival:
        """From a head on embeddings, and rows that give the scale."""
        self.classes_, sd = head.classes_, X.std(axis=0, dtype=np.float64)
        self.mean, self.sd = X.mean(axis=0, dtype=np.float64), np.maximum(sd, 0.1 * sd.mean())
        coef, intercept = np.asarray(head.coef_), np.asarray(head.intercept_)
        if len(coef) == 1:
            coef, intercept = (np.concatenate([-0.5 * part, 0.5 * part]) for part in (coef, intercept))
        self.T, self.t = coef * self.sd, intercept + coef @ self.mean
        F = self.scaled(X) @ self.T.T + self.t
        self.size = float(np.sqrt(np.mean((F - F.mean(axis=1, keepdims=True)) ** 2)))
        return self

    def scaled(self, X: np.ndarray) -> np.ndarray:
        return np.asarray((X - self.mean) / self.sd)

    def source_logits(self, Z: np.ndarray) -> np.ndarray:
        """With a root mean square of one on the source: methods choose their own weight for them."""
        return np.asarray(Z @ self.T.T + self.t) / self.size

    def adapt(self, X: np.ndarray, y: np.ndarray, X_unlabeled: np.ndarray | None = None) -> Adapted:
        U = None if X_unlabeled is None else self.scaled(X_unlabeled)
        Y = (np.asarray(y)[:, None] == self.classes_).astype(float)
        return Adapted(self, self.learn(self.scaled(X), Y, U), U)

    def learn(self, Z: np.ndarray, Y: np.ndarray, U: np.ndarray | None) -> Logits:
        raise NotImplementedError


def choose(candidates: Iterable[tuple[Any, np.ndarray]], Y: np.ndarray) -> tuple[Any, float]:
    """Setting whose held-out logits (M, K) have the least log-loss at their best temperature, and that factor."""
    best = (np.inf, None, 1.0)
    for setting, F in candidates:
        for factor in 2.0 ** np.arange(-4, 7, 0.5):
            loss = -np.mean(np.sum(Y * log_softmax(factor * F, axis=1), axis=1))
            best = min(best, (loss, setting, factor), key=lambda entry: entry[0])
    return best[1], best[2]


class KernelRidge(Rival):
    """Kernel ridge on what `size` times the source logits leave; everything chosen by exact leave-one-out.

    Sizes of 0 and a linear kernel: prevalidated ridge (Dempster, Webb & Schmidt, 2024). Other sizes: ProKeR (Bendou,
    Ouasfi, Gripon & Boukhayma, CVPR 2025), with a linear or a Gaussian kernel. `logits_as_features` adds the source
    logits to a linear kernel instead (PRED of Daume III, 2007, with ridge).
    """

    def __init__(
        self, sizes: tuple[float, ...] = (0.0,), widths: tuple[float, ...] = (), logits_as_features: bool = False
    ):
        self.sizes, self.widths, self.logits_as_features = sizes, widths, logits_as_features

    def kernel(self, A: np.ndarray, B: np.ndarray, width: float) -> np.ndarray:
        if width:
            squares = (A * A).sum(1)[:, None] + (B * B).sum(1) - 2 * A @ B.T
            return np.asarray(np.exp(-np.maximum(squares, 0) / (width * 2 * A.shape[1])) + 1.0)
        K = A @ B.T / A.shape[1] + 1.0
        return K + self.source_logits(A) @ self.source_logits(B).T if self.logits_as_features else K

    def learn(self, Z: np.ndarray, Y: np.ndarray, U: np.ndarray | None) -> Logits:
        target, before = 2 * Y - 1, self.source_logits(Z)

        def candidates() -> Iterator[tuple[Any, np.ndarray]]:
            for width in self.widths or (0.0,):
                values, vectors = np.linalg.eigh(self.kernel(Z, Z, width))
                for size in self.sizes:
                    for penalty in 10.0 ** np.arange(-3, 3.5, 0.5):
                        inverse = (vectors / (np.maximum(values, 0) + penalty)) @ vectors.T
                        dual = inverse @ (target - size * before)
                        # without row i its residual is dual_i / inverse_ii
                        yield (width, size, dual), target - dual / np.diag(inverse)[:, None]

        (width, size, dual), factor = choose(candidates(), Y)
        return lambda rows: factor * (size * self.source_logits(rows) + self.kernel(rows, Z, width) @ dual)


class TipAdapter(Rival):
    """Source logits plus a cache: alpha exp(-beta (1 - cosine)) of the labelled rows (Zhang et al., ECCV 2022)."""

    def learn(self, Z: np.ndarray, Y: np.ndarray, U: np.ndarray | None) -> Logits:
        def cosine(A: np.ndarray) -> np.ndarray:
            lengths = np.linalg.norm(A, axis=1)[:, None] * np.linalg.norm(Z, axis=1)
            return np.asarray(A @ Z.T / np.maximum(lengths, 1e-12))

        before, near = self.source_logits(Z), cosine(Z)
        grid = [(alpha, beta) for alpha in 2.0 ** np.arange(-3, 7) for beta in (1.0, 3.0, 5.5, 10.0)]
        cache = {beta: np.exp(-beta * (1 - near)) for _, beta in grid}
        for affinity in cache.values():
            np.fill_diagonal(affinity, 0.0)  # without a row its own entry is not in the cache
        (alpha, beta), factor = choose(((s, before + s[0] * cache[s[1]] @ Y) for s in grid), Y)
        return lambda A: factor * (self.source_logits(A) + alpha * np.exp(-beta * (1 - cosine(A))) @ Y)


class GaussianAdapter(Rival):
    """Source logits plus those of a Gaussian discriminant of the labelled rows (Wang et al., ICLR 2024).

    One covariance, with the published shrinkage: precision = D ((M - 1) S + tr(S) I)^-1. The weight of the discriminant
    is chosen by cross-validation in at most ten folds.
    """

    def learn(self, Z: np.ndarray, Y: np.ndarray, U: np.ndarray | None) -> Logits:
        M, folds = len(Z), min(10, len(Z))
        order = np.argsort(Y.argmax(axis=1), kind="stable")
        held = np.zeros_like(Y)
        for fold in range(folds):
            out = np.zeros(M, dtype=bool)
            out[order[fold::folds]] = True
            held[out] = self.discriminant(Z[~out], Y[~out])(Z[out])
        before = self.source_logits(Z)
        weight, factor = choose(((a, before + a * held) for a in 10.0 ** np.arange(-4, 3.5, 0.5)), Y)
        logits = self.discriminant(Z, Y)
        return lambda A: factor * (self.source_logits(A) + weight * logits(A))

    def discriminant(self, Z: np.ndarray, Y: np.ndarray) -> Logits:
        counts, D = Y.sum(axis=0)[:, None], Z.shape[1]
        means = np.where(counts > 0, Y.T @ Z / np.maximum(counts, 1), Z.mean(axis=0))
        C = Z - Y @ means
        level = max(float(np.sum(C * C)) / max(1, len(Z) - 1), 1e-6 * D)
        # (C'C + level I)^-1 by Woodbury: there are fewer rows than features
        inner = np.linalg.solve(C @ C.T + level * np.eye(len(Z)), C @ means.T)
        W = D * (means - (C.T @ inner).T) / level
        return lambda A: A @ W.T - 0.5 * np.sum(W * means, axis=1)


class ZeroShotProbe(Rival):
    """Softmax regression that starts from the source head; rows get a constant, so the intercept is one more weight.

    A subclass writes `weights(F, Y, T)`: rows F (M, D + 1), one-hot Y (M, K), head T (K, D + 1).
    """

    def learn(self, Z: np.ndarray, Y: np.ndarray, U: np.ndarray | None) -> Logits:
        W = self.weights(np.column_stack([Z, np.ones(len(Z))]), Y, np.column_stack([self.T, self.t]))
        return lambda A: A @ W[:, :-1].T + W[:, -1]

    def weights(self, F: np.ndarray, Y: np.ndarray, T: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class CLAP(ZeroShotProbe):
    """Mean log-loss + sum over classes a_k ||w_k - t_k||^2, t the source head (Silva-Rodriguez et al., CVPR 2024).

    a_k is the mean probability that the head gives to the labelled rows of class k for that class: one outer step of an
    augmented Lagrangian at w = t. Distances are relative to the mean length of the rows of t.
    """

    def weights(self, F: np.ndarray, Y: np.ndarray, T: np.ndarray) -> np.ndarray:
        counts = Y.sum(axis=0)
        known = np.where(counts > 0, np.sum(Y * softmax(F @ T.T, axis=1), axis=0) / np.maximum(counts, 1), 1.0)
        root = np.sqrt(np.maximum(known, 1e-6) / np.mean(np.sum(T * T, axis=1)))
        # V = root (W - T) lies in the span of the rows: as many numbers as there are rows, all penalised alike
        basis, R = np.linalg.qr(F.T)
        S = F @ T.T

        def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
            V = v.reshape(len(T), -1)
            scores = S + R.T @ V.T / root
            slope = (softmax(scores, axis=1) - Y) / len(F)
            value = -np.mean(np.sum(Y * log_softmax(scores, axis=1), axis=1))
            return value + np.sum(V * V), ((R @ slope / root).T + 2 * V).ravel()

        found = minimize(loss, np.zeros(len(T) * len(R)), jac=True, method="L-BFGS-B", options={"maxiter": 1000})
        return np.asarray(T + (found.x.reshape(len(T), -1) / root[:, None]) @ basis.T)


class LPPlusPlus(ZeroShotProbe):
    """Logits f . (w_k + a_k t_k): class prototypes w and multipliers a of the source head (Huang et al., CVPR 2024).

    Both take 300 block steps of length 1 / L, L a bound of the curvature of the mean log-loss in the block: no step can
    raise it, and no learning rate is searched for. Few steps, not a penalty, keep w near scaled class sums.
    """

    def weights(self, F: np.ndarray, Y: np.ndarray, T: np.ndarray) -> np.ndarray:
        S, M = F @ T.T, len(F)
        bound_w = 0.5 * np.linalg.norm(F, 2) ** 2 / M  # 1/2 bounds the Hessian of a softmax (Boehning 1992)
        bound_a = 0.5 * float(np.mean(S * S, axis=0).max())
        W, a = Y.T @ F / M / bound_w, np.ones(len(T))
        for _ in range(300):
            W = W - ((softmax(F @ W.T + a * S, axis=1) - Y) / M).T @ F / bound_w
            a = a - np.mean((softmax(F @ W.T + a * S, axis=1) - Y) * S, axis=0) / bound_a
        return np.asarray(W + a[:, None] * T)


class Spreading(Rival):
    """Label spreading over a nearest-neighbour graph (Zhou et al. 2004), scikit-learn's with its defaults."""

    needs_unlabeled = True

    def learn(self, Z: np.ndarray, Y: np.ndarray, U: np.ndarray | None) -> Logits:
        from sklearn.semi_supervised import LabelSpreading

        rows = np.concatenate([Z, U])
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        labels = np.concatenate([Y.argmax(axis=1), np.full(len(U), -1)])
        model = LabelSpreading("knn", n_neighbors=min(7, len(rows) - 1), max_iter=200).fit(rows, labels)
        P = np.zeros((len(U), Y.shape[1]))
        P[:, model.classes_] = np.nan_to_num(model.label_distributions_[len(Z) :])
        return lambda A: np.log(np.maximum(P, 1e-3))


class TransCLIP(Rival):
    """A Gaussian mixture over all rows with neighbours that agree and a source head to stay near (Zanella et al. 2024).

    Assignments z_i ~ p_i^0.5 exp(log density + sum_j w_ij z_j), p the source head's probabilities, w the cosines of the
    three nearest neighbours; one diagonal covariance; labelled rows keep their label. Ten rounds, as published.
    """

    needs_unlabeled = True

    def learn(self, Z: np.ndarray, Y: np.ndarray, U: np.ndarray | None) -> Logits:
        rows = np.concatenate([Z, U])
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        own, other = rows[: len(Z)], rows[len(Z) :]
        prior = 0.5 * log_softmax(4.0 * self.source_logits(U), axis=1)
        cosines = other @ other.T
        np.fill_diagonal(cosines, -np.inf)
        near = np.argsort(-cosines, axis=1)[:, :3]
        weight = np.maximum(np.take_along_axis(cosines, near, axis=1), 0.0)
        z = softmax(2 * prior, axis=1)
        variance = np.full(rows.shape[1], 1.0 / rows.shape[1])
        for _ in range(10):
            # both kinds of rows count as much, however many there are
            mass = Y.sum(axis=0) / len(own) + z.sum(axis=0) / len(other)
            sums = Y.T @ own / len(own) + z.T @ other / len(other)
            means = sums / np.maximum(mass, 1e-12)[:, None]
            spread = np.mean((own - Y @ means) ** 2, axis=0) + np.mean((other - z @ means) ** 2, axis=0)
            variance = np.maximum(0.5 * spread, 1e-8)
            density = -0.5 * ((other**2 / variance).sum(1)[:, None] - 2 * (other / variance) @ means.T + (
                means**2 / variance).sum(1))  # fmt: skip
            for _ in range(5):
                z = softmax(prior + density + np.einsum("nk,nkc->nc", weight, z[near]), axis=1)
        return lambda A: np.log(np.maximum(z, 1e-12))


class WithUnlabeled:
    """Averaged Pro2 given the unlabelled rows, too; judged on those, by its affine map or by its answers for them."""

    needs_unlabeled = True

    def __init__(self, answers: bool) -> None:
        self.answers, self.model = answers, ProjectAndProbe()

    def fit(self, X: np.ndarray, y: np.ndarray) -> WithUnlabeled:
        self.model.fit(X, y)
        return self

    def adapt(self, X: np.ndarray, y: np.ndarray, X_unlabeled: np.ndarray) -> Any:
        adapted = self.model.adapt(X, y, X_unlabeled=X_unlabeled)
        if not self.answers:
            adapted.transductive_proba_ = adapted.predict_proba(X_unlabeled)
        return adapted


SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
_OWN: dict[str, tuple[str, Callable[[], Any]]] = {
    "pro2": ("Pro2 averaged (default)", ProjectAndProbe),
    "prevalidated": ("prevalidated ridge", KernelRidge),
    "proker": ("ProKeR, linear kernel", partial(KernelRidge, SIZES)),
    "proker-rbf": ("ProKeR, Gaussian kernel", partial(KernelRidge, SIZES, (0.25, 1.0, 4.0))),
    "source-logit": ("ridge with source logits", partial(KernelRidge, logits_as_features=True)),
    "gda": ("Gaussian discriminant adaptation", GaussianAdapter),
    "tip-adapter": ("Tip-Adapter", TipAdapter),
    "clap": ("CLAP", CLAP),
    "lp++": ("LP++", LPPlusPlus),
    "pro2-map": ("with unlabelled rows: Pro2 averaged, affine map", partial(WithUnlabeled, answers=False)),
    "pro2-answers": ("with unlabelled rows: Pro2 averaged, answers", partial(WithUnlabeled, answers=True)),
    "spreading": ("with unlabelled rows: label spreading", Spreading),
    "transclip": ("with unlabelled rows: TransCLIP", TransCLIP),
}
_BASELINES = {
    "source": ("source-only", TITLES["source"]),
    "ridge": ("ridge", "ridge on the target"),
    "probe": ("linear-probe", TITLES["probe"]),
    "interpolation": ("interpolation", TITLES["interpolation"]),
    "mixpro": ("mixpro", "MixPro"),
    "dfr": ("dfr", "DFR"),
}
ALL_TITLES = {
    **{name: title for name, (title, _) in _OWN.items()},
    **{name: title for name, (_, title) in _BASELINES.items()},
    "paper": TITLES["paper"],
}
PAGE = ("pro2", "source", "ridge", "prevalidated", "source-logit", "proker", "proker-rbf", "gda", "tip-adapter", "clap",
        "lp++", "interpolation", "mixpro", "dfr", "paper", "pro2-map", "pro2-answers", "spreading",
        "transclip")  # fmt: skip


def create_method(name: str, scale: str = "standard") -> Any:
    """An unfitted method by its name, or `module:factory` for any other."""
    if name in _OWN:
        return _OWN[name][1]()
    if name in _BASELINES:
        seeded = {"random_state": 0} if name in ("mixpro", "dfr") else {}
        return create_baseline(_BASELINES[name][0], scale=scale, **seeded)
    if name == "paper":
        return ProjectAndProbe(n_features="loo", l2="loo", scale=scale)
    module, _, factory = name.partition(":")
    if not factory:
        raise SystemExit(f"unknown method {name!r}; there are {', '.join(ALL_TITLES)}, or give module:factory")
    return getattr(importlib.import_module(module), factory)()


def create_rivals(scale: str = "standard", names: Iterable[str] = TITLES) -> dict[str, Any]:
    """The source head, a probe on all features, the paper's method and the closest baseline, not yet fitted."""
    return {name: create_method(name, scale) for name in names}


if __name__ == "__main__":
    from unseen_tasks import main

    main("rivals", __doc__, PAGE, "Rivals, each given the same labels")
