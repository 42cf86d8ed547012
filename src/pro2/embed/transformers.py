"""`transformers:ID_OR_FOLDER[@layer]`: vision models of Hugging Face transformers, from a folder or the hub cache.

Nothing is downloaded: a model that is not here is an error with the command that fetches it. Images go through the
model's own processor, always its Pillow version, so that results do not depend on whether torchvision is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pro2.embed.images import ImageError, normalise
from pro2.embed.pytorch import TorchBackbone, WithPixels, state_digest, width_of
from pro2.embed.spec import Image, Name, Preprocessing, Spec, choose_layer, one_line
from pro2.extras import imported

_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
_LONGEST = 100  # a processor resizes the whole image before it crops: 1 x 20000 pixels would become 3 GB
_TRIALS = ((97, 61), (50, 131), (64, 64), (333, 500))


def load(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """Load model and processor, pick the layer, normalise what the model returns to (n, width)."""
    transformers = imported("transformers", "this backbone needs transformers; run: pip install 'pro2[backbones]'")
    with quiet(transformers):
        config = from_disk(transformers.AutoConfig.from_pretrained, name.model)
        kind = "CLIPVisionModelWithProjection" if config.model_type == "clip" else "AutoModel"
        model = _load_model(getattr(transformers, kind), name.model)
        processor = from_disk(transformers.AutoImageProcessor.from_pretrained, name.model, backend="pil")
        network, layer = _with_layer(name, model, config.model_type)
        prepare, normalisation = _split(processor)
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


def _split(processor: Any) -> tuple[Callable[[Image], np.ndarray], Preprocessing | None]:
    """How to prepare one image, and the normalisation that is left for the network (None: nothing is).

    Most processors resize, crop, scale and normalise. The first two are done with the very same Pillow calls; the last
    two move into the network, so that threads hand over bytes instead of floats and the interpreter lock is free. A
    processor that does anything else is called as it is; which of the two it is, a trial on real shapes decides.
    """
    recipe = _translated(processor.to_dict())
    if recipe is not None and all(_agree(processor, recipe, size) for size in _TRIALS):
        return partial(_pixels, recipe), recipe
    return partial(_whole, processor), None


def _translated(found: dict[str, Any]) -> Preprocessing | None:
    """The processor's settings as a `Preprocessing`, when they can be written as one."""
    size, crop = found.get("size") or {}, found.get("crop_size") or {}
    steps = found.get("do_resize") and found.get("do_rescale") and found.get("do_normalize")
    if not steps or abs(found.get("rescale_factor", 0) * 255 - 1) > 1e-6:
        return None
    if "shortest_edge" in size:
        resize = int(size["shortest_edge"])
        if found.get("crop_pct"):
            resize, side = int(resize / found["crop_pct"]), resize
        elif found.get("do_center_crop") and crop.get("height") == crop.get("width"):
            side = int(crop["height"])
        else:
            return None
        rule = "shorter"
    elif size.get("height") and size.get("height") == size.get("width") and not found.get("do_center_crop"):
        resize, side, rule = int(size["height"]), int(size["height"]), "squash"
    else:
        return None
    mean, std = ([255.0 * value for value in found[key]] for key in ("image_mean", "image_std"))
    try:
        return Preprocessing(side, resize, rule, _FILTERS[int(found["resample"])], tuple(mean), tuple(std))
    except (ValueError, IndexError, KeyError):
        return None


def _pixels(recipe: Preprocessing, image: Image) -> np.ndarray:
    """Resize the whole image, then crop its centre: corners rounded down, as transformers does."""
    from PIL import Image as pil

    _check_shape(image)
    width, height = recipe.resize, recipe.resize
    if recipe.rule == "shorter":
        shorter = min(image.size)
        width, height = (int(recipe.resize * side / shorter) for side in image.size)
    resized = image.resize((width, height), pil.Resampling[recipe.interpolation.upper()])
    left, top = (width - recipe.size) // 2, (height - recipe.size) // 2
    return np.asarray(resized.crop((left, top, left + recipe.size, top + recipe.size)), dtype=np.uint8)


def _whole(processor: Any, image: Image) -> np.ndarray:
    _check_shape(image)
    return np.asarray(processor(images=image, return_tensors="np")["pixel_values"][0], dtype=np.float32)


def _check_shape(image: Image) -> None:
    if max(image.size) > _LONGEST * min(image.size):
        raise ImageError(f"{image.width}x{image.height} is longer than {_LONGEST} times its width; crop it first")


def _agree(processor: Any, recipe: Preprocessing, size: tuple[int, int]) -> bool:
    """The same numbers from noise of this shape, to the rounding of floats."""
    from PIL import Image as pil

    width, height = size
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = pil.fromarray(noise)
    theirs = _whole(processor, image)
    ours = normalise(_pixels(recipe, image), recipe).transpose(2, 0, 1)
    return theirs.shape == ours.shape and bool(np.allclose(theirs, ours, atol=1e-4))
