"""
Can the probabilities be believed?
==================================

After a shift a classifier is not only wrong more often, it is wrong with confidence. Adaptation can repair both, if
there are enough labels. This example draws reliability curves: among rows with a predicted probability of 80 %, are
80 % right?
"""

# %%
# Digits on a faded screen
# ------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from pro2 import ProjectAndProbe
from pro2.estimators.evaluation import evaluate
from pro2.tables.draws import draw

images, digit = load_digits(return_X_y=True)
y = digit >= 5
rng = np.random.default_rng(0)
source = rng.random(len(y)) < 0.5
X = images / 16
faded = 0.5 * X + 0.5 * rng.random(X.shape)
X = np.where(source[:, None], X, faded)

# %%
# Reliability before and after
# ----------------------------
# Twenty draws of eight labels per class, all test rows together. Points below the diagonal are too sure.

model = ProjectAndProbe().fit(X[source], y[source])
found = {"source head": []}
for n in (8, 128):
    for seed in range(20):
        rows = draw(y, ~source, n, seed)
        adapted = model.adapt(X[rows.few], y[rows.few])
        tried = {"source head": model, f"adapted, {n} labels per class": adapted}
        for name, fitted in tried.items():
            found.setdefault(name, []).append((fitted.predict_proba(X[rows.rest]), y[rows.rest]))

figure, ax = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
ax.plot([50, 100], [50, 100], color="#777777", linewidth=1)
edges = np.linspace(0.5, 1.0, 9)
for (name, parts), colour in zip(found.items(), ("#D55E00", "#56B4E9", "#0072B2")):
    proba, truth = np.concatenate([p for p, _ in parts]), np.concatenate([t for _, t in parts])
    sure, right = proba.max(1), model.classes_[proba.argmax(1)] == truth
    bins = np.clip(np.digitize(sure, edges) - 1, 0, len(edges) - 2)
    kept = [b for b in range(len(edges) - 1) if (bins == b).sum() >= 50]
    points = [(100 * sure[bins == b].mean(), 100 * right[bins == b].mean()) for b in kept]
    ax.plot(*zip(*points), marker="o", color=colour, label=name)
ax.set(xlabel="predicted probability of the answer, in %", ylabel="answers that are right, in %")
ax.legend(loc="upper left")
ax.grid(alpha=0.3)

# %%
# As numbers: accuracy, the expected calibration error and the log-loss, mean over the draws.

for name, parts in found.items():
    each = [evaluate(truth, proba, model.classes_) for proba, truth in parts]
    mean = [np.mean([getattr(one, what).value for one in each]) for what in ("accuracy", "ece", "log_loss")]
    print(f"{name:30s} accuracy {mean[0]:.1%}   calibration error {mean[1]:.3f}   log-loss {mean[2]:.3f}")

# %%
# These are raw pixels, for which eight labels per class are too few to improve on the source head. With 128, answers
# are more often right, and probabilities are closer to how often they are.
