"""
A mild shift: the same digits, another camera
=============================================

A classifier that tells even from odd handwritten digits was trained on clean scans. The new camera is dimmer, lit
from one side and noisy. The digits look the same otherwise, so what the source learned still holds. Two questions:

* does a handful of target labels help, or does it make a good classifier worse?
* how many labels would a classifier trained on the target alone need to catch up?

The data are the 1,797 real digits that scikit-learn ships. The 64 pixels serve as the embedding.
"""

# %%
# Two cameras
# -----------
# Half of the images are the source. The other half are seen through the second camera. No image is in both.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from pro2 import ProjectAndProbe
from pro2.lab.baselines import create_baseline
from pro2.tables.draws import draw

rng = np.random.default_rng(0)
digits = load_digits()
order = rng.permutation(len(digits.target))
X, y = digits.data[order] / 16.0, digits.target[order] % 2
source = np.arange(len(y)) < len(y) // 2

light = np.tile(np.linspace(0.9, 0.4, 8), 8)  # brighter on the left
X[~source] = X[~source] * light + rng.normal(0.0, 0.12, X[~source].shape)

figure, axes = plt.subplots(2, 8, figsize=(8, 2.2), layout="constrained")
for row, (name, part) in enumerate({"source": source, "target": ~source}.items()):
    for column, image in enumerate(X[part][:8]):
        axes[row, column].imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes[row, column].set(xticks=[], yticks=[])
    axes[row, 0].set_ylabel(name)

# %%
# Project with source, probe with target
# --------------------------------------
# Each method learns from the source once and is then adapted to a few labels of each class, ten times over. All of
# them choose their settings from those few labels; nobody looks at the test rows.

models = {
    "source head, not adapted": create_baseline("source-only"),
    "linear probe on the target": create_baseline("linear-probe"),
    "Pro2 averaged": ProjectAndProbe(),
}
for model in models.values():
    model.fit(X[source], y[source])

shots, seeds = (2, 4, 8, 16, 32), range(10)
accuracy = {name: np.empty((len(shots), len(seeds))) for name in models}
for i, n in enumerate(shots):
    for seed in seeds:
        rows = draw(y, ~source, n, seed)
        for name, model in models.items():
            adapted = model.adapt(X[rows.few], y[rows.few])
            accuracy[name][i, seed] = 100 * adapted.score(X[rows.rest], y[rows.rest])

figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
styles = (("#777777", ":"), ("#D55E00", "--"), ("#0072B2", "-"))
for (name, values), (colour, line) in zip(accuracy.items(), styles):
    error = values.std(axis=1, ddof=1) / np.sqrt(len(seeds))
    ax.errorbar(shots, values.mean(axis=1), error, label=name, color=colour, linestyle=line, marker="o", capsize=3)
ax.set(xscale="log", xticks=shots, xticklabels=shots, xlabel="target labels per class", ylabel="accuracy in %")
ax.set_title("Even or odd, target camera; mean and standard error of 10 draws", fontsize=10)
ax.minorticks_off()
ax.legend()
ax.grid(alpha=0.3)

# %%
# The same as numbers:

print(f"{'labels per class':28s}" + "".join(f"{n:>8d}" for n in shots))
for name, values in accuracy.items():
    print(f"{name:28s}" + "".join(f"{value:8.1f}" for value in values.mean(axis=1)))

# %%
# What the features look like
# ---------------------------
# Features are directions in the space of pixels, ranked by how well each predicts the source label. They are
# orthogonal, so each asks something that the ones before it did not.

projection = models["Pro2 averaged"].projection_
figure, axes = plt.subplots(1, 8, figsize=(8, 1.6), layout="constrained")
for i, ax in enumerate(axes):
    feature = (projection.components_[i] / projection.scale_).reshape(8, 8)
    limit = np.abs(feature).max()
    ax.imshow(feature, cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"{i + 1}: {projection.scores_[i]:.2f}", fontsize=9)
figure.suptitle("First eight features, with the share of their variance that lies between classes", fontsize=10)

# %%
# Two labels per class help at once, not least because pixels that vary more than on the source count for less. More
# labels add little: even against odd is one question about ten shapes, and a few noisy labels say less about it than
# hundreds of clean source rows do. The linear probe has to learn ten shapes anew: at these budgets it fails.
