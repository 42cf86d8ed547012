"""Last-layer methods without group labels: rows that the source head gets wrong count more, or alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace, device

from pro2.estimators.contract import take_rows
from pro2.lab.baselines.scaled import Head, ProbeBaseline, Validation, check_share, logits
from pro2.linalg.losses import probabilities
from pro2.linalg.moments import Array, host


@dataclass(eq=False, repr=False, kw_only=True)
class AutomaticFeatureReweighting(ProbeBaseline):
    """AFR: the head is fitted again with weights exp(-gamma p), p the source head's probability of the true class.

    Classes weigh alike, and the penalty is centred on the source head, as published. There the rows are a part of the
    training set that was held out; here they are the labelled rows of the target, as for every method.

    Parameters
    ----------
    gamma : float
        How much more a row counts that the source head gets wrong; 0 weighs rows of one class alike.
    l2, ridge, scale
        As in `LinearProbe`.

    References
    ----------
    Qiu, Potapczynski, Izmailov & Wilson, "Simple and fast group robustness by automatic feature reweighting", ICML
    2023.
    """

    gamma: float = 4.0

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        if isinstance(self.gamma, str) or not 0 <= self.gamma < float("inf"):
            raise ValueError(f"gamma must be a finite number >= 0, got {self.gamma!r}.")
        labels = host(codes)
        head = self._source_scaled()
        own = own_probability(head, Z, labels)
        share = np.exp(-self.gamma * own) * (1.0 if weight is None else host(weight))
        total = np.bincount(labels, share)
        share = share / np.where(total > 0, total, 1.0)[labels]
        xp = array_namespace(Z)
        share = xp.asarray(share * len(labels) / share.sum(), dtype=Z.dtype, device=device(Z))
        return self._probe(Z, codes, share, val, prior=head[0])


@dataclass(eq=False, repr=False, kw_only=True)
class SelectiveFinetuning(ProbeBaseline):
    """SELF, by misclassification: the head is fitted again on the rows of which the source head is least right.

    Equally many rows of each class are taken, those with the smallest probability of their true class; the penalty is
    centred on the source head. Published for rows held out of the training set; here they are the labelled rows of the
    target, as for every method.

    Parameters
    ----------
    share : float in [0, 1]
        Part of the rows of each class that is used, at least one row.
    l2, ridge, scale
        As in `LinearProbe`.

    References
    ----------
    LaBonte, Muthukumar & Kumar, "Towards last-layer retraining for group robustness with fewer annotations", NeurIPS
    2023.
    """

    share: float = 0.5

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        head = self._source_scaled()
        at = self._least_right(own_probability(head, Z, host(codes)), host(codes))
        return self._probe(take_rows(Z, at), take_rows(codes, at), take_rows(weight, at), val, prior=head[0])

    def _least_right(self, own: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Row numbers in ascending order: of each class those with the smallest probability, equally many."""
        share = check_share("share", self.share)
        members = [np.flatnonzero(codes == k) for k in np.unique(codes)]
        n = max(1, round(share * min(map(len, members))))
        return np.sort(np.concatenate([m[np.argsort(own[m], kind="stable")[:n]] for m in members]))


def own_probability(head: Head, Z: Array, codes: np.ndarray) -> np.ndarray:
    """What a head on scaled rows gives to the true class of each, (M,)."""
    f = host(logits(*head, Z))
    return np.asarray(probabilities(f[:, None] if f.ndim == 1 else f)[np.arange(len(codes)), codes])
