"""The paper's quantities: laws on any basis, its findings on Gaussians, Theorem 1, and information on the label."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from pro2 import Projection
from pro2.lab import theory
from pro2.lab.datasets.shog import make_shog
from pro2.lab.theory import mean_log_loss


@pytest.fixture(scope="module")
def shog():
    return make_shog(random_state=0)


@pytest.fixture(scope="module")
def rows(shog):
    return ranked(shog.moments(), 20)


def ranked(moments, n, ridge=0.0):
    return Projection(n, scale=None, ridge=ridge).fit_moments(moments).components_


def random_rows(seed=3, width=20):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))[0].T


class TestNullspaceNorm:
    def test_is_the_norm_of_the_residual_projection_and_falls_to_zero(self):
        Q, w = random_rows(), np.random.default_rng(0).standard_normal((4, 20))
        curve = theory.nullspace_norm(Q, w)
        assert curve.shape == (4, 20)
        P = Q[:7].T @ Q[:7]
        assert curve[:, 6] == pytest.approx(np.linalg.norm(w - w @ P, axis=1) / np.linalg.norm(w, axis=1), abs=1e-12)
        assert np.all(np.diff(curve, axis=1) <= 1e-12)
        assert curve[:, -1].max() < 1e-10
        assert np.allclose(theory.nullspace_norm(Q, 1e-6 * w), curve)

    def test_only_spans_matter_and_a_repeated_feature_adds_nothing(self):
        Q, rng = random_rows(), np.random.default_rng(1)
        mix, w = np.tril(rng.standard_normal((20, 20))) + 3 * np.eye(20), rng.standard_normal(20)
        assert np.allclose(theory.nullspace_norm(mix @ Q, w), theory.nullspace_norm(Q, w), atol=1e-9)
        curve = theory.nullspace_norm(np.stack([Q[0], 2 * Q[0], Q[1]]), w)
        assert curve[1] == pytest.approx(curve[0])
        assert curve[2] < curve[1]

    def test_random_basis_falls_like_the_lemma(self):
        w = np.random.default_rng(0).standard_normal(20)
        squares = [theory.nullspace_norm(random_rows(seed), w) ** 2 for seed in range(200)]
        assert np.allclose(np.mean(squares, axis=0), 1 - np.arange(1, 21) / 20, atol=0.03)

    def test_figure_of_the_paper(self, shog, rows):
        curve = {t: theory.nullspace_norm(rows, shog.head(t)[0]) for t in shog.targets}
        assert curve["id"].max() < 1e-6
        assert curve["near"][0] > 0.3, "one feature is not enough near"
        assert curve["near"][3] < 0.25 < 0.75 < curve["far"][3], "a few are near, and not far"
        assert np.all(curve["far"][:15] >= curve["near"][:15])
        assert np.all(curve["near"][:15] < theory.nullspace_norm(random_rows(), shog.head("near")[0])[:15])

    @pytest.mark.parametrize(
        ("components", "heads", "message"),
        [(np.eye(3), np.zeros(3), "zero vector"), (np.eye(3), np.ones(4), r"components must be \(d, D\)")],
    )
    def test_mistakes_are_named(self, components, heads, message):
        with pytest.raises(ValueError, match=message):
            theory.nullspace_norm(components, heads)


def test_the_bound_has_its_ends_and_its_best_d_grows_with_shift_and_rows():
    assert theory.shift_bound(20, 5, 20, kl=3.0) == pytest.approx(2.0)
    assert theory.shift_bound(0, 5, 20, kl=3.0) == pytest.approx(3.0)
    d = np.arange(1, 21)
    best = {(kl, M): int(d[np.argmin(theory.shift_bound(d, M, 20, kl))])
            for kl, M in ((0.0, 16), (0.1, 16), (1.0, 16), (50.0, 16), (0.3, 4), (0.3, 4000))}  # fmt: skip
    assert best[0.0, 16] == 1
    assert best[0.1, 16] <= best[1.0, 16] <= best[50.0, 16]
    assert best[0.3, 4] <= best[0.3, 4000]


def labelled_rows(n=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.standard_normal((n, d)) + 0.8 * (2 * y - 1)[:, None] * np.linspace(1, 0, d), y


class TestTheorem:
    @pytest.mark.parametrize("radius", [0.1, 1.0, 50.0])
    def test_no_head_on_the_ball_is_better(self, radius):
        Z, y = labelled_rows()
        w = theory.norm_bounded_probe(Z, y, radius)
        assert np.linalg.norm(w) <= radius * (1 + 1e-9)
        theirs = minimize(
            lambda v: float(mean_log_loss(Z, y, v)), 0.1 * w, method="SLSQP",
            constraints={"type": "ineq", "fun": lambda v: radius**2 - v @ v}, options={"ftol": 1e-12, "maxiter": 500},
        )  # fmt: skip
        assert float(mean_log_loss(Z, y, w)) <= theirs.fun + 1e-7
        assert np.allclose(w, theirs.x, atol=2e-3 * radius)

    def test_a_batch_equals_single_fits_and_separable_rows_end_on_the_ball(self):
        parts = [labelled_rows(seed=s) for s in range(3)]
        together = theory.norm_bounded_probe(np.stack([Z for Z, _ in parts]), np.stack([y for _, y in parts]))
        for w, part in zip(together, parts):
            assert np.allclose(w, theory.norm_bounded_probe(*part), atol=1e-5)
        assert np.allclose(theory.norm_bounded_probe(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1, 0])), [1.0, 0.0])

    def test_parts_of_the_bound_are_those_of_the_theorem(self):
        few, many = (theory.risk_bound(0.3, 4.0, 2.0, n) for n in (10, 1000))
        assert few[0] == many[0] == pytest.approx(4.0 * 0.3)
        by_hand = 2 * 2.0 / math.sqrt(10) + 2 * math.log1p(math.exp(4.0)) * math.sqrt(math.log(2 / 0.05) / 20)
        assert few[1] == pytest.approx(by_hand) == pytest.approx(10 * many[1])
        assert theory.risk_bound(0.3, 4.0, 3.0, 10)[1] > few[1], "more features, more variance"
        assert theory.risk_bound(0.3, 4.0, 2.0, 10, delta=0.5)[1] < few[1]

    @pytest.mark.parametrize("target", ["id", "near", "far"])
    def test_the_risk_stays_below_the_bound(self, target, shog, rows):
        X, y = shog.sample(target, 4000, 0)
        best = theory.norm_bounded_probe(X, y)
        least = float(mean_log_loss(X, y, best))
        missed = theory.nullspace_norm(rows, best) * np.linalg.norm(best)
        for d in (1, 5, 20):
            Z = X @ rows[:d].T
            radius, projected = (float(np.linalg.norm(part, axis=1).max()) for part in (X, Z))
            for n in (8, 128):
                draws = [np.random.default_rng(s).permutation(len(y))[:n] for s in range(10)]
                risk = [float(mean_log_loss(Z, y, theory.norm_bounded_probe(Z[at], y[at]))) - least for at in draws]
                assert max(risk) <= sum(theory.risk_bound(float(missed[d - 1]), radius, projected, n))

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: theory.risk_bound(0.1, 1.0, 1.0, 5, delta=0.0), "delta in"),
            (lambda: theory.risk_bound(0.1, 1.0, 1.0, 0), "n_target of at least 1"),
            (lambda: theory.shift_bound(21, 4, 20, 1.0), "n_features"),
            (lambda: theory.shift_bound(1, 0, 20, 1.0), "n_target"),
            (lambda: theory.shift_bound(1, 4, 20, -1.0), "kl"),
        ],
    )
    def test_mistakes_are_named(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()


shares = st.floats(0.05, 0.95)
deviations = st.tuples(st.floats(0.2, 3.0), st.floats(0.2, 3.0))


def test_entropies_have_their_closed_forms():
    assert theory.gaussian_entropy(np.eye(3)) == pytest.approx(1.5 * math.log(2 * math.pi * math.e))
    assert theory.mixture_entropy((1.0, 1.0), (2.0, 2.0)) == pytest.approx(theory.gaussian_entropy(np.array(4.0)))
    # far apart a mixture has the entropy of its label on top
    assert theory.mixture_entropy((0.0, 60.0), (1.0, 1.0)) == pytest.approx(
        theory.gaussian_entropy(np.array(1.0)) + math.log(2)
    )


def test_information_equals_sampling():
    shog = make_shog(6, random_state=0)
    A = np.random.default_rng(0).standard_normal((2, 6))
    X, y = shog.sample("source", 200_000, 1)
    step = A @ (shog.means[1] - shog.means[0])
    w = np.linalg.solve(A @ shog.covariance("source") @ A.T, step)
    sign = 2 * y - 1
    sampled = math.log(2) - np.logaddexp(0.0, -sign * ((X @ A.T) @ w)).mean()  # the log-loss of the Bayes head
    assert theory.label_information(A, shog.means, shog.covariance("source")) == pytest.approx(sampled, abs=4e-3)


@given(st.floats(0.0, 4.0), deviations, shares)
def test_the_second_lemma_needs_kl_and_fails_with_jensen_shannon(step, s, a):
    means = (0.0, step)
    js, kl = theory.gaussian_divergences(means, s, a)
    within = a * theory.gaussian_entropy(np.array(s[0] ** 2)) + (1 - a) * theory.gaussian_entropy(np.array(s[1] ** 2))
    mixed = theory.mixture_entropy(means, s, a)
    assert mixed <= within + 2 * a * (1 - a) * kl + 1e-7
    assert mixed == pytest.approx(within + js)


@pytest.mark.parametrize("divergence", [0.01, 0.2, 0.6])
def test_a_separation_has_the_divergence_asked_for(divergence):
    assert theory.gaussian_divergences((0.0, theory.separation_for(divergence)), (1.0, 1.0))[0] == pytest.approx(
        divergence
    )


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_even_rows_share_a_direction_evenly(n_rows):
    direction = np.random.default_rng(2).standard_normal(7)
    rows = theory.even_rows(direction, n_rows)
    assert np.allclose(rows @ rows.T, np.eye(n_rows))
    assert np.allclose((rows @ direction) ** 2, direction @ direction / n_rows)
    means = np.stack([0 * direction, direction])
    # together they tell as much as the direction; one by one, with equal noise everywhere, more than it does
    whole = theory.label_information(direction, means, np.eye(7))
    assert theory.label_information(rows, means, np.eye(7)) == pytest.approx(whole)
    assert sum(theory.label_information(row, means, np.eye(7)) for row in rows) >= whole - 1e-9
