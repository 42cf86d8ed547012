"""Adapt a pre-trained model to a new domain with a few labels.

    model   = pro2.ProjectAndProbe().fit(X_source, y_source)   # project with source
    adapted = model.adapt(X_target, y_target)                  # probe with target

Names load on first use, so `import pro2` costs nothing that is not needed.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0.dev0"

_LAZY = {
    "ProjectAndProbe": "pro2.estimators",
    "Projection": "pro2.estimators",
    "MultiLabelProjectAndProbe": "pro2.estimators.multilabel",
    "PriorFamily": "pro2.linalg.prior",
    "Probe": "pro2.estimators",
    "ProbeBank": "pro2.estimators.bank",
    "load": "pro2.estimators.files",
    "SourceMoments": "pro2.estimators.moments",
    "EmbeddingTable": "pro2.tables.embeddings",
    "suggest_labels": "pro2.active",
    "find_duplicates": "pro2.estimators.duplicates",
}

__all__ = [*sorted(_LAZY), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'pro2' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
