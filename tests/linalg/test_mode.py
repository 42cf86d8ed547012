"""Laws of the one Newton: stationary, equal to scikit-learn, the same from either side, and finite on hard inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from pro2.linalg import losses
from pro2.linalg import mode as one_newton
from pro2.linalg.mode import Mode, find_mode
from pro2.linalg.moments import host
from pro2.linalg.rows import Rows, orthogonal
from tests.linalg.backends import BACKENDS, to

TOL = 1e-9
PRECISIONS = np.array([0.1, 1.0, 10.0, 100.0])


@pytest.fixture(params=["factorised", "iterated"], autouse=True)
def steps(request, monkeypatch):
    """All laws hold for both ways to make a step, whichever the sizes would choose."""
    if request.param == "iterated":
        monkeypatch.setattr(one_newton, "DIRECT", 0)


def make(M: int = 14, p: int = 6, K: int = 2, seed: int = 0):
    """Rows, codes, offsets (M, J, K') for the J precisions above, and weights."""
    rng = np.random.default_rng(seed)
    y = np.arange(M) % K
    A = rng.normal(size=(M, p)) + 0.7 * rng.normal(size=(K, p))[y]
    return A, y, rng.normal(size=(M, len(PRECISIONS), losses.n_scores(K))), rng.uniform(0.2, 2.0, M)


def solve(
    A, y, offset, c, K: int = 2, precision=PRECISIONS, *, intercept: bool = False, **options
) -> tuple[Rows, Mode]:
    rows = orthogonal(A, c, intercept=intercept)
    options = {"tol": TOL, **options}
    return rows, find_mode(rows, losses.one_hot(y, K, A), offset, precision, **options)


def heads(rows: Rows, mode: Mode) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (J, K', p) and intercepts (J, K')."""
    r, J, K = mode.B.shape
    coef, intercept = rows.coefficients(mode.B.reshape(r, J * K))
    intercept = np.zeros(J * K) if intercept is None else intercept
    return coef.T.reshape(J, K, -1), intercept.reshape(J, K)


def slope(A, y, offset, c, coef, intercept, K: int, precision) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the objective in plain coordinates, by coefficient (J, K', p) and by intercept (J, K')."""
    F = offset + np.einsum("mp,jkp->mjk", A, coef) + intercept
    P = losses.probabilities(F)
    residual = c[:, None, None] * ((P[..., 1:] if K == 2 else P) - losses.one_hot(y, K, A)[:, None, :])
    return np.einsum("mjk,mp->jkp", residual, A) + precision[:, None, None] * coef, residual.sum(axis=0)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize(("M", "p"), [(30, 4), (15, 40), (12, 12), (1, 1), (2, 7)])
def test_mode_is_stationary_in_plain_coordinates(M, p, K, intercept):
    A, y, offset, c = make(M, p, K)
    if intercept and len(set(y)) < K:  # no finite optimum without a prior on the intercept
        c, y = np.ones(3 * K), np.arange(3 * K) % K
        A, offset = np.resize(A, (3 * K, p)), np.resize(offset, (3 * K, *offset.shape[1:]))
    rows, mode = solve(A, y, offset, c, K, intercept=intercept)
    assert mode.converged.all()
    by_coef, by_intercept = slope(A, y, offset, c, *heads(rows, mode), K, PRECISIONS)
    assert np.abs(by_coef).max() < 1e-6
    if intercept:
        assert np.abs(by_intercept).max() < 1e-6


@pytest.mark.parametrize("K", [2, 3])
def test_scores_are_offset_plus_rows_times_coefficients(K):
    A, y, offset, c = make(10, 25, K)
    rows, mode = solve(A, y, offset, c, K, intercept=True)
    coef, intercept = heads(rows, mode)
    expected = offset + np.einsum("mp,jkp->mjk", A, coef) + intercept
    np.testing.assert_allclose(mode.scores, expected, atol=1e-8)


def test_mode_minimises_the_objective():
    A, y, offset, c = make(10, 5)
    rows, mode = solve(A, y, offset, c)

    def objective(w):
        f = offset[:, 1, 0] + A @ w
        return c @ (np.logaddexp(0, f) - y * f) + 0.5 * PRECISIONS[1] * w @ w

    best = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert objective(heads(rows, mode)[0][1, 0]) <= best.fun + 1e-10


@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize(("M", "p"), [(60, 5), (20, 60), (14, 14)])
def test_free_intercept_equals_scikit_learn(M, p, K):
    A, y, offset, c = make(M, p, K)
    rows, mode = solve(A, y, 0.0 * offset, c, K, intercept=True)
    coef, intercept = heads(rows, mode)
    for j, precision in enumerate(PRECISIONS):
        theirs = LogisticRegression(C=1 / precision, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
        theirs.fit(A, y, sample_weight=c)
        np.testing.assert_allclose(coef[j], theirs.coef_, atol=1e-6)
        shift = intercept[j] - theirs.intercept_
        np.testing.assert_allclose(shift, shift.mean() if K > 2 else 0.0, atol=1e-6)


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("intercept", [False, True])
def test_row_space_equals_feature_space(K, intercept):
    """Zero columns change no solution, but they make the rows the smaller side."""
    A, y, offset, c = make(12, 6, K)
    wide = np.hstack([A, np.zeros((12, 30))])
    narrow, padded = solve(A, y, offset, c, K, intercept=intercept), solve(wide, y, offset, c, K, intercept=intercept)
    assert narrow[0].turn.shape[0] == 6
    assert padded[0].turn.shape[0] == 12
    (coef, b), (wide_coef, wide_b) = heads(*narrow), heads(*padded)
    np.testing.assert_allclose(wide_coef[..., :6], coef, atol=1e-7)
    np.testing.assert_allclose(wide_coef[..., 6:], 0.0, atol=1e-12)
    np.testing.assert_allclose(wide_b, b, atol=1e-7)


def test_two_classes_as_softmax_give_the_same_difference():
    """Two logits, each with twice the precision, differ by one logit: both priors agree on it."""
    A, y, offset, c = make(12, 5)
    one = solve(A, y, offset, c)[1]
    both = np.concatenate([-offset / 2, offset / 2], axis=2)
    rows = orthogonal(A, c)
    soft = find_mode(rows, np.eye(2)[y], both, 2 * PRECISIONS, tol=TOL)
    np.testing.assert_allclose(soft.scores[..., 1] - soft.scores[..., 0], one.scores[..., 0], atol=1e-7)


@pytest.mark.parametrize("K", [2, 3])
def test_problems_put_aside_are_those_of_single_solves(K):
    """Easy problems are done first; what is left of the batch must not move them, nor they it."""
    A, y, _, c = make(25, 40, K)
    precision = np.logspace(-3, 6, 13)
    offset = np.zeros((25, 13, losses.n_scores(K)))
    offset[:, ::3] = 5.0 * np.random.default_rng(1).normal(size=offset[:, ::3].shape)
    together = solve(A, y, offset, c, K, precision, intercept=True)[1]
    assert together.converged.all()
    for j in range(13):
        alone = solve(A, y, offset[:, j : j + 1], c, K, precision[j : j + 1], intercept=True)[1]
        np.testing.assert_allclose(together.scores[:, j], alone.scores[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("K", [2, 3])
def test_leading_axes_are_separate_problems(K):
    each = [make(9, 20, K, seed) for seed in range(4)]
    A, y, offset, c = (np.stack(v) for v in zip(*each))
    batch = solve(A, y, offset, c, K, intercept=True)[1]
    for i, one in enumerate(each):
        np.testing.assert_allclose(batch.scores[i], solve(*one, K, intercept=True)[1].scores, atol=1e-6)


def test_an_unfinished_problem_says_so():
    A, y, offset, c = make(20, 5)
    mode = solve(A, y, offset, c, precision=np.array([1e-8, 1.0, 1.0, 1e8]), max_iter=1)[1]
    assert mode.n_iter == 1
    assert list(mode.converged) == list(mode.residual <= TOL)
    assert not mode.converged[0]


def spoil(A: np.ndarray, kind: str) -> np.ndarray:
    A = A.copy()
    if kind == "columns around 1e2 to 1e6":
        A += np.logspace(2, 6, A.shape[1])
    elif kind == "columns of scales 1e-3 to 1e3":
        A *= np.logspace(-3, 3, A.shape[1])
    elif kind == "rank one":
        A[:] = A[:, :1]
    elif kind == "a constant column":
        A[:, 0] = 3.0
    elif kind == "zeros":
        A[:] = 0.0
    elif kind == "equal rows":
        A[:] = A[:1]
    return A


HARD = [
    "columns around 1e2 to 1e6",
    "columns of scales 1e-3 to 1e3",
    "rank one",
    "a constant column",
    "zeros",
    "equal rows",
]


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [4, 40])
def test_hard_rows_converge(kind, K, p):
    A, y, offset, c = make(18, p, K)
    rows, mode = solve(spoil(A, kind), y, offset, c, K, intercept=True)
    assert mode.converged.all(), mode.residual
    coef, intercept = heads(rows, mode)
    assert np.isfinite(coef).all()
    assert np.isfinite(intercept).all()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("p", [2, 50])
def test_separable_rows_converge_and_are_separated(p, intercept):
    A, _, offset, c = make(20, p)
    A -= A.mean(axis=0)
    y = (A[:, 0] > 0).astype(int)
    mode = solve(A, y, 0.0 * offset, c, precision=np.array([1e-8, 1e-6, 1e-3, 1e-2]), intercept=intercept)[1]
    assert mode.converged.all()
    np.testing.assert_array_equal(mode.scores[:, 0, 0] > 0, y == 1)


# the fixture changes a constant that no example touches
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(2, 5), st.booleans(), st.floats(-4, 4), st.floats(-3, 3),
    st.integers(0, 10_000),
)  # fmt: skip
def test_any_shape_and_scale_is_solved(M, p, K, intercept, log_precision, log_scale, seed):
    M = max(M, K) if intercept else M
    A, y, offset, c = make(M, p, K, seed)
    A = A * 10.0**log_scale
    precision = np.full(1, 10.0 ** (log_precision + 2 * log_scale))  # in the unit of the rows
    rows, mode = solve(A, y, offset[:, :1], c, K, precision, intercept=intercept)
    assert mode.converged.all(), mode.residual
    by_coef, by_intercept = slope(A, y, offset[:, :1], c, *heads(rows, mode), K, precision)
    bound = (c @ np.abs(A)).max()
    assert np.abs(by_coef).max() <= 1e-6 * bound
    assert not intercept or np.abs(by_intercept).max() <= 1e-6 * c.sum()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("p", [4, 30])
def test_backends_agree(backend, K, p):
    A, y, offset, c = make(10, p, K)
    expected = solve(A, y, offset, c, K, intercept=True)[1]
    A, y, offset, c, precision = to(backend, A, y, offset, c, PRECISIONS)
    found = solve(A, y, offset, c, K, precision, intercept=True)[1]
    np.testing.assert_allclose(host(found.scores), expected.scores, atol=1e-6)
