"""Heads on features and on embeddings say the same; measures are those of their definitions; draws are shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pro2.estimators.linear import unit_rows
from pro2.lab.experiments import evaluate as module
from pro2.lab.experiments import probes
from pro2.lab.experiments.evaluate import Draws, draw_all, evaluate
from pro2.lab.experiments.plan import MethodSpec
from pro2.lab.experiments.probes import Features
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch

D, N = 12, 290
ROWS = np.arange(N - 1, 29, -1)
METHOD = MethodSpec("linear-probe", "linear-probe", "Linear probe")


@pytest.fixture
def problem() -> Problem:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)).astype(np.float32), np.arange(N) % 2
    return Problem("p", X, y, (0, 1), np.arange(20), {"t": ROWS}, "digest", groups=np.arange(N) % 6)


def _draws(problem: Problem, n_val: int = 5) -> Draws:
    return draw_all(problem, Batch("accuracy", "p", "t", METHOD, 3, n_val, 0, (0, 1, 2)))


def _features(K: int = 1, unit: bool = False) -> tuple[Features, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    rows = np.linalg.qr(rng.normal(size=(D, D)))[0]
    features = Features(rng.normal(size=D), rng.uniform(0.5, 2, D), rows, unit)
    coef = rng.normal(size=(3, 4, K, D))
    coef[:, :2, :, 5:] = 0.0  # two settings use five features
    return features, coef, rng.normal(size=(3, 4, K))


def _on_embeddings(problem: Problem, unit: bool = False) -> list[tuple[np.ndarray, list[int], int]]:
    X = problem.pool("t")[0]
    return [(unit_rows(X) if unit else X, [0, 1, 2, 3], D)]


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("K", [1, 3])
def test_heads_on_features_equal_the_same_heads_on_embeddings(problem, unit, K):
    features, coef, intercept = _features(K, unit)
    draws = _draws(problem)
    plain = evaluate(problem, "t", draws, _on_embeddings(problem, unit), *features.original(coef, intercept))
    Z = features.pool(problem, "t", D)
    fast = evaluate(problem, "t", draws, [(Z, [0, 1], 5), (Z, [3, 2], D)], coef, intercept)
    assert plain.keys() == fast.keys()
    for name in plain:
        np.testing.assert_allclose(fast[name], plain[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("K", [1, 3])
def test_chunks_of_the_pool_change_no_measure(problem, monkeypatch, K):
    features, coef, intercept = _features(K)
    draws, heads = _draws(problem), features.original(coef, intercept)
    whole = evaluate(problem, "t", draws, _on_embeddings(problem), *heads)
    monkeypatch.setattr(module, "_CHUNK", 1)  # 64 rows at a time
    parts = evaluate(problem, "t", draws, _on_embeddings(problem), *heads)
    for name in ("accuracy", "val_accuracy", "worst_group"):
        np.testing.assert_array_equal(parts[name], whole[name])
    np.testing.assert_allclose(parts["log_loss"], whole["log_loss"], rtol=1e-5)


def test_measures_are_those_of_the_definition(problem):
    features, coef, intercept = _features()
    draws, (W, b) = _draws(problem), features.original(coef, intercept)
    found = evaluate(problem, "t", draws, _on_embeddings(problem), W, b)
    X, y = problem.pool("t")
    logits = np.einsum("sgkd,nd->sgn", W, X.astype(np.float64)) + b
    groups = ROWS % 6
    for s in range(3):
        test, sign = draws.test[s], 2 * y - 1
        hits = (logits[s] > 0) == (y == 1)
        np.testing.assert_allclose(found["accuracy"][s], hits[:, test].mean(1))
        np.testing.assert_allclose(found["val_accuracy"][s], hits[:, draws.val[s]].mean(1))
        worst = np.min([hits[:, test & (groups == g)].mean(1) for g in range(6)], axis=0)
        np.testing.assert_allclose(found["worst_group"][s], worst)
        loss = np.logaddexp(0, -sign * logits[s])[:, test].mean(1)
        np.testing.assert_allclose(found["log_loss"][s], loss, rtol=1e-5)
        assert (found["n_test"][s] == test.sum()).all()


def test_what_has_no_rows_has_no_measure(problem):
    _, coef, intercept = _features()
    plain = replace(problem, groups=None)
    found = evaluate(plain, "t", _draws(plain, 0), _on_embeddings(plain), coef, intercept)
    assert np.isnan(found["val_accuracy"]).all()
    assert np.isnan(found["worst_group"]).all()
    assert np.isfinite(found["accuracy"]).all()


def test_draws_say_where_their_rows_are_in_the_pool(problem):
    draws = _draws(problem)
    np.testing.assert_array_equal(ROWS[draws.at], draws.few)
    for s in range(3):
        few = np.isin(ROWS, draws.few[s])
        assert ((few.astype(int) + draws.test[s] + draws.val[s]) == 1).all()


def test_a_target_is_projected_once_and_drawn_once(problem, monkeypatch):
    """What four numbers of shots and every setting share: one projection of the pool, one draw a seed."""
    features, *_ = _features()
    pools = [features.pool(problem, "t", 5) for _ in range(3)]
    assert pools[0] is pools[1] is pools[2]
    np.testing.assert_allclose(pools[0], features.transform(problem.pool("t")[0], 5), rtol=1e-6)
    first = _draws(problem)
    monkeypatch.setattr(module, "draw", lambda *a, **k: pytest.fail("drawn again"))
    np.testing.assert_array_equal(_draws(problem).few, first.few)


def test_features_keep_few_pools(problem):
    features, *_ = _features()
    for n in range(1, 9):
        features.pool(problem, "t", n)
    assert len(features._pools) <= probes._KEPT
