"""Leave-one-out in closed form against refitting without the row."""

import numpy as np
import pytest

from pro2.linalg.probes import fit_logistic
from pro2.linalg.probes import loo_loss, loo_path


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [3, 40])
def test_loo_is_close_to_refitting(K, p):
    rng = np.random.default_rng(0)
    y = np.arange(24) % K
    Z = rng.normal(size=(24, p)) + rng.normal(size=(K, p))[y]
    penalties = [0.1, 1.0]
    _, scores = loo_path(Z, y, [p], penalties, n_classes=K)
    for j, l2 in enumerate(penalties):
        for i in range(24):
            keep = np.arange(24) != i
            # the objective of the others keeps its weight 1/24 a row: the penalty grows relative to their mean
            fit = fit_logistic(Z[keep], y[keep], l2 * 24 / 23, n_classes=K)
            exact = np.atleast_2d(fit.coef) @ Z[i] + fit.intercept
            ours = np.atleast_1d(scores[0, j, i])
            if K > 2:
                exact, ours = exact - exact.mean(), ours - ours.mean()
            np.testing.assert_allclose(ours, exact, atol=0.1 if K == 2 else 0.35)


def test_loo_loss_prefers_the_signal_over_noise_features():
    rng = np.random.default_rng(1)
    y = np.tile([0, 1], 16)
    Z = rng.normal(size=(32, 60))
    Z[:, 0] += 3 * (2 * y - 1)
    _, scores = loo_path(Z, y, [1, 60], [0.01])
    losses = loo_loss(scores, y)[:, 0]
    assert losses[0] < losses[1]


def test_weight_two_is_a_row_twice():
    rng = np.random.default_rng(2)
    y, Z, w = np.arange(10) % 2, rng.normal(size=(10, 4)), np.r_[2.0, np.ones(9)]
    _, a = loo_path(Z, y, [4], [0.1], sample_weight=w)
    _, b = loo_path(np.vstack([Z[:1], Z]), np.r_[y[:1], y], [4], [0.1])
    np.testing.assert_allclose(a[..., 0], b[..., 0], atol=1e-9)
    np.testing.assert_allclose(loo_loss(a, y, 2, w), loo_loss(b, np.r_[y[:1], y]), atol=1e-9)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [3, 20])
def test_every_problem_of_a_batch_has_the_scores_of_its_own(K, p):
    rng = np.random.default_rng(3)
    Z, y = rng.normal(size=(4, 2, 15, p)), np.tile(np.arange(15) % K, (4, 2, 1))
    weight = rng.integers(1, 5, y.shape).astype(float)  # sums differ from problem to problem
    _, batch = loo_path(Z, y, [p, 2], [0.01, 1.0, 0.1], n_classes=K, sample_weight=weight)
    for at in np.ndindex(4, 2):
        _, alone = loo_path(Z[at], y[at], [p, 2], [0.01, 1.0, 0.1], n_classes=K, sample_weight=weight[at])
        np.testing.assert_allclose(batch[at], alone, rtol=1e-6, atol=1e-6)
