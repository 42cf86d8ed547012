"""Laws of probes: equal to scikit-learn, batch = single, path = point, weights = repetition, finite on hard inputs."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from pro2.linalg import probes
from pro2.linalg.kernels import threads
from pro2.linalg.moments import host
from pro2.linalg.probes import fit_logistic, fit_path, loo_path, loo_penalties
from pro2.linalg.problem import Problem
from tests.linalg.backends import BACKENDS, to


@pytest.fixture
def rng():
    return np.random.default_rng(2)


def problem(rng, M: int, p: int, K: int = 2) -> tuple[np.ndarray, np.ndarray]:
    Z = rng.normal(size=(M, p))
    y = np.arange(M) % K
    return Z + 0.7 * rng.normal(size=(K, p))[y], y


def sklearn_fit(Z, y, l2, **options):
    C = 1 / (l2 * len(y))
    return LogisticRegression(C=C, tol=1e-12, max_iter=10_000, solver="newton-cholesky", **options).fit(Z, y)


@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize(("M", "p"), [(60, 5), (20, 60), (14, 14)])
@pytest.mark.parametrize("l2", [1e-3, 0.1, 10.0])
def test_equals_sklearn(rng, K, M, p, l2):
    Z, y = problem(rng, M, p, K)
    ours, theirs = fit_logistic(Z, y, l2, n_classes=K, tol=1e-11), sklearn_fit(Z, y, l2)
    np.testing.assert_allclose(np.atleast_2d(ours.coef), theirs.coef_, atol=1e-6)
    shift = np.atleast_1d(ours.intercept) - theirs.intercept_
    np.testing.assert_allclose(shift, shift.mean() if K > 2 else 0, atol=1e-6)
    assert ours.converged


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("p", [3, 40])
def test_every_problem_of_a_batch_matches_its_single_fit(rng, K, p):
    Z = rng.normal(size=(3, 5, 16, p)) * np.logspace(-1, 1, 5)[:, None, None]
    y = rng.permuted(np.tile(np.arange(16) % K, (3, 5, 1)), axis=-1)
    l2 = np.logspace(-3, 1, 5)
    batch = fit_logistic(Z, y, l2, n_classes=K)
    for i in range(3):
        for j in range(5):
            single = fit_logistic(Z[i, j], y[i, j], l2[j], n_classes=K)
            np.testing.assert_allclose(batch.coef[i, j], single.coef, atol=1e-8)
            np.testing.assert_allclose(batch.intercept[i, j], single.intercept, atol=1e-8)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("with_prior", [False, True])
def test_path_is_the_point(rng, K, with_prior):
    Z, y = rng.normal(size=(2, 12, 30)), np.tile(np.arange(12) % K, (2, 1))
    w0 = rng.normal(size=(30,) if K == 2 else (K, 30)) if with_prior else None
    prefixes, penalties = [30, 1, 12, 5], [0.01, 1.0]
    path = fit_path(Z, y, prefixes, penalties, n_classes=K, prior_mean=w0)
    for i, d in enumerate(prefixes):
        for j, l2 in enumerate(penalties):
            prior = None if w0 is None else w0[..., :d]
            point = fit_logistic(Z[..., :d], y, l2, n_classes=K, prior_mean=prior)
            np.testing.assert_allclose(path.coef[:, i, j, ..., :d], point.coef, atol=1e-7)
            np.testing.assert_allclose(path.intercept[:, i, j], point.intercept, atol=1e-7)
            assert not path.coef[:, i, j, ..., d:].any()  # nor is the prior mean of features that are not used


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [4, 30])
def test_weights_are_repetitions_and_zero_is_absence(rng, K, p):
    Z, y = problem(rng, 15, p, K)
    w = np.r_[np.ones(6), rng.integers(0, 4, 9)]
    ours = fit_logistic(Z, y, 0.1, n_classes=K, sample_weight=w)
    repeated = fit_logistic(np.repeat(Z, w.astype(int), axis=0), np.repeat(y, w.astype(int)), 0.1, n_classes=K)
    np.testing.assert_allclose(ours.coef, repeated.coef, atol=1e-8)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [4, 30])
def test_fractional_weights_are_parts_of_a_row_and_their_scale_is_nothing(rng, K, p):
    Z, y = problem(rng, 15, p, K)
    w = rng.uniform(0.1, 2.0, 15)
    whole = fit_logistic(Z, y, 0.1, n_classes=K, sample_weight=w)
    split = fit_logistic(np.vstack([Z, Z]), np.r_[y, y], 0.1, n_classes=K, sample_weight=np.r_[0.3 * w, 0.7 * w])
    scaled = fit_logistic(Z, y, 0.1, n_classes=K, sample_weight=1e-3 * w)
    for other in (split, scaled):
        np.testing.assert_allclose(other.coef, whole.coef, atol=1e-7)
        np.testing.assert_allclose(other.intercept, whole.intercept, atol=1e-7)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [4, 30])
def test_prior_mean_is_where_a_strong_penalty_ends(rng, K, p):
    Z, y = problem(rng, 15, p, K)
    w0 = rng.normal(size=p if K == 2 else (K, p))
    np.testing.assert_allclose(fit_logistic(Z, y, 1e9, n_classes=K, prior_mean=w0).coef, w0, atol=1e-6)
    zero = fit_logistic(Z, y, 0.1, n_classes=K, prior_mean=0 * w0)
    np.testing.assert_allclose(zero.coef, fit_logistic(Z, y, 0.1, n_classes=K).coef, atol=1e-9)


@pytest.mark.parametrize("p", [2, 50])
@pytest.mark.parametrize("l2", [1e-6, 1e-2])
def test_separable_data_converges(rng, p, l2):
    Z = rng.normal(size=(20, p))
    y = (Z[:, 0] > 0).astype(int)
    fit = fit_logistic(Z, y, l2)
    assert fit.converged
    assert ((Z @ fit.coef + fit.intercept > 0) == y).all()


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("centre", [1e2, 1e4, 1e6])
def test_columns_far_from_the_origin_are_solved_with_and_without_a_prior_mean(rng, K, centre):
    """A column around 100 once stopped at a residual of 0.51 in silence."""
    Z, y = problem(rng, 40, 5, K)
    far = Z.copy()
    far[:, 2] += centre
    w0 = rng.normal(size=5 if K == 2 else (K, 5))
    for prior in (None, w0):
        near, moved = (fit_logistic(A, y, 0.1, n_classes=K, prior_mean=prior) for A in (Z, far))
        assert moved.converged
        np.testing.assert_allclose(moved.coef, near.coef, atol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("size", [1.0, 5.0])
@pytest.mark.parametrize("l2", [1e-3, 1.0, 1e3])
def test_a_sure_prior_mean_and_a_class_that_is_missing_are_solved(rng, K, size, l2):
    """A step to where the loss has no curvature was once the last."""
    Z = rng.normal(size=(14, 8)) + 2.0 * (np.arange(14) % 2)[:, None]
    w0 = size * rng.normal(size=8 if K == 2 else (K, 8))
    fit = fit_logistic(Z, np.ones(14, dtype=int), l2, n_classes=K, prior_mean=w0)
    assert fit.converged, fit.kkt
    _, scores = loo_path(Z, np.ones(14, dtype=int), [8], [l2], n_classes=K, prior_mean=w0)
    assert np.isfinite(scores).all()


def test_two_classes_as_softmax_are_the_logistic(rng):
    """Two heads at half the distance: twice the penalty."""
    Z, y = problem(rng, 20, 4)
    one = fit_logistic(Z, y, 0.1)
    soft = Problem(Z, y, np.eye(2)[y], np.full(20, 1 / 20), None, 3, 1e-9, 100).prefix(4, np.asarray([0.2]), loo=False)
    coef, intercept = soft.coef[0, 0], soft.intercept[0, 0]
    np.testing.assert_allclose(coef[1] - coef[0], one.coef, atol=1e-7)
    np.testing.assert_allclose(intercept[1] - intercept[0], one.intercept, atol=1e-7)


@pytest.mark.parametrize("K", [2, 3])
def test_one_example_per_class(rng, K):
    Z = rng.normal(size=(K, 9))
    fit = fit_logistic(Z, np.arange(K), 0.01, n_classes=K)
    assert fit.converged
    scores = Z @ np.atleast_2d(fit.coef).T + fit.intercept
    assert ((scores[:, 0] > 0) == [0, 1]).all() if K == 2 else (scores.argmax(1) == np.arange(K)).all()


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("p", [3, 30])
def test_missing_classes_keep_a_small_defined_probability(rng, K, p):
    Z = rng.normal(size=(8, p))
    y = np.zeros(8, dtype=int) if K == 2 else np.arange(8) % 2
    fit = fit_logistic(Z, y, 0.1, n_classes=K)
    assert fit.converged
    f = Z @ np.atleast_2d(fit.coef).T + fit.intercept
    f = np.hstack([np.zeros((8, 1)), f]) if K == 2 else f
    P = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    absent = P[:, 1] if K == 2 else P[:, 2:].sum(1)
    share = 0.5 * (1 if K == 2 else K - 2)
    np.testing.assert_allclose(absent.mean(), share / (8 + share), rtol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [5, 30])
def test_constant_features_and_duplicate_rows(rng, K, p):
    Z, y = problem(rng, 12, p, K)
    Z[:, 0], Z[:, 1] = 0.0, 3.0
    Z, y = np.vstack([Z, Z, Z[:2]]), np.r_[y, y, y[:2]]
    fit = fit_logistic(Z, y, 0.1, n_classes=K)
    assert fit.converged
    np.testing.assert_allclose(np.atleast_2d(fit.coef), sklearn_fit(Z, y, 0.1).coef_, atol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [6, 40])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaling_features_and_penalty_together_changes_no_score(rng, K, p, scale):
    Z, y = problem(rng, 20, p, K)
    a, b = fit_logistic(Z, y, 0.1, n_classes=K), fit_logistic(Z * scale, y, 0.1 * scale**2, n_classes=K)
    np.testing.assert_allclose(a.coef, b.coef * scale, atol=1e-7)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [6, 40])
def test_float32_is_float32_and_close(rng, K, p):
    Z, y = problem(rng, 20, p, K)
    single, double = fit_logistic(Z.astype(np.float32), y, 0.1, n_classes=K), fit_logistic(Z, y, 0.1, n_classes=K)
    assert single.coef.dtype == np.float32
    np.testing.assert_allclose(single.coef, double.coef, atol=2e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("K", [2, 3])
def test_backends_agree(rng, backend, K):
    Z, y = rng.normal(size=(2, 9, 20)), np.tile(np.arange(9) % K, (2, 1))
    path = fit_path(*to(backend, Z, y), [2, 20], [0.01, 1.0], n_classes=K)
    expected = fit_path(Z, y, [2, 20], [0.01, 1.0], n_classes=K)
    np.testing.assert_allclose(host(path.coef), expected.coef, atol=1e-9)
    np.testing.assert_allclose(host(path.intercept), expected.intercept, atol=1e-9)


@pytest.mark.parametrize("l2", [0.0, -1.0, np.inf, np.nan])
def test_impossible_penalties_are_refused(rng, l2):
    with pytest.raises(ValueError, match="l2 must be positive and finite"):
        fit_logistic(*problem(rng, 6, 2), l2)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("M", [3, 20])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_all_prefixes_at_once_equal_one_after_the_other(monkeypatch, rng, M, backend, K):
    Z, y = to(backend, rng.normal(size=(4, M, 30)), rng.integers(0, K, (4, M)))
    fast = fit_path(Z, y, [30, 1, 7, 7], [1e-2, 1.0], n_classes=K)
    monkeypatch.setattr(probes, "STACKED", 0)
    slow = fit_path(Z, y, [30, 1, 7, 7], [1e-2, 1.0], n_classes=K)
    assert tuple(fast.coef.shape) == (4, 4, 2, *([30] if K == 2 else [K, 30]))
    np.testing.assert_allclose(host(fast.coef), host(slow.coef), atol=1e-6)
    np.testing.assert_allclose(host(fast.intercept), host(slow.intercept), atol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("M", [12, 70])
def test_penalties_may_come_in_any_order(rng, M, K):
    Z, y = problem(rng, M, 40, K)
    order, penalties = [2, 0, 3, 1], [1e-2, 0.1, 1.0, 30.0]
    whole = fit_path(Z, y, [5, 40], penalties, n_classes=K)
    mixed = fit_path(Z, y, [5, 40], [penalties[i] for i in order], n_classes=K)
    np.testing.assert_allclose(mixed.coef, whole.coef[:, order], atol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [4, 40])
def test_penalties_of_many_targets_are_the_path_of_each(rng, K, p):
    Z, y = rng.normal(size=(6, 12, p)), np.tile(np.arange(12) % K, (6, 1))
    w, w0 = rng.integers(1, 3, y.shape).astype(float), rng.normal(size=p if K == 2 else (K, p))
    coef, intercept, loss = loo_penalties(Z, y, [0.1, 1.0], n_classes=K, sample_weight=w, prior_mean=w0)
    for t in range(6):
        fit, scores = loo_path(Z[t], y[t], [p], [0.1, 1.0], n_classes=K, sample_weight=w[t], prior_mean=w0)
        np.testing.assert_allclose(coef[t], fit.coef[0], atol=1e-6)
        np.testing.assert_allclose(intercept[t], fit.intercept[0], atol=1e-6)
        np.testing.assert_allclose(loss[t], probes.loo_loss(scores, y[t], K, w[t])[0], atol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("prior_mean", [None, "shared", "each"])
def test_a_large_batch_in_pieces_is_the_batch(monkeypatch, rng, K, prior_mean):
    monkeypatch.setenv("PRO2_FUSED", "0")
    Z, y = rng.normal(size=(23, 12, 4)), np.tile(np.arange(12) % K, (23, 1))
    shape = {"shared": (K, 4), "each": (23, K, 4)}.get(prior_mean)
    w0 = None if shape is None else rng.normal(size=shape)
    options = {"n_classes": K, "prior_mean": w0 if w0 is None or K > 2 else w0[..., 0, :]}
    l2 = rng.uniform(0.01, 1, 23)
    whole, penalties = fit_logistic(Z, y, l2, **options), loo_penalties(Z, y, [0.1, 1.0], **options)
    monkeypatch.setattr(threads, "PIECE_BYTES", 4 * Z[0].nbytes)
    assert len(Problem.check(Z, y, K, None, None, None, 1).pieces()) == 6
    for found, expected in zip(fit_logistic(Z, y, l2, **options), whole):
        np.testing.assert_allclose(found, expected, atol=1e-7)
    for found, expected in zip(loo_penalties(Z, y, [0.1, 1.0], **options), penalties):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_an_unfinished_fit_says_so(rng):
    Z, y = problem(rng, 30, 5)
    fit = fit_logistic(Z, y, 1e-6, max_iter=1)
    assert not fit.converged
    assert fit.kkt > 1e-9


def test_impossible_prefixes_are_refused(rng):
    with pytest.raises(ValueError, match=r"prefix lengths in 1\.\.2"):
        fit_path(*problem(rng, 6, 2), [1, 3], [0.1])


def test_wrong_shapes_and_class_numbers_are_refused(rng):
    Z, y = problem(rng, 6, 2)
    with pytest.raises(ValueError, match=r"Z must be \(..., M, p\)"):
        fit_logistic(Z, y[:-1], 0.1)
    with pytest.raises(ValueError, match="n_classes must be at least 2"):
        fit_logistic(Z, y, 0.1, n_classes=1)
