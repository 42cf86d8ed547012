"""
Ten classes, and which of them are confused
===========================================

The ten digits again, but the target's writing is slanted. With ten classes a single accuracy hides a lot: this example
looks at each class before and after adaptation, with confidence intervals of both.
"""

# %%
# A slant
# -------

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import affine_transform
from sklearn.datasets import load_digits

from pro2 import ProjectAndProbe
from pro2.estimators.evaluation import evaluate
from pro2.tables.draws import draw


def slanted(image: np.ndarray, by: float = 0.45) -> np.ndarray:
    """Rows are moved sideways in proportion to their distance from the middle."""
    return affine_transform(image, [[1, 0], [by, 1]], offset=[0, -by * 3.5], order=1)


images, y = load_digits(return_X_y=True)
images = images.reshape(-1, 8, 8) / 16
source = np.arange(len(y)) % 2 == 0
X = np.array([image if is_source else slanted(image) for image, is_source in zip(images, source)]).reshape(len(y), -1)

figure, axes = plt.subplots(2, 10, figsize=(8, 1.9), layout="constrained")
for row, part in enumerate((source, ~source)):
    for digit in range(10):
        axes[row, digit].imshow(X[part & (y == digit)][0].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes[row, digit].set(xticks=[], yticks=[])
    axes[row, 0].set_ylabel(("source", "target")[row])

# %%
# Four labels per class
# ---------------------

model = ProjectAndProbe().fit(X[source], y[source])
rows = draw(y, ~source, 4, seed=0)
adapted = model.adapt(X[rows.few], y[rows.few])
before = evaluate(y[rows.rest], model.predict_proba(X[rows.rest]), model.classes_)
after = evaluate(y[rows.rest], adapted.predict_proba(X[rows.rest]), adapted.classes_)
print(f"{before.accuracy.value:.1%} before, {after.accuracy.value:.1%} with 40 labels")

figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
for offset, result, name, colour in ((-0.15, before, "source head", "#777777"), (0.15, after, "adapted", "#0072B2")):
    share = [result.class_accuracy[str(digit)] for digit in range(10)]
    middle = np.array([100 * each.value for each in share])
    ends = np.array([[100 * each.low, 100 * each.high] for each in share]).T
    ax.errorbar(middle, np.arange(10) + offset, xerr=abs(ends - middle), fmt="o", color=colour, label=name, capsize=2)
ax.set(yticks=range(10), xlabel="accuracy in % (95 % Wilson interval)", ylabel="digit", ylim=(9.6, -0.6))
ax.legend(loc="lower left")
ax.grid(alpha=0.3)

# %%
# Where the mistakes went:

figure, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
counts = np.array(after.confusion)
ax.imshow(counts - np.diag(np.diag(counts)), cmap="Reds")
for i, j in np.argwhere(counts):
    ax.text(j, i, counts[i, j], ha="center", va="center", fontsize=8, color="#777777" if i == j else "black")
ax.set(xticks=range(10), yticks=range(10), xlabel="predicted", ylabel="true", title="adapted: rows by class")
