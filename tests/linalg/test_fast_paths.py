"""Every fast path against the plain one, on ordinary and on hard problems; and guards that count work, not time."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.linalg import bases, batches, fused, lapack, logistic, moments, newton
from pro2.linalg.bases import krylov_basis
from pro2.linalg.logistic import fit_logistic
from pro2.linalg.moments import Moments


def _problems(kind: str, T: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    M, p = {"one row": (1, 1), "two rows": (2, 2), "square": (8, 8)}.get(kind, (21, 6))
    Z = rng.normal(size=(T, M, p))
    y = ((Z[..., 0] + rng.logistic(size=(T, M))) > 0).astype(int)
    if kind == "separable":
        y = (Z[..., 0] > 0).astype(int)
    elif kind == "rank-deficient":
        Z[..., 3:] = Z[..., :3]
    elif kind == "badly scaled":
        Z = Z * 10.0 ** np.linspace(-6, 6, p)
    elif kind == "constant features":
        Z[..., 2:4] = 0.0
    elif kind == "one class":
        y[:] = 1
    return Z, y


HARD = ["separable", "rank-deficient", "badly scaled", "constant features", "one class", "one row", "two rows"]
KINDS = ["random", "square", *HARD]


def _plain(monkeypatch, *args, **kwargs):
    with monkeypatch.context() as patch:
        patch.setattr(fused, "newton", lambda *a: None)
        patch.setattr(newton, "host_pieces", lambda *a: [])
        patch.setattr(batches, "SMALLEST", 10**9)
        return fit_logistic(*args, **kwargs)


def _close(Z, fast, plain):
    """Same scores on the rows, and the same residual up to rounding."""
    for name, fit in (("fast", fast), ("plain", plain)):
        assert bool(np.all(np.isfinite(fit.coef))), name
    scores = [(Z @ f.coef[..., None])[..., 0] + f.intercept[..., None] for f in (fast, plain)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6, atol=1e-6)
    assert np.all(fast.converged >= plain.converged)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("l2", [1e-4, 0.1])
def test_compiled_newton_equals_the_plain_one(monkeypatch, kind, l2):
    pytest.importorskip("numba")
    Z, y = _problems(kind)
    plain = _plain(monkeypatch, Z, y, l2)
    monkeypatch.setattr(fused, "WORTHWHILE", 0)
    _close(Z, fit_logistic(Z, y, l2), plain)


def test_compiled_newton_takes_weights_priors_penalties_and_float32(monkeypatch):
    pytest.importorskip("numba")
    Z, y = _problems("random")
    rng = np.random.default_rng(1)
    options = {"sample_weight": rng.uniform(0, 2, y.shape), "prior_mean": rng.normal(size=(len(Z), Z.shape[-1]))}
    l2 = 10.0 ** rng.uniform(-3, 1, len(Z))
    plain = _plain(monkeypatch, Z, y, l2, **options)
    monkeypatch.setattr(fused, "WORTHWHILE", 0)
    _close(Z, fit_logistic(Z, y, l2, **options), plain)
    single = fit_logistic(Z.astype(np.float32), y, l2, **options)
    assert single.coef.dtype == np.float32
    assert np.all(single.converged)
    np.testing.assert_allclose(single.coef, plain.coef, atol=2e-2)


def test_what_a_kernel_leaves_open_is_finished_by_the_plain_path(monkeypatch):
    Z, y = _problems("random")
    plain = _plain(monkeypatch, Z, y, 0.01)

    def lazy(space, y, c, offset, shape, tol, max_iter):
        kkt = np.where(np.arange(len(Z)) % 3 == 0, 1.0, plain.kkt)
        return np.where(kkt[:, None] < 1, plain.coef, 0.0), np.where(kkt < 1, plain.intercept, 0.0), kkt, 1

    monkeypatch.setattr(fused, "newton", lazy)
    _close(Z, fit_logistic(Z, y, 0.01), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_and_leaving_change_no_solution(monkeypatch, kind):
    Z, y = _problems(kind, T=90)
    l2 = 10.0 ** np.linspace(-6, 2, 90)
    plain = _plain(monkeypatch, Z, y, l2)
    monkeypatch.setattr(batches, "PIECE_BYTES", 20 * Z[0].nbytes)
    _close(Z, fit_logistic(Z, y, l2), plain)
    order = np.random.default_rng(0).permutation(90)
    shuffled = fit_logistic(Z[order], y[order], l2[order])
    np.testing.assert_allclose(shuffled.coef, fit_logistic(Z, y, l2).coef[order], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("wide", [False, True])
def test_batches_of_two_axes_go_in_pieces_too(monkeypatch, wide):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 1, 6, 9 if wide else 4))
    y = rng.integers(0, 2, (30, 1, 6))
    l2 = 10.0 ** np.linspace(-3, 1, 5)
    plain = _plain(monkeypatch, Z, y, l2)
    monkeypatch.setattr(batches, "PIECE_BYTES", 5 * Z[0].nbytes)
    fast = fit_logistic(Z, y, l2)
    assert fast.coef.shape == (30, 5, Z.shape[-1])
    np.testing.assert_allclose(fast.coef, plain.coef, rtol=1e-7, atol=1e-9)


def _source_of(kind: str, D: int = 40) -> Moments:
    rng = np.random.default_rng(3)
    n = {"few rows": 30, "two rows": 2}.get(kind, 300)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, D)) + y[:, None] * rng.normal(size=D)
    if kind == "badly scaled":
        X = X * 10.0 ** np.linspace(-3, 3, D)
    elif kind == "isotropic":
        X = np.vstack([np.eye(D), -np.eye(D), np.eye(D) + 1, 1 - np.eye(D)])
        y = np.repeat([0, 1], 2 * D)
    return Moments.from_arrays(X, y)


@pytest.mark.parametrize("kind", ["random", "few rows", "two rows", "badly scaled", "isotropic"])
@pytest.mark.parametrize("ridge", [1e-6, 1.0])
@pytest.mark.parametrize("n", [1, 7, 40])
def test_lapack_basis_equals_the_plain_one(monkeypatch, kind, ridge, n):
    source = _source_of(kind)
    fast = krylov_basis(source, n, ridge)
    monkeypatch.setattr(lapack, "serves", lambda M: False)
    plain = krylov_basis(source, n, ridge)
    np.testing.assert_allclose(fast.components @ fast.components.T, np.eye(n), atol=1e-13)
    if ridge < 1.0 or kind == "badly scaled":  # a nearly singular matrix multiplies rounding at every direction
        np.testing.assert_allclose(fast.components[0], plain.components[0], atol=1e-6)
        return
    assert fast.n_informative == plain.n_informative
    m = min(plain.n_informative, 20)  # what completes the space is free where variances are equal
    np.testing.assert_allclose(fast.components[:m], plain.components[:m], atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 5, 200])
def test_products_in_the_other_blas_equal_those_of_numpy(dtype, n):
    rng = np.random.default_rng(n)
    A, B = rng.standard_normal((n, 7)).astype(dtype), rng.standard_normal((7, 140)).astype(dtype)
    close = {"rtol": 0, "atol": 30 * np.finfo(dtype).eps * n}
    for left in (A, np.asfortranarray(A), np.repeat(A, 2, axis=0)[::2]):
        for right in (B, np.asfortranarray(B)):
            got = lapack.matmul(left, right)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, A @ B, **close)
    square = lapack.gram(np.ascontiguousarray(B.T @ A.T @ A @ B)[:n])
    np.testing.assert_array_equal(square, square.T)
    np.testing.assert_allclose(lapack.gram(A), A.T @ A, **close)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (6, 9), (100, 128)])
def test_orthonormal_rows_are_those_of_qr(shape):
    A = np.random.default_rng(3).standard_normal(shape)
    Q, R = np.linalg.qr(A.T)
    np.testing.assert_allclose(lapack.orthonormal_rows(A.copy()), (Q * np.sign(np.diag(R))).T, atol=1e-11)
    with pytest.raises(np.linalg.LinAlgError, match="first 2 rows"):
        lapack.orthonormal_rows(np.ones((2, 4)))


def test_cholesky_inverse_is_symmetric_exact_and_says_when_it_cannot():
    rng = np.random.default_rng(0)
    for D in (1, 5, 128, 300):
        A = rng.normal(size=(D, D))
        A = A @ A.T
        M = lapack.spd_inverse(A, 0.5)
        assert np.array_equal(M, M.T)
        np.testing.assert_allclose(M @ (A + 0.5 * np.eye(D)), np.eye(D), atol=1e-8)
    assert lapack.spd_inverse(-np.eye(3), 0.5) is None
    assert np.array_equal(A, A.T)


@pytest.mark.parametrize("M", [2, 30, 40])
def test_cholesky_solves_equal_the_plain_ones(monkeypatch, M):
    """Row-space systems with saturated rows (S = 0), tiny penalties and scales from 1e-6 to 1e6."""
    rng = np.random.default_rng(M)
    A = rng.normal(size=(3, 1, M, M)) * 10.0 ** np.linspace(-6, 6, M)
    K, S = A @ A.swapaxes(-1, -2), rng.uniform(0, 0.5, (3, 4, M))
    S[..., 0] = 0.0
    l2, rhs = np.array([1e-2, 1.0, 10.0, 1e3]), rng.normal(size=(3, 4, M, 2))
    fast = lapack.shifted_solve(K, S, l2, rhs)
    B = S[..., :, None] * K * S[..., None, :] + l2[:, None, None] * np.eye(M)
    if fast is not None:  # the largest scales may leave no definite matrix: then the plain path takes over
        np.testing.assert_allclose(B @ fast, rhs, atol=1e-9 * np.abs(B).max())
    monkeypatch.setattr(lapack, "SMALLEST_CHOLESKY", 1)
    chosen = newton.solve_shifted(np, K, S, l2, rhs)
    np.testing.assert_allclose(B @ chosen, rhs, atol=1e-9 * np.abs(B).max())
    G = B / np.abs(B).max() + np.eye(M)
    np.testing.assert_allclose(lapack.spd_solve(G, rhs), np.linalg.solve(G, rhs), rtol=1e-8, atol=1e-10)
    assert lapack.spd_solve(-np.eye(3)[None], np.ones((1, 3, 1))) is None
    assert lapack.shifted_solve(-np.eye(3), np.ones(3), np.array(0.5), np.ones((3, 1))) is None


@pytest.mark.parametrize("M", [3, 20])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_all_prefixes_at_once_equal_one_after_the_other(monkeypatch, M, backend):
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(4, M, 30)), rng.integers(0, 2, (4, M))
    if backend == "torch":
        torch = pytest.importorskip("torch")
        Z, y = torch.asarray(Z), torch.asarray(y)
    lengths, l2 = [30, 1, 7, 7], [1e-3, 1.0]
    fast = logistic.fit_path(Z, y, lengths, l2)
    monkeypatch.setattr(logistic, "FEW_ROWS", 0)
    slow = logistic.fit_path(Z, y, lengths, l2)
    assert tuple(fast.coef.shape) == (4, 4, 2, 30)
    np.testing.assert_allclose(np.asarray(fast.coef), np.asarray(slow.coef), atol=1e-7)
    np.testing.assert_allclose(np.asarray(fast.intercept), np.asarray(slow.intercept), atol=1e-7)


class _Counter:
    def __init__(self, function):
        self.function, self.calls, self.problems = function, 0, 0

    def __call__(self, A, *args):
        self.calls += 1
        self.problems += int(np.prod(A.shape[:-2]))
        return self.function(A, *args)


def test_finished_problems_cost_no_more_factorisations(monkeypatch):
    """A few hard problems among many easy ones: the easy ones leave the batch, so work follows the problems."""
    Z, y = _problems("random", T=200)
    l2 = np.where(np.arange(200) < 5, 1e-6, 100.0)
    counter = _Counter(np.linalg.solve)
    monkeypatch.setattr("array_api_compat.numpy.linalg.solve", counter)
    fit = fit_logistic(Z, y, l2)
    assert np.all(fit.converged)
    assert counter.calls < fit.n_iter + 1
    assert counter.problems < 0.6 * 200 * counter.calls


def test_two_class_basis_factorises_once_and_multiplies_once_a_direction(monkeypatch):
    import scipy.linalg.blas as blas

    calls = {"dsymv": 0, "inverse": 0}
    symv, inverse = blas.dsymv, lapack.spd_inverse

    def count(name, function):
        def counted(*args):
            calls[name] += 1
            return function(*args)

        return counted

    monkeypatch.setattr(blas, "dsymv", count("dsymv", symv))
    monkeypatch.setattr(bases.lapack, "spd_inverse", count("inverse", inverse))
    krylov_basis(_source_of("random"), 9, 1.0)
    assert calls["inverse"] == 1
    assert calls["dsymv"] <= 10


def test_moments_of_a_long_source_need_a_bounded_copy(monkeypatch):
    """Bytes allocated at the peak do not grow with the number of rows."""
    import tracemalloc

    monkeypatch.setattr(moments, "BLOCK_BYTES", 4 << 20)
    peaks = []
    for n in (8_000, 32_000):
        X = np.ones((n, 256), dtype=np.float32)
        y = np.arange(n) % 2
        tracemalloc.start()
        Moments.from_arrays(X, y)
        peaks.append(tracemalloc.get_traced_memory()[1] - 40 * n)
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 12 << 20
