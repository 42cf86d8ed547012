"""`transformers:ID_OR_FOLDER[@layer]`: vision models of Hugging Face transformers, from a folder or the hub cache.

Nothing is downloaded: a model that is not here is an error with the command that fetches it. Images go through the
model's own processor, always its Pillow version, so that results do not depend on whether torchvision is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from pro2.embed.processors import split
from pro2.embed.pytorch import TorchBackbone, WithPixels, state_digest, width_of
from pro2.embed.spec import Name, Spec, choose_layer, one_line
from pro2.extras import imported


def load(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """Load model and processor, pick the layer, normalise what the model returns to (n, width)."""
    transformers = imported("transformers", "this backbone needs transformers; run: pip install 'pro2[backbones]'")
    with quiet(transformers):
        config = from_disk(transformers.AutoConfig.from_pretrained, name.model)
        kind = "CLIPVisionModelWithProjection" if config.model_type == "clip" else "AutoModel"
        model = _load_model(getattr(transformers, kind), name.model)
        processor = from_disk(transformers.AutoImageProcessor.from_pretrained, name.model, backend="pil")
        network, layer = _with_layer(name, model, config.model_type)
        prepare, normalisation = split(processor)
    module = network if normalisation is None else WithPixels(network, normalisation)
    where, origin = whereabouts(name.model)
    spec = Spec(
        f"transformers:{where}@{layer}",
        layer,
        width_of(module, prepare),
        _facts(processor),
        "mean" if layer == "mean" else "model",
        "see the model's card",
        origin,
    )
    return TorchBackbone(spec, module, state_digest(network), prepare, device, runtime)


class _Features(torch.nn.Module):
    """One tensor of shape (n, width) out of the many things that models return."""

    def __init__(self, model: torch.nn.Module, layer: str, pooled: bool) -> None:
        super().__init__()
        self.model, self.layer, self.pooled = model, layer, pooled

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Pixel values to features."""
        found = self.model(pixel_values)
        if self.layer == "projected":  # CLIP's image tower, with its projection into the space shared with text
            return found.image_embeds
        if self.pooled:
            return found.pooler_output.flatten(1)  # ResNet's is (n, width, 1, 1)
        tokens: torch.Tensor = found.last_hidden_state
        return tokens[:, 1:].mean(dim=1) if self.layer == "mean" else tokens[:, 0]


def _with_layer(name: Name, model: Any, model_type: str) -> tuple[torch.nn.Module, str]:
    if model_type == "clip":
        layer = choose_layer(name, ("penultimate", "projected"))
        return _Features(model if layer == "projected" else model.vision_model, layer, pooled=True), layer
    tower = getattr(model, "vision_model", model)  # SigLIP and other pairs of an image and a text tower
    # a vision transformer's own pooler is often untrained; its class token after the last norm is the embedding
    tokens = hasattr(tower, "embeddings") and hasattr(tower.embeddings, "cls_token")
    layer = choose_layer(name, ("penultimate", "mean") if tokens else ("penultimate",))
    return _Features(tower, layer, pooled=not tokens), layer


def _load_model(kind: Any, model: str) -> Any:
    """Weights that the folder lacks would be random numbers: refuse them, except for the unused pooler."""
    loaded, info = from_disk(kind.from_pretrained, model, output_loading_info=True, dtype=torch.float32)
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise ValueError(f"{model} has no weights for {len(missing)} parts, e.g. {missing[0]}; it is not a whole model")
    return loaded.eval()


def from_disk(opened: Callable[..., Any], model: str, **options: Any) -> Any:
    """What `opened` makes of a folder or of a model in the hub cache; one that is not here is not fetched."""
    local = Path(model).expanduser()
    try:
        return opened(str(local) if local.is_dir() else model, local_files_only=True, **options)
    except (OSError, ValueError) as error:
        if local.is_dir():
            raise ValueError(f"{local} cannot be loaded: {one_line(error, 300)}") from error
        raise OSError(
            f"{model} is neither a folder nor in the Hugging Face cache of this machine; fetch it once, online, with: "
            f"hf download {model}"
        ) from error


def whereabouts(model: str) -> tuple[str, str]:
    """The model's name for a table, and where its weights come from."""
    local = Path(model).expanduser()
    return (local.name, "a local folder") if local.is_dir() else (model, f"https://huggingface.co/{model}")


def _facts(processor: Any) -> dict[str, Any]:
    """What the processor does, as plain values."""
    wanted = ("do_", "size", "crop", "resample", "rescale", "image_mean", "image_std", "image_processor_type")
    return {key: value for key, value in sorted(processor.to_dict().items()) if key.startswith(wanted)}


@contextlib.contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Its notes on unused text towers are not news here."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
