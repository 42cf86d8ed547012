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


def test_a_shift_is_told_from_none() -> None:
    model = ProjectAndProbe().fit(*draw(2000))
    near = [diagnose(model, *draw(40, seed=seed)).report for seed in range(1, 9)]
    assert sum(report.mean_shift < report.mean_shift_by_chance[1] for report in near) >= 6
    assert "no further from" in str(near[0])
    far = diagnose(model, *draw(40, shift=2.0, seed=9)).report
    assert far.mean_shift > far.mean_shift_by_chance[1]


@pytest.mark.parametrize("n_rows", [4, 30])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_parts_fit_together(n_classes: int, n_rows: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model = ProjectAndProbe().fit(*draw(600, n_classes=n_classes))
    X, y = draw(n_rows, shift=1.0, seed=3, n_classes=n_classes)
    result = diagnose(model, X, y)
    assert result.to_dict()["report"] == model.adapt(X, y).report_.to_dict()
    assert result.features_needed in result.n_features
    assert len(result.n_features) == len(result.loo_loss) == len(result.loo_stderr)
    assert str(result).endswith(f"features needed: {result.features_needed}")
    assert plot_diagnosis(result, tmp_path / "d.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_a_model_without_moments_has_a_figure_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    X, y = draw(600)
    fixed = diagnose(ProjectAndProbe(l2=0.1, solver="logistic", n_components=4).fit(X, y), X[:20], y[:20])
    assert plot_diagnosis(fixed, tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_classes_are_refused() -> None:
    X, y = draw(100)
    with pytest.raises(ValueError, match="y_target has classes"):
        diagnose(ProjectAndProbe().fit(X, y), X, y + 5)
