"""`sentence-transformers:ID_OR_FOLDER`: any text model of that library, from a folder or the hub cache.

Nothing is downloaded, and code that a model brings along is never run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pro2.embed.encoders import CHUNK, TextBackbone
from pro2.embed.spec import Name, Spec, choose_layer


def load(name: Name, device: str = "auto", runtime: str = "auto") -> TextBackbone:
    """Load the model with its own tokenizer, pooling and normalisation."""
    layer = choose_layer(name, ("sentence",))
    library = _import_library()
    from pro2.embed.pytorch import choose_device, state_digest

    where = choose_device(device)
    local = Path(name.model).expanduser()
    model = _from_disk(library, name.model, local, where)
    known = local.name if local.is_dir() else name.model
    origin = "a local folder" if local.is_dir() else f"https://huggingface.co/{name.model}"

    def encode(texts: list[str]) -> np.ndarray:
        rows: np.ndarray = model.encode(texts, batch_size=CHUNK, show_progress_bar=False, convert_to_numpy=True)
        return rows

    facts = {"max_tokens": model.max_seq_length}
    width = encode(["how wide"]).shape[1]  # the method that tells has another name in each major version
    full = f"sentence-transformers:{known}@{layer}"
    spec = Spec(full, layer, width, facts, "model", "see the model's card", origin, takes="text")

    return TextBackbone(spec, encode, state_digest(model), f"torch-{where.partition(':')[0]}")


def _from_disk(library: Any, model: str, local: Path, device: str) -> Any:
    import transformers

    from pro2.embed.transformers import not_here, quiet

    source = str(local) if local.is_dir() else model
    try:
        with quiet(transformers):
            return library.SentenceTransformer(source, device=device, local_files_only=True).eval()
    except (OSError, ValueError) as error:
        raise not_here(model, local, error) from error


def _import_library() -> Any:
    try:
        import sentence_transformers
    except ImportError:
        raise ImportError(
            "this backbone needs sentence-transformers; run: pip install 'pro2[sentence-transformers]'"
        ) from None
    return sentence_transformers
