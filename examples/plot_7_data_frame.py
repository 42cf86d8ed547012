"""
From a data frame with gaps
===========================

Most labels are missing, the embedding is spread over one column per dimension, and some rows come from another site:
this is what data look like in practice. Everything below starts from one pandas data frame.
"""

# %%
# The frame
# ---------
# Measurements of breast tumours (they ship with scikit-learn), standing in for an embedding. At the second site every
# instrument reads on another scale, some of them backwards, and only 12 rows there have a diagnosis.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from pro2 import EmbeddingTable, ProjectAndProbe
from pro2.tables.columns import labelled

data = load_breast_cancer()
rng = np.random.default_rng(0)
site = np.where(rng.random(len(data.target)) < 0.5, "north", "south")
X = (data.data - data.data.mean(0)) / data.data.std(0)
scale = rng.uniform(0.6, 1.4, X.shape[1]) * rng.choice([1, -1], X.shape[1], p=[0.65, 0.35])
X[site == "south"] = X[site == "south"] * scale + 0.8 * rng.normal(size=X.shape[1])
frame = pd.DataFrame(X, columns=[f"e{i}" for i in range(X.shape[1])])
frame["diagnosis"], frame["site"] = data.target_names[data.target], site
truth = frame["diagnosis"].copy()
south = frame.index[frame.site == "south"]
frame.loc[rng.permutation(south)[12:], "diagnosis"] = None
print(frame.groupby("site").diagnosis.agg(["size", "count"]).rename(columns={"size": "rows", "count": "labelled"}))

# %%
# A table, and the two halves of it
# ---------------------------------
# The embedding columns are recognised, gaps in the label column mean "not labelled yet".

table = EmbeddingTable.from_pandas(frame)
labels, has_label = labelled(table.column("diagnosis"))
is_north = table.column("site") == "north"
model = ProjectAndProbe().fit(table.take(is_north).embeddings, truth[is_north])
few = table.take(has_label & ~is_north)
rest = table.take(~has_label & ~is_north)
adapted = model.adapt(few.embeddings, few.column("diagnosis"), X_unlabeled=rest.embeddings)

# %%
# Before and after, on the rows that nobody labelled:

answer = truth[~has_label & ~is_north].to_numpy()
scores = {"source head": model.score(rest.embeddings, answer), "12 labels": adapted.score(rest.embeddings, answer)}
figure, axes = plt.subplots(2, 1, figsize=(6.4, 4.4), layout="constrained", sharex=True)
for ax, (name, fitted) in zip(axes, (("source head", model), ("12 labels", adapted))):
    p = fitted.predict_proba(rest.embeddings)[:, 0]
    for kind, colour in (("malignant", "#D55E00"), ("benign", "#0072B2")):
        ax.hist(p[answer == kind], bins=np.linspace(0, 1, 26), color=colour, alpha=0.7, label=kind)
    ax.set(ylabel="rows", title=f"{name}: {scores[name]:.1%} right")
axes[0].legend()
axes[1].set_xlabel("predicted probability of a malignant tumour")

# %%
# The predictions go back into the frame:

frame["predicted"] = adapted.predict(table.embeddings)
print(frame[["site", "diagnosis", "predicted"]].tail(4))
