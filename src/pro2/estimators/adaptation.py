"""How `ProjectAndProbe` adapts: the default (a family of priors), the paper's probe, and unlabelled rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from array_api_compat import array_namespace, device

from pro2.estimators.linear import LinearClassifier
from pro2.estimators.probe import best_candidate, feature_grid, penalty_grid, select
from pro2.estimators.projection import Projection
from pro2.estimators.report import Evidence
from pro2.linalg.average import AveragedHead, average_head
from pro2.linalg.labels import ClassShift, Labels, class_shift, drawn_by_class
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import SourcePrior

LARGE_CHANGE = 2.0  # ratio of a feature's variances; between 1 and 2 damping the source head cost as often as it helped


@dataclass(frozen=True, eq=False)
class Default:
    """The default: every prior of the family, weighed by leave-one-out and averaged."""

    priors: Sequence[SourcePrior]
    shares: np.ndarray  # of the classes in the source
    label_sampling: str
    source_head: LinearClassifier

    def refit(self, labels: Labels, like: AveragedHead) -> tuple[Array, Array]:
        """A head from some of the labels of `like` and the two priors they choose: where many are needed.

        Labels that are left out have no say in the choice: what they judge would seem too good.
        """
        best = like.standing.best(host(labels.number), 2)
        chosen = [[m for name, m in best if name == prior.name] for prior in self.priors]
        head = average_head(self.priors, labels, self._shift(labels), chosen)
        return head.coef, head.intercept

    def _shift(self, labels: Labels) -> ClassShift:
        return class_shift(labels, self.shares, self.priors[0].family, self.label_sampling)

    def adapt(self, classes: np.ndarray, labels: Labels, others: Array | None) -> tuple[LinearClassifier, AveragedHead]:
        """A classifier with its evidence, and its head; `others` are target rows without a label."""
        head = average_head(self.priors, labels, self._shift(labels), others=others)
        members = [
            {"scale": head.members[i][0], **head.members[i][1]._asdict(), "weight": float(head.weights[i]),
             "loo": float(head.loo[i])}
            for i in np.argsort(-head.weights, kind="stable")
        ]  # fmt: skip
        facts = {"members": members, "temperature": head.temperature, "label_sampling": self.label_sampling}
        source, refit = (self.source_head.coef_, self.source_head.intercept_), partial(self.refit, like=head)
        shares, by_class = head.shift.shares, head.shift.by_class
        evidence = Evidence(labels, head.loo_scores, shares, by_class, refit, facts, self.priors[0], source)
        return LinearClassifier.from_arrays(classes, head.coef, head.intercept, evidence=evidence), head


@dataclass(frozen=True, eq=False)
class PaperProbe:
    """The paper's method: a probe on the first d ranked features, d and the penalty given or chosen."""

    projection: Projection
    n_features: int | str
    l2: float | str
    label_sampling: str
    source_head: LinearClassifier

    def adapt(
        self, classes: np.ndarray, X: Array, codes: Array, weight: Array | None, val: tuple[Array, Array] | None
    ) -> LinearClassifier:
        """A classifier with its evidence; d and l2 by leave-one-out, or by accuracy on validation rows."""
        Z = self.projection._features(X)
        d_grid, l2_grid = feature_grid(self.n_features, Z.shape[1]), penalty_grid(self.l2, Z, weight)
        val = None if val is None else (self.projection._features(val[0]), val[1])
        fit, scores = select(Z, codes, d_grid, l2_grid, len(classes), weight, None, val)
        i, j = best_candidate(scores)
        coef, intercept = self.projection.to_input_space(fit.coef[i, j, ...], fit.intercept[i, j, ...])
        evidence = self._evidence(classes, Labels.of(X, codes, weight), d_grid[i], l2_grid[j])
        adapted = LinearClassifier.from_arrays(classes, coef, intercept, evidence=evidence)
        adapted.n_features_, adapted.l2_ = d_grid[i], l2_grid[j]
        return adapted

    def _evidence(self, classes: np.ndarray, labels: Labels, d: int, l2: float) -> Evidence:
        def refit(some: Labels) -> tuple[Array, Array]:
            Z = self.projection._features(some.X)
            fit, _ = select(Z, some.y, [d], [l2], len(classes), some.c, None, None)
            return self.projection.to_input_space(fit.coef[0, 0, ...], fit.intercept[0, 0, ...])

        counts = np.bincount(host(labels.y), weights=host(labels.c), minlength=len(classes))
        facts = {"n_features": d, "l2": l2, "label_sampling": self.label_sampling}
        source = (self.source_head.coef_, self.source_head.intercept_)
        by_class = drawn_by_class(counts, self.label_sampling)
        return Evidence(labels, None, counts / counts.sum(), by_class, refit, facts, None, source)


def damped_source_head(head: LinearClassifier, prior: SourcePrior, U: Array) -> LinearClassifier:
    """The source head, with less of the features whose variance on unlabelled target rows U exceeds the source's.

    Without labels only a change of the inputs can be seen: where they look the same but mean another label, it stays
    wrong. And no label can say that a change is harmless, so only large ones count.
    """
    xp = array_namespace(U)
    gain = prior.gain(U, xp.ones(U.shape[0], dtype=xp.float64, device=device(U)), usual=LARGE_CHANGE)
    raw_centre = prior.centre * prior.scale
    coef = head.coef_ * gain
    intercept = head.intercept_ + (head.coef_ - coef) @ raw_centre
    return LinearClassifier.from_arrays(head.classes_, coef, intercept, unit=head.unit_rows_)
