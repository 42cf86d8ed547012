"""From images to embeddings: the only room that imports a deep-learning runtime."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "Preprocessing": "pro2.embed.spec",
    "Spec": "pro2.embed.spec",
    "create_backbone": "pro2.embed.registry",
    "list_backbones": "pro2.embed.registry",
    "register_backbone": "pro2.embed.registry",
    "CallableBackbone": "pro2.embed.callable",
    "open_images": "pro2.embed.lists",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'pro2.embed' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_NAMES[name]), name)
