"""Theorem 1: the norm-bounded probe is optimal on the ball, and its risk stays below the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from pro2.lab.datasets.shog import make_shog
from pro2.lab.theory import norm_bounded_probe, nullspace_norm, risk_bound
from pro2.lab.theory.bounds import mean_log_loss
from pro2.linalg.bases import krylov_basis


def rows_of(n: int = 60, d: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.standard_normal((n, d)) + 0.8 * (2 * y - 1)[:, None] * np.linspace(1, 0, d), y


@pytest.mark.parametrize("radius", [0.1, 1.0, 50.0])
def test_no_head_on_the_ball_is_better(radius: float) -> None:
    Z, y = rows_of()
    w = norm_bounded_probe(Z, y, radius)
    assert np.linalg.norm(w) <= radius * (1 + 1e-9)
    theirs = minimize(
        lambda v: float(mean_log_loss(Z, y, v)), 0.1 * w, method="SLSQP",
        constraints={"type": "ineq", "fun": lambda v: radius**2 - v @ v}, options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    assert float(mean_log_loss(Z, y, w)) <= theirs.fun + 1e-7
    assert np.allclose(w, theirs.x, atol=2e-3 * radius)


def test_a_batch_equals_single_fits() -> None:
    parts = [rows_of(seed=s) for s in range(3)]
    together = norm_bounded_probe(np.stack([Z for Z, _ in parts]), np.stack([y for _, y in parts]))
    for w, part in zip(together, parts):
        assert np.allclose(w, norm_bounded_probe(*part), atol=1e-5)


def test_separable_rows_end_on_the_ball() -> None:
    w = norm_bounded_probe(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1, 0]))
    assert np.allclose(w, [1.0, 0.0])


def test_parts_of_the_bound_do_what_the_theorem_says() -> None:
    few, many = (risk_bound(0.3, 4.0, 2.0, n) for n in (10, 1000))
    assert few.bias == many.bias == pytest.approx(4.0 * 0.3)
    assert few.variance == pytest.approx(10 * many.variance)
    assert few.total == few.bias + few.variance
    by_hand = 2 * 2.0 / math.sqrt(10) + 2 * math.log1p(math.exp(4.0)) * math.sqrt(math.log(2 / 0.05) / 20)
    assert few.variance == pytest.approx(by_hand)
    assert risk_bound(0.3, 4.0, 3.0, 10).variance > few.variance  # more features, more variance
    assert risk_bound(0.3, 4.0, 2.0, 10, delta=0.5).variance < few.variance
    assert risk_bound(0.3, 4.0, 2.0, 10, loss_bound=1.0).variance < few.variance


@pytest.mark.parametrize("target", ["id", "near", "far"])
def test_the_risk_stays_below_the_bound(target: str) -> None:
    shog = make_shog(random_state=0)
    rows = krylov_basis(shog.moments(), 20).components
    X, y = shog.sample(target, 4000, 0)
    best = norm_bounded_probe(X, y)
    least = float(mean_log_loss(X, y, best))
    missed = nullspace_norm(rows, best) * np.linalg.norm(best)
    for d in (1, 5, 20):
        Z = X @ rows[:d].T
        radius, projected = (float(np.linalg.norm(part, axis=1).max()) for part in (X, Z))
        for n in (8, 128):
            draws = [np.random.default_rng(s).permutation(len(y))[:n] for s in range(10)]
            risk = [float(mean_log_loss(Z, y, norm_bounded_probe(Z[at], y[at]))) - least for at in draws]
            assert max(risk) <= risk_bound(float(missed[d - 1]), radius, projected, n).total
    assert least < float(mean_log_loss(X, y, 0 * best))


@pytest.mark.parametrize(("changes", "message"), [({"delta": 0.0}, "delta must lie"), ({"n": 0}, "n_target must be")])
def test_mistakes_are_named(changes: dict[str, float], message: str) -> None:
    n = int(changes.pop("n", 5))
    with pytest.raises(ValueError, match=message):
        risk_bound(0.1, 1.0, 1.0, n, **changes)
