"""How good a classifier is on labelled rows, overall and for each group, and how sure one can be of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pro2.estimators.base import encode_known

N_BINS = 15
N_BOOTSTRAP = 1000
MAX_RESAMPLED = 20_000_000  # rows over all resamples
SUMMED = 2.0**-20  # unit of summed gaps and losses: exact for 10^7 rows


@dataclass(frozen=True)
class Estimate:
    """A number and its confidence interval."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`.

    Attributes
    ----------
    accuracy : Estimate
        Wilson interval.
    balanced_accuracy : Estimate
        Mean of the classes' accuracies; bootstrap within each class, percentile interval.
    class_accuracy, group_accuracy : dict of str to Estimate
        Wilson intervals. Groups are empty when none were given.
    worst_group : str or None
        Group with the lowest accuracy. As it was picked for being lowest, its interval errs to the low side.
    ece, log_loss : Estimate
        Expected calibration error of the predicted class in 15 bins of equal width, and mean log-loss in nats;
        bootstrap over rows, percentile interval; of more than 20,000 rows see `EvaluationSums`.
    classes : list
    confusion : list of list of int
        Row = true class, column = predicted class.
    """

    accuracy: Estimate
    balanced_accuracy: Estimate
    class_accuracy: dict[str, Estimate]
    group_accuracy: dict[str, Estimate]
    worst_group: str | None
    ece: Estimate
    log_loss: Estimate
    classes: list[Any]
    confusion: list[list[int]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def evaluate(y: Any, proba: Any, classes: Any, group: Any = None) -> Evaluation:
    """Measure predicted probabilities against labels; all intervals are 95% intervals.

    Parameters
    ----------
    y : array (n,)
        True labels, all among `classes`.
    proba : array (n, K)
        Predicted probabilities in the order of `classes`; the prediction is the largest, the first one on ties.
    classes : array (K,)
    group : array (n,), optional
        Group of each row.
    """
    proba, classes = np.asarray(proba, dtype=np.float64), np.asarray(classes)
    codes = _codes(np.asarray(y), proba, classes)
    return EvaluationSums(classes).add(codes, **row_scores(proba, codes), group=group).result()


def row_scores(proba: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
    """What `EvaluationSums` needs of probabilities (n, K) and true codes (n,): columns predicted, top and loss."""
    rows, predicted = np.arange(len(codes)), proba.argmax(axis=1)
    loss = -np.log(np.maximum(proba[rows, codes].astype(np.float64), np.finfo(float).tiny))
    return {"predicted": predicted, "top": proba[rows, predicted].astype(np.float64), "loss": loss}


class EvaluationSums:
    """What `evaluate` needs of labelled rows, added up block by block: the result is the same however they are cut.

    Up to 20,000 rows are kept and resampled, in their order. More rows leave counts and, for each bin of calibration,
    the sums of gaps (hit - confidence) and losses and of their squares. Then the sums of gaps are drawn from the normal
    limit of their bootstrap, whose covariance for sums S of n rows is diag(sums of squares) - S S' / n; the interval of
    the loss is that of a normal mean.
    """

    def __init__(self, classes: Any) -> None:
        self.classes = np.asarray(classes)
        self.confusion = np.zeros((len(self.classes), len(self.classes)), dtype=np.int64)
        self.groups: dict[Any, np.ndarray] = {}  # hits and rows
        self._sums = np.zeros((4, N_BINS))
        self._rows: list[np.ndarray] = []

    def add(self, codes: Any, predicted: Any, top: Any, loss: Any, group: Any = None) -> EvaluationSums:
        """Rows by true and predicted codes, probability of the predicted class, loss, and perhaps group, each (n,)."""
        K, hit = len(self.classes), predicted == codes
        self.confusion += np.bincount(codes * K + predicted, minlength=K * K).reshape(K, K)
        if group is not None:
            for name, counts in _hits_by_group(hit, np.asarray(group)).items():
                self.groups[name] = self.groups.get(name, 0) + counts
        rows = np.stack([np.minimum((top * N_BINS).astype(int), N_BINS - 1), hit - top, loss])
        # sums of such multiples are exact, so that their order does not matter
        values = np.rint(np.stack([rows[1], rows[1] ** 2, rows[2], rows[2] ** 2]) / SUMMED) * SUMMED
        self._sums += [np.bincount(rows[0].astype(int), weights=each, minlength=N_BINS) for each in values]
        self._rows = [*self._rows, rows] if self.confusion.sum() <= MAX_RESAMPLED // N_BOOTSTRAP else []
        return self

    def result(self) -> Evaluation:
        """The measures of all rows so far."""
        n, hits = self.confusion.sum(axis=1).tolist(), np.diag(self.confusion).tolist()
        if not sum(n):
            raise ValueError("y is empty: there is nothing to evaluate.")
        names = sorted(self.groups, key=lambda name: (isinstance(name, str), name))
        by_group = {str(name): wilson(*self.groups[name].tolist()) for name in names}
        rng = np.random.default_rng(0)
        ece, log_loss = _resampled(np.concatenate(self._rows, axis=1), rng) if self._rows else self._in_the_limit(rng)
        return Evaluation(
            accuracy=wilson(sum(hits), sum(n)),
            balanced_accuracy=_balanced(self.confusion, rng),
            class_accuracy={str(name): wilson(h, m) for name, h, m in zip(self.classes.tolist(), hits, n) if m},
            group_accuracy=by_group,
            worst_group=min(by_group, key=lambda name: by_group[name].value, default=None),
            ece=ece,
            log_loss=log_loss,
            classes=self.classes.tolist(),
            confusion=self.confusion.tolist(),
        )

    def _in_the_limit(self, rng: np.random.Generator) -> tuple[Estimate, Estimate]:
        n, (gaps, squares) = int(self.confusion.sum()), self._sums[:2]
        covariance = np.diag(squares) - np.outer(gaps, gaps) / n
        draws = rng.multivariate_normal(gaps, covariance, N_BOOTSTRAP, check_valid="ignore")
        ece = percentiles(float(np.abs(gaps).sum() / n), np.abs(draws).sum(axis=1) / n, n)
        mean, square = (self._sums[2:].sum(axis=1) / n).tolist()
        half = 1.959964 * math.sqrt(max(square - mean**2, 0.0) / n)
        return ece, Estimate(mean, mean - half, mean + half, n)


def wilson(n_hits: int, n: int) -> Estimate:
    """Share of hits with Wilson's score interval, which keeps inside [0, 1] also for few rows."""
    return Estimate(n_hits / n, *wilson_interval(n_hits / n, n), n)


def wilson_interval(share: float, n: float, z: float = 1.959964) -> tuple[float, float]:
    """Interval of a proportion (Wilson 1927), sound for small n and shares near 0 or 1; by default that of 95%."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(max(share * (1 - share), 0.0) / n + z * z / (4 * n * n))
    # by rounding alone the ends could miss a share of exactly 0 or 1
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def _codes(y: np.ndarray, proba: np.ndarray, classes: np.ndarray) -> np.ndarray:
    if proba.shape != (len(y), len(classes)):
        raise ValueError(
            f"proba has shape {proba.shape}, expected one row for each of {len(y)} labels, {len(classes)} columns."
        )
    if not ((proba >= 0) & (proba <= 1 + 1e-6)).all():  # float32 rounds a little above
        raise ValueError("proba has values outside 0..1, or NaN: give probabilities, such as those of predict_proba.")
    return encode_known(y, classes, "y", "check the label column, or leave those rows out")


def _hits_by_group(hit: np.ndarray, names: np.ndarray) -> dict[Any, np.ndarray]:
    if len(names) != len(hit):
        raise ValueError(f"group has {len(names)} entries for {len(hit)} rows: one is needed per row.")
    try:
        values, codes = np.unique(names, return_inverse=True)
    except TypeError:
        raise TypeError("group mixes texts with numbers or missing values: convert them to text.") from None
    counts = np.stack([np.bincount(codes[hit], minlength=len(values)), np.bincount(codes)], axis=1)
    return dict(zip(values.tolist(), counts))


def _balanced(confusion: np.ndarray, rng: np.random.Generator) -> Estimate:
    """Resampling rows within a class draws its hits from a binomial: no row needs to be touched."""
    n = confusion.sum(axis=1)
    p = np.diag(confusion)[n > 0] / n[n > 0]
    draws = rng.binomial(n[n > 0], p, size=(N_BOOTSTRAP, len(p))) / n[n > 0]
    return percentiles(float(p.mean()), draws.mean(axis=1), int(n.sum()))


def _resampled(rows: np.ndarray, rng: np.random.Generator) -> tuple[Estimate, Estimate]:
    """Calibration error and mean loss of rows (bin, gap, loss), and of their bootstrap resamples."""
    bins, gap, loss = rows[0].astype(int), *rows[1:]
    n = len(loss)
    eces, losses = np.array([(_ece(bins, gap, w), w @ loss / n) for w in resamples(n, rng)]).T
    ece = percentiles(_ece(bins, gap, np.ones(n)), eces, n)
    return ece, percentiles(float(loss.mean()), losses, n)


def resamples(n: int, rng: np.random.Generator, columns: int = 1) -> Iterator[np.ndarray]:
    """How often each of n rows is in each bootstrap resample; fewer of them where that is much work."""
    for _ in range(int(np.clip(MAX_RESAMPLED / (n * columns), 100, N_BOOTSTRAP))):
        yield np.bincount(rng.integers(0, n, n), minlength=n)


def _ece(bins: np.ndarray, gap: np.ndarray, weight: np.ndarray) -> float:
    """Sum over bins of the share of rows times |accuracy - mean confidence| = |sum of gaps| / n."""
    return float(np.abs(np.bincount(bins, weights=gap * weight, minlength=N_BINS)).sum() / weight.sum())


def percentiles(value: float, draws: np.ndarray, n: int) -> Estimate:
    """A value with the interval that holds 95% of its resamples."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(value, float(low), float(high), n)


@dataclass(frozen=True)
class LabelScore:
    """One label: its known rows, how many of them say yes, average precision and accuracy; None where not defined."""

    n: int
    n_yes: int
    average_precision: Estimate | None
    accuracy: Estimate | None


@dataclass(frozen=True)
class MultiLabelEvaluation:
    """Result of `evaluate_labels`.

    Attributes
    ----------
    mean_average_precision : Estimate or None
        Over the labels that have one; bootstrap over rows, percentile interval.
    labels : dict of str to LabelScore
    """

    mean_average_precision: Estimate | None
    labels: dict[str, LabelScore]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def evaluate_labels(Y: Any, scores: Any, labels: Any) -> MultiLabelEvaluation:
    """Measure logits against 0/1 labels; all intervals are 95% intervals.

    Parameters
    ----------
    Y : array (n, T)
        0, 1, or NaN for a missing label.
    scores : array (n, T)
        Logits; above 0 means yes.
    labels : sequence of T names
    """
    Y, scores = np.asarray(Y, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if Y.ndim != 2 or Y.shape != scores.shape or Y.shape[1] != len(labels) or not len(Y):
        raise ValueError(f"Y has shape {Y.shape}, scores {scores.shape}, for {len(labels)} labels: they must agree.")
    if not (np.isnan(Y) | (Y == 0) | (Y == 1)).all():
        raise ValueError("Y has values other than 0, 1 and NaN.")
    if np.isnan(scores).any():
        raise ValueError("scores has NaN: give one logit for each row and label.")
    draws = np.stack(list(resamples(len(Y), np.random.default_rng(0), len(labels))))
    found = [_score(Y[:, t], scores[:, t], draws) for t in range(len(labels))]
    values = [each.average_precision.value for each, _ in found if each.average_precision is not None]
    mean = None
    if values:  # all labels of a draw are of the same rows
        resampled = np.mean([each for _, each in found if each is not None], axis=0)
        mean = percentiles(float(np.mean(values)), resampled, len(Y))
    return MultiLabelEvaluation(mean, {str(name): each for name, (each, _) in zip(labels, found)})


def _score(y: np.ndarray, score: np.ndarray, draws: np.ndarray) -> tuple[LabelScore, np.ndarray | None]:
    """Of one label, with its average precision in each resample."""
    known = ~np.isnan(y)
    yes, score = y[known] == 1, score[known]
    n, n_yes = len(yes), int(yes.sum())
    accuracy = wilson(int(((score > 0) == yes).sum()), n) if n else None
    if not 0 < n_yes < n:
        return LabelScore(n, n_yes, None, accuracy), None
    resampled = average_precision(yes, score, draws[:, known])
    value = float(average_precision(yes, score, np.ones((1, n)))[0])
    return LabelScore(n, n_yes, percentiles(value, resampled, n), accuracy), resampled


def average_precision(yes: np.ndarray, score: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Mean over the positive rows of the precision at their score, for each row of weights (B, n); 0 without positives.

    What scikit-learn's `average_precision_score` computes, equal scores taken together, but sorted once.
    """
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))  # of each run of equal scores
    w = weight[:, order].astype(np.float64)
    hits, seen = np.cumsum(w * yes[order], axis=1)[:, last], np.cumsum(w, axis=1)[:, last]
    precision = hits / np.maximum(seen, 1.0)  # resamples that begin with absent rows have seen nothing yet
    gained = np.diff(hits, axis=1, prepend=0.0)
    return np.asarray((gained * precision).sum(axis=1) / np.maximum(hits[:, -1], 1.0))
