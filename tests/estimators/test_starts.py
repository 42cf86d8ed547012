"""Models without source rows: moments, a head alone, nothing but unlabelled rows."""

from __future__ import annotations

import numpy as np
import pytest

import pro2
from pro2 import ProjectAndProbe, SourceMoments
from pro2.linalg.logistic import probabilities

MEANS = np.random.default_rng(3).normal(size=(4, 14))
NAMES = np.array(["ant", "bee", "cat", "dog"])


def rows(K, n, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return MEANS[y] + shift + rng.normal(size=(n, 14)) * np.linspace(0.5, 2.0, 14), NAMES[y]


@pytest.fixture(scope="module", params=[2, 4])
def case(request):
    K = request.param
    return K, rows(K, 600), rows(K, 5 * K, seed=1, shift=0.3), rows(K, 800, seed=2, shift=0.3)


@pytest.fixture(scope="module")
def head(case):
    return ProjectAndProbe().fit(*case[1]).source_head_


@pytest.fixture(scope="module")
def model(case, head):
    return ProjectAndProbe.from_head(head.coef_, head.intercept_, head.classes_, case[3][0])


class TestMoments:
    """The headline from streamed, merged or stored moments."""

    def test_merged_moments_adapt_as_rows_do(self, case):
        _, (X, y), few, test = case
        merged = SourceMoments.from_arrays(X[:200], y[:200]) + SourceMoments.from_arrays(X[200:], y[200:])
        whole = ProjectAndProbe().fit(X, y)
        for model in (ProjectAndProbe.from_moments(merged), ProjectAndProbe().fit_moments(merged)):
            np.testing.assert_allclose(model.predict_proba(test[0]), whole.predict_proba(test[0]), atol=1e-8)
            np.testing.assert_allclose(model.adapt(*few).coef_, whole.adapt(*few).coef_, atol=1e-6)

    def test_a_class_without_rows_lies_nowhere_in_particular(self):
        """It once lay at the origin, however far that was from all rows, and as common as a millionth."""
        X, y = rows(4, 600)
        few, names = rows(4, 20, seed=1)
        found = []
        for offset in (0.0, 1e3):
            moments = SourceMoments.from_arrays(X + offset, y, sample_weight=y != "cat")
            adapted = ProjectAndProbe.from_moments(moments).adapt(few + offset, names)
            found.append(adapted.predict_proba(few + offset))
            assert adapted.score(few + offset, names) > 0.9
        np.testing.assert_allclose(found[1], found[0], atol=1e-6)

    def test_options_reach_the_model_and_mistakes_are_explained(self, case):
        moments = SourceMoments.from_arrays(*case[1])
        assert ProjectAndProbe.from_moments(moments, n_components=3).projection_.components_.shape == (3, 14)
        with pytest.raises(ValueError, match="solver='logistic' needs source rows"):
            ProjectAndProbe.from_moments(moments, solver="logistic")
        with pytest.raises(ValueError, match="moments have one class only"):
            ProjectAndProbe.from_moments(SourceMoments.from_arrays(case[1][0], np.zeros(600)))
        with pytest.raises(TypeError, match="moments must be SourceMoments"):
            ProjectAndProbe.from_moments(case[1][0])


class TestHead:
    """All that is left of the source is its head."""

    def test_before_any_label_it_is_the_head(self, case, head, model):
        np.testing.assert_allclose(model.predict_proba(case[3][0]), head.predict_proba(case[3][0]), atol=1e-12)
        assert model.source_kind_ == "head"

    def test_labels_help(self, case, head, model):
        _, _, few, test = case
        adapted = model.adapt(*few)
        assert adapted.score(*test) > head.score(*test) - 0.02
        assert adapted.score(*test) > ProjectAndProbe.from_unlabeled(test[0], head.classes_).adapt(*few).score(*test)
        report = adapted.report_
        right = [np.mean(head.predict(few[0][few[1] == name]) == name) for name in report.classes]
        assert report.source_accuracy == pytest.approx(np.dot(report.shares, right))

    def test_the_prior_mean_at_its_calibrated_size_is_the_head(self, case, head, model):
        X = case[3][0]
        for prior in model.priors_:
            scores = prior.calibrated_size * prior.scores(prior.rows(X))[:, 0]
            np.testing.assert_allclose(probabilities(scores), head.predict_proba(X), atol=1e-10)
            assert prior.family.covariances == ("ranked",)  # rows without labels are not whitened

    def test_a_saved_model_adapts_alike(self, case, model, tmp_path):
        again = pro2.load(model.save(tmp_path / "m"))
        np.testing.assert_array_equal(again.adapt(*case[2]).coef_, model.adapt(*case[2]).coef_)
        assert again.source_kind_ == "head"

    def test_a_class_that_is_never_the_answer(self, case, head):
        K, _, few, test = case
        b = np.append(np.zeros(K - 1), -1e3) if K > 2 else np.array([-1e3])
        model = ProjectAndProbe.from_head(head.coef_, b, head.classes_, test[0])
        assert NAMES[K - 1] not in model.predict(test[0])
        assert NAMES[K - 1] in model.adapt(*few).predict(test[0])

    def test_new_classes_and_unit_rows(self, case, head):
        K, _, (X, y), test = case
        model = ProjectAndProbe.from_head(head.coef_, 0.0, head.classes_, test[0], scale="unit")
        adapted = model.adapt(X, np.where(y == NAMES[0], "zoo", y), new_classes="allow")
        assert adapted.classes_.tolist() == [*NAMES[:K], "zoo"]
        assert adapted.unit_rows_

    def test_mistakes_are_explained(self, case, head):
        X = case[3][0]
        K = len(head.classes_)
        for coef, intercept, classes, found in [
            (head.coef_[:, :5], 0.0, head.classes_, "coef has shape"),
            (head.coef_, np.zeros(K + 1), head.classes_, "intercept has"),
            (head.coef_ * np.nan, 0.0, head.classes_, "NaN"),
            (head.coef_, 0.0, ["ant"], "at least two"),
            (head.coef_, 0.0, ["ant"] * K, "same label twice"),
            (head.coef_, 0.0, K, "classes must be a list"),
            (head.coef_, 0.0, [1, *"abcdef"[: K - 1]], "mixes texts and numbers"),
            ("a", 0.0, head.classes_, "coef cannot be used"),
            (head.coef_, "a", head.classes_, "intercept cannot be used"),
            (1e200 * head.coef_, 0.0, head.classes_, "coef gives logits beyond"),
        ]:
            with pytest.raises(ValueError, match=found):
                ProjectAndProbe.from_head(coef, intercept, classes, X)


class TestUnlabeled:
    """No source at all: rows and names."""

    def test_labels_alone_teach_it(self, case, tmp_path):
        K, _, few, test = case
        model = ProjectAndProbe.from_unlabeled(test[0], NAMES[:K][::-1].tolist())
        adapted = model.adapt(*few)
        assert adapted.score(*test) > 1.3 / K
        assert {m["mean_size"] for m in adapted.report_.members} == {0.0}
        again = pro2.load(model.save(tmp_path / "m"))
        assert again.source_kind_ == "unlabelled rows"
        np.testing.assert_array_equal(again.adapt(*few).coef_, adapted.coef_)

    def test_before_any_label_all_classes_are_equally_likely(self, case):
        K, _, _, test = case
        model = ProjectAndProbe.from_unlabeled(test[0], NAMES[:K])
        np.testing.assert_allclose(model.predict_proba(test[0]), 1.0 / K, atol=1e-12)


def test_labelled_rows_are_not_added_to_answers_of_a_head(case, model):
    _, source, _, (X, _) = case
    for other in (model, ProjectAndProbe.from_unlabeled(X, NAMES[:3])):
        with pytest.raises(ValueError, match="partial_fit adds to labelled source rows, but this model was made from"):
            other.partial_fit(*source)


def test_a_head_may_be_in_a_type_that_numpy_does_not_have(case):
    torch = pytest.importorskip("torch")
    K, _, _, (X, _) = case
    W = torch.arange(K * 14, dtype=torch.bfloat16).reshape(K, 14) / 64
    half = ProjectAndProbe.from_head(W, torch.ones(K, dtype=torch.bfloat16), NAMES[:K], X)
    whole = ProjectAndProbe.from_head(W.double(), np.ones(K), NAMES[:K], X)
    np.testing.assert_array_equal(half.predict_proba(X), whole.predict_proba(X))


def test_tensors_stay_tensors_and_agree(case, head):
    torch = pytest.importorskip("torch")
    K, _, few, (X, _) = case
    new = np.where(np.arange(len(few[1])) % 3 == 0, "zoo", few[1])
    starts = {
        "head": lambda rows: ProjectAndProbe.from_head(head.coef_, head.intercept_, head.classes_, rows),
        "unlabeled": lambda rows: ProjectAndProbe.from_unlabeled(rows, NAMES[:K]),
    }
    for start in starts.values():
        tensors, arrays = start(torch.from_numpy(X)), start(X)
        assert isinstance(tensors.coef_, torch.Tensor)
        one = tensors.adapt(torch.from_numpy(few[0]), new, new_classes="allow")
        other = arrays.adapt(few[0], new, new_classes="allow")
        assert isinstance(one.coef_, torch.Tensor)
        np.testing.assert_allclose(one.coef_.numpy(), other.coef_, atol=1e-6)
        assert one.report_.source_accuracy == pytest.approx(other.report_.source_accuracy)
