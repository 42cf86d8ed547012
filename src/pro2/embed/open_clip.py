"""`open_clip:ARCHITECTURE/WEIGHTS[@layer]`: models of open_clip, for those who have installed it (with torchvision).

open_clip looks for weights by its own rules: its cache first, the hub when online.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pro2.embed.pytorch import TorchBackbone, state_digest, width_of
from pro2.embed.spec import Image, Name, Spec, choose_layer, one_line
from pro2.extras import imported


def load(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """The image tower, before or after its projection, with open_clip's own evaluation transform."""
    architecture, _, weights = name.model.partition("/")
    if not weights:
        raise ValueError(f"backbone {name}: expected open_clip:ARCHITECTURE/WEIGHTS, e.g. open_clip:ViT-L-14/openai")
    open_clip = imported(
        "open_clip", "this backbone needs open_clip, which brings torchvision; run: pip install open_clip_torch"
    )
    try:
        model, _, transform = open_clip.create_model_and_transforms(architecture, pretrained=weights)
    except (OSError, RuntimeError) as error:
        raise OSError(
            f'open_clip cannot load {name.model} ({one_line(error)}); online, run: python -c "import open_clip; '
            f"open_clip.create_model_and_transforms('{architecture}', pretrained='{weights}')\" "
            "(or hf download its repository)"
        ) from error
    tower, layer = _with_layer(name, model.visual.eval())

    def prepare(image: Image) -> np.ndarray:
        return np.asarray(transform(image), dtype=np.float32)

    spec = Spec(
        f"open_clip:{name.model}@{layer}",
        layer,
        width_of(tower, prepare),
        {"transform": " ".join(str(transform).split())},
        "model",
        "see the model's card",
        f"open_clip {name.model}",
    )
    return TorchBackbone(spec, tower, state_digest(tower), prepare, device, runtime)


def _with_layer(name: Name, tower: Any) -> tuple[Any, str]:
    """Towers of transformers apply `proj` last; without it they return what comes before the projection."""
    has_projection = getattr(tower, "proj", None) is not None
    layer = choose_layer(name, ("penultimate", "projected") if has_projection else ("projected",))
    if layer == "penultimate":
        tower.proj = None
    return tower, layer
