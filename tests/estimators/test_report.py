"""The report of an adaptation: always there, made when it is asked for, honest about what labels cannot tell."""

from __future__ import annotations

import functools
import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pro2
from pro2 import PriorFamily, ProjectAndProbe
from pro2.estimators.diagnosis import diagnose, plot_diagnosis
from pro2.estimators.report import EXCESS, GROWTH, AdaptationReport, LearningCurve, ReportInputs, _interval, fit_curve
from pro2.linalg.labelled import Labelled
from tests.estimators.test_adaptation import make_data

WAYS = {
    "default": {},
    "fixed": {"l2": 0.1, "n_features": 4},
    "fixed penalty": {"l2": 0.1},
    "fixed length": {"n_features": 4},
    "leave-one-out": {"l2": "loo", "n_features": "loo"},
}
SCALES = {f"{way}, {scale}": {**WAYS[way], "scale": scale} for way in ("default", "fixed") for scale in ("unit", None)}


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def rows(request):
    X, y = make_data(request.param, labels=["cat", "dog", "owl"])
    return X[:600], y[:600], X[600:], y[600:]


@pytest.fixture(scope="module")
def adapted(rows):
    """The classifier that a way to adapt makes of 24 labels, once."""
    Xs, ys, X, y = rows
    return functools.cache(lambda way: ProjectAndProbe(**(WAYS | SCALES)[way]).fit(Xs, ys).adapt(X[:24], y[:24]))


def check(report: AdaptationReport, n: int, n_classes: int) -> None:
    assert report.n_labels == n
    assert 0 <= report.accuracy_interval[0] <= report.accuracy <= report.accuracy_interval[1] <= 1
    assert 0 <= report.source_accuracy <= 1
    assert 0 <= report.agreement <= 1
    assert 1 / n_classes <= report.confidence <= 1
    assert sum(report.counts) == n == report.confusion.sum() == len(report.surprising)
    assert sum(report.shares) == pytest.approx(1.0)
    assert str(n) in str(report)
    assert report.verdict() in str(report)
    assert sum(share for *_, share in report.reliability) == pytest.approx(1.0)
    assert sum(sure * share for sure, _, share in report.reliability) == pytest.approx(report.confidence)
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize("way", WAYS | SCALES)
def test_there_is_a_report_whatever_was_fixed(rows, adapted, way):
    X, y = rows[2:]
    adapted = adapted(way)
    report = adapted.report_
    check(report, 24, len(adapted.classes_))
    assert report is adapted.report_
    assert report.accuracy_interval[0] - 0.05 <= adapted.score(X[24:], y[24:]) <= report.accuracy_interval[1] + 0.05
    if way.startswith("default"):
        assert sum(m["weight"] for m in report.members) == pytest.approx(1.0)
        assert 1 <= report.effective_features <= X.shape[1]
        assert report.mean_shift >= 0
        assert report.l2 is report.n_features is None
    else:
        assert (report.n_features, report.l2) == (adapted.n_features_, adapted.l2_)
        assert report.members == []


def test_both_steps_in_one_fit_leave_a_report_that_files_carry(rows, adapted, tmp_path):
    Xs, ys, X, y = rows
    domain = np.r_[np.ones(len(ys)), -np.ones(24)]
    both = ProjectAndProbe().fit(np.vstack([Xs, X[:24]]), np.r_[ys, y[:24]], sample_domain=domain)
    again = pro2.load(both.save(tmp_path / "m"))
    assert both.report_.to_dict() == adapted("default").report_.to_dict() == again.report_.to_dict()
    both.fit(Xs, ys)
    assert not hasattr(both, "report_")


def test_a_source_model_has_no_report(rows):
    with pytest.raises(AttributeError, match="report_ exists after an adaptation"):
        ProjectAndProbe().fit(*rows[:2]).report_  # noqa: B018


@pytest.mark.parametrize("way", WAYS)
def test_files_and_pickles_carry_it(adapted, way, tmp_path):
    adapted = adapted(way)
    for other in (pro2.load(adapted.save(tmp_path / "m")), pickle.loads(pickle.dumps(adapted))):
        assert other.report_.to_dict() == adapted.report_.to_dict()
        assert str(other.report_) == str(adapted.report_)


def test_it_is_made_when_it_is_first_asked_for(rows, monkeypatch):
    Xs, ys, X, y = rows
    made, make = [], ReportInputs.report
    monkeypatch.setattr(ReportInputs, "report", lambda self, adapted: made.append(1) or make(self, adapted))
    adapted = ProjectAndProbe().fit(Xs, ys).adapt(X[:24], y[:24])
    adapted.predict_proba(X)
    assert not made
    adapted.report_, adapted.report_  # noqa: B018
    assert made == [1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("sampling", "labels", "why"),
    [
        ("suggested", "24", "suggested"),
        ("auto", "one", "one label"),
        ("auto", "one class", "all labels are of one class"),
        ("auto", "one of each class", "label a second row of each class"),
    ],
)
def test_an_accuracy_that_the_labels_cannot_tell_is_withheld(rows, way, sampling, labels, why):
    Xs, ys, X, y = rows
    few = {
        "24": range(24),
        "one": [0],
        "one class": np.flatnonzero(y == y[0])[:5],
        "one of each class": [np.flatnonzero(y == name)[0] for name in np.unique(y)],
    }
    model = ProjectAndProbe(label_sampling=sampling, **WAYS[way]).fit(Xs, ys)
    report = model.adapt(X[few[labels]], y[few[labels]]).report_
    assert math.isnan(report.accuracy)
    assert report.accuracy_interval == (0.0, 1.0)
    assert why in report.verdict()
    assert report.verdict().startswith("No accuracy estimate: ")
    assert "%" not in report.verdict()


def test_few_labels_ask_for_more(rows):
    Xs, ys, X, y = rows
    report = ProjectAndProbe().fit(Xs, ys).adapt(X[:8], y[:8]).report_
    assert report.verdict().startswith("Label more rows: with 8 labels")


def test_without_a_learning_curve_it_says_nothing_about_more_labels(rows):
    Xs, ys, X, y = rows
    few = np.concatenate([np.flatnonzero(y == name)[: 3 if name == "cat" else 12] for name in np.unique(y)])
    few = np.concatenate([few, np.flatnonzero(y == "dog")[12:20]])
    report = replace(ProjectAndProbe().fit(Xs, ys).adapt(X[few], y[few]).report_, source_accuracy=0.0)
    assert report.learning_curve is None
    assert report.n_labels >= 20
    assert "Four labels of each class" in report.verdict()
    assert "change little" not in report.verdict()


def test_leave_one_out_accuracy_tells_the_truth():
    X, y = make_data(N=3000)
    model, held = ProjectAndProbe().fit(X[:600], y[:600]), 0
    for start in range(600, 1600, 100):
        adapted = model.adapt(X[start : start + 100], y[start : start + 100])
        low, high = adapted.report_.accuracy_interval
        held += low <= adapted.score(X[1600:], y[1600:]) <= high
    assert held >= 8


def test_the_accuracy_allows_for_what_the_held_out_labels_would_add():
    X, y = make_data()
    report = ProjectAndProbe(label_sampling="random").fit(X[:600], y[:600]).adapt(X[640:656], y[640:656]).report_
    found = report.label_weights @ (report.label_probabilities > 0.5)  # of two classes
    assert found < 1
    assert report.accuracy == pytest.approx(found + (1 - found) * (1 - (1 - 1 / 16) ** GROWTH))


@pytest.mark.parametrize(("sampling", "whole"), [("by_class", True), ("random", False)])
def test_labels_drawn_class_by_class_are_held_out_one_of_each_class(rows, monkeypatch, sampling, whole):
    Xs, ys, X, y = rows
    few = np.concatenate([np.flatnonzero(y == name)[:5] for name in np.unique(y)])
    seen, blocks = [], Labelled.blocks
    monkeypatch.setattr(Labelled, "blocks", lambda *args: seen.append((args[0].y, blocks(*args))) or seen[-1][1])
    ProjectAndProbe(label_sampling=sampling).fit(Xs, ys).adapt(X[few], y[few]).report_  # noqa: B018
    assert seen
    for codes, block in seen:
        complete = [len(np.unique(codes[block == each])) == len(np.unique(y)) for each in np.unique(block)]
        assert all(complete) == whole


@pytest.mark.parametrize("hard", [0.0, 0.4])
def test_the_interval_knows_that_class_shares_are_unknown(hard):
    """Accuracies a of two classes with shares (s, 1 - s), s ~ Beta(2, 2) of variance 1 / 20."""
    y = np.arange(4000) % 2
    right = np.where(y == 1, np.arange(4000) % 10 >= 10 * hard + 1, np.arange(4000) % 10 >= 1).astype(float)
    w = np.full(4000, 1 / 4000)

    def variance(by_class, gain=0.0):
        low, high = _interval(y, w, right, np.array([0.5, 0.5]), by_class, gain)
        return ((high - low) / 2 / 1.96) ** 2

    p = right.mean()
    assert variance(0.0) == pytest.approx(EXCESS * p * (1 - p) / 4000, rel=0.01)
    difference = np.mean(right[y == 0]) - np.mean(right[y == 1])
    assert variance(1.0) == pytest.approx(variance(0.0) + difference**2 / 20, rel=0.05)
    assert variance(0.0, 0.01) == pytest.approx(variance(0.0) + 0.01**2, rel=0.1)


def test_the_interval_holds_the_accuracy_it_is_of():
    for n in (2, 5, 50):
        for hits in range(n + 1):
            right, w, y = (np.arange(n) < hits).astype(float), np.full(n, 1 / n), np.arange(n) % 2
            low, high = _interval(y, w, right, np.array([0.5, 0.5]), 1.0, 0.05 * (1 - hits / n))
            assert 0 <= low <= hits / n + 0.05 * (1 - hits / n) <= high <= 1
            assert high - low > 0.5 / n


def test_the_order_of_the_rows_does_not_change_the_estimates(rows):
    Xs, ys, X, y = rows
    model, order = ProjectAndProbe().fit(Xs, ys), np.random.default_rng(0).permutation(24)
    one, other = model.adapt(X[:24], y[:24]).report_, model.adapt(X[:24][order], y[:24][order]).report_
    for name in ("accuracy", "log_loss", "confidence"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), abs=1e-9), name


@pytest.mark.filterwarnings("error")
def test_a_source_that_never_moves_has_no_shift_of_the_mean():
    X, y = np.ones((40, 6)), np.arange(40) % 2
    report = ProjectAndProbe().fit(X, y).adapt(X[:8], y[:8]).report_
    assert np.isnan(report.mean_shift)
    assert report.n_labels == 2  # equal rows are one
    assert "one label of each class" in report.withheld


def test_row_numbers_of_the_surprising_are_those_of_the_caller():
    """Rows that were merged, weightless or unlabelled must not move the numbers of the others."""
    X, y = make_data(N=900)
    model = ProjectAndProbe().fit(X[:600], y[:600])
    sure = 600 + np.argsort(-np.abs(model.decision_function(X[600:])))
    few = sure[model.predict(X[sure]) == y[sure]][:40]
    rows = np.r_[few[1], few[1], few]
    labels = y[rows].copy()
    labels[2] = 1 - labels[2]
    report = model.adapt(X[rows], labels, np.r_[1.0, 0.0, np.ones(40)]).report_
    assert report.surprising[0] == 2  # which has a wrong label
    assert report.n_labels == 40


@pytest.mark.parametrize("n", [6, 9, 24])
@pytest.mark.parametrize("l2", [1e-3, 10.0, 1e6])
def test_a_strong_penalty_on_the_papers_probe_is_no_error(rows, l2, n):
    """A row that leaves makes its class rarer: where scores were small, left-out answers were always wrong."""
    Xs, ys, X, y = rows
    few = np.concatenate([np.flatnonzero(y == name)[: n + k] for k, name in enumerate(np.unique(y))])
    adapted = ProjectAndProbe(n_features=3, l2=l2).fit(Xs, ys).adapt(X[few], y[few])
    fit = adapted._inputs.fit
    alone = [fit.without(np.array([i]))[1].argmax() == fit.labelled.y[i] for i in range(len(few))]
    assert adapted.report_.accuracy == pytest.approx(np.mean(alone), abs=0.05)


@pytest.mark.parametrize("out", [[3], [24], [3, 24]])
def test_a_row_leaves_with_its_copies_whichever_is_named(rows, out):
    Xs, ys, X, y = rows
    twice = np.append(np.arange(24), 3)  # the last is a copy of row 3
    model = ProjectAndProbe(priors=PriorFamily(tolerance=1e9)).fit(Xs, ys)
    without, others = (
        model.adapt(X[twice], y[twice]).without(out),
        model.adapt(np.delete(X[:24], 3, 0), np.delete(y[:24], 3)),
    )
    np.testing.assert_allclose(without.coef_, others.coef_, atol=1e-10)
    with pytest.raises(ValueError, match=r"numbers of the 25 labelled rows, from 0, got \[25\]"):
        model.adapt(X[twice], y[twice]).without([25])


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_adapt_can_leave_labels_out(rows, adapted, way):
    X, y = rows[2:]
    adapted = adapted(way)
    without = adapted.without(range(12))
    assert without.classes_.tolist() == adapted.classes_.tolist()
    assert without.score(X[24:], y[24:]) > 0.5
    with pytest.raises(ValueError, match="rows has all 24 labelled rows"):
        adapted.without(range(24))
    for bad in ([-1], [1.5], "a", 3, np.arange(24) < 2):
        with pytest.raises(ValueError, match="rows must be numbers"):
            adapted.without(bad)
    with pytest.raises(AttributeError, match="files and copies do not carry them"):
        pickle.loads(pickle.dumps(adapted)).without([0])


def test_one_class_with_one_label_does_not_make_it_the_report_of_the_source():
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(5, 16))
    y = np.arange(1000) % 5
    X = centres[y] + rng.normal(size=(1000, 16))
    # on the target the classes have changed places
    model, moved = ProjectAndProbe().fit(X, y), (y + 1) % 5
    few = np.concatenate([np.flatnonzero(moved == k)[: 6 if k else 1] for k in range(5)])
    adapted = model.adapt(X[few], moved[few])
    assert adapted.report_.source_accuracy < 0.2
    assert adapted.report_.accuracy > 0.7


def test_html_is_escaped():
    X, y = make_data(labels=["<b>cat</b>", "dog"])
    report = ProjectAndProbe().fit(X[:600], y[:600]).adapt(X[600:616], y[600:616]).report_
    assert "<b>cat</b>" in str(report)
    assert "<b>cat</b>" not in report._repr_html_()


def test_the_verdict_never_asks_for_no_rows():
    curve = fit_curve(np.array([1.0, 2.0, 4.0]), np.array([0.8, 0.57, 0.4]), np.full(3, 24.0))
    X, y = make_data()
    report = ProjectAndProbe().fit(X[:600], y[:600]).adapt(X[600:616], y[600:616]).report_
    report = replace(report, n_labels=24, accuracy=0.6, counts=[4, 20], source_accuracy=0.5, learning_curve=curve)
    assert 0 < 2 * curve.labels_for(1.0) < 0.5
    assert "Labelling 1 more row should" in report.verdict()


def test_learning_curve_recovers_its_own_law():
    n = np.array([4.0, 8.0, 16.0])
    curve = fit_curve(n, 0.05 + 0.4 / np.sqrt(n), np.array([500.0, 500.0, 500.0]))
    assert curve.floor == pytest.approx(0.05, abs=1e-9)
    assert curve.accuracy_at(64) == pytest.approx(0.90)
    assert curve.labels_for(2.0) == pytest.approx((0.4 / 0.08) ** 2 - 16)
    assert LearningCurve(n, n, n, 0.1, 0.0, 0.0).labels_for(1.0) == math.inf


def test_the_curve_is_drawn(rows):
    pytest.importorskip("matplotlib").use("agg")
    Xs, ys, X, y = rows
    report = ProjectAndProbe().fit(Xs, ys).adapt(X[:60], y[:60]).report_
    assert report.learning_curve is not None
    assert report.plot().get_xlabel() == "labels per class"
    with pytest.raises(ValueError, match="at least four labels"):
        replace(report, learning_curve=None).plot()


# ---- diagnosis

COV = 0.3 * np.random.default_rng(0).standard_normal((20, 20)) + np.eye(20)


def draw(n: int, shift: float = 0.0, seed: int = 0, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes; the shift moves every mean along one fixed direction and widens another."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    Z = rng.standard_normal((n, 20))
    Z[:, 0] += 2 * y + shift
    Z[:, 1] *= 1 + shift
    return Z @ COV.T, y


def test_a_shift_is_told_from_none() -> None:
    model = ProjectAndProbe().fit(*draw(2000))
    near = [diagnose(model, *draw(40, seed=seed)).report for seed in range(1, 9)]
    assert sum(report.mean_shift < report.mean_shift_by_chance[1] for report in near) >= 6
    assert "no further from" in str(near[0])
    far = diagnose(model, *draw(40, shift=2.0, seed=9)).report
    assert far.mean_shift > far.mean_shift_by_chance[1]


@pytest.mark.parametrize("n_rows", [4, 30])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_parts_fit_together(n_classes: int, n_rows: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model = ProjectAndProbe().fit(*draw(600, n_classes=n_classes))
    X, y = draw(n_rows, shift=1.0, seed=3, n_classes=n_classes)
    result = diagnose(model, X, y)
    assert result.to_dict()["report"] == model.adapt(X, y).report_.to_dict()
    assert result.features_needed in result.n_features
    assert len(result.n_features) == len(result.loo_loss) == len(result.loo_stderr)
    assert str(result).endswith(f"features needed: {result.features_needed}")
    assert plot_diagnosis(result, tmp_path / "d.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_a_model_without_moments_has_a_figure_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    X, y = draw(600)
    fixed = diagnose(ProjectAndProbe(l2=0.1, solver="logistic", n_components=4).fit(X, y), X[:20], y[:20])
    assert plot_diagnosis(fixed, tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_classes_are_refused() -> None:
    X, y = draw(100)
    with pytest.raises(ValueError, match="y_target has classes"):
        diagnose(ProjectAndProbe().fit(X, y), X, y + 5)
