"""Backbones by name, `[runtime:]model[@layer]`, and backbones made of any function.

Names without a runtime are built in, registered with `register_backbone`, or provided by an installed package through
the entry point group `pro2.backbones` (entry name = backbone name, value = a factory).
"""

import difflib
import hashlib
import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from pro2.embed.images import crop_square, normalise
from pro2.embed.spec import Backbone, Image, Name, Preprocessing, Spec, parse_name
from pro2.extras import imported

Factory = Callable[[Name, str, str], Backbone]
F = TypeVar("F", bound=Factory)

# module:factory within this package; a runtime (with a colon) takes any of its models
_LOADERS = {
    "transformers:": "libraries:load_transformers",
    "timm:": "libraries:load_timm",
    "sentence-transformers:": "libraries:load_sentence_transformers",
    "resnet:": "networks:load_resnet",
    "efficientnet-lite0": "networks:load_lite",
    "efficientnet-lite1": "networks:load_lite",
    "efficientnet-lite2": "networks:load_lite",
    "minilm": "libraries:load_minilm",
}
# The paper's five backbones. It lists CLIP ViT-L/16 with 1024 features: that is ViT-L/14 before CLIP's projection.
ALIASES = {
    "clip-vit-l14": "transformers:openai/clip-vit-large-patch14",
    "clip-vit-b16": "transformers:openai/clip-vit-base-patch16",
    "resnet18": "resnet:resnet18",
    "resnet50": "resnet:resnet50",
    "resnet50-swav": "resnet:resnet50-swav",
}
DEFAULT_BACKBONES = {"images": "efficientnet-lite0", "texts": "minilm"}
_REGISTERED: dict[str, Factory] = {}


def register_backbone(name: str) -> Callable[[F], F]:
    """Register a factory `(name, device, runtime) -> Backbone` under `name`, as a decorator.

    Examples
    --------
    >>> @register_backbone("my-net")
    ... def my_net(name, device="auto", runtime="auto"):
    ...     return CallableBackbone(...)
    """
    if parse_name(name) != Name("", name, None):
        raise ValueError(f"name={name!r} must be a plain word, without a runtime (:) or a layer (@)")
    if name in {*_LOADERS, *ALIASES, *_REGISTERED}:
        raise ValueError(f"a backbone named {name!r} is already registered; choose another name")

    def register(factory: F) -> F:
        _REGISTERED[name] = factory
        return factory

    return register


def list_backbones() -> list[str]:
    """All names that need no runtime prefix, sorted."""
    return sorted({*(name for name in _LOADERS if not name.endswith(":")), *ALIASES, *_REGISTERED, *_entry_points()})


def list_beginnings() -> list[str]:
    """The short names, and the prefixes of the runtimes; for completion in a shell."""
    return [*list_backbones(), *(name for name in _LOADERS if name.endswith(":"))]


def resolve(text: str) -> Name:
    """Parse a name and expand an alias; a layer given with the alias is kept."""
    name = parse_name(text)
    if not name.runtime and name.model in ALIASES:
        target = parse_name(ALIASES[name.model])
        return Name(target.runtime, target.model, name.layer or target.layer)
    return name


def create_backbone(name: str, device: str = "auto", runtime: str = "auto") -> Backbone:
    """Load a backbone by name, ready to embed.

    Parameters
    ----------
    name : str
        For images, such as `efficientnet-lite0`, `clip-vit-l14@projected` or `transformers:facebook/dinov2-base`; for
        text, `minilm` or `sentence-transformers:NAME`. `list_backbones()` returns the short names.
    device : str
        auto, cpu, cuda or cuda:N.
    runtime : {"auto", "onnxruntime", "torch"}
        What computes on a CPU; "auto" prefers ONNX Runtime.
    """
    parsed = resolve(name)
    key = f"{parsed.runtime}:" if parsed.runtime else parsed.model
    if key in _LOADERS:
        imported("torch", "this backbone needs torch; run: pip install 'pro2[lite]', or 'pro2[text]' for text")
        module, _, function = _LOADERS[key].partition(":")
        factory = cast(Factory, getattr(importlib.import_module(f"pro2.embed.{module}"), function))
    elif parsed.runtime:
        runtimes = ", ".join(name.removesuffix(":") for name in _LOADERS if name.endswith(":"))
        raise ValueError(f"backbone {name!r}: no runtime {parsed.runtime!r}; choose one of {runtimes}")
    elif key in _REGISTERED:
        factory = _REGISTERED[key]
    elif key in (entries := _entry_points()):
        factory = cast(Factory, entries[key].load())
    else:
        known = list_backbones()
        close = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}."
        raise ValueError(f"no backbone {name!r}; {hint} Models elsewhere need a runtime, such as transformers:{key}")
    return factory(parsed, device, runtime)


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {entry.name: entry for entry in importlib.metadata.entry_points(group="pro2.backbones")}


class CallableBackbone:
    """Wrap a function that maps a float32 batch (n, 3, height, width) to embeddings (n, width).

    Parameters
    ----------
    function : callable
        Takes and returns an array; the output of a PyTorch module is accepted as well.
    preprocessing : Preprocessing
    name : str
        Goes into the provenance of the table.
    weights : str
        Identifies the parameters of the function. Change it whenever they change: a function cannot be inspected, so
        this value decides whether an interrupted run may be resumed.
    width : int
        Number of features, if known.
    """

    engine = "callable"

    def __init__(
        self,
        function: Callable[[np.ndarray], Any],
        preprocessing: Preprocessing,
        name: str,
        weights: str,
        width: int = 0,
        licence: str = "unknown",
    ) -> None:
        if not callable(function):
            raise ValueError(f"function must be callable, found {type(function).__name__}")
        if not weights:
            raise ValueError("weights must name the function's parameters, e.g. a digest or a version; found nothing")
        self.spec = Spec(name, "output", width, preprocessing, "none", licence, "a Python function")
        self.weights = "named:" + hashlib.sha256(weights.encode()).hexdigest()
        self._function, self._preprocessing = function, preprocessing

    def prepare(self, image: Image) -> np.ndarray:
        return crop_square(image, self._preprocessing)

    def embed(self, batch: np.ndarray) -> np.ndarray:
        values = normalise(batch, self._preprocessing).transpose(0, 3, 1, 2)
        features = np.asarray(self._function(np.ascontiguousarray(values)), dtype=np.float32)
        return features.reshape(len(features), -1)


class TextBackbone:
    """Wrap a function that maps a list of texts to an array (n, width); the spec has `takes="text"`."""

    batch_size = 256
    chunk = 32  # texts per call of the function

    def __init__(self, spec: Spec, encode: Callable[[list[str]], Any], weights: str, engine: str) -> None:
        self.spec, self.weights, self.engine = spec, weights, engine
        self._encode = encode

    def prepare(self, text: str) -> np.ndarray:
        return np.array(text, dtype=object)  # without dimensions, so that many can be stacked

    def embed(self, batch: np.ndarray) -> np.ndarray:
        """Map texts to float32 rows; texts of similar length share a call, so that little padding is computed."""
        order = np.argsort([len(text) for text in batch.tolist()], kind="stable")
        chunks = [order[start : start + self.chunk] for start in range(0, len(order), self.chunk)]
        rows = np.concatenate([np.asarray(self._encode(batch[part].tolist()), dtype=np.float32) for part in chunks])
        out = np.empty_like(rows)
        out[order] = rows
        return out
