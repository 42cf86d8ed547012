"""Laws of the probe: stationary, equal to scikit-learn, batch = single, path = point, leave-one-out near refits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from pro2.linalg import logistic
from pro2.linalg.logistic import fit_logistic, fit_path, log_likelihood, loo_loss, loo_path, one_hot, probabilities


@pytest.fixture
def rng():
    return np.random.default_rng(2)


def problem(rng, M: int, p: int, K: int = 2) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(M) % K
    return rng.normal(size=(M, p)) + 0.7 * rng.normal(size=(K, p))[y], y


def logits(Z, fit) -> np.ndarray:
    """Scores of K classes, (M, K), of rows under one fit; two classes get half of the one logit each."""
    F = Z @ np.atleast_2d(fit.coef).T + fit.intercept
    return np.hstack([-0.5 * F, 0.5 * F]) if F.shape[1] == 1 else F


def gradient(Z, y, fit, l2, K, c, prior_mean=0.0) -> float:
    """Largest entry of the gradient of the objective in plain coordinates, by coefficients and by intercepts."""
    residual = c[:, None] * (probabilities(logits(Z, fit)) - one_hot(y, K, Z)) / c.sum()
    slope = residual.T @ Z
    slope = slope[1] if K == 2 else slope
    return max(np.abs(slope + l2 * (fit.coef - prior_mean)).max(), np.abs(residual.sum(axis=0)).max())


@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize(("M", "p"), [(60, 5), (20, 60), (14, 14)])
@pytest.mark.parametrize("l2", [1e-3, 0.1, 10.0])
def test_it_equals_scikit_learn(rng, K, M, p, l2):
    Z, y = problem(rng, M, p, K)
    c = rng.uniform(0.2, 2.0, M)
    ours = fit_logistic(Z, y, l2, n_classes=K, sample_weight=c, tol=1e-11)
    theirs = LogisticRegression(C=1 / (l2 * c.sum()), tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    theirs.fit(Z, y, sample_weight=c)
    np.testing.assert_allclose(np.atleast_2d(ours.coef), theirs.coef_, atol=1e-6)
    shift = np.atleast_1d(ours.intercept) - theirs.intercept_
    np.testing.assert_allclose(shift, shift.mean() if K > 2 else 0, atol=1e-6)
    assert ours.converged


@settings(max_examples=60)
@given(
    st.integers(1, 12), st.integers(0, 12), st.integers(2, 5), st.floats(-4, 4), st.floats(-3, 3), st.booleans(),
    st.integers(0, 10_000),
)  # fmt: skip
def test_any_shape_and_scale_is_solved(M, p, K, log_l2, log_scale, centred, seed):
    rng = np.random.default_rng(seed)
    Z, y = problem(rng, max(M, K), p, K)
    scale, c = 10.0**log_scale, rng.uniform(0.2, 2.0, max(M, K))
    l2 = 10.0**log_l2 * scale**2  # in the unit of the rows
    prior = None if centred else rng.normal(size=p if K == 2 else (K, p)) / scale
    fit = fit_logistic(scale * Z, y, l2, n_classes=K, sample_weight=c, prior_mean=prior)
    assert fit.converged, fit.kkt
    bound = 1e-7 * max(1.0, np.abs(scale * Z).max(initial=0.0))
    assert p == 0 or gradient(scale * Z, y, fit, l2, K, c, 0.0 if prior is None else prior) <= bound
    single = fit_logistic(np.float32(scale * Z), y, l2, n_classes=K, sample_weight=c, prior_mean=prior)
    assert single.coef.dtype == single.intercept.dtype == np.float32


HARD = {
    "columns around 1e2 to 1e6": lambda Z: Z + np.logspace(2, 6, Z.shape[1]),
    "columns of sizes 1e-4 to 1e4": lambda Z: Z * np.logspace(-4, 4, Z.shape[1]),
    "rank one": lambda Z: 0 * Z + Z[:, :1],
    "a constant column": lambda Z: np.hstack([np.full_like(Z[:, :1], 3.0), Z[:, 1:]]),
    "zeros": lambda Z: 0.0 * Z,
    "equal rows": lambda Z: 0.0 * Z + Z[:1],
    "size 1e-100": lambda Z: 1e-100 * Z,
    "size 1e+100": lambda Z: 1e100 * Z,
}


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [4, 40])
def test_hard_rows_are_solved(rng, kind, K, p):
    Z, y = problem(rng, 18, p, K)
    Z = HARD[kind](Z)
    unit = float(kind.removeprefix("size ")) if kind.startswith("size") else 1.0
    fit, scores = loo_path(Z, y, [p // 2, p], [0.01 * unit**2, unit**2], n_classes=K)
    assert fit.converged.all(), fit.kkt
    assert np.isfinite(fit.coef).all()
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("p", [2, 50])
@pytest.mark.parametrize("l2", [1e-8, 1e-6, 1e-2])
def test_separable_rows_are_solved_and_separated(rng, p, l2):
    Z = rng.normal(size=(20, p))
    y = (Z[:, 0] > 0).astype(int)
    fit = fit_logistic(Z, y, l2)
    assert fit.converged, fit.kkt
    assert ((Z @ fit.coef + fit.intercept > 0) == y).all()


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("size", [1.0, 5.0, 1e3])
@pytest.mark.parametrize("l2", [1e-3, 1.0, 1e3])
def test_a_sure_prior_mean_and_a_class_without_rows_are_solved(rng, K, size, l2):
    """Where no row has any curvature left, a full step would be the last."""
    Z, y = rng.normal(size=(14, 8)) + 2.0 * (np.arange(14) % 2)[:, None], np.ones(14, dtype=int)
    fit, scores = loo_path(Z, y, [8], [l2], n_classes=K, prior_mean=size * rng.normal(size=8 if K == 2 else (K, 8)))
    assert fit.converged.all(), fit.kkt
    assert np.isfinite(scores).all()


def test_a_step_that_the_objective_cannot_see_is_no_end(rng):
    """Under a strong penalty the objective falls by less than rounding long before the gradient is small."""
    for K in (3, 6):
        Z, y = rng.normal(size=(40, 21, 12)), rng.integers(0, K, (40, 21))
        c, w0 = rng.uniform(0.02, 1.0, (40, 21)), 50.0 * rng.normal(size=(K, 12))
        path = fit_path(Z, y, [6, 12], [1e3, 1e4, 1e5], n_classes=K, sample_weight=c, prior_mean=w0)
        assert path.converged.all(), path.kkt.max()


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("p", [3, 40])
def test_every_problem_of_a_batch_is_solved_alone(rng, K, p):
    """Easy problems are done first; what is left of the batch moves none of them, nor they it."""
    Z = rng.normal(size=(3, 5, 16, p)) * np.logspace(-1, 1, 5)[:, None, None]
    y, c = rng.permuted(np.tile(np.arange(16) % K, (3, 5, 1)), axis=-1), rng.integers(1, 5, (3, 5, 16))
    l2 = np.logspace(-3, 3, 7)
    batch, scores = loo_path(Z, y, [p, 2], l2, n_classes=K, sample_weight=c)
    assert batch.coef.shape == (3, 5, 2, 7, *([p] if K == 2 else [K, p]))
    for at in np.ndindex(3, 5):
        alone, own = loo_path(Z[at], y[at], [p, 2], l2, n_classes=K, sample_weight=c[at])
        np.testing.assert_allclose(batch.coef[at], alone.coef, atol=1e-7)
        np.testing.assert_allclose(batch.intercept[at], alone.intercept, atol=1e-7)
        np.testing.assert_allclose(scores[at], own, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("M", [12, 70])
@pytest.mark.parametrize("with_prior", [False, True])
def test_each_entry_of_a_path_is_its_own_fit(rng, K, M, with_prior):
    """With few rows all prefixes are one batch, with many each is its own; penalties come in any order."""
    Z, y = rng.normal(size=(2, M, 30)), np.tile(np.arange(M) % K, (2, 1))
    w0 = rng.normal(size=(30,) if K == 2 else (K, 30)) if with_prior else None
    prefixes, penalties = [30, 1, 12, 5], [1.0, 0.01, 30.0]
    path = fit_path(Z, y, prefixes, penalties, n_classes=K, prior_mean=w0)
    for i, d in enumerate(prefixes):
        for j, l2 in enumerate(penalties):
            point = fit_logistic(Z[..., :d], y, l2, n_classes=K, prior_mean=None if w0 is None else w0[..., :d])
            np.testing.assert_allclose(path.coef[:, i, j, ..., :d], point.coef, atol=1e-7)
            np.testing.assert_allclose(path.intercept[:, i, j], point.intercept, atol=1e-7)
            assert not path.coef[:, i, j, ..., d:].any()  # nor is the prior mean of features that are not used


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [4, 30])
def test_weights_are_repetitions_and_their_unit_is_nothing(rng, K, p):
    Z, y = problem(rng, 15, p, K)
    w = np.r_[np.ones(6), rng.integers(0, 4, 9)].astype(float)
    whole, scores = loo_path(Z, y, [p], [0.1], n_classes=K, sample_weight=w)
    at = np.repeat(np.arange(15), w.astype(int))
    repeated = fit_path(Z[at], y[at], [p], [0.1], n_classes=K)
    np.testing.assert_allclose(repeated.coef, whole.coef, atol=1e-8)
    parts = np.r_[0.3 * w, 0.7 * w]
    split = fit_path(np.vstack([Z, Z]), np.r_[y, y], [p], [0.1], n_classes=K, sample_weight=parts)
    np.testing.assert_allclose(split.coef, whole.coef, atol=1e-7)
    scaled, same = loo_path(Z, y, [p], [0.1], n_classes=K, sample_weight=1e-3 * w)
    np.testing.assert_allclose(scaled.coef, whole.coef, atol=1e-7)
    np.testing.assert_allclose(same, scores, atol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [6, 40])
def test_a_class_without_rows_changes_nothing_but_itself_and_has_a_small_share(rng, K, p):
    """Absent classes get half a pseudo-count each."""
    Z, y = problem(rng, 12, p, K - 1) if K > 2 else (rng.normal(size=(12, p)), np.zeros(12, dtype=int))
    fit = fit_logistic(Z, y, 0.1, n_classes=K)
    assert fit.converged
    share = probabilities(logits(Z, fit))[:, K - 1].mean()
    assert share == pytest.approx(0.5 / 12.5, rel=1e-6)


def test_an_unfinished_fit_is_not_converged(rng):
    fit = fit_path(*problem(rng, 30, 5), [5], [1e-6, 1e3], max_iter=1)
    assert fit.n_iter == 1
    assert not fit.converged[0, 0]
    assert (fit.converged == (fit.kkt <= logistic.TOL)).all()


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("p", [3, 40])
@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_is_close_to_refitting(rng, K, p, weighted):
    """A row leaves with all of its weight; the penalty keeps its ratio to the weight of the others."""
    Z, y = problem(rng, 30, p, K)
    c = rng.uniform(0.2, 2.0, 30) if weighted else np.ones(30)
    _, scores = loo_path(Z, y, [p], [0.1, 1.0], n_classes=K, sample_weight=c)
    for j, l2 in enumerate((0.1, 1.0)):
        gap = []
        for i in range(30):
            at = np.arange(30) != i
            fit = fit_logistic(Z[at], y[at], l2 * c.sum() / c[at].sum(), n_classes=K, sample_weight=c[at])
            found, exact = np.atleast_1d(scores[0, j, i]), np.atleast_2d(fit.coef) @ Z[i] + fit.intercept
            gap.append(np.abs(found - exact - (found - exact).mean() * (K > 2)).max())
        assert np.max(gap) < (0.1 if K == 2 else 0.5)
        assert np.mean(gap) < (0.02 if K == 2 else 0.1)


def test_a_row_of_weight_zero_leaves_nothing_behind(rng):
    Z, y = problem(rng, 12, 5)
    fit, scores = loo_path(Z, y, [5], [0.5], sample_weight=np.r_[0.0, np.ones(11)])
    assert scores[0, 0, 0] == pytest.approx(Z[0] @ fit.coef[0, 0] + fit.intercept[0, 0])


def test_loss_and_its_mean_are_the_textbooks(rng):
    y, w, f = np.arange(10) % 2, rng.uniform(0.1, 2, 10), rng.normal(size=(2, 3, 10))
    expected = np.logaddexp(0, f) - y * f
    np.testing.assert_allclose(loo_loss(f, y, 2, w), np.average(expected, axis=-1, weights=w), rtol=1e-12)
    np.testing.assert_allclose(loo_loss(f, y), expected.mean(axis=-1), rtol=1e-12)
    np.testing.assert_allclose(log_likelihood(np.zeros((2, 4)), np.eye(4)[:2]), np.log(0.25))
    sure = log_likelihood(np.array([[-500.0, 500.0], [500.0, -500.0]]), np.eye(2))
    np.testing.assert_allclose(sure, [-1000.0, -1000.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda Z, y: fit_logistic(Z, y, 0.0), "l2 must be positive and finite"),
        (lambda Z, y: fit_logistic(Z, y, np.nan), "l2 must be positive and finite"),
        (lambda Z, y: fit_path(Z, y, [2], [0.1, -1.0]), "l2 must be positive and finite"),
        (lambda Z, y: fit_path(Z, y, [1, 3], [0.1]), r"prefix lengths in 1\.\.2"),
        (lambda Z, y: fit_path(Z, y, [], [0.1]), r"prefix lengths in 1\.\.2"),
        (lambda Z, y: fit_logistic(Z, y[:-1], 0.1), r"Z must be \(..., M, p\)"),
        (lambda Z, y: fit_logistic(Z, y, 0.1, n_classes=1), "n_classes must be at least 2"),
    ],
)
def test_mistakes_are_explained(rng, call, message):
    with pytest.raises(ValueError, match=message):
        call(*problem(rng, 6, 2))
