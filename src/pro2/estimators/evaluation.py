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
MAX_RESAMPLED = 20_000_000  # rows over all resamples: a million rows get by with fewer resamples


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
        bootstrap over rows, percentile interval.
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
    predicted = proba.argmax(axis=1)
    hit = predicted == codes
    confusion = np.bincount(codes * len(classes) + predicted, minlength=len(classes) ** 2).reshape(len(classes), -1)
    by_class = _accuracies(hit, classes[codes])
    by_group = {} if group is None else _accuracies(hit, np.asarray(group))
    rng = np.random.default_rng(0)
    ece, log_loss = _calibration(proba, codes, predicted, rng)
    return Evaluation(
        accuracy=wilson(int(hit.sum()), len(hit)),
        balanced_accuracy=_balanced(confusion, rng),
        class_accuracy=by_class,
        group_accuracy=by_group,
        worst_group=min(by_group, key=lambda name: by_group[name].value, default=None),
        ece=ece,
        log_loss=log_loss,
        classes=classes.tolist(),
        confusion=confusion.tolist(),
    )


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
    if len(y) == 0:
        raise ValueError("y is empty: there is nothing to evaluate.")
    if proba.shape != (len(y), len(classes)):
        raise ValueError(
            f"proba has shape {proba.shape}, expected one row for each of {len(y)} labels, {len(classes)} columns."
        )
    if not ((proba >= 0) & (proba <= 1 + 1e-6)).all():  # float32 rounds a little above
        raise ValueError("proba has values outside 0..1, or NaN: give probabilities, such as those of predict_proba.")
    return encode_known(y, classes, "y", "check the label column, or leave those rows out")


def _accuracies(hit: np.ndarray, names: np.ndarray) -> dict[str, Estimate]:
    if len(names) != len(hit):
        raise ValueError(f"group has {len(names)} entries for {len(hit)} rows: one is needed per row.")
    try:
        values, codes = np.unique(names, return_inverse=True)
    except TypeError:
        raise TypeError("group mixes texts with numbers or missing values: convert them to text.") from None
    n, hits = np.bincount(codes), np.bincount(codes, weights=hit)
    return {str(name): wilson(int(h), int(m)) for name, h, m in zip(values.tolist(), hits, n)}


def _balanced(confusion: np.ndarray, rng: np.random.Generator) -> Estimate:
    """Resampling rows within a class draws its hits from a binomial: no row needs to be touched."""
    n = confusion.sum(axis=1)
    p = np.diag(confusion)[n > 0] / n[n > 0]
    draws = rng.binomial(n[n > 0], p, size=(N_BOOTSTRAP, len(p))) / n[n > 0]
    return percentiles(float(p.mean()), draws.mean(axis=1), int(n.sum()))


def _calibration(
    proba: np.ndarray, codes: np.ndarray, predicted: np.ndarray, rng: np.random.Generator
) -> tuple[Estimate, Estimate]:
    n = len(codes)
    top = proba[np.arange(n), predicted]
    loss = -np.log(np.maximum(proba[np.arange(n), codes], np.finfo(float).tiny))
    bins = np.minimum((top * N_BINS).astype(int), N_BINS - 1)
    gap = (predicted == codes) - top
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
