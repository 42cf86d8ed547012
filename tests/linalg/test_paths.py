"""The compiled path against the plain one, on ordinary and on hard problems; and guards that count work, not time."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.linalg import lapack, newton, paths, selection
from pro2.linalg.probes import Prefixes, fit_logistic, fit_path
from pro2.linalg.probes import loo_path

PENALTIES = [1e-4, 1e-2, 1.0, 30.0]


def _problem(kind: str, M: int, D: int = 70, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    M = {"one row": 1, "two rows": 2}.get(kind, M)
    Z = rng.normal(size=(2, M, D)) * np.arange(1, D + 1) ** -0.5
    y = ((Z[..., 0] + rng.logistic(size=(2, M))) > 0).astype(int)
    if kind == "separable":
        y = (Z[..., 0] > 0).astype(int)
    elif kind == "rank-deficient":
        Z[..., 3:] = Z[..., :1]
    elif kind == "duplicate rows":
        Z[:, M // 2 :] = Z[:, : M - M // 2]
    elif kind == "badly scaled":
        Z = Z * 10.0 ** np.linspace(-3, 3, D)
    elif kind == "tiny":
        Z = Z * 1e-6
    elif kind == "huge":
        Z = Z * 1e6
    elif kind == "far from the origin":
        Z = Z + 100.0
    elif kind == "zero":
        Z = Z * 0.0
    elif kind == "one class":
        y[:] = 1
    return Z, y


HARD = ["separable", "rank-deficient", "duplicate rows", "badly scaled", "tiny", "huge", "far from the origin", "zero",
        "one class", "one row", "two rows"]  # fmt: skip
SIZES = [12, 90]  # factorised, and by conjugate gradients


@pytest.fixture
def compiled():
    pytest.importorskip("numba")
    assert kernels.available("numba")


def _plain(monkeypatch, call, *args, **kwargs):
    with monkeypatch.context() as patch:
        patch.setenv("PRO2_FUSED", "0")
        assert not kernels.available("numba")
        return call(*args, **kwargs)


def _scores(Z, fit):
    return fit.coef @ np.swapaxes(Z, -1, -2)[..., None, :, :] + fit.intercept[..., None]


@pytest.mark.parametrize("kind", ["random", *HARD])
@pytest.mark.parametrize("M", SIZES)
def test_compiled_path_equals_the_plain_one(compiled, monkeypatch, kind, M):
    Z, y = _problem(kind, M)
    unit = float(np.mean(np.sum((Z - Z.mean(1, keepdims=True)) ** 2, -1))) or 1.0
    penalties = [unit * l2 for l2 in PENALTIES] if kind in ("tiny", "huge") else PENALTIES
    plain = _plain(monkeypatch, fit_path, Z, y, [70, 1, 8], penalties)
    fast = fit_path(Z, y, [70, 1, 8], penalties)
    assert np.all(fast.converged >= plain.converged)
    both = fast.converged & plain.converged
    np.testing.assert_allclose(_scores(Z, fast)[both], _scores(Z, plain)[both], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_path_takes_weights_priors_and_float32(compiled, monkeypatch, M, dtype):
    Z, y = _problem("random", M)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0, 2, y.shape) * (rng.uniform(size=y.shape) > 0.2)
    options = {"sample_weight": weight, "prior_mean": rng.normal(size=(2, 70))}
    plain = _plain(monkeypatch, fit_path, Z, y, [3, 70], PENALTIES, **options)
    fast = fit_path(Z.astype(dtype), y, [3, 70], PENALTIES, **options)
    assert fast.coef.dtype == dtype
    assert fast.converged.all()
    np.testing.assert_allclose(fast.coef, plain.coef, atol=1e-6 if dtype == np.float64 else 5e-2)


@pytest.mark.parametrize("M", SIZES)
def test_compiled_batches_without_a_path_equal_the_plain_ones(compiled, monkeypatch, M):
    rng = np.random.default_rng(2)
    Z, y = rng.normal(size=(3, 2, M, 100)), rng.integers(0, 2, (3, 2, M))
    l2 = 10.0 ** rng.uniform(-3, 1, (3, 2))
    plain = _plain(monkeypatch, fit_logistic, Z, y, l2)
    fast = fit_logistic(Z, y, l2)
    np.testing.assert_allclose(fast.coef, plain.coef, atol=1e-8)
    np.testing.assert_allclose(fit_logistic(Z[0, 0], y[0, 0], l2[0, 0]).coef, plain.coef[0, 0], atol=1e-8)


def test_penalties_may_come_in_any_order(compiled):
    Z, y = _problem("random", 40)
    order = [2, 0, 3, 1]
    whole, mixed = fit_path(Z, y, [5, 70], PENALTIES), fit_path(Z, y, [5, 70], [PENALTIES[i] for i in order])
    np.testing.assert_allclose(mixed.coef, whole.coef[:, :, order], atol=1e-7)


def test_what_the_kernel_leaves_open_is_finished_by_the_plain_path(compiled, monkeypatch):
    Z, y = _problem("random", 20)
    plain = _plain(monkeypatch, fit_path, Z, y, [5, 70], PENALTIES)
    kernel = paths.newton

    def lazy(*args):
        theta, b, kkt, n_iter = kernel(*args)
        kkt[0, 1, ::2], theta[0, 1, ::2] = 1.0, 0.0
        return theta, b, kkt, n_iter

    monkeypatch.setattr(paths, "newton", lazy)
    fast = fit_path(Z, y, [5, 70], PENALTIES)
    assert fast.converged.all()
    np.testing.assert_allclose(fast.coef, plain.coef, atol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("M", SIZES)
def test_compiled_leave_one_out_equals_the_plain_one(compiled, monkeypatch, K, M):
    Z, y = _problem("random", M)
    y = y if K == 2 else np.tile(np.arange(M) % 3, (2, 1))
    weight = np.random.default_rng(3).integers(1, 3, y.shape).astype(float)
    plain = _plain(monkeypatch, loo_path, Z, y, [70, 2], PENALTIES, n_classes=K, sample_weight=weight)[1]
    fast = loo_path(Z, y, [70, 2], PENALTIES, n_classes=K, sample_weight=weight)[1]
    np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["random", "separable", "rank-deficient", "badly scaled", "duplicate rows"])
def test_leverages_in_features_in_rows_and_by_lapack_agree(monkeypatch, kind):
    Z, _ = _problem(kind, 40)
    H = np.random.default_rng(4).uniform(1e-6, 0.25, (2, 1, 4, 40)) / 40
    l2 = np.asarray(PENALTIES)
    monkeypatch.setenv("PRO2_FUSED", "0")
    ways = []
    for cheaper, smallest in ((9.0, 24), (0.0, 24), (0.0, 10**9)):
        monkeypatch.setattr(selection, "CHEAPER", cheaper)
        monkeypatch.setattr(lapack, "SMALLEST_CHOLESKY", smallest)
        ways.append(selection.leverages(Prefixes(Z, [70]), H, l2))
    np.testing.assert_allclose(ways[1], ways[2], rtol=1e-7)
    np.testing.assert_allclose(ways[0], ways[2], rtol=1e-4)


def test_switched_off_or_too_large_the_plain_path_is_used(compiled, monkeypatch):
    assert paths.serves(np.empty(0), 10, 1)
    assert not paths.serves(np.empty(0), paths.MOST_ROWS + 1, 10**9)
    monkeypatch.setenv("PRO2_FUSED", "0")
    assert not paths.serves(np.empty(0), 10, 10**9)


def test_who_asks_for_a_way_gets_it_whatever_is_loaded(compiled):
    """Else the rounding of a sweep would depend on what its process did before."""
    with kernels.using(False):
        assert not paths.serves(np.empty(0), 256, 10**6)
        with kernels.using(True):
            assert paths.serves(np.empty(0), 4, 1)
            assert not paths.serves(np.empty(0), paths.MOST_ROWS + 1, 1)
        assert not paths.serves(np.empty(0), 4, 1)
    assert paths.serves(np.empty(0), 4, 1)


def test_small_work_does_not_load_the_kernel_nor_compile_it(compiled, monkeypatch):
    monkeypatch.delitem(paths.sys.modules, paths._KERNEL)
    for before, n in ((True, 256), (False, 4096)):
        monkeypatch.setattr(paths, "_compiled_before", lambda before=before: before)
        assert not paths.serves(np.empty(0), 256, n - 1)
        assert paths.serves(np.empty(0), 256, n)


@pytest.mark.parametrize("M", [16, 64, 200])
def test_a_path_takes_few_newton_steps_and_leaves_nothing_open(compiled, monkeypatch, M):
    """Starts from the last solutions: three or four steps a problem where a cold start takes up to twelve."""
    rng = np.random.default_rng(M)
    y = np.arange(M) % 2
    Z = rng.standard_normal((M, 256)) * np.arange(1, 257) ** -0.5
    Z[:, :8] += 0.5 * (2 * y[:, None] - 1)
    finished = []
    monkeypatch.setattr(newton, "_in_pieces", lambda *args: finished.append(args))
    fit = fit_path(Z, y, [1, 4, 16, 64, 256], np.logspace(-4, 2, 13))
    assert fit.n_iter <= 6
    assert not finished


def test_grams_are_running_sums_that_are_made_once(monkeypatch):
    Z = np.random.default_rng(0).normal(size=(3, 5, 9))
    prefixes = Prefixes(Z, [9, 2, 4, 2])
    stacked = prefixes.stacked()
    for i, d in enumerate([9, 2, 4, 2]):
        np.testing.assert_allclose(stacked[:, i], Z[..., :d] @ np.swapaxes(Z[..., :d], 1, 2), atol=1e-12)
        assert prefixes.gram(i) is prefixes.gram(i)
    large = Prefixes(Z, [9, 2])
    large.size = 1 << 40
    np.testing.assert_allclose(large.gram(0), Z @ np.swapaxes(Z, 1, 2), atol=1e-12)
    np.testing.assert_allclose(large.gram(1), Z[..., :2] @ np.swapaxes(Z[..., :2], 1, 2), atol=1e-12)
