"""Priors of many yes-or-no labels of the same rows from one factorisation.

The within-class covariance of a label differs from the total covariance T by rank one, T - c d d' with d the difference
of its class means, so (within + r I)^-1 d is a multiple of (T + r I)^-1 d. In the eigenvectors of T that is a division,
and so is every step towards the label's ranked directions. Where the label is p of the rows that have it, and a share q
of all rows has it, c = q p (1 - p): rows of which nobody knows the class lie within one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pro2.linalg.bases import lanczos
from pro2.linalg.covariances import Covariance, Principal, Seen, effective_dims
from pro2.linalg.discriminants import Discriminant
from pro2.linalg.family import PriorFamily
from pro2.linalg.priors import SourcePrior


class Spectrum(NamedTuple):
    """Total covariance of rows divided by `scale` (D,): eigenvalues (D,), eigenvectors (D, D) in columns, diagonal."""

    scale: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, covariance: np.ndarray, scale: np.ndarray) -> Spectrum:
        scaled = covariance / (scale[:, None] * scale[None, :])
        values, vectors = np.linalg.eigh(scaled)
        return cls(scale, np.maximum(values, 0.0), vectors, np.diagonal(scaled).copy())

    def along(self, d: np.ndarray) -> np.ndarray:
        """d (D,) in the eigenvectors; along those in which rows stand still there is nothing but rounding in it."""
        still = len(d) * np.finfo(float).eps * self.values[-1]
        return np.where(self.values > still, self.vectors.T @ d, 0.0)


class LabelMeans(NamedTuple):
    """Class means (2, D) of one label on raw rows, the share of yes among rows that have it, and the share of those."""

    mean: np.ndarray
    share: float
    known: float

    @property
    def between(self) -> float:
        """How much of the total covariance lies between the classes, in units of d d'."""
        return self.known * self.share * (1.0 - self.share)


def label_prior(spectrum: Spectrum, label: LabelMeans, family: PriorFamily, ridge: float, name: str) -> SourcePrior:
    """What `SourcePrior.from_moments` would give for this label, without a factorisation of its own."""
    mean = label.mean / spectrum.scale
    d = mean[1] - mean[0]
    e = spectrum.along(d)
    c = label.between
    level = float(np.mean(spectrum.variance - c * d * d)) or 1.0  # mean variance within classes
    n = min(family.n_ranked, len(d))
    denominator = spectrum.values + (ridge * float(spectrum.variance.mean()) or 1.0)
    Q = lanczos(lambda v: v / denominator, e, n)
    more = max(0.0, 0.25 - c)  # classes are taken as equally common: more lies between them
    ranked, whitened, dims = _covariances(spectrum, e, more, Q, family)
    centre, variance = mean.mean(axis=0), spectrum.variance + more * d * d
    heads = [_discriminant(spectrum, *_along(spectrum, e, c, r * level)) for r in family.ridges]
    return SourcePrior.of(family, name, spectrum.scale, centre, variance, ranked, whitened, dims, heads)


def _discriminant(spectrum: Spectrum, w: np.ndarray, noise: float, signal: float) -> Discriminant:
    """On equally common classes about their midpoint."""
    signs = 0.25 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return Discriminant.sized((spectrum.vectors @ w)[None, :], np.zeros(1), noise * signs, signal * signs, 1.0)


def _covariances(
    spectrum: Spectrum, e: np.ndarray, more: float, Q: np.ndarray, family: PriorFamily
) -> tuple[Covariance, Covariance, float]:
    """Both, made in the eigenvectors, where second moments are diagonal but for `more` along e; and flat dimensions."""
    values, D, p = spectrum.values, len(e), min(family.n_principal, len(e))
    total = float(values.sum() + more * (e @ e)) or 1.0
    share, f = values / total, e * np.sqrt(more / total)
    squares = float(share @ share + 2 * (f * f) @ share + (f @ f) ** 2)
    rest = float(values[: D - p].mean()) if p < D else 0.0
    ranked, whitened = family.shaped(
        Q,
        Principal(values[::-1][:p], np.eye(p, D, D - p)[::-1], rest),
        lambda rows: Seen.along(rows, rows * share + np.outer(rows @ f, f), squares, total),
    )
    ranked = replace(ranked, directions=Q @ spectrum.vectors.T)
    return ranked, replace(whitened, directions=spectrum.vectors.T[::-1][:p]), effective_dims(squares)


def label_head(spectrum: Spectrum, label: LabelMeans, ridge: float) -> tuple[np.ndarray, float]:
    """The label's linear discriminant on raw rows, as `discriminant_head` has it: coef (D,), intercept."""
    mean = label.mean / spectrum.scale
    level = max(ridge, 1e-10) * (float(spectrum.variance.mean()) or 1.0)
    e = spectrum.along(mean[1] - mean[0])
    v, _, _ = _along(spectrum, e, label.between, level)
    coef = spectrum.vectors @ v
    odds = np.log(max(label.share, 1e-12)) - np.log(max(1.0 - label.share, 1e-12))
    return coef / spectrum.scale, float(odds - 0.5 * coef @ (mean[0] + mean[1]))


def _along(spectrum: Spectrum, e: np.ndarray, c: float, ridge: float) -> tuple[np.ndarray, float, float]:
    """w = (within + ridge I)^-1 d in eigenvectors (Sherman & Morrison 1950), its variance within classes, and w'd."""
    u = e / (spectrum.values + ridge)
    w = u / (1.0 - c * float(e @ u))
    signal = float(w @ e)
    return w, float((w * w) @ spectrum.values) - c * signal**2, signal
