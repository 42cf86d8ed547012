"""Laws of the bank: every target as if it were alone, whatever the layout; shared knowledge helps small targets."""

import numpy as np
import pytest
from sklearn.base import clone

import pro2
from pro2.estimators import bank as bank_module
from pro2.estimators.bank import ProbeBank
from pro2.linalg import kernels
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


@pytest.mark.parametrize("stacked", [True, False])
def test_a_target_larger_than_a_batch_is_a_batch(rng, monkeypatch, stacked):
    X, y, _ = supports(rng, 3, 12)
    args = (X, y) if stacked else (X.reshape(-1, X.shape[2]), y.reshape(-1), np.repeat(np.arange(3), 12))
    whole = ProbeBank(l2=0.1).fit(*args)
    monkeypatch.setattr(bank_module, "BATCH_NUMBERS", X[0].size // 2)
    np.testing.assert_allclose(ProbeBank(l2=0.1).fit(*args).coef_, whole.coef_, atol=1e-8)


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


@pytest.mark.parametrize("stacked", [True, False])
def test_targets_of_any_layout_have_the_names_they_are_given(rng, stacked):
    X, y, _ = supports(rng, 3, 8)
    names = np.array(["c", "a", "b"])
    bank = ProbeBank(l2=0.1).fit(X if stacked else list(X), y if stacked else list(y), target=names)
    plain = ProbeBank(l2=0.1).fit(X, y)
    for k, name in enumerate(names):
        np.testing.assert_allclose(bank.predict_proba(X[k], name), plain.predict_proba(X[k], k), atol=1e-9)


@pytest.mark.parametrize("bad", [[np.nan, 1.0, 2.0], [None, 1, 2], ["a", 1, 2], [1, 2], 3])
def test_names_of_targets_that_are_none(rng, bad):
    X, y, _ = supports(rng, 3, 8)
    with pytest.raises((ValueError, TypeError), match="target"):
        ProbeBank(l2=0.1).fit(X, y, target=np.array(bad, dtype=object) if "a" in np.atleast_1d(bad) else bad)
    with pytest.raises((ValueError, TypeError), match="target"):
        ProbeBank(l2=0.1).fit(X, y).predict(X[0], target=np.full(8, None))


@pytest.mark.parametrize("parts", [[(5, 3), (4, 2)], [(5, 3), (0, 3)]], ids=["widths", "no rows"])
def test_lists_that_do_not_fit_are_refused_by_name(rng, parts):
    X = [rng.normal(size=shape) for shape in parts]
    with pytest.raises(ValueError, match="X"):
        ProbeBank(l2=0.1).fit(X, [np.arange(len(each)) % 2 for each in X])


def test_score_is_the_share_of_right_answers(rng):
    X, y, _ = supports(rng, 4, 10)
    bank, ids = ProbeBank(l2=0.1).fit(X, y), np.repeat(np.arange(4), 10)
    flat, labels, weight = X.reshape(40, -1), y.reshape(-1), rng.uniform(0.1, 1.0, 40)
    right = bank.predict(flat, ids) == labels
    assert bank.score(flat, labels, target=ids) == pytest.approx(right.mean())
    assert bank.score(flat, labels, weight, target=ids) == pytest.approx(np.average(right, weights=weight))
    assert bank.score(X[2], y[2], target=2) == pytest.approx(right[20:30].mean())


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.5])
def test_labels_that_are_none_are_refused(rng, bad):
    X, y, _ = supports(rng, 3, 10)
    with pytest.raises(ValueError, match=r"y contains|Unknown label type|is it a column of ids or measurements"):
        ProbeBank().fit(X, np.where(rng.random(y.shape) < 0.3, bad, y))


def test_missing_names_are_refused(rng):
    X, y, _ = supports(rng, 3, 10)
    names = np.where(y > 0, "yes", "no").astype(object)
    names[0, 0] = None
    with pytest.raises(ValueError, match="y contains NaN or None"):
        ProbeBank().fit(X, names)


def test_clone_keeps_a_fitted_projection(rng):
    X, y, _ = supports(rng, 4, 10)
    flat, labels = X.reshape(40, -1), y.reshape(-1)
    projection = pro2.Projection(3).fit(flat, labels)
    copy = clone(ProbeBank(projection, l2=0.1, n_features=2).fit(X, y))
    assert not hasattr(copy, "coef_")
    assert (copy.l2, copy.n_features) == (0.1, 2)
    assert copy.fit(X, y).coef_.shape == (4, 2)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("l2", [0.1, "auto"])
@pytest.mark.parametrize("layout", ["cube", "list", "flat"])
def test_tensors_stay_tensors(rng, K, l2, layout):
    torch = pytest.importorskip("torch")
    X, y, _ = supports(rng, 4, 8, K=K)
    expected = ProbeBank(l2=l2).fit(X, y)
    Xt, yt = torch.from_numpy(X), torch.from_numpy(y)
    if layout == "cube":
        bank = ProbeBank(l2=l2).fit(Xt, yt)
    elif layout == "list":
        bank = ProbeBank(l2=l2).fit(list(Xt), list(yt))
    else:
        bank = ProbeBank(l2=l2).fit(Xt.reshape(32, -1), yt.reshape(-1), torch.arange(4).repeat_interleave(8))
    assert isinstance(bank.coef_, torch.Tensor)
    np.testing.assert_allclose(bank.coef_.numpy(), expected.coef_, atol=1e-6)
    P = bank.predict_proba(Xt[2], 2)
    assert isinstance(P, torch.Tensor)
    np.testing.assert_allclose(P.numpy(), expected.predict_proba(X[2], 2), atol=1e-6)
    np.testing.assert_array_equal(bank.predict(Xt[2], 2), expected.predict(X[2], 2))


def test_ids_on_a_device_are_no_labels_either(rng):
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="is it a column of ids"):
        ProbeBank().fit(torch.ones(4, 8, 2), torch.arange(32).reshape(4, 8))


def test_one_library_fits_and_another_asks(rng, tmp_path):
    torch = pytest.importorskip("torch")
    X, y, _ = supports(rng, 4, 8)
    by_tensor, by_array = ProbeBank(l2=0.1).fit(torch.from_numpy(X), torch.from_numpy(y)), ProbeBank(l2=0.1).fit(X, y)
    for bank in (by_tensor, by_array, pro2.load(by_tensor.save(tmp_path / "m"))):
        for asked in (X[1], torch.from_numpy(X[1])):
            P = bank.predict_proba(asked, 1)
            assert type(P) is type(asked)
            np.testing.assert_allclose(np.asarray(P), by_array.predict_proba(X[1], 1), atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("l2", [0.1, "auto"])
@pytest.mark.parametrize("K", [2, 3])
def test_features_far_from_the_origin_are_solved_by_kernels_too(rng, monkeypatch, K, l2, dtype):
    """Numba's heads of float32 rows around 100 once gave probabilities that were off by a quarter."""
    pytest.importorskip("numba")
    X, y, _ = supports(rng, 40, 12, K=K)
    X = (X + 300.0).astype(dtype)
    monkeypatch.setattr(kernels, "MANY", 0)
    fast = ProbeBank(l2=l2).fit(X, y)
    monkeypatch.setenv("PRO2_FUSED", "0")
    plain = ProbeBank(l2=l2).fit(X.astype(np.float64) - 300.0, y)
    for t in (0, 7, 39):
        expected = plain.predict_proba(X[t].astype(np.float64) - 300.0, t)
        np.testing.assert_allclose(fast.predict_proba(X[t], t), expected, atol=1e-3 if dtype is np.float32 else 1e-6)


def test_one_row_per_target_is_tame(rng):
    """A target whose only row fixes its own fit tells nothing about penalties: the pool decides."""
    X, y = rng.normal(size=(60, 1, 6)), np.arange(60)[:, None] % 2
    bank = ProbeBank().fit(X, y)
    assert np.isfinite(bank.coef_).all()
    assert np.abs(bank.coef_).max() < 100
