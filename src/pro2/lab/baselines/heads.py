"""Baselines on all features: heads of the source, of the target, of both, and of mixed rows."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from pro2.estimators.probe import best_candidate, penalty_grid
from pro2.lab.baselines.base import Baseline, Fit, Head, ProbeBaseline, Source, check_share, generator
from pro2.linalg.logistic import loo_loss, loo_path

MIX_GRID = tuple(np.linspace(0.0, 1.0, 11))
RIDGE_PENALTIES = 10.0 ** np.arange(-1, 6)

_ONE_AT_A_TIME = Lock()  # liblinear has one random generator for all threads: a second fit would disturb the first


class SourceOnly(Baseline):
    """The source head, whatever the target: what adaptation has to beat (Friedman, JASA 1989)."""

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        return self._source_scaled()


class LinearProbe(ProbeBaseline):
    """L2 logistic regression on all features with the target rows alone: what the paper calls DFR.

    Kirichenko, Izmailov & Wilson, ICLR 2023; Rosenfeld, Ravikumar & Risteski, "Domain-adjusted regression", 2022.
    """

    grid = ("l2",)

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        return self._probe(Z, codes)


class RidgeProbe(Baseline):
    """Least squares on all features with the target rows alone; the penalty by leave-one-out in closed form.

    What scikit-learn's `RidgeClassifierCV` does, on inputs scaled by the source.
    """

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        from sklearn.linear_model import Ridge, RidgeCV

        signs = 2.0 * (codes[:, None] == np.arange(len(self.classes_))) - 1.0
        signs = signs[:, 1:] if len(self.classes_) == 2 else signs
        # nothing can be left out of a single row
        model = RidgeCV(RIDGE_PENALTIES) if len(Z) > 1 else Ridge(1.0)
        with np.errstate(all="ignore"):  # a head that overflows is refused by the classifier
            model.fit(Z, signs)
        return np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)


class SourceCenteredProbe(ProbeBaseline):
    """Linear probe whose penalty is centred on the source head: mean log-loss + (l2 / 2) ||w - w_source||^2.

    Chelba & Acero, 2006; "L2-SP" of Li, Grandvalet & Davoine, ICML 2018. A strong penalty is the source head with a new
    intercept.
    """

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        coef = self._source_scaled()[0]
        return self._probe(Z, codes, prior=coef[0] if len(coef) == 1 else coef)


@dataclass(eq=False, repr=False, kw_only=True)
class HeadInterpolation(ProbeBaseline):
    """(1 - mix) * source head + mix * target head, both on all features (WiSE-FT: Wortsman et al., CVPR 2022).

    `mix` is a number in [0, 1], or "auto": 0, 0.1, ..., 1 by leave-one-out log-loss.
    """

    mix: float | str = "auto"

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        shares = MIX_GRID if self.mix == "auto" else (check_share("mix", self.mix),)
        n_classes, penalties = len(self.classes_), penalty_grid(self.l2, Z)
        fit, held_out = loo_path(Z, codes, [Z.shape[1]], penalties, n_classes=n_classes)
        at = best_candidate(np.asarray(loo_loss(held_out, codes, n_classes)))
        source, target = self._source_scaled(), (np.atleast_2d(fit.coef[at]), np.atleast_1d(fit.intercept[at]))
        heads = [tuple((1 - a) * s + a * t for s, t in zip(source, target)) for a in shares]
        before = Z @ source[0].T + source[1]
        before = before[:, 0] if n_classes == 2 else before
        scores = np.stack([(1 - a) * before + a * held_out[at] for a in shares])
        losses = loo_loss(scores[None], codes, n_classes)
        return heads[int(np.argmin(losses))]


@dataclass(eq=False, repr=False, kw_only=True)
class SourceRowsBaseline(ProbeBaseline):
    """Keeps the scaled source rows, which `adapt` fits on again: memory grows with the source."""

    def _learn(self, source: Source) -> None:
        if self.l2 == "auto":
            raise ValueError("l2 must be a number: leave-one-out over mixed rows does not estimate target accuracy.")
        self._source_rows = source.rows(), source.codes


@dataclass(eq=False, repr=False, kw_only=True)
class JointTraining(SourceRowsBaseline):
    """One L2 logistic regression on source and target rows together (ALL and WEIGHTED of Daume III, ACL 2007).

    `target_share` in [0, 1] is the share of the total weight that the target rows get, however few they are.
    """

    target_share: float = 0.5
    l2: float | str = 1.0

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        share = check_share("target_share", self.target_share)
        Z_source, codes_source = self._source_rows
        n, n_target = len(Z_source), len(Z)
        weight = np.repeat([(1 - share) / n, share / n_target], [n, n_target])
        return self._probe(np.concatenate([Z_source, Z]), np.concatenate([codes_source, codes]), weight=weight)


@dataclass(eq=False, repr=False, kw_only=True)
class MixPro(SourceRowsBaseline):
    """Linear probe on mixtures (1 - mix) * source row + mix * target row of the same class (Xue et al., ICML 2024).

    Every source row is mixed with a random target row of its class (`random_state`); source rows of classes that the
    target lacks are not used.
    """

    mix: float = 0.5
    l2: float | str = 0.1
    random_state: Any = None

    def _head(self, Z: np.ndarray, codes: np.ndarray) -> Fit:
        mix = check_share("mix", self.mix)
        Z_source, codes_source = self._source_rows
        source, target = self._pairs(codes_source, codes)
        return self._probe((1 - mix) * Z_source[source] + mix * Z[target], codes[target])

    def _pairs(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the source and of the target for each mixture, always of one class."""
        rng, usable = generator(self.random_state), np.flatnonzero(np.isin(source, target))
        first = rng.permutation(usable)
        second = np.empty(len(first), dtype=np.int64)
        for k in np.unique(target):
            at = np.flatnonzero(source[first] == k)
            second[at] = rng.choice(np.flatnonzero(target == k), len(at))
        return first, second


@dataclass(eq=False, repr=False, kw_only=True)
class DeepFeatureReweighting(Baseline):
    """DFR as published (Kirichenko, Izmailov & Wilson, ICLR 2023): balanced groups, L1, average of several refits.

    Minimises mean log-loss + l1 ||w||_1 with a free intercept on each of `n_refits` balanced subsets of the target
    rows (as many rows of every group as the smallest has, drawn by `random_state`) and averages the heads. The
    published C is 1 / (l1 * number of rows). `adapt` takes `groups` (M,), by default the classes.
    """

    l1: float = 0.05
    n_refits: int = 10
    random_state: Any = None

    def _head(self, Z: np.ndarray, codes: np.ndarray, groups: Any = None) -> Fit:
        if self.n_refits < 1:
            raise ValueError(f"n_refits must be at least 1, got {self.n_refits}.")
        if not 0 < self.l1 < float("inf"):
            raise ValueError(f"l1 must be a positive finite number, got {self.l1}.")
        if groups is not None and len(groups) != len(codes):
            raise ValueError(f"groups has {len(groups)} entries for {len(codes)} rows: one is needed per row.")
        subsets = self._subsets(codes if groups is None else np.asarray(groups))
        heads = [sparse_head(Z[at], codes[at], self.l1, len(self.classes_)) for at in subsets]
        return tuple(np.mean(values, axis=0) for values in zip(*heads))

    def _subsets(self, groups: np.ndarray) -> np.ndarray:
        """Row numbers (n_refits, n): the smallest group's size of rows of every group; once if all are equal."""
        rng = generator(self.random_state)
        members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
        n = min(map(len, members))
        refits = self.n_refits if any(len(m) > n for m in members) else 1
        return np.array([np.concatenate([rng.permutation(m)[:n] for m in members]) for _ in range(refits)])


def sparse_head(Z: np.ndarray, codes: np.ndarray, l1: float, n_classes: int) -> Head:
    """L1 logistic regression: class 1 of two, or each class against the rest.

    A class without rows gets no weights and the intercept of half a row, so that it keeps a small probability.
    """
    from sklearn.linear_model import LogisticRegression

    heads = []
    for k in [1] if n_classes == 2 else range(n_classes):
        inside = codes == k
        if inside.all() or not inside.any():
            heads.append((np.zeros(Z.shape[1]), np.log(0.5 / len(Z)) * (-1 if inside.all() else 1)))
            continue
        # a large intercept_scaling leaves the intercept nearly free, which liblinear would shrink like a weight
        model = LogisticRegression(
            l1_ratio=1.0, solver="liblinear", C=1.0 / (l1 * len(Z)), tol=1e-6, max_iter=5000,
            intercept_scaling=100.0, random_state=0,
        )  # fmt: skip
        with _ONE_AT_A_TIME:
            model.fit(Z, inside)
        heads.append((model.coef_[0], model.intercept_[0]))
    coef, intercept = zip(*heads)
    return np.stack(coef), np.array(intercept)
