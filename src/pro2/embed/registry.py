"""One string names a backbone: `[runtime:]model[@layer]`.

Names without a runtime are registered here, by `register_backbone`, or by an installed package through the entry
point group `pro2.backbones` (entry name = backbone name, value = a factory).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
from collections.abc import Callable
from typing import TypeVar, cast

from pro2.embed.spec import Backbone, Name, parse_name

Factory = Callable[[Name, str, str], Backbone]
F = TypeVar("F", bound=Factory)

# Runtimes take any model of theirs; each is a module in this folder, with load(name, device, runtime).
RUNTIMES = ("transformers", "timm", "open_clip", "onnx", "sentence-transformers", "resnet")

# The paper's five. It prints CLIP ViT-L/16 with 1024 features: that is ViT-L/14 before CLIP's projection.
ALIASES = {
    "clip-vit-l14": "transformers:openai/clip-vit-large-patch14",
    "clip-vit-b16": "transformers:openai/clip-vit-base-patch16",
    "resnet18": "resnet:resnet18",
    "resnet50": "resnet:resnet50",
    "resnet50-swav": "resnet:resnet50-swav",
}

_BUILT_IN = {f"efficientnet-lite{size}": "lite:load" for size in (0, 1, 2)} | {"minilm": "encoders:load_minilm"}
_REGISTERED: dict[str, Factory] = {}
_GROUP = "pro2.backbones"
_OPTIONAL = ("torch", "PIL")


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
    if name in _BUILT_IN or name in ALIASES or name in _REGISTERED:
        raise ValueError(f"a backbone named {name!r} is already registered; choose another name")

    def keep(factory: F) -> F:
        _REGISTERED[name] = factory
        return factory

    return keep


def list_backbones() -> list[str]:
    """All names that need no runtime prefix, sorted."""
    return sorted({*_BUILT_IN, *ALIASES, *_REGISTERED, *_entry_points()})


def list_beginnings() -> list[str]:
    """The same, and the runtimes that take any model of theirs."""
    return [*list_backbones(), *(f"{name}:" for name in RUNTIMES)]


def resolve(text: str) -> Name:
    """Parse a name and replace an alias by what it stands for; a layer given with the alias is kept."""
    name = parse_name(text)
    if not name.runtime and name.model in ALIASES:
        target = parse_name(ALIASES[name.model])
        return Name(target.runtime, target.model, name.layer or target.layer)
    return name


def create_backbone(name: str, device: str = "auto", runtime: str = "auto") -> Backbone:
    """Load the backbone that `name` means, ready to embed.

    Parameters
    ----------
    name : str
        Such as `efficientnet-lite0`, `clip-vit-l14@projected`, `transformers:facebook/dinov2-base` or
        `onnx:/path/model.onnx` for images, `minilm` or `sentence-transformers:NAME` for text; `list_backbones()` gives
        the short ones.
    device : str
        auto, cpu, cuda or cuda:N.
    runtime : {"auto", "onnxruntime", "torch"}
        What computes on a CPU; "auto" prefers ONNX Runtime.
    """
    wanted = resolve(name)
    return _factory(wanted, name)(wanted, device, runtime)


def _factory(wanted: Name, text: str) -> Factory:
    if wanted.runtime:
        if wanted.runtime not in RUNTIMES:
            raise ValueError(f"backbone {text!r}: no runtime {wanted.runtime!r}; choose one of {', '.join(RUNTIMES)}")
        return _load_from(f"{wanted.runtime.replace('-', '_')}:load")
    if wanted.model in _BUILT_IN:
        return _load_from(_BUILT_IN[wanted.model])
    if wanted.model in _REGISTERED:
        return _REGISTERED[wanted.model]
    if wanted.model in (entries := _entry_points()):
        return cast(Factory, entries[wanted.model].load())
    raise ValueError(_unknown(text, wanted.model))


def _load_from(place: str) -> Factory:
    try:
        module, _, factory = place.partition(":")
        return cast(Factory, getattr(importlib.import_module(f"pro2.embed.{module}"), factory))
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL:
            raise
        raise ImportError(f"{error.name} is not installed; run: pip install 'pro2[lite]'") from None


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=_GROUP)}


def _unknown(text: str, model: str) -> str:
    known = list_backbones()
    close = difflib.get_close_matches(model, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}."
    return f"no backbone {text!r}; {hint} Models elsewhere need a runtime, such as transformers:{model}"
