"""What scikit-learn's model selection scores: the adapted classifier, on the held-out rows of a fold."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from pro2 import ProjectAndProbe

RNG = np.random.default_rng(0)
N_SOURCE, N_TARGET = 300, 60


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, list]:
    """A source whose first feature predicts the label, a target where it predicts the opposite; target folds."""
    y = np.arange(N_SOURCE + N_TARGET) % 2
    domain = np.where(np.arange(len(y)) < N_SOURCE, 1, -1)
    sign = 2.0 * y - 1
    X = RNG.normal(size=(len(y), 6))
    X[:, 0] += 2.0 * sign * domain
    X[:, 1] += 1.5 * sign
    target = np.flatnonzero(domain < 0)
    folds = [
        (np.setdiff1d(np.arange(len(y)), target[test]), target[test])
        for _, test in StratifiedKFold(3).split(target, y[target])
    ]
    return X, y, domain, folds


def test_a_search_over_n_features_scores_the_adapted_classifier(rows: tuple) -> None:
    X, y, domain, folds = rows
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = ProjectAndProbe(l2=0.1).set_fit_request(sample_domain=True)
        search = GridSearchCV(estimator, {"n_features": [1, 2, 6]}, cv=folds).fit(X, y, sample_domain=domain)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) > 1
    expected = []
    for train, test in folds:
        model = ProjectAndProbe(l2=0.1, n_features=2).fit(X[train][domain[train] > 0], y[train][domain[train] > 0])
        adapted = model.adapt(X[train][domain[train] < 0], y[train][domain[train] < 0])
        expected.append(adapted.score(X[test], y[test]))
    assert scores[1] == pytest.approx(np.mean(expected))


def test_cross_validation_scores_target_rows_alone(rows: tuple) -> None:
    X, y, domain, folds = rows
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = ProjectAndProbe().set_fit_request(sample_domain=True)
        adapted = cross_val_score(estimator, X, y, cv=folds, params={"sample_domain": domain})
    source = [ProjectAndProbe().fit(X[:N_SOURCE], y[:N_SOURCE]).score(X[test], y[test]) for _, test in folds]
    assert adapted.mean() > np.mean(source) + 0.1
