"""Laws of the bank: every target as `adapt` has it alone, whatever the layout, library and number of rows."""

import numpy as np
import pytest
from sklearn.base import clone

import pro2
from pro2 import ProjectAndProbe
from pro2.estimators import bank as bank_module
from pro2.estimators.bank import ProbeBank


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def problem(rng, T=5, M=8, D=6, K=2, **options):
    """A model, and targets X (T, M, D) whose classes lie elsewhere than in the source."""
    means = 2.0 * rng.normal(size=(K, D))
    ys = np.arange(300) % K
    model = ProjectAndProbe(**options).fit(means[ys] + rng.normal(size=(300, D)), ys)
    y = rng.integers(0, K, (T, M))
    y[:, :K] = np.arange(K)[: min(K, M)]
    X = means[y] + 0.7 * rng.normal(size=(T, 1, D)) + rng.normal(size=(T, M, D))
    return model, X, y


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("options", [{}, {"scale": "unit"}, {"scale": "standard", "label_sampling": "random"}])
def test_each_head_is_that_of_adapt(rng, K, options):
    model, X, y = problem(rng, K=K, **options)
    bank = ProbeBank(model).fit(X, y)
    for t in range(len(X)):
        alone = model.adapt(X[t], y[t])
        np.testing.assert_allclose(bank.coef_[t], alone.coef_, atol=1e-10)
        np.testing.assert_allclose(bank.intercept_[t], alone.intercept_, atol=1e-10)
        np.testing.assert_allclose(bank.predict_proba(X[t], t), alone.predict_proba(X[t]), atol=1e-10)


def test_ragged_repeated_and_weighted_rows_are_those_of_adapt(rng):
    model, X, y = problem(rng, T=9, M=20)
    sizes = [3, 5, 20, 7, 8, 20, 2, 13, 1]  # more rows than features, fewer, and one
    parts = [X[t, np.minimum(np.arange(n), 11)] for t, n in enumerate(sizes)]  # beyond 11 they repeat
    labels = [y[t, np.minimum(np.arange(n), 11)] for t, n in enumerate(sizes)]
    weight = rng.uniform(0.2, 2.0, sum(sizes))
    bank = ProbeBank(model).fit(parts, labels, sample_weight=weight)
    for t, w in enumerate(np.split(weight, np.cumsum(sizes)[:-1])):
        np.testing.assert_allclose(bank.coef_[t], model.adapt(parts[t], labels[t], w).coef_, atol=1e-9)


def test_layouts_agree(rng):
    model, X, y = problem(rng)
    cube, lists = ProbeBank(model).fit(X, y), ProbeBank(model).fit(list(X), list(y))
    order = rng.permutation(40)
    ids = np.repeat(np.arange(5), 8)
    flat = ProbeBank(model).fit(X.reshape(40, -1)[order], y.reshape(-1)[order], ids[order])
    for other in (lists, flat):
        np.testing.assert_allclose(other.coef_, cube.coef_, atol=1e-9)


def test_batches_change_nothing(rng, monkeypatch):
    model, X, y = problem(rng, T=7)
    whole = ProbeBank(model).fit(X, y)
    monkeypatch.setattr(bank_module, "BATCH_NUMBERS", 2 * X[0].size)
    np.testing.assert_allclose(ProbeBank(model).fit(X, y).coef_, whole.coef_, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m, X, y: ProbeBank(m).fit(X, y).predict(X[0], 99), ValueError, "not in the bank"),
        (lambda m, X, y: ProbeBank(m).fit(X, y).predict(X[0]), ValueError, "target is needed"),
        (lambda m, X, y: ProbeBank(m).fit(X, y, target=[None, 1, 2]), (ValueError, TypeError), "target"),
        (lambda m, X, y: ProbeBank(m).fit(X, y, target=[1, 2]), ValueError, "target"),
        (lambda m, X, y: ProbeBank().fit(X, y), TypeError, "model must be a fitted ProjectAndProbe, got NoneType"),
        (lambda m, X, y: ProbeBank(clone(m)).fit(X, y), ValueError, "not fitted"),
        (lambda m, X, y: ProbeBank(clone(m).set_params(l2=0.1).fit(X[0], y[0])).fit(X, y), ValueError, "l2='auto'"),
        (lambda m, X, y: ProbeBank(m).fit(X, y[:, :-1]), ValueError, "one label for each row"),
        (lambda m, X, y: ProbeBank(m).fit([X[0], X[1, :, :4]], y[:2]), ValueError, "X"),
        (lambda m, X, y: ProbeBank(m).fit([X[0], X[1, :0]], [y[0], y[1, :0]]), ValueError, "X and y must hold"),
        (lambda m, X, y: ProbeBank(m).fit(X, y + 5), ValueError, "that the source does not have"),
        (lambda m, X, y: ProbeBank(m).fit(X[..., :3], y), ValueError, "features"),
        (lambda m, X, y: ProbeBank(m).fit(X, np.where(y > 0, np.nan, y)), ValueError, "y contains NaN"),
    ],
)
def test_mistakes_are_explained(rng, call, error, message):
    model, X, y = problem(rng, T=3, M=10)
    with pytest.raises(error, match=message):
        call(model, X, y)


@pytest.mark.parametrize("stacked", [True, False])
def test_targets_of_any_layout_have_the_names_they_are_given(rng, stacked):
    model, X, y = problem(rng, T=3)
    names = np.array(["c", "a", "b"])
    bank = ProbeBank(model).fit(X if stacked else list(X), y if stacked else list(y), target=names)
    plain = ProbeBank(model).fit(X, y)
    for k, name in enumerate(names):
        np.testing.assert_allclose(bank.predict_proba(X[k], name), plain.predict_proba(X[k], k), atol=1e-9)


def test_score_is_the_share_of_right_answers(rng):
    model, X, y = problem(rng, T=4, M=10)
    bank, ids = ProbeBank(model).fit(X, y), np.repeat(np.arange(4), 10)
    flat, labels, weight = X.reshape(40, -1), y.reshape(-1), rng.uniform(0.1, 1.0, 40)
    right = bank.predict(flat, ids) == labels
    assert clone(bank).model is model
    assert bank.score(flat, labels, target=ids) == pytest.approx(right.mean())
    assert bank.score(flat, labels, weight, target=ids) == pytest.approx(np.average(right, weights=weight))


def test_one_library_fits_and_another_asks(rng, tmp_path):
    torch = pytest.importorskip("torch")
    model, X, y = problem(rng)
    by_tensor, by_array = ProbeBank(model).fit(torch.from_numpy(X), torch.from_numpy(y)), ProbeBank(model).fit(X, y)
    for bank in (by_tensor, by_array, pro2.load(by_tensor.save(tmp_path / "m"))):
        for asked in (X[1], torch.from_numpy(X[1])):
            P = bank.predict_proba(asked, 1)
            assert type(P) is type(asked)
            np.testing.assert_allclose(np.asarray(P), by_array.predict_proba(X[1], 1), atol=1e-7)
