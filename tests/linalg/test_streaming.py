"""Sources larger than memory: saved, merged, streamed and spread moments equal those of one pass."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pro2.linalg.bases import krylov_basis
from pro2.linalg.logistic import fit_logistic
from pro2.linalg.moments import SourceMoments
from pro2.linalg.streaming import Pass, fit_logistic_stream, from_bytes
from pro2.tables.embeddings import EmbeddingTable


def _source(n=600, D=12, K=3, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    X = rng.normal(size=(n, D)) * 10.0 ** rng.uniform(-3, 3, D) + 100 * rng.normal(size=D) + y[:, None]
    return X.astype(dtype), y


def _same(a: SourceMoments, b: SourceMoments, rtol=1e-10):
    assert a.classes == b.classes
    scale = np.sqrt(np.diag(b.covariance()))
    np.testing.assert_allclose(a.weight, b.weight, rtol=rtol)
    np.testing.assert_allclose(a.mean / scale, b.mean / scale, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(
        a.covariance() / np.outer(scale, scale), b.covariance() / np.outer(scale, scale), atol=rtol
    )


def _chunks(X, y, sizes=(1, 200, 2, 397)):
    edges = np.cumsum((0, *sizes))
    return [(X[a:b], y[a:b]) for a, b in pairwise(edges)]


@pytest.mark.parametrize("labels", [[0, 1, 2], ["cat", "dog", "owl"]])
def test_saved_moments_come_back_to_the_bit(tmp_path, labels):
    X, y = _source()
    moments = SourceMoments.from_arrays(X, np.asarray(labels)[y])
    loaded = SourceMoments.load(moments.save(tmp_path / "site.safetensors"))
    assert loaded.classes == tuple(labels)
    for name in ("weight", "mean", "scatter"):
        assert np.array_equal(getattr(loaded, name), getattr(moments, name))
    assert not list(tmp_path.glob("*.part"))


def test_federated_sites_give_the_basis_of_one_pass(tmp_path):
    X, y = _source(K=2)
    for i, (part, labels) in enumerate(_chunks(X, y)):
        SourceMoments.from_arrays(part, labels, classes=[0, 1]).save(tmp_path / f"{i}.safetensors")
    sites = [SourceMoments.load(p) for p in sorted(tmp_path.glob("*.safetensors"))]
    whole = SourceMoments.from_arrays(X, y)
    _same(sites[3] + sites[0] + (sites[2] + sites[1]), whole)
    scale = np.sqrt(np.diag(whole.covariance()))
    a, b = (krylov_basis(m.scaled(scale), 4, 1.0).components for m in (sum(sites[1:], sites[0]), whole))
    np.testing.assert_allclose(a, b, atol=1e-8)


def test_batches_equal_one_pass_whatever_their_sizes_and_classes(capsys):
    X, y = _source()
    _same(SourceMoments.from_batches(_chunks(X, y), progress=True, n_rows=600), SourceMoments.from_arrays(X, y))
    shown = capsys.readouterr().err
    assert "600 rows" in shown
    assert "100%" in shown


def test_memory_mapped_table_streams(tmp_path):
    X, y = _source(dtype=np.float32)
    table = EmbeddingTable.open(EmbeddingTable(X, None, {"y": y}).save(tmp_path / "source.arrow"))
    labels = table.column("y")
    batches = ((rows, labels[part]) for rows, part in table.iter_batches(128))
    _same(SourceMoments.from_batches(batches), SourceMoments.from_arrays(X.astype(np.float64), y), rtol=1e-5)


def test_a_shift_far_from_the_data_costs_no_digits():
    """The first rows of a drifting class are far from its mean: the shift is a sample over the whole block."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 3000)
    X = rng.normal(size=(6000, 5)) + np.linspace(0, 1000, 6000)[:, None] + 1e6
    exact = sum((X[y == k] - X[y == k].mean(0)).T @ (X[y == k] - X[y == k].mean(0)) for k in (0, 1))
    np.testing.assert_allclose(SourceMoments.from_arrays(X, y).scatter, exact, rtol=1e-9)


def test_float32_products_have_the_stated_error():
    X, y = _source(n=4000, dtype=np.float32)
    exact = SourceMoments.from_arrays(X.astype(np.float64), y)
    _same(SourceMoments.from_arrays(X, y), exact, rtol=2e-6)


@pytest.mark.parametrize("message", [b"", b"\x05\x00\x00\x00\x00\x00\x00\x00{}   ", b"not a file at all, only text"])
def test_other_bytes_are_refused_with_a_reason(message):
    with pytest.raises(ValueError, match=r"SourceMoments\.save"):
        from_bytes(message)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("l2", [1e-3, 1.0])
def test_streamed_logistic_equals_the_solver_in_memory(dtype, l2):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(600, 6)).astype(dtype)
    y = (X @ [2, -1, 0, 0, 1, 0] + rng.logistic(size=600) > 0.5).astype(int)
    told: list[Pass] = []
    tol = 1e-9 if dtype == np.float64 else 1e-5
    fit = fit_logistic_stream(lambda: iter(_chunks(X, y)), [0, 1], l2, tol=tol, report=told.append)
    exact = fit_logistic(X.astype(np.float64), y, l2)
    assert fit.converged
    assert told == fit.passes
    assert len(told) <= 10
    assert {p.rows for p in told} == {600}
    np.testing.assert_allclose([*fit.coef, fit.intercept], [*exact.coef, exact.intercept], atol=100 * tol)


def test_streamed_logistic_survives_separable_rows_and_says_when_passes_run_out():
    X = np.linspace(-3, 3, 40)[:, None] * [1.0, 1e2]
    y = (X[:, 0] > 0).astype(int)
    exact = fit_logistic(X, y, 1e-3)
    fit = fit_logistic_stream(lambda: [(X, y)], [0, 1], 1e-3, tol=1e-10, max_passes=60)
    assert fit.converged
    np.testing.assert_allclose(X @ fit.coef + fit.intercept, X @ exact.coef + exact.intercept, rtol=1e-4)
    short = fit_logistic_stream(lambda: [(X, y)], [0, 1], 1e-3, max_passes=2)
    assert not short.converged
    assert len(short.passes) == 2


def test_streamed_logistic_names_what_is_wrong():
    with pytest.raises(ValueError, match="at least two labels"):
        fit_logistic_stream(list, [0], 1.0)
    with pytest.raises(ValueError, match="max_passes"):
        fit_logistic_stream(list, [0, 1], 1.0, max_passes=0)
    for classes in ([0, 1], [0, 1, 2]):
        with pytest.raises(ValueError, match="no rows"):
            fit_logistic_stream(list, classes, 1.0)


def _many_classes(n=600, D=5, K=4, seed=6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) + 0.5
    return X, (X @ rng.normal(size=(D, K)) + rng.gumbel(size=(n, K))).argmax(1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("l2", [1e-3, 1.0])
def test_streamed_softmax_equals_the_solver_in_memory(dtype, l2):
    X, y = _many_classes()
    names = np.array(["ash", "elm", "fir", "oak"])
    told: list[Pass] = []
    tol = 1e-9 if dtype == np.float64 else 1e-5
    chunks = _chunks(X.astype(dtype), names[y])
    fit = fit_logistic_stream(lambda: iter(chunks), list(names), l2, tol=tol, report=told.append)
    exact = fit_logistic(X, y, l2, n_classes=4)
    assert fit.converged
    assert told == fit.passes
    assert len(told) <= 40
    assert {p.rows for p in told} == {600}
    assert told[-1].objective <= min(p.objective for p in told) + 1e-6
    np.testing.assert_allclose(fit.coef, exact.coef, atol=100 * tol)
    np.testing.assert_allclose(fit.intercept, exact.intercept, atol=100 * tol)
    np.testing.assert_allclose(fit.coef.sum(0), 0, atol=100 * tol)


def test_streamed_softmax_of_separable_badly_scaled_rows_ends_and_says_so():
    X, y = _many_classes()
    X = X * 10.0 ** np.linspace(-6, 6, 5)
    y = np.digitize(X[:, 4] / 1e6, [0.0, 1.0])
    fit = fit_logistic_stream(lambda: [(X, y)], [0, 1, 2], 1e-6, max_passes=7)
    assert len(fit.passes) == 7
    assert not fit.converged
    assert np.all(np.isfinite(fit.coef))
    assert fit.passes[-1].objective < fit.passes[0].objective
