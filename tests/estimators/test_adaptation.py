"""The untuned default of adapt: laws, reports, unlabelled rows, and real embeddings where they are at hand."""

import math

import numpy as np
import pytest
from pro2.estimators.adaptation_report import LearningCurve, fit_curve, wilson_interval

from pro2.estimators import ProjectAndProbe
from pro2.estimators.adaptation import class_shift


def _data(n_classes=2, N=900, D=16, seed=0, labels=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, N)
    mean = np.random.default_rng(7).normal(size=(n_classes, D)) * 0.5
    X = mean[y] + rng.normal(size=(N, D)) * np.linspace(0.5, 2.0, D)
    return X, (y if labels is None else np.asarray(labels)[y])


@pytest.fixture(scope="module")
def binary():
    X, y = _data()
    return ProjectAndProbe().fit(X[:600], y[:600]), X[600:], y[600:]


@pytest.fixture(scope="module")
def three():
    X, y = _data(3, labels=["cat", "dog", "owl"])
    return ProjectAndProbe().fit(X[:600], y[:600]), X[600:], y[600:]


@pytest.mark.parametrize("case", ["binary", "three"])
def test_adapted_is_one_affine_map_with_a_report(case, request):
    model, X, y = request.getfixturevalue(case)
    adapted = model.adapt(X[:24], y[:24])
    logits = X @ adapted.coef_.T + adapted.intercept_
    expected = logits[:, 0] if len(adapted.classes_) == 2 else logits
    np.testing.assert_allclose(adapted.decision_function(X), expected, atol=1e-10)
    report = adapted.report_
    assert report.n_labels == 24
    assert sum(r["weight"] for r in report.candidates) == pytest.approx(1.0)
    assert 0 <= report.loo_interval[0] <= report.loo_accuracy <= report.loo_interval[1] <= 1
    assert 0 <= report.shift_severity <= 1
    assert 1 <= report.n_features <= X.shape[1]
    assert "leave-one-out accuracy" in str(report)


@pytest.mark.parametrize("case", ["binary", "three"])
def test_adapting_to_the_source_itself_keeps_its_accuracy(case, request):
    model, X, y = request.getfixturevalue(case)
    shortfall = []
    for start in range(0, 60, 6):
        few = np.arange(start, start + 6)
        rest = np.setdiff1d(np.arange(len(y)), few)
        adapted = model.adapt(X[few], y[few])
        shortfall.append(model.score(X[rest], y[rest]) - adapted.score(X[rest], y[rest]))
    assert np.mean(shortfall) < 0.04


def test_leave_one_out_accuracy_tells_the_truth(binary):
    model, X, y = binary
    adapted = model.adapt(X[:100], y[:100])
    low, high = adapted.report_.loo_interval
    assert low <= adapted.score(X[100:], y[100:]) <= high


def test_all_components_or_a_rotation_of_them_give_one_answer(binary):
    _, X, y = binary
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(16, 16)))
    source, t = _data()
    a = ProjectAndProbe(scale="global").fit(source[:600], t[:600]).adapt(X[:12], y[:12])
    b = ProjectAndProbe(scale="global").fit(source[:600] @ Q, t[:600]).adapt(X[:12] @ Q, y[:12])
    np.testing.assert_allclose(b.coef_, a.coef_ @ Q, atol=1e-6)


def test_fewer_components_keep_the_head_in_their_span():
    X, y = _data()
    model = ProjectAndProbe(n_components=3).fit(X[:600], y[:600])
    adapted = model.adapt(X[600:616], y[600:616])
    scaled = adapted.coef_[0] * model.projection_.scale_
    B = model.projection_.components_
    np.testing.assert_allclose(scaled @ B.T @ B, scaled, atol=1e-9)


def test_fixed_options_and_validation_rows_go_the_tuned_way(binary):
    _, X, y = binary
    source, t = _data()
    fixed = ProjectAndProbe(l2=0.1, n_features=2).fit(source[:600], t[:600]).adapt(X[:12], y[:12])
    assert fixed.n_features_ == 2
    tuned = ProjectAndProbe().fit(source[:600], t[:600]).adapt(X[:12], y[:12], X_val=X[12:40], y_val=y[12:40])
    assert not hasattr(tuned, "report_")


def test_one_class_of_labels_and_missing_classes_stay_defined(three):
    model, X, y = three
    only = np.flatnonzero(y == "cat")[:4]
    P = model.adapt(X[only], y[only]).predict_proba(X)
    assert np.all(np.isfinite(P))
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert P[:, 1:].max() > 0


def test_weights_count_as_repetition(binary):
    model, X, y = binary
    w = np.r_[2.0, np.ones(9)]
    a = model.adapt(X[:10], y[:10], sample_weight=w)
    b = model.adapt(np.vstack([X[:1], X[:10]]), np.r_[y[:1], y[:10]])
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-5)


def test_unlabelled_rows_recover_the_class_shares(binary):
    model, X, y = binary
    few = np.concatenate([np.flatnonzero(y == k)[:20] for k in (0, 1)])
    rest = np.setdiff1d(np.arange(len(y)), few)
    rare = np.concatenate([rest[y[rest] == 0], rest[y[rest] == 1][:8]])
    plain = model.adapt(X[few], y[few])
    with_rows = model.adapt(X[few], y[few], X_unlabeled=X[rare])
    assert with_rows.score(X[rare], y[rare]) >= plain.score(X[rare], y[rare])
    assert with_rows.intercept_[0] < plain.intercept_[0]
    np.testing.assert_array_equal(with_rows.coef_, plain.coef_)


def test_class_shift_is_nothing_where_shares_agree():
    rng = np.random.default_rng(0)
    logits = np.r_[rng.normal(4, 1, 500), rng.normal(-4, 1, 500)]
    assert abs(class_shift(logits, np.array([0.5, 0.5]), 40)) < 0.05


def test_without_labels_changed_features_lose_their_rank(binary):
    model, X, _ = binary
    U = X.copy()
    direction = model.projection_.components_[0] / np.linalg.norm(model.projection_.components_[0])
    scaled = (U - model.projection_.mean_) / model.projection_.scale_
    scaled = scaled + 9.0 * np.outer(scaled @ direction, direction)
    U = scaled * model.projection_.scale_ + model.projection_.mean_
    report = model.adapt(None, None, X_unlabeled=U).report_
    assert report.n_labels == 0
    assert report.stability[0] < 0.1
    assert report.ranking[0] != 0
    same = model.adapt(None, None, X_unlabeled=X).report_
    assert same.ranking[0] == 0


def test_no_target_at_all_is_an_error(binary):
    model, *_ = binary
    with pytest.raises(ValueError, match="X_target is None"):
        model.adapt(None, None)


def test_wilson_interval_at_the_edges():
    low, high = wilson_interval(1.0, 4)
    assert high == 1.0
    assert 0.4 < low < 0.6


def test_learning_curve_recovers_its_own_law():
    n = np.array([4.0, 8.0, 16.0])
    curve = fit_curve(n, 0.05 + 0.4 / np.sqrt(n), np.array([500.0, 500.0, 500.0]))
    assert curve.floor == pytest.approx(0.05, abs=1e-9)
    assert curve.accuracy_at(64) == pytest.approx(0.90)
    assert curve.labels_for(2.0) == pytest.approx((0.4 / 0.08) ** 2 - 16)
    assert LearningCurve(n, n, n, 0.1, 0.0, 0.0).labels_for(1.0) == math.inf


def test_real_embeddings_reach_the_bar(real_data):
    """Waterbirds, 2 labels a class: far above the linear probe and no worse than the source head (mean of targets)."""
    z = np.load(real_data / "waterbirds.npz")
    X, y, place, split = z["embeddings"].astype(np.float32), z["y"].astype(int), z["place"].astype(int), z["split"]
    model = ProjectAndProbe(n_components=None).fit(X[split == 0], y[split == 0])
    test = np.flatnonzero(split == 2)
    gains, accuracy = [], []
    for rows in (test[y[test] == place[test]], test[y[test] != place[test]]):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            few = np.concatenate([rng.permutation(rows[y[rows] == c])[:2] for c in (0, 1)])
            rest = np.setdiff1d(rows, few)
            accuracy.append(model.adapt(X[few], y[few]).score(X[rest], y[rest]))
            gains.append(accuracy[-1] - model.score(X[rest], y[rest]))
    assert np.mean(gains) > -0.005
    assert np.mean(accuracy) > 0.85
