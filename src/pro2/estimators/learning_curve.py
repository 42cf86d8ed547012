"""How the error falls with labels, from a few measured points."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


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
