"""From images and texts to embeddings: the only package that imports a deep-learning runtime."""

import importlib
from typing import Any

_LAZY = {
    **dict.fromkeys(("Preprocessing", "Spec"), "spec"),
    **dict.fromkeys(("open_images", "open_texts"), "sources"),
    **dict.fromkeys(("CallableBackbone", "TextBackbone", "register_backbone"), "registry"),
    **dict.fromkeys(("create_backbone", "list_backbones"), "registry"),
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'pro2.embed' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"pro2.embed.{_LAZY[name]}"), name)
