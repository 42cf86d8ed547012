"""The report of an adaptation, and which ranked features the target needs; with a figure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.estimators.probe import feature_grid, penalty_grid
from pro2.estimators.report import AdaptationReport
from pro2.extras import imported
from pro2.linalg.arrays import to_numpy
from pro2.linalg.logistic import loo_path, row_loss


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`.

    Attributes
    ----------
    report : AdaptationReport
        What `adapt` says about these labels: the shift of the mean, accuracies and the learning curve.
    n_features, loo_loss, loo_stderr : list
        Leave-one-out log-loss of a probe on the first d features, at its best penalty, and its standard error.
    features_needed : int
        Fewest features whose loss is within one standard error of the lowest.
    """

    report: AdaptationReport
    n_features: list[int]
    loo_loss: list[float]
    loo_stderr: list[float]
    features_needed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"report": self.report.to_dict()}

    def __str__(self) -> str:
        return f"{self.report}\nfeatures needed: {self.features_needed}"


def diagnose(model: Any, X_target: Any, y_target: Any) -> Diagnosis:
    """Examine labelled target rows X (M, D), y (M,) with a fitted `ProjectAndProbe`.

    Four or more rows of each class give a learning curve.
    """
    codes = to_numpy(model._encode_target(y_target, np.asarray(X_target), "y_target"))
    report = model.adapt(X_target, y_target).report_
    Z = to_numpy(model.projection_.transform(X_target)).astype(np.float64)
    grid, penalties = feature_grid("auto", Z.shape[1]), penalty_grid("auto", Z)
    scores = loo_path(Z, codes, grid, penalties, n_classes=len(model.classes_))[1]
    losses = row_loss(scores, codes, len(model.classes_))  # of each number of features, penalty and row
    at_best = losses[np.arange(len(grid)), losses.mean(axis=-1).argmin(axis=1)]
    loss, error = at_best.mean(axis=1), at_best.std(axis=1) / np.sqrt(len(codes))
    best = int(np.argmin(loss))
    needed = int(grid[int(np.argmax(loss <= loss[best] + error[best]))])
    return Diagnosis(report, grid, loss.tolist(), error.tolist(), needed)


def plot_diagnosis(diagnosis: Diagnosis, path: str | PathLike[str], force: bool = False) -> Path:
    """Three panels: shift of the mean, features, labels. The suffix chooses the format (.png, .svg, .pdf)."""
    library = imported("matplotlib", "Figures need matplotlib: pip install 'pro2[report]'", "figure")
    figure = library.figure.Figure(figsize=(11, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    report = diagnosis.report
    left.set(title="Shift of the mean", ylabel="squared distance (standard errors)", xticks=[])
    left.bar([0], [report.mean_shift], color="C3", label="this target")
    if np.isfinite(report.mean_shift):
        left.axhspan(*report.mean_shift_by_chance, color="0.8", label="range by chance")
    left.legend(frameon=False)
    middle.errorbar(diagnosis.n_features, diagnosis.loo_loss, diagnosis.loo_stderr, marker="o", capsize=2)
    middle.axvline(diagnosis.features_needed, color="0.6", linestyle="--")
    middle.set(xscale="log", xlabel="features used", ylabel="leave-one-out log-loss", title="Features needed")
    if report.learning_curve is not None:
        report.plot(right)
    right.axhline(100 * report.source_accuracy, color="0.6", linestyle=":", label="source head")
    right.set(title="More labels", xlabel="labels per class", ylabel="accuracy (%)")
    right.legend(frameon=False)
    kind = Path(path).suffix.lstrip(".") or "png"
    return atomic_write(Path(path), lambda file: figure.savefig(file, format=kind, dpi=150), force)
