"""What a handful of labelled target rows says: how far the target is, what it needs, what more labels would bring."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.estimators.evaluation import Estimate, wilson
from pro2.estimators.moments import SourceMoments
from pro2.estimators.probe import feature_grid, penalty_grid
from pro2.extras import imported
from pro2.lab.theory.bounds import moments_severity
from pro2.linalg.losses import evaluate, one_hot
from pro2.linalg.moments import host
from pro2.linalg.probes import loo_path

SEVERITY_FEATURES = 16  # more would mostly measure the noise of a small target


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`.

    Attributes
    ----------
    n_labels : dict of str to int
        Target rows of each class.
    source_accuracy : Estimate
        Of the source head on the target rows; Wilson interval.
    severity : float or None
        KL(source || target) in nats over the first `severity_features` features, both read as Gaussian classes. None
        when it cannot be said; `notes` gives the reason.
    severity_without_shift : list of float or None
        The same number for targets of this size drawn from the source model: their 5, 50 and 95 % quantiles. What
        lies above is shift (or a source that is far from Gaussian).
    n_features, loo_loss, loo_stderr : list
        Leave-one-out log-loss of a probe on the first d features, at its best penalty, and its standard error.
    features_needed : int
        Fewest features whose loss is within one standard error of the lowest.
    effective_features : float or None
        How many ranked features the adapted head uses in effect (`report_.effective_features`).
    loo_accuracy : Estimate or None
        Of the adapted classifier on target rows left out: `report_.accuracy` and its interval.
    n_shots, accuracy, stderr : list
        Measured on the labelled rows: accuracy after adapting with n of them per class, and its standard error.
    expected : dict of int to Estimate
        Extrapolated accuracy at more labels per class: error = a + b / sqrt(n) fitted to the measured sizes, give or
        take two standard errors of the prediction at twice the labels.
    notes : list of str
    """

    n_labels: dict[str, int]
    source_accuracy: Estimate
    severity: float | None
    severity_features: int
    severity_without_shift: list[float] | None
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


def diagnose(model: Any, X_target: Any, y_target: Any, *, random_state: int = 0) -> Diagnosis:
    """Look at labelled target rows through a fitted `ProjectAndProbe`.

    Parameters
    ----------
    model : ProjectAndProbe
    X_target, y_target : arrays (M, D), (M,)
        Labelled target rows; four or more of each class give a learning curve.
    random_state : int
        Of the draws.
    """
    y = np.asarray(y_target)
    X = np.asarray(X_target, dtype=np.float64 if np.asarray(X_target).dtype == np.float64 else np.float32)
    codes = np.asarray(model._encode_target(y, X, "y_target"))
    Z = host(model.projection_.transform(X)).astype(np.float64)
    rng = np.random.default_rng(random_state)
    counts = np.bincount(codes, minlength=len(model.classes_))
    severity, reference, notes = _severity(model, Z, codes, counts, rng)
    grid, loss, error = _loss_by_features(Z, codes, len(model.classes_))
    best = int(np.argmin(loss))
    report = model.adapt(X, y).report_
    curve, (low, high) = report.learning_curve, report.accuracy_interval
    if curve is None:
        notes.append(f"the rarest class has {counts.min()} rows; a learning curve needs 4 of each class")
    return Diagnosis(
        n_labels={str(name): int(n) for name, n in zip(model.classes_.tolist(), counts)},
        source_accuracy=wilson(int(np.sum(model.source_head_.predict(X) == y)), len(y)),
        severity=severity,
        severity_features=min(SEVERITY_FEATURES, Z.shape[1]),
        severity_without_shift=reference,
        n_features=grid,
        loo_loss=loss.tolist(),
        loo_stderr=error.tolist(),
        features_needed=int(grid[int(np.argmax(loss <= loss[best] + error[best]))]),
        effective_features=None if math.isnan(report.effective_features) else report.effective_features,
        loo_accuracy=None if report.withheld else Estimate(report.accuracy, low, high, len(y)),
        n_shots=[] if curve is None else curve.n_per_class.tolist(),
        accuracy=[] if curve is None else (1 - curve.error).tolist(),
        stderr=[] if curve is None else curve.deviation.tolist(),
        expected={} if curve is None else _expected(curve, int(counts.min())),
        notes=notes,
    )


def _severity(
    model: Any, Z: np.ndarray, codes: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> tuple[float | None, list[float] | None, list[str]]:
    moments = getattr(model.projection_, "moments_", None)
    if moments is None:
        return None, None, ["shift severity needs source moments, which only solver='krylov' keeps"]
    if counts.min() == 0:
        return None, None, ["shift severity needs target rows of every class"]
    d = min(SEVERITY_FEATURES, Z.shape[1])
    source = _in_features(model.projection_, moments, d)

    def of(rows: np.ndarray) -> float:
        return moments_severity(source, SourceMoments.from_arrays(rows, codes, classes=source.classes))

    # the same size without a shift: rows drawn from the source's own Gaussian classes
    factor = np.linalg.cholesky(source.within_covariance() + 1e-12 * np.eye(d))
    drawn = [of(source.mean[codes] + rng.standard_normal((len(codes), d)) @ factor.T) for _ in range(100)]
    return of(Z[:, :d]), np.quantile(drawn, [0.05, 0.5, 0.95]).tolist(), []


def _in_features(projection: Any, moments: SourceMoments, d: int) -> SourceMoments:
    """Source moments of the first d features: the same affine map as `transform`."""
    A = host(projection.components_ * (projection.norms_[:, None] / projection.scale_[None, :]))[:d]
    mean = (host(moments.mean) - host(projection.mean_)) @ A.T
    codes = tuple(range(len(moments.classes)))
    return SourceMoments(codes, host(moments.weight), mean, A @ host(moments.scatter) @ A.T)


def _loss_by_features(Z: np.ndarray, codes: np.ndarray, n_classes: int) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Leave-one-out log-loss (n_d,) and its standard error, each at the penalty that is best for it."""
    grid, penalties = feature_grid("auto", Z.shape[1]), penalty_grid("auto", Z)
    scores = loo_path(Z, codes, grid, penalties, n_classes=n_classes)[1]
    scores = scores[..., None] if n_classes == 2 else scores
    loss = evaluate(scores, one_hot(codes, n_classes, scores))[0]
    best = loss.mean(axis=-1).argmin(axis=1)
    chosen = loss[np.arange(len(grid)), best]
    return grid, chosen.mean(axis=1), chosen.std(axis=1) / np.sqrt(len(codes))


def _expected(curve: Any, have: int) -> dict[int, Estimate]:
    expected = {}
    for n in (2 * have, 4 * have):
        value = curve.accuracy_at(n)
        expected[n] = Estimate(value, max(0.0, value - 2 * curve.spread), min(1.0, value + 2 * curve.spread), have)
    return expected


def plot_diagnosis(found: Diagnosis, path: str | PathLike[str], force: bool = False) -> Path:
    """Three panels: severity, features, labels. The suffix chooses the format (.png, .svg, .pdf)."""
    library = imported("matplotlib", "Figures need matplotlib: pip install 'pro2[report]'", "figure")
    figure = library.figure.Figure(figsize=(11, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _plot_severity(left, found)
    middle.errorbar(found.n_features, found.loo_loss, found.loo_stderr, marker="o", capsize=2)
    middle.axvline(found.features_needed, color="0.6", linestyle="--")
    middle.set(xscale="log", xlabel="features used", ylabel="leave-one-out log-loss", title="Features needed")
    _plot_labels(right, found)
    kind = Path(path).suffix.lstrip(".") or "png"
    return atomic_write(Path(path), lambda file: figure.savefig(file, format=kind, dpi=150), force)


def _plot_severity(axes: Any, found: Diagnosis) -> None:
    axes.set(title="Shift severity", ylabel="KL (nats)")
    if found.severity is None or found.severity_without_shift is None:
        axes.text(0.5, 0.5, "\n".join(found.notes), ha="center", va="center", wrap=True, transform=axes.transAxes)
        return
    low, middle, high = found.severity_without_shift
    axes.bar([0, 1], [found.severity, middle], color=["C3", "0.7"])
    axes.errorbar([1], [middle], [[middle - low], [high - middle]], color="0.3", capsize=4)
    axes.set_xticks([0, 1], ["this target", "no shift,\nsame size"])


def _plot_labels(axes: Any, found: Diagnosis) -> None:
    axes.set(title="More labels", xlabel="labels per class", ylabel="accuracy")
    if found.n_shots:
        axes.errorbar(found.n_shots, found.accuracy, found.stderr, marker="o", capsize=2, label="measured")
        axes.set_xscale("log", base=2)
    if found.expected:
        n, each = list(found.expected), list(found.expected.values())
        axes.plot(n, [e.value for e in each], "C1s--", label="extrapolated")
        axes.fill_between(n, [e.low for e in each], [e.high for e in each], color="C1", alpha=0.2)
    axes.axhline(found.source_accuracy.value, color="0.6", linestyle=":", label="source head")
    axes.legend(frameon=False)
