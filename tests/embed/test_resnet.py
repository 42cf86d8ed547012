"""ResNets in torchvision's layout, against the ResNet of transformers with the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.embed import create_backbone
from pro2.embed.cpu_engine import cache_folder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from pro2.embed.resnet import WithPixels, build  # noqa: E402

DEPTHS = {"basic": [2, 2, 2, 2], "bottleneck": [3, 4, 6, 3]}


def reference(kind: str) -> torch.nn.Module:
    """transformers' ResNet-18 or ResNet-50 with random weights and busy batch norms."""
    torch.manual_seed(0)
    widths = [64, 128, 256, 512] if kind == "basic" else [256, 512, 1024, 2048]
    config = transformers.ResNetConfig(hidden_sizes=widths, depths=DEPTHS[kind], layer_type=kind)
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
            number = int(parts[6]) + 1
            renamed[f"{prefix}.{'conv' if 'convolution' in key else 'bn'}{number}.{end}"] = value
    return renamed


@pytest.mark.parametrize("kind", ["basic", "bottleneck"])
def test_equals_an_independent_implementation(kind: str) -> None:
    model = reference(kind)
    values = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        expected = model(values).pooler_output.flatten(1).numpy()
        found = build(in_torchvision_layout(model))(values).numpy()
    assert found.shape == (2, 512 if kind == "basic" else 2048)
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
        expected = WithPixels(build(state), backbone.spec.preprocessing)(torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(backbone.embed(pixels), expected, rtol=1e-5)
    assert backbone.spec.name == "resnet:resnet50-swav@penultimate"
    assert backbone.spec.licence == "CC-BY-NC-4.0"


def test_any_file_in_the_layout_is_a_backbone(tmp_path: Path) -> None:
    torch.save({"state_dict": in_torchvision_layout(reference("basic"))}, tmp_path / "mine.pth")
    assert create_backbone(f"resnet:{tmp_path / 'mine.pth'}", "cpu", "torch").spec.width == 512


def test_mistakes_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(OSError, match=r"curl -L -o .*resnet18-f37072fd.pth https://download.pytorch.org"):
        create_backbone("resnet18")
    with pytest.raises(ValueError, match="no such file; give a weight file or one of resnet18"):
        create_backbone("resnet:resnet19")
    torch.save({"fc.weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="torchvision's layout"):
        create_backbone(f"resnet:{tmp_path / 'other.pth'}")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(ValueError, match="read safely"):
        create_backbone(f"resnet:{tmp_path / 'text.pth'}")


def test_a_file_with_code_in_it_is_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)

    torch.save({"conv1.weight": Trap()}, tmp_path / "trap.pth")
    with pytest.raises(ValueError, match="read safely"):
        create_backbone(f"resnet:{tmp_path / 'trap.pth'}")
    assert not (tmp_path / "sprung").exists()
