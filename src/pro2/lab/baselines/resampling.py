"""Baselines that fit on rows put together from source and target, or drawn again from the target."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.utils import check_random_state

from pro2.estimators.contract import take_rows
from pro2.estimators.linear import LinearClassifier
from pro2.lab.baselines.scaled import Head, ProbeBaseline, ScaledBaseline, Source, Validation, check_share, head_like
from pro2.linalg.moments import Array, host

_ONE_AT_A_TIME = Lock()  # liblinear has one random generator for all threads: a second fit would disturb the first


class SourceRowsBaseline(ProbeBaseline):
    """Keeps the scaled source rows, which `adapt` fits on again: memory grows with the source."""

    def _learn(self, source: Source) -> None:
        Z = source.rows()
        xp = array_namespace(Z)
        share = xp.astype(xp.ones_like(Z[:, 0]) if source.weight is None else source.weight, xp.float64)
        self._source_rows = (Z, source.codes, share / xp.sum(share))

    def _probe_rows(self, Z: Array, codes: Array, weight: Array, val: Validation) -> Head:
        if self.l2 == "auto" and val is None:
            raise ValueError(
                f"l2='auto' of {type(self).__name__} needs X_val and y_val: leave-one-out over mixed rows would not "
                "speak about the target. Give them, or a number."
            )
        return self._probe(Z, codes, weight, val)


@dataclass(eq=False, repr=False, kw_only=True)
class JointTraining(SourceRowsBaseline):
    """One L2 logistic regression on source and target rows together.

    Parameters
    ----------
    target_share : float in [0, 1]
        Share of the total weight that the target rows get, however few they are.
    l2 : float or "auto"
        Penalty; "auto" needs `X_val, y_val` in `adapt`.
    ridge, scale
        As in `SourceOnly`.

    References
    ----------
    Daume III, "Frustratingly easy domain adaptation", ACL 2007 (its ALL and WEIGHTED baselines).
    """

    target_share: float = 0.5
    l2: float | str = 1.0

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        xp = array_namespace(Z)
        share = check_share("target_share", self.target_share)
        Z_source, codes_source, weight_source = self._source_rows
        own = xp.ones_like(Z[:, 0]) if weight is None else xp.astype(weight, Z.dtype)
        both = xp.concat([(1 - share) * weight_source, share * own / xp.sum(own)])
        rows = xp.concat([xp.astype(Z_source, Z.dtype), Z])
        return self._probe_rows(rows, xp.concat([codes_source, codes]), both, val)


@dataclass(eq=False, repr=False, kw_only=True)
class MixPro(SourceRowsBaseline):
    """Linear probe on mixtures (1 - mix) * source row + mix * target row of the same class.

    Parameters
    ----------
    mix : float in [0, 1]
        Share of the target row in every mixture.
    n_mixtures : int, optional
        How many mixtures; as many as there are source rows by default. Source rows are taken in turn, target rows of
        their class at random; source rows of classes that the target lacks are left out.
    l2 : float or "auto"
        Penalty; "auto" needs `X_val, y_val` in `adapt`.
    ridge, scale
        As in `SourceOnly`.
    random_state : int, Generator or None
        Pairs the rows.

    References
    ----------
    Xue, Payani, Yang & Mirzasoleiman, "Few-shot adaptation to distribution shifts by mixing source and target
    embeddings", ICML 2024.
    """

    mix: float = 0.5
    n_mixtures: int | None = None
    l2: float | str = 0.1
    random_state: Any = None

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        xp = array_namespace(Z)
        mix = check_share("mix", self.mix)
        Z_source, codes_source, weight_source = self._source_rows
        source, target = self._pairs(host(codes_source), host(codes))
        rows = (1 - mix) * xp.astype(take_rows(Z_source, source), Z.dtype) + mix * take_rows(Z, target)
        share = xp.astype(take_rows(weight_source, source), Z.dtype)
        share = share if weight is None else share * xp.astype(take_rows(weight, target), Z.dtype)
        return self._probe_rows(rows, take_rows(codes, target), share, val)

    def _pairs(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the source and of the target for each mixture, always of one class."""
        rng = check_random_state(self.random_state)
        usable = np.flatnonzero(np.isin(source, target))
        n = len(usable) if self.n_mixtures is None else self.n_mixtures
        if n < 1:
            raise ValueError(f"n_mixtures must be at least 1, got {n}.")
        order = rng.permutation(usable)
        first = np.resize(order, n)
        second = np.empty(n, dtype=np.int64)
        for k in np.unique(target):
            at = np.flatnonzero(source[first] == k)
            second[at] = rng.choice(np.flatnonzero(target == k), len(at))
        return first, second


@dataclass(eq=False, repr=False, kw_only=True)
class DeepFeatureReweighting(ScaledBaseline):
    """DFR as published: standardise, balance the groups, L1 logistic regression, average of several refits.

    Minimises mean log-loss + l1 ||w||_1 with a free intercept on each of `n_refits` balanced subsets of the target
    rows (as many rows of every group as the smallest has) and averages the heads. The solver is scikit-learn's.

    Parameters
    ----------
    l1 : float
        Penalty. The published C is 1 / (l1 * number of rows).
    n_refits : int
        Balanced subsets to average over.
    ridge, scale
        As in `SourceOnly`.
    random_state : int or None
        Draws the subsets.

    References
    ----------
    Kirichenko, Izmailov & Wilson, "Last layer re-training is sufficient for robustness to spurious correlations", ICLR
    2023.
    """

    l1: float = 0.05
    n_refits: int = 10
    random_state: Any = None

    def adapt(
        self,
        X_target: Any,
        y_target: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> LinearClassifier:
        """As in `LinearProbe`; `groups` (M,) names the group of each row, by default its class."""
        if groups is not None and len(groups) != len(y_target):
            raise ValueError(f"groups has {len(groups)} entries for {len(y_target)} rows: one is needed per row.")
        return super(ScaledBaseline, self).adapt(
            X_target, y_target, sample_weight, groups=groups, X_val=X_val, y_val=y_val
        )

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation, groups: Any = None) -> Head:
        if self.n_refits < 1:
            raise ValueError(f"n_refits must be at least 1, got {self.n_refits}.")
        if not 0 < self.l1 < float("inf"):
            raise ValueError(f"l1 must be a positive finite number, got {self.l1}.")
        rows, labels = host(Z), host(codes)
        share = np.ones(len(labels)) if weight is None else host(weight)
        subsets = self._subsets(labels if groups is None else np.asarray(groups))
        heads = [sparse_head(rows[at], labels[at], share[at], self.l1, len(self.classes_)) for at in subsets]
        coef, intercept = (np.mean(part, axis=0) for part in zip(*heads))
        return head_like(Z, coef, intercept)

    def _subsets(self, groups: np.ndarray) -> np.ndarray:
        """Row numbers (n_refits, n): the smallest group's size of rows of every group; once if all are equal."""
        rng = check_random_state(self.random_state)
        members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
        n = min(map(len, members))
        refits = self.n_refits if any(len(m) > n for m in members) else 1
        return np.array([np.concatenate([rng.permutation(m)[:n] for m in members]) for _ in range(refits)])


def sparse_head(
    Z: np.ndarray, codes: np.ndarray, weight: np.ndarray, l1: float, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """L1 logistic regression: coef (D,) and intercept () for two classes; each class against the rest for more.

    A class without rows gets no weights and the intercept of half a row, so that it keeps a small probability.
    """
    kept = weight > 0
    Z, codes, weight = Z[kept], codes[kept], weight[kept]
    heads = [_one_against_rest(Z, codes == k, weight, l1) for k in ([1] if n_classes == 2 else range(n_classes))]
    coef, intercept = (np.stack(part) for part in zip(*heads))
    return (coef, intercept) if n_classes > 2 else (coef[0], intercept[0])


def _one_against_rest(Z: np.ndarray, inside: np.ndarray, weight: np.ndarray, l1: float) -> tuple[np.ndarray, float]:
    from sklearn.linear_model import LogisticRegression

    total = weight.sum()
    if inside.all() or not inside.any():
        return np.zeros(Z.shape[1]), float(np.log(0.5 / total)) * (1 if not inside.any() else -1)
    # a large intercept_scaling leaves the intercept nearly free, which liblinear would shrink like a weight
    model = LogisticRegression(
        l1_ratio=1.0, solver="liblinear", C=1.0 / (l1 * total), tol=1e-6, max_iter=5000, intercept_scaling=100.0,
        random_state=0,
    )  # fmt: skip
    with _ONE_AT_A_TIME:
        model.fit(Z, inside, weight)
    return model.coef_[0], float(model.intercept_[0])
