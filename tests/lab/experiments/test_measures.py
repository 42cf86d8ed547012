"""Measures are those of their definitions; draws are shared; heads on features and on embeddings agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pro2.estimators.linear import unit_rows
from pro2.lab.experiments import measures
from pro2.lab.experiments.measures import Drawn, draw_cell, measure_heads
from pro2.lab.experiments.methods import Features
from pro2.lab.experiments.plan import Cell, MethodSpec
from pro2.lab.experiments.problems import Problem

D, N = 12, 290
ROWS = np.arange(N - 1, 29, -1)


@pytest.fixture
def problem() -> Problem:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)).astype(np.float32), np.arange(N) % 2
    return Problem("p", X, y, (0, 1), np.arange(20), {"t": ROWS}, "digest", groups=np.arange(N) % 6)


def _drawn(problem: Problem, n_val: int = 5, method: str = "pro2") -> Drawn:
    return draw_cell(problem, Cell("accuracy", "p", "t", MethodSpec(method), 3, 1, n_val))


def _heads(K: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(4, K, D)), rng.normal(size=(4, K))


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("K", [1, 2])
def test_measures_are_those_of_the_definition(problem: Problem, K: int, unit: bool) -> None:
    drawn, (W, b) = _drawn(problem), _heads(K)
    found = measure_heads(problem, "t", drawn, W, b, unit)
    X, y = problem.pool("t")
    X = unit_rows(X) if unit else X
    logits = np.einsum("gkd,nd->gkn", W, X.astype(np.float64)) + b[..., None]
    margin = logits[:, 0] if K == 1 else logits[:, 1] - logits[:, 0]
    groups, hits = ROWS % 6, (margin > 0) == (y == 1)
    np.testing.assert_allclose(found["accuracy"], hits[:, drawn.test].mean(1))
    np.testing.assert_allclose(found["val_accuracy"], hits[:, drawn.val].mean(1))
    worst = np.min([hits[:, drawn.test & (groups == g)].mean(1) for g in range(6)], axis=0)
    np.testing.assert_allclose(found["worst_group"], worst)
    loss = np.logaddexp(0, -(2 * y - 1) * margin)[:, drawn.test].mean(1)
    np.testing.assert_allclose(found["log_loss"], loss, rtol=1e-5)
    assert (found["n_test"] == drawn.test.sum()).all()


@pytest.mark.parametrize("K", [1, 3])
def test_chunks_of_the_pool_change_no_measure(problem: Problem, monkeypatch: pytest.MonkeyPatch, K: int) -> None:
    whole = measure_heads(problem, "t", _drawn(problem), *_heads(K))
    monkeypatch.setattr(measures, "_CHUNK", 1)  # 64 rows at a time
    parts = measure_heads(problem, "t", _drawn(problem), *_heads(K))
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-6)


@pytest.mark.parametrize("unit", [False, True])
def test_heads_on_features_equal_the_same_heads_on_embeddings(problem: Problem, unit: bool) -> None:
    rng = np.random.default_rng(2)
    features = Features(rng.normal(size=D), rng.uniform(0.5, 2, D), rng.normal(size=(5, D)), unit)
    coef, intercept = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 3))
    W, b = features.original(coef, intercept)
    X = problem.X.astype(np.float64)
    expected = np.einsum("gkd,nd->gkn", coef, features.transform(X, 5)) + intercept[..., None]
    np.testing.assert_allclose(np.einsum("gkd,nd->gkn", W, unit_rows(X) if unit else X) + b[..., None], expected)


def test_what_has_no_rows_has_no_measure(problem: Problem) -> None:
    plain = replace(problem, groups=None, _made={})
    found = measure_heads(plain, "t", _drawn(plain, 0), *_heads())
    assert np.isnan(found["val_accuracy"]).all()
    assert np.isnan(found["worst_group"]).all()
    assert np.isfinite(found["accuracy"]).all()


def test_every_row_of_a_target_is_labelled_tested_or_validated(problem: Problem) -> None:
    drawn, other = _drawn(problem), _drawn(problem, method="random")
    few = np.isin(ROWS, drawn.few)
    assert ((few.astype(int) + drawn.test + drawn.val) == 1).all()
    for mine, yours in zip(drawn, other):  # every method gets the same rows
        np.testing.assert_array_equal(mine, yours)
