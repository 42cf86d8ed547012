"""`sentence-transformers:ID_OR_FOLDER`: any text model of that library, from a folder or the hub cache.

Nothing is downloaded, and code that a model brings along is never run.
"""

from __future__ import annotations

import numpy as np

from pro2.embed.encoders import CHUNK, TextBackbone
from pro2.embed.spec import Name, Spec, choose_layer
from pro2.extras import imported


def load(name: Name, device: str = "auto", runtime: str = "auto") -> TextBackbone:
    """Load the model with its own tokenizer, pooling and normalisation."""
    layer = choose_layer(name, ("sentence",))
    library = imported(
        "sentence_transformers",
        "this backbone needs sentence-transformers; run: pip install 'pro2[sentence-transformers]'",
    )
    import transformers

    from pro2.embed.pytorch import choose_device, state_digest
    from pro2.embed.transformers import from_disk, quiet, whereabouts

    where = choose_device(device)
    with quiet(transformers):
        model = from_disk(library.SentenceTransformer, name.model, device=where).eval()

    def encode(texts: list[str]) -> np.ndarray:
        rows: np.ndarray = model.encode(texts, batch_size=CHUNK, show_progress_bar=False, convert_to_numpy=True)
        return rows

    facts = {"max_tokens": model.max_seq_length}
    width = encode(["how wide"]).shape[1]  # the method that tells has another name in each major version
    known, origin = whereabouts(name.model)
    full = f"sentence-transformers:{known}@{layer}"
    spec = Spec(full, layer, width, facts, "model", "see the model's card", origin, takes="text")
    return TextBackbone(spec, encode, state_digest(model), f"torch-{where.partition(':')[0]}")
