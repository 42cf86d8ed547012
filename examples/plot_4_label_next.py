"""
Which rows to label first
=========================

Labels cost time, so it matters which rows get them. ``suggest_labels`` picks rows that teach most: it looks at the
source model and the unlabelled pool, and needs no label to begin with. Here it competes with rows drawn at random, on
collages of digits where only one of four digits still tells the class, a different one in each of four targets.
"""

# %%
# Pools without labels
# --------------------

import matplotlib.pyplot as plt
import numpy as np

from pro2 import ProjectAndProbe, suggest_labels
from pro2.lab.datasets.digits import make_digit_collages

table = make_digit_collages()
source = table.where("split == 'source'")
model = ProjectAndProbe().fit(source.embeddings, source.column("y"))
targets = [table.where(f"split == '{name}'") for name in ("0/1", "2/7", "3/8", "4/9")]
pool, test = np.arange(500), np.arange(500, 1000)
budgets = np.arange(8, 41, 8)

# %%
# Rounds of eight
# ---------------
# Each round suggests eight rows, given what is labelled so far; a person would now label them.


def by_suggestion(X: np.ndarray, y: np.ndarray, seed: int) -> list[float]:
    known = np.array([], dtype=int)
    scores, adapted = [], None
    for _ in budgets:
        rest = np.setdiff1d(pool, known)
        labelled = X[known] if len(known) else None
        picked = suggest_labels(model, X[rest], 8, adapted=adapted, X_labeled=labelled, random_state=seed)
        known = np.concatenate([known, rest[np.asarray(picked)]])
        adapted = model.adapt(X[known], y[known])
        scores.append(100 * adapted.score(X[test], y[test]))
    return scores


def at_random(X: np.ndarray, y: np.ndarray, seed: int) -> list[float]:
    order = np.random.default_rng(seed).permutation(pool)
    return [100 * model.adapt(X[order[:n]], y[order[:n]]).score(X[test], y[test]) for n in budgets]


draws = [(np.asarray(t.embeddings), t.column("y"), seed) for t in targets for seed in range(3)]
chosen = np.array([by_suggestion(*each) for each in draws])
drawn = np.array([at_random(*each) for each in draws])

figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for values, name, colour in ((chosen, "suggested", "#0072B2"), (drawn, "drawn at random", "#D55E00")):
    ax.errorbar(
        budgets,
        values.mean(0),
        values.std(0, ddof=1) / np.sqrt(len(draws)),
        label=name,
        color=colour,
        marker="o",
        capsize=3,
    )
before = np.mean([100 * model.score(X[test], y[test]) for X, y, _ in draws])
ax.axhline(before, color="#777777", linestyle=":", label="source head, no label")
ax.set(xlabel="labelled rows in all", ylabel="accuracy in %, mean of four targets", xticks=budgets)
ax.legend()
ax.grid(alpha=0.3)

# %%
# The rows of the first target that were suggested first:

X = np.asarray(targets[0].embeddings)
first = np.asarray(suggest_labels(model, X[pool], 8))
figure, axes = plt.subplots(1, 8, figsize=(8, 1.3), layout="constrained")
for ax, row in zip(axes, first):
    ax.imshow(X[pool[row]].reshape(16, 16), cmap="gray_r")
    ax.set(xticks=[], yticks=[])

# %%
# The same loop runs from the command line (``pro2 suggest``) and in the browser (``pro2 label``).
print(f"after {budgets[-1]} labels: {chosen[:, -1].mean():.1f} % suggested, {drawn[:, -1].mean():.1f} % at random")
