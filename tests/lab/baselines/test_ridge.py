"""Ridge on the target: the same answers as scikit-learn, which does the work."""

import numpy as np
from sklearn.linear_model import RidgeClassifierCV

from pro2.lab.baselines import create_baseline
from pro2.lab.baselines.heads import PENALTIES


def test_ridge_is_scikit_learns_on_scaled_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 8)), rng.integers(0, 3, 120)
    X[:, 0] += 2 * y
    few = np.r_[0:30]
    model = create_baseline("ridge", scale=None).fit(X, y)
    reference = RidgeClassifierCV(PENALTIES).fit(X[few], y[few])
    np.testing.assert_array_equal(model.adapt(X[few], y[few]).predict(X), reference.predict(X))
