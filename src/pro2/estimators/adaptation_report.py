"""What was chosen and why: the record that comes with an adapted classifier."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace, device

from pro2.linalg.averaging import AveragedHead, average_head
from pro2.linalg.moments import Array, host
from pro2.linalg.priors import RIDGES

if TYPE_CHECKING:
    from pro2.estimators.adaptation import PriorSpace

CURVE_SHARES = (0.25, 0.5)  # of the labels: where the learning curve is measured, besides all of them
CURVE_REPEATS = 4


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


@dataclass(frozen=True)
class AdaptationReport:
    """Attributes
    ----------
    n_labels : int
        Labelled target rows.
    candidates : list of dict
        One row per prior, heaviest first: `ridge` of the source head at its centre (None: zero), `kernel`,
        `reach`, `size` of the centre, `weight`, `loo` (mean leave-one-out log-likelihood of a row).
    loo_accuracy, loo_interval, loo_log_loss
        Leave-one-out estimate of the accuracy, its 95 % Wilson interval, and the log-loss of the probabilities.
    source_weight : float
        Total weight of the priors centred on a source head.
    n_features : float
        Effective number of ranked features: the participation ratio of their shares in the logit's variance.
    shift_severity : float in [0, 1]
        Share of the squared head outside the first direction (the first K - 1 for K classes).
    temperature : float
        Scale of the averaged logits that calibrates the probabilities.
    learning_curve : LearningCurve or None
        None with fewer than four labels in some class.
    ranking, stability : arrays or None
        Only without labels: the features, best for the target first, and how well each keeps its variance.
    """

    n_labels: int
    candidates: list[dict[str, Any]] = field(default_factory=list)
    loo_accuracy: float = math.nan
    loo_interval: tuple[float, float] = (0.0, 1.0)
    loo_log_loss: float = math.nan
    source_weight: float = math.nan
    n_features: float = math.nan
    shift_severity: float = math.nan
    temperature: float = 1.0
    learning_curve: LearningCurve | None = None
    ranking: np.ndarray | None = None
    stability: np.ndarray | None = None

    def __str__(self) -> str:
        if self.n_labels == 0:
            return f"no labels: {int(self.n_features)} features keep their variance on the target"
        low, high = (100 * v for v in self.loo_interval)
        lines = [
            f"{self.n_labels} labels; leave-one-out accuracy {100 * self.loo_accuracy:.1f} % ({low:.0f} to {high:.0f})",
            f"weight on the source head {self.source_weight:.2f}; shift severity {self.shift_severity:.2f}; "
            f"effective features {self.n_features:.1f}",
        ]
        curve = self.learning_curve
        if curve is not None:
            more, spread = curve.labels_for(1.0), 100 * curve.spread
            need = f"about {more:.0f} more labels per class" if math.isfinite(more) else "more labels than can be told"
            lines.append(f"for one more point of accuracy: {need} (the curve is known to {spread:.1f} points)")
        return "\n".join(lines)


def make_report(
    space: PriorSpace, head: AveragedHead, Z: Array, codes: Array, weight: Array | None
) -> AdaptationReport:
    """The record of one adaptation."""
    y = host(codes)
    c = np.ones(len(y)) if weight is None else host(weight)
    scores = host(head.loo_scores)
    right = ((scores > 0) if scores.ndim == 1 else scores.argmax(axis=1)) == y
    accuracy = float(np.average(right, weights=c))
    order = np.argsort(-head.weights, kind="stable")
    rows = [
        {**head.candidates[i]._asdict(), "weight": float(head.weights[i]), "loo": float(head.loo[i])} for i in order
    ]
    n_features, severity = _shape_of(space, head.coef)
    return AdaptationReport(
        n_labels=len(y),
        candidates=rows,
        loo_accuracy=accuracy,
        loo_interval=wilson_interval(accuracy, float(c.sum())),
        loo_log_loss=_log_loss(scores, y, c),
        source_weight=float(sum(r["weight"] for r in rows if r["ridge"] in RIDGES)),
        n_features=n_features,
        shift_severity=severity,
        temperature=head.temperature,
        learning_curve=_learning_curve(space, head, Z, codes, weight, 1.0 - accuracy),
    )


def wilson_interval(share: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a proportion (Wilson 1927), sound for small n and shares near 0 or 1."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # by rounding alone the ends could miss a share of exactly 0 or 1
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def _shape_of(space: PriorSpace, coef: Array) -> tuple[float, float]:
    """Effective number of ranked features and the share outside the first direction(s)."""
    projection, n = space.projection, space.prior.n_classes
    B = host(projection.components_) if space.whole else np.eye(int(projection.components_.shape[0]))
    W = np.atleast_2d(host(coef)) @ B.T
    share = (W * W).sum(axis=0)
    total = share.sum()
    if not total > 0:
        return 0.0, 0.0
    share = share / total
    return float(1.0 / np.sum(share**2)), float(1.0 - share[: n - 1].sum())


def _log_loss(scores: np.ndarray, y: np.ndarray, c: np.ndarray) -> float:
    F = np.stack([np.zeros(len(scores)), scores], axis=1) if scores.ndim == 1 else scores
    F = F - F.max(axis=1, keepdims=True)
    loss = np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(y)), y]
    return float(np.average(loss, weights=c))


def _learning_curve(
    space: PriorSpace, head: AveragedHead, Z: Array, codes: Array, weight: Array | None, error: float
) -> LearningCurve | None:
    """Errors on held-out labelled rows at a quarter and half of the labels, and leave-one-out at all of them."""
    y = host(codes)
    counts = np.bincount(y)
    smallest = counts[counts > 0].min()
    if smallest < 4 or (counts > 0).sum() < 2:
        return None
    best = tuple(head.candidates[i] for i in np.argsort(-head.weights)[:2])
    points = [(float(smallest), error, len(y))]
    for share in CURVE_SHARES:
        n = max(1, round(share * smallest))
        wrong = [_held_out(space, Z, codes, weight, n, seed, best) for seed in range(CURVE_REPEATS)]
        points.append((float(n), float(np.mean(wrong)), len(y) - n * int((counts > 0).sum())))
    return fit_curve(*(np.array(v, dtype=float) for v in zip(*sorted(points))))


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


def _held_out(
    space: PriorSpace, Z: Array, codes: Array, weight: Array | None, n: int, seed: int, best: tuple[Any, ...]
) -> float:
    """Error on the other labelled rows of a head fitted to n rows of each class."""
    xp, y = array_namespace(Z), host(codes)
    rng = np.random.default_rng(seed)
    few = np.concatenate([rng.permutation(np.flatnonzero(y == k))[:n] for k in np.unique(y)])
    at = xp.asarray(few, device=device(Z))
    w = None if weight is None else xp.take(weight, at, axis=0)
    head = average_head(space.prior, xp.take(Z, at, axis=0), xp.take(codes, at, axis=0), w, best)
    f = host(Z @ (head.coef if head.coef.ndim == 1 else xp.matrix_transpose(head.coef)) + head.intercept)
    wrong = ((f > 0) if f.ndim == 1 else f.argmax(axis=1)) != y
    rest = np.setdiff1d(np.arange(len(y)), few)
    return float(np.mean(wrong[rest]))
