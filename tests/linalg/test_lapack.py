"""BLAS and LAPACK on the host against the plain way of the array standard; and guards that count work, not time."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.linalg import bases, lapack, moments
from pro2.linalg.bases import krylov_basis
from pro2.linalg.moments import Moments


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


@pytest.mark.parametrize("D", [1, 5, 200])
@pytest.mark.parametrize("level", [1e-6, 1.0])
def test_shifted_systems_are_solved_and_their_inputs_kept(D, level):
    rng = np.random.default_rng(D)
    A = rng.normal(size=(D, D))
    A, rhs = A @ A.T, rng.normal(size=(D, 3))
    copies = A.copy(), rhs.copy()
    x = lapack.solve_shifted(A, level, rhs)
    np.testing.assert_allclose(A @ x + level * x, rhs, atol=1e-7)
    assert x.flags.c_contiguous
    for now, before in zip((A, rhs), copies):
        np.testing.assert_array_equal(now, before)


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
