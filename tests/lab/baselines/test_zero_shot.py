"""CLAP and LP++: what their mathematics promises."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from pro2.lab.baselines import create_baseline
from pro2.lab.baselines.zero_shot import _log_loss


def problem(n_classes, M=20, D=7, seed=0):
    """Rows F with a constant one, one-hot labels, weights of sum one, a head."""
    rng = np.random.default_rng(seed)
    F = np.column_stack([rng.normal(size=(M, D)), np.ones(M)])
    c = rng.uniform(0.5, 1.5, M)
    return F, np.eye(n_classes)[np.arange(M) % n_classes], c / c.sum(), rng.normal(size=(n_classes, D + 1))


def fitted(name, n_classes=3, **params):
    rng = np.random.default_rng(1)
    y = np.arange(120) % n_classes
    X = rng.normal(size=(120, 6)) + 1.5 * np.eye(n_classes, 6)[y]
    return create_baseline(name, **params).fit(X, y), X, y


@pytest.mark.parametrize("n_classes", [2, 3])
class TestCLAP:
    def test_an_infinite_penalty_is_the_zero_shot_head_and_a_large_one_is_near_it(self, n_classes):
        for strength, atol in ((np.inf, 1e-12), (1e7, 1e-4)):
            model, X, y = fitted("clap", n_classes, strength=strength)
            adapted = model.adapt(X[:30] + 1.0, y[:30][::-1])
            np.testing.assert_allclose(adapted.coef_, model.coef_, atol=atol)
            np.testing.assert_allclose(adapted.intercept_, model.intercept_, atol=10 * atol)

    def test_the_slope_of_the_objective_is_zero(self, n_classes):
        F, Y, c, T = problem(n_classes)
        clap = create_baseline("clap")
        W, penalty = clap._weights(F, Y, c, T), clap._penalties(F, Y, c, T)
        slope = _log_loss(F @ W.T, Y, c)[1].T @ F + 2.0 * penalty[:, None] * (W - T)
        assert np.abs(slope).max() < 1e-6

    def test_penalties_are_what_the_head_knows_of_each_class(self, n_classes):
        F, Y, c, T = problem(n_classes)
        logits = F @ T.T
        P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        k = 1
        own = Y[:, k] == 1
        expected = np.average(P[own, k], weights=c[own]) / np.mean((T * T).sum(axis=1))
        assert create_baseline("clap")._penalties(F, Y, c, T)[k] == pytest.approx(expected)

    def test_equal_penalties_are_a_centred_ridge(self, n_classes, monkeypatch):
        """With the head at zero and one penalty, scikit-learn solves the same problem."""
        F, Y, _, T = problem(n_classes)
        clap, M = create_baseline("clap"), len(F)
        monkeypatch.setattr(clap, "_penalties", lambda *args: np.full(n_classes, 0.05))
        W = clap._weights(F, Y, np.full(M, 1 / M), 0 * T)
        # two classes: the penalty of two rows +w/2 and -w/2 is half that of w
        C = 1 / (M * (0.05 if n_classes == 2 else 0.1))
        theirs = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(F, Y.argmax(axis=1))
        ours = W[1:] - W[:1] if n_classes == 2 else W
        np.testing.assert_allclose(ours, theirs.coef_, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
class TestLPPlusPlus:
    @pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
    def test_no_step_raises_the_loss(self, n_classes, size):
        F, Y, c, T = problem(n_classes)
        F[:, :-1] *= size
        losses = [loss for _, _, loss in create_baseline("lp++").steps(F, Y, c, T)]
        assert len(losses) == 301
        assert np.all(np.diff(losses) <= 1e-12 * losses[0])
        assert losses[-1] < losses[0]

    def test_many_steps_end_at_the_minimum(self, n_classes):
        F, Y, c, T = problem(n_classes, M=400, D=3)
        *_, (W, a, _) = create_baseline("lp++", n_steps=3000).steps(F, Y, c, T)
        slope = _log_loss(F @ (W + a[:, None] * T).T, Y, c)[1]
        assert np.abs(slope.T @ F).max() < 1e-5
        assert np.abs((slope * (F @ T.T)).sum(axis=0)).max() < 1e-5

    def test_without_a_step_the_head_speaks_with_the_class_sums(self, n_classes):
        F, Y, c, T = problem(n_classes)
        W = create_baseline("lp++", n_steps=0)._weights(F, Y, c, T) - T
        sums = (Y * c[:, None]).T @ F
        np.testing.assert_allclose(W / W[0, 0], sums / sums[0, 0])


@pytest.mark.parametrize("name", ["clap", "lp++"])
def test_weights_are_repetitions(name):
    model, X, y = fitted(name)
    weight = np.arange(30) % 3
    one = model.adapt(X[:30], y[:30], sample_weight=weight)
    many = model.adapt(np.repeat(X[:30], weight, axis=0), np.repeat(y[:30], weight))
    np.testing.assert_allclose(one.coef_, many.coef_, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", ["clap", "lp++"])
def test_units_of_the_features_do_not_matter(name, n_classes):
    _, X, y = fitted(name, n_classes)
    models = [(s, create_baseline(name, scale=None).fit(X * s, y)) for s in (1.0, 8.0)]
    P = [model.adapt(X[:30] * s, y[:30]).predict_proba(X * s) for s, model in models]
    np.testing.assert_allclose(P[0], P[1], atol=1e-5)
