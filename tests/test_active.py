"""Laws of the choice of rows to label, and what it gains on real embeddings."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pro2.active
from pro2 import MultiLabelProjectAndProbe, ProjectAndProbe, suggest_labels
from pro2.active import NOISE, Candidates, _greedy, _Posterior, _ScoreCovariance
from pro2.estimators import LinearClassifier
from pro2.linalg.prior import PriorFamily


def make_rows(n: int, n_classes: int = 2, seed: int = 0, width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, width)) + 2.0 * np.eye(width)[y], y


@pytest.fixture(scope="module", params=[2, 4], ids=["two classes", "four classes"])
def problem(request: pytest.FixtureRequest) -> tuple[ProjectAndProbe, np.ndarray, np.ndarray]:
    X, y = make_rows(400, request.param)
    return ProjectAndProbe().fit(X[:300], y[:300]), X[300:] + 0.5, y[300:]


def test_rows_are_distinct_and_as_many_as_asked(problem):
    model, X, _ = problem
    for n in (1, 7, len(X)):
        rows = suggest_labels(model, X, n)
        assert rows.dtype.kind == "i"
        assert len(rows) == n == len(set(rows.tolist()))
        assert rows.min() >= 0
        assert rows.max() < len(X)


def test_a_beginning_is_the_smaller_choice(problem):
    model, X, _ = problem
    np.testing.assert_array_equal(suggest_labels(model, X, 12)[:5], suggest_labels(model, X, 5))


@pytest.mark.parametrize("round_", ["cold", "later", "later, rows known"])
def test_order_of_the_pool_does_not_matter(problem, round_):
    model, X, y = problem
    options = {} if round_ == "cold" else {"adapted": model.adapt(X[:8], y[:8])}
    if round_ == "later, rows known":
        options["X_labeled"] = X[:8]
    pool, order = X[8:], np.random.default_rng(3).permutation(len(X) - 8)
    rows = suggest_labels(model, pool, 6, **options)
    np.testing.assert_array_equal(order[suggest_labels(model, pool[order], 6, **options)], rows)


def test_ids_name_the_rows(problem):
    model, X, _ = problem
    ids = np.array([f"image-{i}" for i in range(len(X))])
    rows = suggest_labels(model, X, 5)
    np.testing.assert_array_equal(suggest_labels(model, X, 5, ids=ids), ids[rows])
    np.testing.assert_array_equal(suggest_labels(model, X, 5, ids=ids.tolist()), ids[rows])


def test_inputs_are_not_modified(problem):
    model, X, y = problem
    adapted = model.adapt(X[:6], y[:6])
    copy, coef = X.copy(), adapted.coef_.copy()
    suggest_labels(model, X, 5, adapted=adapted, X_labeled=X[:6])
    np.testing.assert_array_equal(X, copy)
    np.testing.assert_array_equal(adapted.coef_, coef)


def test_copies_of_a_row_are_not_labelled_before_other_rows(problem):
    model, X, _ = problem
    first = suggest_labels(model, X, 1)[0]
    pool = np.concatenate([X[:20], np.repeat(X[first : first + 1], 30, axis=0)])
    rows = suggest_labels(model, pool, 6)
    assert (rows >= 20).sum() <= 2


def test_labelled_rows_are_not_asked_for_again(problem):
    model, X, y = problem
    first = suggest_labels(model, X, 4)
    adapted = model.adapt(X[first], y[first])
    # the pool holds an exact copy of every labelled row: a label there would tell nothing new
    rows = suggest_labels(model, X, 4, adapted=adapted, X_labeled=np.repeat(X[first], 50, axis=0))
    assert not set(rows.tolist()) & set(first.tolist())


def test_labelled_rows_may_be_larger_than_the_type_of_the_pool(problem):
    model, X, _ = problem
    far = 1e60 * X[:3].astype(np.float64)
    assert len(set(suggest_labels(model, X.astype(np.float32), 5, X_labeled=far).tolist())) == 5


def test_without_labelled_rows_others_stand_in(problem):
    model, X, y = problem
    first = suggest_labels(model, X, 6)
    adapted = model.adapt(X[first], y[first])
    blind = adapted.__class__.from_arrays(adapted.classes_, adapted.coef_, adapted.intercept_)
    pool = np.delete(X, first, axis=0)
    a, b = (suggest_labels(model, pool, 6, adapted=each) for each in (adapted, blind))
    assert set(a.tolist()) != set(b.tolist())


def test_greedy_choice_equals_brute_force():
    rng = np.random.default_rng(0)
    A, constant = 3.0 * rng.normal(size=(30, 5)), 2.0
    K, weight = A @ A.T + constant, rng.uniform(0.1, 1.0, 15)  # of 24 candidates 15 are targets; rows 24.. are labelled
    for i in range(24, 30):
        K -= np.outer(K[i], K[i]) / (K[i, i] + NOISE)
    posterior, expected = K.copy(), []
    for _ in range(8):
        gains = np.empty(24)
        for i in range(24):
            others = np.flatnonzero(np.arange(15) != i)  # the row itself will be known
            after = posterior - np.outer(posterior[i], posterior[i]) / (posterior[i, i] + NOISE)
            gains[i] = weight[others] @ (np.diag(posterior) - np.diag(after))[others]
        gains[expected] = -np.inf
        i = int(gains.argmax())
        expected.append(i)
        posterior -= np.outer(posterior[i], posterior[i]) / (posterior[i, i] + NOISE)
    assert any(i >= 15 for i in expected)
    np.testing.assert_array_equal(_greedy(_Posterior(A, constant, 24, weight, 8), 8, 0), expected)


def test_pools_larger_than_the_sample(problem, monkeypatch):
    model, X, _ = problem
    for name, value in (("ROWS", 60), ("TARGETS", 30), ("BATCH", 16), ("LABELED", 24)):
        monkeypatch.setattr(pro2.active, name, value)
    rows = suggest_labels(model, X, 50, random_state=4)
    assert len(set(rows.tolist())) == 50
    np.testing.assert_array_equal(rows, suggest_labels(model, X, 50, random_state=4))
    assert set(rows.tolist()) != set(suggest_labels(model, X, 50, random_state=5).tolist())


def test_model_with_a_fixed_penalty_and_few_components():
    X, y = make_rows(200)
    model = ProjectAndProbe(n_components=3, l2=0.1, n_features=2).fit(X[:150], y[:150])
    adapted = model.adapt(X[150:158], y[150:158])
    rows = suggest_labels(model, X[158:], 5, adapted=adapted)
    assert len(set(rows.tolist())) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n must be an integer in 1..100"),
        ({"n": 101}, "n must be an integer in 1..100"),
        ({"n": 2.0}, "n must be an integer"),
        ({"n": True}, "n must be an integer"),
        ({"ids": ["a", "b"]}, "ids has shape"),
        ({"X_pool": np.zeros((5, 3))}, "X_pool has 3 features"),
        ({"X_labeled": np.zeros((5, 3))}, "X_labeled has 3 features"),
    ],
)
def test_mistakes_are_named(problem, change, message):
    model, X, _ = problem
    with pytest.raises(ValueError, match=message):
        suggest_labels(**{"model": model, "X_pool": X, "n": 4, **change})


def test_adapted_of_another_model_is_refused(problem):
    model, X, _ = problem
    Z, y = make_rows(80, width=9)
    other = ProjectAndProbe().fit(Z, y)
    with pytest.raises(ValueError, match="adapted takes 9 features"):
        suggest_labels(model, X, 4, adapted=other.adapt(Z[:8], y[:8]))


def test_torch_pool_gives_the_same_rows(problem):
    torch = pytest.importorskip("torch")
    model, X, _ = problem
    np.testing.assert_array_equal(suggest_labels(model, torch.asarray(X), 6), suggest_labels(model, X, 6))


def test_a_model_of_several_labels_is_refused():
    X, y = make_rows(60)
    model = MultiLabelProjectAndProbe().fit(X, np.stack([y, y[::-1]], axis=1))
    with pytest.raises(TypeError, match="model must be a fitted ProjectAndProbe"):
        suggest_labels(LinearClassifier.from_arrays([0, 1], np.ones(6), 0.0), X, 2)
    with pytest.raises(TypeError, match="adapted must be what"):
        suggest_labels(ProjectAndProbe().fit(X, y), X, 2, "adapted")
    with pytest.raises(TypeError, match="model has several labels"):
        suggest_labels(model, X, 3)


@pytest.mark.parametrize(
    ("n_source", "options", "wide"),
    [
        (300, {}, False),
        (60, {}, False),  # fewer rows than features
        (60, {}, True),
        (300, {"covariances": ("ranked",), "ranked_share": 1.0}, False),  # of a lower rank than the features
        (300, {"prior_scales": (1e10,)}, False),  # beyond single precision
    ],
)
def test_the_covariance_of_scores_is_the_mean_over_the_family(n_source, options, wide, monkeypatch):
    monkeypatch.setattr(pro2.active, "WIDE", 10 if wide else 4096)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_source, 90)) * np.geomspace(1.0, 20.0, 90)
    priors = ProjectAndProbe(priors=PriorFamily(**options)).fit(X, (X[:, 0] > 0).astype(int)).priors_
    assert len(priors) == 2
    expected = []
    for prior in priors:
        Z = prior.rows(X[:20])
        for name in prior.family.covariances:
            A = prior.features(Z, name)
            expected.append(A @ A.T / prior.penalties(name).min())
    covariance = _ScoreCovariance(priors)
    features = covariance.features(X[:20])
    found = features @ features.T + covariance.constant
    np.testing.assert_allclose(found, np.mean(expected, axis=0), atol=1e-6 * np.abs(expected).max())


def test_blocks_in_any_order_and_on_several_machines_are_the_whole_pool(problem, monkeypatch):
    model, X, y = problem
    adapted = model.adapt(X[:6], y[:6])
    for limit in (30, 1024):  # more rows than that, and fewer
        monkeypatch.setattr(pro2.active, "ROWS", limit)
        monkeypatch.setattr(pro2.active, "TARGETS", limit // 2)
        monkeypatch.setattr(pro2.active, "BATCH", 8)
        free = np.delete(np.arange(len(X)), [3, 50])
        start = Candidates(20, random_state=7)
        whole = copy.deepcopy(start).add(X[free], free)
        parts = [copy.deepcopy(start) for _ in range(2)]
        for block in np.array_split(free[::-1], 6):
            parts[int(block[0] > 40)].add(X[block], block)
        repeated = copy.deepcopy(start)
        for part in (parts[0], parts[1], parts[0]):
            repeated.add(part.X, part.rows)
        np.testing.assert_array_equal(repeated.rows, start.among(free))
        np.testing.assert_array_equal(repeated.X, X[repeated.rows])
        rows = repeated.suggest(model, adapted, X[[3, 50]])
        np.testing.assert_array_equal(rows, whole.suggest(model, adapted, X[[3, 50]]))
        assert set(rows.tolist()) <= set(free.tolist())
        expected = suggest_labels(model, X, 20, adapted, random_state=7)
        np.testing.assert_array_equal(Candidates(20, 7).add(X, np.arange(len(X))).suggest(model, adapted), expected)


def test_candidates_are_a_random_sample():
    chosen = np.stack([Candidates(4, seed).among(np.arange(10_000)) for seed in range(40)])
    assert chosen.shape == (40, 1024)
    assert len(np.unique(chosen)) > 9700
    # mean of a uniform sample without replacement: 4999.5 with a standard error of 86
    assert np.abs(chosen.mean(axis=1) - 4999.5).max() < 4 * 86
    counts = np.bincount(chosen.ravel(), minlength=10_000)
    assert counts.var() == pytest.approx(40 * 0.1024 * 0.8976, rel=0.1)


def test_mistakes_in_blocks_are_named(problem):
    model, X, _ = problem
    rows = np.arange(len(X))
    with pytest.raises(ValueError, match="rows has 3 numbers"):
        Candidates(4).add(X, rows[:3])
    with pytest.raises(ValueError, match="X_pool cannot be used"):
        Candidates(4).suggest(model)
