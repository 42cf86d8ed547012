"""Adapters of other libraries: real classes of transformers, tiny and with random weights; a stand-in for timm."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.embed import create_backbone
from pro2.embed.images import ImageError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pil = pytest.importorskip("PIL.Image")
from pro2.embed.libraries import timm_preprocessing  # noqa: E402

VIT = {"hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32}


def clip() -> tuple[Any, Any]:
    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**VIT, "patch_size": 8, "projection_dim": 12}
    config = transformers.CLIPConfig(
        text_config={**text, "vocab_size": 50, "max_position_embeddings": 8}, vision_config=vision, projection_dim=12
    )
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return transformers.CLIPModel(config), processor


def vit() -> tuple[Any, Any]:
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    return transformers.ViTModel(transformers.ViTConfig(**VIT, patch_size=8)), processor


def resnet() -> tuple[Any, Any]:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    processor = transformers.ConvNextImageProcessorPil(size={"shortest_edge": 32}, crop_pct=0.875)
    return transformers.ResNetModel(config), processor


MODELS = {"clip": (clip, 24), "vit": (vit, 24), "resnet": (resnet, 16)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, (make, _) in MODELS.items():
        torch.manual_seed(0)
        model, processor = make()
        model.eval().save_pretrained(folder / name)
        processor.save_pretrained(folder / name)
    return folder


def photograph() -> pil.Image:
    return pil.fromarray(np.random.default_rng(1).integers(0, 256, (45, 60, 3), dtype=np.uint8))


def expected(folder: Path, name: str, layer: str) -> np.ndarray:
    """By hand, as the documentation of each model says."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixels = processor(images=photograph(), return_tensors="pt")["pixel_values"]
    model = (transformers.CLIPModel if name == "clip" else transformers.AutoModel).from_pretrained(folder).eval()
    with torch.inference_mode():
        if layer == "projected":
            return model.get_image_features(pixel_values=pixels).pooler_output.numpy()
        found = (model.vision_model if name == "clip" else model)(pixels)
    if layer == "mean":
        return found.last_hidden_state[:, 1:].mean(dim=1).numpy()
    if name in ("clip", "resnet"):
        return found.pooler_output.numpy().reshape(1, -1)
    return found.last_hidden_state[:, 0].numpy()


LAYERS = {"clip": ("penultimate", "projected"), "resnet": ("penultimate",)}


@pytest.mark.parametrize(
    ("name", "layer"), [(name, layer) for name in MODELS for layer in LAYERS.get(name, ("penultimate", "mean"))]
)
def test_embeddings_are_the_models_own(saved: Path, name: str, layer: str) -> None:
    backbone = create_backbone(f"transformers:{saved / name}@{layer}", "cpu", "torch")
    found = backbone.embed(backbone.prepare(photograph())[None])
    np.testing.assert_allclose(found, expected(saved / name, name, layer), atol=1e-5)
    assert backbone.spec.width == found.shape[1] == (12 if layer == "projected" else MODELS[name][1])
    assert backbone.spec.name == f"transformers:{name}@{layer}"


@pytest.mark.parametrize("name", ["clip", "resnet"])
def test_the_cpu_engine_agrees(saved: Path, name: str) -> None:
    fast = create_backbone(f"transformers:{saved / name}", "cpu", "onnxruntime")
    plain = create_backbone(f"transformers:{saved / name}", "cpu", "torch")
    batch = np.stack([plain.prepare(photograph())] * 3)
    np.testing.assert_allclose(fast.embed(batch), plain.embed(batch), atol=1e-4)
    assert fast.engine == "onnxruntime-cpu"
    assert fast.weights == plain.weights


def test_missing_weights_are_never_random_numbers(saved: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "half"
    folder.mkdir()
    for path in (saved / "vit").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    weights = load_file(folder / "model.safetensors")
    half = {key: value for key, value in weights.items() if "layer.1." not in key and "layers.1." not in key}
    assert len(half) < len(weights)
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="has no weights for"):
        create_backbone(f"transformers:{folder}", "cpu", "torch")


def test_mistakes_are_named(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"fetch it once, online, with: hf download openai/clip-vit-large-patch14$"):
        create_backbone("clip-vit-l14")
    with pytest.raises(ValueError, match="choose one of @penultimate, @projected"):
        create_backbone(f"transformers:{saved / 'clip'}@logits")
    with pytest.raises(ValueError, match=r"choose one of @penultimate$"):
        create_backbone(f"transformers:{saved / 'resnet'}@mean")
    with pytest.raises(ValueError, match="cannot be loaded"):
        create_backbone(f"transformers:{tmp_path}")
    # resized as a whole, it would fill the memory
    with pytest.raises(ImageError, match="20000x1 is longer than"):
        create_backbone(f"transformers:{saved / 'clip'}", "cpu", "torch").prepare(pil.new("RGB", (20_000, 1)))


CONFIGURATION = {
    "input_size": (3, 28, 28),
    "interpolation": "bicubic",
    "mean": (0.5, 0.4, 0.3),
    "std": (0.2, 0.2, 0.2),
    "crop_pct": 0.875,
    "crop_mode": "center",
}


class Tower(torch.nn.Module):
    num_features = 5

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 5, 4, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.conv(values).mean(dim=(2, 3))


@pytest.fixture
def stand_in_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """timm brings torchvision, so no extra installs it: these are the signatures that it documents."""

    def create_model(model_name: str, pretrained: bool = False, num_classes: int | None = None) -> Tower:
        if model_name != "tower.a1":
            raise RuntimeError(f"Unknown model ({model_name})")
        assert pretrained
        assert num_classes == 0
        return Tower()

    timm, data = types.ModuleType("timm"), types.ModuleType("timm.data")
    timm.create_model, timm.data = create_model, data
    data.resolve_model_data_config = lambda model: dict(CONFIGURATION)
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)


@pytest.mark.usefixtures("stand_in_timm")
def test_timm_models_see_their_own_preprocessing() -> None:
    backbone = create_backbone("timm:tower.a1", "cpu", "torch")
    pixels = backbone.prepare(photograph())
    assert pixels.shape == (28, 28, 3)
    values = (pixels.astype(np.float32) / 255 - CONFIGURATION["mean"]) / CONFIGURATION["std"]
    with torch.inference_mode():
        expected = Tower()(torch.from_numpy(values.transpose(2, 0, 1)[None].astype(np.float32))).numpy()
    np.testing.assert_allclose(backbone.embed(pixels[None]), expected, atol=1e-5)
    assert (backbone.spec.name, backbone.spec.width) == ("timm:tower.a1@penultimate", 5)
    with pytest.raises(OSError, match="hf download timm/other"):
        create_backbone("timm:other", "cpu")


def test_timm_configurations() -> None:
    found = timm_preprocessing(CONFIGURATION)
    assert (found.size, found.resize, found.rule, found.rounding) == (28, 32, "shorter", "torchvision")
    assert found.mean == (127.5, 102.0, 76.5)
    assert timm_preprocessing({**CONFIGURATION, "crop_mode": "squash", "crop_pct": 1.0}).rule == "squash"
    for wrong in ({"input_size": (1, 28, 28)}, {"input_size": (3, 28, 32)}, {"crop_mode": "border"}):
        with pytest.raises(ValueError, match="expected a square RGB input"):
            timm_preprocessing({**CONFIGURATION, **wrong})


def test_without_the_package_the_command_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match="pip install timm"):
        create_backbone("timm:x")
