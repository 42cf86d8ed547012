"""timm and open_clip bring torchvision, so the real packages are in no extra of ours.

These tests run their adapters against stand-in modules with the same signatures and return types; they say that the
adapter calls what the packages document, not that the packages themselves work.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from pro2.embed import create_backbone
from pro2.embed.timm import read_configuration

torch = pytest.importorskip("torch")
pil = pytest.importorskip("PIL.Image")
CONFIGURATION = {
    "input_size": (3, 28, 28),
    "interpolation": "bicubic",
    "mean": (0.5, 0.4, 0.3),
    "std": (0.2, 0.2, 0.2),
    "crop_pct": 0.875,
    "crop_mode": "center",
}


class Tower(torch.nn.Module):
    """An image tower as open_clip writes it: features, then a projection unless it was taken away."""

    num_features = 5

    def __init__(self, project: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 5, 4, 4)
        self.proj = torch.nn.Parameter(torch.randn(5, 2)) if project else None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        features = self.conv(values).mean(dim=(2, 3))
        return features if self.proj is None else features @ self.proj


@pytest.fixture
def stand_in_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(model_name: str, pretrained: bool = False, num_classes: int | None = None) -> Tower:
        if model_name != "tower.a1":
            raise RuntimeError(f"Unknown model ({model_name})")
        assert pretrained
        assert num_classes == 0
        return Tower(project=False)

    timm, data = types.ModuleType("timm"), types.ModuleType("timm.data")
    timm.create_model, timm.data = create_model, data
    data.resolve_model_data_config = lambda model: dict(CONFIGURATION)
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)


@pytest.fixture
def stand_in_open_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    def transform(image: pil.Image) -> torch.Tensor:
        pixels = np.array(image.resize((28, 28)).convert("RGB"), dtype=np.float32)
        return torch.from_numpy(pixels.transpose(2, 0, 1) / 255)

    def create_model_and_transforms(model_name: str, pretrained: str | None = None) -> tuple[Any, Any, Any]:
        if pretrained != "openai":
            raise RuntimeError(f"Pretrained weights ({pretrained}) not found for model {model_name}.")
        return types.SimpleNamespace(visual=Tower(project=model_name != "RN50")), None, transform

    module = types.ModuleType("open_clip")
    module.create_model_and_transforms = create_model_and_transforms
    monkeypatch.setitem(sys.modules, "open_clip", module)


def picture() -> pil.Image:
    return pil.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8))


@pytest.mark.usefixtures("stand_in_timm")
def test_timm_models_see_their_own_preprocessing() -> None:
    backbone = create_backbone("timm:tower.a1", "cpu", "torch")
    pixels = backbone.prepare(picture())
    assert pixels.shape == (28, 28, 3)
    values = (pixels.astype(np.float32) / 255 - CONFIGURATION["mean"]) / CONFIGURATION["std"]
    with torch.inference_mode():
        expected = Tower(project=False)(torch.from_numpy(values.transpose(2, 0, 1)[None].astype(np.float32))).numpy()
    np.testing.assert_allclose(backbone.embed(pixels[None]), expected, atol=1e-5)
    assert (backbone.spec.name, backbone.spec.width) == ("timm:tower.a1@penultimate", 5)
    with pytest.raises(OSError, match="hf download timm/other"):
        create_backbone("timm:other", "cpu")


def test_timm_configurations() -> None:
    found = read_configuration(CONFIGURATION)
    assert (found.size, found.resize, found.rule, found.rounding) == (28, 32, "shorter", "torchvision")
    assert found.mean == (127.5, 102.0, 76.5)
    assert read_configuration({**CONFIGURATION, "crop_mode": "squash", "crop_pct": 1.0}).rule == "squash"
    for wrong in ({"input_size": (1, 28, 28)}, {"input_size": (3, 28, 32)}, {"crop_mode": "border"}):
        with pytest.raises(ValueError, match="expected a square RGB input"):
            read_configuration({**CONFIGURATION, **wrong})


@pytest.mark.usefixtures("stand_in_open_clip")
def test_open_clip_towers_before_and_after_the_projection() -> None:
    before = create_backbone("open_clip:ViT-L-14/openai", "cpu", "torch")
    after = create_backbone("open_clip:ViT-L-14/openai@projected", "cpu", "torch")
    assert (before.spec.width, after.spec.width) == (5, 2)
    batch = before.prepare(picture())[None]
    projection = Tower(project=True).proj.detach().numpy()
    np.testing.assert_allclose(before.embed(batch) @ projection, after.embed(batch), atol=1e-5)


@pytest.mark.usefixtures("stand_in_open_clip")
def test_open_clip_mistakes_are_named() -> None:
    assert create_backbone("open_clip:RN50/openai", "cpu", "torch").spec.layer == "projected"
    with pytest.raises(ValueError, match="choose one of @projected"):
        create_backbone("open_clip:RN50/openai@penultimate", "cpu")
    with pytest.raises(ValueError, match="ARCHITECTURE/WEIGHTS"):
        create_backbone("open_clip:ViT-L-14")
    with pytest.raises(OSError, match="cannot load ViT-L-14/none"):
        create_backbone("open_clip:ViT-L-14/none", "cpu")


@pytest.mark.parametrize(("name", "package"), [("timm:x", "timm"), ("open_clip:x/y", "open_clip_torch")])
def test_without_the_package_the_command_is_given(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name.partition(":")[0], None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        create_backbone(name)
