"""Baselines on all features: how source and target heads can be combined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from pro2.estimators.probe import best_candidate, penalty_grid
from pro2.lab.baselines.scaled import Head, ProbeBaseline, ScaledBaseline, Validation, check_share, head_like, logits
from pro2.linalg.moments import Array, host
from pro2.linalg.probes import loo_loss, loo_path

MIX_GRID = tuple(np.linspace(0.0, 1.0, 11))
PENALTIES = 10.0 ** np.arange(-1, 6)


class SourceOnly(ScaledBaseline):
    """The source head, whatever the target: what adaptation has to beat.

    Parameters
    ----------
    ridge : float
        Shrinkage of the within-class covariance, relative to the mean variance of the scaled features.
    scale : {None, "global", "standard", "unit"}
        As in `Projection`.

    References
    ----------
    Friedman, "Regularized discriminant analysis", JASA 1989 (the head).
    """

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        return self._source_scaled()


class LinearProbe(ProbeBaseline):
    """L2 logistic regression on all features with the target rows alone: what the paper calls DFR.

    Parameters
    ----------
    l2 : float or "auto"
        Penalty; "auto" by leave-one-out on the target rows, or by accuracy on `X_val, y_val` given to `adapt`.
    ridge, scale
        As in `SourceOnly`; the source is used for the input scaling and the source head only.

    References
    ----------
    Kirichenko, Izmailov & Wilson, "Last layer re-training is sufficient for robustness to spurious correlations", ICLR
    2023; Rosenfeld, Ravikumar & Risteski, "Domain-adjusted regression", 2022.
    """

    grid = ("l2",)

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        return self._probe(Z, codes, weight, val)


class RidgeProbe(ScaledBaseline):
    """Least squares on all features with the target rows alone; the penalty by leave-one-out in closed form.

    What scikit-learn's `RidgeClassifierCV` does, on inputs scaled by the source. Validation rows are not looked at.

    Parameters as in `SourceOnly`; the source is used for the input scaling and the source head only.

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


class SourceCenteredProbe(ProbeBaseline):
    """Linear probe whose penalty is centred on the source head: mean log-loss + (l2 / 2) ||w - w_source||^2.

    Parameters as in `LinearProbe`. A strong penalty is the source head with a new intercept.

    References
    ----------
    Chelba & Acero, "Adaptation of maximum entropy capitalizer: little data can help a lot", 2006; Li, Grandvalet &
    Davoine, "Explicit inductive bias for transfer learning" (L2-SP), ICML 2018.
    """

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        return self._probe(Z, codes, weight, val, prior=self._source_scaled()[0])


class SourceLogitProbe(ProbeBaseline):
    """Linear probe with the source head's logit as one more feature.

    The logit gets the variance of all other features together, so a penalty that shrinks those to nothing still lets
    the source head through. Parameters as in `LinearProbe`.

    References
    ----------
    Daume III, "Frustratingly easy domain adaptation", ACL 2007 (its PRED baseline).
    """

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        xp = array_namespace(Z)
        coef = self._logit_rows()
        if val is not None:
            val = (self._with_logits(val[0], coef), val[1])
        w, b = self._probe(self._with_logits(Z, coef), codes, weight, val)
        D = Z.shape[1]
        return w[..., :D] + w[..., D:] @ coef, xp.asarray(b)

    def _logit_rows(self) -> Array:
        """Source logits as rows (1, D) or (K, D), scaled to the total variance of the features."""
        xp = array_namespace(self.mean_)
        coef = self._source_scaled()[0]
        coef = coef[None, :] if coef.ndim == 1 else coef
        cov = self._moments.covariance()
        spread, total = xp.sum((coef @ cov) * coef), xp.sum(xp.linalg.diagonal(cov))
        return coef * xp.sqrt(total / xp.where(spread > 0, spread, xp.ones_like(spread)))

    @staticmethod
    def _with_logits(Z: Array, coef: Array) -> Array:
        xp = array_namespace(Z)
        return xp.concat([Z, Z @ xp.matrix_transpose(coef)], axis=1)


@dataclass(eq=False, repr=False, kw_only=True)
class HeadInterpolation(ProbeBaseline):
    """(1 - mix) * source head + mix * target head, both on all features.

    Parameters
    ----------
    mix : float in [0, 1] or "auto"
        Share of the target head. "auto" tries 0, 0.1, ..., 1 by leave-one-out log-loss on the target rows.
    l2, ridge, scale
        As in `LinearProbe`.

    References
    ----------
    Wortsman et al., "Robust fine-tuning of zero-shot models" (WiSE-FT), CVPR 2022.
    """

    mix: float | str = "auto"

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        grid = MIX_GRID if self.mix == "auto" else (check_share("mix", self.mix),)
        n_classes, l2_grid = len(self.classes_), penalty_grid(self.l2, Z, weight)
        fit, left_out = loo_path(Z, codes, [Z.shape[1]], l2_grid, n_classes=n_classes, sample_weight=weight)
        at = best_candidate(host(loo_loss(left_out, codes, n_classes, weight)))
        source, target = self._source_scaled(), (fit.coef[*at, ...], fit.intercept[*at, ...])
        if val is not None:
            losses = [_error(*_mixed(source, target, a), *val) for a in grid]
        else:
            f, g = logits(*source, Z), left_out[*at, ...]
            losses = [_log_loss((1 - a) * f + a * g, codes, n_classes, weight) for a in grid]
        return _mixed(source, target, grid[int(np.argmin(losses))])


def _mixed(source: Head, target: Head, share: float) -> Head:
    a = float(share)
    return (1 - a) * source[0] + a * target[0], (1 - a) * source[1] + a * target[1]


def _error(coef: Array, intercept: Array, Z: Array, codes: Array) -> float:
    f = host(logits(coef, intercept, Z))
    return float(np.mean((f > 0 if f.ndim == 1 else f.argmax(axis=1)) != host(codes)))


def _log_loss(scores: Array, codes: Array, n_classes: int, weight: Array | None) -> float:
    return float(host(loo_loss(scores[None, None, ...], codes, n_classes, weight)).reshape(-1)[0])
