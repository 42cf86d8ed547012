"""Directions of the baselines: laws for all, equality with scikit-learn where the problems coincide."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pro2.estimators.moments import SourceMoments
from pro2.lab.baselines import bases, create_baseline
from pro2.lab.baselines.base import Source


def blobs(n_classes=2, n=400, D=12, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n_classes, D))[y] + rng.standard_normal((n, D)) @ np.diag(np.linspace(0.3, 2, D))
    return X - X.mean(axis=0), y


def directions(name, X, y, size, **params):
    source = Source(X, y, len(np.unique(y)), None)
    if name == "random":
        params = {"random_state": 5, **params}
    return create_baseline(name, ridge=0.0, scale=None, **params).directions(source, size)


def cosines(rows, theirs):
    return np.abs(np.sum(rows * theirs, axis=1)) / np.linalg.norm(theirs, axis=1)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", ["random", "pca", "lda", "pls"])
class TestRanked:
    def test_rows_are_orthonormal_and_prefixes_nested(self, name, n_classes):
        X, y = blobs(n_classes)
        short, long = (directions(name, X, y, size) for size in (5, 12))
        assert np.abs(long @ long.T - np.eye(12)).max() < 1e-10
        assert np.allclose(short, long[:5], atol=1e-8)


def test_pca_is_scikit_learns():
    X, y = blobs()
    assert np.allclose(cosines(directions("pca", X, y, 6), PCA(6).fit(X).components_), 1.0, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_lda_spans_scikit_learns(n_classes):
    X, y = blobs(n_classes)
    rows = directions("lda", X, y, 8)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, : n_classes - 1]
    for k in range(1, n_classes):
        Q = np.linalg.qr(theirs[:, :k])[0]
        assert np.allclose(rows[:k].T @ rows[:k], Q @ Q.T, atol=1e-7)


def test_two_class_lda_is_the_first_direction_of_the_project_step():
    from pro2 import Projection

    X, y = blobs()
    ours = Projection(n_components=1, scale=None, ridge=0.0).fit(X, y).components_
    assert cosines(directions("lda", X, y, 1), ours) == pytest.approx(1.0)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_pls_weights_are_scikit_learns(n_classes):
    X, y = blobs(n_classes)
    theirs = PLSRegression(6, scale=False, tol=1e-12, max_iter=5000).fit(X, np.eye(n_classes)[y]).x_weights_.T
    assert np.allclose(cosines(directions("pls", X, y, 6), theirs), 1.0, atol=1e-6)


def test_pls_of_isotropic_inputs_is_exhausted_at_once_and_still_gives_a_basis():
    means = np.zeros((2, 5))
    means[1, 2] = 1.0
    moments = SourceMoments((0, 1), np.array([0.5, 0.5]), means, np.eye(5))
    rows = bases.continued(bases.pls_rows(moments, 4), moments, 4)
    assert rows[0] == pytest.approx([0, 0, 1, 0, 0])
    assert np.abs(rows @ rows.T - np.eye(4)).max() < 1e-10


class TestTrained:
    def test_gradient_is_the_derivative_of_the_published_loss(self):
        """The dot product of input gradients of the top scores: with logits z and -z those are +w or -w."""
        X, y = blobs(n=40, D=5)
        rng = np.random.default_rng(0)
        W, b = 0.5 * rng.standard_normal((3, 5)), 0.1 * rng.standard_normal(3)
        T = np.repeat(y[:, None], 3, axis=1).astype(float)
        c = rng.uniform(0.5, 1.5, 40)
        c = c / c.sum()

        def loss(W, b):
            z = X @ W.T + b
            top = np.sign(z)[:, :, None] * W  # input gradient of the score of the predicted class
            pairs = np.einsum("n,nid,njd->ij", c, top, top)
            return c @ (np.logaddexp(0, z) - T * z).sum(axis=1) + 7.0 * (pairs.sum() - np.trace(pairs)) / 2

        in_W, in_b = bases.alignment_gradient(X, T, c, W, b, 7.0)
        for i, j in np.ndindex(3, 5):
            step = np.zeros((3, 5))
            step[i, j] = 1e-6
            assert in_W[i, j] == pytest.approx((loss(W + step, b) - loss(W - step, b)) / 2e-6, abs=1e-7)
        for i in range(3):
            step = 1e-6 * np.eye(3)[i]
            assert in_b[i] == pytest.approx((loss(W, b + step) - loss(W, b - step)) / 2e-6, abs=1e-7)

    @pytest.mark.parametrize("D", [12, 200])
    def test_directions_become_dissimilar_as_the_weight_of_the_penalty_grows(self, D):
        """What defines the method of Teney et al."""
        X, y = blobs(D=D)
        cosine = []
        for alignment in (0.0, 0.1, 1.0, 10.0):
            rows = bases.alignment_rows(X, y, 6, alignment, seed=0, n_steps=300)
            cosine.append(np.abs(rows @ rows.T)[~np.eye(6, dtype=bool)].mean())
        assert cosine[0] > 0.8
        assert cosine[0] > cosine[1] > cosine[2] - 0.02
        assert max(cosine[2:]) < 0.4  # random directions in 12 dimensions have 0.23

    def test_a_moderate_penalty_keeps_the_directions_predictive(self):
        X, y = blobs()
        rows = bases.alignment_rows(X, y, 4, 0.1, seed=0, n_steps=300)
        margin = (X[y == 1].mean(0) - X[y == 0].mean(0)) @ rows.T / (X @ rows.T).std(0)
        assert margin.min() > 0.6

    def test_without_constraint_directions_are_independent_and_collapse_onto_one(self):
        X, y = blobs()
        few, many = (bases.alignment_rows(X, y, n, 0.0, seed=2, n_steps=20) for n in (3, 9))
        assert np.allclose(few, many[:3], atol=1e-12)
        rows = bases.alignment_rows(X, y, 4, 0.0, seed=0, n_steps=3000)
        assert np.abs(rows @ rows.T).min() > 0.99

    def test_torch_agrees(self):
        X, y = blobs(3, n=90, D=4)
        options = {"n_classes": 3, "seed": 0, "n_steps": 20}
        rows, theirs = (np.asarray(bases.alignment_rows(Z, y, 4, 1.0, **options)) for Z in (X, torch.asarray(X)))
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
        assert np.allclose(theirs, rows, atol=1e-8)
