"""Laws of the bank: every target as if it were alone, whatever the layout; shared knowledge helps small targets."""

import numpy as np
import pytest

import pro2
from pro2.estimators import bank as bank_module
from pro2.estimators.bank import ProbeBank
from pro2.linalg.probes import fit_logistic


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def supports(rng, T: int, M: int, D: int = 6, K: int = 2, spread: float = 0.5):
    """Targets whose heads scatter around a common one."""
    heads = rng.normal(size=(K, D)) + spread * rng.normal(size=(T, K, D))
    X = rng.normal(size=(T, M, D))
    y = np.einsum("tmd,tkd->tmk", X, heads).argmax(-1)
    y[:, :K] = np.arange(K)
    return X, y, heads


@pytest.mark.parametrize("K", [2, 3])
def test_a_fixed_penalty_is_a_probe_per_target(rng, K):
    X, y, _ = supports(rng, 7, 12, K=K)
    bank = ProbeBank(l2=0.1).fit(X, y)
    for t in range(7):
        alone = fit_logistic(X[t], y[t], 0.1, n_classes=K)
        np.testing.assert_allclose(bank.coef_[t], alone.coef, atol=1e-7)
        np.testing.assert_allclose(bank.intercept_[t], alone.intercept, atol=1e-7)


@pytest.mark.parametrize("l2", [0.1, "auto"])
def test_layouts_agree(rng, l2):
    X, y, _ = supports(rng, 5, 8)
    cube = ProbeBank(l2=l2).fit(X, y)
    lists = ProbeBank(l2=l2).fit(list(X), list(y))
    order = rng.permutation(40)
    flat = ProbeBank(l2=l2).fit(X.reshape(40, -1)[order], y.reshape(-1)[order], np.repeat(np.arange(5), 8)[order])
    for other in (lists, flat):
        np.testing.assert_allclose(other.coef_, cube.coef_, atol=1e-6)


def test_ragged_supports_equal_single_fits(rng):
    X, y, _ = supports(rng, 9, 20)
    sizes = [3, 5, 20, 7, 8, 20, 2, 13, 4]
    bank = ProbeBank(l2=0.1).fit([a[:n] for a, n in zip(X, sizes)], [b[:n] for b, n in zip(y, sizes)])
    for t, n in enumerate(sizes):
        np.testing.assert_allclose(bank.coef_[t], fit_logistic(X[t, :n], y[t, :n], 0.1).coef, atol=1e-7)


def fresh_accuracy(bank, heads, rng) -> float:
    T, _, D = heads.shape
    X = rng.normal(size=(T, 50, D))
    y = np.einsum("tmd,tkd->tmk", X, heads).argmax(-1)
    return float((bank.predict(X.reshape(-1, D), np.repeat(np.arange(T), 50)) == y.reshape(-1)).mean())


def test_many_targets_learn_how_far_to_trust_each_other(rng):
    X, y, heads = supports(rng, 200, 6, spread=0.3)
    bank = ProbeBank().fit(X, y)
    assert fresh_accuracy(bank, heads, rng) > fresh_accuracy(ProbeBank(l2=0.1).fit(X, y), heads, rng) + 0.05
    pooled = sum(s for s, (centre, _) in zip(bank.shares_, bank.candidates_) if centre == "pooled")
    assert pooled > 0.8


def test_unrelated_targets_lose_nothing_by_the_pool(rng):
    X, y, heads = supports(rng, 200, 24, spread=30.0)
    alone = max(fresh_accuracy(ProbeBank(l2=l2).fit(X, y), heads, rng) for l2 in (0.01, 0.1, 1.0))
    assert fresh_accuracy(ProbeBank().fit(X, y), heads, rng) > alone - 0.01


def test_shares_learned_from_some_targets_serve_the_others(rng, monkeypatch):
    X, y, _ = supports(rng, 300, 8)
    whole = ProbeBank().fit(X, y)
    monkeypatch.setattr(bank_module, "SHARING_TARGETS", 100)
    monkeypatch.setattr(bank_module, "BATCH_NUMBERS", 40 * X[0].size)  # and many batches
    part = ProbeBank().fit(X, y)
    np.testing.assert_allclose(part.shares_, whole.shares_, atol=0.1)
    np.testing.assert_allclose(part.decision_function(X[7], 7), whole.decision_function(X[7], 7), atol=0.3)


def test_projection_string_ids_and_probabilities(rng):
    X, y, _ = supports(rng, 4, 16, D=8)
    flat, labels = X.reshape(-1, 8), np.array(["no", "yes"])[y.reshape(-1)]
    site = np.repeat(["oslo", "bonn", "lyon", "graz"], 16)
    model = pro2.ProjectAndProbe().fit(flat, labels)
    bank = ProbeBank(model, n_features=4).fit(flat, labels, site)
    assert bank.coef_.shape == (4, 4)
    P = bank.predict_proba(flat, site)
    np.testing.assert_allclose(P.sum(1), 1)
    assert (bank.predict(flat[:16], "oslo") == labels[:16]).mean() > 0.7


def test_targets_that_lack_a_class_still_have_a_head(rng):
    X, y, _ = supports(rng, 3, 10)
    y[1] = 0
    bank = ProbeBank().fit(X, y)
    assert np.isfinite(bank.coef_).all()
    assert (bank.predict(X[1], 1) == 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, X, y: b.predict(X[0], 99), "not in the bank"),
        (lambda b, X, y: b.predict(X[0]), "target is needed"),
        (lambda b, X, y: ProbeBank(l2=-1.0).fit(X, y), "l2 must be"),
        (lambda b, X, y: ProbeBank(n_features=9).fit(X, y), "n_features must be"),
        (lambda b, X, y: ProbeBank().fit(X, y[:, :-1]), "so y must be"),
        (lambda b, X, y: ProbeBank().fit(X, 0 * y), "one class only"),
    ],
)
def test_mistakes_are_explained(rng, call, message):
    X, y, _ = supports(rng, 3, 10)
    with pytest.raises(ValueError, match=message):
        call(ProbeBank(l2=0.1).fit(X, y), X, y)
