"""`timm:MODEL[.TAG]`: models of the timm package, for those who have installed it (it brings torchvision along).

timm looks for weights by its own rules: its cache first, the hub when online.
"""

from __future__ import annotations

from typing import Any

from pro2.embed.pytorch import TorchBackbone, WithPixels, state_digest
from pro2.embed.spec import Name, Preprocessing, Spec, choose_layer, one_line
from pro2.extras import imported


def load(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """Create the model without its classifier and read its preprocessing off its configuration."""
    needs = "this backbone needs timm, which brings torchvision; run: pip install timm"
    timm = imported("timm", needs, "data")
    layer = choose_layer(name, ("penultimate",))
    try:
        model = timm.create_model(name.model, pretrained=True, num_classes=0).eval()
    except (OSError, RuntimeError) as error:
        raise OSError(
            f"timm cannot load {name.model} ({one_line(error)}); online, run: hf download timm/{name.model}"
        ) from error
    preprocessing = read_configuration(timm.data.resolve_model_data_config(model))
    module = WithPixels(model, preprocessing)
    spec = Spec(
        f"timm:{name.model}@{layer}",
        layer,
        int(model.num_features),
        preprocessing,
        "model",
        "see the model's card",
        f"https://huggingface.co/timm/{name.model}",
    )
    return TorchBackbone(spec, module, state_digest(model), device=device, runtime=runtime)


def read_configuration(found: dict[str, Any]) -> Preprocessing:
    """timm's evaluation transform as a `Preprocessing`; its means and deviations are for pixels from 0 to 1."""
    channels, height, width = found["input_size"]
    mode = found.get("crop_mode") or "center"
    if channels != 3 or height != width or mode not in ("center", "squash"):
        raise ValueError(f"this model takes {found['input_size']} with crop mode {mode!r}; expected a square RGB input")
    mean, std = (tuple(255.0 * value for value in found[key]) for key in ("mean", "std"))
    return Preprocessing(
        size=height,
        resize=max(height, int(height / (found.get("crop_pct") or 0.875))),
        rule="squash" if mode == "squash" else "shorter",
        interpolation=found.get("interpolation") or "bicubic",
        mean=mean,
        std=std,
        rounding="torchvision",
    )
