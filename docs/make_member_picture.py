"""The picture of the method's page: the members of averaged Pro2 and their weights, docs/_static/member.png.

    python docs/make_member_picture.py

The source has two features that predict the label; in the target the second has changed its sign.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from pro2 import ProjectAndProbe
from pro2.linalg.closed_form import Average, average
from pro2.linalg.labelled import log_shares

OUT = Path(__file__).parent / "_static" / "member.png"
COLOURS = np.array(["#0072B2", "#D55E00"])
SEED, PER_CLASS = 5, 4
LIMIT = 4.0  # of both axes


def draw_rows(n: int, step: tuple[float, float], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 2) of two Gaussian classes, whose means differ by `step`, and their labels."""
    y = np.arange(n) % 2
    return rng.normal(size=(n, 2)) + np.subtract.outer(y, 0.5)[:, None] * np.array(step), y


def member_heads(fit: Average) -> list[tuple[np.ndarray, float, float]]:
    """Difference of the two scores, as coefficients and intercept, and the weight of each member."""
    found, first = [], 0
    for group in fit.groups:
        shape = group.precision.shape[-2], len(group.prior.means)
        size = int(np.prod(shape))
        for number in range(size):
            coef, intercept = group.head(np.eye(size)[number].reshape(shape), log_shares(fit.counts))
            found.append((coef[1] - coef[0], float(intercept[1] - intercept[0]), float(fit.weights[first + number])))
        first += size
    return found


def draw_line(ax: plt.Axes, coef: np.ndarray, intercept: float, **style: object) -> None:
    """Where the two scores are equal."""
    normal = coef / np.linalg.norm(coef)
    middle = -intercept * coef / (coef @ coef)
    along = np.outer([-20.0, 20.0], [-normal[1], normal[0]]) + middle
    ax.plot(*along.T, **style)


def main() -> None:
    rng = np.random.default_rng(SEED)
    X, y = draw_rows(300, (2.5, 2.0), rng)
    Z, labels = draw_rows(2 * PER_CLASS, (2.0, -1.0), rng)
    model = ProjectAndProbe().fit(X, y)
    fit = average([prior.shrunk(Z, np.ones(len(Z))) for prior in model.priors_], Z, labels, np.ones(len(Z)))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=[1, 1.15])
    left.scatter(*X.T, s=7, c=COLOURS[y], alpha=0.25, linewidths=0)
    heads = member_heads(fit)
    largest = max(weight for *_, weight in heads)
    for coef, intercept, weight in sorted(heads, key=lambda head: head[2]):
        if np.any(coef):
            strength = weight / largest
            draw_line(left, coef, intercept, color="black", lw=0.5 + strength, alpha=0.06 + 0.6 * strength, zorder=2)
    draw_line(left, model.coef_[0], float(model.intercept_[0]), color="#777777", lw=2, ls="--", zorder=3)
    adapted = model.adapt(Z, labels)
    draw_line(left, adapted.coef_[0], float(adapted.intercept_[0]), color="#009E73", lw=3, zorder=4)
    left.scatter(*Z.T, s=55, c=COLOURS[labels], edgecolors="black", zorder=5)
    left.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), xlabel="feature 1", ylabel="feature 2", aspect="equal")
    draw_weights(right, fit)
    figure.savefig(OUT, dpi=80, metadata={"Software": None})
    # a third of the size; the palette has the colours that differ most, since the commonest are all greys
    Image.open(OUT).convert("RGB").quantize(255, Image.Quantize.MAXCOVERAGE).save(OUT, optimize=True)


def draw_weights(ax: plt.Axes, fit: Average) -> None:
    """A row for each covariance and prior scale, a column for each size of the prior mean."""
    members = fit.members()
    rows = list(dict.fromkeys((m["covariance"], m["prior_scale"]) for m in members))
    sizes = list(dict.fromkeys(m["mean_size"] for m in members))
    table = np.zeros((len(rows), len(sizes)))
    for m in members:
        table[rows.index((m["covariance"], m["prior_scale"])), sizes.index(m["mean_size"])] += m["weight"]
    ax.imshow(table, cmap="Greys", aspect="auto", vmin=0.0)
    for at, weight in np.ndenumerate(table):
        if weight >= 0.005:
            colour = "white" if weight > 0.6 * table.max() else "black"
            ax.text(at[1], at[0], f"{weight:.0%}", ha="center", va="center", color=colour, fontsize=8)
    ax.set_xticks(range(len(sizes)), [f"{size:g}" for size in sizes])
    ax.set_yticks(range(len(rows)), [f"{name}, {scale:g}" for name, scale in rows])
    ax.set(xlabel="size of the prior mean", ylabel="covariance, prior scale", title="weights of the members")


if __name__ == "__main__":
    main()
