"""Ridge regression of class indicators on the target rows: the simplest strong baseline."""

from __future__ import annotations

import numpy as np

from pro2.lab.baselines.scaled import Head, ScaledBaseline, Validation, head_like
from pro2.linalg.moments import Array, host

PENALTIES = 10.0 ** np.arange(-1, 6)


class RidgeProbe(ScaledBaseline):
    """Least squares on all features with the target rows alone; the penalty by leave-one-out in closed form.

    What scikit-learn's `RidgeClassifierCV` does, on inputs scaled by the source. Validation rows are not looked at.

    Parameters
    ----------
    ridge, scale
        As in `SourceOnly`; the source is used for the input scaling and the source head only.

    References
    ----------
    Hoerl & Kennard, "Ridge regression: biased estimation for nonorthogonal problems", Technometrics 1970.
    """

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        from sklearn.linear_model import Ridge, RidgeCV

        signs = 2.0 * (host(codes)[:, None] == np.arange(len(self.classes_))) - 1.0
        signs = signs[:, 1] if len(self.classes_) == 2 else signs
        X, weights = host(Z), None if weight is None else host(weight)
        if weights is not None:  # a row without weight would divide zero by zero when it is left out
            X, signs, weights = X[weights > 0], signs[weights > 0], weights[weights > 0]
        # nothing can be left out of a single row
        with np.errstate(all="ignore"):  # said by a head that is not finite
            fit = (RidgeCV(PENALTIES) if len(X) > 1 else Ridge(1.0)).fit(X, signs, sample_weight=weights)
        return head_like(Z, fit.coef_, fit.intercept_)
