"""Baselines on all features: how source and target heads can be combined."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from pro2.estimators.contract import SourceTargetClassifier
from pro2.estimators.linear import LinearClassifier, unit_rows
from pro2.estimators.moments import SourceMoments
from pro2.estimators.probe import best_candidate, penalty_grid, select
from pro2.estimators.projection import DEFAULT_RIDGE, SCALES, input_scale
from pro2.estimators.validation import check_X
from pro2.linalg.heads import discriminant_head
from pro2.linalg.probes import LogisticFit
from pro2.linalg.moments import Array, host
from pro2.linalg.probes import loo_loss, loo_path

MIX_GRID = tuple(np.linspace(0.0, 1.0, 11))
Head = tuple[Array, Array]
Validation = tuple[Array, Array] | None


class _ScaledBaseline(SourceTargetClassifier):
    """fit: input scaling and a source head (shrunk discriminant); adapt: `_adapt_scaled` on scaled target rows.

    Heads are (coef (D,), intercept ()) for two classes and (coef (K, D), intercept (K,)) for more, as in linalg.
    """

    def __init__(self, ridge: float = DEFAULT_RIDGE, scale: str | None = "standard"):
        self.ridge = ridge
        self.scale = scale

    def _fit_source(self, X: Array, codes: Array, weight: Array | None) -> Head:
        _check_options(self.scale, self.ridge)
        self.unit_rows_ = self.scale == "unit"
        X = unit_rows(X) if self.unit_rows_ else X
        moments = SourceMoments.from_arrays(X, codes, weight, classes=range(len(self.classes_)))
        if len(self.classes_) < 2:
            raise ValueError("y has one class only: a classifier needs source rows of at least two classes.")
        xp = array_namespace(moments.mean)
        self.mean_ = moments.total_mean()
        self.scale_ = input_scale(xp.linalg.diagonal(moments.covariance()), self.scale)
        self._moments = moments.scaled(self.scale_)
        coef, intercept = discriminant_head(self._moments, self.ridge)
        self.source_head_ = LinearClassifier.from_arrays(
            self.classes_, coef / self.scale_, intercept, unit=self.unit_rows_
        )
        self._keep_rows(X, codes, weight)
        return coef / self.scale_, intercept

    def _keep_rows(self, X: Array, codes: Array, weight: Array | None) -> None:
        """Most methods forget the source rows; those that need them again override this."""

    def adapt(
        self, X_target: Any, y_target: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> LinearClassifier:
        """Adapt to labelled target rows; returns a new classifier, the model is not changed.

        Parameters
        ----------
        X_target, y_target : arrays (M, D), (M,)
        sample_weight : array (M,), optional
        X_val, y_val : arrays, optional
            Held-out target rows: what is "auto" is then chosen by accuracy on them. Methods with nothing to choose
            do not look at them.
        """
        return super().adapt(X_target, y_target, sample_weight, X_val=X_val, y_val=y_val)

    def _adapt(
        self, X: Array, codes: Array, weight: Array | None, X_val: Any = None, y_val: Any = None, **extra: Any
    ) -> LinearClassifier:
        val = self._validation(X_val, y_val)
        coef, intercept = self._adapt_scaled(self._scaled(X), codes, weight, val, **extra)
        coef = coef / self.scale_
        intercept = intercept - coef @ self.mean_
        return LinearClassifier.from_arrays(self.classes_, coef, intercept, unit=self.unit_rows_)

    def _scaled(self, X: Array) -> Array:
        xp = array_namespace(X)
        X = unit_rows(X) if self.unit_rows_ else X
        return (xp.astype(X, xp.float64) - self.mean_) / self.scale_

    def _source_scaled(self) -> Head:
        """The source head as a map of scaled rows."""
        coef, intercept = self.source_head_.coef_, self.source_head_.intercept_
        if len(self.classes_) == 2:
            coef, intercept = coef[0, :], intercept[0]
        return coef * self.scale_, intercept + coef @ self.mean_

    def _validation(self, X_val: Any, y_val: Any) -> tuple[Array, Array] | None:
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val go together: give both or neither.")
        if X_val is None:
            return None
        X_val = check_X(self, X_val, reset=False, name="X_val")
        return self._scaled(X_val), self._encode_target(y_val, X_val, "y_val")

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation, **extra: Any) -> Head:
        raise NotImplementedError


class _ProbeBaseline(_ScaledBaseline):
    """Adds the exact L2 probe and its penalty."""

    def __init__(self, l2: float | str = "auto", ridge: float = DEFAULT_RIDGE, scale: str | None = "standard"):
        super().__init__(ridge, scale)
        self.l2 = l2

    def _probe(self, Z: Array, codes: Array, weight: Array | None, val: Validation, prior: Array | None = None) -> Head:
        """Probe on all columns of Z; a penalty that is "auto" by validation or leave-one-out."""
        grid = penalty_grid(self.l2, Z, weight)
        fit, scores = select(Z, codes, [Z.shape[1]], grid, len(self.classes_), weight, prior, val)
        return _pick(fit, best_candidate(scores))


class SourceOnly(_ScaledBaseline):
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


class LinearProbe(_ProbeBaseline):
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

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        return self._probe(Z, codes, weight, val)


class SourceCenteredProbe(_ProbeBaseline):
    """Linear probe whose penalty is centred on the source head: mean log-loss + (l2 / 2) ||w - w_source||^2.

    Parameters as in `LinearProbe`. A strong penalty is the source head with a new intercept.

    References
    ----------
    Chelba & Acero, "Adaptation of maximum entropy capitalizer: little data can help a lot", 2006; Li, Grandvalet &
    Davoine, "Explicit inductive bias for transfer learning" (L2-SP), ICML 2018.
    """

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        return self._probe(Z, codes, weight, val, prior=self._source_scaled()[0])


class SourceLogitProbe(_ProbeBaseline):
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


class HeadInterpolation(_ProbeBaseline):
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

    def __init__(
        self,
        mix: float | str = "auto",
        l2: float | str = "auto",
        ridge: float = DEFAULT_RIDGE,
        scale: str | None = "standard",
    ):
        super().__init__(l2, ridge, scale)
        self.mix = mix

    def _adapt_scaled(self, Z: Array, codes: Array, weight: Array | None, val: Validation) -> Head:
        grid = MIX_GRID if self.mix == "auto" else (check_share("mix", self.mix),)
        n_classes, l2_grid = len(self.classes_), penalty_grid(self.l2, Z, weight)
        fit, left_out = loo_path(Z, codes, [Z.shape[1]], l2_grid, n_classes=n_classes, sample_weight=weight)
        at = best_candidate(host(loo_loss(left_out, codes, n_classes, weight)))
        source, target = self._source_scaled(), _pick(fit, at)
        if val is not None:
            errors = [_error(*_mixed(source, target, a), *val) for a in grid]
            return _mixed(source, target, grid[int(np.argmin(errors))])
        f, g = _logits(*source, Z), left_out[at[0], at[1], ...]
        losses = [_log_loss((1 - a) * f + a * g, codes, n_classes, weight) for a in grid]
        return _mixed(source, target, grid[int(np.argmin(losses))])


def check_share(name: str, value: Any) -> float:
    """A number in [0, 1], or an error that names the argument."""
    if isinstance(value, str) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be a number in [0, 1], got {value!r}.")
    return float(value)


def _check_options(scale: str | None, ridge: float) -> None:
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {SCALES}, got {scale!r}.")
    if isinstance(ridge, str) or not 0 <= ridge < float("inf"):
        raise ValueError(f"ridge must be a finite number >= 0, got {ridge!r}.")


def _pick(fit: LogisticFit, at: tuple[int, int]) -> Head:
    return fit.coef[at[0], at[1], ...], fit.intercept[at[0], at[1], ...]


def _mixed(source: Head, target: Head, share: float) -> Head:
    a = float(share)
    return (1 - a) * source[0] + a * target[0], (1 - a) * source[1] + a * target[1]


def _logits(coef: Array, intercept: Array, Z: Array) -> Array:
    return Z @ (coef if coef.ndim == 1 else array_namespace(coef).matrix_transpose(coef)) + intercept


def _error(coef: Array, intercept: Array, Z: Array, codes: Array) -> float:
    f = host(_logits(coef, intercept, Z))
    return float(np.mean((f > 0 if f.ndim == 1 else f.argmax(axis=1)) != host(codes)))


def _log_loss(scores: Array, codes: Array, n_classes: int, weight: Array | None) -> float:
    return float(host(loo_loss(scores[None, None, ...], codes, n_classes, weight)).reshape(-1)[0])
