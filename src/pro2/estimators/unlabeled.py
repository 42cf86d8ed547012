"""What unlabelled target rows add: rows are also seen as their neighbours smooth them.

With P the random walk on a graph of nearest neighbours, the smoothed rows are  (1 - a) (I - a P)^-1 Z.  Members of the
prior family fitted to them join the average and are weighed by the same left-out labels: where neighbours tend to have
the same label, they gain weight. A score that is affine in smoothed rows is the smoothed version of an affine score of
the rows themselves, so only the labelled rows are ever smoothed in D dimensions. This is label spreading (Zhou et al.
2004) of a fitted score instead of the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import diags, identity
from sklearn.neighbors import kneighbors_graph

from pro2.linalg.arrays import to_numpy
from pro2.linalg.closed_form import Average
from pro2.linalg.prior import SourcePrior

MOST_ROWS = 4096  # unlabelled rows in the graph, spread evenly over the pool; the others get the affine map's scores
STEPS = 20  # of the iteration that smooths; 0.8^20 is 1 %
PENALTIES = 10.0 ** np.arange(-3, 3.1, 0.5)  # of the affine map, in units of the mean eigenvalue


@dataclass(frozen=True, eq=False)
class SmoothedRows:
    """A graph of labelled and unlabelled rows, and the labelled rows as it smooths them."""

    priors: Sequence[SourcePrior]  # one for each scale, shrunk for all of the rows
    X: np.ndarray  # (N, D), labelled rows, then those of the pool that are in the graph
    walk: Any  # sparse (N, N), the random walk to neighbours; its rows sum to one
    weights: dict[float, Any]  # by the weight of neighbours, those (M, N) of all rows in the smoothed labelled ones

    @classmethod
    def of(cls, priors: Sequence[SourcePrior], labelled: np.ndarray, U: np.ndarray) -> Self:
        """From labelled rows (M, D) and a pool U (n, D) of any length."""
        X = np.concatenate([labelled, to_numpy(U[graph_rows(len(U))]).astype(np.float64)])
        priors = [prior.shrunk(X, np.ones(len(X))) for prior in priors]
        family = priors[0].family
        # distances in the last scale: where units differ, features are divided by their standard deviations there
        walk = random_walk(priors[-1].rows(X), family.n_neighbors)
        start = np.eye(len(X))[:, : len(labelled)]
        weights = {alpha: smoothed(walk.T, start, alpha).T for alpha in family.smoothing}
        return cls(priors, X, walk, weights)

    def versions(self, prior: SourcePrior) -> list[tuple[float, np.ndarray]]:
        """For each weight of the neighbours, the labelled rows in the space of a prior."""
        Z = prior.rows(self.X)
        return [(alpha, weights @ Z if alpha else Z[: len(weights)]) for alpha, weights in self.weights.items()]

    def scores(self, average: Average) -> np.ndarray:
        """Scores of all rows of the graph by the average, (N, K), relative to equally common classes."""
        parts = []
        for alpha in self.weights:
            coef, intercept = average.head(alpha)
            parts.append(smoothed(self.walk, self.X @ coef.T + intercept, alpha))
        return np.sum(parts, axis=0)

    def affine_map(self, average: Average) -> tuple[np.ndarray, np.ndarray]:
        """The affine map that comes closest to these scores, starting from the members on the rows as they are."""
        return distilled(self.priors[0], self.X, self.scores(average), average.head())


def smoothed_head(
    prior: SourcePrior, head: tuple[np.ndarray, np.ndarray], U: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A head for a target without labels: the affine map that comes closest to its smoothed scores of rows U (n, D).

    Without labels no smoothing is better than another: it is their mean.
    """
    graph = SmoothedRows.of([prior], np.zeros((0, U.shape[1])), U)
    scores = graph.X @ head[0].T + head[1]
    alphas = prior.family.smoothing
    return distilled(prior, graph.X, np.mean([smoothed(graph.walk, scores, alpha) for alpha in alphas], axis=0), head)


def distilled(
    prior: SourcePrior, X: np.ndarray, scores: np.ndarray, head: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The affine map of rows X (N, D) that comes closest to scores (N, K), by ridge regression towards a head.

    The penalty is chosen by generalised cross-validation (Golub, Heath & Wahba 1979).
    """
    R = scores - (X @ head[0].T + head[1])
    A = np.hstack([prior.rows(X), np.ones((len(X), 1))])
    wide = len(A) <= A.shape[1]
    e, E = np.linalg.eigh(A @ A.T if wide else A.T @ A)
    e = np.maximum(e, 1e-15 * e[-1] or 1e-300)
    along = E.T @ R if wide else E.T @ (A.T @ R) / np.sqrt(e)[:, None]
    outside = max(float(np.vdot(R, R) - np.vdot(along, along)), 0.0)  # of the span of the features

    def gcv(p: float) -> float:
        kept = p / (e + p)
        return (outside + float(((kept[:, None] * along) ** 2).sum())) / (len(A) - len(e) + kept.sum()) ** 2

    p = min(PENALTIES * e.sum() / len(A), key=gcv)
    theta = A.T @ (E @ (along / (e + p)[:, None])) if wide else E @ (along * (np.sqrt(e) / (e + p))[:, None])
    V, b = prior.to_input(theta[:-1].T, theta[-1])
    return head[0] + V, head[1] + b


def graph_rows(n: int) -> np.ndarray:
    """Numbers of the rows of a pool of n that are in the graph."""
    return np.unique(np.linspace(0, n - 1, min(MOST_ROWS, n)).round().astype(int))


def smoothed(walk: Any, values: np.ndarray, alpha: float) -> np.ndarray:
    """(1 - alpha) (I - alpha P)^-1 values, by iteration."""
    found = values
    for _ in range(STEPS if alpha else 0):
        found = alpha * (walk @ found) + (1.0 - alpha) * values
    return found


def random_walk(Z: np.ndarray, n_neighbors: int) -> Any:
    """The walk on the symmetric graph of nearest neighbours by cosine, whose edges are weighted by it, (N, N)."""
    if len(Z) == 1:  # a single row has no neighbour
        return identity(1, format="csr")
    near = kneighbors_graph(Z.astype(np.float32), min(n_neighbors, len(Z) - 1), mode="distance", metric="cosine")
    near.data = np.maximum(1.0 - near.data, 1e-6).astype(np.float64)
    graph = near.maximum(near.T)
    return (diags(1.0 / np.asarray(graph.sum(axis=1)).ravel()) @ graph).tocsr()
