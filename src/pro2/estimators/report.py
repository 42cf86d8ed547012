"""What the labels say about an adapted classifier: the record that comes with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv

from pro2.linalg.logistic import probabilities
from pro2.linalg.prior import SourcePrior

if TYPE_CHECKING:
    from pro2.estimators.adaptation import AveragedFit, ProbeFit

Head = tuple[np.ndarray, np.ndarray]  # coefficients (K, D) and intercepts (K,)

CURVE_SHARES = (0.25, 0.5)  # of the labels: where the learning curve is measured, besides all of them
CURVE_REPEATS = 4
MOST_BLOCKS = 20  # into which labelled rows are divided, each left out in turn
PARTITIONS = 4  # of the rows into blocks, over which estimates are averaged,
MOST_ROWS = 200  # unless there are more: one partition is then precise enough
GROWTH = 0.15  # the error falls with the number of labels to about this power, over the tasks of docs/results/trust.md
EXCESS = 1.2  # variance of left-out hits about the accuracy of the classifier at hand, relative to that of a binomial
ENOUGH = 20  # labels: below, an accuracy is a guess, and the verdict says so


@dataclass(frozen=True)
class LearningCurve:
    """error(n) = floor + slope / sqrt(n) for n labels per class, fitted to the labelled rows.

    Attributes
    ----------
    n_per_class, error, deviation : arrays
        Where it was measured, the error and its standard error.
    floor, slope : float
    spread : float
        Standard error of a prediction at twice the labels.
    """

    n_per_class: np.ndarray
    error: np.ndarray
    deviation: np.ndarray
    floor: float
    slope: float
    spread: float

    def accuracy_at(self, n_per_class: float) -> float:
        """Expected accuracy with that many labels per class."""
        return 1.0 - min(1.0, self.floor + self.slope / math.sqrt(n_per_class))

    def labels_for(self, points: float) -> float:
        """How many more labels per class for `points` more percentage points; infinite where the curve is flat."""
        now = float(self.n_per_class[-1])
        gain = self.slope / math.sqrt(now) - points / 100.0
        return math.inf if gain <= 0 else max(0.0, (self.slope / gain) ** 2 - now)


def fit_curve(n: np.ndarray, error: np.ndarray, rows: np.ndarray) -> LearningCurve:
    """Weighted least squares of floor + slope / sqrt(n), both non-negative; the spread is the law of the fit."""
    deviation = np.sqrt(np.maximum(error * (1 - error), 0.25 / rows) / rows)
    A, b = np.stack([np.ones_like(n), 1 / np.sqrt(n)], axis=1) / deviation[:, None], error / deviation
    floor, slope = np.linalg.lstsq(A, b, rcond=None)[0]
    if slope < 0:
        floor, slope = float(np.average(error, weights=deviation**-2)), 0.0
    elif floor < 0:
        floor, slope = 0.0, float((A[:, 1] @ b) / (A[:, 1] @ A[:, 1]))
    ahead = np.array([1.0, 1 / math.sqrt(2 * n[-1])])
    spread = math.sqrt(float(ahead @ np.linalg.pinv(A.T @ A) @ ahead))
    return LearningCurve(n, error, deviation, float(floor), float(slope), spread)


@dataclass(frozen=True)
class AdaptationReport:
    """Estimates from the labelled rows about an adapted classifier; each row is predicted by a fit without it.

    Attributes
    ----------
    n_labels : int
        Labelled target rows (different ones of positive weight).
    accuracy, accuracy_interval : float, (float, float)
        Estimated accuracy on the target, with classes as common as assumed there, and its 95% interval. Where labels
        were drawn class by class, blocks with one label of every class are held out, else random rows; a learning curve
        adds what the labels of a block bring. The interval allows for chance in the labels, for the learning curve and,
        where labels were drawn class by class and some classes are harder than others, for how common these are. NaN
        and (0, 1) where the labels cannot tell; `withheld` then says why. Where leave-one-out chose d or l2 of the
        paper's probe, every label had a say in that choice, and with few labels the accuracy is too good.
    withheld : str
        Empty, or why there is no accuracy.
    log_loss : float
        Mean log-loss of the held-out probabilities.
    confidence : float
        Mean probability of the held-out predictions; above the accuracy, the classifier is overconfident.
    reliability : list of (float, float, float)
        The same in groups of rows, the least confident first: mean confidence, accuracy, and share of the rows.
    source_accuracy : float
        Of the source head on the same rows, weighted in the same way.
    agreement : float
        Share of the labelled rows for which source head and adapted classifier predict the same class.
    classes, counts, shares : lists
        Labels, labelled rows, and assumed share in the target of each class.
    confusion : array (K, K)
        Labelled rows by class (rows) and held-out prediction (columns).
    surprising : array
        Numbers of the labelled rows, the least probable label first: errors of the classifier or of the labels.
    label_probabilities, label_weights : arrays (M,)
        Held-out probability of the label of each row, and its weight where classes are as common as assumed on the
        target; `predict_set` is calibrated on them.
    effective_features : float
        Of the ranked features: how many share the weight of the classifier (participation ratio of squared weights).
        NaN for the paper's probe.
    temperature : float
        What the logits were multiplied by, so that held-out probabilities are calibrated.
    mean_shift, mean_shift_by_chance : float, (float, float)
        Squared distance of the target's mean from the source's in standard errors, averaged over features, and its
        range in 95 of 100 draws from the source.
    learning_curve : LearningCurve or None
        None with fewer than four labels in some class that has any, or with labels of one class.
    members : list of dict
        Members of averaged Pro2, heaviest first: `covariance`, `smoothing`, `prior_scale`, `head` and `mean_size`
        of the prior mean, `weight`, and `log_likelihood`, the mean over labels when each is left out.
    n_features, l2 : int or None, float or None
        Of the paper's probe.
    """

    n_labels: int
    accuracy: float
    accuracy_interval: tuple[float, float]
    withheld: str
    log_loss: float
    confidence: float
    reliability: list[tuple[float, float, float]]
    source_accuracy: float
    agreement: float
    classes: list[Any]
    counts: list[int]
    shares: list[float]
    confusion: np.ndarray
    surprising: np.ndarray
    label_probabilities: np.ndarray
    label_weights: np.ndarray
    effective_features: float
    learning_curve: LearningCurve | None = None
    temperature: float = 1.0
    mean_shift: float = math.nan
    mean_shift_by_chance: tuple[float, float] = (0.0, math.inf)
    members: list[dict[str, Any]] = field(default_factory=list)
    n_features: int | None = None
    l2: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists only, for JSON."""
        return dict(_plain(asdict(self)))

    def verdict(self) -> str:
        """What to do, in one sentence."""
        if self.withheld:
            return f"No accuracy estimate: {self.withheld}."
        low, high = (100 * v for v in self.accuracy_interval)
        figure = f"{100 * self.accuracy:.0f}% (95% interval {low:.0f} to {high:.0f})"
        if self.n_labels < ENOUGH:
            return f"Label more rows: with {self.n_labels} labels, the estimated accuracy is {figure}."
        if self.accuracy < self.source_accuracy - 0.02:
            before = f"{100 * self.source_accuracy:.0f}%"
            return f"Keep the source head: its accuracy is {before}, that of the adapted classifier {figure}."
        if self.learning_curve is None:
            return f"Estimated accuracy is {figure}. Four labels of each class show what more would add."
        more = self.learning_curve.labels_for(1.0) * sum(n > 0 for n in self.counts)
        if more <= 2 * self.n_labels:
            rows = "1 more row" if more <= 1 else f"{math.ceil(more)} more rows"
            return f"Estimated accuracy is {figure}. Labelling {rows} should add about one percentage point."
        return f"Estimated accuracy is {figure}. More labels would change little."

    def __str__(self) -> str:
        n_labels = "1 label" if self.n_labels == 1 else f"{self.n_labels} labels"
        lines = [self.verdict(), f"{n_labels}: {self._counts()}"]
        if not self.withheld:
            low, high = (100 * v for v in self.accuracy_interval)
            after = f"held-out accuracy {100 * self.accuracy:.1f}% ({low:.0f} to {high:.0f})"
            before = f"source head {100 * self.source_accuracy:.1f}%"
            lines.append(f"{after}, {before}; mean confidence {100 * self.confidence:.1f}%")
        return "\n".join(lines + self.differences())

    def differences(self) -> list[str]:
        """Where the target differs from the source, a line for each thing that is known."""
        lines = [f"same prediction as the source head on {100 * self.agreement:.0f}% of the labelled rows"]
        if not math.isnan(self.mean_shift):
            low, high = self.mean_shift_by_chance
            beyond = "further from" if self.mean_shift > high else "no further from"
            lines.append(
                f"the target's mean is {beyond} the source's than chance explains: the squared distance is "
                f"{self.mean_shift:.2f} times the expected one (95% by chance: {low:.2f} to {high:.2f})"
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
class ReportInputs:
    """What a report is made from, when it is first asked for."""

    fit: AveragedFit | ProbeFit  # which can also say what it would be without some of its labelled rows
    prior: SourcePrior | None  # what the source looked like, where that is known
    source_head: Head  # K scores on the rows of the fit
    label_sampling: str

    def report(self, adapted: Any) -> AdaptationReport:
        """Of the classifier that `adapt` made from the fit."""
        labelled, (shares, by_class) = self.fit.labelled, self.fit.shares
        y, K = labelled.y, len(shares)
        P, left_out = self._left_out(by_class)
        right = np.mean(P.argmax(axis=2) == y, axis=0)
        P = P.mean(axis=0)
        own, sure = np.maximum(P[np.arange(len(y)), y], 1e-300), P.max(axis=1)
        w = _class_weighted(y, labelled.c, shares)
        # what the labels that were left out add
        gain = (1.0 - _share(w, right)) * (1.0 - (1.0 - left_out) ** GROWTH)
        accuracy = min(_share(w, right) + gain, 1.0)
        withheld = self._withheld(by_class)
        before, after = ((labelled.X @ coef.T + b).argmax(axis=1) for coef, b in (self.source_head, self.fit.head))
        return AdaptationReport(
            n_labels=len(y),
            accuracy=math.nan if withheld else accuracy,
            accuracy_interval=(0.0, 1.0) if withheld else _interval(y, w, right, shares, by_class, gain),
            withheld=withheld,
            log_loss=float(w @ -np.log(own)),
            confidence=float(w @ sure),
            reliability=_reliability(w, sure, right),
            classes=adapted.classes_.tolist(),
            counts=np.bincount(y, minlength=K).tolist(),
            shares=[float(v) for v in shares],
            confusion=np.bincount(y * K + P.argmax(axis=1), minlength=K * K).reshape(K, K),
            surprising=labelled.number[np.argsort(own, kind="stable")],
            label_probabilities=own,
            label_weights=w,
            effective_features=self._effective_features(),
            learning_curve=self._learning_curve(1.0 - accuracy),
            source_accuracy=_share(w, before == y),
            agreement=float(np.mean(before == after)),
            **self._mean_shift(),
            **self.fit.facts(),
        )

    def without(self, rows: Sequence[int]) -> Head:
        """The head of the fit without some of the caller's rows, which leave with all of their copies."""
        labelled, out = self.fit.labelled, np.asarray(rows)
        numbers = out.ndim == 1 and (not out.size or out.dtype.kind in "iu")
        if not numbers or any(not 0 <= row < len(labelled.first) for row in out):
            raise ValueError(f"rows must be numbers of the {len(labelled.first)} labelled rows, from 0, got {rows!r}.")
        block = np.flatnonzero(np.isin(labelled.number, labelled.first[out.astype(int)]))
        if len(block) == len(labelled.y):
            raise ValueError(f"rows has all {len(labelled.y)} labelled rows: some must be left to learn from.")
        return self.fit.without(block)[0].head if len(block) else self.fit.head

    def _left_out(self, by_class: float) -> tuple[np.ndarray, float]:
        """Probabilities (partitions, M, K) of each row by fits without its block, and the share of labels in a block.

        A block has one label of every class, or more, where labels were drawn class by class: without a single row, its
        class would be short of a label. Where they were drawn at random, a class may be short of a label by chance, and
        blocks are random rows.
        """
        labelled = self.fit.labelled
        counts, M = np.bincount(labelled.y), len(labelled.y)
        n = min(self._labels_per_class(), MOST_BLOCKS)
        stratified = bool(by_class >= 0.5 and n > 1 and np.count_nonzero(counts) > 1)
        n = n if stratified else min(M, MOST_BLOCKS)
        found = []
        for seed in range(1 if M > MOST_ROWS or n == M else PARTITIONS):
            block = labelled.blocks(n, np.random.default_rng(seed), stratified)
            scores = np.empty((M, len(self.fit.shares[0])))
            for each in np.unique(block):
                rows = np.flatnonzero(block == each)
                if len(rows) == M:  # where there are no others, the source head is left
                    scores = labelled.X @ self.source_head[0].T + self.source_head[1]
                else:
                    scores[rows] = self.fit.without(rows)[1]
            found.append(probabilities(scores))
        return np.array(found), 1.0 / n

    def _labels_per_class(self) -> int:
        """On average over the classes that have labels."""
        counts = np.bincount(self.fit.labelled.y)
        return round(float(counts[counts > 0].mean()))

    def _withheld(self, by_class: float) -> str:
        if self.label_sampling == "suggested":
            return "the labelled rows were suggested, not drawn at random; evaluate on other rows"
        if len(self.fit.labelled.y) < 2:
            return "there is only one label"
        if len(np.unique(self.fit.labelled.y)) < 2:
            return "all labels are of one class"
        if by_class >= 0.5 and self._labels_per_class() < 2:
            return "there is one label of each class, and without it none; label a second row of each class"
        return ""

    def _effective_features(self) -> float:
        if self.prior is None:
            return math.nan
        W = (self.fit.head[0] * self.prior.scale) @ self.prior.directions.T
        W = W / (np.abs(W).max(initial=0.0) or 1.0)  # squares of what is tiny would vanish
        share = (W * W).sum(axis=0)
        return float(share.sum() ** 2 / (share**2).sum()) if share.any() else 0.0

    def _mean_shift(self) -> dict[str, Any]:
        """Classes weighted equally on both sides; by chance it is a mean of `dims` squares of normal numbers."""
        labelled, prior = self.fit.labelled, self.prior
        if prior is None or len(labelled.y) < 2:
            return {}
        balanced = _class_weighted(labelled.y, labelled.c, np.ones(prior.n_classes))
        variance = prior.second_moments.diagonal
        variance = np.maximum(variance, 0.01 * float(variance.mean()))
        if not variance.any():  # the source never moved: nothing tells how far is far
            return {}
        mean = balanced @ prior.rows(labelled.X)
        shift = float(np.mean(mean * mean / variance) / float(balanced @ balanced))
        sd = 1.96 * math.sqrt(2.0 / prior.dims)
        return {"mean_shift": shift, "mean_shift_by_chance": (max(0.0, 1.0 - sd), 1.0 + sd)}

    def _learning_curve(self, error: float) -> LearningCurve | None:
        """Errors on held-out labelled rows at a quarter and half of the labels, and on left-out blocks at all."""
        y = self.fit.labelled.y
        counts = np.bincount(y)
        there = int((counts > 0).sum())
        smallest = counts[counts > 0].min()
        if smallest < 4 or there < 2:
            return None
        points = [(float(smallest), error, len(y))]
        for share in CURVE_SHARES:
            n = max(1, round(share * smallest))
            wrong = []  # on the other rows of fits to n rows of each class
            for seed in range(CURVE_REPEATS):
                rng = np.random.default_rng(seed)
                few = np.concatenate([rng.permutation(np.flatnonzero(y == k))[:n] for k in np.unique(y)])
                rest = np.setdiff1d(np.arange(len(y)), few)
                wrong.append(np.mean(self.fit.without(rest)[1].argmax(axis=1) != y[rest]))
            points.append((float(n), float(np.mean(wrong)), len(y) - n * there))
        return fit_curve(*(np.array(v, dtype=float) for v in zip(*sorted(points))))


def _interval(
    y: np.ndarray, w: np.ndarray, right: np.ndarray, shares: np.ndarray, by_class: float, gain: float = 0.0
) -> tuple[float, float]:
    """95% interval of the accuracy: chance in the labels, shares of the classes that they do not know, learning curve.

    It is that of a beta distribution (Jeffreys' interval) with as many rows as the variance asks for. The gain by the
    labels that were left out is known up to its own size. If the class shares s have a Dirichlet distribution about
    those assumed, with two rows for each class, the accuracy sum_k s_k a_k varies by that of the a_k over 2 K + 1.
    """
    n, accuracy = 1.0 / float(w @ w), _share(w, right)
    there, code = np.unique(y, return_inverse=True)
    counts = np.bincount(code)
    each = (np.bincount(code, weights=right) + accuracy) / (counts + 1.0)  # one row more, for classes with few
    share = shares[there] / shares[there].sum()
    unknown = by_class * float(share @ (each - share @ each) ** 2) / (2.0 * len(there) + 1.0)
    accuracy = min(accuracy + gain, 1.0)
    p = (n * accuracy + 1.0) / (n + 2.0)
    binomial = p * (1.0 - p)
    n = binomial / (EXCESS * binomial / n + unknown + gain**2)
    low, high = (float(betaincinv(n * accuracy + 0.5, n * (1.0 - accuracy) + 0.5, q)) for q in (0.025, 0.975))
    return 0.0 if accuracy <= 0.0 else min(low, accuracy), 1.0 if accuracy >= 1.0 else max(high, accuracy)


def _reliability(w: np.ndarray, sure: np.ndarray, right: np.ndarray) -> list[tuple[float, float, float]]:
    """Mean confidence, share of right answers and share of the rows, in groups of about ten rows, five at most."""
    groups = np.array_split(np.argsort(sure, kind="stable"), min(5, max(1, len(sure) // 10)))
    return [(_share(w[g], sure[g]), _share(w[g], right[g]), float(w[g].sum())) for g in groups]


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
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
