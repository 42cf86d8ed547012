"""
Two hundred targets at once
===========================

Sites, users and cameras come in hundreds, each with a handful of labels. ``ProbeBank`` fits them all over one
projection. Every target chooses how far to trust what all targets have in common, so small ones lean on the others.
"""

# %%
# Related targets
# ---------------
# What separates the classes differs a little from target to target: a common direction plus one of its own.

import matplotlib.pyplot as plt
import numpy as np

from pro2 import ProbeBank, Projection

rng = np.random.default_rng(0)
n_targets, n_test, width = 200, 100, 24
common = np.linspace(1.2, 0.0, width)
own = common + rng.normal(size=(n_targets, 1, width)) * 0.8


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.tile([0, 1], (n_targets, n // 2))
    return rng.normal(size=(n_targets, n, width)) + own * (y[..., None] - 0.5), y


y_source = np.arange(3000) % 2
X_source = rng.normal(size=(3000, width)) + common * (y_source[:, None] - 0.5)
projection = Projection(n_components=16).fit(X_source, y_source)
X_test, y_test = rows(n_test)
Z_test = projection.transform(X_test.reshape(-1, width)).reshape(n_targets, n_test, -1)

# %%
# Alone, pooled, or in between
# ----------------------------

budgets = (2, 4, 8, 16, 32)
accuracy = {"each target alone": [], "one head for all": [], "ProbeBank": []}
for n in budgets:
    X, y = rows(n)
    bank = ProbeBank(projection).fit(X, y)
    alone = ProbeBank(projection, l2=0.1).fit(X, y)
    pooled = Z_test @ np.ravel(bank.pooled_coef_) + np.ravel(bank.pooled_intercept_)
    accuracy["one head for all"].append(np.mean((pooled > 0) == y_test))
    for name, fitted in (("ProbeBank", bank), ("each target alone", alone)):
        hits = [fitted.predict(X_test[t], target=t) == y_test[t] for t in range(n_targets)]
        accuracy[name].append(np.mean(hits))

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
# With two labels per target the pooled head is best; with many, each target can stand alone. The bank needs no
# decision beforehand: it stays within a few points of the better of the two at every budget.
