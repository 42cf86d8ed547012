"""The basis by Householder reduction is the Lanczos basis: same vectors, same signs, same end."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.linalg import lapack
from pro2.linalg.bases import EXHAUSTED, krylov_basis, lanczos
from pro2.linalg.lapack import tridiagonal
from pro2.linalg.moments import Moments


def _definite(values: np.ndarray, seed: int = 0) -> np.ndarray:
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return np.ascontiguousarray((Q * values) @ Q.T)


def _both(M, b, n):
    return tridiagonal.lanczos(M, b, n, EXHAUSTED), lanczos(lapack.multiplier(M), b, n)


@pytest.mark.parametrize(("D", "n"), [(1, 1), (2, 1), (2, 2), (3, 2), (40, 1), (40, 25), (150, 60)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_vectors_and_signs_are_those_of_lanczos(D, n, seed):
    rng = np.random.default_rng(seed)
    M, b = _definite(rng.uniform(0.5, 2.0, D), seed), rng.normal(size=D)
    kept = M.copy()
    deep, plain = _both(M, b, n)
    assert np.array_equal(M, kept)
    assert deep.shape == plain.shape == (n, D)
    np.testing.assert_allclose(deep @ deep.T, np.eye(n), atol=1e-13)
    np.testing.assert_allclose(deep[: min(n, 12)], plain[: min(n, 12)], atol=1e-7)


@pytest.mark.parametrize("first", [1.0, -1.0, 0.0])
def test_a_start_on_or_off_the_first_axis_is_reflected_without_loss(first):
    M, b = np.diag([3.0, 2.0, 1.0]), np.array([first, 1e-12, 1e-3])
    deep, plain = _both(M, b, 2)
    np.testing.assert_allclose(deep, plain, atol=1e-12)
    assert np.all(deep @ b > 0)


@pytest.mark.parametrize("distinct", [1, 2, 5])
def test_a_space_that_ends_early_ends_at_the_same_vector(distinct):
    """M with few distinct eigenvalues: the sequence spans no more than that many directions."""
    M = _definite(np.repeat([1.0, 2.0, 3.0, 4.0, 5.0][:distinct], 12))
    b = np.random.default_rng(3).normal(size=len(M))
    deep, plain = _both(M, b, len(M) // 2)
    assert len(deep) == len(plain) == distinct
    np.testing.assert_allclose(deep, plain, atol=1e-9)


def test_no_signal_gives_no_vector():
    assert tridiagonal.lanczos(np.eye(4), np.zeros(4), 3, EXHAUSTED).shape == (0, 4)


def test_a_longer_basis_begins_with_the_shorter_one():
    """Across the switch from one way to the other."""
    rng = np.random.default_rng(5)
    y = np.arange(400) % 2
    source = Moments.from_arrays(rng.normal(size=(400, 30)) @ rng.normal(size=(30, 30)) + y[:, None], y)
    whole = krylov_basis(source, 30, 1.0)
    for n in (1, 5, 9, 11, 20):
        part = krylov_basis(source, n, 1.0)
        m = min(n, 12)
        np.testing.assert_allclose(part.components[:m], whole.components[:m], atol=1e-6)
        np.testing.assert_allclose(part.scores[:m], whole.scores[:m], atol=1e-6)
