"""Diagnosis: no shift looks like no shift, a shift does not, and it agrees with the report of `adapt`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.estimators import ProjectAndProbe
from pro2.estimators.diagnosis import diagnose, plot_diagnosis

COV = 0.3 * np.random.default_rng(0).standard_normal((20, 20)) + np.eye(20)


def draw(n: int, shift: float = 0.0, seed: int = 0, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes; the shift moves every mean along one fixed direction and widens another."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    Z = rng.standard_normal((n, 20))
    Z[:, 0] += 2 * y + shift
    Z[:, 1] *= 1 + shift
    return Z @ COV.T, y


def test_a_shift_is_told_from_none_in_the_words_of_the_report() -> None:
    model = ProjectAndProbe().fit(*draw(2000))
    results = [diagnose(model, *draw(40, seed=seed)) for seed in range(1, 9)]
    assert sum(r.mean_shift < r.mean_shift_by_chance[1] for r in results) >= 6  # type: ignore[operator,index]
    assert any("no further from" in line for line in results[0].differences)
    far = draw(40, shift=2.0, seed=9)
    result, report = diagnose(model, *far), model.adapt(*far).report_
    assert result.differences == report.differences()
    assert (result.mean_shift, result.mean_shift_by_chance) == (report.mean_shift, list(report.mean_shift_by_chance))
    assert result.mean_shift > result.mean_shift_by_chance[1]  # type: ignore[operator,index]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_parts_fit_together(n_classes: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model = ProjectAndProbe().fit(*draw(600, n_classes=n_classes))
    X, y = draw(30, shift=1.0, seed=3, n_classes=n_classes)
    result = diagnose(model, X, y)
    assert sum(result.n_labels.values()) == 30
    assert result.source_accuracy.value == pytest.approx(np.mean(model.source_head_.predict(X) == y))
    assert result.features_needed in result.n_features
    assert len(result.n_features) == len(result.loo_loss) == len(result.loo_stderr)
    assert len(result.n_shots) == len(result.accuracy) == len(result.stderr) > 0
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in result.expected.values())
    assert list(result.expected) == [60 // n_classes, 120 // n_classes]
    assert plot_diagnosis(result, tmp_path / "d.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_what_cannot_be_measured_is_noted() -> None:
    X, y = draw(600)
    few = diagnose(ProjectAndProbe().fit(X, y), X[:4], y[:4])
    assert few.expected == {}
    assert "needs 4 of each class" in few.notes[0]
    fixed = diagnose(ProjectAndProbe(l2=0.1, solver="logistic", n_components=4).fit(X, y), X[:20], y[:20])
    assert fixed.mean_shift is None
    assert "keeps the moments of its source" in fixed.notes[0]


def test_unknown_classes_are_refused() -> None:
    X, y = draw(100)
    with pytest.raises(ValueError, match="y_target has classes"):
        diagnose(ProjectAndProbe().fit(X, y), X, y + 5)
