"""
Two hundred targets at once
===========================

Sites, users and cameras come in hundreds, each with a handful of labels. ``ProbeBank`` adapts one model to all of them
in a batch: each head is the one that ``model.adapt`` gives for the rows of its target.
"""

# %%
# Related targets
# ---------------
# What separates the classes differs a little from target to target: a common direction plus one of its own.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from pro2 import ProbeBank, ProjectAndProbe

rng = np.random.default_rng(0)
n_targets, n_test, width = 200, 100, 24
common = np.linspace(1.2, 0.0, width)
own = common + rng.normal(size=(n_targets, 1, width)) * 0.8


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.tile([0, 1], (n_targets, n // 2))
    return rng.normal(size=(n_targets, n, width)) + own * (y[..., None] - 0.5), y


y_source = np.arange(3000) % 2
X_source = rng.normal(size=(3000, width)) + common * (y_source[:, None] - 0.5)
model = ProjectAndProbe().fit(X_source, y_source)
X_test, y_test = rows(n_test)

# %%
# One head for all, each target alone, or adapted
# -----------------------------------------------

budgets = (2, 4, 8, 16, 32)
accuracy = {"each target alone": [], "source head": [], "ProbeBank": []}
for n in budgets:
    X, y = rows(n)
    bank = ProbeBank(model).fit(X, y)
    alone = [LogisticRegression().fit(X[t], y[t]) for t in range(n_targets)]
    accuracy["ProbeBank"].append(np.mean([bank.score(X_test[t], y_test[t], target=t) for t in range(n_targets)]))
    accuracy["each target alone"].append(np.mean([alone[t].score(X_test[t], y_test[t]) for t in range(n_targets)]))
    accuracy["source head"].append(model.score(X_test.reshape(-1, width), y_test.reshape(-1)))

figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
styles = (("#D55E00", "--"), ("#777777", ":"), ("#0072B2", "-"))
for (name, values), (colour, line) in zip(accuracy.items(), styles):
    ax.plot(budgets, 100 * np.array(values), label=name, color=colour, linestyle=line, marker="o")
ax.set(xscale="log", xticks=budgets, xticklabels=budgets, xlabel="labels per target", ylabel="mean accuracy in %")
ax.minorticks_off()
ax.legend()
ax.grid(alpha=0.3)

# %%
# The same as numbers:

print(f"{'labels per target':20s}" + "".join(f"{n:>8d}" for n in budgets))
for name, values in accuracy.items():
    print(f"{name:20s}" + "".join(f"{100 * value:8.1f}" for value in values))

# %%
# With few labels, a classifier of a target's own labels is far behind; with many, it needs no source. The adapted heads
# are ahead of both where labels are few, and stay close to the better one where there are many.
