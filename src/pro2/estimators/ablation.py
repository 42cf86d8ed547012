"""The default adaptation with one ingredient taken out, for the ablation table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pro2.estimators.linear import LinearClassifier
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.estimators.projection import DEFAULT_RIDGE
from pro2.linalg.averaging import average_head
from pro2.linalg.moments import Array
from pro2.linalg.priors import CANDIDATES, HINT, HOLDS, Candidate, SourcePrior

# what stays of the family of priors
FAMILIES: dict[str, Any] = {
    "source centres": lambda k: k.ridge is None,
    "zero centre": lambda k: k.ridge is not None,
    "several ridges": lambda k: k.ridge in (None, 1.0),
    "small ridges": lambda k: k.ridge is None or k.ridge >= 10.0,
    "large ridges": lambda k: k.ridge is None or k.ridge <= 1.0,
    "metric": lambda k: k.kernel != "metric",
    "euclidean": lambda k: k.kernel == "metric",
    "head span": lambda k: k.kernel != "euclidean+heads",
    "source holds": lambda k: (k.size, k.reach) in HINT,
    "source is a hint": lambda k: (k.size, k.reach) in HOLDS,
    "large reach": lambda k: k.reach < max(reach for _, reach in HINT),
}
OPTIONS: dict[str, dict[str, Any]] = {"averaging": {"pick": True}, "trust": {"trust": 0.0}}
CHANGES = ("intercept prior", "class shares")  # of the prior itself
FREE_INTERCEPT = 100.0


class AblatedProjectAndProbe(ProjectAndProbe):
    """`ProjectAndProbe` whose default adaptation lacks one ingredient. For measurements, not for use.

    Parameters
    ----------
    without : str
        One of `FAMILIES` (priors left out) or "averaging" (the best prior alone), "trust" (centres are equal before
        any label), "intercept prior" (the intercept is nearly free), "class shares" (labels drawn class by class mean
        that classes are equally common).
    n_components, solver, ridge, scale, random_state
        As in `ProjectAndProbe`.
    """

    def __init__(
        self,
        without: str = "averaging",
        n_components: int | None = None,
        solver: str = "krylov",
        ridge: float = DEFAULT_RIDGE,
        scale: str | None = "standard",
        random_state: Any = None,
    ):
        super().__init__(n_components, solver, ridge, scale, random_state=random_state)
        self.without = without

    def _candidates(self) -> tuple[Candidate, ...]:
        keep = FAMILIES.get(self.without)
        return CANDIDATES if keep is None else tuple(k for k in CANDIDATES if keep(k))

    def _prior(self, prior: SourcePrior) -> SourcePrior:
        if self.without == "intercept prior":
            return replace(prior, intercept=FREE_INTERCEPT)
        return replace(prior, shares=(1.0,) * prior.n_classes) if self.without == "class shares" else prior

    def _adapt(self, X: Array, codes: Array, weight: Array | None, **extra: Any) -> LinearClassifier:
        if self.without not in {*FAMILIES, *OPTIONS, *CHANGES}:
            raise ValueError(f"without must be one of {[*FAMILIES, *OPTIONS, *CHANGES]}, got {self.without!r}.")
        space = self._prior_space()
        assert space is not None
        prior = self._prior(space.prior)
        options = OPTIONS.get(self.without, {})
        head = average_head(prior, space.rows(X), codes, weight, self._candidates(), **options)
        coef, intercept = space.to_input(head.coef, head.intercept)
        return LinearClassifier.from_arrays(self.classes_, coef, intercept, unit=self.unit_rows_)
