"""Every public estimator passes scikit-learn's own checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pro2 import Probe, ProjectAndProbe, Projection


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
