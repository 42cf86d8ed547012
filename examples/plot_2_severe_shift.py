"""
A severe shift: three of four features stop working
===================================================

Each row is a collage of four digits. In the source all four agree with the label, so a classifier may look at any of
them. In each target only one does, and the other three show a random side of their pair. What the source classifier
relied on is mostly gone, but not all of it: the useful feature is among the ranked ones.

The digits are real and ship with scikit-learn. The collages follow the idea of Teney et al. (CVPR 2022).
"""

# %%
# The data
# --------

import matplotlib.pyplot as plt
import numpy as np

from pro2 import Probe, ProjectAndProbe, Projection
from pro2.lab.baselines import create_baseline
from pro2.lab.datasets.digits import make_digit_collages
from pro2.tables.draws import draw

table = make_digit_collages(seed=0)
X, y, split = np.asarray(table.embeddings), table.column("y"), table.column("split")
source = split == "source"
targets = sorted(set(split[~source]))

figure, axes = plt.subplots(2, 5, figsize=(8, 3.6), layout="constrained")
for column, name in enumerate(["source", *targets]):
    for row in (0, 1):
        image = X[(split == name) & (y == row)][0].reshape(16, 16)
        axes[row, column].imshow(image, cmap="gray_r")
        axes[row, column].set(xticks=[], yticks=[])
    axes[0, column].set_title("source: all agree" if name == "source" else f"only {name} agrees", fontsize=9)
for row in (0, 1):
    axes[row, 0].set_ylabel(f"label {row}")

# %%
# Accuracy against labels
# -----------------------

models = {
    "source head, not adapted": create_baseline("source-only"),
    "linear probe on the target": create_baseline("linear-probe"),
    "Pro2 averaged": ProjectAndProbe(),
}
for model in models.values():
    model.fit(X[source], y[source])

shots, seeds = (2, 4, 8, 16, 32), range(10)
accuracy = {name: np.empty((len(targets), len(shots), len(seeds))) for name in models}
for t, target in enumerate(targets):
    for i, n in enumerate(shots):
        for seed in seeds:
            rows = draw(y, split == target, n, seed)
            for name, model in models.items():
                adapted = model.adapt(X[rows.few], y[rows.few])
                accuracy[name][t, i, seed] = 100 * adapted.score(X[rows.rest], y[rows.rest])

figure, axes = plt.subplots(1, 4, figsize=(10, 3.2), sharey=True, layout="constrained")
styles = (("#777777", ":"), ("#D55E00", "--"), ("#0072B2", "-"))
for t, (ax, target) in enumerate(zip(axes, targets)):
    for (name, values), (colour, line) in zip(accuracy.items(), styles):
        error = values[t].std(axis=1, ddof=1) / np.sqrt(len(seeds))
        ax.errorbar(shots, values[t].mean(axis=1), error, label=name, color=colour, ls=line, marker="o", ms=4)
    ax.set(xscale="log", xticks=shots, xticklabels=shots, title=f"only {target} agrees", xlabel="labels per class")
    ax.minorticks_off()
    ax.grid(alpha=0.3)
axes[0].set_ylabel("accuracy in %")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)

# %%
# Mean over the four targets:

print(f"{'labels per class':28s}" + "".join(f"{n:>8d}" for n in shots))
for name, values in accuracy.items():
    print(f"{name:28s}" + "".join(f"{value:8.1f}" for value in values.mean(axis=(0, 2))))

# %%
# How many features does the target need?
# ---------------------------------------
# A severe shift needs more features than a mild one, and more features need more labels. Here is the error of a probe
# on the first *d* features, averaged over the four targets.

projection = Projection().fit(X[split == "source"], y[split == "source"])  # all 256 features
features, labels = (1, 2, 4, 8, 16, 32, 64, 256), (2, 8, 32, 128)
error = np.zeros((len(features), len(labels)))
Z = projection.transform(X)
for target in targets:
    for j, n_labels in enumerate(labels):
        for seed in range(5):
            rows = draw(y, split == target, n_labels, seed)
            for i, d in enumerate(features):
                probe = Probe(l2=0.1).fit(Z[rows.few, :d], y[rows.few])
                error[i, j] += 100 * (1 - probe.score(Z[rows.rest, :d], y[rows.rest])) / (5 * len(targets))

figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for j, n in enumerate(labels):
    ax.plot(features, error[:, j], marker="o", color=plt.get_cmap("viridis")(j / len(labels)), label=f"{n} per class")
    best = int(error[:, j].argmin())
    ax.plot(features[best], error[best, j], marker="*", ms=13, color="black", ls="", zorder=5)
ax.set(xscale="log", xticks=features, xticklabels=features, xlabel="number of features d", ylabel="target error in %")
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.legend(title="target labels (star: best d)")

# %%
# :class:`pro2.ProjectAndProbe` picks no *d* by default: it averages priors whose variance falls along the ranks.
