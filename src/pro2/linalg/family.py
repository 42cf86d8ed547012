"""The constants of the default adaptation, and the priors that they make: covariances times reaches times centres."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

from pro2.linalg.covariances import COVARIANCES, Covariance, Principal, Seen, ranked_covariance, whitened_covariance
from pro2.linalg.moments import Array

# beyond, squares and inverses of rows, scores and their variances are no longer numbers, or no direction counts
_RANGES: dict[str, tuple[Any, float, float]] = {
    "ridges": (Real, 1e-10, 1e10),
    "sizes": (Real, 0.0, 1e300),
    "reaches": (Real, 1e-10, 1e10),
    "ranked": (Real, 0.0, 1.0),
    "n_ranked": (Integral, 1, math.inf),
    "decay": (Real, 0.0, 100.0),
    "whitening": (Real, 1e-10, 1e10),
    "n_principal": (Integral, 1, math.inf),
    "intercept": (Real, 0.0, 1e10),
    "trust": (Real, 0.0, 1e10),
    "sharpness": (Real, 0.0, math.inf),
    "source_shares": (Real, 0.0, 1.0),
    "tolerance": (Real, 0.0, math.inf),
}


@dataclass(frozen=True)
class PriorFamily:
    """The constants of the default adaptation. `ProjectAndProbe(priors=PriorFamily(...))` changes them.

    They were settled on Waterbirds, Collages, CelebA and Living embeddings, and checked on raw pixels, digits and
    tables; docs/selection.md says which choice rests on what.

    Attributes
    ----------
    scales : tuple of str
        Ways to scale embeddings that are tried beside each other ("standard", "global"). Features of one unit favour
        one number for all, features of many units one number each; leave-one-out tells.
    ridges : tuple of float
        Of the source heads, relative to the mean within-class variance. Small: the sharpest head; large: one that
        spreads over all features that predict.
    sizes : tuple of float
        Of the centre, in units of a head whose root mean square margin on source rows is one (for more than two classes
        see `SourcePrior.unit`). 0: no centre. Under a shift a head as sure as on its source is too sure; none exceeds
        what the source supports.
    reaches : tuple of float
        A label moves its own logit by at most the prior variance v, and that of a typical other row by v / sqrt(d) when
        rows have d effective dimensions: reach = v / sqrt(d) means the same in 20 dimensions and in 2000.
    covariances : tuple of str
        Of the prior, up to a factor: "ranked", "whitened", "flat".
    ranked : float
        Share of the variance of "ranked" that falls along the ranked features; the rest is flat.
    n_ranked : int
        How many ranked features "ranked" falls along; beyond them it is flat. Twice as many change no result.
    decay : float
        The variance along ranked feature k falls as k^-decay.
    whitening : float
        "whitened" is (C + whitening I)^-1, C the source covariance in units of its mean eigenvalue. Small numbers trust
        directions that hardly move on the source.
    n_principal : int
        How many principal directions "whitened" tells apart; beyond them it is flat. More change no result.
    intercept : float
        Share of the intercept in the prior variance of a logit: classes are rarely far from where the source had them.
    trust : float
        How many target labels the source's own accuracy is worth when centres are compared.
    sharpness : float
        Power of the leave-one-out weights: infinity picks the best prior alone.
    source_shares : float in [0, 1]
        Power of the source's class shares that is assumed where labels were drawn class by class.
    tolerance : float
        Features whose target variance is more than 1 + tolerance / sqrt(rows) times the source's are damped to that:
        what the source learned about them no longer holds.
    """

    scales: tuple[str, ...] = ("standard", "global")
    ridges: tuple[float, ...] = (0.1, 3.0, 100.0)
    sizes: tuple[float, ...] = (0.0, 0.25, 1.0, 4.0)
    reaches: tuple[float, ...] = (0.2, 4.0, 32.0)
    covariances: tuple[str, ...] = ("ranked", "whitened")
    ranked: float = 0.2
    n_ranked: int = 128
    decay: float = 1.0
    whitening: float = 10.0
    n_principal: int = 64
    intercept: float = 0.03
    trust: float = 16.0
    sharpness: float = 1.0
    source_shares: float = 0.5
    tolerance: float = 4.0

    def __post_init__(self) -> None:
        for name in ("scales", "covariances", "ridges", "sizes", "reaches"):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise ValueError(f"{name} must be a tuple of at least one, got {values!r}.")
            object.__setattr__(self, name, tuple(values))
        if not set(self.covariances) <= set(COVARIANCES):
            raise ValueError(f"covariances must name some of {COVARIANCES}, got {self.covariances!r}.")
        for name, (kind, least, most) in _RANGES.items():
            values = getattr(self, name)
            for each in values if isinstance(values, tuple) else (values,):
                if isinstance(each, bool) or not isinstance(each, kind) or not least <= each <= most:
                    raise ValueError(f"{name} must be in {least:g}..{most:g}, got {each!r}.")
            plain: Callable[[Any], Any] = int if kind is Integral else float  # reports and files hold no NumPy number
            object.__setattr__(self, name, tuple(map(plain, values)) if isinstance(values, tuple) else plain(values))

    def members(self) -> list[Member]:
        """All priors of one scale: covariances times reaches times centres; size 0 has no ridge."""
        centres = [(s, r) for s in self.sizes for r in (self.ridges if s else (math.inf,))]
        return [Member(k, v, s, r) for k in self.covariances for v in self.reaches for s, r in centres]

    def shaped(
        self, components: Array, principal: Principal, seen: Callable[[Array], Seen]
    ) -> tuple[Covariance, Covariance]:
        """The ranked and the whitened covariance of a source."""
        ranked = ranked_covariance(components, seen(components), self.ranked, self.decay)
        return ranked, whitened_covariance(principal, seen(principal.directions), self.whitening)


class Member(NamedTuple):
    """One prior: name of its covariance, reach, size of the centre and ridge of the source head at its centre."""

    covariance: str
    reach: float
    size: float
    ridge: float
