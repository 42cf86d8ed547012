"""Heads on features and on embeddings say the same; what batches of a target share is made once."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.lab.experiments import heads
from pro2.lab.experiments.batches import draw_all
from pro2.lab.experiments.expand import Batch
from pro2.lab.experiments.heads import Draws, Features, Heads, OnFeatures, evaluate
from pro2.lab.experiments.plan import MethodSpec
from pro2.lab.experiments.problems import Problem, make_problem

D, N = 12, 290


@pytest.fixture
def problem() -> Problem:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)).astype(np.float32), np.arange(N) % 2
    return make_problem("p", X, y, (0, 1), np.arange(20), {"t": np.arange(N - 1, 29, -1)}, "digest")


def _draws(problem: Problem, n_val: int = 5) -> Draws:
    method = MethodSpec("linear-probe", "linear-probe", "Linear probe")
    batch = Batch("accuracy", "p", "t", method, 3, n_val, (0, 1, 2), (), ())
    return draw_all(problem, batch)


def _features(K: int = 1, unit: bool = False) -> tuple[Features, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    rows = np.linalg.qr(rng.normal(size=(D, D)))[0]
    features = Features(rng.normal(size=D), rng.uniform(0.5, 2, D), rows, unit)
    coef = rng.normal(size=(3, 4, K, D))
    coef[:, :2, :, 5:] = 0.0  # two settings use five features
    return features, coef, rng.normal(size=(3, 4, K))


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("K", [1, 3])
def test_heads_on_features_equal_the_same_heads_on_embeddings(problem, unit, K):
    features, coef, intercept = _features(K, unit)
    draws = _draws(problem)
    W, b = features.original(coef, intercept)
    plain = evaluate(problem, "t", draws, Heads(W, b, None, unit))
    on = (OnFeatures(features, [0, 1], 5), OnFeatures(features, [3, 2], D))
    fast = evaluate(problem, "t", draws, Heads(coef, intercept, None, unit, on))
    assert plain.keys() == fast.keys()
    for name in plain:
        np.testing.assert_allclose(fast[name], plain[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("K", [1, 3])
def test_chunks_of_the_pool_change_no_measure(problem, monkeypatch, K):
    features, coef, intercept = _features(K)
    draws, asked = _draws(problem), Heads(*features.original(coef, intercept))
    whole = evaluate(problem, "t", draws, asked)
    monkeypatch.setattr(heads, "_CHUNK", 1)  # 64 rows at a time
    parts = evaluate(problem, "t", draws, asked)
    np.testing.assert_array_equal(parts["accuracy"], whole["accuracy"])
    np.testing.assert_array_equal(parts["val_accuracy"], whole["val_accuracy"])
    np.testing.assert_allclose(parts["log_loss"], whole["log_loss"], rtol=1e-5)


def test_measures_are_those_of_the_definition(problem):
    features, coef, intercept = _features()
    draws, (W, b) = _draws(problem), features.original(coef, intercept)
    found = evaluate(problem, "t", draws, Heads(W, b))
    X, y = problem.pool("t")
    logits = np.einsum("sgkd,nd->sgn", W, X.astype(np.float64)) + b
    for s in range(3):
        test, sign = draws.test[s], 2 * y - 1
        hits = (logits[s] > 0) == (y == 1)
        np.testing.assert_allclose(found["accuracy"][s], hits[:, test].mean(1))
        np.testing.assert_allclose(found["val_accuracy"][s], hits[:, draws.val[s]].mean(1))
        loss = np.logaddexp(0, -sign * logits[s])[:, test].mean(1)
        np.testing.assert_allclose(found["log_loss"][s], loss, rtol=1e-5)
        assert (found["n_test"][s] == test.sum()).all()


def test_without_validation_rows_there_is_no_validation_accuracy(problem):
    found = evaluate(problem, "t", _draws(problem, 0), Heads(*_features()[1:]))
    assert np.isnan(found["val_accuracy"]).all()
    assert np.isfinite(found["accuracy"]).all()


def test_draws_say_where_their_rows_are_in_the_pool(problem):
    draws = _draws(problem)
    pool = problem.targets["t"]
    np.testing.assert_array_equal(pool[draws.at], draws.few)
    for s in range(3):
        few = np.isin(pool, draws.few[s])
        assert ((few.astype(int) + draws.test[s] + draws.val[s]) == 1).all()


def test_a_target_is_projected_once_and_drawn_once(problem, monkeypatch):
    """What four numbers of shots and every setting share: one projection of the pool, one draw a seed."""
    features, *_ = _features()
    pools = [features.pool(problem, "t", 5) for _ in range(3)]
    assert pools[0] is pools[1] is pools[2]
    np.testing.assert_allclose(pools[0], features.transform(problem.pool("t")[0], 5), rtol=1e-6)
    first = _draws(problem)
    monkeypatch.setattr("pro2.lab.experiments.batches.draw", lambda *a, **k: pytest.fail("drawn again"))
    np.testing.assert_array_equal(_draws(problem).few, first.few)


def test_features_keep_few_pools(problem):
    features, *_ = _features()
    for n in range(1, 9):
        features.pool(problem, "t", n)
    assert len(features._pools) <= heads._KEPT
