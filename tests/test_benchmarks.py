"""Scripts in benchmarks/ import, rivals keep one contract, and differences between methods are paired."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
NAMES = ["prevalidated", "source-logit", "proker", "proker-rbf", "gda", "tip-adapter", "clap", "lp++", "spreading",
         "transclip"]  # fmt: skip


@pytest.fixture(scope="module")
def rivals() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    import rivals

    sys.path.remove(str(BENCHMARKS))
    return rivals


def problem(n_classes: int = 3, n: int = 240, D: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Source and target of Gaussian classes; the target is moved and one axis is noise."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % n_classes
    X, X_target = (2.0 * np.eye(n_classes, D)[y] + rng.standard_normal((n, D)) for _ in range(2))
    X_target[:, -1] *= 5.0
    return X, y, X_target + 0.5, y


def test_every_script_imports() -> None:
    pytest.importorskip("torch")
    names = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    code = f"import importlib, sys; sys.path.insert(0, {str(BENCHMARKS)!r}); " + "; ".join(
        f"importlib.import_module({name!r})" for name in names
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(names) > 20


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_rival_learns_from_few_labels(rivals: ModuleType, name: str, n_classes: int) -> None:
    X, y, X_target, y_target = problem(n_classes)
    model = rivals.create_method(name).fit(X, y)
    few, rest = np.arange(12), np.arange(12, len(y))
    blind = {"X_unlabeled": X_target[rest]} if model.needs_unlabeled else {}
    adapted = model.adapt(X_target[few], y_target[few], **blind)
    P = adapted.transductive_proba_ if blind else adapted.predict_proba(X_target[rest])
    assert P.shape == (len(rest), n_classes)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert np.mean(P.argmax(axis=1) == y_target[rest]) > (0.7 if n_classes == 2 else 0.5)


def test_differences_are_paired_by_draw() -> None:
    sys.path.insert(0, str(BENCHMARKS))
    import harness

    sys.path.remove(str(BENCHMARKS))
    rng = np.random.default_rng(0)
    level = 10 * rng.standard_normal(50)
    rows = [
        {"task": "a", "target": "t", "shots": 2, "seed": seed, "method": method, "accuracy": level[seed] + gain}
        for seed in range(50) for method, gain in (("ours", 0.0), ("theirs", 1.0 + 0.1 * (-1) ** seed))
    ]  # fmt: skip
    gain, error = harness.mean_and_error(rows, "theirs", against="ours")
    assert gain == pytest.approx(1.0)
    assert error == pytest.approx(0.1 / 7, rel=0.02)
    assert harness.mean_and_error(rows, "theirs")[1] > 1.0
