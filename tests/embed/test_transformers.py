"""Real classes of transformers, tiny and with random weights, saved to disk and loaded as a user would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.embed import create_backbone

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pil = pytest.importorskip("PIL.Image")
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


def dinov2() -> tuple[Any, Any]:
    config = transformers.Dinov2Config(**VIT, patch_size=8)
    processor = transformers.BitImageProcessorPil(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32})
    return transformers.Dinov2Model(config), processor


MODELS = {"clip": (clip, 24), "vit": (vit, 24), "resnet": (resnet, 16), "dinov2": (dinov2, 24)}


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


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("clip", "penultimate"),
        ("clip", "projected"),
        ("vit", "penultimate"),
        ("vit", "mean"),
        ("resnet", "penultimate"),
        ("dinov2", "penultimate"),
        ("dinov2", "mean"),
    ],
)
def test_embeddings_are_the_models_own(saved: Path, name: str, layer: str) -> None:
    backbone = create_backbone(f"transformers:{saved / name}@{layer}", "cpu", "torch")
    found = backbone.embed(backbone.prepare(photograph())[None])
    np.testing.assert_allclose(found, expected(saved / name, name, layer), atol=1e-5)
    assert backbone.spec.width == found.shape[1] == (12 if layer == "projected" else MODELS[name][1])
    assert backbone.spec.name == f"transformers:{name}@{layer}"


@pytest.mark.parametrize("name", MODELS)
def test_pixels_and_arithmetic_apart_are_the_processor(saved: Path, name: str) -> None:
    backbone = create_backbone(f"transformers:{saved / name}", "cpu", "torch")
    processor = transformers.AutoImageProcessor.from_pretrained(saved / name, backend="pil")
    pixels = backbone.prepare(photograph())
    assert pixels.dtype == np.uint8  # the fast way was taken
    whole = processor(images=photograph(), return_tensors="np")["pixel_values"][0]
    mean, std = (np.array(processor.to_dict()[key]) for key in ("image_mean", "image_std"))
    np.testing.assert_allclose((pixels / 255 - mean) / std, whole.transpose(1, 2, 0), atol=1e-5)


def test_an_unusual_processor_is_called_as_it_is(saved: Path, tmp_path: Path) -> None:
    model, _ = vit()
    model.save_pretrained(tmp_path / "vit")
    plain = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}, do_normalize=False)
    plain.save_pretrained(tmp_path / "vit")
    backbone = create_backbone(f"transformers:{tmp_path / 'vit'}", "cpu", "torch")
    expected_pixels = plain(images=photograph(), return_tensors="np")["pixel_values"][0]
    np.testing.assert_array_equal(backbone.prepare(photograph()), expected_pixels)


def test_a_thread_of_pixels_is_refused_before_it_fills_the_memory(saved: Path) -> None:
    from pro2.embed.images import ImageError

    backbone = create_backbone(f"transformers:{saved / 'clip'}", "cpu", "torch")
    with pytest.raises(ImageError, match="20000x1 is longer than"):
        backbone.prepare(pil.new("RGB", (20_000, 1)))


def test_the_default_layer_comes_before_the_projection(saved: Path) -> None:
    assert create_backbone(f"transformers:{saved / 'clip'}", "cpu", "torch").spec.layer == "penultimate"


@pytest.mark.parametrize("name", ["clip", "resnet"])
def test_the_cpu_engine_agrees(saved: Path, name: str) -> None:
    fast = create_backbone(f"transformers:{saved / name}", "cpu", "onnxruntime")
    plain = create_backbone(f"transformers:{saved / name}", "cpu", "torch")
    batch = np.stack([plain.prepare(photograph())] * 3)
    np.testing.assert_allclose(fast.embed(batch), plain.embed(batch), atol=1e-4)
    assert fast.engine == "onnxruntime-cpu"
    assert fast.weights == plain.weights


def test_other_weights_have_another_digest(saved: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model, processor = vit()
    model.save_pretrained(tmp_path / "vit")
    processor.save_pretrained(tmp_path / "vit")
    one, other = (create_backbone(f"transformers:{folder / 'vit'}", "cpu", "torch") for folder in (saved, tmp_path))
    assert one.spec == other.spec
    assert one.weights != other.weights


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


def test_a_model_that_is_not_here_says_how_to_fetch_it() -> None:
    with pytest.raises(OSError, match=r"fetch it once, online, with: hf download openai/clip-vit-large-patch14$"):
        create_backbone("clip-vit-l14")


def test_mistakes_are_named(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose one of @penultimate, @projected"):
        create_backbone(f"transformers:{saved / 'clip'}@logits")
    with pytest.raises(ValueError, match=r"choose one of @penultimate$"):
        create_backbone(f"transformers:{saved / 'resnet'}@mean")
    with pytest.raises(ValueError, match="cannot be loaded"):
        create_backbone(f"transformers:{tmp_path}")
