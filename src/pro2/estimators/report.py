"""What the labels say about an adapted classifier: the record that comes with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pro2.estimators.evaluation import wilson_interval
from pro2.estimators.learning_curve import LearningCurve, fit_curve
from pro2.linalg import losses
from pro2.linalg.labels import Labels
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import SourcePrior

CURVE_SHARES = (0.25, 0.5)  # of the labels: where the learning curve is measured, besides all of them
CURVE_REPEATS = 4
MANY_PER_CLASS = 8  # labels: from here on, leaving out one of them changes little
ENOUGH = 20  # labels: below, an accuracy is a guess, and the verdict says so


@dataclass(frozen=True)
class AdaptationReport:
    """What the labelled rows say about an adapted classifier, each row judged by a model that has not seen its label.

    Attributes
    ----------
    n_labels : int
        Labelled target rows (different ones of positive weight).
    accuracy, accuracy_interval : float, (float, float)
        Estimate of the share of right answers on the target by leaving labels out, classes weighted as the target is
        assumed to have them, and its 95% interval, wider where labels were drawn class by class and some classes are
        harder than others: how common these are is then unknown. NaN and (0, 1) where the labels cannot tell;
        `withheld` then says why. Where leave-one-out chose d or l2 of the paper's probe, every label had a say in that
        choice, and with few labels the accuracy is too good.
    withheld : str
        Empty, or why there is no accuracy.
    log_loss : float
        Mean log-loss of the left-out probabilities.
    confidence : float
        Mean probability that the left-out answers claimed for themselves; above the accuracy means too sure.
    source_accuracy : float
        Of the source head on the same rows, weighted in the same way; NaN without a source head.
    agreement : float
        Share of the labelled rows on which source head and adapted classifier give the same answer.
    classes, counts, shares : lists
        Labels, labelled rows, and assumed share in the target of each class.
    confusion : array (K, K)
        Labelled rows by class (rows) and left-out answer (columns).
    surprising : array
        Numbers of the labelled rows, those first whose label surprises most: mistakes of the classifier, or of the
        label.
    effective_features : float
        Of the ranked features: how many share the weight of the classifier (participation ratio of squared weights).
        NaN for the paper's probe.
    temperature : float
        What the logits were multiplied by, so that left-out probabilities are calibrated.
    mean_shift, mean_shift_by_chance : float, (float, float)
        Squared distance of the target's mean from the source's in standard errors, averaged over features, and its
        range in 95 of 100 draws from the source.
    learning_curve : LearningCurve or None
        None with fewer than four labels in some class that has any, or with labels of one class.
    members : list of dict
        Priors of the default, heaviest first: `scale`, `covariance`, `reach`, `size`, `ridge`, `weight`, and `loo`, the
        mean leave-one-out log-likelihood of a row.
    n_features, l2 : int or None, float or None
        Of the paper's probe.
    """

    n_labels: int
    accuracy: float = math.nan
    accuracy_interval: tuple[float, float] = (0.0, 1.0)
    withheld: str = ""
    log_loss: float = math.nan
    confidence: float = math.nan
    source_accuracy: float = math.nan
    agreement: float = math.nan
    classes: list[Any] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    confusion: np.ndarray | None = None
    surprising: np.ndarray | None = None
    effective_features: float = math.nan
    temperature: float = 1.0
    mean_shift: float = math.nan
    mean_shift_by_chance: tuple[float, float] = (0.0, math.inf)
    learning_curve: LearningCurve | None = None
    members: list[dict[str, Any]] = field(default_factory=list)
    n_features: int | None = None
    l2: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists only, for JSON."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    def verdict(self) -> str:
        """What to do, in one sentence."""
        if self.withheld:
            return f"Test it before you trust it: {self.withheld}."
        low, high = (100 * v for v in self.accuracy_interval)
        figure = f"{100 * self.accuracy:.0f}% ({low:.0f} to {high:.0f})"
        if self.n_labels < ENOUGH:
            return f"Label more before you trust it: {self.n_labels} labels put its accuracy at {figure}."
        if self.accuracy < self.source_accuracy - 0.02:
            return (
                f"Keep the source head: it is right on {100 * self.source_accuracy:.0f}%, the adapted one on {figure}."
            )
        if self.learning_curve is None:
            return f"Accuracy is {figure}; with four labels of each class you would see what more of them bring."
        more = self.learning_curve.labels_for(1.0) * sum(n > 0 for n in self.counts)
        if more <= 2 * self.n_labels:
            rows = "1 more row" if more <= 1 else f"{math.ceil(more)} more rows"
            return f"It pays to label {rows}: accuracy is {figure}, and a point should come of it."
        return f"More labels would change little: accuracy is {figure}."

    def __str__(self) -> str:
        n_labels = "1 label" if self.n_labels == 1 else f"{self.n_labels} labels"
        lines = [self.verdict(), f"{n_labels}: {self._counts()}"]
        if not self.withheld:
            low, high = (100 * v for v in self.accuracy_interval)
            after = f"left-out accuracy {100 * self.accuracy:.1f}% ({low:.0f} to {high:.0f})"
            before = "" if math.isnan(self.source_accuracy) else f", source head {100 * self.source_accuracy:.1f}%"
            lines.append(f"{after}{before}; it expected {100 * self.confidence:.1f}%")
        return "\n".join(lines + self.differences())

    def differences(self) -> list[str]:
        """Where the target differs from the source, a line for each thing that is known."""
        lines = []
        if not math.isnan(self.agreement):
            lines.append(f"it gives the source head's answer on {100 * self.agreement:.0f}% of the labelled rows")
        if not math.isnan(self.mean_shift):
            low, high = self.mean_shift_by_chance
            beyond = "further than" if self.mean_shift > high else "no further than"
            lines.append(
                f"the target's mean is {beyond} chance would put it: {self.mean_shift:.1f} ({low:.1f} to {high:.1f})"
            )
        return lines

    def _counts(self) -> str:
        shown = [f"{name} {n}" for name, n in zip(self.classes, self.counts)]
        return ", ".join(shown[:10]) + (f", ... ({len(shown)} classes)" if len(shown) > 10 else "")

    def _repr_html_(self) -> str:
        """For notebooks."""
        from html import escape

        rows = "".join(f"<li>{escape(line)}</li>" for line in str(self).splitlines()[1:])
        return f"<p><b>{escape(self.verdict())}</b></p><ul>{rows}</ul>"

    def __repr__(self) -> str:
        return f"AdaptationReport(n_labels={self.n_labels}, accuracy={self.accuracy:.3f})"

    def plot(self, ax: Any = None) -> Any:
        """The learning curve with its measured points; needs matplotlib. Returns the axes."""
        from matplotlib import pyplot as plt

        curve = self.learning_curve
        if curve is None:
            raise ValueError("there is no learning curve: it takes at least four labels of each class.")
        ax = plt.subplots()[1] if ax is None else ax
        n = np.geomspace(curve.n_per_class[0], 4 * curve.n_per_class[-1], 50)
        ax.plot(n, [100 * curve.accuracy_at(v) for v in n], color="tab:blue")
        ax.errorbar(curve.n_per_class, 100 * (1 - curve.error), 196 * curve.deviation, fmt="o", color="tab:blue")
        ax.set(xscale="log", xlabel="labels per class", ylabel="accuracy (%)")
        return ax


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that a report is made from.

    Attributes
    ----------
    labels : Labels
    loo_scores : array (M, K') or None
        None where intercepts are free, and follow how common classes are among the labels that are left.
    shares : array (K,)
        Of the classes in the target.
    by_class : float in [0, 1]
        How far labels were drawn class by class, so that they do not know these shares.
    refit : function
        From other `Labels` to a head (coef, intercept), for the learning curve.
    facts : dict
        Fields of the report that are known already.
    prior : SourcePrior or None
        Where there is one: what the source looked like.
    source_head : (coef, intercept) or None
    """

    labels: Labels
    loo_scores: Any
    shares: np.ndarray
    by_class: float
    refit: Callable[[Labels], tuple[Array, Array]]
    facts: dict[str, Any]
    prior: SourcePrior | None
    source_head: tuple[Array, Array] | None = None

    def report(self, adapted: Any) -> AdaptationReport:
        """Of the classifier that `adapt` made from it."""
        y, c = host(self.labels.y), host(self.labels.c)
        scores = self._left_out_scores(y)
        P = losses.probabilities(scores)
        answers, K = P.argmax(axis=1), P.shape[1]
        w = _class_weighted(y, c, self.shares)
        right = (answers == y).astype(float)
        facts = dict(self.facts)
        withheld = self._withheld(facts.pop("label_sampling", "auto"), y)
        accuracy = math.nan if withheld else _share(w, right)
        return AdaptationReport(
            n_labels=len(y),
            accuracy=accuracy,
            accuracy_interval=(0.0, 1.0) if withheld else self._interval(y, w, right),
            withheld=withheld,
            log_loss=float(w @ -np.log(np.maximum(P[np.arange(len(y)), y], 1e-300))),
            confidence=float(w @ P.max(axis=1)),
            classes=adapted.classes_.tolist(),
            counts=np.bincount(y, minlength=K).tolist(),
            shares=[float(v) for v in self.shares],
            confusion=np.bincount(y * K + answers, minlength=K * K).reshape(K, K),
            surprising=host(self.labels.number)[np.argsort(P[np.arange(len(y)), y], kind="stable")],
            effective_features=self._effective_features(adapted.coef_),
            learning_curve=_learning_curve(self, 1.0 - float(w @ right)),
            **self._against_source(adapted, y, w),
            **self._mean_shift(w),
            **facts,
        )

    def _left_out_scores(self, y: np.ndarray) -> np.ndarray:
        """Scores (M, K') of each row by a model without it.

        With few labels per class, leaving out one row makes its class rarer than the others, which is another problem
        than the one that was solved: one row of each class is then left out together, in as many folds as classes have
        labels on average. Where they have one, none would be left, and the source head speaks.
        """
        counts = np.bincount(y)
        counts = counts[counts > 0]
        n = min(round(float(counts.mean())), MANY_PER_CLASS)
        if self.loo_scores is not None and (counts.min() >= MANY_PER_CLASS or (n == 1 and self.source_head is None)):
            return host(self.loo_scores)
        fold, X = self.labels.folds(n), host(self.labels.X)
        scores = np.empty((len(y), 1 if len(self.shares) == 2 else len(self.shares)))
        for f in np.unique(fold):
            out = fold == f
            # one label of a class: all that is left has to speak for every class, which only the source can
            head = self.refit(self.labels.take(np.flatnonzero(~out))) if n > 1 else self.source_head
            assert head is not None
            coef, intercept = map(host, head)
            scores[out] = losses.affine(X[out], np.atleast_2d(coef), np.atleast_1d(intercept))
            if self.loo_scores is None and n > 1:
                scores[out] += self._rarer(y, out)
        return scores

    def _rarer(self, y: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Logits (K') by which classes became rarer without some rows: they would decide where a penalty is strong."""
        c, K = host(self.labels.c), len(self.shares)
        whole, left = (np.bincount(y[at], c[at], K) for at in (slice(None), ~out))
        lost = np.log(np.divide(whole, left, out=np.ones(K), where=left > 0))
        return lost[1:] - lost[:1] if K == 2 else lost

    def head_without(self, rows: Sequence[int]) -> tuple[Array, Array]:
        """A head (coef, intercept) from all labels but those of some of the caller's rows."""
        out, first = np.asarray(rows), self.labels.first
        numbers = out.ndim == 1 and (not out.size or out.dtype.kind in "iu")
        if not numbers or any(not 0 <= row < len(first) for row in out):
            raise ValueError(f"rows must be numbers of the {len(first)} labelled rows, from 0, got {rows!r}.")
        left = np.flatnonzero(~np.isin(host(self.labels.number), first[out.astype(int)]))
        if not len(left):
            raise ValueError(f"rows has all {len(self.labels.y)} labelled rows: some must be left to learn from.")
        return self.refit(self.labels.take(left))

    def _interval(self, y: np.ndarray, w: np.ndarray, right: np.ndarray) -> tuple[float, float]:
        """Of the accuracy: chance in the labels, and shares of the classes where the labels do not know them.

        If all shares are equally likely, an accuracy that is their sum over K classes, sum_k s_k a_k, has the variance
        of the a_k divided by K + 1.
        """
        n, accuracy = 1.0 / float(w @ w), _share(w, right)
        there, code = np.unique(y, return_inverse=True)
        counts = np.bincount(code)
        each = (np.bincount(code, weights=right) + accuracy) / (counts + 1.0)  # one row more, for classes with few
        share = self.shares[there] / self.shares[there].sum()
        unknown = self.by_class * float(share @ (each - share @ each) ** 2) / (len(there) + 1.0)
        p = (n * accuracy + 1.0) / (n + 2.0)
        return wilson_interval(accuracy, p * (1.0 - p) / (p * (1.0 - p) / n + unknown))

    def _withheld(self, sampling: str, y: np.ndarray) -> str:
        if sampling == "suggested":
            return "its labels were chosen, not drawn at random, so they cannot say how accurate it is"
        if len(y) < 2:
            return "one label cannot say how accurate it is"
        return ""

    def _effective_features(self, coef: Array) -> float:
        if self.prior is None:
            return math.nan
        W = host(coef) * host(self.prior.scale) @ host(self.prior.ranked.directions).T
        W = W / (np.abs(W).max(initial=0.0) or 1.0)  # squares of what is tiny would vanish
        share = (W * W).sum(axis=0)
        return float(share.sum() ** 2 / (share**2).sum()) if share.any() else 0.0

    def _against_source(self, adapted: Any, y: np.ndarray, w: np.ndarray) -> dict[str, Any]:
        if self.source_head is None:
            return {}
        X = host(self.labels.X)
        before = _answers(X, *self.source_head)
        return {
            "source_accuracy": _share(w, before == y),
            "agreement": float(np.mean(before == _answers(X, adapted.coef_, adapted.intercept_))),
        }

    def _mean_shift(self, w: np.ndarray) -> dict[str, Any]:
        """Classes weighted equally on both sides; by chance it is a mean of `dims` squares of normal numbers."""
        if self.prior is None or len(w) < 2:
            return {}
        balanced = _class_weighted(host(self.labels.y), host(self.labels.c), np.ones(self.prior.n_classes))
        Z = host(self.prior.rows(self.labels.X, self.prior.variance * 0.0 + 1.0))
        variance = np.maximum(host(self.prior.variance), 0.01 * float(host(self.prior.variance).mean()))
        if not variance.any():  # the source never moved: nothing tells how far is far
            return {}
        mean = balanced @ Z
        shift = float(np.mean(mean * mean / variance) / float(balanced @ balanced))
        spread = 1.96 * math.sqrt(2.0 / self.prior.dims)
        return {"mean_shift": shift, "mean_shift_by_chance": (max(0.0, 1.0 - spread), 1.0 + spread)}


def _answers(X: np.ndarray, coef: Array, intercept: Array) -> np.ndarray:
    f = losses.affine(X, np.atleast_2d(host(coef)), np.atleast_1d(host(intercept)))
    return (f[:, 0] > 0).astype(int) if f.shape[1] == 1 else f.argmax(axis=1)


def _class_weighted(y: np.ndarray, c: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Weights of sum one under which the classes that have labels are as common as `shares` says."""
    total = np.bincount(y, weights=c, minlength=len(shares))
    w = c * (shares / np.where(total > 0, total, 1.0))[y]
    return np.asarray(w / w.sum())


def _share(w: np.ndarray, right: np.ndarray) -> float:
    """Weighted share, exactly one where all are right: by rounding, weights of sum one add up to more or less."""
    return float(w @ right) / float(w @ np.ones_like(w))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, LearningCurve):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def _learning_curve(evidence: Evidence, error: float) -> LearningCurve | None:
    """Errors on held-out labelled rows at a quarter and half of the labels, and leave-one-out at all of them."""
    y = host(evidence.labels.y)
    counts = np.bincount(y)
    there = int((counts > 0).sum())
    smallest = counts[counts > 0].min()
    if smallest < 4 or there < 2:
        return None
    points = [(float(smallest), error, len(y))]
    for share in CURVE_SHARES:
        n = max(1, round(share * smallest))
        wrong = [_held_out(evidence, n, seed) for seed in range(CURVE_REPEATS)]
        points.append((float(n), float(np.mean(wrong)), len(y) - n * there))
    return fit_curve(*(np.array(v, dtype=float) for v in zip(*sorted(points))))


def _held_out(evidence: Evidence, n: int, seed: int) -> float:
    """Error on the other labelled rows of a head fitted to n rows of each class."""
    labels, y = evidence.labels, host(evidence.labels.y)
    rng = np.random.default_rng(seed)
    few = np.sort(np.concatenate([rng.permutation(np.flatnonzero(y == k))[:n] for k in np.unique(y)]))
    rest = np.setdiff1d(np.arange(len(y)), few)
    answers = _answers(host(labels.X)[rest], *evidence.refit(labels.take(few)))
    return float(np.mean(answers != y[rest]))
