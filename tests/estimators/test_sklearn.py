"""Every public estimator passes scikit-learn's own checks, and its model selection scores the adapted classifier."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from pro2 import Probe, ProjectAndProbe, Projection

N_SOURCE, N_TARGET = 300, 60


@parametrize_with_checks(
    [
        Projection(),
        Projection(solver="logistic"),
        Projection(solver="adamw", random_state=0),
        Probe(),
        ProjectAndProbe(),
        ProjectAndProbe(l2=0.1, n_features=1),
        ProjectAndProbe(l2="loo", n_features="loo"),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_sklearn_checks(estimator, check):
    check(estimator)  # raises what it finds


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, list]:
    """A source whose first feature predicts the label, a target where it predicts the opposite; target folds."""
    y = np.arange(N_SOURCE + N_TARGET) % 2
    domain = np.where(np.arange(len(y)) < N_SOURCE, 1, -1)
    sign = 2.0 * y - 1
    X = np.random.default_rng(0).normal(size=(len(y), 6))
    X[:, 0] += 2.0 * sign * domain
    X[:, 1] += 1.5 * sign
    target = np.flatnonzero(domain < 0)
    folds = [
        (np.setdiff1d(np.arange(len(y)), target[test]), target[test])
        for _, test in StratifiedKFold(3).split(target, y[target])
    ]
    return X, y, domain, folds


def test_a_search_scores_the_adapted_classifier_on_held_out_target_rows(rows: tuple) -> None:
    X, y, domain, folds = rows
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = ProjectAndProbe(l2=0.1).set_fit_request(sample_domain=True)
        search = GridSearchCV(estimator, {"n_features": [1, 2, 6]}, cv=folds).fit(X, y, sample_domain=domain)
        scores = cross_val_score(estimator, X, y, cv=folds, params={"sample_domain": domain})
    expected, source = [], ProjectAndProbe(l2=0.1, n_features=2).fit(X[:N_SOURCE], y[:N_SOURCE])
    for train, test in folds:
        few = train[domain[train] < 0]
        expected.append(source.adapt(X[few], y[few]).score(X[test], y[test]))
    assert search.cv_results_["mean_test_score"][1] == pytest.approx(np.mean(expected))
    assert scores.mean() > source.score(X[N_SOURCE:], y[N_SOURCE:]) + 0.1
