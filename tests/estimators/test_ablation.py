"""Every ingredient of the default adaptation can be taken out, and taking it out changes something."""

import numpy as np
import pytest

from pro2 import ProjectAndProbe
from pro2.estimators import AblatedProjectAndProbe
from pro2.estimators.ablation import CHANGES, FAMILIES, OPTIONS
from pro2.lab.experiments.presets import find_plan


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = (np.arange(300) % 5 < 2).astype(int)
    return rng.normal(size=(300, 6)) * [1, 1, 2, 3, 1, 1] + y[:, None] * [1.5, 1, 0.5, 0, 0, 0], y


@pytest.mark.parametrize("without", [*FAMILIES, *OPTIONS, *CHANGES])
def test_each_ingredient_matters(data, without):
    X, y = data
    rows = 200 + np.r_[np.flatnonzero(y[200:] == 0)[:6], np.flatnonzero(y[200:] == 1)[:6]]
    few, labels = X[rows] + np.eye(6)[1], y[rows]
    full = ProjectAndProbe().fit(X[:200], y[:200]).adapt(few, labels)
    less = AblatedProjectAndProbe(without=without).fit(X[:200], y[:200]).adapt(few, labels)
    assert np.all(np.isfinite(less.coef_))
    assert not np.array_equal(less.intercept_, full.intercept_)


def test_an_unknown_ingredient_is_an_error(data):
    X, y = data
    with pytest.raises(ValueError, match="without must be one of"):
        AblatedProjectAndProbe(without="magic").fit(X, y).adapt(X[:4], y[:4])


def test_the_plan_names_known_ingredients():
    plan = find_plan("ablation")
    names = {dict(m.params).get("without") for m in plan.methods} - {None}
    assert names <= {*FAMILIES, *OPTIONS, *CHANGES}
    assert len(names) >= 10
