"""What a source says about the head of a shifted target, as a small family of Gaussian priors.

A logit of the target is  s(x) + theta'z(x),  theta ~ N(0, v Lambda):

* the centre s is nothing, or the source's linear discriminant at one of a few ridges and sizes;
* z are the coordinates of a scaled embedding; a share of the variance Lambda falls as 1 / k along the ranked features,
  the directions that predict the source label (`pro2.linalg.bases`), or it is whitened (`pro2.linalg.covariances`);
* v is one of a few reaches: how far a label may move the logits.

Variance 1 along the first d ranked features, 0 beyond and s = 0 would be the paper's probe: a prior with an edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from array_api_compat import array_namespace

from pro2.linalg import lapack
from pro2.linalg.covariances import Covariance, Principal, Seen, effective_dims
from pro2.linalg.discriminants import Discriminant
from pro2.linalg.family import Member, PriorFamily
from pro2.linalg.moments import Array, Moments


@dataclass(frozen=True, eq=False)
class SourcePrior:
    """The family for one source and one way to scale it; no source row is needed.

    Attributes
    ----------
    name : str
        Of the way to scale.
    scale : array (D,)
        What embeddings are divided by.
    centre : array (D,)
        Mean of the scaled class means: scores are affine in z = x / scale - centre.
    variance : array (D,)
        Of each scaled feature about the centre, classes weighted equally.
    ranked, whitened : Covariance
        In the scaled space; the directions of `ranked` are the ranked features.
    heads, offsets : arrays (R, K', D), (R, K')
        Source discriminants for equally common classes, one per ridge, scaled so that the root mean square margin of a
        source row is `unit`^2; K' = 1 (a difference of logits) for two classes, K centred logits for more.
    natural : tuple of float
        Size of each head as the source estimates it, in the unit of `heads`: more would be overconfident.
    accuracy : tuple of float
        Of each head on the source, classes weighted equally, by the Gaussian formula.
    dims : float
        Effective dimensions of source rows: (sum of eigenvalues)^2 / sum of their squares.
    unit : float
        1 + log(K - 1), which is 1 for two classes: the margin over K - 1 equal others that gives the true class
        probability e / (1 + e). Centres have size unit^2 because the best of the others counts, not their mean; prior
        variances have a factor `unit`.
    """

    family: PriorFamily
    name: str
    n_classes: int
    scale: Array
    centre: Array
    variance: Array
    ranked: Covariance
    whitened: Covariance
    heads: Array
    offsets: Array
    natural: tuple[float, ...]
    accuracy: tuple[float, ...]
    dims: float
    unit: float

    @classmethod
    def from_moments(
        cls, moments: Moments, scale: Array, components: Array, family: PriorFamily, name: str
    ) -> SourcePrior:
        """From moments of raw rows, their scale (D,), and ranked directions (d, D) of the scaled space.

        Of those the first `family.n_ranked` are used.
        """
        xp = array_namespace(moments.mean)
        K = len(moments.classes)
        if K < 2:
            raise ValueError(f"moments have {K} class: priors need a source with at least two classes.")
        moments = moments.scaled(scale)
        equal = _equal_classes(moments)
        centre, within = xp.mean(equal.mean, axis=0), equal.within_covariance()
        level = max(float(xp.mean(xp.linalg.diagonal(within))), 0.0) or 1.0
        heads = [Discriminant.of(equal, centre, within, r * level, _unit(K) ** 2) for r in family.ridges]
        second = within + _between(equal, centre)
        total = float(xp.sum(xp.linalg.diagonal(second))) or 1.0
        share = second / total  # squares of small numbers would vanish
        squares = float(xp.sum(share * share))
        principal = Principal.of(moments.covariance(), family.n_principal)
        # whole, they stay the array of the projection, which a file holds once
        components = components[: family.n_ranked, :] if components.shape[0] > family.n_ranked else components
        ranked, whitened = family.shaped(
            components, principal, lambda Q: Seen.along(Q, lapack.product(Q, share), squares, total)
        )
        variance = xp.maximum(xp.linalg.diagonal(second), 0.0 * centre)  # that of equal rows may round to less
        return cls.of(family, name, scale, centre, variance, ranked, whitened, effective_dims(squares), heads)

    @classmethod
    def of(
        cls, family: PriorFamily, name: str, scale: Array, centre: Array, variance: Array, ranked: Covariance,
        whitened: Covariance, dims: float, heads: Sequence[Discriminant],
    ) -> SourcePrior:  # fmt: skip
        """From its parts; heads have the size unit^2, one for each ridge of the family."""
        xp = array_namespace(centre)
        coef, offsets = xp.stack([h.coef for h in heads]), xp.stack([h.intercept for h in heads])
        natural, accuracy = tuple(h.natural for h in heads), tuple(h.accuracy for h in heads)
        K = 2 if coef.shape[1] == 1 else int(coef.shape[1])
        return cls(
            family, name, K, scale, centre, variance, ranked, whitened, coef, offsets, natural, accuracy, dims, _unit(K)
        )

    def with_classes(self, places: Sequence[int], n_classes: int) -> SourcePrior:
        """The same prior among more classes: those of the source are at `places`, new ones have no centre.

        Heads are brought to the size that `unit` has with so many classes, and at their natural size stay what they
        are.
        """
        if len(places) != self.n_classes or n_classes < self.n_classes:
            raise ValueError(f"places must name {self.n_classes} of at least as many classes, got {len(places)}.")
        if n_classes == self.n_classes:
            return self
        unit = _unit(n_classes)
        grown = (unit / self.unit) ** 2
        return replace(
            self,
            n_classes=n_classes,
            heads=grown * spread_classes(self.heads, places, n_classes),
            offsets=grown * spread_classes(self.offsets, places, n_classes),
            natural=tuple(size / grown for size in self.natural),
            unit=unit,
        )

    def gain(self, X: Array, weight: Array, usual: float = 1.0) -> Array:
        """What centred features of target rows X (M, D) are multiplied by, (D,): 1, or less where the target disagrees.

        `usual` is the ratio of variances that is no disagreement, however many rows there are.

        A feature that hardly moved on the source has a variance there of at least a hundredth of the mean: it may be
        alive on the target.
        """
        xp = array_namespace(X)
        Z = X / self.scale - self.centre
        expected = xp.maximum(self.variance, 0.01 * xp.mean(self.variance) + 0.0 * self.variance)
        limit = 1.0 + self.family.tolerance / math.sqrt(_n_rows(weight))
        allowed = xp.sqrt(limit * xp.where(expected > 0, expected, xp.ones_like(expected)))
        # in units of the largest value: squares of what is far off would not be finite
        largest = xp.max(xp.abs(Z), axis=0)
        Z = Z / xp.where(largest > 0, largest, xp.ones_like(largest))
        found = largest * xp.sqrt((weight / xp.sum(weight)) @ (Z * Z))
        excess = xp.maximum(found / allowed, xp.ones_like(found))
        return xp.where(excess**2 * limit > usual, 1.0 / excess, xp.ones_like(excess))

    def rows(self, X: Array, gain: Array) -> Array:
        """Rows in the space of the prior."""
        return (X / self.scale - self.centre) * gain

    def to_input(self, coef: Array, intercept: Array, gain: Array) -> tuple[Array, Array]:
        """A head of that space, (K', D) and (K'), as the same head on raw embeddings."""
        raw = coef * gain / self.scale
        return raw, intercept - (coef * gain) @ self.centre

    def scores(self, Z: Array) -> Array:
        """Logits of the source heads, (M, R, K')."""
        xp = array_namespace(Z)
        return xp.tensordot(Z, self.heads, axes=([1], [2])) + self.offsets

    def precision(self, member: Member) -> float:
        """1 / v, for each class half the variance of a difference of two."""
        v = self.unit * member.reach * math.sqrt(self.covariance(member.covariance).dims)
        return (1.0 if self.n_classes == 2 else 2.0) / v

    def centre_size(self, member: Member) -> float:
        """What the source head at the centre is multiplied by: its size, but no more than the source supports."""
        return min(member.size, self.natural[self._at(member)]) if member.size else 0.0

    def centre_scores(self, S: Array, member: Member) -> Array:
        """Prior mean of the scores, (M, K') from S = scores(Z)."""
        return self.centre_size(member) * S[:, self._at(member), :]

    def log_accuracy(self, member: Member) -> float:
        """Log of the accuracy of the centre on the source; one half for no centre and for worse ones.

        One half whatever the number of classes: zero is no worse at telling two classes apart when there are ten.
        """
        return math.log(max(0.5, self.accuracy[self._at(member)]) if member.size else 0.5)

    def _at(self, member: Member) -> int:
        return self.family.ridges.index(member.ridge) if member.size else 0

    def covariance(self, name: str) -> Covariance:
        """That of the coefficients, up to the factor v."""
        if name == "flat":
            total = float(array_namespace(self.variance).sum(self.variance)) or 1.0
            none = self.ranked.directions[:0, :]
            return Covariance(none, none[:, 0], 1.0 / total, self.dims)
        return {"ranked": self.ranked, "whitened": self.whitened}[name]

    def features(self, Z: Array, covariance: str) -> Array:
        """A (M, D + 1) with A A' the prior covariance of scores at v = 1; the last column is the intercept."""
        xp = array_namespace(Z)
        A = self.covariance(covariance).spread(Z)
        return xp.concat([A, xp.full_like(A[:, :1], math.sqrt(self.family.intercept))], axis=1)

    def head(self, theta: Array, covariance: str) -> tuple[Array, Array]:
        """The head (K', D), (K') of rows of this space whose scores are features(rows) @ theta (D + 1, K')."""
        coef = self.covariance(covariance).spread(array_namespace(theta).matrix_transpose(theta[:-1, :]))
        return coef, math.sqrt(self.family.intercept) * theta[-1, :]


def spread_classes(scores: Array, places: Sequence[int], n_classes: int) -> Array:
    """Logits or their coefficients (R, K', ...) of a source as (R, n_classes, ...): zero for classes it does not have.

    A difference of two logits becomes two that are centred, as those of more classes are.
    """
    xp = array_namespace(scores)
    own = xp.concat([-0.5 * scores, 0.5 * scores], axis=1) if scores.shape[1] == 1 else scores
    at = {int(place): i for i, place in enumerate(places)}
    rows = [own[:, at[k], ...] if k in at else 0.0 * own[:, 0, ...] for k in range(n_classes)]
    return xp.stack(rows, axis=1)


def _unit(n_classes: int) -> float:
    """The margin over all others, equal ones, that gives the true class probability e / (1 + e)."""
    return 1.0 + math.log(n_classes - 1.0)


def _equal_classes(moments: Moments) -> Moments:
    """The same classes, equally common: what is common on the target is another question (see `average`)."""
    xp = array_namespace(moments.mean)
    weight = xp.ones_like(moments.weight) * (moments.total_weight / len(moments.classes))
    return type(moments)(moments.classes, weight, moments.mean, moments.scatter)


def _between(moments: Moments, centre: Array) -> Array:
    xp = array_namespace(centre)
    M = (moments.mean - centre) * xp.sqrt(moments.weight / moments.total_weight)[:, None]
    return lapack.product(xp.matrix_transpose(M), M)


def _n_rows(weight: Array) -> float:
    """How many rows of equal weight would tell as much: (sum w)^2 / sum w^2."""
    xp = array_namespace(weight)
    return float(xp.sum(weight)) ** 2 / float(xp.sum(weight * weight))
