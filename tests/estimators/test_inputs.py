"""What comes in: frames with names, tensors for NumPy models and the reverse, tables, and odd parameters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import pro2
from pro2 import MultiLabelProjectAndProbe, PriorFamily, Probe, ProbeBank, ProjectAndProbe, Projection
from pro2.tables.embeddings import EmbeddingTable
from tests.estimators.test_adaptation import make_data

NAMES = [f"f{i}" for i in range(16)]


@pytest.fixture(scope="module")
def rows():
    X, y = make_data()
    return X[:600], y[:600], X[600:], y[600:]


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


@pytest.fixture(scope="module")
def named(rows):
    Xs, ys, X, y = rows
    model = ProjectAndProbe().fit(frame(Xs), ys)
    return model, model.adapt(frame(X[:24]), y[:24])


def both_steps(X: pd.DataFrame, y: np.ndarray) -> ProjectAndProbe:
    return ProjectAndProbe().fit(X, y, sample_domain=np.where(np.arange(len(y)) < 200, 1, -1))


CALLS = {
    "both steps in one fit": lambda m, a, X, y: both_steps(X[X.columns[::-1]], y).predict(X),
    "adapt": lambda m, a, X, y: m.adapt(X, y),
    "adapt, fixed": lambda m, a, X, y: ProjectAndProbe(l2=0.1).fit(X[X.columns[::-1]], y).adapt(X, y),
    "X_val": lambda m, a, X, y: m.adapt(X[X.columns[::-1]], y, X_val=X, y_val=y),
    "X_unlabeled": lambda m, a, X, y: m.adapt(X[X.columns[::-1]], y, X_unlabeled=X),
    "adapt_unlabeled": lambda m, a, X, y: m.adapt_unlabeled(X),
    "predict of the model": lambda m, a, X, y: m.predict(X),
    "predict": lambda m, a, X, y: a.predict(X),
    "predict_proba": lambda m, a, X, y: a.predict_proba(X),
    "score": lambda m, a, X, y: a.score(X, y),
    "source head": lambda m, a, X, y: m.source_head_.predict(X),
    "projection": lambda m, a, X, y: m.projection_.transform(X),
    "bank over a projection": lambda m, a, X, y: ProbeBank(m).fit(X, y),
    "suggest_labels": lambda m, a, X, y: pro2.suggest_labels(m, X, 2, a),
}


class TestFeatureNames:
    """Names are carried and checked everywhere."""

    def test_right_frames_pass_without_a_warning(self, named, rows):
        model, adapted = named
        plain = ProjectAndProbe().fit(*rows[:2]).adapt(rows[2][:24], rows[3][:24])
        X = frame(rows[2])
        np.testing.assert_array_equal(adapted.predict(X), plain.predict(rows[2]))
        assert adapted.score(X, rows[3]) == plain.score(rows[2], rows[3])
        assert list(adapted.feature_names_in_) == list(model.source_head_.feature_names_in_) == NAMES
        model.adapt(X[:24], rows[3][:24], X_unlabeled=X)
        model.adapt(X[:24], rows[3][:24], X_val=X[24:], y_val=rows[3][24:])
        model.adapt_unlabeled(X).predict(X)
        model.projection_.transform(X)
        ProbeBank(model).fit(X, rows[3]).predict(X)
        pro2.suggest_labels(model, X, 2, adapted, X_labeled=X)

    @pytest.mark.parametrize("other", ["tensor", "moments"])
    def test_a_fit_without_names_forgets_those_of_the_fit_before(self, rows, other):
        torch = pytest.importorskip("torch")
        Xs, ys, X, _ = rows
        for model in (ProjectAndProbe().fit(frame(Xs), ys), Projection().fit(frame(Xs), ys)):
            if other == "tensor":
                model.fit(torch.from_numpy(Xs), ys)
            else:
                model.fit_moments(pro2.SourceMoments.from_arrays(Xs, ys))
            assert not hasattr(model, "feature_names_in_")
            (model.transform if isinstance(model, Projection) else model.predict)(X)

    @pytest.mark.parametrize("options", [{}, {"n_features": 3}])
    def test_frames_that_transformers_are_told_to_return_stay_outside(self, rows, options):
        from sklearn import config_context

        Xs, ys, X, y = rows
        plain = ProjectAndProbe(**options).fit(Xs, ys)
        with config_context(transform_output="pandas"):
            model = ProjectAndProbe(**options).fit(Xs, ys)
            np.testing.assert_array_equal(model.adapt(X[:24], y[:24]).coef_, plain.adapt(X[:24], y[:24]).coef_)
            if not options:
                assert isinstance(ProbeBank(model).fit(X, y).predict_proba(X), np.ndarray)
            assert isinstance(model.projection_.transform(X), pd.DataFrame)

    @pytest.mark.parametrize("name", CALLS)
    def test_columns_in_another_order_are_refused(self, named, rows, name):
        X = frame(rows[2])[NAMES[::-1]]
        with pytest.raises(ValueError, match="feature names should match"):
            CALLS[name](*named, X, rows[3])

    def test_a_file_keeps_them(self, named, rows, tmp_path):
        for kind, each in zip("ma", named):
            again = pro2.load(each.save(tmp_path / kind))
            assert list(again.feature_names_in_) == NAMES
            again.predict(frame(rows[2]))
            with pytest.raises(ValueError, match="feature names should match"):
                again.predict(frame(rows[2])[NAMES[::-1]])


class TestLibraries:
    """A model takes the arrays of any library."""

    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("options", [{}, {"l2": 0.1, "n_features": 3}])
    @pytest.mark.parametrize("fitted_on", ["numpy", "torch", "a file"])
    @pytest.mark.parametrize("used_with", ["numpy", "torch"])
    def test_fitted_on_one_and_used_with_another(self, rows, torch, tmp_path, options, fitted_on, used_with):
        Xs, ys, X, y = rows
        expected = ProjectAndProbe(**options).fit(Xs, ys).adapt(X[:24], y[:24])
        source = (Xs, ys) if fitted_on != "torch" else (torch.from_numpy(Xs), torch.from_numpy(ys))
        model = ProjectAndProbe(**options).fit(*source)
        if fitted_on == "a file":
            model = pro2.load(model.save(tmp_path / "m"))
        few = (X[:24], y[:24]) if used_with == "numpy" else (torch.from_numpy(X[:24]), torch.from_numpy(y[:24]))
        adapted = model.adapt(*few)
        for mine in (X, torch.from_numpy(X)):
            P = adapted.predict_proba(mine)
            assert type(P) is type(mine)
            np.testing.assert_allclose(np.asarray(P), expected.predict_proba(X), atol=1e-5)
        np.testing.assert_array_equal(model.predict(few[0]), model.predict(X[:24]))
        assert adapted.report_.n_labels == 24

    @pytest.mark.parametrize("precision", ["float16", "float64"])
    def test_validation_rows_may_be_of_another_precision(self, rows, torch, precision):
        Xs, ys, X, y = rows
        val = torch.from_numpy(X[24:])
        few, model = val.new_tensor(X[:24]).float(), ProjectAndProbe().fit(torch.from_numpy(Xs), ys)
        found = model.adapt(few, y[:24], X_val=val.to(getattr(torch, precision)), y_val=y[24:])
        expected = model.adapt(few, y[:24], X_val=val.float(), y_val=y[24:])
        assert found.n_features_ == expected.n_features_
        assert found.l2_ == pytest.approx(expected.l2_, rel=1e-5)

    def test_gradients_flow_through_predictions_alone(self, rows, torch):
        Xs, ys, X, y = rows
        followed = torch.from_numpy(X).requires_grad_()
        model = ProjectAndProbe().fit(torch.from_numpy(Xs).requires_grad_(), ys)
        model = model.partial_fit(followed, y)
        adapted = model.adapt(followed[:24], y[:24], X_unlabeled=followed)
        assert not adapted.coef_.requires_grad
        adapted.predict_proba(followed)[:, 1].sum().backward()
        assert np.isfinite(followed.grad.numpy()).all()


class TestLabels:
    """Labels come in many wrappings, and come back as what they were."""

    @pytest.mark.parametrize(
        ("wrap", "kind"),
        [
            (lambda y: pd.Series(y, dtype="Int64", index=range(9, 9 + len(y))), "i"),
            (lambda y: pd.Series(y == 1, dtype="boolean"), "b"),
            (lambda y: pd.Series(y.tolist(), dtype=object), "i"),
            (lambda y: np.array([np.int64(v) for v in y], dtype=object), "i"),
            (lambda y: pd.Series(y).astype("category"), "i"),
            (lambda y: np.array(["no", "yes"])[y].astype(np.dtypes.StringDType()), "O"),
            (lambda y: np.array(["no", "yes"])[y].tolist(), "U"),
        ],
    )
    def test_they_keep_their_type(self, rows, wrap, kind):
        Xs, ys, X, y = rows
        model = ProjectAndProbe().fit(Xs, wrap(ys))
        assert model.classes_.dtype.kind == model.predict(X).dtype.kind == kind
        plain = ProjectAndProbe().fit(Xs, ys).adapt(X[:24], y[:24])
        np.testing.assert_array_equal(model.adapt(X[:24], wrap(y[:24])).coef_, plain.coef_)

    @pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
    def test_what_is_missing_among_texts_is_no_text(self, rows, nothing):
        Xs, ys, X, y = rows
        names = np.array(["no", "yes"])
        some = [nothing if i % 3 == 0 else name for i, name in enumerate(names[y[:24]].tolist())]
        model = ProjectAndProbe().fit(Xs, names[ys])
        assert model.adapt(X[:24], some).report_.n_labels == 16
        with pytest.raises(ValueError, match="y contains NaN or None"):
            ProjectAndProbe().fit(X[:24], some)

    def test_masked_ones_are_missing(self, rows):
        Xs, ys, X, y = rows
        mask = np.arange(24) % 3 == 0
        found = ProjectAndProbe().fit(Xs, ys).adapt(X[:24], np.ma.masked_array(y[:24], mask))
        expected = ProjectAndProbe().fit(Xs, ys).adapt(X[:24], [None if m else v for m, v in zip(mask, y)])
        np.testing.assert_array_equal(found.coef_, expected.coef_)
        with pytest.raises(ValueError, match="X_target is a masked array"):
            ProjectAndProbe().fit(Xs, ys).adapt(np.ma.masked_array(X[:24], X[:24] > 0), y[:24])

    @pytest.mark.parametrize("learn", [ProjectAndProbe().fit, pro2.SourceMoments.from_arrays])
    def test_texts_and_numbers_are_not_mixed_in_silence(self, rows, learn):
        with pytest.raises(TypeError, match="y mixes labels of types"):
            learn(rows[0], ["yes" if v else 0 for v in rows[1]])
        for gaps in (["yes" if v else np.nan for v in rows[1]], np.ma.masked_array(rows[1], rows[1] == 0)):
            with pytest.raises(ValueError, match=r"missing labels|NaN or None"):
                learn(rows[0], gaps)


TEXT = "is text but the classes are numbers; convert the labels"
CASE = "differs from 'no' in spaces or capital letters only"
NEW = "accept them with new_classes='allow'"


class TestLabelsUnlikeTheClasses:
    """The message says what was found and what to do."""

    @pytest.mark.parametrize(
        ("classes", "wrong", "words"),
        [
            ([0, 1], lambda y: y.astype(str), TEXT),
            ([0, 1], lambda y: [str(float(label)) for label in y], TEXT),
            ([0, 1], lambda y: y + 0.5, "is a fraction; labels are classes, not scores or probabilities"),
            ([0, 1], lambda y: y + 1, NEW),
            (["no", "yes"], lambda y: np.full(8, "no "), f"'no ' {CASE}"),
            (["no", "yes"], lambda y: np.full(8, "No"), f"'No' {CASE}"),
            (["no", "yes"], lambda y: np.zeros(8), "is a number but the classes are text"),
            (["no", "yes"], lambda y: np.full(8, "maybe"), NEW),
        ],
    )
    def test_they_are_explained(self, rows, classes, wrong, words):
        Xs, ys, X, y = rows
        model = ProjectAndProbe().fit(Xs, np.array(classes)[ys])
        with pytest.raises(ValueError, match=f"y_target has classes .*{words}") as error:
            model.adapt(X[:8], wrong(y[:8]))
        assert ("new_classes" in str(error.value)) == (words == NEW)

    def test_whole_floats_are_the_classes(self, rows):
        Xs, ys, X, y = rows
        model = ProjectAndProbe().fit(Xs, ys)
        np.testing.assert_array_equal(model.adapt(X[:8], y[:8].astype(float)).coef_, model.adapt(X[:8], y[:8]).coef_)

    def test_two_columns_name_the_estimator_for_them(self, rows):
        Xs, ys, X, y = rows
        message = r"has shape \(\d+, 2\).*MultiLabelProjectAndProbe"
        with pytest.raises(ValueError, match=f"^y {message}"):
            ProjectAndProbe().fit(Xs, np.stack([ys, ys], axis=1))
        with pytest.raises(ValueError, match=f"^y_target {message}"):
            ProjectAndProbe().fit(Xs, ys).adapt(X[:8], np.stack([y, y], axis=1)[:8])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_reads_the_same_everywhere(rows, value):
    torch = pytest.importorskip("torch")
    Xs, ys, X, y = rows
    model, bad = ProjectAndProbe().fit(Xs, ys), X[:8].copy()
    bad[3, 2] = value
    table = EmbeddingTable(bad, [str(i) for i in range(8)])
    for call, name in {
        lambda: ProjectAndProbe().fit(bad, y[:8]): "X",
        lambda: model.adapt(bad, y[:8]): "X_target",
        lambda: model.predict(bad): "X",
        lambda: model.predict(torch.asarray(bad)): "X",
        table.check: ".*",
    }.items():
        words = (
            rf"^row 3( \(id '3'\))? of {name} is not finite \(NaN or infinity\); leave the row out or embed it again"
        )
        with pytest.raises(ValueError, match=words):
            call()


class TestTables:
    """An EmbeddingTable stands for its rows, the name of a column for its labels."""

    def table(self, X, y):
        return EmbeddingTable(X, columns={"label": y})

    def test_a_table_is_its_rows(self, rows):
        Xs, ys, X, y = rows
        by_table = ProjectAndProbe().fit(self.table(Xs, ys), "label").adapt(self.table(X[:24], y[:24]), "label")
        by_rows = ProjectAndProbe().fit(Xs, ys).adapt(X[:24], y[:24])
        np.testing.assert_allclose(by_table.coef_, by_rows.coef_, atol=1e-10)

    def test_labels_beside_a_table_are_the_name_of_a_column(self, rows):
        with pytest.raises(TypeError, match="y must be the name of a column"):
            ProjectAndProbe().fit(self.table(*rows[:2]), rows[1])


class TestParameters:
    """Numbers of any type are numbers; truth is none."""

    @pytest.mark.parametrize("ridge", [np.float32(0.3), np.float64(0.3), 1, np.int64(1)])
    def test_ridge_is_any_number(self, rows, ridge):
        found = ProjectAndProbe(ridge=ridge).fit(*rows[:2]).coef_
        np.testing.assert_allclose(found, ProjectAndProbe(ridge=float(ridge)).fit(*rows[:2]).coef_, rtol=1e-12)

    @pytest.mark.parametrize(
        ("estimator", "name", "values"),
        [
            (ProjectAndProbe(), "ridge", [True, "0.3", None, -1.0, np.inf]),
            (Projection(), "ridge", [True, "0.3", None, -1.0, np.inf]),
            (Projection(), "n_components", [True, 0, 17]),
            (ProjectAndProbe(), "priors", ["x", PriorFamily, {"ridge": 1.0}]),
            (MultiLabelProjectAndProbe(), "priors", ["x", PriorFamily, {"ridge": 1.0}]),
            (ProjectAndProbe(), "n_features", ["many", 0, -3, 2.5, None, True, [4]]),
            (ProjectAndProbe(), "l2", ["much", 0.0, -1, np.inf, np.nan, None]),
            (Probe(), "l2", [True, 0.0, np.nan, "cv", None]),
            (Probe(l2=0.1), "n_features", [True, 0, 17, 1.5, "all"]),
        ],
    )
    def test_anything_else_is_refused(self, rows, estimator, name, values):
        X, y = rows[0], rows[1][:, None] if isinstance(estimator, MultiLabelProjectAndProbe) else rows[1]
        for value in values:
            with pytest.raises((ValueError, TypeError), match=rf"{name}.* must"):
                clone(estimator).set_params(**{name: value}).fit(X, y)

    @pytest.mark.parametrize("estimator", [ProjectAndProbe(), Projection(), Probe()])
    @pytest.mark.parametrize("n", [30, 4000])
    def test_as_many_classes_as_rows_are_a_mistake_in_the_column(self, estimator, n):
        X = np.random.default_rng(0).normal(size=(n, 4))
        with pytest.raises(ValueError, match="y cannot be used: Unknown label type: continuous"):
            estimator.fit(X, X[:, 0])
        with pytest.raises(ValueError, match="is it a column of ids or measurements"):
            estimator.fit(X, np.arange(n))
