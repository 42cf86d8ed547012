"""The paper's promise on real embeddings: few labels, far better than a linear probe (best d and penalty of a grid)."""

import numpy as np
import pytest

import pro2
from pro2.lab.datasets.shifts import group_targets
from pro2.linalg.logistic import fit_path
from pro2.tables.draws import draw

pytestmark = pytest.mark.real_data
PENALTIES = 10.0 ** np.arange(-4, 2.5, 0.5)


def best_accuracy(F, y, rows, n_shots, prefixes) -> float:
    """Accuracy in percent at the best (d, l2) of the grid, mean over ten draws."""
    draws = [draw(y, rows, n_shots, seed) for seed in range(10)]
    few = np.stack([d.few for d in draws])
    Z = F[few].astype(float)
    unit = np.mean(np.sum((Z - Z.mean(1, keepdims=True)) ** 2, -1))
    fit = fit_path(Z, y[few], prefixes, list(PENALTIES * unit), tol=1e-6)
    scores = [np.tensordot(F[d.rest], fit.coef[s], (1, 2)) + fit.intercept[s] for s, d in enumerate(draws)]
    hits = [((f > 0) == y[d.rest][:, None, None]).mean(0) for f, d in zip(scores, draws)]
    return float(100 * np.mean(hits, axis=0).max())


def features(X, y, source):
    projection = pro2.Projection().fit(X[source], y[source])
    return projection.transform(X), ((X - projection.mean_) / projection.scale_).astype(np.float32)


@pytest.fixture(scope="module")
def waterbirds(real_data):
    z = np.load(real_data / "waterbirds.npz")
    X, y, split = z["embeddings"].astype(np.float32), z["y"].astype(int), z["split"]
    return y, group_targets(y, z["place"], split == 2, split == 0), *features(X, y, split == 0)


@pytest.mark.parametrize("target", ["spurious", "balanced"])
def test_at_two_shots_pro2_is_twelve_points_above_the_probe(waterbirds, target):
    y, targets, Z, scaled = waterbirds
    ours = best_accuracy(Z, y, targets[target], 2, [1, 4, 16, 64, 256])
    assert ours >= best_accuracy(scaled, y, targets[target], 2, [scaled.shape[1]]) + 12


@pytest.mark.parametrize(("target", "n_shots"), [("minority", 2), ("minority", 8), ("balanced", 32)])
def test_with_every_d_in_the_grid_pro2_is_within_a_point_of_the_probe_or_better(waterbirds, target, n_shots):
    y, targets, Z, scaled = waterbirds
    probe = best_accuracy(scaled, y, targets[target], n_shots, [scaled.shape[1]])
    assert best_accuracy(Z, y, targets[target], n_shots, [1, 16, 256, Z.shape[1]]) >= probe - 1


def test_collages_find_the_digit_from_two_labels(real_data):
    z = np.load(real_data / "collages.npz")
    X, y, split = z["embeddings"].astype(np.float32), z["y"].astype(int), z["split"]
    Z, _ = features(X, y, split == "source")
    assert best_accuracy(Z, y, np.flatnonzero(split == "mnist"), 2, [1, 4, 16, 64, 256]) >= 97
