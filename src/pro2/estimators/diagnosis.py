"""What few labelled target rows show: where the target differs, which features it needs, what more labels would add."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.estimators.evaluation import Estimate, wilson
from pro2.estimators.probe import feature_grid, penalty_grid
from pro2.extras import imported
from pro2.linalg.arrays import to_numpy
from pro2.linalg.logistic import loo_path, row_loss


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`.

    Attributes
    ----------
    n_labels : dict of str to int
        Target rows of each class.
    source_accuracy : Estimate
        Of the source head on the target rows; Wilson interval.
    mean_shift, mean_shift_by_chance : float or None, list of two floats or None
        As in `AdaptationReport`: squared distance of the target's mean from the source's in standard errors, averaged
        over features, and its range in 95 of 100 draws from the source. None where it cannot be measured.
    differences : list of str
        Where the target differs from the source, in the sentences of `AdaptationReport.differences`.
    n_features, loo_loss, loo_stderr : list
        Leave-one-out log-loss of a probe on the first d features, at its best penalty, and its standard error.
    features_needed : int
        Fewest features whose loss is within one standard error of the lowest.
    effective_features : float or None
        How many ranked features the adapted head uses in effect (`report_.effective_features`).
    loo_accuracy : Estimate or None
        Of the adapted classifier on held-out target rows: `report_.accuracy` and its interval.
    n_shots, accuracy, stderr : list
        Measured on the labelled rows: accuracy after adapting with n of them per class, and its standard error.
    expected : dict of int to Estimate
        Extrapolated accuracy at more labels per class: error = a + b / sqrt(n) fitted to the measured sizes, plus or
        minus two standard errors of the prediction at twice the labels.
    notes : list of str
        What could not be measured, and why.
    """

    n_labels: dict[str, int]
    source_accuracy: Estimate
    mean_shift: float | None
    mean_shift_by_chance: list[float] | None
    differences: list[str]
    n_features: list[int]
    loo_loss: list[float]
    loo_stderr: list[float]
    features_needed: int
    effective_features: float | None
    loo_accuracy: Estimate | None
    n_shots: list[int]
    accuracy: list[float]
    stderr: list[float]
    expected: dict[int, Estimate]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def diagnose(model: Any, X_target: Any, y_target: Any) -> Diagnosis:
    """Examine labelled target rows X (M, D), y (M,) with a fitted `ProjectAndProbe`.

    Four or more rows of each class give a learning curve.
    """
    y = np.asarray(y_target)
    X = np.asarray(X_target, dtype=np.float64 if np.asarray(X_target).dtype == np.float64 else np.float32)
    codes = np.asarray(model._encode_target(y, X, "y_target"))
    counts = np.bincount(codes, minlength=len(model.classes_))
    Z = to_numpy(model.projection_.transform(X)).astype(np.float64)
    grid, loss, error = _loss_by_features(Z, codes, len(model.classes_))
    best = int(np.argmin(loss))
    report, notes = model.adapt(X, y).report_, []
    curve, fewest = report.learning_curve, int(counts.min())
    low, high = report.accuracy_interval
    has_shift = math.isfinite(report.mean_shift)
    if not has_shift:
        notes.append("the shift of the mean needs two target rows and a model that keeps the moments of its source")
    if curve is None:
        notes.append(f"the rarest class has {fewest} rows; a learning curve needs 4 of each class")
    return Diagnosis(
        n_labels={str(name): int(n) for name, n in zip(model.classes_.tolist(), counts)},
        source_accuracy=wilson(int(np.sum(model.source_head_.predict(X) == y)), len(y)),
        mean_shift=report.mean_shift if has_shift else None,
        mean_shift_by_chance=list(report.mean_shift_by_chance) if has_shift else None,
        differences=report.differences(),
        n_features=grid,
        loo_loss=loss.tolist(),
        loo_stderr=error.tolist(),
        features_needed=int(grid[int(np.argmax(loss <= loss[best] + error[best]))]),
        effective_features=None if math.isnan(report.effective_features) else report.effective_features,
        loo_accuracy=None if report.withheld else Estimate(report.accuracy, low, high, len(y)),
        n_shots=[] if curve is None else curve.n_per_class.tolist(),
        accuracy=[] if curve is None else (1 - curve.error).tolist(),
        stderr=[] if curve is None else curve.deviation.tolist(),
        expected={} if curve is None else {n: _expected(curve, n, fewest) for n in (2 * fewest, 4 * fewest)},
        notes=notes,
    )


def _loss_by_features(Z: np.ndarray, codes: np.ndarray, n_classes: int) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Leave-one-out log-loss (n_d,) and its standard error, each at the penalty that is best for it."""
    grid, penalties = feature_grid("auto", Z.shape[1]), penalty_grid("auto", Z)
    scores = loo_path(Z, codes, grid, penalties, n_classes=n_classes)[1]
    loss = row_loss(scores, codes, n_classes)
    chosen = loss[np.arange(len(grid)), loss.mean(axis=-1).argmin(axis=1)]
    return grid, chosen.mean(axis=1), chosen.std(axis=1) / np.sqrt(len(codes))


def _expected(curve: Any, n_per_class: int, n_measured: int) -> Estimate:
    value, margin = curve.accuracy_at(n_per_class), 2 * curve.spread
    return Estimate(value, max(0.0, value - margin), min(1.0, value + margin), n_measured)


def plot_diagnosis(diagnosis: Diagnosis, path: str | PathLike[str], force: bool = False) -> Path:
    """Three panels: shift of the mean, features, labels. The suffix chooses the format (.png, .svg, .pdf)."""
    library = imported("matplotlib", "Figures need matplotlib: pip install 'pro2[report]'", "figure")
    figure = library.figure.Figure(figsize=(11, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.set(title="Shift of the mean", ylabel="squared distance (standard errors)")
    if diagnosis.mean_shift is None or diagnosis.mean_shift_by_chance is None:
        text = "\n".join(diagnosis.notes)
        left.text(0.5, 0.5, text, ha="center", va="center", wrap=True, transform=left.transAxes)
    else:
        left.bar([0], [diagnosis.mean_shift], color="C3", label="this target")
        left.axhspan(*diagnosis.mean_shift_by_chance, color="0.8", label="range by chance")
        left.set_xticks([])
        left.legend(frameon=False)
    middle.errorbar(diagnosis.n_features, diagnosis.loo_loss, diagnosis.loo_stderr, marker="o", capsize=2)
    middle.axvline(diagnosis.features_needed, color="0.6", linestyle="--")
    middle.set(xscale="log", xlabel="features used", ylabel="leave-one-out log-loss", title="Features needed")
    right.set(title="More labels", xlabel="labels per class", ylabel="accuracy")
    if diagnosis.n_shots:
        right.errorbar(diagnosis.n_shots, diagnosis.accuracy, diagnosis.stderr, marker="o", capsize=2, label="measured")
        right.set_xscale("log", base=2)
        n, estimates = list(diagnosis.expected), list(diagnosis.expected.values())
        right.plot(n, [e.value for e in estimates], "C1s--", label="extrapolated")
        right.fill_between(n, [e.low for e in estimates], [e.high for e in estimates], color="C1", alpha=0.2)
    right.axhline(diagnosis.source_accuracy.value, color="0.6", linestyle=":", label="source head")
    right.legend(frameon=False)
    kind = Path(path).suffix.lstrip(".") or "png"
    return atomic_write(Path(path), lambda file: figure.savefig(file, format=kind, dpi=150), force)
