"""What a user is promised: one affine map, an unchanged model, honest errors, and scikit-learn's company."""

import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight

import pro2
from pro2 import Probe
from pro2.estimators import probe as probe_module


def shifted(rng, n: int, K: int = 2, D: int = 10, flip: bool = False):
    """Two class signals; the first one changes its meaning in the target."""
    y = rng.integers(0, K, n)
    X = rng.normal(size=(n, D))
    X[:, :K] += 3 * np.eye(K)[np.roll(np.arange(K), flip)[y]]
    X[:, K : 2 * K] += 1.5 * np.eye(K)[y]
    return X, y


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture(params=[2, 4])
def parts(request, rng):
    K = request.param
    return *shifted(rng, 400, K), *shifted(rng, 24 * K, K, flip=True), *shifted(rng, 300, K, flip=True)


def test_adapted_is_one_affine_map(parts):
    Xs, ys, Xt, yt, X, _ = parts
    adapted = pro2.ProjectAndProbe(l2=0.1, n_features=5).fit(Xs, ys).adapt(Xt, yt)
    logits = X @ adapted.coef_.T + adapted.intercept_
    logits = np.hstack([np.zeros_like(logits), logits]) if len(adapted.classes_) == 2 else logits
    np.testing.assert_array_equal(adapted.predict(X), adapted.classes_[logits.argmax(1)])
    proba = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(adapted.predict_proba(X), proba / proba.sum(1, keepdims=True), atol=1e-12)


def test_fixed_options_are_projection_then_probe(parts):
    Xs, ys, Xt, yt, X, _ = parts
    adapted = pro2.ProjectAndProbe(l2=0.1, n_features=3).fit(Xs, ys).adapt(Xt, yt)
    projection = pro2.Projection(10).fit(Xs, ys)
    probe = pro2.Probe(l2=0.1, n_features=3).fit(projection.transform(Xt), yt)
    np.testing.assert_allclose(adapted.predict_proba(X), probe.predict_proba(projection.transform(X)), atol=1e-8)


def test_adapting_changes_neither_model_nor_inputs(parts):
    Xs, ys, Xt, yt, X, _ = parts
    model = pro2.ProjectAndProbe().fit(Xs, ys)
    before, Xt0, yt0 = model.predict_proba(X), Xt.copy(), yt.copy()
    model.adapt(Xt, yt)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_array_equal(Xt, Xt0)
    np.testing.assert_array_equal(yt, yt0)


def test_sample_domain_does_both_steps_in_one_call(parts):
    Xs, ys, Xt, yt, X, _ = parts
    both = pro2.ProjectAndProbe().fit(
        np.vstack([Xt, Xs]), np.r_[yt, ys], sample_domain=np.r_[-np.ones(len(yt)), np.ones(len(ys))]
    )
    two = pro2.ProjectAndProbe().fit(Xs, ys).adapt(Xt, yt)
    np.testing.assert_allclose(both.predict_proba(X), two.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "use"),
    [
        (pro2.ProjectAndProbe, lambda m, X, y: m.predict(X)),
        (pro2.ProjectAndProbe, lambda m, X, y: m.adapt(X, y)),
        (pro2.Projection, lambda m, X, y: m.transform(X)),
    ],
)
def test_what_waits_for_a_second_class_says_so(rng, estimator, use):
    X, y = shifted(rng, 40)
    waiting = estimator().partial_fit(X, np.zeros(40, dtype=int))
    with pytest.raises(NotFittedError, match="y of one class only"):
        use(waiting, X, y)
    assert use(waiting.partial_fit(X, y), X, y) is not None


def test_a_source_of_fewer_rows_than_features_takes_three_copies_of_them(rng):
    """In float64, and no D x D matrix at all."""
    X, y = rng.normal(size=(300, 3000)).astype(np.float32), np.arange(300) % 2
    pro2.ProjectAndProbe().fit(X[:20], y[:20])
    tracemalloc.start()
    try:
        pro2.ProjectAndProbe().fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * 8 * X.size


@pytest.mark.parametrize("estimator", [pro2.ProjectAndProbe(), pro2.Projection(4)])
def test_partial_fit_equals_fit(parts, estimator):
    Xs, ys, Xt, yt, *_ = parts
    whole, pieces = clone(estimator).fit(Xs, ys), clone(estimator)
    order = np.argsort(ys, kind="stable")  # the first batch has one class only
    for i in range(0, len(ys), 50):
        pieces.partial_fit(Xs[order[i : i + 50]], ys[order[i : i + 50]])
    if isinstance(estimator, pro2.Projection):
        np.testing.assert_allclose(pieces.transform(Xt), whole.transform(Xt), atol=1e-9)
    else:
        np.testing.assert_allclose(pieces.adapt(Xt, yt).coef_, whole.adapt(Xt, yt).coef_, atol=1e-4)


@pytest.mark.parametrize("estimator", [pro2.ProjectAndProbe(), pro2.Projection()])
def test_rows_that_could_not_be_learned_from_are_not_counted(parts, estimator):
    Xs, ys, *_ = parts
    estimator = clone(estimator).set_params(n_components=1000)
    with pytest.raises(ValueError, match="n_components"):
        estimator.partial_fit(Xs, ys)
    estimator.set_params(n_components=3).partial_fit(Xs, ys)
    moments = estimator.moments_ if hasattr(estimator, "moments_") else estimator.source_moments_
    assert moments.total_weight == len(Xs)


@pytest.mark.parametrize(
    ("estimator", "step"),
    [
        (pro2.ProjectAndProbe(), "fit"),
        (pro2.ProjectAndProbe(), "partial_fit"),
        (pro2.Projection(), "fit"),
        (pro2.Projection(), "partial_fit"),
        (pro2.Projection(2, "logistic"), "fit"),
    ],
)
def test_a_class_of_weight_zero_is_absent_from_every_step(parts, estimator, step):
    Xs, ys, *_ = parts
    weight = (ys > 0) + (ys == 0) * 2.0
    more, labels = np.vstack([Xs, Xs[:5] + 9.0]), np.append(ys, np.full(5, 99))
    found = getattr(clone(estimator), step)(more, labels, sample_weight=np.append(weight, np.zeros(5)))
    without = getattr(clone(estimator), step)(Xs, ys, sample_weight=weight)
    assert found.classes_.tolist() == np.unique(ys).tolist()
    found, without = (getattr(each, "projection_", each).components_ for each in (found, without))
    np.testing.assert_allclose(found, without, atol=1e-9)
    with pytest.raises(ValueError, match="sample_weight must be 0 or in"):
        getattr(clone(estimator), step)(Xs, ys, sample_weight=1e-200 * weight)


def test_bare_definition_has_no_scaling(parts):
    Xs, ys, *_ = parts
    p = pro2.Projection(3, ridge=0, scale=None).fit(Xs, ys)
    np.testing.assert_allclose(p.transform(Xs), (Xs - Xs.mean(0)) @ p.components_.T, atol=1e-10)


@pytest.mark.parametrize("scale", ["auto", None, "global", "standard", "unit"])
def test_labels_help_at_every_scale(parts, scale):
    Xs, ys, Xt, yt, X, y = parts
    model = pro2.ProjectAndProbe(scale=scale).fit(Xs, ys)
    assert model.adapt(Xt, yt).score(X, y) > model.score(X, y) + 0.2


@pytest.mark.parametrize("dtype", [np.float16, np.int64])
def test_other_number_types(parts, dtype):
    Xs, ys, Xt, yt, X, y = ((10 * a).astype(dtype) if a.ndim == 2 else a for a in parts)
    adapted = pro2.ProjectAndProbe().fit(Xs, ys).adapt(Xt, yt)
    assert adapted.score(X, y) > 0.6


def test_a_feature_constant_in_source_and_alive_in_target_stays_tame(parts, rng):
    Xs, ys, Xt, yt, X, y = parts
    dead = lambda A, v: np.hstack([A, v])  # noqa: E731
    model = pro2.ProjectAndProbe().fit(dead(Xs, np.ones((len(Xs), 1))), ys)
    adapted = model.adapt(dead(Xt, rng.normal(size=(len(Xt), 1)) * 0.1), yt)
    assert adapted.score(dead(X, rng.normal(size=(len(X), 1)) * 0.1), y) > 0.6


def test_validation_rows_choose(parts):
    Xs, ys, Xt, yt, X, y = parts
    model = pro2.ProjectAndProbe().fit(Xs, ys)
    chosen = model.adapt(Xt, yt, X_val=X, y_val=y)
    grid = [pro2.ProjectAndProbe(n_features=d).fit(Xs, ys).adapt(Xt, yt, X_val=X, y_val=y) for d in (1, 4, 10)]
    assert chosen.score(X, y) >= max(g.score(X, y) for g in grid)


MISTAKES = {
    "unknown class": (lambda m, X, y: m.adapt(X, y + 7), "that the source does not have"),
    "width": (lambda m, X, y: m.adapt(X[:, :3], y), "embed it with the same backbone"),
    "length": (lambda m, X, y: m.adapt(X, y[:-1]), "y_target has 399 entries but there are 400 rows"),
    "nan": (lambda m, X, y: m.adapt(np.where(X > 2, np.nan, X), y), "NaN"),
    "empty": (lambda m, X, y: m.adapt(X[:0], y[:0]), "0 sample"),
    "no label": (lambda m, X, y: m.adapt(X, y * np.nan), "y_target has no label at all"),
    "labels None": (lambda m, X, y: m.adapt(X, None), "y_target is None"),
    "nan label in the source": (lambda m, X, y: m.fit(X, np.where(y > 0, np.nan, y)), "y contains NaN or None"),
    "unlabelled with a fixed penalty": (
        lambda m, X, y: pro2.ProjectAndProbe(l2=0.1).fit(X, y).adapt(X, y, X_unlabeled=X),
        "X_unlabeled needs l2='auto'",
    ),
    "weights": (lambda m, X, y: m.adapt(X, y, np.zeros(len(y))), "sample_weight must be finite"),
    "sampling": (lambda m, X, y: pro2.ProjectAndProbe(label_sampling="all").fit(X, y), "label_sampling must be"),
    "penalty by name": (lambda m, X, y: pro2.ProjectAndProbe(l2="cv").fit(X, y).adapt(X, y), "l2 must be"),
    "half validation": (lambda m, X, y: m.adapt(X, y, X_val=X), "give both or neither"),
    "domain": (lambda m, X, y: m.fit(X, y, sample_domain=np.zeros(len(y))), "non-zero number per row"),
    "no source": (lambda m, X, y: m.fit(X, y, sample_domain=-np.ones(len(y))), "no positive entry"),
    "domain not known": (lambda m, X, y: m.fit(X, y, sample_domain=np.r_[np.nan, np.ones(len(y) - 1)]), "one non-zero"),
    "too wide": (lambda m, X, y: pro2.ProjectAndProbe(n_components=99).fit(X, y), "n_components=99"),
    "sampling set later": (
        lambda m, X, y: m.set_params(label_sampling="x").adapt(X, y),
        "label_sampling must be one of",
    ),
    "penalty": (lambda m, X, y: pro2.ProjectAndProbe(l2=np.inf).fit(X, y).adapt(X, y), "l2 must be"),
    "ridge": (lambda m, X, y: pro2.ProjectAndProbe(ridge=np.nan).fit(X, y), "ridge must be a finite"),
    "scale": (lambda m, X, y: pro2.ProjectAndProbe(scale="std").fit(X, y), "scale must be 'auto' or one of"),
    "solver": (lambda m, X, y: pro2.ProjectAndProbe(solver="sgd").fit(X, y), "solver must be one of"),
    "classes": (lambda m, X, y: m.partial_fit(X, y + 9, classes=np.unique(y)), "y has classes .* not in `classes`"),
    "classes, a number": (lambda m, X, y: m.partial_fit(X, y, classes=5), "not in `classes`"),
    "one class": (lambda m, X, y: pro2.ProjectAndProbe().fit(X, 0 * y), "one class"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_explained(parts, name):
    Xs, ys, *_ = parts
    call, message = MISTAKES[name]
    model = pro2.ProjectAndProbe().fit(Xs, ys)
    with pytest.raises(ValueError, match=message):
        call(model, Xs, ys.astype(float))


# ---- the probe alone


def make_rows(n: int = 80, p: int = 5, K: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return rng.normal(size=(n, p)) + 1.5 * rng.normal(size=(K, p))[y], y


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 0.5}])
def test_it_is_scikit_learns_problem(K, class_weight):
    X, y = make_rows(K=K)
    keep = (y > 0) | (np.arange(len(y)) < 30)  # classes that are not equally common
    X, y = X[keep], y[keep]
    w = np.random.default_rng(1).uniform(0.1, 2.0, len(y))
    if class_weight is not None and K > 2:
        class_weight = class_weight if isinstance(class_weight, str) else {**class_weight, 2: 1.0, 3: 1.0}
    ours = Probe(l2=0.05, n_features=5, class_weight=class_weight).fit(X, y, w)
    total = w.copy() if class_weight is None else w * compute_sample_weight(class_weight, y)
    if class_weight == "balanced":  # by weight
        total = w / np.bincount(y, w)[y]
    theirs = LogisticRegression(C=1 / (0.05 * total.sum()), tol=1e-10, max_iter=5000).fit(X, y, total)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert ours.kkt_ <= 1e-9


def test_validation_rows_choose_for_the_probe():
    X, y = make_rows(200)
    few, val = (X[:20], y[:20]), (X[20:], y[20:])
    chosen = Probe().fit(*few, X_val=val[0], y_val=val[1])
    assert chosen.score(*val) >= Probe().fit(*few).score(*val)


def test_the_prior_mean_of_features_that_are_not_used_plays_no_part():
    rng = np.random.default_rng(5)
    X, y, prior = rng.normal(size=(20, 6)), np.arange(20) % 2, rng.normal(size=6)
    whole = Probe(n_features=3, l2=0.1).fit(X, y, prior_mean=prior)
    short = Probe(n_features=3, l2=0.1).fit(X[:, :3], y, prior_mean=prior[:3])
    np.testing.assert_allclose(whole.predict_proba(X), short.predict_proba(X[:, :3]), atol=1e-9)


def test_what_is_not_solved_is_said(monkeypatch):
    X, y = make_rows()

    solve = probe_module.fit_path
    monkeypatch.setattr(probe_module, "fit_path", lambda *args, **options: solve(*args, **options, max_iter=1))
    with pytest.warns(ConvergenceWarning, match=r"did not converge: relative gradient .* at l2=1e-06"):
        Probe(l2=1e-6, n_features=5).fit(X, y)


@pytest.mark.parametrize("scale", [1 / 16, 16.0])
@pytest.mark.parametrize("K", [2, 3])
def test_scaling_all_weights_changes_nothing(K, scale):
    X, y = make_rows(18, K=K)
    a, b = Probe().fit(X, y), Probe().fit(X, y, np.full(18, scale))
    assert (a.n_features_, a.l2_) == (b.n_features_, pytest.approx(b.l2_))
    np.testing.assert_allclose(a.scores_, b.scores_, atol=1e-7)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"l2": 0.1, "n_features": 3}, {"class_weight": "balanced"}])
def test_weights_are_repetitions_also_in_the_choice(options):
    X, y = make_rows(20)
    w = np.random.default_rng(0).integers(0, 3, 20)
    w[:4] = 1
    at = np.repeat(np.arange(20), w)
    a, b = Probe(**options).fit(X, y, w.astype(float)), Probe(**options).fit(X[at], y[at])
    assert a.n_features_ == b.n_features_
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fit": {"X_val": np.ones((2, 5))}}, "give both or neither"),
        ({"fit": {"sample_weight": np.ones(3)}}, "sample_weight has shape"),
        ({"fit": {"sample_weight": -np.ones(80)}}, "sample_weight must be"),
        ({"fit": {"sample_weight": ["a"] * 80}}, "sample_weight cannot be used"),
        ({"class_weight": {0: -1, 1: 1}}, "class_weight must be"),
        ({"class_weight": {0: np.nan, 1: 1}}, "class_weight must be"),
        ({"fit": {"prior_mean": np.nan * np.ones(5)}}, "prior_mean must be"),
        ({"fit": {"prior_mean": np.ones((2, 5))}}, "prior_mean must be"),
        ({"fit": {"prior_mean": [[1.0], [1.0, 2.0]]}}, "prior_mean must be"),
    ],
)
def test_mistakes_with_a_probe_are_explained(change, message):
    extra = change.pop("fit", {})
    with pytest.raises((ValueError, TypeError), match=message):
        Probe(**change).fit(*make_rows(), **extra)
