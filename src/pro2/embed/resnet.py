"""ResNet-18 and ResNet-50 (He et al. 2016) with weights in torchvision's layout, without torchvision.

`resnet18`, `resnet50` and `resnet50-swav` (Caron et al. 2020) read the published weight files from the cache;
`resnet:/path/weights.pth` reads any file in that layout. Batch norms are folded into the convolutions.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from pro2.embed.cpu_engine import cache_folder
from pro2.embed.pytorch import TorchBackbone, WithPixels, folded
from pro2.embed.spec import Name, Preprocessing, Spec, choose_layer, file_digest, one_line

_EPSILON = 1e-5
_PIXELS = Preprocessing(
    224,
    256,
    interpolation="bilinear",
    mean=(0.485 * 255, 0.456 * 255, 0.406 * 255),
    std=(0.229 * 255, 0.224 * 255, 0.225 * 255),
    rounding="torchvision",
)
State = dict[str, torch.Tensor]


# address and licence of the published weight files
PUBLISHED = {
    "resnet18": ("https://download.pytorch.org/models/resnet18-f37072fd.pth", "BSD-3-Clause"),
    "resnet50": ("https://download.pytorch.org/models/resnet50-0676ba61.pth", "BSD-3-Clause"),
    "resnet50-swav": ("https://dl.fbaipublicfiles.com/deepcluster/swav_800ep_pretrain.pth.tar", "CC-BY-NC-4.0"),
}


def load(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """Read the weights (`weights_only`), fold the batch norms, wrap the network."""
    origin, licence = PUBLISHED.get(name.model, ("a local file", "unknown"))
    path = weights_file(name.model)
    state = read_state(path)
    layer = choose_layer(name, ("penultimate",))
    network = build(state)
    full_name = f"resnet:{name.model if name.model in PUBLISHED else path.name}@{layer}"
    spec = Spec(full_name, layer, int(_last_norm(state).shape[0]), _PIXELS, "mean", licence, origin)
    return TorchBackbone(spec, WithPixels(network, _PIXELS), file_digest(path), device=device, runtime=runtime)


def weights_file(model: str) -> Path:
    """A path, or a published file in pro2's or PyTorch's cache."""
    if model not in PUBLISHED:
        path = Path(model).expanduser()
        if not path.is_file():
            known = ", ".join(PUBLISHED)
            raise ValueError(f"resnet:{model}: there is no such file; give a weight file or one of {known}")
        return path
    url, _ = PUBLISHED[model]
    file = url.rpartition("/")[2]
    torch_home = Path(os.environ.get("TORCH_HOME") or cache_folder().parent / "torch")
    places = [cache_folder() / "weights" / file, torch_home / "hub" / "checkpoints" / file]
    for place in places:
        if place.is_file():
            return place
    raise OSError(
        f"the weights of {model} are not on this machine; fetch them once, online, with: "
        f"mkdir -p {places[0].parent} && curl -L -o {places[0]} {url}"
    )


def read_state(path: Path) -> State:
    """The state dictionary without prefixes: distributed training's `module.`, SwAV's heads beside the trunk."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds for a file that is none of its own
        raise ValueError(f"{path} is not a weight file that can be read safely: {one_line(error)}") from error
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else {}
    plain = {key.removeprefix("module."): value for key, value in state.items() if isinstance(value, torch.Tensor)}
    if "conv1.weight" not in plain or "layer4.0.conv1.weight" not in plain:
        raise ValueError(f"{path} does not hold a ResNet in torchvision's layout (conv1, bn1, layer1 to layer4)")
    return plain


def build(state: State) -> torch.nn.Module:
    """The trunk up to global average pooling; depth, kind of block and widths follow the weights."""
    layers: list[torch.nn.Module] = [
        _convolution(state, "conv1", "bn1", stride=2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(3, 2, 1),
    ]
    for stage in (1, 2, 3, 4):
        index = 0
        while f"layer{stage}.{index}.conv1.weight" in state:
            layers.append(_Block(state, f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1))
            index += 1
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers).eval()


class _Block(torch.nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 with the stride in the middle one, around a shortcut."""

    def __init__(self, state: State, prefix: str, stride: int) -> None:
        super().__init__()
        convolutions = 3 if f"{prefix}.conv3.weight" in state else 2
        strided = 2 if convolutions == 3 else 1
        layers: list[torch.nn.Module] = []
        for i in range(1, convolutions + 1):
            step = stride if i == strided else 1
            layers += [_convolution(state, f"{prefix}.conv{i}", f"{prefix}.bn{i}", step), torch.nn.ReLU()]
        self.body = torch.nn.Sequential(*layers[:-1])
        down = f"{prefix}.downsample"
        shrinks = f"{down}.0.weight" in state
        self.shortcut = _convolution(state, f"{down}.0", f"{down}.1", stride) if shrinks else torch.nn.Identity()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """ReLU of the sum."""
        return torch.relu(self.body(values) + self.shortcut(values))


def _convolution(state: State, convolution: str, norm: str, stride: int = 1) -> torch.nn.Module:
    padding = state[f"{convolution}.weight"].shape[-1] // 2
    return folded(state, convolution, norm, _EPSILON, stride=stride, padding=padding)


def _last_norm(state: State) -> torch.Tensor:
    last = max(int(key.split(".")[1]) for key in state if key.startswith("layer4."))
    return state.get(f"layer4.{last}.bn3.weight", state[f"layer4.{last}.bn2.weight"])
