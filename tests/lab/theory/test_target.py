"""Diagnosis: no shift looks like no shift, a shift does not, and labels buy accuracy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.estimators import ProjectAndProbe
from pro2.lab.theory import diagnose, plot_diagnosis

rng = np.random.default_rng(0)
COV = 0.3 * rng.standard_normal((20, 20)) + np.eye(20)


def draw(n: int, shift: float = 0.0, seed: int = 0, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes; the shift moves every mean along one fixed direction and widens another."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    Z = rng.standard_normal((n, 20))
    Z[:, 0] += 2 * y + shift
    Z[:, 1] *= 1 + shift
    return Z @ COV.T, y


def test_severity_tells_a_shift_from_none() -> None:
    model = ProjectAndProbe().fit(*draw(2000))
    without = [diagnose(model, *draw(40, seed=seed)) for seed in range(1, 9)]
    inside = [d.severity < d.severity_without_shift[2] for d in without]  # type: ignore[operator,index]
    assert sum(inside) >= 6
    found = diagnose(model, *draw(40, shift=2.0, seed=9))
    assert found.severity is not None
    assert found.severity_without_shift is not None
    assert found.severity > found.severity_without_shift[2]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_parts_fit_together(n_classes: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model = ProjectAndProbe().fit(*draw(600, n_classes=n_classes))
    X, y = draw(30, shift=1.0, seed=3, n_classes=n_classes)
    found = diagnose(model, X, y)
    assert sum(found.n_labels.values()) == 30
    assert found.source_accuracy.value == pytest.approx(np.mean(model.source_head_.predict(X) == y))
    assert found.features_needed in found.n_features
    assert len(found.n_features) == len(found.loo_loss) == len(found.loo_stderr)
    assert len(found.n_shots) == len(found.accuracy) == len(found.stderr) > 0
    assert all(each.low <= each.value <= each.high for each in found.expected.values())
    assert list(found.expected) == [60 // n_classes, 120 // n_classes]
    assert plot_diagnosis(found, tmp_path / "d.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_what_cannot_be_said_is_said() -> None:
    X, y = draw(600)
    few = diagnose(ProjectAndProbe().fit(X, y), X[:4], y[:4])
    assert few.expected == {}
    assert "needs 4 of each class" in few.notes[0]
    fixed = diagnose(ProjectAndProbe(l2=0.1, solver="logistic", n_components=4).fit(X, y), X[:20], y[:20])
    assert fixed.severity is None
    assert len(fixed.notes) == 1
    one_class = diagnose(ProjectAndProbe().fit(X, y), X[::2][:9], y[::2][:9])
    assert one_class.severity is None
    assert "every class" in one_class.notes[0]


def test_unknown_classes_are_refused() -> None:
    X, y = draw(100)
    with pytest.raises(ValueError, match="y_target has classes"):
        diagnose(ProjectAndProbe().fit(X, y), X, y + 5)
