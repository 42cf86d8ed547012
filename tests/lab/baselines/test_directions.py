"""Directions of the baselines: laws for all, equality with scikit-learn where the problems coincide."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pro2.estimators.moments import SourceMoments
from pro2.lab.baselines import directions
from pro2.linalg.bases import krylov_basis
from pro2.linalg.moments import host

FROM_MOMENTS = {
    "pca": directions.pca_rows,
    "lda": lambda m, d: directions.lda_rows(m, d, 0.1),
    "pls": directions.pls_rows,
}


def blobs(n_classes=2, n=400, D=12, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n_classes, D))[y] + rng.standard_normal((n, D)) @ np.diag(np.linspace(0.3, 2, D))
    return X - X.mean(axis=0), y


def moments(n_classes=2, **kwargs):
    return SourceMoments.from_arrays(*blobs(n_classes, **kwargs))


def cosine(a, b):
    return abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", FROM_MOMENTS)
class TestLaws:
    def test_rows_are_orthonormal(self, name, n_classes):
        rows = FROM_MOMENTS[name](moments(n_classes), 12)
        assert np.abs(rows @ rows.T - np.eye(12)).max() < 1e-10

    def test_prefixes_are_nested(self, name, n_classes):
        m = moments(n_classes)
        short, long = FROM_MOMENTS[name](m, 5), FROM_MOMENTS[name](m, 12)
        assert np.allclose(short, long[:5], atol=1e-8)

    def test_backends_agree(self, name, n_classes):
        X, y = blobs(n_classes)
        expected = FROM_MOMENTS[name](SourceMoments.from_arrays(X, y), 6)
        for xp in (array_api_strict, torch):
            got = FROM_MOMENTS[name](SourceMoments.from_arrays(xp.asarray(X), xp.asarray(y)), 6)
            assert type(got) is type(xp.asarray(X))
            assert np.allclose(host(got), expected, atol=1e-8)

    def test_too_many_components_are_named(self, name, n_classes):
        with pytest.raises(ValueError, match="n_components=13 is outside"):
            FROM_MOMENTS[name](moments(n_classes), 13)


@pytest.mark.parametrize("n", [1, 6, 11, 12])
def test_random_rows_are_orthonormal_nested_and_follow_the_seed(n):
    rows = directions.random_rows(n, 12, 5)
    assert np.abs(rows @ rows.T - np.eye(n)).max() < 1e-10
    assert np.allclose(rows, directions.random_rows(12, 12, 5)[:n], atol=1e-10)
    assert np.array_equal(rows, directions.shared_random_rows(n, 12, 5))
    assert not np.allclose(rows, directions.random_rows(n, 12, 6))


def test_pca_is_scikit_learns():
    X, y = blobs()
    rows = directions.pca_rows(SourceMoments.from_arrays(X, y), 6)
    theirs = PCA(6).fit(X).components_
    assert np.allclose(np.abs(np.sum(rows * theirs, axis=1)), 1.0, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_lda_spans_scikit_learns(n_classes):
    X, y = blobs(n_classes)
    rows = directions.lda_rows(SourceMoments.from_arrays(X, y), 8)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, : n_classes - 1]
    for k in range(1, n_classes):
        Q = np.linalg.qr(theirs[:, :k])[0]
        assert np.allclose(rows[:k].T @ rows[:k], Q @ Q.T, atol=1e-7)


def test_two_class_lda_is_the_first_krylov_direction():
    m = moments()
    assert cosine(directions.lda_rows(m, 1)[0], krylov_basis(m, 1).components[0]) == pytest.approx(1.0)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_pls_weights_are_scikit_learns(n_classes):
    X, y = blobs(n_classes)
    rows = directions.pls_rows(SourceMoments.from_arrays(X, y), 6)
    Y = np.eye(n_classes)[y]
    theirs = PLSRegression(6, scale=False, tol=1e-12, max_iter=5000).fit(X, Y).x_weights_.T
    assert np.allclose(np.abs(np.sum(rows * theirs, axis=1)), 1.0, atol=1e-6)


def test_pls_of_isotropic_inputs_is_exhausted_at_once():
    means = np.zeros((2, 5))
    means[1, 2] = 1.0
    m = SourceMoments((0, 1), np.array([0.5, 0.5]), means, np.eye(5))
    rows = directions.pls_rows(m, 4)
    assert rows[0] == pytest.approx([0, 0, 1, 0, 0])
    assert np.abs(rows @ rows.T - np.eye(4)).max() < 1e-10


class TestTrained:
    def test_gradient_is_the_derivative(self):
        X, y = blobs(n=40, D=5)
        rng = np.random.default_rng(0)
        W, b = 0.5 * rng.standard_normal((3, 5)), 0.1 * rng.standard_normal(3)
        T = directions._row_targets(np, X, y, 3, 2)
        c = rng.uniform(0.5, 1.5, 40)
        c = c / c.sum()

        def loss(W, b):
            z = X @ W.T + b
            p = 1 / (1 + np.exp(-z))
            g = (np.sign(p - 0.5) * p * (1 - p))[:, :, None] * W  # input gradient of the predicted probability
            pairs = np.einsum("n,nid,njd->ij", c, g, g)
            penalty = (pairs.sum() - np.trace(pairs)) / 2
            return c @ (np.logaddexp(0, z) - T * z).sum(axis=1) + 7.0 * penalty

        in_W, in_b = directions._loss_gradient(X, T, c, W, b, 7.0)
        for i, j in np.ndindex(3, 5):
            step = np.zeros((3, 5))
            step[i, j] = 1e-6
            assert in_W[i, j] == pytest.approx((loss(W + step, b) - loss(W - step, b)) / 2e-6, abs=1e-7)
        for i in range(3):
            step = 1e-6 * np.eye(3)[i]
            assert in_b[i] == pytest.approx((loss(W, b + step) - loss(W, b - step)) / 2e-6, abs=1e-7)

    def test_adamw_is_torchs(self):
        X, y = blobs(n=60, D=4)
        start = np.random.default_rng(3).uniform(-0.5, 0.5, (1, 5))
        layer = torch.nn.Linear(4, 1).double()
        with torch.no_grad():
            layer.weight.copy_(torch.asarray(start[:, :4]))
            layer.bias.copy_(torch.asarray(start[:, 4]))
        optimiser = torch.optim.AdamW(layer.parameters(), lr=0.01, weight_decay=0.01)
        for _ in range(30):
            optimiser.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits
            loss(layer(torch.asarray(X))[:, 0], torch.asarray(y).double()).backward()
            optimiser.step()
        ours = directions.alignment_rows(X, y, 1, 0.0, seed=3, n_steps=30)[0]
        assert np.allclose(ours, (layer.weight / layer.weight.norm()).detach().numpy()[0], atol=1e-9)

    def test_without_constraint_rows_do_not_know_each_other(self):
        X, y = blobs()
        few, many = (directions.alignment_rows(X, y, n, 0.0, seed=2, n_steps=20) for n in (3, 9))
        assert np.allclose(few, many[:3], atol=1e-12)

    def test_without_constraint_rows_collapse_onto_one_direction(self):
        X, y = blobs()
        rows = directions.alignment_rows(X, y, 4, 0.0, seed=0, n_steps=3000)
        assert np.abs(rows @ rows.T).min() > 0.99

    def test_alignment_penalty_spreads_the_rows_and_keeps_them_predictive(self):
        X, y = blobs()
        loose = directions.alignment_rows(X, y, 4, 0.0, seed=0, n_steps=400)
        apart = directions.alignment_rows(X, y, 4, 30.0, seed=0, n_steps=400)
        spread = [np.mean(b @ b.T) for b in (loose, apart)]
        assert spread[1] < 0.8 * spread[0]
        own = (X[y == 1].mean(0) - X[y == 0].mean(0)) @ apart.T / (X @ apart.T).std(0)
        assert own.min() > 0.6

    def test_rows_have_unit_length_and_follow_the_seed(self):
        X, y = blobs(3)
        a = directions.alignment_rows(X, y, 5, 1.0, n_classes=3, seed=1, n_steps=20)
        b = directions.alignment_rows(X, y, 5, 1.0, n_classes=3, seed=1, n_steps=20)
        assert np.allclose(np.linalg.norm(a, axis=1), 1.0)
        assert np.array_equal(a, b)

    def test_each_class_gets_its_row(self):
        X, y = blobs(3, n=600, D=6)
        rows = directions.alignment_rows(X, y, 3, 0.0, n_classes=3, seed=0, n_steps=1000)
        for k in range(3):
            assert (X[y == k] @ rows[k]).mean() > (X[y != k] @ rows[k]).mean() + 0.5

    def test_weights_are_repetitions(self):
        X, y = blobs(n=30, D=4)
        w = np.arange(30) % 3
        a = directions.alignment_rows(X, y, 2, 1.0, sample_weight=w, seed=0, n_steps=20)
        b = directions.alignment_rows(np.repeat(X, w, axis=0), np.repeat(y, w), 2, 1.0, seed=0, n_steps=20)
        assert np.allclose(a, b, atol=1e-10)

    @pytest.mark.parametrize("xp", [array_api_strict, torch])
    def test_backends_agree(self, xp):
        X, y = blobs(3, n=90)
        expected = directions.alignment_rows(X, y, 4, 2.0, n_classes=3, seed=0, n_steps=20)
        got = directions.alignment_rows(xp.asarray(X), xp.asarray(y), 4, 2.0, n_classes=3, seed=0, n_steps=20)
        assert np.allclose(host(got), expected, atol=1e-8)

    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [({"alignment": -1.0}, "alignment"), ({"alignment": 0.0, "n_steps": 0}, "n_steps")],
    )
    def test_mistakes_are_named(self, kwargs, message):
        with pytest.raises(ValueError, match=message):
            directions.alignment_rows(*blobs(), 2, **kwargs)
