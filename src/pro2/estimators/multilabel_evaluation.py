"""How good a classifier of several yes-or-no labels is: average precision of each label, and their mean."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pro2.estimators.evaluation import Estimate, percentiles, resamples, wilson


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
    confidence : float
        Level of all intervals.
    """

    mean_average_precision: Estimate | None
    labels: dict[str, LabelScore]
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def evaluate_labels(
    Y: Any, scores: Any, labels: Any, *, confidence: float = 0.95, random_state: int = 0
) -> MultiLabelEvaluation:
    """Measure logits against 0/1 labels.

    Parameters
    ----------
    Y : array (n, T)
        0, 1, or NaN for a missing label.
    scores : array (n, T)
        Logits; above 0 means yes.
    labels : sequence of T names
    confidence : float
        Level of the intervals, in (0, 1).
    random_state : int
        Of the bootstrap.
    """
    Y, scores = np.asarray(Y, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if Y.ndim != 2 or Y.shape != scores.shape or Y.shape[1] != len(labels) or not len(Y):
        raise ValueError(f"Y has shape {Y.shape}, scores {scores.shape}, for {len(labels)} labels: they must agree.")
    if not (np.isnan(Y) | (Y == 0) | (Y == 1)).all():
        raise ValueError("Y has values other than 0, 1 and NaN.")
    if np.isnan(scores).any():
        raise ValueError("scores has NaN: give one logit for each row and label.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}.")
    draws = np.stack(list(resamples(len(Y), np.random.default_rng(random_state), len(labels))))
    found = [_score(Y[:, t], scores[:, t], draws, confidence) for t in range(len(labels))]
    values = [each.average_precision.value for each, _ in found if each.average_precision is not None]
    mean = None
    if values:  # all labels of a draw are of the same rows
        resampled = np.mean([each for _, each in found if each is not None], axis=0)
        mean = percentiles(float(np.mean(values)), resampled, confidence, len(Y))
    return MultiLabelEvaluation(mean, {str(name): each for name, (each, _) in zip(labels, found)}, confidence)


def _score(
    y: np.ndarray, score: np.ndarray, draws: np.ndarray, confidence: float
) -> tuple[LabelScore, np.ndarray | None]:
    """Of one label, with its average precision in each resample."""
    known = ~np.isnan(y)
    yes, score = y[known] == 1, score[known]
    n, n_yes = len(yes), int(yes.sum())
    accuracy = wilson(int(((score > 0) == yes).sum()), n, confidence) if n else None
    if not 0 < n_yes < n:
        return LabelScore(n, n_yes, None, accuracy), None
    resampled = average_precision(yes, score, draws[:, known])
    value = float(average_precision(yes, score, np.ones((1, n)))[0])
    return LabelScore(n, n_yes, percentiles(value, resampled, confidence, n), accuracy), resampled


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
