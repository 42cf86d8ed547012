"""The exported graph is checked against PyTorch before it is trusted, kept, and made again when damaged."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from pro2.embed.spec import Preprocessing, Spec

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
from pro2.embed import pytorch  # noqa: E402
from pro2.embed.pytorch import TorchBackbone, WithPixels, choose_device  # noqa: E402

RECIPE = Preprocessing(16, 16, mean=(127.0,) * 3, std=(64.0,) * 3)
SPEC = Spec("small", "penultimate", 4, RECIPE)


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    layers = [torch.nn.Conv2d(3, 4, 3, stride=2), torch.nn.ReLU6(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return WithPixels(torch.nn.Sequential(*layers), RECIPE)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pro2" / "onnx"


PIXELS = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)


def test_the_cpu_default_agrees_with_pytorch(cache: Path) -> None:
    fast = TorchBackbone(SPEC, network(), "w0", device="cpu")
    plain = TorchBackbone(SPEC, network(), "w0", device="cpu", runtime="torch")
    assert (fast.engine, plain.engine) == ("onnxruntime-cpu", "torch-cpu")
    np.testing.assert_allclose(fast.embed(PIXELS), plain.embed(PIXELS), atol=1e-5)
    assert len(list(cache.glob("*.onnx"))) == 1
    assert not list(cache.glob("*.tmp"))


def test_exported_once_and_again_when_damaged(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    export = pytorch.export
    monkeypatch.setattr(pytorch, "export", lambda *a: (calls.append(1), export(*a)))
    expected = TorchBackbone(SPEC, network(), "w0", device="cpu").embed(PIXELS)
    TorchBackbone(SPEC, network(), "w0", device="cpu")
    assert len(calls) == 1
    (path,) = cache.glob("*.onnx")
    path.write_bytes(path.read_bytes()[:-10])
    again = TorchBackbone(SPEC, network(), "w0", device="cpu")
    assert len(calls) == 2
    np.testing.assert_array_equal(again.embed(PIXELS), expected)


def test_a_graph_that_differs_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    export, wrong = pytorch.export, network(1)
    monkeypatch.setattr(pytorch, "export", lambda module, sample, path: export(wrong, sample, path))
    with caplog.at_level(logging.WARNING, "pro2"):
        backbone = TorchBackbone(SPEC, network(0), "w0", device="cpu")
    assert backbone.engine == "torch-cpu"
    assert "differs from PyTorch by" in caplog.text
    assert not list(cache.glob("*.onnx"))
    with pytest.raises(pytorch.ExportError, match="differs from PyTorch"):
        TorchBackbone(SPEC, network(0), "w0", device="cpu", runtime="onnxruntime")


def test_what_cannot_be_exported_runs_in_pytorch(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Winding(torch.nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            shift = int(pixels.sum().item()) % 2  # control flow on data, which no exporter follows
            return pixels.float().mean(dim=(1, 2)) + (shift if shift else 0 * shift)

    with caplog.at_level(logging.WARNING, "pro2"):
        backbone = TorchBackbone(SPEC, Winding(), "w0", device="cpu")
    assert backbone.engine == "torch-cpu"
    assert backbone.embed(PIXELS).shape == (5, 3)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="runtime='tensorrt'"):
        TorchBackbone(SPEC, network(), "w0", runtime="tensorrt")
    with pytest.raises(ValueError, match="device='tpu'"):
        choose_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="sees no GPU; use device='cpu'"):
            choose_device("cuda:1")
