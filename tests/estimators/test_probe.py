"""The probe alone: what a prefix of the features means for it."""

from __future__ import annotations

import numpy as np

from pro2 import Probe


def test_the_prior_mean_of_features_that_are_not_used_plays_no_part():
    rng = np.random.default_rng(5)
    X, y, prior = rng.normal(size=(20, 6)), np.arange(20) % 2, rng.normal(size=6)
    whole = Probe(n_features=3, l2=0.1).fit(X, y, prior_mean=prior)
    short = Probe(n_features=3, l2=0.1).fit(X[:, :3], y, prior_mean=prior[:3])
    np.testing.assert_allclose(whole.predict_proba(X), short.predict_proba(X[:, :3]), atol=1e-9)
