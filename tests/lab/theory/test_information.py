"""Information on Gaussians: against closed forms and sampling, and what the paper's lemmas say of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro2.lab.datasets.shog import make_shog
from pro2.lab.theory.information import (
    even_rows,
    gaussian_divergences,
    gaussian_entropy,
    label_information,
    mixture_entropy,
    separation_for,
    single_informations,
)

shares = st.floats(0.05, 0.95)
deviations = st.tuples(st.floats(0.2, 3.0), st.floats(0.2, 3.0))


def test_entropies_have_their_closed_forms() -> None:
    assert gaussian_entropy(np.eye(3)) == pytest.approx(1.5 * math.log(2 * math.pi * math.e))
    assert mixture_entropy((1.0, 1.0), (2.0, 2.0)) == pytest.approx(gaussian_entropy(np.array(4.0)))
    # far apart a mixture has the entropy of its label on top
    assert mixture_entropy((0.0, 60.0), (1.0, 1.0)) == pytest.approx(gaussian_entropy(np.array(1.0)) + math.log(2))


def test_information_equals_sampling() -> None:
    shog = make_shog(6, random_state=0)
    A = np.random.default_rng(0).standard_normal((2, 6))
    X, y = shog.sample("source", 200_000, 1)
    step = A @ (shog.means[1] - shog.means[0])
    w = np.linalg.solve(A @ shog.covariance("source") @ A.T, step)
    sign = 2 * y - 1
    sampled = math.log(2) - np.logaddexp(0.0, -sign * ((X @ A.T) @ w)).mean()  # the log-loss of the Bayes head
    assert label_information(A, shog.means, shog.covariance("source")) == pytest.approx(sampled, abs=4e-3)


@given(st.floats(0.0, 4.0), deviations, shares)
def test_the_second_lemma_needs_kl_and_fails_with_jensen_shannon(step: float, s: tuple[float, float], a: float) -> None:
    means = (0.0, step)
    js, kl = gaussian_divergences(means, s, a)
    within = a * gaussian_entropy(np.array(s[0] ** 2)) + (1 - a) * gaussian_entropy(np.array(s[1] ** 2))
    mixed = mixture_entropy(means, s, a)
    assert mixed <= within + 2 * a * (1 - a) * kl + 1e-7
    assert mixed == pytest.approx(within + js)


@pytest.mark.parametrize("divergence", [0.01, 0.2, 0.6])
def test_a_separation_has_the_divergence_asked_for(divergence: float) -> None:
    assert gaussian_divergences((0.0, separation_for(divergence)), (1.0, 1.0))[0] == pytest.approx(divergence)


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_even_rows_share_a_direction_evenly(n_rows: int) -> None:
    direction = np.random.default_rng(2).standard_normal(7)
    rows = even_rows(direction, n_rows)
    assert np.allclose(rows @ rows.T, np.eye(n_rows))
    assert np.allclose((rows @ direction) ** 2, direction @ direction / n_rows)
    means = np.stack([0 * direction, direction])
    # together they tell as much as the direction; one by one, with equal noise everywhere, more than it does
    whole = label_information(direction, means, np.eye(7))
    assert label_information(rows, means, np.eye(7)) == pytest.approx(whole)
    assert single_informations(rows, means, np.eye(7)).sum() >= whole - 1e-9
